//! Merge policies: pure functions over the blocks of two neighbouring levels.
//!
//! A level overflows; its policy decides which part of it is merged into the next one. Reading
//! order: [`params`] (ω, δ, γ and µ, and their limits), [`blocks`] (the input and the choice of a
//! policy), [`full`], [`round_robin`], [`choose_best`], [`mixed`] and what that learns, [`learn`];
//! [`test_policy`], which shows why Mixed works. The sizes of levels come from the paper's γ, from
//! [`loosened`] where the data's size is known, or from [`sizes`].

pub mod blocks;
pub mod choose_best;
pub mod full;
pub mod learn;
pub mod loosened;
pub mod mixed;
pub mod params;
pub mod round_robin;
pub mod sizes;
pub mod test_policy;

use std::fmt;

pub use blocks::{Blocks, Choice};
pub use mixed::{Fill, Merge, Thresholds};
pub use params::{BadParam, Params};

/// The compaction policy of an LSM index: it chooses the part of a level that is merged into the
/// next one when the level overflows.
///
/// All but [`Pull`](Self::Pull) are those of the thesis: level 0 is the flushed runs, up to κ0, and
/// level i may hold κ0 γ^i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// The next keys in order, out of a level and all newer ones; sizes of levels follow the data.
    /// Not from the thesis.
    #[default]
    Pull,
    /// The whole level.
    Full,
    /// The share δ of it, from where its last merge ended.
    RoundRobin,
    /// The share δ of it that overlaps least; the paper's Partial.
    ChooseBest,
    /// One or the other, as learnt.
    Mixed,
    /// Partial out of memory, full in all other levels.
    Test,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pull, Self::Full, Self::RoundRobin, Self::ChooseBest, Self::Mixed, Self::Test];

    /// As it is written: `pull`, `full`, `round-robin`, `choose-best`, `mixed` or `test`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Full => "full",
            Self::RoundRobin => "round-robin",
            Self::ChooseBest => "choose-best",
            Self::Mixed => "mixed",
            Self::Test => "test",
        }
    }

    /// The policy that applies to a level that is merged into one with the given fill:
    /// [`Full`](Self::Full), [`RoundRobin`](Self::RoundRobin) or [`ChooseBest`](Self::ChooseBest).
    /// Pull goes round too.
    #[must_use]
    pub fn comes_to(self, level: usize, last: usize, below: Fill, learnt: &Thresholds) -> Self {
        let merge = match self {
            Self::Pull | Self::RoundRobin => return Self::RoundRobin,
            Self::Full => Merge::Full,
            Self::ChooseBest => Merge::Partial,
            Self::Mixed => mixed::decide(level, last, below, learnt),
            Self::Test => test_policy::decide(level),
        };
        match merge {
            Merge::Full => Self::Full,
            Merge::Partial => Self::ChooseBest,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A level that overflows.
#[derive(Debug)]
pub struct Overflow<'a, U, L> {
    /// Its number.
    pub level: usize,
    /// The number of the last level.
    pub last: usize,
    /// Its blocks.
    pub upper: &'a U,
    /// κ of it.
    pub capacity_bytes: u64,
    /// The blocks of the level below.
    pub lower: &'a L,
    /// The bytes and the capacity of the level below.
    pub below: Fill,
    /// The end of the level's last merge ([`Choice::to`]).
    pub cursor: Option<&'a [u8]>,
}

/// The part of the level that is merged into the next one; `None` when the level is empty.
pub fn choose<U: Blocks, L: Blocks>(
    policy: Policy,
    params: &Params,
    thresholds: &Thresholds,
    overflow: &Overflow<'_, U, L>,
) -> Option<Choice> {
    let Overflow { level, last, upper, lower, below, cursor, .. } = *overflow;
    let run_bytes = params.run_bytes(overflow.capacity_bytes);
    match policy.comes_to(level, last, below, thresholds) {
        Policy::Full => full::choose(upper),
        Policy::RoundRobin => round_robin::choose(upper, cursor, run_bytes),
        _ => choose_best::choose(upper, lower, run_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::blocks::tests::{key, level, levels};
    use super::*;
    use proptest::prelude::*;

    const POLICIES: [Policy; 6] = Policy::ALL;

    /// By hand: level 1 of 3, half of it a run. Below blocks 0 and 1 there are three blocks, below
    /// blocks 1 and 2 four, below 2 and 3 two.
    #[test]
    fn each_policy_takes_its_part() {
        let upper = level(&[0, 10, 20, 30]);
        let lower = level(&[0, 5, 12, 14, 16, 20]);
        let cursor = key(10);
        let overflow = |level, bytes| Overflow {
            level,
            last: 3,
            upper: &upper,
            capacity_bytes: 4,
            lower: &lower,
            below: Fill { bytes, capacity_bytes: 10 },
            cursor: Some(&cursor),
        };
        let params = Params { delta: 0.5, ..Params::default() };
        let thresholds = Thresholds { inner: vec![0.7], is_last_full: false };
        let blocks = |policy, overflow: Overflow<'_, _, _>| {
            choose(policy, &params, &thresholds, &overflow).unwrap().blocks
        };
        assert_eq!(
            POLICIES.map(|policy| blocks(policy, overflow(1, 6))),
            [1..3, 0..4, 1..3, 2..4, 0..4, 0..4]
        );
        assert_eq!(blocks(Policy::Mixed, overflow(1, 7)), 2..4);
        assert_eq!(blocks(Policy::Mixed, overflow(2, 0)), 2..4);
        assert_eq!(blocks(Policy::Test, overflow(0, 6)), 2..4);
    }

    proptest! {
        #[test]
        fn a_choice_is_a_part_of_the_level_bounded_by_its_keys(
            upper in levels(40),
            lower in levels(80),
            number in 0usize..4,
            capacity_bytes in 0u64..200,
            cursor in proptest::option::of(0u16..450),
            tau in 0.0..1.0f64,
        ) {
            let cursor = cursor.map(key);
            let overflow = Overflow {
                level: number,
                last: 3,
                upper: &upper,
                capacity_bytes,
                lower: &lower,
                below: Fill { bytes: 50, capacity_bytes: 100 },
                cursor: cursor.as_deref(),
            };
            let thresholds = Thresholds { inner: vec![tau], is_last_full: tau < 0.5 };
            for policy in POLICIES {
                let choice = choose(policy, &Params::default(), &thresholds, &overflow);
                prop_assert_eq!(choice.is_none(), upper.is_empty());
                let Some(choice) = choice else { continue };
                prop_assert!(!choice.blocks.is_empty() && choice.blocks.end <= upper.len());
                prop_assert!(choice.to.as_ref().is_none_or(|to| *to > choice.from));
                // No version of a key is left behind.
                let begins_key = choice.blocks.start == 0
                    || upper[choice.blocks.start - 1].0 < upper[choice.blocks.start].0;
                prop_assert!(begins_key);
                prop_assert_eq!(Choice::of(&upper, choice.blocks.clone()), Some(choice));
            }
        }
    }
}
