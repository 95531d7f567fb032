//! Measures the windows that Mixed learns from, while merges go on.

use esker_index::lsm::policy::Thresholds;
use esker_index::lsm::policy::learn::{Learning, Measured, Phase, Window};

/// The results of the learning of Mixed, and the window that it learns from next.
#[derive(Clone, Debug)]
pub struct Meter {
    learning: Learning,
    state: State,
    measured: Measured,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until a period's level is empty.
    Waiting,
    /// Records that do not count.
    Skipping(u64),
    /// Writes into levels up to this one count.
    Counting(usize),
}

impl Meter {
    /// Nothing is learnt.
    #[must_use]
    pub fn new(learning: Learning) -> Self {
        let mut meter = Self {
            learning,
            state: State::Waiting,
            measured: Measured { block_writes: 0, records: 0 },
        };
        meter.begin();
        meter
    }

    /// The thresholds in force.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.learning.thresholds()
    }

    /// Whether everything is learnt.
    #[must_use]
    pub fn is_learnt(&self) -> bool {
        self.learning.phase == Phase::Learnt
    }

    /// Levels have come or gone.
    pub fn set_last(&mut self, last: usize, window_records: u64) {
        if last != self.learning.last {
            self.learning.set_last(last);
            self.learning.window_records = window_records;
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.measured = Measured { block_writes: 0, records: 0 };
        self.state = match self.learning.window() {
            None | Some(Window::Period { .. }) => State::Waiting,
            Some(Window::Records { skipped: 0, .. }) => State::Counting(usize::MAX),
            Some(Window::Records { skipped, .. }) => State::Skipping(skipped),
        };
    }

    fn end(&mut self) {
        self.learning.observe(self.measured);
        self.begin();
    }

    fn period(&self) -> Option<usize> {
        match self.learning.window() {
            Some(Window::Period { level }) => Some(level),
            _ => None,
        }
    }

    /// Records enter level 1.
    pub fn entered(&mut self, records: u64) {
        match self.state {
            State::Waiting => return,
            State::Skipping(left) => {
                let left = left.saturating_sub(records);
                self.state =
                    if left > 0 { State::Skipping(left) } else { State::Counting(usize::MAX) };
                return;
            }
            State::Counting(_) => self.measured.records += records,
        }
        match self.learning.window() {
            Some(Window::Records { counted, .. }) if self.measured.records >= counted => self.end(),
            _ => {}
        }
    }

    /// Blocks are written into a level.
    pub fn wrote(&mut self, level: usize, blocks: u64) {
        if matches!(self.state, State::Counting(most) if level <= most) {
            self.measured.block_writes += blocks;
        }
    }

    /// A level has overflowed and is about to be merged.
    pub fn overflows(&mut self, level: usize) {
        let is_counting = matches!(self.state, State::Counting(_));
        if self.period() != Some(level) || !is_counting {
            return;
        }
        if level + 1 == self.learning.last {
            // The merge out of it counts, too.
            self.state = State::Counting(usize::MAX);
        } else {
            self.end();
        }
    }

    /// A level was merged; it may be empty now.
    pub fn merged(&mut self, level: usize, is_empty: bool) {
        let is_counting = matches!(self.state, State::Counting(_));
        if self.period() == Some(level) && is_counting && level + 1 == self.learning.last {
            self.end();
        }
        if self.period() == Some(level) && is_empty && self.state == State::Waiting {
            self.state = State::Counting(level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, with three levels: two windows of 100 records that cost the same; then a period of
    /// level 1, from its being empty to the merge out of it, is what full merges cost; then 400
    /// records that do not count and 200 that do.
    #[test]
    fn windows_by_hand() {
        let mut meter = Meter::new(Learning::new(2, 0.1, 100));
        for _ in 0..2 {
            meter.wrote(1, 50);
            meter.entered(100);
        }
        assert!(meter.thresholds().is_last_full);
        // What comes before level 1 is empty does not count.
        meter.wrote(1, 1000);
        meter.overflows(1);
        meter.wrote(2, 1000);
        meter.merged(1, true);
        meter.entered(200);
        meter.wrote(1, 60);
        meter.overflows(1);
        meter.wrote(2, 40);
        meter.merged(1, true);
        assert!(!meter.thresholds().is_last_full);
        meter.wrote(1, 1000);
        meter.entered(400);
        assert!(!meter.is_learnt());
        // 0.6 a record, where full merges cost 0.5.
        meter.wrote(1, 120);
        meter.entered(200);
        assert!(meter.is_learnt() && meter.thresholds().is_last_full);
    }

    /// The period of an inner level ends where it overflows, and the merge out of it is in none.
    #[test]
    fn an_inner_period_ends_at_the_overflow() {
        let mut meter = Meter::new(Learning::new(4, 0.5, 100));
        for _ in 0..2 {
            meter.wrote(1, 50);
            meter.entered(100);
        }
        assert_eq!(meter.period(), Some(2));
        meter.merged(2, true);
        meter.entered(100);
        meter.wrote(2, 10);
        meter.wrote(3, 99);
        assert_eq!(meter.measured, Measured { block_writes: 10, records: 100 });
        meter.overflows(2);
        assert_eq!(meter.state, State::Waiting);
    }

    #[test]
    fn another_level_begins_anew() {
        let mut meter = Meter::new(Learning::new(2, 0.1, 100));
        meter.wrote(1, 50);
        meter.entered(50);
        meter.set_last(3, 1000);
        assert_eq!(meter.measured.records, 0);
        meter.entered(100);
        assert_eq!(meter.learning.phase, Phase::Settling { before: None });
    }
}
