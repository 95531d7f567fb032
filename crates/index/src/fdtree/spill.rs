//! Spill runs: the memtable written as a run of its own, to be merged with others later.

use esker_device::Purpose;
use esker_format::meta::IndexMeta;
use esker_substrate::error::Result;

use super::insert::{Insert, Plan};
use super::merge::top_bytes_max;
use super::tree::Tree;
use super::versions::Keep;
use super::{Commit, FdTree, fault};

impl FdTree {
    /// Writes the memtable out as the newest spill run. A tombstone stays: it hides older runs.
    pub(super) fn spill(&mut self, commit: &mut Commit<'_>) -> Result<()> {
        let counts = self.memtable.counts();
        let plan = Plan {
            fence_ranks: Vec::new(),
            data_rank: 1,
            data_bytes: counts.data_bytes(),
            below: false,
        };
        let top_max = top_bytes_max(self.kappa0_bytes());
        let mut insert =
            Insert::new(&plan, &self.reader, &self.env.budget, Purpose::Spill, top_max);
        let mut keep = Keep::new(self.env.snapshots.live());
        let mut last: Option<Vec<u8>> = None;
        for version in self.memtable.iter() {
            if last.as_deref() != Some(version.key()) {
                last = Some(version.key().to_vec());
                keep.next_key();
            }
            let fate = keep.fate(version.seq());
            if fate != super::versions::Fate::Drop {
                insert.add_data(version.key(), version.seq(), &version.payload(), fate)?;
            }
        }
        self.env.faults.hit(fault::SPILL_FINISH)?;
        let written = insert.finish(top_max)?;
        let mut meta: IndexMeta = self.meta.clone();
        meta.flushed_seq = self.newest_seq();
        meta.spills.insert(0, written.meta.clone());
        self.commit(&meta, &written.meta, commit)?;
        self.spills.insert(0, Tree::written(written.meta, written.fences));
        self.finish_flush(meta);
        Ok(())
    }
}
