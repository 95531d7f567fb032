//! The differences between a page and its contents in the file.
//!
//! A change of a few bytes is recorded as those bytes instead of the whole page. A delta is always
//! relative to the slot's contents, never to another delta: a newer one replaces the older one, and
//! a page is read with one device read. A counter in the header of a database that every
//! transaction increments costs some bytes of the record this way.
//!
//! ```text
//! repeated: varint  bytes that are equal, from the end of the range before
//!           varint  bytes that differ, at least 1
//!           bytes   as they are now
//! ```

use esker_format::DecodeError;
use esker_format::bytes::{Reader, put_varint};

/// Ranges that are nearer than this are recorded as one: two numbers take the same space.
const GAP_MIN: usize = 3;

/// Appends to `out` what turns `base` into `new`, which are equally long; `false` when it would be
/// longer than `limit` bytes. Nothing where nothing differs.
pub(crate) fn encode(base: &[u8], new: &[u8], limit: usize, out: &mut Vec<u8>) -> bool {
    let most = out.len().saturating_add(limit);
    let mut done = 0;
    let mut at = 0;
    while let Some(start) = next_difference(base, new, at) {
        let end = end_of_range(base, new, start);
        put_varint(out, (start - done) as u64);
        put_varint(out, (end - start) as u64);
        out.extend_from_slice(new.get(start..end).unwrap_or_default());
        if out.len() > most {
            return false;
        }
        (done, at) = (end, end);
    }
    true
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

/// The end of the range of differences that begins at `start`.
fn end_of_range(base: &[u8], new: &[u8], start: usize) -> usize {
    let mut end = start + 1;
    loop {
        end += run_of_differences(base, new, end);
        // A range continues behind a short gap.
        let gap =
            base.get(end..).unwrap_or_default().iter().zip(new.get(end..).unwrap_or_default());
        match gap.take(GAP_MIN + 1).position(|(a, b)| a != b) {
            Some(equal) => end += equal + 1,
            None => return end,
        }
    }
}

/// The number of bytes from `at` on that differ, up to the first equal one.
fn run_of_differences(base: &[u8], new: &[u8], at: usize) -> usize {
    let (base, new) = (base.get(at..).unwrap_or_default(), new.get(at..).unwrap_or_default());
    let words = base.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0);
    let words = words.map(|(a, b)| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b));
    let differing = words.take_while(|word| !has_zero_byte(*word)).count() * 8;
    let rest = base.iter().zip(new).skip(differing);
    differing + rest.take_while(|(a, b)| a != b).count()
}

/// Whether one of the eight bytes is 0.
fn has_zero_byte(word: u64) -> bool {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    word.wrapping_sub(ONES) & !word & (ONES << 7) != 0
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
            .ok_or_else(|| reader.error("a page difference is outside its page"))?
            .copy_from_slice(bytes);
        at = start + len;
    }
    Ok(())
}

/// The next range of differences, which is inside the page.
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
            let mut delta = Vec::new();
            prop_assert!(encode(&base, &new, usize::MAX, &mut delta));
            prop_assert_eq!(delta.is_empty(), base == new);
            prop_assert!(delta.len() <= 512 + 4 * 52);
            prop_assert!(check(&delta, 512).is_ok());
            let mut made = base.clone();
            apply(&delta, &mut made).unwrap();
            prop_assert_eq!(&made, &new);
            let fits = encode(&base, &new, delta.len().saturating_sub(1), &mut vec![7]);
            prop_assert_eq!(fits, delta.is_empty());
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
        let mut delta = Vec::new();
        assert!(encode(&base, &new, 100, &mut delta));
        assert_eq!(delta.len(), 12);
    }
}
