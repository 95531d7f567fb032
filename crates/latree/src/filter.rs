//! Filters of fragments: which keys a fragment certainly has no operation of.
//!
//! A Bloom filter of 10 bits an operation, which says "maybe" of one other key in a hundred. It is
//! in memory only, and a fragment without one may have any key. The paper has none: with them a
//! buffer costs lookups of other keys nothing, so that it can grow where lookups are frequent.

use alloc::sync::Arc;

const BITS: usize = 10;
const PROBES: u64 = 6;

/// The filter of a fragment, and of the fragments that it was divided into.
#[derive(Clone, Debug)]
pub(crate) struct Filter(Arc<[u8]>);

/// A filter to which keys are added.
pub(crate) struct Keys(alloc::vec::Vec<u8>);

impl Keys {
    /// For about `count` keys.
    pub(crate) fn new(count: usize) -> Self {
        Self(alloc::vec![0; (count * BITS).div_ceil(8).max(8)])
    }

    pub(crate) fn add(&mut self, key: &[u8]) {
        for (byte, bit) in probes(key, self.0.len()) {
            if let Some(byte) = self.0.get_mut(byte) {
                *byte |= bit;
            }
        }
    }

    pub(crate) fn finish(self) -> Filter {
        Filter(self.0.into())
    }
}

impl Filter {
    /// Whether the fragment may have an operation of `key`.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        probes(key, self.0.len())
            .all(|(byte, bit)| self.0.get(byte).is_some_and(|at| at & bit != 0))
    }

    /// Its memory, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.len() + 16
    }
}

/// The bits of a key: the byte that has it, and the bit in that.
fn probes(key: &[u8], bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    let hash = hash(key);
    let (first, step) = (hash & 0xFFFF_FFFF, (hash >> 32) | 1);
    (0..PROBES).map(move |probe| {
        let bit = (first + probe * step) % (bytes as u64 * 8);
        ((bit / 8) as usize, 1 << (bit % 8))
    })
}

/// FNV-1a, and the last step of MurmurHash3, which mixes its bits.
fn hash(key: &[u8]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in key {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_its_keys_and_few_others() {
        let mut keys = Keys::new(1000);
        (0..1000_u64).for_each(|key| keys.add(&key.to_be_bytes()));
        let filter = keys.finish();
        assert!((0..1000_u64).all(|key| filter.may_have(&key.to_be_bytes())));
        let others = (1000..101_000_u64).filter(|key| filter.may_have(&key.to_be_bytes())).count();
        assert!((200..2000).contains(&others), "{others} of 100,000 other keys");
        assert!(filter.heap_bytes() < 1300);
    }
}
