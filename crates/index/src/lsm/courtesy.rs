//! Merges give way to writers.
//!
//! Where more threads have work than there are cores, the system shares these evenly: whoever
//! writes with more than its share falls behind, and waits longer with each request. A merge has
//! time. So now and then, if somebody has written meanwhile, it pauses, and takes two thirds of a
//! core at most; unless writers are about to wait for it.

use std::time::Duration;

use esker_format::ids::Seq;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync;

/// Entries and blocks that are merged before others are let by: about a third of a millisecond's.
const STEPS: u32 = 256;
/// How long they are let by. The system takes half as long again to come back.
const PAUSE: Duration = Duration::from_micros(100);

/// How long ago others were let by.
#[derive(Debug)]
pub(super) struct Courtesy {
    /// Writers wait for the merge, or soon will.
    is_urgent: bool,
    steps: u32,
    seen: Seq,
}

impl Courtesy {
    pub const fn new(is_urgent: bool) -> Self {
        Self { is_urgent, steps: 0, seen: Seq(0) }
    }

    /// A step of the merge is done.
    pub fn step(&mut self, snapshots: &Snapshots) {
        self.steps += 1;
        if self.steps < STEPS {
            return;
        }
        self.steps = 0;
        let visible = snapshots.visible();
        if visible == self.seen {
            return;
        }
        self.seen = visible;
        if self.is_urgent { sync::yield_now() } else { sync::pause(PAUSE) }
    }
}
