//! Counts of an open store, which only grow; and numbers by their names.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) commits: Counter,
    pub(crate) empty_commits: Counter,
    pub(crate) aborts: Counter,
    pub(crate) syncs: Counter,
    pub(crate) checkpoints: Counter,
    pub(crate) checkpoints_failed: Counter,
    pub(crate) whole_pages: Counter,
    pub(crate) delta_pages: Counter,
    pub(crate) spilled_pages: Counter,
    pub(crate) pages: Counter,
    pub(crate) spilled: Counter,
    pub(crate) records: Counter,
    pub(crate) map: Counter,
    pub(crate) superblocks: Counter,
    pub(crate) filled: Counter,
    pub(crate) moved: Counter,
    pub(crate) moved_pages: Counter,
    pub(crate) emptied_segments: Counter,
}

/// Numbers by their names, for programs that show them: a field that is not listed does not
/// compile.
macro_rules! named {
    ($of:expr, $type:ident { $($field:ident),+ } $(without $($left:ident),+)?) => {{
        let $type { $($field,)+ $($($left: _,)+)? } = $of;
        [$((stringify!($field), u64::from(*$field))),+]
    }};
}
pub(crate) use named;
