//! Hash tables of pages, the same in every run: a simulation with one seed has one result.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table whose order follows from what was done to it.
pub(crate) type PageMap<K, V> = HashMap<K, V, BuildHasherDefault<PageHasher>>;

/// Multiplies by the golden ratio. Keys are numbers of pages, which no adversary chooses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
