//! A checkpoint: the changed nodes of the maps, then one superblock that refers to all of them.
//!
//! Order of writes: nodes, the list of roots and the records that the new log must carry over;
//! sync; both copies of the superblock; sync. Before the second sync the file holds the older
//! checkpoint with its log, whole; after it, the newer one. Space that only the older one needs is
//! free then: its log, the dead slots, and the nodes that no root leads to.
//!
//! Written slots and nodes that nothing refers to are as good as free until the superblock changes.
//! So nodes may be written while commits continue ([`crate::log::concurrent_checkpoint`]).
//!
//! A node is written once, however many versions share it, and not again until it changes, so the
//! cost of a checkpoint is that of the changes since the last one.

use std::collections::HashMap;
use std::sync::Arc;

use esker_device::Purpose;

use crate::engine::{Core, Engine};
use crate::error::{Error, Result, damaged};
use crate::log::frames::{Log, Write};
use crate::log::hold::{free_before, roots_to_keep};
use crate::log::record::Record;
use crate::log::shared::KeptRoot;
use crate::log::superblock::Superblock;
use crate::place::{Class, Sector};
use crate::planted::{self, Bug};
use crate::version::map::Root;
use crate::version::node::{
    NODE_BYTES_MIN, RootRef, encode_inner, encode_leaf, encode_roots, node_class,
};
use crate::version::tree::{Node, NodeRef};

/// By how much the epochs of checkpoints that failed may pass that of the last one. Even: which
/// copies of the superblock are the older ones does not depend on it.
pub(crate) const EPOCHS_TRIED_MAX: u64 = 32;
/// The most that a record's frame adds to it in the log: header, part, and rest of a sector.
const FRAME_BYTES: u64 = 1024;

/// The contents of a checkpoint.
pub(crate) struct Plan {
    pub(crate) kept: Vec<KeptRoot>,
    /// Records that its log begins with.
    pub(crate) carried: Vec<Vec<u8>>,
    /// The number of dead slots, from the first on, that none of `kept` and `carried` needs.
    pub(crate) dead: usize,
    /// The number of moves, from the first on, that had been made when its maps were taken.
    pub(crate) retired: usize,
}

/// The nodes that one checkpoint writes, and the space that it has taken for them.
#[derive(Default)]
pub(crate) struct Saver {
    /// Slots taken, for when it fails.
    pub(crate) taken: Vec<Sector>,
    segments: Vec<u32>,
    /// Whether frames of the next log may have been written.
    has_begun_log: bool,
    /// Nodes that are not written yet.
    pub(crate) writes: Vec<(Sector, Vec<u8>)>,
    /// Nodes that have a place now, by their address in memory.
    saved: HashMap<*const (), (Node, NodeRef)>,
}

/// Gives a node and all below it a place, where they have none.
pub(crate) fn save(
    saver: &mut Saver,
    node: &Node,
    take: &mut impl FnMut(Class) -> Result<Sector>,
) -> Result<NodeRef> {
    if let Some(at) = node.home().get() {
        return Ok(at);
    }
    if let Some((_, at)) = saver.saved.get(&node.address()) {
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
    saver.saved.insert(node.address(), (node.clone(), at));
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

/// The prepared transaction as a record that a new log begins with.
pub(crate) fn prepared_record(core: &Core) -> Vec<Vec<u8>> {
    let held = core.prepared.clone().filter(|_| !planted::is(Bug::PreparedNotCarried));
    held.map(|held| Record::Prepare(held.name, held.changes).encode()).into_iter().collect()
}

impl Engine {
    /// Takes a checkpoint, whether or not one is due. A concurrent checkpoint in progress is
    /// abandoned, because this one is newer.
    pub(crate) fn checkpoint_core(&self, core: &mut Core) -> Result<()> {
        self.check_poison()?;
        if !core.is_log_ours {
            // A process that died may have left a superblock which no power cut would keep. What
            // only the one before leads to is free for this opening, and must not be yet.
            self.sync_file()?;
        }
        core.checkpoint_notes = None;
        self.write_held(core)?;
        self.checkpoint_newest(core)
    }

    /// Takes a checkpoint of the newest version and of those with names, with all slots that are
    /// dead now.
    pub(crate) fn checkpoint_newest(&self, core: &mut Core) -> Result<()> {
        core.dead.append(&mut self.versions.lock().take_dead());
        if planted::is(Bug::NodesFreedEarly) {
            let released = std::mem::take(&mut *self.releases.lock());
            released.into_iter().for_each(|sector| core.space.free(sector));
        }
        let plan = Plan {
            kept: roots_to_keep(core, &self.versions.lock()),
            carried: prepared_record(core),
            dead: core.dead.len(),
            retired: core.retired.len(),
        };
        self.take_checkpoint(core, plan, Saver::default())
    }

    /// Writes a checkpoint, and frees what only the one before needed.
    pub(crate) fn take_checkpoint(
        &self,
        core: &mut Core,
        plan: Plan,
        mut saver: Saver,
    ) -> Result<()> {
        let (block, log) = match self.write_checkpoint(core, &mut saver, &plan) {
            Ok(done) => done,
            Err(error) => {
                for sector in saver.taken {
                    core.space.free(sector);
                }
                for segment in saver.segments {
                    core.space.free_log(segment);
                }
                if saver.has_begun_log {
                    self.skip_epoch(core);
                }
                return Err(error);
            }
        };
        let Plan { kept, dead, retired, .. } = plan;
        let roots = kept.into_iter().map(|(_, _, root)| root).collect();
        for (node, at) in saver.saved.into_values() {
            // No other thread assigns homes to nodes while `core` is held.
            node.home().set(at, &self.releases);
        }
        let before = std::mem::replace(&mut core.log, log);
        core.is_log_ours = true;
        core.next_epoch = core.log.epoch + 1;
        core.durable = core.log.number - 1;
        core.unsynced_bytes = 0;
        core.is_growth_in_vain = false;
        if let Some(shared) = &mut core.shared {
            shared.block = block;
            // Which nodes are in use is known without them.
            self.releases.lock().clear();
            // The last one may be known here alone.
            let (named, ..) = before.named();
            before.segments.iter().skip(named.len()).for_each(|at| core.space.free_log(*at));
            free_before(core, roots, block.roots, named.to_vec(), dead);
        } else {
            self.free_older(core, roots, block.roots, before.segments, dead);
        }
        self.free_retired(core, retired);
        self.announce(core);
        self.counters.checkpoints.add(1);
        Ok(())
    }

    /// Frees what only the checkpoint before needed, of the dead slots the first `dead`.
    fn free_older(
        &self,
        core: &mut Core,
        roots: Vec<Arc<Root>>,
        roots_at: NodeRef,
        log_segments: Vec<u32>,
        dead: usize,
    ) {
        for segment in log_segments {
            core.space.free_log(segment);
        }
        if core.roots_at.sector != Sector::NONE {
            core.space.free(core.roots_at.sector);
        }
        core.roots_at = roots_at;
        core.roots = if planted::is(Bug::NodesFreedEarly) { Vec::new() } else { roots };
        let released = std::mem::take(&mut *self.releases.lock());
        for sector in core.dead.drain(..dead).chain(released) {
            core.space.free(sector);
        }
    }

    /// A checkpoint has failed that had begun its log: what there is of it must not be taken for a
    /// part of the next one's.
    fn skip_epoch(&self, core: &mut Core) {
        core.next_epoch += 2;
        if core.next_epoch > core.log.epoch + EPOCHS_TRIED_MAX && core.is_log_ours {
            let _first = self.poison.set("too many checkpoints have failed".to_owned());
        }
    }

    /// Writes all of a checkpoint; nothing that others see has changed when it fails.
    fn write_checkpoint(
        &self,
        core: &mut Core,
        saver: &mut Saver,
        plan: &Plan,
    ) -> Result<(Superblock, Log)> {
        let mut refs = Vec::with_capacity(plan.kept.len());
        let mut take = |class| self.take_node(core, class);
        for (names, version, root) in &plan.kept {
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
        let records: Vec<_> = self.kept(core).into_iter().chain(plan.carried.clone()).collect();
        let (block, log, carried) = self.next_log(core, saver, roots, &records)?;
        self.write_nodes(&saver.writes)?;
        for (offset, frame) in &carried {
            saver.has_begun_log = true;
            self.allocation.write_frame(self, core, *offset, frame, log.unit)?;
            self.counters.records.add(frame.len() as u64);
        }
        // From here on it is not known what a failure leaves.
        if !planted::is(Bug::SuperblockBeforeNodes) {
            self.sync_file()?;
        }
        for place in block.places() {
            let written = self.media.write(place, &block.encode(), Purpose::Manifest);
            written.map_err(|error| self.poisoned(error))?;
        }
        self.sync_file()?;
        self.counters.superblocks.add(2 * block.encode().len() as u64);
        Ok((block, log))
    }

    pub(crate) fn sync_file(&self) -> Result<()> {
        self.counters.syncs.add(1);
        self.media.flush(Purpose::Manifest).map_err(|error| self.poisoned(error))
    }

    /// Takes a slot for a node.
    pub(crate) fn take_node(&self, core: &mut Core, class: Class) -> Result<Sector> {
        if class.bytes() > core.space.segment_bytes() {
            return Err(Error::Full { reason: "a node of the map is too long".to_owned() });
        }
        let taken = self.take_slots(core, class, 1, 0)?;
        Ok(taken.into_iter().next().unwrap_or_default())
    }

    /// The superblock of the next epoch, its log, and what that log begins with.
    fn next_log(
        &self,
        core: &mut Core,
        saver: &mut Saver,
        roots: NodeRef,
        carried: &[Vec<u8>],
    ) -> Result<(Superblock, Log, Vec<Write>)> {
        let unit = u64::from(self.allocation.log_unit(self));
        let bytes: u64 =
            carried.iter().map(|record| record.len() as u64 + FRAME_BYTES.max(unit + 64)).sum();
        self.ensure_segments(core, 3 + (bytes / (u64::from(self.segment_bytes) / 2)) as u32)?;
        for _ in 0..2 {
            saver.segments.extend(core.space.take_log());
        }
        let block = Superblock {
            store: self.store,
            epoch: core.next_epoch,
            number: core.log.number,
            segment_bytes: self.segment_bytes,
            log: [0, 1].map(|at| saver.segments.get(at).copied().unwrap_or_default()),
            roots,
            allocation: self.allocation.kind(),
            log_unit: self.allocation.log_unit(self),
            is_shared: core.is_for_many,
        };
        let mut log = Log::new(&block);
        let mut writes = Vec::new();
        for record in carried {
            // By the time that the superblock leads here all of them are durable.
            let durable = log.number - 1;
            let appended = log.append(record, durable, || {
                let segment = core.space.take_log()?;
                saver.segments.push(segment);
                Some(segment)
            });
            writes.extend(appended.map_err(|error| damaged(self.media.name(), 0, &error))?);
        }
        Ok((block, log, writes))
    }

    pub(crate) fn write_nodes(&self, nodes: &[(Sector, Vec<u8>)]) -> Result<()> {
        let mut slots: Vec<_> =
            nodes.iter().map(|(sector, bytes)| (*sector, bytes.as_slice())).collect();
        self.counters.map.add(slots.iter().map(|(_, bytes)| bytes.len() as u64).sum());
        self.write_slots(&mut slots, Purpose::Manifest)
    }
}
