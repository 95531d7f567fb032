//! The maps of a checkpoint, read from the device.
//!
//! No number in the file is trusted: every slot that a node names must be in the file, aligned, and
//! named only once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use esker_device::Purpose;

use crate::alloc::space::Space;
use crate::error::{Result, corrupt, damaged};
use crate::log::superblock::Superblock;
use crate::media::Media;
use crate::place::Sector;
use crate::version::map::{Map, Root};
use crate::version::node::{RootRef, decode_inner, decode_leaf, decode_roots, node_class};
use crate::version::tree::{Inner, Node, NodeRef, Releases};

/// Reads the nodes of a checkpoint.
pub(super) struct Loader<'a> {
    media: &'a dyn Media,
    space: Space,
    /// Nodes by place: versions share them.
    nodes: HashMap<Sector, Node>,
    /// Places met in the version that is being read; none is met twice.
    seen: HashSet<Sector>,
    releases: Releases,
}

impl<'a> Loader<'a> {
    /// One that takes the nodes' slots in `space`. Nodes that are no longer needed go to
    /// `releases`.
    pub(super) fn new(media: &'a dyn Media, space: Space, releases: Releases) -> Self {
        Self { media, space, nodes: HashMap::new(), seen: HashSet::new(), releases }
    }

    /// The space with the nodes in it.
    pub(super) fn into_space(self) -> Space {
        self.space
    }

    fn bytes(&mut self, at: NodeRef) -> Result<Vec<u8>> {
        let bad = |what| corrupt(self.media.name(), at.sector.offset(), what);
        let class = node_class(at.bytes as usize);
        let claimed = class.is_some_and(|class| self.space.claim(at.sector, class));
        if !claimed {
            return Err(bad("map node at an unallocated offset"));
        }
        let mut bytes = vec![0; at.bytes as usize];
        self.media.read(at.sector.offset(), &mut bytes, Purpose::Recovery)?;
        if crc32c::crc32c(&bytes) != at.crc {
            return Err(bad("a node of the map does not match its checksum"));
        }
        Ok(bytes)
    }

    /// The versions of a checkpoint, the oldest first.
    pub(super) fn roots(&mut self, block: &Superblock) -> Result<Vec<(RootRef, Arc<Root>)>> {
        let bytes = self.bytes(block.roots)?;
        let offset = block.roots.sector.offset();
        let roots =
            decode_roots(&bytes).map_err(|error| damaged(self.media.name(), offset, &error))?;
        let mut loaded = Vec::with_capacity(roots.len());
        for root in roots {
            self.seen.clear();
            let bad = |what| corrupt(self.media.name(), offset, what);
            if root.page_size > block.segment_bytes {
                return Err(bad("a page is larger than a segment"));
            }
            let top =
                root.top.map(|top| self.node(top, root.height, root.page_size)).transpose()?;
            let map = Map { top, height: root.height };
            let whole = Root { map, page_size: root.page_size, pages: root.pages };
            loaded.push((root, Arc::new(whole)));
        }
        Ok(loaded)
    }

    fn node(&mut self, at: NodeRef, height: u32, page_size: u32) -> Result<Node> {
        let bad = |what| corrupt(self.media.name(), at.sector.offset(), what);
        if !self.seen.insert(at.sector) {
            return Err(bad("a node is in one map twice"));
        }
        if let Some(node) = self.nodes.get(&at.sector) {
            let node = node.clone();
            if node.home().get() != Some(at) || matches!(node, Node::Leaf(_)) != (height == 0) {
                return Err(bad("a node is in two places"));
            }
            return Ok(node);
        }
        let bytes = self.bytes(at)?;
        let wrong = |error| damaged(self.media.name(), at.sector.offset(), &error);
        let node = if height == 0 {
            Node::Leaf(Arc::new(decode_leaf(&bytes, at.count, page_size).map_err(wrong)?))
        } else {
            let mut inner = Inner::default();
            let children = decode_inner(&bytes, at.count).map_err(wrong)?;
            for (to, child) in inner.children.iter_mut().zip(children) {
                *to = child.map(|child| self.node(child, height - 1, page_size)).transpose()?;
            }
            Node::Inner(Arc::new(inner))
        };
        node.home().set(at, &self.releases);
        self.nodes.insert(at.sector, node.clone());
        Ok(node)
    }
}
