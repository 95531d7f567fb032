//! The pending changes that a crash keeps: one choice, and the choices worth trying.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::disk::{Change, Disk, Subject};
use super::image::{Fill, InodeId, Undo};

/// The effect of a crash on a disk.
#[derive(Clone, Copy, Debug)]
pub struct CrashModel {
    /// Whether pending changes reach the medium in the order in which they were made. Otherwise
    /// any subset of them may.
    pub ordered: bool,
    /// The contents of a file where it grew and its bytes were lost.
    pub unwritten: Unwritten,
    /// Whether syncs have an effect. A disk that ignores them guarantees nothing: the tests then
    /// check that damage is detected.
    pub honours_syncs: bool,
}

impl Default for CrashModel {
    /// Any subset, zeros, honest syncs.
    fn default() -> Self {
        Self { ordered: false, unwritten: Unwritten::Zeros, honours_syncs: true }
    }
}

/// The contents of a file where it grew and its bytes were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// Zeros.
    Zeros,
    /// The same bytes everywhere.
    Garbage,
    /// The contents of a removed file at the same offsets, garbage where there are none.
    OldData,
}

/// The pending units that survive, counted in the order in which they were made. A unit is one
/// sector of a write, one change of a length, or one change of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survivors {
    /// Unit `n` survives where bit `n` is set.
    Subset(u64),
    /// Only these.
    Only(Range<usize>),
    /// All but these.
    AllBut(Range<usize>),
    /// Each by chance: one half, few or most of them, as the seed says.
    Random(u64),
}

impl fmt::Display for Survivors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subset(mask) => write!(f, "Subset({mask:#b})"),
            Self::Only(range) if range.is_empty() => write!(f, "nothing"),
            Self::AllBut(range) if range.is_empty() => write!(f, "everything"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// A good mixing of 64 bits (the finisher of SplitMix64).
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Survivors {
    /// Nothing that was not synced survives.
    #[must_use]
    pub fn nothing() -> Self {
        Self::Only(0..0)
    }

    /// Everything survives.
    #[must_use]
    pub fn everything() -> Self {
        Self::AllBut(0..0)
    }

    /// Whether unit `index` survives.
    #[must_use]
    pub fn keeps(&self, index: usize) -> bool {
        match self {
            Self::Subset(mask) => index < 64 && mask >> index & 1 == 1,
            Self::Only(range) => range.contains(&index),
            Self::AllBut(range) => !range.contains(&index),
            Self::Random(seed) => {
                let chance_of_16 = [8, 8, 2, 14][(mix(*seed) % 4) as usize];
                mix(seed ^ mix(index as u64)) % 16 < chance_of_16
            }
        }
    }

    /// Turns the durable image of `disk` into what a crash now leaves.
    pub(super) fn apply_crash(&self, disk: &mut Disk, model: &CrashModel, undo: &mut Vec<Undo>) {
        let fill = fill_of(disk, model.unwritten);
        let Disk { durable, pending, store, .. } = disk;
        let mut index = 0;
        for change in pending.iter() {
            for unit in &change.units {
                if self.keeps(index) {
                    durable.apply(unit, &fill, store, Some(undo));
                }
                index += 1;
            }
        }
        let mut touched: Vec<InodeId> = pending.iter().filter_map(|c| file_of(c.subject)).collect();
        touched.sort_unstable();
        touched.dedup();
        for inode in touched {
            durable.apply_crash(inode, &fill, store, undo);
        }
    }
}

fn file_of(subject: Subject) -> Option<InodeId> {
    match subject {
        Subject::File(inode) => Some(inode),
        Subject::Folder => None,
    }
}

fn fill_of(disk: &Disk, unwritten: Unwritten) -> Fill {
    match unwritten {
        Unwritten::Zeros => Fill::Zeros,
        Unwritten::Garbage => Fill::Garbage,
        Unwritten::OldData => {
            let durable = &disk.durable;
            let is_named = |inode: &InodeId| durable.names.values().any(|named| named == inode);
            let is_old =
                |inode: &InodeId| !durable.inodes[*inode].sectors.is_empty() && !is_named(inode);
            match (0..durable.inodes.len()).rev().find(is_old) {
                Some(inode) => Fill::Stale(Arc::clone(&durable.inodes[inode])),
                None => Fill::Garbage,
            }
        }
    }
}

/// The limits of the choices that are tried at one position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) exhaustive_units: usize,
    pub(super) family_choices: usize,
    pub(super) random_choices: usize,
    pub(super) seed: u64,
}

/// The choices worth trying: all of them for few units; for more the regular ones (nothing, all,
/// prefixes, suffixes, one lost, one kept, one operation lost, kept or torn) and random ones.
pub(super) fn choices(pending: &[Arc<Change>], ordered: bool, effort: &Effort) -> Vec<Survivors> {
    let sizes: Vec<usize> = pending.iter().map(|change| change.units.len()).collect();
    choices_of(&sizes, ordered, effort)
}

/// [`choices`] for operations of `sizes` units each.
fn choices_of(sizes: &[usize], ordered: bool, effort: &Effort) -> Vec<Survivors> {
    let count: usize = sizes.iter().sum();
    let picked = |family: u64, of: usize| spread(of, effort.family_choices, effort.seed ^ family);
    if ordered {
        let mut all = vec![Survivors::nothing(), Survivors::everything()];
        all.extend(picked(1, count).map(|end| Survivors::Only(0..end)));
        return all;
    }
    if count <= effort.exhaustive_units.min(20) {
        return (0..1_u64 << count).map(Survivors::Subset).collect();
    }
    let mut all = vec![Survivors::nothing(), Survivors::everything()];
    all.extend(picked(1, count).map(|end| Survivors::Only(0..end)));
    all.extend(picked(2, count).map(|from| Survivors::Only(from..count)));
    all.extend(picked(3, count).map(|unit| Survivors::AllBut(unit..unit + 1)));
    all.extend(picked(4, count).map(|unit| Survivors::Only(unit..unit + 1)));
    let operations: Vec<Range<usize>> = ranges(sizes).filter(|range| range.len() > 1).collect();
    for at in picked(5, operations.len()) {
        all.push(Survivors::AllBut(operations[at].clone()));
        all.push(Survivors::Only(operations[at].clone()));
    }
    let torn = operations.iter().flat_map(|op| (op.start + 1..op.end).map(move |cut| (op, cut)));
    let tears: Vec<_> = torn.collect();
    for at in picked(6, tears.len()) {
        let (operation, cut) = tears[at];
        all.push(Survivors::AllBut(cut..operation.end));
        all.push(Survivors::AllBut(operation.start..cut));
    }
    let random = (0..effort.random_choices as u64).map(|n| mix(effort.seed ^ mix(n)));
    all.extend(random.map(Survivors::Random));
    all
}

/// The units of each operation.
fn ranges(sizes: &[usize]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    sizes.iter().map(move |size| {
        let range = start..start + size;
        start = range.end;
        range
    })
}

/// All of `0..of`, or `most` of them, evenly, at places that the seed moves.
fn spread(of: usize, most: usize, seed: u64) -> impl Iterator<Item = usize> {
    let taken = of.min(most);
    (0..taken).map(move |n| {
        let (low, high) = (n * of / taken, (n + 1) * of / taken);
        // The remainder is below `high - low`.
        low + (mix(seed ^ n as u64) % (high - low).max(1) as u64) as usize
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EFFORT: Effort =
        Effort { exhaustive_units: 10, family_choices: 64, random_choices: 16, seed: 7 };

    fn masks(sizes: &[usize], ordered: bool) -> BTreeSet<u64> {
        let count: usize = sizes.iter().sum();
        let mask = |choice: Survivors| {
            (0..count).filter(|unit| choice.keeps(*unit)).fold(0, |mask, unit| mask | 1_u64 << unit)
        };
        choices_of(sizes, ordered, &EFFORT).into_iter().map(mask).collect()
    }

    #[test]
    fn few_units_are_exhausted() {
        assert_eq!(masks(&[], false).len(), 1);
        assert_eq!(masks(&[3, 1, 6], false).len(), 1 << 10);
    }

    #[test]
    fn many_units_get_every_regular_choice() {
        let got = masks(&[1, 8, 2], false);
        let all = (1 << 11) - 1;
        let mut expected = BTreeSet::from([0, all]);
        for unit in 0..11 {
            expected.extend([1 << unit, all ^ 1 << unit, (1 << unit) - 1, all ^ ((1 << unit) - 1)]);
        }
        for (from, to) in [(1, 9), (9, 11)] {
            let operation = ((1 << to) - 1) ^ ((1 << from) - 1);
            expected.extend([operation, all ^ operation]);
            for cut in from + 1..to {
                let head = ((1 << cut) - 1) ^ ((1 << from) - 1);
                expected.extend([all ^ head, all ^ (operation ^ head)]);
            }
        }
        assert!(got.is_superset(&expected), "missing {:?}", expected.difference(&got));
        assert!(got.len() > expected.len(), "and random ones");
    }

    #[test]
    fn ordered_disks_keep_prefixes() {
        let expected: BTreeSet<u64> = (0..=11).map(|end| (1 << end) - 1).collect();
        assert_eq!(masks(&[1, 8, 2], true), expected);
    }

    #[test]
    fn large_families_are_bounded_and_spread() {
        assert!(choices_of(&[5000, 5000], false, &EFFORT).len() < 10 * 64);
        let picked: Vec<_> = spread(10_000, 64, 3).collect();
        assert_eq!(picked.len(), 64);
        assert!(picked.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(picked[0] < 157 && picked[63] >= 9843);
        assert_eq!(spread(5, 64, 3).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(spread(0, 64, 3).count(), 0);
    }
}
