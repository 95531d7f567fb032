//! Merges give way to writers.
//!
//! Where more threads have work than there are cores, the system shares these evenly: whoever
//! writes with more than its share falls behind, and waits longer with each request. A merge has
//! time. So now and then, if somebody has written meanwhile, it lets others run first.

use esker_format::ids::Seq;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync;

/// Entries and blocks that are merged before others are let by: about a third of a millisecond's.
const STEPS: u32 = 256;

/// How long ago others were let by.
#[derive(Debug, Default)]
pub(super) struct Courtesy {
    steps: u32,
    seen: Seq,
}

impl Courtesy {
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
