//! The copies themselves: a memcpy for long runs, a blocked transpose where both buffers are
//! contiguous along different loops, plain loops otherwise.
//!
//! A [`Program`] is a piece in bytes, its loops merged where they continue each other.

use crate::pieces::Piece;

/// A loop, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Loop {
    count: usize,
    from: isize,
    to: isize,
}

/// One piece, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    from: isize,
    to: isize,
    /// Bytes copied at once.
    unit: usize,
    /// The heart: `rows` contiguous in the target, `columns` contiguous in the source.
    transpose: Option<(Loop, Loop)>,
    /// From the innermost.
    loops: Vec<Loop>,
}

/// Columns and rows of one block of a transpose: what is touched of both buffers fits the first
/// cache and its page table.
const BLOCK: usize = 64;
/// Rows and columns that are held in registers.
const TILE: usize = 8;

impl Program {
    /// Compiles a piece of records of `record_bytes`; the buffers begin `from_bytes` into the
    /// source and `to_bytes` into the target.
    #[must_use]
    pub fn new(piece: &Piece, record_bytes: usize, from_bytes: isize, to_bytes: isize) -> Self {
        let bytes = |records: i64| isize::try_from(records).unwrap_or(0) * record_bytes as isize;
        let in_bytes = |dim: &crate::pieces::Dim| Loop {
            count: usize::try_from(dim.count).unwrap_or(0),
            from: bytes(dim.from),
            to: bytes(dim.to),
        };
        let mut loops: Vec<Loop> = piece.dims.iter().map(in_bytes).collect();
        loops.sort_unstable_by_key(|l| (l.to.unsigned_abs(), l.from.unsigned_abs()));
        merge(&mut loops);
        let mut unit = record_bytes;
        if let Some(run) = loops.iter().position(|l| is(l.from, unit) && is(l.to, unit)) {
            unit *= loops.remove(run).count;
        }
        let transpose = heart(&mut loops, unit);
        let from = bytes(piece.from) + from_bytes;
        let to = bytes(piece.to) + to_bytes;
        Self { from, to, unit, transpose, loops }
    }

    /// Whether all that is read and written lies in buffers of these lengths.
    #[must_use]
    pub fn fits(&self, source_len: usize, target_len: usize) -> bool {
        let hearts = self.transpose.iter().flat_map(|(rows, columns)| [rows, columns]);
        let (mut from, mut to) = ((self.from, self.from), (self.to, self.to));
        for l in self.loops.iter().chain(hearts) {
            let last = l.count.saturating_sub(1) as isize;
            from = (from.0 + (l.from * last).min(0), from.1 + (l.from * last).max(0));
            to = (to.0 + (l.to * last).min(0), to.1 + (l.to * last).max(0));
        }
        let inside = |(first, last): (isize, isize), len: usize| {
            first >= 0 && usize::try_from(last).is_ok_and(|last| last + self.unit <= len)
        };
        inside(from, source_len) && inside(to, target_len)
    }

    /// Copies. A source or target that is too short is left out, never read or written past.
    pub fn run(&self, source: &[u8], target: &mut [u8]) {
        match (self.unit, self.transpose) {
            (1, Some(_)) => self.nest(&mut |from, to| self.block::<1>(source, target, from, to)),
            (2, Some(_)) => self.nest(&mut |from, to| self.block::<2>(source, target, from, to)),
            (4, Some(_)) => self.nest(&mut |from, to| self.block::<4>(source, target, from, to)),
            (8, Some(_)) => self.nest(&mut |from, to| self.block::<8>(source, target, from, to)),
            (16, Some(_)) => self.nest(&mut |from, to| self.block::<16>(source, target, from, to)),
            _ => self.rows(source, target),
        }
    }

    /// Calls `body` for every setting of the loops.
    fn nest(&self, body: &mut impl FnMut(isize, isize)) {
        let mut at = vec![0; self.loops.len()];
        let (mut from, mut to) = (self.from, self.to);
        loop {
            body(from, to);
            let mut moved = false;
            for (index, l) in at.iter_mut().zip(&self.loops) {
                *index += 1;
                from += l.from;
                to += l.to;
                if *index < l.count {
                    moved = true;
                    break;
                }
                from -= l.from * l.count as isize;
                to -= l.to * l.count as isize;
                *index = 0;
            }
            if !moved {
                return;
            }
        }
    }

    /// Copies units, the innermost loop without looking at the others.
    fn rows(&self, source: &[u8], target: &mut [u8]) {
        let unit = self.unit;
        let outer =
            Self { loops: self.loops.get(1..).unwrap_or_default().to_vec(), ..self.clone() };
        let inner = self.loops.first().copied().unwrap_or(Loop { count: 1, from: 0, to: 0 });
        outer.nest(&mut |from, to| match unit {
            1 => units::<1>(source, target, from, to, inner),
            2 => units::<2>(source, target, from, to, inner),
            4 => units::<4>(source, target, from, to, inner),
            8 => units::<8>(source, target, from, to, inner),
            _ => {
                let (mut from, mut to) = (from, to);
                for _ in 0..inner.count {
                    if let (Some(source), Some(target)) = (
                        range(from, unit).and_then(|r| source.get(r)),
                        range(to, unit).and_then(|r| target.get_mut(r)),
                    ) {
                        target.copy_from_slice(source);
                    }
                    from += inner.from;
                    to += inner.to;
                }
            }
        });
    }

    /// A transpose in blocks, each in tiles.
    fn block<const U: usize>(&self, source: &[u8], target: &mut [u8], from: isize, to: isize) {
        let Some((rows, columns)) = self.transpose else { return };
        for column in (0..columns.count).step_by(BLOCK) {
            let width = BLOCK.min(columns.count - column) as isize;
            for row in (0..rows.count).step_by(BLOCK) {
                let height = BLOCK.min(rows.count - row) as isize;
                let from = from + rows.from * row as isize + columns.from * column as isize;
                let to = to + rows.to * row as isize + columns.to * column as isize;
                tiles::<U>((source, from, rows.from), (target, to, columns.to), height, width);
            }
        }
    }
}

/// The non-negative range of `len` bytes from `at`.
fn range(at: isize, len: usize) -> Option<std::ops::Range<usize>> {
    let at = usize::try_from(at).ok()?;
    Some(at..at.checked_add(len)?)
}

fn is(stride: isize, unit: usize) -> bool {
    usize::try_from(stride) == Ok(unit)
}

/// Joins loops that continue each other in both buffers.
fn merge(loops: &mut Vec<Loop>) {
    let continues = |low: &Loop, high: &Loop| {
        let count = low.count as isize;
        high.from == low.from * count && high.to == low.to * count
    };
    let mut low = 0;
    while low < loops.len() {
        let found =
            (0..loops.len()).find(|high| *high != low && continues(&loops[low], &loops[*high]));
        match found {
            Some(high) => {
                loops[low].count *= loops[high].count;
                loops.remove(high);
                low = 0;
            }
            None => low += 1,
        }
    }
}

/// Takes out the loops of a transpose, if both buffers are contiguous along some loop and there
/// is a kernel for the unit.
fn heart(loops: &mut Vec<Loop>, unit: usize) -> Option<(Loop, Loop)> {
    if !matches!(unit, 1 | 2 | 4 | 8 | 16) {
        return None;
    }
    let rows = loops.iter().position(|l| is(l.to, unit))?;
    let columns = loops.iter().position(|l| is(l.from, unit))?;
    let pair = (loops[rows], loops[columns]);
    let mut index = 0;
    loops.retain(|_| {
        index += 1;
        index - 1 != rows && index - 1 != columns
    });
    Some(pair)
}

/// Copies `count` units of a size that the compiler knows.
fn units<const U: usize>(
    source: &[u8],
    target: &mut [u8],
    mut from: isize,
    mut to: isize,
    l: Loop,
) {
    for _ in 0..l.count {
        let unit = range(from, U).and_then(|r| source.get(r)).and_then(|s| s.first_chunk::<U>());
        let place = range(to, U).and_then(|r| target.get_mut(r));
        if let (Some(unit), Some(place)) = (unit, place.and_then(|p| p.first_chunk_mut::<U>())) {
            *place = *unit;
        }
        from += l.from;
        to += l.to;
    }
}

/// One block of a transpose: whole tiles, then what is left one by one.
fn tiles<const U: usize>(
    (source, from, pitch_from): (&[u8], isize, isize),
    (target, to, pitch_to): (&mut [u8], isize, isize),
    height: isize,
    width: isize,
) {
    const TILES: isize = TILE as isize;
    let unit = U as isize;
    let (whole_height, whole_width) = (height / TILES * TILES, width / TILES * TILES);
    for row in (0..whole_height).step_by(TILE) {
        for column in (0..whole_width).step_by(TILE) {
            let from = from + row * pitch_from + column * unit;
            let to = to + column * pitch_to + row * unit;
            tile::<U>((source, from, pitch_from), (target, to, pitch_to));
        }
    }
    let rest = |target: &mut [u8], row: isize, columns: std::ops::Range<isize>| {
        let from = from + row * pitch_from + columns.start * unit;
        let to = to + columns.start * pitch_to + row * unit;
        let count = usize::try_from(columns.end - columns.start).unwrap_or(0);
        units::<U>(source, target, from, to, Loop { count, from: unit, to: pitch_to });
    };
    for row in 0..whole_height {
        rest(target, row, whole_width..width);
    }
    for row in whole_height..height {
        rest(target, row, 0..width);
    }
}

/// Eight rows by eight columns, through registers: each buffer is touched in lines.
fn tile<const U: usize>(
    (source, from, pitch_from): (&[u8], isize, isize),
    (target, to, pitch_to): (&mut [u8], isize, isize),
) {
    let mut held = [[[0; U]; TILE]; TILE];
    let mut at = from;
    for row in &mut held {
        let line = range(at, U * TILE).and_then(|r| source.get(r));
        let Some(line) = line else { return };
        for (value, unit) in row.iter_mut().zip(line.as_chunks::<U>().0) {
            *value = *unit;
        }
        at += pitch_from;
    }
    let mut at = to;
    for column in 0..TILE {
        let Some(line) = range(at, U * TILE).and_then(|r| target.get_mut(r)) else { return };
        for (row, unit) in held.iter().zip(line.as_chunks_mut::<U>().0) {
            *unit = row[column];
        }
        at += pitch_to;
    }
}
