//! Merges yield to writers.
//!
//! Where more threads have work than there are cores, the system shares these evenly: a writer that
//! needs more than its share falls behind, and waits longer with each request. A merge has time. So
//! it yields at intervals, if there were writes meanwhile.

use esker_format::ids::Seq;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync;

/// Entries and blocks that are merged between two yields: about a third of a millisecond's.
const STEPS: u32 = 256;

/// The steps since the last yield.
#[derive(Debug, Default)]
pub(super) struct YieldToWriters {
    steps: u32,
    seen: Seq,
}

impl YieldToWriters {
    /// A step of the merge is done.
    pub fn step(&mut self, snapshots: &Snapshots) {
        self.steps += 1;
        if self.steps < STEPS {
            return;
        }
        self.steps = 0;
        let visible = snapshots.visible();
        if visible != self.seen {
            self.seen = visible;
            sync::yield_now();
        }
    }
}
