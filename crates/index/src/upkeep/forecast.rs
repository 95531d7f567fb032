//! A forecast of the next work on an index, on request of users.

use crate::{Index, Work};

/// The next work if nothing but further writes happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Memory of the memtable that is still to be filled before, in bytes; 0 where it is due.
    pub after_bytes: u64,
    /// Bytes of the memtable that are written out as a sorted run; 0 for none.
    pub flush_bytes: u64,
    /// The merge that follows.
    pub merge: Option<ForecastMerge>,
}

/// A merge that comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForecastMerge {
    /// Levels that it replaces, or merges into.
    pub levels: usize,
    /// Whether these are all.
    pub full: bool,
    /// Bytes of data that it merges.
    pub input_bytes: u64,
}

/// Data that an index keeps and that current readers do not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Bytes of blocks that merges have replaced and that wait for readers, or for a backup.
    pub replaced_bytes: u64,
    /// Versions that were kept for snapshots alone when they were last merged.
    pub versions: u64,
}

impl Index {
    /// The next work; `None` where it depends on the work under way. No I/O.
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
                let merge =
                    self.kind.forecast_merge(self.context(), &durable, full, memtable_bytes);
                Forecast { after_bytes, flush_bytes: 0, merge: Some(merge) }
            }
            Work::Flush => {
                let follows = self.kind.is_due_behind(self.context(), &durable, memtable_bytes)
                    && !self.is_merging();
                let merge =
                    || self.kind.forecast_merge(self.context(), &durable, false, memtable_bytes);
                Forecast { after_bytes, flush_bytes: memtable_bytes, merge: follows.then(merge) }
            }
        })
    }

    /// Whether a backup pins replaced views.
    pub fn is_pinned(&self) -> bool {
        self.views.is_pinned()
    }

    /// Space that is kept for readers of older views. No I/O.
    pub fn retained(&self) -> Retained {
        let durable = self.meta();
        let levels = durable.levels();
        Retained {
            replaced_bytes: self.views.waiting_bytes(),
            versions: levels.map(|level| level.counts.kept_for_snapshots).sum(),
        }
    }
}
