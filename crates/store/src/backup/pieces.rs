//! The blocks that a backup contains, and those of them that the store still uses.
//!
//! A block is known by its first sector and its generation, which no other block ever has. A unit
//! of the data file is written by one merge at a time: if a unit now has a block of another
//! generation, nothing older in that unit is alive, nor is a block that extends into it.
//!
//! Invariant: pieces are disjoint in the store's file, and their units are disjoint in the
//! backup's.
//! Invariant: a piece begins with a block, or a piece of a value, and ends with one.

use std::collections::BTreeMap;
use std::ops::Range;

use esker_format::backup::Piece;
use esker_format::ptr::{BlockPtr, Extent, SECTOR_BYTES, UNIT_BYTES};

use crate::error::Result;

/// Sectors of a unit.
pub(super) const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;

/// Answers the sectors of the whole blocks in a part of a piece.
pub(super) type WholeBlocks<'a> = dyn Fn(&Piece, &Range<u64>) -> Result<Range<u64>> + 'a;

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

    /// The offset of a block in the backup's file, in bytes; `None` if no piece contains it.
    pub fn find(&self, ptr: &BlockPtr) -> Option<u64> {
        let (_, piece) = self.0.range(..=ptr.sector).next_back()?;
        let end = ptr.sector.saturating_add(u64::from(ptr.sectors));
        let has = piece.generation == ptr.generation && end <= piece.end();
        has.then(|| (piece.place + (ptr.sector - piece.sector)) * SECTOR_BYTES)
    }

    /// Whether there is this piece, as it is.
    pub fn has(&self, piece: &Piece) -> bool {
        self.0.get(&piece.sector) == Some(piece)
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|piece| piece.sectors.saturating_mul(SECTOR_BYTES)).sum()
    }

    /// The pieces of the backup after `new` has been copied: those of `new`, and the parts of the
    /// present ones that are within `extents`, those of the store, and that `new` does not replace.
    ///
    /// # Errors
    /// Those of `whole`.
    pub fn updated(
        &self,
        new: &Self,
        extents: impl Iterator<Item = Extent>,
        whole: &WholeBlocks<'_>,
    ) -> Result<Vec<Piece>> {
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
                for left in without(range, &gone) {
                    let is_cut = left != (old.sector..old.end());
                    let left = if is_cut { whole(old, &left)? } else { left };
                    pieces.extend((!left.is_empty()).then(|| part(old, &left)));
                }
            }
        }
        pieces.sort_unstable_by_key(|piece| piece.sector);
        pieces.dedup_by(|next, last| join(last, next));
        Ok(pieces)
    }

    /// Fills `buf` with what pieces contain from sector `sector` of the store's file on, which
    /// `read` reads at places in the backup's. False where some of it is in no piece.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn fill(
        &self,
        sector: u64,
        buf: &mut [u8],
        read: &mut dyn FnMut(u64, &mut [u8]) -> Result<()>,
    ) -> Result<bool> {
        let (mut at, mut rest) = (sector, buf);
        while !rest.is_empty() {
            let piece = self.0.range(..=at).next_back().map(|(_, piece)| piece);
            let Some(piece) = piece.filter(|piece| at < piece.end()) else { return Ok(false) };
            let sectors = (piece.end() - at).min(rest.len() as u64 / SECTOR_BYTES).max(1);
            let bytes = (sectors * SECTOR_BYTES) as usize;
            let Some((now, later)) = rest.split_at_mut_checked(bytes) else { return Ok(false) };
            read((piece.place + (at - piece.sector)) * SECTOR_BYTES, now)?;
            (at, rest) = (at + sectors, later);
        }
        Ok(true)
    }
}

/// Those of `pieces` for which the backup's file has other units than for `before`.
pub(super) fn written_since(pieces: &[Piece], before: &[Piece]) -> Pieces {
    let before = joined(places(before));
    let is_new = |piece: &&Piece| {
        places(std::slice::from_ref(*piece)).any(|extent| {
            let units = extent.start * UNIT_SECTORS..extent.end() * UNIT_SECTORS;
            within(&units, &before) != [units]
        })
    };
    Pieces(pieces.iter().filter(is_new).map(|piece| (piece.sector, *piece)).collect())
}

/// The units of the backup's file that pieces take.
pub(super) fn places(pieces: &[Piece]) -> impl Iterator<Item = Extent> {
    pieces.iter().map(|piece| {
        let start = piece.place / UNIT_SECTORS;
        let end = piece.place.saturating_add(piece.sectors).div_ceil(UNIT_SECTORS);
        Extent { start, units: end - start }
    })
}

/// The sectors of all units that a piece is in.
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

/// The parts of `range` that are not in `gone`, whose ranges ascend.
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

    /// As if a block began with every unit.
    fn units(_: &Piece, range: &Range<u64>) -> Result<Range<u64>> {
        Ok(range.clone())
    }

    #[test]
    fn freed_and_rewritten_pieces_are_dropped() {
        let old = Pieces::new(&[piece(0, 80, 5, 800)]);
        // Units 1 to 7 are alive; unit 3 was written anew.
        let new = Pieces::new(&[piece(26, 3, 9, 2002)]);
        let updated = old.updated(&new, [Extent { start: 1, units: 7 }].into_iter(), &units);
        let expected = [piece(8, 16, 5, 808), piece(26, 3, 9, 2002), piece(32, 32, 5, 832)];
        assert_eq!(updated.unwrap(), expected);
    }

    #[test]
    fn a_unit_that_its_writer_filled_further_keeps_both_parts() {
        let old = Pieces::new(&[piece(8, 3, 5, 16)]);
        let new = Pieces::new(&[piece(11, 5, 5, 27)]);
        let updated = old.updated(&new, [Extent { start: 1, units: 1 }].into_iter(), &units);
        let updated = updated.unwrap();
        assert_eq!(updated, [piece(8, 3, 5, 16), piece(11, 5, 5, 27)]);
        let takes: Vec<_> = places(&updated).collect();
        assert_eq!(takes, [Extent { start: 2, units: 1 }, Extent { start: 3, units: 1 }]);
    }

    /// Runs of blocks as a backup contains them: of each the gap before it, in units, where it
    /// begins in a unit, the lengths of its blocks, and whether something is written anew behind
    /// its unit of this number, or freed.
    type Run = (u64, u64, Vec<u64>, Option<(u64, bool)>);

    fn run() -> impl Strategy<Value = Run> {
        let blocks = proptest::collection::vec(1u64..30, 1..12);
        (0u64..3, 0u64..8, blocks, proptest::option::of((0u64..12, any::<bool>())))
    }

    proptest! {
        #[test]
        fn blocks_are_kept_whole_or_not_at_all(
            runs in proptest::collection::vec(run(), 1..12),
        ) {
            let (mut old, mut new, mut alive) = (Pieces::default(), Pieces::default(), vec![]);
            let (mut unit, mut blocks, mut changed) = (0, BTreeMap::new(), vec![]);
            for (gap, begins, lengths, change) in runs {
                unit += gap;
                let first = unit * UNIT_SECTORS + begins;
                let mut end = first;
                for length in lengths {
                    blocks.insert(end, end + length);
                    end += length;
                }
                old.insert(piece(first, end - first, 5, 80_000 + first));
                let units = end.div_ceil(UNIT_SECTORS) - unit;
                let change = change.map(|(at, is_new)| (unit + at % units, is_new));
                let freed = change.filter(|(_, is_new)| !is_new).map(|(at, _)| at);
                alive.extend((unit..unit + units).filter(|unit| Some(*unit) != freed)
                    .map(|start| Extent { start, units: 1 }));
                if let Some((at, true)) = change {
                    new.insert(piece(at * UNIT_SECTORS + 3, 2, 9, 800_003 + at * UNIT_SECTORS));
                }
                changed.extend(change.map(|(at, _)| at));
                unit += units;
            }
            let whole = |_: &Piece, range: &Range<u64>| {
                let around = |at: u64| blocks.range(..=at).next_back().unwrap();
                let start = blocks.range(range.start..).next().map_or(range.end, |(at, _)| *at);
                let (last, end) = around(range.end - 1);
                let end = if *end <= range.end { *end } else { *last };
                Ok(start..end.max(start))
            };
            let updated = old.updated(&new, alive.into_iter(), &whole).unwrap();
            let ends: Vec<_> = updated.iter().map(|piece| (piece.sector, piece.end())).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            let is_alive = |block: &(&u64, &u64)| {
                let units = *block.0 / UNIT_SECTORS..block.1.div_ceil(UNIT_SECTORS);
                !changed.iter().any(|unit| units.contains(unit))
            };
            let kept: u64 = blocks.iter().filter(is_alive).map(|(at, end)| end - at).sum();
            let left = updated.iter().filter(|piece| piece.generation == Generation(5));
            for left in left.clone() {
                prop_assert!(blocks.contains_key(&left.sector), "a piece begins within a block");
                prop_assert!(blocks.values().any(|end| *end == left.end()));
                prop_assert_eq!(left.place, 80_000 + left.sector);
            }
            prop_assert_eq!(left.map(|left| left.sectors).sum::<u64>(), kept);
            for (at, end) in blocks.iter().filter(is_alive) {
                let sectors = (end - at) as u16;
                prop_assert!(Pieces::new(&updated).find(&ptr(*at, sectors, 5)).is_some());
            }
        }
    }

    #[test]
    fn what_pieces_have_is_read_from_their_places() {
        let pieces = Pieces::new(&[piece(8, 4, 5, 40), piece(12, 4, 6, 84), piece(20, 4, 6, 100)]);
        let read = |sector, sectors: usize| {
            let (mut buf, mut places) = (vec![0; sectors * 512], vec![]);
            let all = pieces.fill(sector, &mut buf, &mut |place, buf| {
                places.push((place / 512, buf.len() / 512));
                Ok(())
            });
            (all.unwrap(), places)
        };
        assert_eq!(read(9, 5), (true, vec![(41, 3), (84, 2)]));
        assert_eq!(read(20, 4), (true, vec![(100, 4)]));
        assert!(!read(14, 3).0 && !read(23, 2).0 && !read(0, 1).0);
    }
}
