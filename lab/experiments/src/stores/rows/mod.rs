//! The measured rows: one file a row, each a function from an open store to metrics.
//!
//! | row | what |
//! |---|---|
//! | [`load`] | random load by one writer, compactions completed |
//! | [`overwrite`], [`mix`] | bytes written and space in steady writing ([`steady`]) |
//! | [`patterns`] | bytes written with longer values, and where keys have neighbours |
//! | [`merge`] | writes and lookups while a full merge runs |
//! | [`merge_space`] | what a full merge adds while a scan is open |
//! | [`lookups`], [`scans`] | reading |
//! | [`ycsb`] | YCSB's workloads, with records of 116 and of 1,016 bytes |
//! | [`writers`] | several threads that write |
//! | [`open_loop`] | puts at a high rate, and lookups beside them |
//! | [`removals`] | ranges that are removed, and a queue |
//! | [`hot_scans`] | scans of a tenth of the keys, beside writes |
//! | [`durable`] | puts that wait for the device |
//! | [`compact`] | space after a full merge |
//! | [`reopen`] | the first answer after a crash in a full merge |

pub mod compact;
pub mod durable;
pub mod hot_scans;
pub mod load;
pub mod lookups;
pub mod merge;
pub mod merge_space;
pub mod mix;
pub mod open_loop;
pub mod overwrite;
pub mod patterns;
pub mod removals;
pub mod reopen;
pub mod scans;
pub mod steady;
mod streams;
mod together;
pub mod writers;
pub mod ycsb;

use esker_lab_measure::background::Control;
use esker_lab_measure::space::Peak;
use esker_lab_result::Metrics;
use esker_peers::{Durability, Figures, Name, System};
use esker_workload::{Kind, Request, entry};
use patterns::Pattern;

use crate::Result;
use crate::stores::sizes::Sizes;
use crate::stores::task::Task;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Row {
    /// See [`load`].
    Load,
    /// See [`overwrite`].
    Overwrite,
    /// See [`mix`].
    Mix,
    /// See [`patterns`]: values of 1,000 bytes.
    Values1000,
    /// See [`patterns`]: values of 4,000 bytes.
    Values4000,
    /// See [`patterns`]: keys in their order.
    Sequential,
    /// See [`patterns`]: keys around a mean that moves.
    MovingNormal,
    /// See [`merge`].
    Merge,
    /// See [`merge_space`].
    MergeSpace,
    /// See [`lookups`].
    Lookups,
    /// See [`scans`].
    Scans,
    /// See [`scans`]: of 10,000 entries.
    LongScans,
    /// See [`ycsb`].
    Ycsb,
    /// See [`ycsb`]: records with values of 1,000 bytes.
    Ycsb1000,
    /// See [`writers`].
    Writers,
    /// See [`open_loop`].
    OpenLoop,
    /// See [`removals`].
    Removals,
    /// See [`hot_scans`].
    HotScans,
    /// See [`durable`].
    Durable,
    /// See [`compact`].
    Compact,
    /// See [`reopen`].
    Reopen,
}

impl Row {
    /// Every row, in the order in which they run.
    pub const ALL: [Self; 21] = [
        Self::Load,
        Self::Lookups,
        Self::Scans,
        Self::LongScans,
        Self::HotScans,
        Self::Ycsb,
        Self::Ycsb1000,
        Self::Writers,
        Self::OpenLoop,
        Self::Removals,
        Self::Durable,
        Self::Merge,
        Self::MergeSpace,
        Self::Overwrite,
        Self::Mix,
        Self::Values1000,
        Self::Values4000,
        Self::Sequential,
        Self::MovingNormal,
        Self::Compact,
        Self::Reopen,
    ];

    /// The name as it is typed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Overwrite => "overwrite",
            Self::Mix => "mix",
            Self::Values1000 => "values-1000",
            Self::Values4000 => "values-4000",
            Self::Sequential => "sequential",
            Self::MovingNormal => "moving-normal",
            Self::Merge => "merge",
            Self::MergeSpace => "merge-space",
            Self::Lookups => "lookups",
            Self::Scans => "scans",
            Self::LongScans => "long-scans",
            Self::Ycsb => "ycsb",
            Self::Ycsb1000 => "ycsb-1000",
            Self::Writers => "writers",
            Self::OpenLoop => "open-loop",
            Self::Removals => "removals",
            Self::HotScans => "hot-scans",
            Self::Durable => "durable",
            Self::Compact => "compact",
            Self::Reopen => "reopen",
        }
    }

    /// The row with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|row| row.as_str() == name)
    }

    /// A short description of it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Load => "random load, 1 writer, compactions completed",
            Self::Overwrite => "steady overwrite",
            Self::Mix => "steady mix: half overwrites, a quarter new, a quarter deletes",
            Self::Values1000 => "values of 1,000 bytes: load and steady overwrite",
            Self::Values4000 => "values of 4,000 bytes: load and steady overwrite",
            Self::Sequential => "keys in their order: load and overwrite",
            Self::MovingNormal => "normal keys, the mean moves: load, then insert and delete",
            Self::Merge => "during a full merge, with writes and lookups",
            Self::MergeSpace => "a full merge with a scan held open",
            Self::Lookups => "random lookups, 2 threads",
            Self::Scans => "scans of 100",
            Self::LongScans => "scans of 10,000",
            Self::Ycsb => "YCSB A to F, 2 threads",
            Self::Ycsb1000 => "YCSB A to F with values of 1,000 bytes, 2 threads",
            Self::Writers => "buffered puts by 1, 4 and 8 threads",
            Self::OpenLoop => "80,000 puts/s by a schedule, with lookups",
            Self::Removals => "ranges removed: the oldest fiftieth 50 times, 3,000 apart; a queue",
            Self::HotScans => "scans of 100 in a tenth of the keys, 50 overwrites for each",
            Self::Durable => "durable single puts",
            Self::Compact => "after a full merge",
            Self::Reopen => "reopening after a crash in a full merge",
        }
    }

    /// Whether it begins with a folder that has no store.
    #[must_use]
    pub const fn begins_empty(self) -> bool {
        let by_pattern = matches!(
            self,
            Self::Values1000 | Self::Values4000 | Self::Sequential | Self::MovingNormal
        );
        by_pattern || matches!(self, Self::Load | Self::Reopen | Self::Ycsb1000 | Self::Removals)
    }

    /// Whether a system takes part. redb cannot merge during a scan, and would write steadily for
    /// hours to show what its load shows. Esker and RocksDB remove by range.
    #[must_use]
    pub const fn takes(self, system: Name) -> bool {
        match (self, system) {
            (_, Name::Esker) => true,
            (Self::Reopen, _) => false,
            (Self::Removals, system) => system.is_rocksdb(),
            (Self::Ycsb | Self::Ycsb1000 | Self::Writers | Self::OpenLoop, Name::Redb) => false,
            (Self::MergeSpace | Self::Overwrite | Self::Mix, Name::Redb) => false,
            (Self::Values1000 | Self::Values4000, Name::Redb) => false,
            (Self::Sequential | Self::MovingNormal, Name::Redb) => false,
            _ => true,
        }
    }
}

/// The receiver of a run's progress.
pub trait Tell: Sync {
    /// `done` of `total` requests are done.
    fn progress(&self, done: u64, total: u64);
    /// The process may be killed now.
    fn ready(&self);
}

/// An open store with the instruments around it.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The task of the run.
    pub task: &'a Task,
    /// The sizes of the run.
    pub sizes: Sizes,
    /// The store.
    pub store: &'a dyn System,
    /// The idle thread.
    pub control: &'a Control,
    /// The sampler of space.
    pub peak: &'a Peak,
    /// The receiver of progress.
    pub tell: &'a dyn Tell,
}

/// Requests between two reports of progress.
const PROGRESS_EVERY: u64 = 1024;

impl Run<'_> {
    /// Makes a put or deletion, buffered.
    pub(crate) fn write(&self, request: Request) -> Result<()> {
        self.write_with(request, Durability::Buffered)
    }

    pub(crate) fn write_with(&self, request: Request, durability: Durability) -> Result<()> {
        let key = entry::key(request.number);
        if request.kind == Kind::Delete {
            return Ok(self.store.delete(&key)?);
        }
        let value = entry::value(self.task.seed, request.number, request.version);
        Ok(self.store.put(&key, &value, durability)?)
    }

    /// Makes `count` of the requests, and says how many user bytes they had.
    pub(crate) fn write_all(
        &self,
        requests: impl Iterator<Item = Request>,
        count: u64,
    ) -> Result<u64> {
        let mut user_bytes = 0;
        for (done, request) in (0..count).zip(requests) {
            self.write(request)?;
            user_bytes += user_bytes_of(request);
            if done % PROGRESS_EVERY == 0 {
                self.tell.progress(done, count);
            }
        }
        Ok(user_bytes)
    }
}

/// Bytes of key and value of a put, of the key of a deletion.
const fn user_bytes_of(request: Request) -> u64 {
    match request.kind {
        Kind::Put => entry::ENTRY_BYTES,
        Kind::Lookup | Kind::Delete => entry::KEY_BYTES as u64,
    }
}

/// Runs the row of the run's task.
///
/// # Errors
/// Those of the store; [`Error::Invalid`](crate::Error::Invalid) where what was measured is not
/// what the row claims.
pub fn run(run: &Run<'_>) -> Result<Metrics> {
    match run.task.row {
        Row::Load => load::run(run),
        Row::Overwrite => overwrite::run(run),
        Row::Mix => mix::run(run),
        Row::Values1000 => patterns::run(run, &Pattern::scattered(1_000)),
        Row::Values4000 => patterns::run(run, &Pattern::scattered(4_000)),
        Row::Sequential => patterns::run(run, &Pattern::SEQUENTIAL),
        Row::MovingNormal => patterns::run(run, &Pattern::MOVING),
        Row::Merge => merge::run(run),
        Row::MergeSpace => merge_space::run(run),
        Row::Lookups => lookups::run(run),
        Row::Scans => scans::run(run),
        Row::LongScans => scans::run_long(run),
        Row::Ycsb => ycsb::run(run),
        Row::Ycsb1000 => ycsb::run_with_values(run, 1_000),
        Row::Writers => writers::run(run),
        Row::OpenLoop => open_loop::run(run),
        Row::Removals => removals::run(run),
        Row::HotScans => hot_scans::run(run),
        Row::Durable => durable::run(run),
        Row::Compact => compact::run(run),
        Row::Reopen => reopen::crash(run),
    }
}

/// The growth of a counter of the store; `None` where the store has no such counter.
pub(crate) fn grown(before: &Figures, after: &Figures, name: &str) -> Option<f64> {
    Some(after.get(name)? - before.get(name)?)
}

/// Inserts a metric that may be missing.
pub(crate) fn insert(metrics: &mut Metrics, name: &str, value: Option<f64>) {
    if let Some(value) = value.filter(|value| value.is_finite()) {
        metrics.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
