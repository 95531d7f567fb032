//! What differs between a page and what the file holds of it.
//!
//! A change of a few bytes is recorded as those bytes instead of the whole page. A delta is always
//! against the slot's contents, never against another delta: a newer one replaces the older one,
//! and a page is read with one device read. A counter in the header of a database that every
//! transaction moves costs some bytes of the record this way.
//!
//! ```text
//! repeated: varint  bytes that are equal, from the end of the range before
//!           varint  bytes that differ, at least 1
//!           bytes   as they are now
//! ```

use esker_format::DecodeError;
use esker_format::bytes::{Reader, put_varint};

/// Ranges that are nearer than this are recorded as one: two numbers cost as much.
const GAP_MIN: usize = 3;

/// What turns `base` into `new`, which are equally long; `None` when it would be longer than
/// `limit` bytes. Empty when nothing differs.
pub(crate) fn encode(base: &[u8], new: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut done = 0;
    let mut at = 0;
    while let Some(start) = next_difference(base, new, at) {
        let end = end_of_range(base, new, start);
        put_varint(&mut out, (start - done) as u64);
        put_varint(&mut out, (end - start) as u64);
        out.extend_from_slice(new.get(start..end)?);
        if out.len() > limit {
            return None;
        }
        (done, at) = (end, end);
    }
    Some(out)
}

/// The first place from `at` on where the two differ.
fn next_difference(base: &[u8], new: &[u8], at: usize) -> Option<usize> {
    const STEP: usize = 64;
    let (base, new) = (base.get(at..)?, new.get(at..)?);
    let steps = base.as_chunks::<STEP>().0.iter().zip(new.as_chunks::<STEP>().0);
    let equal = steps.take_while(|(a, b)| a == b).count() * STEP;
    let rest = base.get(equal..)?.iter().zip(new.get(equal..)?);
    let differs = rest.enumerate().find(|(_, (a, b))| a != b);
    differs.map(|(n, _)| at + equal + n)
}

/// Where the range of differences that begins at `start` ends.
fn end_of_range(base: &[u8], new: &[u8], start: usize) -> usize {
    let first = start + 1;
    let mut end = first;
    let (base, new) = (base.get(first..).unwrap_or_default(), new.get(first..).unwrap_or_default());
    for (at, (a, b)) in (first..).zip(base.iter().zip(new)) {
        if a != b {
            end = at + 1;
        } else if at >= end + GAP_MIN {
            break;
        }
    }
    end
}

/// Changes `page` as `delta` says.
pub(crate) fn apply(delta: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(delta);
    let mut at = 0;
    while !reader.is_empty() {
        let (start, len) = range(&mut reader, at, page.len())?;
        let bytes = reader.take(len)?;
        let target = page.get_mut(start..start + len);
        target
            .ok_or_else(|| reader.error("a difference lies outside its page"))?
            .copy_from_slice(bytes);
        at = start + len;
    }
    Ok(())
}

/// The next range of differences, which lies inside the page.
fn range(
    reader: &mut Reader<'_>,
    at: usize,
    page_bytes: usize,
) -> Result<(usize, usize), DecodeError> {
    let rest = page_bytes.saturating_sub(at);
    let skip = reader.length(rest)?;
    let len = reader.length(rest - skip)?;
    if len == 0 {
        return Err(reader.error("a difference is empty"));
    }
    Ok((at + skip, len))
}

/// Fails unless `delta` can be applied to every page of `page_bytes`.
pub(crate) fn check(delta: &[u8], page_bytes: usize) -> Result<(), DecodeError> {
    let mut reader = Reader::new(delta);
    let mut at = 0;
    while !reader.is_empty() {
        let (start, len) = range(&mut reader, at, page_bytes)?;
        reader.take(len)?;
        at = start + len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn deltas_make_the_new_page(
            base in prop::collection::vec(0..3u8, 512),
            edits in prop::collection::vec((0..512usize, 0..40usize, any::<u8>()), 0..6),
        ) {
            let mut new = base.clone();
            for (at, len, byte) in edits {
                let end = (at + len).min(512);
                new[at..end].fill(byte);
            }
            let delta = encode(&base, &new, usize::MAX).unwrap();
            prop_assert_eq!(delta.is_empty(), base == new);
            prop_assert!(delta.len() <= 512 + 4 * 52);
            prop_assert!(check(&delta, 512).is_ok());
            let mut made = base.clone();
            apply(&delta, &mut made).unwrap();
            prop_assert_eq!(&made, &new);
            let is_over = encode(&base, &new, delta.len().saturating_sub(1)).is_none();
            prop_assert_eq!(is_over, !delta.is_empty());
        }

        #[test]
        fn nothing_panics_on_any_delta(delta in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut page = [0; 512];
            let applied = apply(&delta, &mut page).is_ok();
            prop_assert_eq!(applied, check(&delta, 512).is_ok());
        }
    }

    #[test]
    fn a_counter_costs_some_bytes() {
        let base = [7; 4096];
        let mut new = base;
        new[24..28].copy_from_slice(&[1, 2, 3, 4]);
        new[92..96].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(encode(&base, &new, 100).unwrap().len(), 12);
    }
}
