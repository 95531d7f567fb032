//! The merge: prepare, then stage and insert group by group, then commit, delete, finalize.
//!
//! The exclusive scheme FD+XM: the caller holds the tree exclusively, so nobody sees the levels
//! in between. Until the commit the old levels stay as they are on the device: a crash at any
//! byte leaves the old tree and the log, which still has what the memtable had.

use std::cmp::Ordering;

use esker_device::Purpose;
use esker_format::KEY_BYTES_MAX;
use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, TreeMeta};
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};

use super::insert::{Insert, Written};
use super::prepare::{Incoming, Prepared, prepare};
use super::stage::Stage;
use super::tree::Tree;
use super::versions::{Fate, Keep};
use super::{Commit, FdTree, KeptTombstones, fault, finalize, shape};

impl FdTree {
    /// Merges the memtable, all spill runs and as many levels as it takes.
    pub(super) fn merge(&mut self, full: bool, commit: &mut Commit<'_>) -> Result<()> {
        let prepared = self.prepare(full);
        let _span = tracing::info_span!(
            "merge",
            keyspace = self.reader.keyspace.0,
            levels = prepared.levels,
            full = prepared.full
        )
        .entered();
        self.main.forget_express_fences(prepared.levels);
        // Read before the merge asks which versions to keep: a snapshot that goes meanwhile makes
        // the kept tombstones worth another merge, not the other way round.
        let oldest_snapshot = self.env.snapshots.oldest();
        let written = self.execute(&prepared)?;
        let meta = self.merged_meta(&prepared, &written);
        self.commit(&meta, &written.meta, commit)?;
        self.install(&prepared, written, meta)?;
        if prepared.full {
            let count = self.balance().tombstones;
            self.kept = KeptTombstones { count, oldest_snapshot };
        }
        Ok(())
    }

    fn prepare(&self, full: bool) -> Prepared {
        let counts = self.memtable.counts();
        let mut incoming =
            Incoming { data_bytes: counts.data_bytes(), entries: counts.puts + counts.tombstones };
        for level in self.meta.spills.iter().flat_map(|spill| &spill.levels) {
            incoming.data_bytes += level.counts.data_bytes();
            incoming.entries += level.counts.data_entries();
        }
        let kappa0 = self.kappa0_bytes();
        prepare(
            &self.meta.shape,
            &self.meta.main.levels,
            incoming,
            full,
            kappa0,
            top_bytes_max(kappa0),
        )
    }

    /// Writes the new levels. On an error everything written is given back.
    fn execute(&self, prepared: &Prepared) -> Result<Written> {
        self.trees().try_for_each(|tree| tree.enter(&self.reader))?;
        let mut stage = Stage::new();
        stage.add_memtable(&self.memtable);
        for spill in &self.spills {
            stage.add_tree(&self.reader, spill, spill.height(), Purpose::Merge);
        }
        if prepared.levels > 0 {
            stage.add_tree(&self.reader, &self.main, prepared.levels, Purpose::Merge);
        } else {
            stage.add_top_fences(&self.main);
        }
        let top_max = top_bytes_max(self.kappa0_bytes());
        let budget = &self.env.budget;
        let mut insert = Insert::new(&prepared.plan, &self.reader, budget, Purpose::Merge, top_max);
        let mut points = self.env.snapshots.live();
        if planted::is(Bug::SnapshotBlocksReused) {
            points.truncate(1);
        }
        let keep = Keep::new(points);
        move_groups(&mut stage, &mut insert, keep, prepared.full)?;
        self.env.faults.hit(fault::MERGE_FINISH)?;
        insert.finish(top_max)
    }

    fn merged_meta(&self, prepared: &Prepared, written: &Written) -> IndexMeta {
        let mut main = written.meta.clone();
        let mut shape = prepared.shape;
        if prepared.full {
            // Tightening (Eq. 4.3): the result may be smaller than its bound was.
            let data_bytes = main.levels.iter().map(|level| level.counts.data_bytes()).sum();
            shape = shape::choose(data_bytes, prepared.shape.kappa0_bytes);
            finalize::renumber(&mut main.levels, shape::bottom_rank(&shape));
        }
        let below = self.meta.main.levels.get(prepared.levels..).unwrap_or_default();
        main.levels.extend_from_slice(below);
        IndexMeta {
            flushed_seq: self.newest_seq(),
            shape,
            main,
            spills: Vec::new(),
            merges: self.meta.merges + 1,
        }
    }

    /// Makes new levels durable, then the record that names them.
    pub(super) fn commit(
        &self,
        meta: &IndexMeta,
        new_levels: &TreeMeta,
        commit: &mut Commit<'_>,
    ) -> Result<()> {
        let synced = if planted::is(Bug::CommitBeforeBlocks) {
            Ok(())
        } else {
            self.env
                .faults
                .hit(fault::MERGE_SYNC)
                .and_then(|()| self.env.blocks.sync(Purpose::Merge))
        };
        // A failed sync says nothing about what is on the device: no more writes.
        self.env.poison.on_error(synced)?;
        let committed = self.env.faults.hit(fault::MERGE_COMMIT).and_then(|()| commit(meta));
        if planted::is(Bug::CommitBeforeBlocks) {
            self.env.blocks.sync(Purpose::Merge)?;
        }
        if committed.is_err() && self.env.poison.reason().is_none() {
            // Refused before anything was changed: the new levels are nobody's.
            for extent in new_levels.extents() {
                self.env.blocks.give_back(*extent)?;
            }
        }
        committed
    }

    /// m-delete: what the durable manifest no longer names leaves the tree.
    pub(super) fn retire_replaced(&self, new: &IndexMeta) {
        let kept: std::collections::BTreeSet<_> = new.extents().collect();
        let replaced = self.meta.extents().filter(|extent| !kept.contains(extent)).copied();
        self.env.blocks.retire(replaced);
    }

    fn install(&mut self, prepared: &Prepared, written: Written, meta: IndexMeta) -> Result<()> {
        let mut fences = written.fences;
        for level in prepared.levels..self.main.height() {
            fences.push(self.main.held(level));
        }
        self.retire_replaced(&meta);
        if planted::is(Bug::FreedTwice)
            && let Some(extent) = meta.extents().next()
        {
            self.env.blocks.retire([*extent]);
        }
        self.main = Tree::written(meta.main.clone(), fences);
        self.spills.clear();
        self.finish_flush(meta);
        self.env.blocks.free_retired()
    }
}

/// Most memory that top fences may take.
pub(super) fn top_bytes_max(kappa0_bytes: u64) -> u64 {
    (kappa0_bytes / 4).max(4096)
}

/// The main loop: all entries in order, group by group; a group is one user key.
fn move_groups(
    stage: &mut Stage<'_>,
    insert: &mut Insert<'_>,
    mut keep: Keep,
    full: bool,
) -> Result<()> {
    let mut group: Option<Vec<u8>> = None;
    let mut last = (Seq::MAX, true);
    // Tombstones of the group that go unless an older version stays.
    let mut pending: Vec<(Seq, Fate)> = Vec::new();
    let mut more = stage.start()?;
    while more {
        let Some(item) = stage.item()? else { return Err(stage_is_empty()) };
        let is_fence = matches!(item.payload, Payload::Fence(_));
        let order = group.as_deref().map_or(Ordering::Less, |group| group.cmp(item.key));
        // A fence may be followed by its own duplicate (I2) or by data, at the same key.
        let older = item.seq < last.0 || (item.seq == last.0 && last.1);
        if order.is_gt() || (order.is_eq() && !older) || item.key.len() > KEY_BYTES_MAX {
            return Err(out_of_order());
        }
        last = (item.seq, is_fence);
        if order.is_lt() {
            let key = group.get_or_insert_default();
            key.clear();
            key.extend_from_slice(item.key);
            keep.next_key();
            pending.clear();
        }
        match item.payload {
            Payload::Fence(fence) => insert.add_fence(item.key, item.seq, &fence)?,
            payload => match keep.fate(item.seq) {
                Fate::Drop => {}
                fate if full && payload == Payload::Delete => pending.push((item.seq, fate)),
                fate => {
                    for (seq, fate) in pending.drain(..) {
                        insert.add_data(item.key, seq, &Payload::Delete, fate)?;
                    }
                    insert.add_data(item.key, item.seq, &payload, fate)?;
                }
            },
        }
        more = stage.advance()?;
    }
    stage.verify_complete()
}

/// What is merged is written under new checksums: disorder must not be carried over.
fn out_of_order() -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: 0,
        what: "entries to merge are out of order: run check to find the block".into(),
    }
}

fn stage_is_empty() -> Error {
    Error::Invalid { what: "a merge lost its place".into() }
}
