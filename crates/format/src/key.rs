//! The order of entries, and keys that separate blocks.
//!
//! An *internal key* is a user key with a sequence number. Internal keys are ordered by user key
//! ascending, then by number descending, so that a search for (key, snapshot) finds the newest
//! version that the snapshot may see. A fence is before a data entry of the same internal key.

use core::cmp::Ordering;

use crate::ids::Seq;

/// Compares internal keys: user key ascending, number descending.
#[must_use]
pub fn compare(left: (&[u8], Seq), right: (&[u8], Seq)) -> Ordering {
    left.0.cmp(right.0).then_with(|| right.1.cmp(&left.1))
}

/// The length of the longest common prefix.
#[must_use]
pub fn common_prefix_len(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}

/// The shortest prefix of `next` that is greater than `previous`.
///
/// `previous` must be less than `next`; else `next` itself is returned.
#[must_use]
pub fn separator<'a>(previous: &[u8], next: &'a [u8]) -> &'a [u8] {
    let shared = common_prefix_len(previous, next);
    next.get(..=shared).unwrap_or(next)
}

/// The first four bytes of `key`, big-endian, padded with zeros: compares like the key itself
/// wherever two heads differ.
#[must_use]
pub fn head(key: &[u8]) -> u32 {
    match key.first_chunk::<4>() {
        Some(chunk) => u32::from_be_bytes(*chunk),
        None => {
            key.iter()
                .fold((0u32, 24u32), |(head, shift), byte| {
                    (head | u32::from(*byte).wrapping_shl(shift), shift.wrapping_sub(8))
                })
                .0
        }
    }
}

/// The first eight bytes of `key`, big-endian, padded with zeros.
#[must_use]
pub fn long_head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            key.iter()
                .fold((0u64, 56u32), |(head, shift), byte| {
                    (head | u64::from(*byte).wrapping_shl(shift), shift.wrapping_sub(8))
                })
                .0
        }
    }
}

/// The least byte string greater than every string that starts with `prefix`, if there is one.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix.get(..=kept)?.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.wrapping_add(1);
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_separator_separates_and_is_shortest(mut a: Vec<u8>, mut b: Vec<u8>) {
            prop_assume!(a != b);
            if a > b {
                core::mem::swap(&mut a, &mut b);
            }
            let between = separator(&a, &b);
            prop_assert!(a.as_slice() < between && between <= b.as_slice());
            prop_assert!(b.starts_with(between));
            prop_assert!(between.is_empty() || b[..between.len() - 1] <= a[..]);
        }

        #[test]
        fn heads_never_contradict_the_order(a: Vec<u8>, b: Vec<u8>) {
            if head(&a) != head(&b) {
                prop_assert_eq!(head(&a).cmp(&head(&b)), a.cmp(&b));
            }
            if long_head(&a) != long_head(&b) {
                prop_assert_eq!(long_head(&a).cmp(&long_head(&b)), a.cmp(&b));
            }
        }

        #[test]
        fn prefix_end_bounds_exactly_the_prefixed(prefix: Vec<u8>, key: Vec<u8>) {
            if let Some(end) = prefix_end(&prefix) {
                let inside = key >= prefix && key < end;
                prop_assert_eq!(inside, key.starts_with(&prefix));
            } else {
                prop_assert!(prefix.iter().all(|byte| *byte == 0xff));
            }
        }
    }

    #[test]
    fn newer_versions_come_first() {
        assert_eq!(compare((b"k", Seq(9)), (b"k", Seq(3))), Ordering::Less);
        assert_eq!(compare((b"k", Seq::MAX), (b"k", Seq(9))), Ordering::Less);
        assert_eq!(compare((b"a", Seq(1)), (b"b", Seq(9))), Ordering::Less);
    }
}
