//! Rows of numbers in few bytes.

/// Bytes that a number is read with.
const READ_BYTES: usize = 8;

/// Rows of `N` numbers in the order of their pushes: each number as its distance from the base of
/// its column, in as many bytes as the largest distance needs.
///
/// Invariant: all distances of a column fit its width, which is 0 where all its numbers are equal.
/// Invariant: where there are rows, `bytes` has them back to back and [`READ_BYTES`] more, so that
/// each number is read with as many.
#[derive(Clone, Debug)]
pub(super) struct PackedRows<const N: usize> {
    columns: [Column; N],
    row_bytes: usize,
    len: usize,
    bytes: Vec<u8>,
}

/// The place of a number in its row.
#[derive(Clone, Copy, Debug, Default)]
struct Column {
    base: u64,
    /// The largest distance that fits.
    mask: u64,
    offset: usize,
}

impl Column {
    const fn new(base: u64, width: usize) -> Self {
        let mask = if width == 0 { 0 } else { u64::MAX >> (64 - 8 * width) };
        Self { base, mask, offset: 0 }
    }

    const fn width(self) -> usize {
        (u64::BITS - self.mask.leading_zeros()) as usize / 8
    }

    fn fits(self, number: u64) -> bool {
        number.checked_sub(self.base).is_some_and(|distance| distance <= self.mask)
    }

    #[inline]
    fn read(self, row: &[u8]) -> Option<u64> {
        let bytes = row.get(self.offset..)?.first_chunk::<READ_BYTES>()?;
        Some(self.base.wrapping_add(u64::from_le_bytes(*bytes) & self.mask))
    }

    /// The column wide enough for `number` besides the numbers that it has.
    fn around(self, number: u64, numbers: impl Iterator<Item = u64>) -> Self {
        let largest = numbers.fold(number, u64::max);
        let base = if number < self.base {
            // Numbers that go on falling do not move the base each time.
            number.saturating_sub(largest - number)
        } else {
            self.base
        };
        Self::new(base, width_of(largest - base))
    }
}

/// Bytes that a distance takes.
const fn width_of(distance: u64) -> usize {
    (u64::BITS - distance.leading_zeros()).div_ceil(8) as usize
}

impl<const N: usize> Default for PackedRows<N> {
    fn default() -> Self {
        Self { columns: [Column::default(); N], row_bytes: 0, len: 0, bytes: Vec::new() }
    }
}

impl<const N: usize> PackedRows<N> {
    /// The number of rows.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Memory of the rows, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn row(&self, index: usize) -> Option<&[u8]> {
        if index < self.len { self.bytes.get(index * self.row_bytes..) } else { None }
    }

    /// The first `M` numbers of the row at `index`.
    #[inline]
    pub fn get<const M: usize>(&self, index: usize) -> Option<[u64; M]> {
        const { assert!(M <= N) };
        let row = self.row(index)?;
        let mut numbers = [0; M];
        for (number, column) in numbers.iter_mut().zip(&self.columns) {
            *number = column.read(row)?;
        }
        Some(numbers)
    }

    /// The number in one column of the row at `index`.
    #[inline]
    pub fn number(&self, index: usize, column: usize) -> Option<u64> {
        self.columns.get(column)?.read(self.row(index)?)
    }

    /// Adds a row behind all others. All are written again where a number is below its column's
    /// base or needs more bytes: a few times for each doubling of the distances.
    pub fn push(&mut self, row: &[u64; N]) {
        if self.len == 0 {
            self.columns = row.map(|number| Column::new(number, 0));
        }
        if !self.columns.iter().zip(row).all(|(column, number)| column.fits(*number)) {
            self.widen(row);
        }
        self.append(row);
    }

    fn append(&mut self, row: &[u64; N]) {
        self.bytes.truncate(self.len * self.row_bytes);
        for (column, number) in self.columns.iter().zip(row) {
            let distance = number.wrapping_sub(column.base).to_le_bytes();
            self.bytes.extend_from_slice(distance.get(..column.width()).unwrap_or_default());
        }
        self.bytes.extend_from_slice(&[0; READ_BYTES]);
        self.len += 1;
    }

    /// Makes room for `row`.
    fn widen(&mut self, row: &[u64; N]) {
        let rows: Vec<[u64; N]> = (0..self.len).filter_map(|index| self.get(index)).collect();
        let mut wider = Self { columns: self.columns, ..Self::default() };
        for (at, (column, number)) in wider.columns.iter_mut().zip(row).enumerate() {
            if !column.fits(*number) {
                let numbers = rows.iter().filter_map(|row| row.get(at).copied());
                *column = column.around(*number, numbers);
            }
            column.offset = wider.row_bytes;
            wider.row_bytes += column.width();
        }
        wider.bytes.reserve((rows.len() + 1) * wider.row_bytes + READ_BYTES);
        rows.iter().for_each(|row| wider.append(row));
        *self = wider;
    }

    /// Gives back memory that pushes reserved.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_size() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
    }

    /// Some columns with all sizes of numbers, and some in which all are of one size.
    fn any_row() -> impl Strategy<Value = [u64; 4]> {
        (any_size(), 0..256u64, Just(7), any_size()).prop_map(|(a, b, c, d)| [a, b, c, d])
    }

    proptest! {
        #[test]
        fn rows_are_read_back(rows in proptest::collection::vec(any_row(), 0..200)) {
            let mut packed = PackedRows::<4>::default();
            for (count, row) in rows.iter().enumerate() {
                packed.push(row);
                prop_assert_eq!(packed.get::<4>(count), Some(*row));
            }
            packed.shrink();
            let read: Vec<_> = (0..packed.len()).filter_map(|at| packed.get::<4>(at)).collect();
            prop_assert_eq!(&read, &rows);
            for (at, row) in rows.iter().enumerate() {
                let numbers = [0, 1, 2, 3].map(|column| packed.number(at, column).unwrap());
                prop_assert_eq!(&numbers, row);
                prop_assert_eq!(packed.number(at, 4), None);
                prop_assert_eq!(packed.get(at), Some([row[0], row[1]]));
            }
            prop_assert_eq!(packed.get::<4>(rows.len()), None);
            prop_assert_eq!(packed.get::<4>(usize::MAX), None);
        }
    }

    #[test]
    fn numbers_take_the_bytes_that_they_need() {
        let bytes = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut packed = PackedRows::default();
            numbers.for_each(|number| packed.push(&[3, number]));
            packed.memory_bytes() - READ_BYTES
        };
        assert_eq!(bytes(&mut (0..1000).map(|_| 1 << 40)), 0);
        assert_eq!(bytes(&mut (0..1000).map(|at| (1 << 40) + at % 256)), 1000);
        assert_eq!(bytes(&mut (0..1000).map(|at| (1 << 40) + 8 * at)), 2000);
        assert_eq!(bytes(&mut (0..1000).map(|at| (1 << 40) - 8 * at)), 2000);
    }
}
