//! Numbers as keys, versions as values.
//!
//! Random keys have 16 bytes: eight that scatter the numbers evenly over the key space, and the
//! number itself, so that no two keys are equal. Small keys have four, in the order of the
//! numbers. Values are incompressible and follow from the seed, the number and the version:
//! what must be read follows from what was written.

use crate::random::{Random, mixed};

/// Bytes of a random key.
pub const KEY_BYTES: usize = 16;
/// Bytes of its value.
pub const VALUE_BYTES: usize = 100;
/// Bytes that a user counts for one entry.
pub const ENTRY_BYTES: u64 = (KEY_BYTES + VALUE_BYTES) as u64;

/// The random key of a number.
#[must_use]
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    (u128::from(mixed(number)) << 64 | u128::from(number)).to_be_bytes()
}

/// The four-byte key of a number, in the numbers' order; bits above the 32nd are dropped.
#[must_use]
pub const fn small_key(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// A key as long as the random one of a number, in the numbers' order.
#[must_use]
pub fn ordered_key(number: u64) -> [u8; KEY_BYTES] {
    (u128::from(number) << 64 | u128::from(mixed(number))).to_be_bytes()
}

/// The value of a number's version.
#[must_use]
pub fn value(seed: u64, number: u64, version: u64) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    fill_value(&mut bytes, seed, number, version);
    bytes
}

/// Fills `bytes` with a value of that length.
pub fn fill_value(bytes: &mut [u8], seed: u64, number: u64, version: u64) {
    let start = seed ^ mixed(number) ^ mixed(!version).rotate_left(17);
    Random::new(start).fill(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn different_numbers_have_different_keys(a: u64, b: u64) {
            prop_assert_eq!(key(a) == key(b), a == b);
        }

        #[test]
        fn ordered_keys_keep_the_order(a: u64, b: u64) {
            prop_assert_eq!(ordered_key(a).cmp(&ordered_key(b)), a.cmp(&b));
        }

        #[test]
        fn small_keys_keep_the_order(a: u32, b: u32) {
            prop_assert_eq!(small_key(a.into()).cmp(&small_key(b.into())), a.cmp(&b));
        }
    }

    #[test]
    fn a_value_follows_from_seed_number_and_version() {
        assert_eq!(value(1, 2, 3), value(1, 2, 3));
        let others = [value(0, 2, 3), value(1, 3, 3), value(1, 2, 4), value(1, 3, 2)];
        assert!(others.iter().all(|other| *other != value(1, 2, 3)));
    }

    #[test]
    fn random_keys_fill_the_key_space_evenly() {
        let mut buckets = [0u32; 16];
        for number in 0..16_000 {
            buckets[usize::from(key(number)[0] >> 4)] += 1;
        }
        assert!(buckets.iter().all(|count| (800..=1200).contains(count)), "{buckets:?}");
    }
}
