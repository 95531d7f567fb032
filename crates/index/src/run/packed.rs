//! Columns of numbers that take as few bytes as they need.

/// Bytes that a number is read with.
const READ_BYTES: usize = 8;

/// Numbers in the order of their pushes, as distances from a base.
///
/// Invariant: all distances fit `width` bytes, which is 0 where all numbers are equal.
/// Invariant: with a width above 0, `bytes` has the distances back to back, and ends
/// [`READ_BYTES`] behind the beginning of the last one, so that each is read with as many.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    base: u64,
    width: usize,
    len: usize,
    bytes: Vec<u8>,
}

/// Bytes that a distance takes.
const fn width_of(distance: u64) -> usize {
    (u64::BITS - distance.leading_zeros()).div_ceil(8) as usize
}

impl Packed {
    /// The number of numbers.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Memory of the numbers, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The number at `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        if self.width == 0 {
            return (index < self.len).then_some(self.base);
        }
        let rest = self.bytes.get(index.checked_mul(self.width)?..)?;
        let read = u64::from_le_bytes(*rest.first_chunk::<READ_BYTES>()?);
        Some(self.base.wrapping_add(read & (u64::MAX >> (64 - 8 * self.width))))
    }

    /// Adds a number behind all others. All are written again where it is below the base or needs
    /// more bytes: a few times for each doubling of the distances.
    pub fn push(&mut self, number: u64) {
        if self.len == 0 {
            self.base = number;
        }
        let fits = number.checked_sub(self.base).is_some_and(|far| width_of(far) <= self.width);
        if !fits {
            self.widen(number);
        }
        self.append(number);
    }

    fn append(&mut self, number: u64) {
        if self.width > 0 {
            self.bytes.truncate(self.len * self.width);
            self.bytes.extend_from_slice(&number.wrapping_sub(self.base).to_le_bytes());
        }
        self.len += 1;
    }

    /// Makes room for `number`.
    fn widen(&mut self, number: u64) {
        let numbers: Vec<u64> = (0..self.len).filter_map(|index| self.get(index)).collect();
        let largest = numbers.iter().copied().fold(number, u64::max);
        let base = if number < self.base {
            // Numbers that go on falling do not move the base each time.
            number.saturating_sub(largest - number)
        } else {
            self.base
        };
        *self = Self { base, width: width_of(largest - base), ..Self::default() };
        self.bytes.reserve(numbers.len() * self.width + READ_BYTES);
        numbers.into_iter().for_each(|number| self.append(number));
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

    proptest! {
        #[test]
        fn numbers_are_read_back(numbers in proptest::collection::vec(any_size(), 0..200)) {
            let mut packed = Packed::default();
            for (count, number) in numbers.iter().enumerate() {
                packed.push(*number);
                prop_assert_eq!(packed.get(count), Some(*number));
            }
            packed.shrink();
            let read: Vec<_> = (0..packed.len()).filter_map(|at| packed.get(at)).collect();
            prop_assert_eq!(&read, &numbers);
            prop_assert_eq!(packed.get(numbers.len()), None);
            prop_assert_eq!(packed.get(usize::MAX), None);
        }
    }

    #[test]
    fn numbers_take_the_bytes_that_they_need() {
        let bytes = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut packed = Packed::default();
            numbers.for_each(|number| packed.push(number));
            packed.memory_bytes()
        };
        assert_eq!(bytes(&mut (0..1000).map(|_| 1 << 40)), 0);
        assert_eq!(bytes(&mut (0..1000).map(|at| (1 << 40) + at % 256)), 999 + READ_BYTES);
        assert_eq!(bytes(&mut (0..1000).map(|at| (1 << 40) + 8 * at)), 1998 + READ_BYTES);
        assert_eq!(bytes(&mut (0..1000).map(|at| (1 << 40) - 8 * at)), 1998 + READ_BYTES);
    }
}
