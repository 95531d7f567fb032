//! The mapping from bytes to chunks: pure arithmetic.
//!
//! The bytes of an array in chunks are counted as if its chunk files followed each other, in the
//! order of the grid, without the padding of chunks that reach past the end of a dimension (*edge*
//! chunks): the same packed addresses as everywhere. A chunk's file is padded, and here is how the
//! two lead to each other.

/// The cut of an array into chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The sizes of the array.
    pub shape: Vec<u64>,
    /// The sizes of a chunk, at least 1.
    pub chunk: Vec<u64>,
    /// The dimensions inside of a chunk, the slowest first.
    pub inner: Vec<usize>,
    /// Bytes of an item.
    pub item: u64,
}

/// One chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its place in the grid.
    pub place: Vec<u64>,
    /// The offset of its bytes, packed.
    pub begin: u64,
    /// The number of its bytes, packed.
    pub bytes: u64,
    /// The number of its indices that are within the array, for each dimension.
    pub extent: Vec<u64>,
}

impl Grid {
    /// Bytes of the file of a chunk, padding included.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk.iter().product::<u64>() * self.item
    }

    /// Bytes of all items.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.item
    }

    /// The number of chunks.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.shape.iter().zip(&self.chunk).map(|(size, chunk)| size.div_ceil(*chunk)).product()
    }

    /// Whether no chunk is an edge chunk.
    #[must_use]
    pub fn is_even(&self) -> bool {
        self.shape.iter().zip(&self.chunk).all(|(size, chunk)| size.is_multiple_of(*chunk))
    }

    /// The chunk that holds a byte; `offset` must be within the array.
    #[must_use]
    pub fn at(&self, offset: u64) -> Chunk {
        let mut left = offset / self.item;
        let mut begin = 0;
        let mut place = Vec::with_capacity(self.shape.len());
        let mut extent = Vec::with_capacity(self.shape.len());
        // The product of the extents fixed so far; then the sizes of the dimensions not yet fixed.
        let mut items = 1;
        let mut below: u64 = self.shape.iter().product();
        for (size, chunk) in self.shape.iter().zip(&self.chunk) {
            below /= size.max(&1);
            // All but the last are full, so that this finds the last one too.
            let each = items * chunk * below;
            let index = left / each;
            begin += index * each;
            left -= index * each;
            let inside = (size - index * chunk).min(*chunk);
            place.push(index);
            extent.push(inside);
            items *= inside;
        }
        Chunk { place, begin: begin * self.item, bytes: items * self.item, extent }
    }

    /// Whether a chunk reaches past the end of a dimension.
    #[must_use]
    pub fn is_edge(&self, chunk: &Chunk) -> bool {
        chunk.extent != self.chunk
    }

    /// The offset in a chunk's file of a byte of the chunk, which is counted without padding from
    /// its beginning; and the number of bytes from there on that are contiguous in both.
    #[must_use]
    pub fn padded(&self, chunk: &Chunk, offset: u64) -> (u64, u64) {
        let (mut index, within) = (offset / self.item, offset % self.item);
        let (mut position, mut stride) = (within, self.item);
        let mut run = self.item;
        let mut at = within;
        let mut is_whole = true;
        for dim in self.inner.iter().rev() {
            let (extent, size) = (chunk.extent[*dim], self.chunk[*dim]);
            let value = index % extent;
            index /= extent;
            position += value * stride;
            if is_whole {
                at += value * run;
                run *= extent;
                is_whole = extent == size;
            }
            stride *= size;
        }
        (position, run - at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grids() -> impl Strategy<Value = Grid> {
        let dims = prop::collection::vec((1..9_u64, 1..9_u64), 0..4);
        (dims, 1..5_u64).prop_flat_map(|(dims, item)| {
            let inner = Just((0..dims.len()).collect::<Vec<usize>>()).prop_shuffle();
            let (shape, chunk): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
            inner.prop_map(move |inner| Grid {
                shape: shape.clone(),
                chunk: chunk.clone(),
                inner,
                item,
            })
        })
    }

    /// Counts up through all indices below `sizes`, the last fastest.
    fn next(index: &mut [u64], sizes: &[u64]) -> bool {
        for dim in (0..sizes.len()).rev() {
            index[dim] += 1;
            if index[dim] < sizes[dim] {
                return true;
            }
            index[dim] = 0;
        }
        false
    }

    proptest! {
        #[test]
        fn chunks_follow_each_other_and_bytes_are_found_in_their_files(grid in grids()) {
            let counts: Vec<u64> =
                grid.shape.iter().zip(&grid.chunk).map(|(s, c)| s.div_ceil(*c)).collect();
            let mut place = vec![0; counts.len()];
            let (mut begin, mut chunks) = (0, 0);
            loop {
                let chunk = grid.at(begin);
                prop_assert_eq!(&chunk.place, &place);
                prop_assert_eq!(chunk.begin, begin);
                for offset in begin..begin + chunk.bytes {
                    prop_assert_eq!(&grid.at(offset), &chunk);
                }
                check_bytes(&grid, &chunk);
                begin += chunk.bytes;
                chunks += 1;
                if !next(&mut place, &counts) {
                    break;
                }
            }
            prop_assert_eq!((begin, chunks), (grid.bytes(), grid.chunks()));
        }
    }

    /// Lists the bytes of a chunk's file that are no padding.
    fn check_bytes(grid: &Grid, chunk: &Chunk) {
        let sizes: Vec<u64> = grid.inner.iter().map(|dim| grid.chunk[*dim]).collect();
        let mut index = vec![0; sizes.len()];
        let (mut position, mut expected) = (0, Vec::new());
        loop {
            let inside = index.iter().zip(&grid.inner).all(|(x, dim)| *x < chunk.extent[*dim]);
            if inside {
                expected.extend(position..position + grid.item);
            }
            position += grid.item;
            if !next(&mut index, &sizes) {
                break;
            }
        }
        assert_eq!(expected.len() as u64, chunk.bytes);
        let mut offset = 0;
        while offset < chunk.bytes {
            let (begin, run) = grid.padded(chunk, offset);
            assert!(run > 0);
            for byte in 0..run {
                assert_eq!(expected[(offset + byte) as usize], begin + byte);
            }
            offset += run;
        }
        assert_eq!(position, grid.chunk_bytes());
    }
}
