//! Measures what a setting of Mixed costs, over the window that [`Learning`] asks for.
//!
//! The measurements are not stored: when the index is opened, the window under way begins again.

use super::policy::learn::{Learning, Measured, Window};

/// The measured properties of a slice. Levels have their numbers in the thesis: 0 are the runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// The level that it was taken of.
    pub of: usize,
    /// Whether it is the first of a level's part.
    pub is_first: bool,
    /// Whether it is the last one.
    pub is_last: bool,
    /// Entries that it has taken out of runs.
    pub entered: u64,
    /// Blocks written, by level.
    pub written: Vec<(usize, u64)>,
    /// The levels that are empty now.
    pub empty: Vec<usize>,
}

/// The window under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meter {
    window: Option<Window>,
    /// Whether what happens is part of it by now.
    is_counting: bool,
    /// Whether the merge that ends a period is under way.
    is_ending: bool,
    /// Records that have come before it.
    skipped: u64,
    measured: Option<Measured>,
}

impl Meter {
    /// A slice is done. At the end of a window its cost is passed to `learning`.
    pub fn note(&mut self, learning: &mut Learning, event: &Event) {
        let window = learning.window();
        if self.window != window {
            *self = Self { window, ..Self::default() };
        }
        match window {
            None => {}
            Some(Window::Period { level }) => self.in_period(level, learning, event),
            Some(Window::Records { skipped, .. }) if self.skipped < skipped => {
                self.skipped += event.entered;
            }
            Some(Window::Records { counted, .. }) => {
                self.add(event, usize::MAX);
                if self.measured.is_some_and(|so_far| so_far.records >= counted) {
                    self.end(learning);
                }
            }
        }
    }

    fn in_period(&mut self, level: usize, learning: &mut Learning, event: &Event) {
        if self.is_counting {
            let is_above_last = level + 1 >= learning.last;
            self.is_ending |= event.of == level && event.is_first;
            if !self.is_ending {
                self.add(event, level);
            } else if is_above_last {
                self.add(event, level + 1);
            }
            let is_over = !is_above_last || (event.of == level && event.is_last);
            if self.is_ending && is_over {
                self.end(learning);
            }
        }
        // The next period of the level begins where this one has ended, if there is one.
        if learning.window() == Some(Window::Period { level }) && event.empty.contains(&level) {
            self.window = learning.window();
            self.is_counting = true;
        }
    }

    /// Counts a slice, with the blocks that it has written for levels down to `last`.
    fn add(&mut self, event: &Event, last: usize) {
        let so_far = self.measured.get_or_insert(Measured { block_writes: 0, records: 0 });
        let counted = event.written.iter().filter(|(level, _)| *level <= last);
        so_far.block_writes += counted.map(|(_, blocks)| blocks).sum::<u64>();
        so_far.records += event.entered;
    }

    fn end(&mut self, learning: &mut Learning) {
        if let Some(measured) = self.measured {
            learning.observe(measured);
        }
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::learn::{Phase, Reference};
    use super::*;

    /// Twenty entries come into level 1, which takes that many blocks.
    fn comes(blocks: u64) -> Event {
        let written = vec![(1, blocks)];
        Event { is_first: true, is_last: true, entered: 20, written, ..Event::default() }
    }

    /// Level 1 is merged into level 2, in one slice.
    fn goes(blocks: u64) -> Event {
        let (written, empty) = (vec![(2, blocks)], vec![1]);
        Event { of: 1, is_first: true, is_last: true, entered: 0, written, empty }
    }

    fn note(meter: &mut Meter, learning: &mut Learning, events: &[Event]) {
        events.iter().for_each(|event| meter.note(learning, event));
    }

    /// By hand, two levels, a window of 40 records: 10 + 10 and 10 + 10 blocks over 40 are steady.
    /// Then full merges: what comes before level 1 is empty does not count; 2 + 4 blocks and 14 of
    /// the merge over 40 are 0.5. Twice that number of records pass; 5 + 5 over 40 are 0.25.
    #[test]
    fn a_round_of_two_levels() {
        let (mut meter, mut learning) = (Meter::default(), Learning::new(2, 0.1, 40));
        note(&mut meter, &mut learning, &[comes(10), comes(10), comes(10), comes(10)]);
        assert_eq!(learning.phase, Phase::LastFull);
        note(&mut meter, &mut learning, &[comes(99), goes(99), comes(2), comes(4), goes(14)]);
        assert_eq!(learning.phase, Phase::LastPartial { full: 0.5, records: 40 });
        note(&mut meter, &mut learning, &[comes(99), comes(99), comes(99), comes(99)]);
        note(&mut meter, &mut learning, &[comes(5), comes(5)]);
        assert_eq!(learning.phase, Phase::Learnt);
        assert_eq!(learning.reference, Some(Reference { cost: 0.25, records: 40 }));
        assert!(!learning.thresholds().is_last_full);
    }

    /// By hand, four levels: τ of level 2 at 0 costs 8 blocks over 40, and what leaves level 2 is
    /// not counted; at 1/2 it costs 12.
    #[test]
    fn a_period_of_an_inner_level() {
        let (mut meter, mut learning) = (Meter::default(), Learning::new(4, 0.5, 20));
        note(&mut meter, &mut learning, &[comes(10), comes(10)]);
        assert_eq!(learning.phase, Phase::Inner { level: 2, step: 0, before: None });
        let out = |is_first, is_last| {
            let empty = if is_last { vec![2] } else { Vec::new() };
            Event { of: 2, is_first, is_last, empty, written: vec![(3, 50)], ..Event::default() }
        };
        let period =
            |blocks| [comes(blocks), comes(blocks), goes(2), out(true, false), out(false, true)];
        note(&mut meter, &mut learning, &[out(true, true)]);
        note(&mut meter, &mut learning, &period(3));
        assert_eq!(learning.phase, Phase::Inner { level: 2, step: 1, before: Some(0.2) });
        note(&mut meter, &mut learning, &period(5));
        assert_eq!(learning.phase, Phase::Inner { level: 3, step: 0, before: None });
        assert_eq!(learning.found, [0.0]);
    }
}
