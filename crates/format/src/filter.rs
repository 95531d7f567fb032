//! Small Bloom filters, one a block, carried by the block's fence.

use xxhash_rust::xxh3::xxh3_64;

/// Bits a key, where not otherwise chosen.
pub const BITS_PER_KEY: usize = 10;
/// Bits a key where a lookup asks many runs: about one absent key in 780 passes. Of a dozen runs
/// and a level, one block is read for every fiftieth absent key.
pub const BITS_PER_KEY_MANY: usize = 15;
/// Bits a key where memory is so scarce that more would cost more reads than they save.
pub const BITS_PER_KEY_MIN: usize = 6;
/// Bits set by a key. ln 2 · 10 is 6.9; six cost less and a filter this small gains nothing
/// from the seventh.
const PROBES: u32 = 6;

/// The hash that all filters of a store use.
#[must_use]
pub fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Bytes of a filter over `keys` keys.
#[must_use]
pub const fn bytes_for(keys: usize, bits_per_key: usize) -> usize {
    keys.saturating_mul(bits_per_key).div_ceil(8)
}

/// The share of absent keys that a filter with `bits_per_key` bits lets through: that of a Bloom
/// filter with random bits.
#[must_use]
pub fn passes(bits_per_key: usize) -> f64 {
    let set = 1.0 - (-f64::from(PROBES) / bits_per_key as f64).exp();
    set.powi(PROBES.cast_signed())
}

/// The bit that the next probe touches. Both halves of the hash step through the filter
/// (Kirsch and Mitzenmacher); a multiplication maps 32 bits onto the filter's length.
const fn probe(state: &mut (u32, u32), bits: u64) -> u64 {
    let bit = (state.0 as u64).wrapping_mul(bits) >> 32;
    state.0 = state.0.wrapping_add(state.1);
    bit
}

const fn start(hash: u64) -> (u32, u32) {
    (hash as u32, (hash >> 32) as u32 | 1)
}

/// Appends the filter of `hashes`, with `bits_per_key` bits for each.
pub fn build(hashes: &[u64], bits_per_key: usize, out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from.saturating_add(bytes_for(hashes.len(), bits_per_key)), 0);
    let filter = out.get_mut(from..).unwrap_or_default();
    let bits = (filter.len() as u64).saturating_mul(8);
    for hash in hashes {
        let mut state = start(*hash);
        for _ in 0..PROBES {
            let bit = probe(&mut state, bits);
            if let Some(byte) = filter.get_mut((bit / 8) as usize) {
                *byte |= 1 << (bit % 8);
            }
        }
    }
}

/// Whether a key with this hash may be in the block. An empty filter holds nothing.
#[must_use]
pub fn may_contain(filter: &[u8], hash: u64) -> bool {
    let bits = (filter.len() as u64).saturating_mul(8);
    let mut state = start(hash);
    (0..PROBES).all(|_| {
        let bit = probe(&mut state, bits);
        filter.get((bit / 8) as usize).is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_that_was_added_is_missed(keys: Vec<Vec<u8>>, bits in 1usize..20) {
            let hashes: Vec<u64> = keys.iter().map(|key| hash(key)).collect();
            let mut filter = Vec::new();
            build(&hashes, bits, &mut filter);
            prop_assert_eq!(filter.len(), bytes_for(keys.len(), bits));
            for hash in hashes {
                prop_assert!(may_contain(&filter, hash));
            }
        }
    }

    #[test]
    fn about_one_in_a_hundred_absent_keys_passes() {
        let hashes: Vec<u64> = (0..32u32).map(|key| hash(&key.to_be_bytes())).collect();
        let mut filter = Vec::new();
        let mut passed = |bits_per_key: usize| {
            filter.clear();
            build(&hashes, bits_per_key, &mut filter);
            let mut absent = (1000..101_000u32).map(|key| hash(&key.to_be_bytes()));
            absent.by_ref().filter(|hash| may_contain(&filter, *hash)).count()
        };
        let (usual, many) = (passed(BITS_PER_KEY), passed(BITS_PER_KEY_MANY));
        for bits in BITS_PER_KEY_MIN..BITS_PER_KEY {
            let (found, expected) = (passed(bits) as f64 / 100_000.0, passes(bits));
            assert!((0.7..1.5).contains(&(found / expected)), "{bits}: {found} for {expected}");
        }
        assert!((300..2500).contains(&usual), "{usual} of 100,000 absent keys passed");
        assert!((50..200).contains(&many), "{many} of 100,000 absent keys passed");
        assert!(!may_contain(&[], hash(b"x")));
    }
}
