//! A checkpoint: the nodes of the maps that changed, then one superblock that names all.
//!
//! Order of writes: nodes, the list of roots and what the new log must carry over; sync; both
//! copies of the superblock; sync. Before the second sync the file holds the older checkpoint with
//! its log, whole; after it, the newer one. What only the older one needs is free then: its log,
//! the slots that are dead, and the nodes that no root leads to.
//!
//! Where the store has a thread, the thread writes most nodes before it takes the checkpoint, while
//! commits go on; then only those are left that changed meanwhile. Slots and nodes that are written
//! and named by nothing are as good as free until the superblock says otherwise.
//!
//! A node is written once however many versions share it, and not again until it changes, so that
//! a checkpoint costs what changed since the last one.

use std::collections::HashMap;
use std::sync::Arc;

use esker_device::Purpose;

use crate::engine::{Core, Engine};
use crate::error::{Error, Result, damaged};
use crate::log::{Log, Write};
use crate::map::{Node, NodeRef, Root};
use crate::node::{RootRef, encode_inner, encode_leaf, encode_roots};
use crate::planted::{self, Bug};
use crate::record::Record;
use crate::space::{Class, Sector};
use crate::superblock::Superblock;

/// Nodes take slots of at least this many bytes, which they share with pages of that size.
const NODE_BYTES_MIN: usize = 4096;
/// Bytes of nodes that are written beside commits between two syncs.
const AHEAD_BYTES: usize = 256 * 1024;

/// The size of slot for a node of `bytes`.
pub(crate) fn node_class(bytes: usize) -> Option<Class> {
    Class::holding(bytes.max(NODE_BYTES_MIN))
}

/// What one checkpoint writes.
#[derive(Default)]
struct Saver {
    /// Slots taken, for when it fails.
    taken: Vec<Sector>,
    segments: Vec<u32>,
    writes: Vec<(Sector, Vec<u8>)>,
    /// Nodes that have a place now, by their address in memory.
    saved: HashMap<*const (), (Node, NodeRef)>,
}

/// Names, number and root of a version.
type KeptRoot = (Vec<Arc<str>>, u64, Arc<Root>);

/// Gives a node and all below it a place, where they have none.
fn save(
    saver: &mut Saver,
    node: &Node,
    take: &mut impl FnMut(Class) -> Result<Sector>,
) -> Result<NodeRef> {
    if let Some(at) = node.home().get() {
        return Ok(at);
    }
    if let Some((_, at)) = saver.saved.get(&address(node)) {
        return Ok(*at);
    }
    let (bytes, count) = match node {
        Node::Leaf(leaf) => encode_leaf(leaf),
        Node::Inner(inner) => {
            let mut children = Vec::with_capacity(inner.children.len());
            for child in &inner.children {
                children.push(child.as_ref().map(|child| save(saver, child, take)).transpose()?);
            }
            encode_inner(&children)
        }
    };
    let at = place(saver, bytes, count, take)?;
    saver.saved.insert(address(node), (node.clone(), at));
    Ok(at)
}

/// Takes a slot for a node's bytes.
fn place(
    saver: &mut Saver,
    mut node: Vec<u8>,
    count: u32,
    take: &mut impl FnMut(Class) -> Result<Sector>,
) -> Result<NodeRef> {
    let too_long = || Error::Full { reason: "a node of the map is too long".to_owned() };
    let sector = take(node_class(node.len()).ok_or_else(too_long)?)?;
    saver.taken.push(sector);
    let at = NodeRef { sector, bytes: node.len() as u32, crc: crc32c::crc32c(&node), count };
    node.resize(node.len().next_multiple_of(NODE_BYTES_MIN), 0);
    saver.writes.push((sector, node));
    Ok(at)
}

fn address(node: &Node) -> *const () {
    match node {
        Node::Leaf(leaf) => Arc::as_ptr(leaf).cast(),
        Node::Inner(inner) => Arc::as_ptr(inner).cast(),
    }
}

impl Engine {
    /// Takes a checkpoint, whether or not one is due.
    pub(crate) fn checkpoint_core(&self, core: &mut Core) -> Result<()> {
        self.check_poison()?;
        core.dead.append(&mut self.versions.lock().take_dead());
        if planted::is(Bug::NodesFreedEarly) {
            let released = std::mem::take(&mut *self.releases.lock());
            released.into_iter().for_each(|sector| core.space.free(sector));
        }
        let mut saver = Saver::default();
        let outcome = self.write_checkpoint(core, &mut saver);
        let (block, log, roots) = match outcome {
            Ok(done) => done,
            Err(error) => {
                for sector in saver.taken {
                    core.space.free(sector);
                }
                for segment in saver.segments {
                    core.space.free_log(segment);
                }
                return Err(error);
            }
        };
        for (node, at) in saver.saved.into_values() {
            // Nobody else gives nodes a home while `core` is held.
            node.home().set(at, &self.releases);
        }
        let before = std::mem::replace(&mut core.log, log);
        for segment in before.segments {
            core.space.free_log(segment);
        }
        if core.roots_at.sector != Sector::NONE {
            core.space.free(core.roots_at.sector);
        }
        core.roots_at = block.roots;
        core.roots = if planted::is(Bug::NodesFreedEarly) { Vec::new() } else { roots };
        core.is_log_ours = true;
        core.durable = core.log.number - 1;
        core.unsynced_bytes = 0;
        let released = std::mem::take(&mut *self.releases.lock());
        for sector in core.dead.drain(..).chain(released) {
            core.space.free(sector);
        }
        self.counters.checkpoints.add(1);
        Ok(())
    }

    /// Writes all of a checkpoint; nothing that others see has changed when it fails.
    fn write_checkpoint(
        &self,
        core: &mut Core,
        saver: &mut Saver,
    ) -> Result<(Superblock, Log, Vec<Arc<Root>>)> {
        let kept = self.roots_to_keep(core);
        let mut refs = Vec::with_capacity(kept.len());
        let mut take = |class| self.take_node(core, class);
        for (names, version, root) in &kept {
            let top = root.map.top.as_ref();
            refs.push(RootRef {
                names: names.clone(),
                version: *version,
                page_size: root.page_size,
                pages: root.pages,
                height: root.map.height,
                top: top.map(|top| save(saver, top, &mut take)).transpose()?,
            });
        }
        let roots = place(saver, encode_roots(&refs), 0, &mut take)?;
        let (block, log, carried) = self.next_log(core, saver, roots)?;
        self.write_nodes(&saver.writes)?;
        for (offset, frame) in &carried {
            self.file.write_at(*offset, frame, Purpose::Log)?;
            self.counters.records.add(frame.len() as u64);
        }
        // From here on it is not known what a failure leaves.
        if !planted::is(Bug::SuperblockBeforeNodes) {
            self.sync_file()?;
        }
        for place in block.places() {
            let written = self.file.write_at(place, &block.encode(), Purpose::Manifest);
            written.map_err(|error| self.poisoned(error))?;
        }
        self.sync_file()?;
        self.counters.superblocks.add(2 * block.encode().len() as u64);
        Ok((block, log, kept.into_iter().map(|(_, _, root)| root).collect()))
    }

    fn sync_file(&self) -> Result<()> {
        self.counters.syncs.add(1);
        self.file.sync(Purpose::Manifest).map_err(|error| self.poisoned(error))
    }

    /// The named versions and the newest, the oldest first.
    fn roots_to_keep(&self, core: &Core) -> Vec<KeptRoot> {
        let versions = self.versions.lock();
        let (newest, root) = versions.newest();
        let mut kept = vec![(Vec::new(), newest, Arc::clone(root))];
        for (name, version) in &core.named {
            let known = kept.iter_mut().find(|(_, at, _)| at == version);
            match (known, versions.root(*version)) {
                (Some((names, ..)), _) => names.push(Arc::clone(name)),
                (None, Some(root)) => {
                    kept.push((vec![Arc::clone(name)], *version, Arc::clone(root)));
                }
                (None, None) => {}
            }
        }
        kept.sort_by_key(|(_, version, _)| *version);
        kept
    }

    /// Takes a slot for a node.
    fn take_node(&self, core: &mut Core, class: Class) -> Result<Sector> {
        if class.bytes() > core.space.segment_bytes() {
            return Err(Error::Full { reason: "a node of the map is too long".to_owned() });
        }
        let taken = self.take_slots(core, class, 1, 0)?;
        Ok(taken.into_iter().next().unwrap_or_default())
    }

    /// Saves the nodes that a checkpoint would write now, while commits go on, so that it will have
    /// little left to write itself.
    pub(crate) fn save_ahead(&self) -> Result<()> {
        self.check_poison()?;
        let kept = {
            let mut core = self.core.lock();
            core.is_saving = true;
            self.roots_to_keep(&core)
        };
        let mut saver = Saver::default();
        let outcome = self.save_without_core(&kept, &mut saver);
        let mut core = self.core.lock();
        core.is_saving = false;
        if outcome.is_err() {
            saver.taken.iter().for_each(|sector| core.space.free(*sector));
            return outcome;
        }
        for (node, at) in saver.saved.values() {
            if !node.home().set(*at, &self.releases) {
                // A checkpoint has written the node meanwhile.
                core.space.free(at.sector);
            }
        }
        Ok(())
    }

    fn save_without_core(&self, kept: &[KeptRoot], saver: &mut Saver) -> Result<()> {
        let mut take = |class| self.take_node(&mut self.core.lock(), class);
        for top in kept.iter().filter_map(|(_, _, root)| root.map.top.as_ref()) {
            save(saver, top, &mut take)?;
        }
        // A commit's sync waits for what is on its way of these, so that is never much.
        let mut rest = saver.writes.as_slice();
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|(_, node)| {
                bytes += node.len();
                bytes <= AHEAD_BYTES
            });
            let (batch, later) = rest.split_at(fits.count().max(1));
            self.write_nodes(batch)?;
            self.sync_file()?;
            rest = later;
        }
        Ok(())
    }

    /// The superblock of the next epoch, its log, and what that log begins with.
    fn next_log(
        &self,
        core: &mut Core,
        saver: &mut Saver,
        roots: NodeRef,
    ) -> Result<(Superblock, Log, Vec<Write>)> {
        let carried = core.prepared.clone().filter(|_| !planted::is(Bug::PreparedNotCarried));
        let carried = carried.map(|held| Record::Prepare(held.name, held.changes).encode());
        let bytes = carried.as_ref().map_or(0, |record| record.len() as u64);
        self.ensure_segments(core, 3 + (bytes / (u64::from(self.segment_bytes) / 2)) as u32)?;
        for _ in 0..2 {
            saver.segments.extend(core.space.take_log());
        }
        let block = Superblock {
            store: self.store,
            epoch: core.log.epoch + 1,
            number: core.log.number,
            segment_bytes: self.segment_bytes,
            log: [0, 1].map(|at| saver.segments.get(at).copied().unwrap_or_default()),
            roots,
        };
        let mut log = Log::new(&block);
        let mut writes = Vec::new();
        if let Some(record) = carried {
            let space = &mut core.space;
            let taken = &mut saver.segments;
            let appended = log.append(&record, core.log.number - 1, || {
                let segment = space.take_log()?;
                taken.push(segment);
                Some(segment)
            });
            writes = appended.map_err(|error| damaged(self.file.name(), 0, &error))?;
        }
        Ok((block, log, writes))
    }

    fn write_nodes(&self, nodes: &[(Sector, Vec<u8>)]) -> Result<()> {
        let mut slots: Vec<_> =
            nodes.iter().map(|(sector, bytes)| (*sector, bytes.as_slice())).collect();
        self.counters.map.add(slots.iter().map(|(_, bytes)| bytes.len() as u64).sum());
        self.write_slots(&mut slots, Purpose::Manifest)
    }
}
