//! The interface of an index kind.
//!
//! An [`Index`] has what all kinds share: the memtable and its sorted runs, views, reads, values,
//! the durable record. Its kind decides what happens to runs: where the trees of a record are, when
//! something is merged, what, and how. Reads never call the kind: they use the view.
//!
//! A kind keeps its own state, behind its own lock where merges are concerned. That lock is taken
//! after the index's `starting` and before its `flush` (see [`Index`]).
//!
//! No kind names another, and no shared module names a kind, except the module that constructs
//! them.

pub(crate) mod context;
pub(crate) mod registry;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use esker_format::meta::IndexMeta;
use esker_format::ptr::Extent;
use esker_substrate::error::Result;

use crate::check::{CheckSink, Units};
use crate::merge::Step;
use crate::read::source::Part;
use crate::run::opener::TreeOpener;
use crate::upkeep::forecast::ForecastMerge;
use crate::{Commit, Gate, Work};
use context::KindContext;

/// A kind of index, with the state that one index of it has beyond its record. `context` is always
/// that of the index whose kind it is; methods without it are called where there is no index yet,
/// or where it is not needed.
pub(crate) trait Kind: Any + Debug + Send + Sync {
    /// The parts of a view of an index whose record is `meta`, newest first, before its log has
    /// been replayed. An unreadable part is not an error: its keys are out of reach.
    fn open_parts(&self, opener: &TreeOpener<'_>, meta: &IndexMeta) -> Vec<Part>;

    /// Whether merges consume runs partially, range by range. Then no block of a run shares its
    /// units with another, and keys outside a run's range count as consumed from the beginning.
    fn consumes_runs_partially(&self) -> bool;

    /// Whether the merge under way permits a flush. Called under the lock `flush`.
    fn can_flush(&self) -> bool {
        true
    }

    /// A memtable with this much payload is about to be frozen for a flush.
    fn note_freeze(&self, _bytes: u64) {}

    /// A flush has been recorded in `meta`, as its newest run. Called under the lock of the durable
    /// state.
    fn note_run(&self, _meta: &IndexMeta) {}

    /// The work that should begin when the memtable is not full, and nothing is under way.
    fn due(&self, context: KindContext<'_>, durable: &Arc<IndexMeta>) -> Option<Work>;

    /// The work that writes the memtable out best when no flush is under way; `None` when it has to
    /// wait.
    fn flush_work(&self, context: KindContext<'_>, durable: &IndexMeta) -> Option<Work>;

    /// Whether the memtable is flushed before the next merge, rather than taking part in it.
    fn flushes_first(&self, context: KindContext<'_>, durable: &IndexMeta) -> bool;

    /// Whether writers should wait for the merge under way, of which there is one.
    fn is_ahead(&self, _context: KindContext<'_>) -> bool {
        false
    }

    /// Whether a merge would be due after a flush of this much payload, if no merge is under way.
    fn is_due_behind(
        &self,
        context: KindContext<'_>,
        durable: &Arc<IndexMeta>,
        flush_bytes: u64,
    ) -> bool;

    /// The merge that would begin now, of all runs and this much new data. No I/O.
    fn forecast_merge(
        &self,
        context: KindContext<'_>,
        durable: &IndexMeta,
        full: bool,
        new_bytes: u64,
    ) -> ForecastMerge;

    /// Whether a full merge would find nothing to do, where the memtable is empty and nothing is
    /// under way. `may_change`: as [`Index::is_fully_compacted`].
    fn is_fully_compacted(
        &self,
        context: KindContext<'_>,
        durable: &IndexMeta,
        may_change: bool,
    ) -> bool;

    /// Begins a merge: of everything, or of what is due; with the memtable as one of its inputs, if
    /// `with_memtable` is set and the kind supports such merges. Sets the index's `merging`.
    /// Returns false when there is nothing to merge, or something prevents it.
    ///
    /// # Errors
    /// `Full` without space for the merge to begin; `Corrupt` when an input that it begins with
    /// cannot be read. Nothing has changed in either case.
    fn begin(
        &self,
        context: KindContext<'_>,
        full: bool,
        with_memtable: bool,
        gate: &Gate<'_>,
    ) -> Result<bool>;

    /// Goes on with the merge that the record has, after the log has been replayed. Where it fails,
    /// every later step tries again.
    ///
    /// # Errors
    /// `Corrupt` when a block cannot be read that the merge begins with.
    fn resume(&self, _context: KindContext<'_>) -> Result<()> {
        Ok(())
    }

    /// Does the next step of the merge under way, as [`Index::step`] specifies. Resets `merging`
    /// with the last one.
    ///
    /// # Errors
    /// Those of [`Index::step`].
    fn step(&self, context: KindContext<'_>, commit: &mut Commit<'_>) -> Result<Step>;

    /// Pauses merges, between two steps, until the returned guard is dropped.
    fn pause(&self) -> Box<dyn PauseGuard + '_>;

    /// Checks the counted units of the levels against the record: see
    /// [`invariants`](crate::check). `found` ends with the units of each level, where all of
    /// it could be read.
    fn check_units(&self, _meta: &IndexMeta, _found: &[Option<Units>], _sink: &mut CheckSink) {}

    /// Checks the record of the levels.
    fn check_levels(&self, _context: KindContext<'_>, _meta: &IndexMeta, _sink: &mut CheckSink) {}
}

/// Paused merges.
pub(crate) trait PauseGuard: Debug {
    /// The space that the merge under way has taken in addition to what the levels and runs of the
    /// record name, including its own progress in the record; `None` when no merge is in memory.
    fn taken(&self) -> Option<Vec<Extent>>;

    /// Drops the merge under way, without freeing any space.
    fn forget(&mut self);
}
