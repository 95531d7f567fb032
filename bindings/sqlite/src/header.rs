//! The header of an SQLite database, which records the kind of journal that the file is written
//! with.
//!
//! SQLite's backup API copies the header of its source. If the source was written with a WAL, the
//! copy's header says so too, and SQLite requests shared memory when it opens the copy, which a
//! store does not have. So the header of a store never says it, neither on a write nor on a read.

use std::ops::Range;

/// The places of the journal kind: one for writers, one for readers.
const FORMATS: Range<u64> = 18..20;
/// A rollback journal.
const ROLLBACK: u8 = 1;
/// A WAL.
const WAL: u8 = 2;

/// The place of the change counter, by which other connections detect that their caches are stale.
pub const COUNTER: u32 = 24;
/// The place of the counter's copy: where both agree, the database size in the header is valid.
pub const VALID_FOR: u32 = 92;
/// The number of bytes that the pager reads at [`COUNTER`] when it begins to read and has no
/// transaction.
pub const CHECKED: usize = 16;

/// Clears the request for a WAL in bytes of the database from `offset` on; returns whether there
/// was one.
pub fn without_wal(offset: u64, bytes: &mut [u8]) -> bool {
    let mut has_asked = false;
    for place in FORMATS {
        let at = place.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        if let Some(format) = at.and_then(|at| bytes.get_mut(at)).filter(|is| **is == WAL) {
            *format = ROLLBACK;
            has_asked = true;
        }
    }
    has_asked
}

/// Whether bytes of the database from `offset` on request a WAL.
pub fn asks_for_wal(offset: u64, bytes: &[u8]) -> bool {
    let asks = |place: u64| {
        let at = place.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| bytes.get(at)) == Some(&WAL)
    };
    FORMATS.into_iter().any(asks)
}

/// Whether the bytes written from `offset` on equal the existing ones, except for counters that are
/// older.
///
/// The pager may have kept counters that are older than those in the database. A later one is a
/// change: from then on the pager assumes that the database has it.
pub fn is_there(offset: u64, there: &[u8], written: &[u8]) -> bool {
    if there == written {
        return true;
    }
    let older = |from: u32| {
        let place = u64::from(from).checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        let range = place.map(|at| at..at + 4)?;
        let counter = |bytes: &[u8]| {
            let bytes = bytes.get(range.clone())?.try_into().ok()?;
            Some(u32::from_be_bytes(bytes))
        };
        let ahead = counter(written)?.wrapping_sub(counter(there)?);
        // They wrap around.
        (ahead == 0 || ahead > u32::MAX / 2).then_some(range)
    };
    let counters = [COUNTER, VALID_FOR].map(older);
    let may_differ = |at: &usize| counters.iter().flatten().any(|range| range.contains(at));
    let mut pairs = there.iter().zip(written).enumerate();
    there.len() == written.len() && pairs.all(|(at, (one, other))| one == other || may_differ(&at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_older_counters_may_differ() {
        let there: Vec<u8> = (0..200).map(|at| at as u8 | 1).collect();
        for at in 0..200 {
            let (mut older, mut later) = (there.clone(), there.clone());
            older[at] -= 1;
            later[at] += 1;
            let is_counter = (24..28).contains(&at) || (92..96).contains(&at);
            assert_eq!(is_there(0, &there, &older), is_counter, "{at}");
            assert!(!is_there(0, &there, &later), "{at}");
            assert!(!is_there(512, &there, &older));
            assert!(is_there(at as u64, &there[at..], &there[at..]));
            assert!(!is_there(0, &there, &there[..at]));
        }
    }

    #[test]
    fn only_the_two_bytes_of_the_header_change() {
        for offset in 0..24 {
            let mut bytes = vec![WAL; 30];
            let asks = offset < 20;
            assert_eq!(asks_for_wal(offset, &bytes), asks);
            assert_eq!(without_wal(offset, &mut bytes), asks);
            for (at, byte) in (offset..).zip(&bytes) {
                assert_eq!(*byte == ROLLBACK, FORMATS.contains(&at), "{at} from {offset}");
            }
        }
        assert!(!without_wal(4096, &mut [WAL; 30]));
    }
}
