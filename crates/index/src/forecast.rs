//! What will be done next with a tree, as it looks now: for users who ask.

use esker_format::meta::IndexMeta;

use super::due::{are_due, data_bytes, spilled_bytes};
use super::{Index, Work};
use crate::fdtree::prepare::{Incoming, prepare};

/// What comes next when nothing else happens than that somebody writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Memory of the memtable that is still to be filled before, in bytes; 0 where it is due.
    pub after_bytes: u64,
    /// Bytes of the memtable that are written out as a spill run; 0 for none.
    pub spill_bytes: u64,
    /// The merge that follows.
    pub merge: Option<ForecastMerge>,
}

/// A merge that comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForecastMerge {
    /// Levels of the main tree that it replaces.
    pub levels: usize,
    /// Whether these are all.
    pub full: bool,
    /// Bytes of data that it merges.
    pub input_bytes: u64,
}

/// What a tree keeps that is of no use to whoever reads now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Bytes of blocks that merges have replaced and that wait for readers, or for a backup.
    pub replaced_bytes: u64,
    /// Versions that were kept for snapshots alone when they were last merged.
    pub versions: u64,
}

impl Index {
    /// What comes next; `None` where it has to wait for what is under way. No I/O.
    pub fn forecast(&self) -> Option<Forecast> {
        let due = self.due();
        let work = due.or_else(|| self.flush_work())?;
        let after_bytes = if due.is_some() { 0 } else { self.memtable_bytes_until_full() };
        let durable = self.meta();
        let written = self.views.load().memtable.counts().data_bytes();
        let memtable_bytes = if due.is_some() { written } else { written.max(self.kappa0_bytes()) };
        Some(match work {
            Work::Merge { full, with_memtable } => {
                let memtable_bytes = if with_memtable { memtable_bytes } else { 0 };
                let merge = self.forecast_merge(&durable, full, memtable_bytes);
                Forecast { after_bytes, spill_bytes: 0, merge: Some(merge) }
            }
            Work::Spill => {
                if durable.lsm.is_some() {
                    let follows = self.lsm_due(&durable).is_some() && !self.is_merging();
                    let merge = || self.forecast_merge(&durable, false, memtable_bytes);
                    let merge = follows.then(merge);
                    return Some(Forecast { after_bytes, spill_bytes: memtable_bytes, merge });
                }
                let (runs, spilled) = (durable.spills.len() + 1, spilled_bytes(&durable));
                let follows = !self.is_merging()
                    && are_due(&durable, runs, spilled.saturating_add(memtable_bytes));
                let merge = || self.forecast_merge(&durable, false, memtable_bytes);
                Forecast { after_bytes, spill_bytes: memtable_bytes, merge: follows.then(merge) }
            }
        })
    }

    /// A merge of all spill runs and this much of new data.
    fn forecast_merge(&self, durable: &IndexMeta, full: bool, new_bytes: u64) -> ForecastMerge {
        if durable.lsm.is_some() {
            let input_bytes = spilled_bytes(durable).saturating_add(new_bytes);
            return ForecastMerge { levels: 1, full, input_bytes };
        }
        let (shape, levels) = (&durable.shape, &durable.main.levels);
        let incoming = incoming(durable, new_bytes);
        let kappa0 = self.kappa0_bytes();
        let prepared = prepare(shape, levels, incoming, full, kappa0, self.sizes, self.codec());
        let merged = levels.get(..prepared.levels).unwrap_or_default();
        ForecastMerge {
            levels: prepared.levels,
            full: prepared.full,
            input_bytes: data_bytes(merged).saturating_add(incoming.data_bytes),
        }
    }

    /// Whether a backup keeps what is replaced.
    pub fn is_pinned(&self) -> bool {
        self.views.is_pinned()
    }

    /// What is kept for readers of the past. No I/O.
    pub fn retained(&self) -> Retained {
        let durable = self.meta();
        let levels = durable.levels();
        Retained {
            replaced_bytes: self.views.waiting_bytes(),
            versions: levels.map(|level| level.counts.kept_for_snapshots).sum(),
        }
    }
}

/// What comes to the levels: all spill runs, and this much of new data.
fn incoming(durable: &IndexMeta, new_bytes: u64) -> Incoming {
    let levels = durable.spills.iter().flat_map(|spill| &spill.levels);
    let entries = levels.map(|level| level.counts.data_entries()).sum();
    Incoming { data_bytes: spilled_bytes(durable).saturating_add(new_bytes), entries }
}
