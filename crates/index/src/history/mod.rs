//! Keyspaces with history: the split of a full merge, and the past indexes that splits leave.
//!
//! Source: W. G. Choi et al., *Optimization of a Multiversion Index on SSDs to Improve System
//! Performance* (bulk-split multiversion B-tree). The paper's *version split* of a whole tree, and
//! its *roots*: one for each past index, and one for the index of now.
//!
//! Merges keep every version, so the entries that newer ones have superseded, which a scan of the
//! present has to pass, become more and more. When they are a given share of all entries
//! (`share`), a full merge is a *split*: it copies what is live as of one number, with its own
//! numbers, into a new index, and leaves everything that it has read as it is. That is a past index
//! (`read::past`); readers as of earlier numbers search it, and no later merge touches it. Before a
//! split, everything above the bottom is merged into one level, so that a reader of the past has
//! two levels to ask.
//!
//! Invariant: of a keyspace's past indexes each begins with the version at which the one before it
//! ends, and the index of now begins with that at which the last one ends.
//! Invariant: an index, past or of now, answers each version from its first one on without the
//! others: what was live at its first version is in it.

pub(crate) mod retention;
pub(crate) mod share;

use std::fmt;
use std::sync::Arc;

use esker_format::ids::{Moment, Seq};
use esker_format::meta::IndexMeta;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_substrate::sync::{Mutex, Swap};

use crate::Index;

/// The history that a keyspace keeps: every version from one on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct History {
    /// The first version that stays readable.
    pub from: Seq,
    /// The share of superseded entries at which a full merge splits; 1 for never.
    pub share: f64,
    /// Values in it may have an expiry.
    pub expires: bool,
}

/// The time of a version; `None` where it is not known.
pub type TimeOf = dyn Fn(Seq) -> Option<Moment> + Send + Sync;

/// The history of an index, which may begin while the index is in use.
pub(crate) struct Kept {
    /// There is one.
    is_kept: AtomicBool,
    history: Swap<Option<History>>,
    times: Mutex<Option<Arc<TimeOf>>>,
    /// The index of now is to begin with this version or a later one.
    splits_after: AtomicU64,
    /// Held while a past index is rewritten.
    pub rewriting: Mutex<()>,
}

impl Kept {
    pub fn new(history: Option<History>) -> Self {
        let (is_kept, history) = (history.is_some().into(), Swap::new(Arc::new(history)));
        let (times, rewriting) = (Mutex::default(), Mutex::default());
        Self { is_kept, history, times, splits_after: 0.into(), rewriting }
    }

    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Acquire)
    }

    pub fn get(&self) -> Option<History> {
        let history: &Option<History> = &self.history.load();
        history.filter(|_| self.is_kept())
    }
}

impl Index {
    /// The history that the keyspace keeps.
    pub fn history(&self) -> Option<History> {
        self.history.get()
    }

    /// Whether merges keep every version.
    pub fn keeps_history(&self) -> bool {
        self.history.is_kept()
    }

    /// The first version that stays readable, where the keyspace keeps history.
    pub fn history_from(&self) -> Option<Seq> {
        self.history().map(|history| history.from)
    }

    /// Begins a history, or changes everything of it but where it begins. Nothing is inserted and
    /// nothing is merged meanwhile where it begins.
    pub fn set_history(&self, history: History) {
        self.history.history.swap(Arc::new(Some(history)));
        self.history.is_kept.store(true, Ordering::Release);
    }

    /// From now on a full merge is a split, until the index of now begins with `version` or later;
    /// not any more with version 0.
    pub fn split_after(&self, version: Seq) {
        self.history.splits_after.store(version.0, Ordering::Release);
    }

    /// Whether a full merge has to split, because [`Index::split_after`] asked for it.
    pub fn must_split(&self) -> bool {
        let (asked, durable) = (&self.history.splits_after, self.durable.load());
        let is_empty = durable.main.levels.is_empty() && durable.sorted_runs.is_empty();
        !is_empty && asked.load(Ordering::Acquire) > self.now_from(&durable).0
    }

    /// The first version that the index of now answers.
    pub(crate) fn now_from(&self, durable: &IndexMeta) -> Seq {
        self.history_from().unwrap_or_default().max(durable.history.from)
    }

    /// Where merges learn the times of versions. Without it, they keep what has expired.
    pub fn set_times(&self, times: Arc<TimeOf>) {
        *self.history.times.lock() = Some(times);
    }

    /// The time of a version; the first moment where it is not known. A lookup.
    pub(crate) fn time_of(&self, version: Seq) -> Moment {
        let times = self.history.times.lock().clone();
        times.and_then(|times| times(version)).unwrap_or(Moment(0))
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.get()).finish()
    }
}
