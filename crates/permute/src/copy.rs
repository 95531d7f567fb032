//! The copies themselves: a memcpy for long runs, a blocked transpose where both buffers are
//! contiguous along different loops, plain loops otherwise.
//!
//! A [`Program`] is a piece in bytes, its loops merged where they continue each other.

use esker_device::prefetch::prefetch_for_write;

use crate::scatter::Piece;

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
    /// Bytes of one copy.
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
/// The number of columns by which a line of the target is requested ahead: without that, placing in
/// memory beyond the second cache takes three to five times as long.
const AHEAD: isize = 32;
/// Bytes of a line of the cache.
const LINE: isize = 64;

impl Program {
    /// Compiles a piece of records of `record_bytes`; the buffers begin `from_bytes` into the
    /// source and `to_bytes` into the target.
    #[must_use]
    pub fn new(piece: &Piece, record_bytes: usize, from_bytes: isize, to_bytes: isize) -> Self {
        let bytes = |records: i64| isize::try_from(records).unwrap_or(0) * record_bytes as isize;
        let in_bytes = |dim: &crate::scatter::Dim| Loop {
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

    /// Whether all reads and writes are within buffers of these lengths.
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
            (1, Some(_)) => self.blocks::<1>(source, target, tile::<1, 8>),
            (2, Some(_)) => self.blocks::<2>(source, target, tile::<2, 4>),
            (4, Some(_)) => self.blocks::<4>(source, target, tile::<4, 2>),
            (8, Some(_)) => self.blocks::<8>(source, target, tile::<8, 1>),
            (16, Some(_)) => self.blocks::<16>(source, target, wide_tile::<16>),
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

    /// Transposes in blocks, each in tiles.
    #[inline]
    fn blocks<const U: usize>(&self, source: &[u8], target: &mut [u8], tile: impl Tile) {
        let Some((rows, columns)) = self.transpose else { return };
        self.nest(&mut |from, to| {
            for column in (0..columns.count).step_by(BLOCK) {
                let width = BLOCK.min(columns.count - column) as isize;
                for row in (0..rows.count).step_by(BLOCK) {
                    let height = BLOCK.min(rows.count - row) as isize;
                    let from = from + rows.from * row as isize + columns.from * column as isize;
                    let to = to + rows.to * row as isize + columns.to * column as isize;
                    let from = From { bytes: source, at: from, pitch: rows.from };
                    let to = To { bytes: target, at: to, pitch: columns.to };
                    tiles::<U>(from, to, height, width, &tile);
                }
            }
        });
    }
}

/// The source of a tile or block: its first record, and bytes from one row to the next.
#[derive(Clone, Copy)]
struct From<'a> {
    bytes: &'a [u8],
    at: isize,
    pitch: isize,
}

/// The target of a tile or block: its first record, and bytes from one column to the next.
struct To<'a> {
    bytes: &'a mut [u8],
    at: isize,
    pitch: isize,
}

/// Transposes one tile.
trait Tile: Fn(From<'_>, To<'_>) {}

impl<F: Fn(From<'_>, To<'_>)> Tile for F {}

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
#[inline]
fn tiles<const U: usize>(
    from: From<'_>,
    to: To<'_>,
    height: isize,
    width: isize,
    tile: &impl Tile,
) {
    const TILES: isize = TILE as isize;
    let unit = U as isize;
    let target = to.bytes;
    let (whole_height, whole_width) = (height / TILES * TILES, width / TILES * TILES);
    for row in (0..whole_height).step_by(TILE) {
        for column in (0..whole_width).step_by(TILE) {
            let at = to.at + column * to.pitch + row * unit;
            if row * unit % LINE == 0 {
                ask::<U>(target, at + AHEAD * to.pitch, to.pitch);
            }
            let from = From { at: from.at + row * from.pitch + column * unit, ..from };
            tile(from, To { bytes: target, at, pitch: to.pitch });
        }
    }
    let rest = |target: &mut [u8], row: isize, columns: std::ops::Range<isize>| {
        let at = from.at + row * from.pitch + columns.start * unit;
        let place = to.at + columns.start * to.pitch + row * unit;
        let count = usize::try_from(columns.end - columns.start).unwrap_or(0);
        units::<U>(from.bytes, target, at, place, Loop { count, from: unit, to: to.pitch });
    };
    for row in 0..whole_height {
        rest(target, row, whole_width..width);
    }
    for row in whole_height..height {
        rest(target, row, 0..width);
    }
}

/// Asks for the lines of a tile of the target, which seldom begins where a line does.
#[inline]
fn ask<const U: usize>(target: &[u8], at: isize, pitch: isize) {
    let len = (U * TILE) as isize;
    for column in 0..TILE as isize {
        let at = at.wrapping_add(column.wrapping_mul(pitch));
        for part in (0..len.max(LINE)).step_by(LINE as usize) {
            prefetch_for_write(target, at.wrapping_add(part).cast_unsigned());
        }
        prefetch_for_write(target, at.wrapping_add(len.max(LINE) - 1).cast_unsigned());
    }
}

/// Eight rows by eight columns of units of `U` bytes, `E` of them in a word: each buffer is touched
/// in lines, and words are transposed in registers.
#[inline]
fn tile<const U: usize, const E: usize>(from: From<'_>, to: To<'_>) {
    let mut rows = [[0_u64; U]; TILE];
    let mut at = from.at;
    for row in &mut rows {
        let line = range(at, U * TILE).and_then(|r| from.bytes.get(r));
        let Some(line) = line.and_then(|line| line.as_chunks().0.first_chunk()) else { return };
        *row = line.map(u64::from_le_bytes);
        at = at.wrapping_add(from.pitch);
    }
    let held = |row: usize, word: usize| rows[row][word];
    let mut at = to.at;
    for high in 0..U {
        let mut columns = [[0; U]; E];
        for word in 0..U {
            let mut words: [u64; E] = std::array::from_fn(|row| held(word * E + row, high));
            transpose(&mut words);
            for (column, transposed) in columns.iter_mut().zip(words) {
                column[word] = transposed;
            }
        }
        for column in columns {
            let line = range(at, U * TILE).and_then(|r| to.bytes.get_mut(r));
            let line = line.and_then(|line| line.as_chunks_mut().0.first_chunk_mut());
            let Some(line) = line else { return };
            *line = column.map(u64::to_le_bytes);
            at = at.wrapping_add(to.pitch);
        }
    }
}

/// Transposes `E` words of `E` units each, the first unit of a word in its low bits: halves of the
/// words change places across the diagonal, then quarters, then eighths.
#[inline]
fn transpose<const E: usize>(words: &mut [u64; E]) {
    let mut half = E / 2;
    while half > 0 {
        let bits = half * 64 / E;
        // The low one of every two groups of this many bits.
        let mask = u64::MAX / ((1 << bits) + 1);
        for low in (0..E).filter(|word| word & half == 0) {
            let moved = (words[low] >> bits ^ words[low + half]) & mask;
            words[low + half] ^= moved;
            words[low] ^= moved << bits;
        }
        half /= 2;
    }
}

/// Eight rows by eight columns of units that are larger than a word.
#[inline]
fn wide_tile<const U: usize>(from: From<'_>, to: To<'_>) {
    let mut rows = [[[0; U]; TILE]; TILE];
    let mut at = from.at;
    for row in &mut rows {
        let line = range(at, U * TILE).and_then(|r| from.bytes.get(r));
        let Some(line) = line.and_then(|line| line.as_chunks().0.first_chunk()) else { return };
        *row = *line;
        at = at.wrapping_add(from.pitch);
    }
    let held = |row: usize, column: usize| rows[row][column];
    let mut at = to.at;
    for column in 0..TILE {
        let line = range(at, U * TILE).and_then(|r| to.bytes.get_mut(r));
        let line = line.and_then(|line| line.as_chunks_mut().0.first_chunk_mut());
        let Some(line) = line else { return };
        *line = std::array::from_fn::<_, TILE, _>(|row| held(row, column));
        at = at.wrapping_add(to.pitch);
    }
}
