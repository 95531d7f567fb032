//! The parameters that Mixed learns (Algorithm 12): τ of each inner level, and how to merge into
//! the last.
//!
//! The cost of a setting is the blocks written per record that entered level 1, over a window.
//! [`Learning`] decides which window to measure next and which thresholds are in force in it; the
//! code that merges measures, and reports the result. Learning uses no clock and no level.
//!
//! 1. τ of level 2, then 3, up to the one above the last: 0, µ, 2µ … at most 1, each for a period
//!    of that level, until one costs more than the one before it, which is then τ. A level's period
//!    ends only when the level becomes empty: meanwhile all merges out of it and below are full.
//!    (Algorithm 12 as printed ends a level too early; its text does not.)
//! 2. Cfull over a period of the level above the last; then Cpart over the same number of records,
//!    after twice that number that are not counted: an emptied level first has to fill, and partial
//!    merges have to reach their usual unevenness, before a merge has its usual cost. (After the
//!    same number, Cpart came out 5 to 10 % too high.)
//! 3. The cheaper of the two is in force, and measurement continues. When the cost is more than a
//!    fifth off the learnt one, it is learnt again.
//!
//! Learning is for a steady state; the paper leaves its detection open. Here it begins when two
//! windows in succession cost the same within a fifth. Until then what was learnt before stays in
//! force, or everything is partial.

use super::mixed::Thresholds;

/// The relative difference, as a share of the older cost, up to which two costs count as the same.
const DRIFT_MAX: f64 = 0.2;
/// Cpart is counted after this many times its records.
const SETTLING: u64 = 2;

/// The next measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A period of a level: from when it is next empty to its first overflow after that. Written
    /// blocks count for levels 1 to this one, and for the merge out of it at the end if it is the
    /// one above the last.
    Period {
        /// The level.
        level: usize,
    },
    /// That many records that enter level 1, after some that are not counted. Written blocks count
    /// for all levels.
    Records {
        /// Records before the window.
        skipped: u64,
        /// Records of the window.
        counted: u64,
    },
}

/// The result of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Blocks written.
    pub block_writes: u64,
    /// Records that entered level 1.
    pub records: u64,
}

impl Measured {
    /// Block writes per record; `None` when no record came.
    #[must_use]
    pub fn cost(&self) -> Option<f64> {
        (self.records > 0).then(|| self.block_writes as f64 / self.records as f64)
    }
}

/// The progress of learning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// Waits for a steady state.
    Settling {
        /// The cost of the last window.
        before: Option<f64>,
    },
    /// Tries step · µ as the τ of a level.
    Inner {
        /// The level.
        level: usize,
        /// The multiple of µ.
        step: u32,
        /// The cost of the multiple before it.
        before: Option<f64>,
    },
    /// Measures Cfull.
    LastFull,
    /// Measures Cpart.
    LastPartial {
        /// Cfull.
        full: f64,
        /// The records that it was measured over.
        records: u64,
    },
    /// Everything is learnt.
    Learnt,
}

/// The learnt setting, and its cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// Block writes per record.
    pub cost: f64,
    /// The records that it was measured over.
    pub records: u64,
}

/// The state of learning: plain data, to be kept with the index.
#[derive(Clone, Debug, PartialEq)]
pub struct Learning {
    /// The number of the last level.
    pub last: usize,
    /// µ.
    pub mu: f64,
    /// Records of a window as long as nothing is learnt.
    pub window_records: u64,
    /// The current phase.
    pub phase: Phase,
    /// The τ found in this round.
    pub found: Vec<f64>,
    /// The result of the last finished round.
    pub learnt: Thresholds,
    /// The cost of those thresholds. `None` before the first round, and after levels were added or
    /// removed.
    pub reference: Option<Reference>,
}

impl Learning {
    /// Nothing is learnt. A window of `window_records` should fill the level above the last about
    /// once.
    #[must_use]
    pub fn new(last: usize, mu: f64, window_records: u64) -> Self {
        Self {
            last,
            mu,
            window_records: window_records.max(1),
            phase: Phase::Settling { before: None },
            found: Vec::new(),
            learnt: Thresholds::default(),
            reference: None,
        }
    }

    /// The thresholds in force.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        let found = |is_last_full| Thresholds { inner: self.found.clone(), is_last_full };
        match self.phase {
            Phase::Settling { .. } | Phase::Learnt => self.learnt.clone(),
            Phase::Inner { level, step, .. } => {
                let mut thresholds = found(true);
                thresholds.inner.push(f64::from(step) * self.mu);
                // Levels below are merged fully, regardless of their contents.
                thresholds.inner.extend((level + 1..self.last).map(|_| f64::INFINITY));
                thresholds
            }
            Phase::LastFull => found(true),
            Phase::LastPartial { .. } => found(false),
        }
    }

    /// The next measurement; `None` when there is nothing to learn, because every merge is out of
    /// memory.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        let above_last = self.last.checked_sub(1).filter(|level| *level > 0)?;
        Some(match self.phase {
            Phase::Inner { level, .. } => Window::Period { level },
            Phase::LastFull => Window::Period { level: above_last },
            Phase::LastPartial { records, .. } => {
                // The numbers kept in a file may have any value.
                let skipped = records.saturating_mul(SETTLING);
                Window::Records { skipped, counted: records }
            }
            // Of full merges into the last level, a window by records has one more or less.
            Phase::Settling { .. } | Phase::Learnt if self.learnt.is_last_full => {
                Window::Period { level: above_last }
            }
            Phase::Settling { .. } | Phase::Learnt => {
                let counted = self.reference.map_or(self.window_records, |known| known.records);
                Window::Records { skipped: 0, counted }
            }
        })
    }

    /// A window has ended.
    pub fn observe(&mut self, measured: Measured) {
        let (Some(cost), Some(_)) = (measured.cost(), self.window()) else {
            return;
        };
        self.phase = match self.phase {
            Phase::Settling { before } => self.after_settling(before, cost),
            Phase::Inner { level, step, before } => self.after_inner(level, step, before, cost),
            Phase::LastFull => Phase::LastPartial { full: cost, records: measured.records },
            Phase::LastPartial { full, records } => {
                self.learnt = Thresholds {
                    inner: std::mem::take(&mut self.found),
                    is_last_full: full < cost,
                };
                self.reference = Some(Reference { cost: full.min(cost), records });
                Phase::Learnt
            }
            Phase::Learnt if self.is_as_learnt(cost) => Phase::Learnt,
            Phase::Learnt => Phase::Settling { before: Some(cost) },
        };
    }

    /// Levels were added or removed: `last` is the number of the last one. What was learnt of those
    /// that still exist stays in force.
    pub fn set_last(&mut self, last: usize) {
        if last == self.last {
            return;
        }
        self.last = last;
        self.learnt.inner.truncate(last.saturating_sub(2));
        self.found.clear();
        self.reference = None;
        self.phase = Phase::Settling { before: None };
    }

    fn is_as_learnt(&self, cost: f64) -> bool {
        self.reference.is_some_and(|known| is_same(known.cost, cost))
    }

    fn after_settling(&mut self, before: Option<f64>, cost: f64) -> Phase {
        // One window that was off is no drift.
        if self.is_as_learnt(cost) {
            return Phase::Learnt;
        }
        if !before.is_some_and(|before| is_same(before, cost)) {
            return Phase::Settling { before: Some(cost) };
        }
        self.found.clear();
        self.inner_or_last(2)
    }

    fn after_inner(&mut self, level: usize, step: u32, before: Option<f64>, cost: f64) -> Phase {
        let is_worse = before.is_some_and(|before| before < cost);
        let next = f64::from(step + 1) * self.mu;
        // Multiples of a µ such as 0.1 are not exact.
        if !is_worse && next <= 1.0 + f64::EPSILON {
            return Phase::Inner { level, step: step + 1, before: Some(cost) };
        }
        let best = if is_worse { step - 1 } else { step };
        self.found.push(f64::from(best) * self.mu);
        self.inner_or_last(level + 1)
    }

    /// The first try at an inner level's τ, or at the last level where there is no such level.
    fn inner_or_last(&self, level: usize) -> Phase {
        if level < self.last {
            Phase::Inner { level, step: 0, before: None }
        } else {
            Phase::LastFull
        }
    }
}

/// Whether a cost differs from an older one by no more than a fifth of it.
fn is_same(older: f64, newer: f64) -> bool {
    (newer - older).abs() <= DRIFT_MAX * older
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A thousand records at a cost per thousand.
    fn measured(block_writes: u64) -> Measured {
        Measured { block_writes, records: 1000 }
    }

    fn observe(learning: &mut Learning, block_writes: &[u64]) {
        for &writes in block_writes {
            learning.observe(measured(writes));
        }
    }

    fn thresholds(inner: &[f64], is_last_full: bool) -> Thresholds {
        Thresholds { inner: inner.to_vec(), is_last_full }
    }

    /// Levels 0 to 4, µ = 0.25, after two equal windows.
    fn steady() -> Learning {
        let mut learning = Learning::new(4, 0.25, 500);
        observe(&mut learning, &[100, 110]);
        learning
    }

    #[test]
    fn learning_begins_in_a_steady_state() {
        let mut learning = Learning::new(4, 0.25, 500);
        assert_eq!(learning.window(), Some(Window::Records { skipped: 0, counted: 500 }));
        assert_eq!(learning.thresholds(), Thresholds::default());
        // More and more is written: a load.
        observe(&mut learning, &[50, 70, 90]);
        assert_eq!(learning.phase, Phase::Settling { before: Some(0.09) });
        assert_eq!(learning.thresholds(), Thresholds::default());
        observe(&mut learning, &[107]);
        assert_eq!(learning.phase, Phase::Inner { level: 2, step: 0, before: None });
    }

    /// By hand: τ2 at 0, 0.25, 0.5 and 0.75 costs 90, 80, 70 and 75: it is 0.5. τ3 at 0 and 0.25
    /// costs 60 and 61: it is 0. Cfull 95, Cpart 85.
    #[test]
    fn a_round_by_hand() {
        let mut learning = steady();
        let (period, all) = (|level| Some(Window::Period { level }), f64::INFINITY);
        for (tau, writes) in [(0.0, 90), (0.25, 80), (0.5, 70), (0.75, 75)] {
            assert_eq!(learning.thresholds(), thresholds(&[tau, all], true));
            assert_eq!(learning.window(), period(2));
            learning.observe(measured(writes));
        }
        for (tau, writes) in [(0.0, 60), (0.25, 61)] {
            assert_eq!(learning.thresholds(), thresholds(&[0.5, tau], true));
            assert_eq!(learning.window(), period(3));
            learning.observe(measured(writes));
        }
        assert_eq!(learning.thresholds(), thresholds(&[0.5, 0.0], true));
        assert_eq!(learning.window(), period(3));
        learning.observe(Measured { block_writes: 190, records: 2000 });
        assert_eq!(learning.thresholds(), thresholds(&[0.5, 0.0], false));
        assert_eq!(learning.window(), Some(Window::Records { skipped: 4000, counted: 2000 }));
        learning.observe(Measured { block_writes: 170, records: 2000 });
        assert_eq!(learning.phase, Phase::Learnt);
        assert_eq!(learning.thresholds(), thresholds(&[0.5, 0.0], false));
        assert_eq!(learning.reference, Some(Reference { cost: 0.085, records: 2000 }));
        assert_eq!(learning.window(), Some(Window::Records { skipped: 0, counted: 2000 }));
    }

    /// By hand: each step is cheaper than the last, and 1 is the end; Cfull 50 is less than Cpart
    /// 51.
    #[test]
    fn the_largest_threshold_is_one() {
        let mut learning = Learning::new(3, 0.5, 500);
        observe(&mut learning, &[100, 100, 90, 80, 70, 50, 51]);
        assert_eq!(learning.thresholds(), thresholds(&[1.0], true));
        assert_eq!(learning.window(), Some(Window::Period { level: 2 }));
        let mut learning = Learning::new(3, 0.1, 500);
        observe(&mut learning, &[100, 100]);
        observe(&mut learning, &[9; 11]);
        assert_eq!(learning.phase, Phase::LastFull);
        assert_eq!(learning.found, [1.0]);
    }

    /// Learnt at 80: 95 and 65 are less than a fifth off, 97 and 63 more. One window that is off
    /// is forgiven; two that agree begin a new round, in which what was learnt is not in force.
    #[test]
    fn drift_begins_a_new_round() {
        let mut learning = Learning::new(3, 0.5, 500);
        observe(&mut learning, &[100, 100, 60, 70, 90, 80]);
        let learnt = thresholds(&[0.0], false);
        assert_eq!((learning.phase, learning.thresholds()), (Phase::Learnt, learnt.clone()));
        observe(&mut learning, &[95, 65]);
        assert_eq!(learning.phase, Phase::Learnt);
        observe(&mut learning, &[97]);
        assert_eq!(learning.phase, Phase::Settling { before: Some(0.097) });
        assert_eq!(learning.thresholds(), learnt);
        observe(&mut learning, &[80, 63]);
        assert_eq!(learning.phase, Phase::Settling { before: Some(0.063) });
        observe(&mut learning, &[40]);
        assert_eq!(learning.phase, Phase::Settling { before: Some(0.04) });
        observe(&mut learning, &[41]);
        assert_eq!(learning.thresholds(), thresholds(&[0.0], true));
        observe(&mut learning, &[50, 40, 45, 30, 35]);
        assert_eq!(learning.thresholds(), thresholds(&[0.5], true));
        assert_eq!(learning.reference, Some(Reference { cost: 0.03, records: 1000 }));
    }

    #[test]
    fn levels_that_come_and_go() {
        let mut learning = Learning::new(4, 0.5, 500);
        observe(&mut learning, &[100, 100, 90, 80, 85, 70, 60, 65, 50, 51]);
        assert_eq!(learning.thresholds(), thresholds(&[0.5, 0.5], true));
        let same = learning.clone();
        learning.set_last(4);
        assert_eq!(learning, same);
        learning.set_last(5);
        assert_eq!(learning.phase, Phase::Settling { before: None });
        assert_eq!(learning.thresholds(), thresholds(&[0.5, 0.5], true));
        learning.set_last(3);
        assert_eq!(learning.thresholds(), thresholds(&[0.5], true));
        learning.set_last(1);
        let before = learning.clone();
        observe(&mut learning, &[1, 1, 1]);
        assert_eq!((learning.window(), &learning), (None, &before));
    }

    /// With one level above the last there is no τ.
    #[test]
    fn few_levels() {
        let mut learning = Learning::new(2, 0.5, 500);
        observe(&mut learning, &[100, 100]);
        assert_eq!(learning.phase, Phase::LastFull);
        assert_eq!(learning.window(), Some(Window::Period { level: 1 }));
        // A window without records gives no cost.
        learning.observe(Measured { block_writes: 9, records: 0 });
        assert_eq!(learning.phase, Phase::LastFull);
        observe(&mut learning, &[50, 40]);
        assert_eq!(learning.thresholds(), thresholds(&[], false));
    }

    proptest! {
        /// On a curve with one valley for each level, learning finds the valleys' bottoms.
        #[test]
        fn the_bottom_of_each_valley_is_found(
            bottoms in proptest::collection::vec(0u32..=10, 0..4),
            full in 50u64..90,
            partial in 50u64..90,
        ) {
            let mut learning = Learning::new(bottoms.len() + 2, 0.1, 500);
            observe(&mut learning, &[100, 100]);
            for _ in 0..bottoms.len() * 12 + 2 {
                let writes = match learning.phase {
                    Phase::Inner { level, step, .. } => {
                        100 + u64::from(step.abs_diff(bottoms[level - 2]))
                    }
                    Phase::LastFull => full,
                    Phase::LastPartial { .. } => partial,
                    _ => break,
                };
                learning.observe(measured(writes));
            }
            let expected: Vec<_> = bottoms.iter().map(|step| f64::from(*step) * 0.1).collect();
            prop_assert_eq!(learning.phase, Phase::Learnt);
            prop_assert_eq!(learning.thresholds(), thresholds(&expected, full < partial));
        }

        /// With all measurements, thresholds are multiples of µ up to 1 once they are learnt, and
        /// there is one for each inner level.
        #[test]
        fn what_is_learnt_is_in_bounds(
            last in 0usize..6,
            mu in 0.01..1.0f64,
            costs in proptest::collection::vec(0u64..1000, 0..400),
        ) {
            let mut learning = Learning::new(last, mu, 500);
            for writes in costs {
                learning.observe(measured(writes));
                let inner = learning.thresholds().inner;
                prop_assert!(inner.len() <= last.saturating_sub(2));
                if learning.phase == Phase::Learnt {
                    prop_assert_eq!(inner.len(), last.saturating_sub(2));
                    prop_assert!(inner.iter().all(|tau| (0.0..=1.0 + 1e-9).contains(tau)));
                }
            }
        }
    }
}
