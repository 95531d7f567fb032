//! What is known of the packing of each level: none of it is durable.

use esker_format::meta::{LevelMeta, LsmLevel, LsmMeta};
use esker_format::ptr::SECTOR_BYTES;

use crate::lsm::choose::slice::{Cause, Slice};
use crate::lsm::fill_factor::Fill;

/// A window is worth rewriting if it frees one unit in this many.
const WORTH_UNITS: u64 = 16;
/// The packing of a level stops when this many windows have freed nothing.
const WINDOWS_WASTED: u64 = 8;
/// It is packed again when one part in this many more is empty.
const AGAIN_PARTS: u64 = 10;
/// Blocks stay in it until half of that share more is empty.
const STAYS_PARTS: u64 = 20;

/// The state of the packing of an index's levels, from the first down.
#[derive(Debug, Default)]
pub(in crate::lsm) struct Packing {
    levels: Vec<Packed>,
}

#[derive(Clone, Debug, Default)]
struct Packed {
    /// Whether merges have changed it since the index was opened.
    is_changed: bool,
    /// The key to continue from.
    at: Vec<u8>,
    /// Units that were written, beyond the credit for those that were freed.
    units_wasted: u64,
    full_enough: Option<FullEnough>,
}

/// A level that packing does not help.
#[derive(Clone, Copy, Debug)]
struct FullEnough {
    /// The share that was empty.
    millionths: u64,
    /// The average size of its entries.
    entry_bytes: u64,
}

/// The average size of a level's entries; 0 where there are none.
fn entry_bytes(level: &LsmLevel) -> u64 {
    let of = |data: &LevelMeta| {
        let bytes = data.counts.sectors.saturating_mul(SECTOR_BYTES);
        bytes.checked_div(data.counts.data_entries())
    };
    level.tree.levels.last().and_then(of).unwrap_or(0)
}

impl FullEnough {
    fn of(level: &LsmLevel) -> Self {
        Self { millionths: Fill::of(level).millionths(), entry_bytes: entry_bytes(level) }
    }

    /// The most of the level that may be empty: the previous share, and one part in `parts` more.
    /// Zero for a level whose entries have been replaced.
    fn most_millionths(&self, level: &LsmLevel, parts: u64) -> u64 {
        let is_like = entry_bytes(level).abs_diff(self.entry_bytes) <= self.entry_bytes / 10;
        if is_like { self.millionths + self.millionths / parts } else { 0 }
    }
}

impl Packed {
    /// A window of `units` units that ends there is done, and has freed some.
    fn pass(&mut self, end: Option<&[u8]>, units: u64, freed_units: u64, level: &LsmLevel) {
        self.at = end.unwrap_or_default().to_vec();
        let worth = freed_units.saturating_mul(WORTH_UNITS);
        self.units_wasted = self.units_wasted.saturating_add(units).saturating_sub(worth);
        if self.units_wasted >= units.saturating_mul(WINDOWS_WASTED).min(level.units) {
            (self.units_wasted, self.full_enough) = (0, Some(FullEnough::of(level)));
        }
    }
}

impl Packing {
    /// The first level of which too much is empty.
    pub fn due(&self, lsm: &LsmMeta, omega_millionths: u64) -> Option<usize> {
        let is_due = |(known, level): (&Packed, &LsmLevel)| {
            let most = known
                .full_enough
                .map_or(0, |full_enough| full_enough.most_millionths(level, AGAIN_PARTS));
            known.is_changed && Fill::of(level).is_beyond(omega_millionths.max(most))
        };
        self.levels.iter().zip(&lsm.levels).position(is_due)
    }

    /// A little more than the empty part of a level, in millionths, if the packing of the level has
    /// stopped; else 0.
    pub fn unpackable_millionths(&self, number: usize, lsm: &LsmMeta) -> u64 {
        let full_enough = self.levels.get(number).and_then(|known| known.full_enough);
        let known = full_enough.zip(lsm.levels.get(number));
        known.map_or(0, |(full_enough, level)| full_enough.most_millionths(level, STAYS_PARTS))
    }

    /// The key to continue from in a level.
    pub fn at(&self, number: usize) -> Vec<u8> {
        self.levels.get(number).map(|level| level.at.clone()).unwrap_or_default()
    }

    /// A slice is done: it found the index as `before` and has left it as `after`.
    pub fn note(&mut self, slice: &Slice, before: &LsmMeta, after: &LsmMeta) {
        self.levels.resize_with(slice.layout.before, Packed::default);
        slice.layout.put_in(&mut self.levels, Packed::default);
        let Cause::Waste { level, units } = slice.cause else {
            let changed = self.levels.iter_mut().take(slice.depth + 1).skip(slice.from);
            return changed.for_each(|level| level.is_changed = true);
        };
        let of = |lsm: &LsmMeta| lsm.levels.get(level).map_or(0, |level| level.units);
        let freed_units = of(before).saturating_sub(of(after));
        self.pass(level, slice.keys.end.as_deref(), units, freed_units, after);
    }

    /// A window of a level is done.
    pub fn pass(
        &mut self,
        number: usize,
        end: Option<&[u8]>,
        units: u64,
        freed: u64,
        lsm: &LsmMeta,
    ) {
        if let (Some(packed), Some(level)) = (self.levels.get_mut(number), lsm.levels.get(number)) {
            packed.pass(end, units, freed, level);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsm::choose::slice::Overflow;
    use crate::lsm::layout::Layout;
    use esker_format::action::KeyRangeBuf;
    use esker_format::meta::{LevelCounts, TreeMeta};

    const OMEGA: u64 = 200_000;

    /// Levels with the given units and sectors, with entries of 2,000 bytes.
    fn index(levels: &[(u64, u64)]) -> LsmMeta {
        index_of(2_000, levels)
    }

    fn index_of(entry_bytes: u64, levels: &[(u64, u64)]) -> LsmMeta {
        let level = |(units, sectors): &(u64, u64)| {
            let (sectors, puts) = (*sectors, sectors * SECTOR_BYTES / entry_bytes);
            let counts = LevelCounts { sectors, puts, ..LevelCounts::default() };
            let data = LevelMeta { counts, ..LevelMeta::default() };
            let tree = TreeMeta { levels: vec![data], ..TreeMeta::default() };
            LsmLevel { tree, units: *units, ..LsmLevel::default() }
        };
        LsmMeta { levels: levels.iter().map(level).collect(), ..LsmMeta::default() }
    }

    /// A slice in that many levels, up to a key.
    fn slice(cause: Cause, levels: usize, end: &[u8]) -> Slice {
        let keys = KeyRangeBuf { begin: Vec::new(), end: Some(end.to_vec()) };
        Slice {
            cause,
            runs: false,
            from: 0,
            depth: 0,
            done: keys.clone(),
            keys,
            layout: Layout::above_last(levels, levels),
            sizes: None,
            is_first: true,
            is_last: true,
        }
    }

    /// For that many levels, which merges have changed.
    fn packing(levels: usize) -> Packing {
        let changed = Packed { is_changed: true, ..Packed::default() };
        Packing { levels: vec![changed; levels] }
    }

    fn pack(packing: &mut Packing, units: u64, before: &LsmMeta, after: &LsmMeta) {
        packing.note(&slice(Cause::Waste { level: 0, units }, 1, b"k"), before, after);
    }

    /// By hand: of 100 units, 800 sectors, 160 may be empty and those of a last block.
    #[test]
    fn a_level_is_packed_when_more_than_omega_is_empty() {
        let packing = packing(2);
        assert_eq!(packing.due(&index(&[(0, 0), (100, 632)]), OMEGA), None);
        assert_eq!(packing.due(&index(&[(0, 0), (100, 631)]), OMEGA), Some(1));
        assert_eq!(packing.due(&index(&[(1, 1)]), OMEGA), None, "one block is its last");
    }

    /// Of an index that has been opened and is read, nothing is.
    #[test]
    fn only_what_merges_have_changed_is_packed() {
        let mut packing = Packing::default();
        let two = index(&[(100, 600), (100, 600)]);
        assert_eq!(packing.due(&two, OMEGA), None);
        let merge = |from, depth| {
            let cause = Cause::Overflow(Overflow::Level(from));
            Slice { from, depth, ..slice(cause, 2, b"") }
        };
        packing.note(&merge(1, 1), &two, &two);
        assert_eq!(packing.due(&two, OMEGA), Some(1));
        packing.note(&merge(0, 1), &two, &two);
        assert_eq!(packing.due(&two, OMEGA), Some(0));
    }

    /// Entries of 9,000 bytes leave a quarter of three units empty: after eight windows in vain
    /// such a level is packed again only when a tenth more is empty.
    #[test]
    fn what_no_packing_helps_is_left() {
        let mut packing = packing(1);
        let level = |sectors| index_of(9_000, &[(900, sectors)]);
        let large = level(5_400);
        for _ in 0..WINDOWS_WASTED {
            assert_eq!(packing.due(&large, OMEGA), Some(0));
            pack(&mut packing, 64, &large, &large);
        }
        assert_eq!(packing.due(&large, OMEGA), None);
        assert_eq!(packing.due(&level(5_212), OMEGA), None, "27.5 % and the last block");
        assert_eq!(packing.due(&level(5_211), OMEGA), Some(0));
        let short = index_of(100, &[(900, 5_400)]);
        assert_eq!(packing.due(&short, OMEGA), Some(0), "other entries may be packed");
        // Levels that are put in are others.
        let layout = Layout::above_last(1, 2);
        let grows = Slice { layout, depth: 1, ..slice(Cause::Overflow(Overflow::Runs), 1, b"") };
        packing.note(&grows, &large, &large);
        let two = |first| index_of(9_000, &[first, (900, 5_400)]);
        assert_eq!(packing.due(&two((900, 5_400)), OMEGA), Some(0));
        assert_eq!(packing.due(&two((0, 0)), OMEGA), None);
    }

    /// By hand: a quarter, and a twentieth of it more.
    #[test]
    fn the_part_that_packing_does_not_help_is_known() {
        let mut packing = packing(1);
        let large = index_of(9_000, &[(900, 5_400)]);
        assert_eq!(packing.unpackable_millionths(0, &large), 0);
        for _ in 0..WINDOWS_WASTED {
            pack(&mut packing, 64, &large, &large);
        }
        assert_eq!(packing.unpackable_millionths(0, &large), 262_500);
        assert_eq!(packing.unpackable_millionths(1, &large), 0, "there is none");
        let short = index_of(100, &[(900, 5_400)]);
        assert_eq!(packing.unpackable_millionths(0, &short), 0);
    }

    /// The units that a window frees count sixteenfold; a surplus is not credited to later windows.
    #[test]
    fn help_now_and_then_is_weighed_against_its_cost() {
        let mut packing = packing(1);
        let (large, helped) = (index(&[(900, 5_400)]), index(&[(896, 5_400)]));
        for _ in 0..100 {
            pack(&mut packing, 64, &large, &helped);
            assert_eq!(packing.due(&large, OMEGA), Some(0), "4 of 64 are worth it");
        }
        for _ in 0..7 {
            pack(&mut packing, 64, &large, &large);
        }
        pack(&mut packing, 64, &large, &index(&[(898, 5_400)]));
        assert_eq!(packing.due(&large, OMEGA), Some(0), "7 and a half in vain");
        pack(&mut packing, 64, &large, &large);
        assert_eq!(packing.due(&large, OMEGA), None);
    }

    /// Numbers that are not true end it too.
    #[test]
    fn levels_that_packing_does_not_help_are_left() {
        for (units, level) in [(0, index(&[(1 << 50, 0)])), (64, index(&[(1 << 50, 100)]))] {
            let mut packing = packing(1);
            for _ in 0..WINDOWS_WASTED {
                pack(&mut packing, units, &level, &level);
            }
            assert_eq!(packing.due(&level, OMEGA), None);
        }
    }
}
