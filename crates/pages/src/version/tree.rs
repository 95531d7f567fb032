//! The nodes of a page map: leaves of mappings, and inner nodes.
//!
//! Checkpoints write nodes to the device. A written node knows its place ([`Home`]); when the last
//! root that leads to it is dropped, the place is freed.
//!
//! Invariants: a subtree without any mapping is `None`, and so is such a chunk of a leaf; `deltas`
//! are sorted by index, and `delta_bytes` is their length.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::place::Sector;
use crate::version::mapping::{Delta, Entry, Mapping};

/// Mappings of a leaf.
pub(crate) const LEAF: usize = 512;
/// Mappings that are copied together.
const CHUNK: usize = 32;
/// Children of an inner node.
pub(crate) const INNER: usize = 256;

/// The place of a node on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeRef {
    pub(crate) sector: Sector,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
    /// The number of its mappings or children up to the last that is not empty.
    pub(crate) count: u32,
}

/// Places of nodes that no root leads to any more.
pub(crate) type Releases = Arc<Mutex<Vec<Sector>>>;

/// The place that a node was written to, if it was; gives the place back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Home {
    at: OnceLock<(NodeRef, Releases)>,
}

impl Home {
    pub(crate) fn get(&self) -> Option<NodeRef> {
        self.at.get().map(|(at, _)| *at)
    }

    /// Records where the node has been written. Returns `false` when it already has a place, which
    /// stays.
    pub(crate) fn set(&self, at: NodeRef, releases: &Releases) -> bool {
        self.at.set((at, Arc::clone(releases))).is_ok()
    }
}

impl Clone for Home {
    /// A copy of a node is a new node, which is nowhere yet.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some((at, releases)) = self.at.get() {
            releases.lock().push(at.sector);
        }
    }
}

/// The mappings of [`CHUNK`] neighbouring pages: what is copied when one of them changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunk {
    entries: [Entry; CHUNK],
    deltas: Vec<(u16, Delta)>,
    delta_bytes: usize,
}

impl Chunk {
    fn find(&self, index: usize) -> Result<usize, usize> {
        self.deltas.binary_search_by_key(&index, |(at, _)| usize::from(*at))
    }

    fn get(&self, index: usize) -> Mapping {
        let delta = self.find(index).ok().and_then(|at| self.deltas.get(at));
        Mapping {
            entry: self.entries.get(index).copied().unwrap_or_default(),
            delta: delta.map(|(_, delta)| delta.clone()),
        }
    }

    fn set(&mut self, index: usize, mapping: Mapping) -> Mapping {
        let mut old = Mapping::default();
        if let Some(entry) = self.entries.get_mut(index) {
            old.entry = std::mem::replace(entry, mapping.entry);
        }
        self.delta_bytes += mapping.delta.as_ref().map_or(0, |delta| delta.len());
        match (self.find(index), mapping.delta) {
            (Ok(at), Some(delta)) => {
                old.delta = Some(std::mem::replace(&mut self.deltas[at].1, delta));
            }
            (Ok(at), None) => old.delta = Some(self.deltas.remove(at).1),
            (Err(at), Some(delta)) => self.deltas.insert(at, (index as u16, delta)),
            (Err(_), None) => {}
        }
        self.delta_bytes -= old.delta.as_ref().map_or(0, |delta| delta.len());
        old
    }

    fn is_empty(&self) -> bool {
        self.deltas.is_empty() && self.entries.iter().all(|entry| *entry == Entry::default())
    }
}

/// The mappings of [`LEAF`] neighbouring pages: the unit that a checkpoint writes.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    chunks: Vec<Option<Arc<Chunk>>>,
    pub(crate) home: Home,
}

impl Default for Leaf {
    fn default() -> Self {
        Self { chunks: vec![None; LEAF / CHUNK], home: Home::default() }
    }
}

impl Leaf {
    pub(crate) fn get(&self, index: usize) -> Mapping {
        let chunk = self.chunks.get(index / CHUNK).and_then(Option::as_ref);
        chunk.map(|chunk| chunk.get(index % CHUNK)).unwrap_or_default()
    }

    pub(crate) fn set(&mut self, index: usize, mapping: Mapping) -> Mapping {
        let Some(slot) = self.chunks.get_mut(index / CHUNK) else { return Mapping::default() };
        let was_hole = mapping.is_hole();
        if was_hole && slot.is_none() {
            return Mapping::default();
        }
        let chunk = Arc::make_mut(slot.get_or_insert_default());
        let old = chunk.set(index % CHUNK, mapping);
        if was_hole && chunk.is_empty() {
            *slot = None;
        }
        old
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.iter().all(Option::is_none)
    }

    /// The places of its pages' contents, up to the last page that has a slot.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let none = [Entry::default(); CHUNK];
        let chunks = self.chunks.iter().map(Option::as_ref);
        let mut entries: Vec<Entry> =
            chunks.flat_map(|chunk| chunk.map_or(none, |chunk| chunk.entries)).collect();
        let last = entries.iter().rposition(|entry| entry.slot != Sector::NONE);
        entries.truncate(last.map_or(0, |last| last + 1));
        entries
    }

    /// The deltas of its pages, by index.
    pub(crate) fn deltas(&self) -> impl Iterator<Item = (usize, &Delta)> {
        let chunks = (0..).step_by(CHUNK).zip(&self.chunks);
        chunks.flat_map(|(first, chunk)| {
            let deltas = chunk.iter().flat_map(|chunk| &chunk.deltas);
            deltas.map(move |(index, delta)| (first + usize::from(*index), delta))
        })
    }

    /// Bytes of all deltas.
    pub(crate) fn delta_bytes(&self) -> usize {
        self.chunks.iter().flatten().map(|chunk| chunk.delta_bytes).sum()
    }
}

/// The children of an inner node.
#[derive(Clone, Debug)]
pub(crate) struct Inner {
    pub(crate) children: Vec<Option<Node>>,
    pub(crate) home: Home,
}

impl Default for Inner {
    fn default() -> Self {
        Self { children: vec![None; INNER], home: Home::default() }
    }
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
}

impl Node {
    pub(crate) fn home(&self) -> &Home {
        match self {
            Self::Leaf(leaf) => &leaf.home,
            Self::Inner(inner) => &inner.home,
        }
    }

    /// Whether both are one node in memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf(a), Self::Leaf(b)) => Arc::ptr_eq(a, b),
            (Self::Inner(a), Self::Inner(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
