//! Which blocks a backup has, and which of them are still the store's.
//!
//! A block is known by its first sector and its generation, which no other block ever has. A unit
//! of the data file is written by one merge at a time: where a block of another generation lies in
//! a unit now, nothing older in it is alive.
//!
//! Invariant E1: pieces are disjoint in the store's file, and their units are disjoint in the
//! backup's.

use std::collections::BTreeMap;
use std::ops::Range;

use esker_format::backup::Piece;
use esker_format::ptr::{BlockPtr, Extent, SECTOR_BYTES, UNIT_BYTES};

/// Sectors of a unit.
pub(super) const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;

/// Pieces by their first sector.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces(BTreeMap<u64, Piece>);

impl Pieces {
    pub fn new(pieces: &[Piece]) -> Self {
        Self(pieces.iter().map(|piece| (piece.sector, *piece)).collect())
    }

    /// Adds a piece that overlaps no other.
    pub fn insert(&mut self, piece: Piece) {
        self.0.insert(piece.sector, piece);
    }

    /// Where a block is in the backup's file, in bytes.
    pub fn find(&self, ptr: &BlockPtr) -> Option<u64> {
        let (_, piece) = self.0.range(..=ptr.sector).next_back()?;
        let end = ptr.sector.saturating_add(u64::from(ptr.sectors));
        let has = piece.generation == ptr.generation && end <= piece.end();
        has.then(|| (piece.place + (ptr.sector - piece.sector)) * SECTOR_BYTES)
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|piece| piece.sectors.saturating_mul(SECTOR_BYTES)).sum()
    }

    /// What a backup holds when `new` has been copied: those, and what is left of these within
    /// `extents`, the store's.
    pub fn updated(&self, new: &Self, extents: impl Iterator<Item = Extent>) -> Vec<Piece> {
        let alive = joined(extents);
        let written: Vec<_> = new.0.values().collect();
        let mut pieces: Vec<Piece> = new.0.values().copied().collect();
        for old in self.0.values() {
            // Those whose units may reach into it.
            let first = written.partition_point(|new| units_of(new).end <= old.sector);
            let over = written.iter().skip(first).take_while(|new| units_of(new).start < old.end());
            let over = over.filter(|new| new.generation != old.generation);
            let gone: Vec<_> = over.map(|new| units_of(new)).collect();
            for range in within(&(old.sector..old.end()), &alive) {
                let left = without(range, &gone).into_iter();
                pieces.extend(left.map(|range| part(old, &range)));
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.sector);
        pieces.dedup_by(|next, last| join(last, next));
        pieces
    }
}

/// The units of the backup's file that pieces take.
pub(super) fn places(pieces: &[Piece]) -> impl Iterator<Item = Extent> {
    pieces.iter().map(|piece| {
        let start = piece.place / UNIT_SECTORS;
        let end = piece.place.saturating_add(piece.sectors).div_ceil(UNIT_SECTORS);
        Extent { start, units: end - start }
    })
}

/// The sectors of all units that a piece lies in.
fn units_of(piece: &Piece) -> Range<u64> {
    let start = piece.sector / UNIT_SECTORS * UNIT_SECTORS;
    start..piece.end().next_multiple_of(UNIT_SECTORS)
}

/// Extents as ranges of sectors, ascending, neighbours joined.
fn joined(extents: impl Iterator<Item = Extent>) -> Vec<Range<u64>> {
    let mut extents: Vec<_> = extents.collect();
    extents.sort_unstable();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for extent in extents {
        let range = extent.start * UNIT_SECTORS..extent.end() * UNIT_SECTORS;
        match ranges.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => ranges.push(range),
        }
    }
    ranges
}

/// The parts of `range` that are in `ranges`, which ascend.
fn within(range: &Range<u64>, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let first = ranges.partition_point(|other| other.end <= range.start);
    let meets = |other: &&Range<u64>| other.start < range.end;
    let cut = |other: &Range<u64>| other.start.max(range.start)..other.end.min(range.end);
    ranges.iter().skip(first).take_while(meets).map(cut).collect()
}

/// What is left of `range` without `gone`, which ascend.
fn without(range: Range<u64>, gone: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut from = range.start;
    for gone in gone {
        if gone.start > from && from < range.end {
            left.push(from..gone.start.min(range.end));
        }
        from = from.max(gone.end);
    }
    if from < range.end {
        left.push(from..range.end);
    }
    left
}

fn part(piece: &Piece, range: &Range<u64>) -> Piece {
    let place = piece.place + (range.start - piece.sector);
    Piece { sector: range.start, sectors: range.end - range.start, place, ..*piece }
}

/// Makes `next` part of `last` if it follows it in both files.
fn join(last: &mut Piece, next: &mut Piece) -> bool {
    let follows = last.generation == next.generation
        && last.end() == next.sector
        && last.place + last.sectors == next.place;
    if follows {
        last.sectors += next.sectors;
    }
    follows
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::ids::Generation;
    use proptest::prelude::*;

    fn piece(sector: u64, sectors: u64, generation: u64, place: u64) -> Piece {
        Piece { sector, sectors, generation: Generation(generation), place }
    }

    fn ptr(sector: u64, sectors: u16, generation: u64) -> BlockPtr {
        BlockPtr { sector, sectors, crc: 0, generation: Generation(generation) }
    }

    #[test]
    fn a_block_is_known_by_place_and_generation() {
        let pieces = Pieces::new(&[piece(8, 16, 5, 80), piece(24, 8, 6, 104)]);
        assert_eq!(pieces.find(&ptr(16, 8, 5)), Some(88 * 512));
        assert_eq!(pieces.find(&ptr(16, 8, 6)), None);
        assert_eq!(pieces.find(&ptr(16, 9, 5)), None);
        assert_eq!(pieces.find(&ptr(0, 8, 5)), None);
        assert_eq!(pieces.find(&ptr(24, 8, 6)), Some(104 * 512));
    }

    #[test]
    fn what_was_given_up_or_written_anew_goes() {
        let old = Pieces::new(&[piece(0, 80, 5, 800)]);
        // Units 1 to 7 are alive; unit 3 was written anew.
        let new = Pieces::new(&[piece(26, 3, 9, 2002)]);
        let updated = old.updated(&new, [Extent { start: 1, units: 7 }].into_iter());
        let expected = [piece(8, 16, 5, 808), piece(26, 3, 9, 2002), piece(32, 32, 5, 832)];
        assert_eq!(updated, expected);
    }

    #[test]
    fn a_unit_that_its_writer_filled_further_keeps_both_parts() {
        let old = Pieces::new(&[piece(8, 3, 5, 16)]);
        let new = Pieces::new(&[piece(11, 5, 5, 27)]);
        let updated = old.updated(&new, [Extent { start: 1, units: 1 }].into_iter());
        assert_eq!(updated, [piece(8, 3, 5, 16), piece(11, 5, 5, 27)]);
        let takes: Vec<_> = places(&updated).collect();
        assert_eq!(takes, [Extent { start: 2, units: 1 }, Extent { start: 3, units: 1 }]);
    }

    proptest! {
        #[test]
        fn nothing_is_twice_and_nothing_alive_is_lost(
            runs in proptest::collection::vec((0u64..3, 1u64..5, 0u8..4), 1..30),
        ) {
            // Units of the store's file: alive or not, copied before, written anew.
            let (mut old, mut new, mut alive) = (Pieces::default(), Pieces::default(), vec![]);
            let (mut unit, mut kept) = (0, vec![]);
            for (gap, units, kind) in runs {
                unit += gap;
                let sector = unit * 8;
                old.insert(piece(sector, units * 8, 5, sector));
                if kind > 0 {
                    alive.push(Extent { start: unit, units });
                }
                match kind {
                    2 => new.insert(piece(sector, units * 8, 9, 80_000 + sector)),
                    3 => {
                        new.insert(piece(sector + 3, 2, 9, 80_003 + sector));
                        kept.extend(unit + 1..unit + units);
                    }
                    1 => kept.extend(unit..unit + units),
                    _ => {}
                }
                unit += units;
            }
            let updated = old.updated(&new, alive.into_iter());
            let ends: Vec<_> = updated.iter().map(|piece| (piece.sector, piece.end())).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            let left = updated.iter().filter(|piece| piece.generation == Generation(5));
            let units: Vec<_> =
                left.flat_map(|piece| piece.sector / 8..piece.end().div_ceil(8)).collect();
            prop_assert_eq!(units, kept);
        }
    }
}
