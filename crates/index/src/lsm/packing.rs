//! Levels of which too much is empty are packed.
//!
//! A block stays as it is only while at most ω of its level is empty (the thesis, 5.1.2 and 5.1.3),
//! but each merge ends with a block that is not full, and where merges are of few blocks these are
//! many. While more than ω of a level is empty, slices of it are read and written again, with all
//! their blocks opened: going round the keys, those of which at least as large a share is empty as
//! of the whole level. One is always there, and full blocks are passed over.
//!
//! Entries that fill no units leave as much of them empty however they are packed. When a round has
//! helped nothing, what is empty then is remembered, and the level is packed again only when that
//! has grown by a tenth. Nothing of this is durable: an index that has been opened tries once more.
//!
//! Slices that pack take turns with those of what overflows, so that neither has to wait until the
//! other is done, however large the level is.

use esker_format::action::KeyRangeBuf;
use esker_format::ids::Seq;
use esker_format::meta::LsmMeta;
use esker_substrate::error::Result;

use super::choose::{Overflow, Slice, slice_blocks};
use super::kind::LsmIndex;
use super::layout::Layout;
use super::output::Fill;
use super::state::State;
use crate::cursor::{FenceCursor, Target};
use crate::tree::{BlockReader, Tree};

/// Fewest blocks that are packed together: the last of them is not full.
const BLOCKS_MIN: u64 = 64;
/// Packing helps when it gives back one unit of so many.
const UNITS_HELPED: u64 = 16;

/// What is known of the packing of an index's levels, from the first down.
#[derive(Debug, Default)]
pub(super) struct Packing {
    levels: Vec<Packed>,
}

#[derive(Clone, Debug, Default)]
struct Packed {
    /// Where to go on.
    at: Vec<u8>,
    /// Units that were passed since packing has helped: over, or in vain.
    passed_units: u64,
    /// What a round that has helped nothing left empty, in millionths of the level.
    left_millionths: u64,
}

/// Neighbours of a level that are packed together.
struct Window {
    keys: KeyRangeBuf,
    fill: Fill,
}

impl Packing {
    /// The first level of which too much is empty.
    pub fn due(&self, lsm: &LsmMeta, omega_millionths: u64) -> Option<usize> {
        let left = |number: usize| self.levels.get(number).map_or(0, |level| level.left_millionths);
        let mut levels = lsm.levels.iter().enumerate();
        let due = levels.find(|(number, level)| {
            let left = left(*number);
            Fill::of(level).is_beyond(omega_millionths.max(left + left / 10))
        });
        due.map(|(number, _)| number)
    }

    /// The keys at which to go on in a level.
    fn at(&self, number: usize) -> Vec<u8> {
        self.levels.get(number).map(|level| level.at.clone()).unwrap_or_default()
    }

    /// Between the keys at which it went on and those of a slice so many units were passed over.
    fn pass_over(&mut self, number: usize, units: u64) {
        if self.levels.len() <= number {
            self.levels.resize_with(number + 1, Packed::default);
        }
        if let Some(packed) = self.levels.get_mut(number) {
            packed.passed_units = packed.passed_units.saturating_add(units);
        }
    }

    /// A slice is done: it found the index as `before` and has left it as `after`.
    pub fn note(&mut self, slice: &Slice, before: &LsmMeta, after: &LsmMeta) {
        self.levels.resize_with(slice.layout.before, Packed::default);
        slice.layout.put_in(&mut self.levels, Packed::default);
        let Overflow::Waste { level: number, units } = slice.overflow else { return };
        let level = |lsm: &LsmMeta| lsm.levels.get(number).map(Fill::of).unwrap_or_default();
        let (before, after) = (level(before), level(after));
        let Some(packed) = self.levels.get_mut(number) else { return };
        packed.at = slice.keys.end.clone().unwrap_or_default();
        if (before.units.saturating_sub(after.units)) * UNITS_HELPED >= units {
            packed.passed_units = 0;
            return;
        }
        packed.passed_units = packed.passed_units.saturating_add(units);
        if packed.passed_units >= after.units {
            (packed.passed_units, packed.left_millionths) = (0, after.millionths());
        }
    }
}

impl LsmIndex<'_> {
    /// The next slice of a level that is packed; `None` when none is to be.
    ///
    /// Cost: reads the nodes that lead to what is passed over.
    pub(super) fn slice_to_pack(&self, state: &State) -> Result<Option<Slice>> {
        let omega = self.lsm.merging.params.omega_millionths();
        // Writers ask under this lock: nothing is read under it.
        let (level, at) = {
            let packing = self.lsm.packing.lock();
            let Some(level) = packing.due(state.lsm(), omega) else { return Ok(None) };
            (level, packing.at(level))
        };
        let (Some(tree), Some(meta)) = (state.levels.get(level), state.level(level)) else {
            return Ok(None);
        };
        let blocks = slice_blocks(self.kappa0_bytes()).max(BLOCKS_MIN);
        let (passed, window) = find(tree, &self.reader, &at, blocks, &Fill::of(meta))?;
        self.lsm.packing.lock().pass_over(level, passed);
        Ok(Some(Slice {
            overflow: Overflow::Waste { level, units: window.fill.units },
            runs: false,
            from: level,
            depth: level,
            done: window.keys.clone(),
            keys: window.keys,
            layout: Layout::above_last(state.levels.len(), state.levels.len()),
            sizes: None,
            is_first: true,
            is_last: true,
        }))
    }
}

/// The first window behind `at`, going round, of which as large a share is empty as of the level;
/// and how many units are before it. When the level says other numbers than its blocks, the last.
fn find(
    tree: &Tree,
    reader: &BlockReader,
    at: &[u8],
    blocks: u64,
    level: &Fill,
) -> Result<(u64, Window)> {
    let mut passed = 0;
    let (mut begin, mut is_round) = (at.to_vec(), at.is_empty());
    loop {
        let window = window(tree, reader, begin, blocks)?;
        let end = window.keys.end.clone();
        let is_over = is_round && end.as_deref().is_none_or(|end| end >= at);
        if window.fill.is_as_empty_as(level) || is_over {
            return Ok((passed, window));
        }
        passed += window.fill.units;
        is_round |= end.is_none();
        begin = end.unwrap_or_default();
    }
}

/// So many blocks of a level from a key on, up to the next border between user keys.
fn window(tree: &Tree, reader: &BlockReader, begin: Vec<u8>, blocks: u64) -> Result<Window> {
    let (mut end, mut fill, mut taken) = (None, Fill::default(), 0);
    let level = tree.height().checked_sub(1);
    let first = |level| FenceCursor::find(tree, reader, level, Target::At(&begin, Seq::MAX));
    let mut next = level.map(first).transpose()?.flatten();
    while let Some(at) = next {
        end = at.with_current(|fence| {
            let is_border = fence.seq == Seq::MAX && fence.key > begin.as_slice();
            let is_end = is_border && taken >= blocks;
            if !is_end {
                fill.add(&fence.fence.ptr);
                taken += 1;
            }
            is_end.then(|| fence.key.to_vec())
        })?;
        next = if end.is_some() { None } else { at.next()? };
    }
    Ok(Window { keys: KeyRangeBuf { begin, end }, fill })
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::meta::{LevelCounts, LevelMeta, LsmLevel, TreeMeta};

    const OMEGA: u64 = 200_000;

    fn index(levels: &[(u64, u64)]) -> LsmMeta {
        let level = |(units, sectors): &(u64, u64)| {
            let counts = LevelCounts { sectors: *sectors, ..LevelCounts::default() };
            let data = LevelMeta { counts, ..LevelMeta::default() };
            let tree = TreeMeta { levels: vec![data], ..TreeMeta::default() };
            LsmLevel { tree, units: *units, ..LsmLevel::default() }
        };
        LsmMeta { levels: levels.iter().map(level).collect(), ..LsmMeta::default() }
    }

    /// A slice in so many levels, up to a key.
    fn slice(overflow: Overflow, levels: usize, end: &[u8]) -> Slice {
        let keys = KeyRangeBuf { begin: Vec::new(), end: Some(end.to_vec()) };
        Slice {
            overflow,
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

    /// By hand: of 100 units, 800 sectors, 160 may be empty and those of a last block.
    #[test]
    fn a_level_is_packed_when_more_than_omega_is_empty() {
        let packing = Packing::default();
        assert_eq!(packing.due(&index(&[(0, 0), (100, 632)]), OMEGA), None);
        assert_eq!(packing.due(&index(&[(0, 0), (100, 631)]), OMEGA), Some(1));
        assert_eq!(packing.due(&index(&[(1, 1)]), OMEGA), None, "one block is its last");
    }

    /// Entries of 9,000 bytes leave a quarter of three units empty: after a round that has not
    /// helped, such a level is packed again only when a tenth more is empty.
    #[test]
    fn what_no_packing_helps_is_left() {
        let mut packing = Packing::default();
        let large = index(&[(300, 1800)]);
        let pack = |packing: &mut Packing, end: &[u8], after: &LsmMeta| {
            let overflow = Overflow::Waste { level: 0, units: 64 };
            packing.note(&slice(overflow, 1, end), &large, after);
        };
        pack(&mut packing, b"c", &index(&[(299, 1800)]));
        packing.pass_over(0, 107);
        assert_eq!((packing.due(&large, OMEGA), packing.at(0)), (Some(0), b"c".to_vec()));
        pack(&mut packing, b"m", &index(&[(296, 1768)]));
        packing.pass_over(0, 172);
        pack(&mut packing, b"p", &large);
        assert_eq!(packing.due(&large, OMEGA), Some(0), "one window has helped, 236 units did not");
        pack(&mut packing, b"s", &large);
        assert_eq!(packing.due(&large, OMEGA), None);
        assert_eq!(packing.due(&index(&[(300, 1732)]), OMEGA), None, "27.5 % and the last block");
        assert_eq!(packing.due(&index(&[(300, 1731)]), OMEGA), Some(0));
        // Levels that are put in are others.
        let layout = Layout::above_last(1, 2);
        let grows = Slice { layout, ..slice(Overflow::Runs, 1, b"") };
        packing.note(&grows, &large, &large);
        assert_eq!(packing.due(&index(&[(300, 1800), (300, 1800)]), OMEGA), Some(0));
        assert_eq!(packing.due(&index(&[(0, 0), (300, 1800)]), OMEGA), None);
    }
}
