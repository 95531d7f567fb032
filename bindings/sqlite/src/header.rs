//! The header of an SQLite database, which says by which kind of journal the file is written.
//!
//! SQLite's backup API copies the header of its source. Where the source was written with a WAL,
//! the copy says so as well, and SQLite asks for shared memory when it opens it next, which a store
//! does not have. So a store never says it: neither what is written nor what is read.

use std::ops::Range;

/// Where the kind of journal is: once for writers, once for readers.
const FORMATS: Range<u64> = 18..20;
/// A rollback journal.
const ROLLBACK: u8 = 1;
/// A WAL.
const WAL: u8 = 2;

/// Where the counter of changes is, by which other connections know that their caches are stale.
pub const COUNTER: u32 = 24;
/// Where the counter is once more: where both agree, the header knows the size of the database.
pub const VALID_FOR: u32 = 92;
/// What the pager reads, at [`COUNTER`], where it begins to read and has no transaction.
pub const CHECKED: usize = 16;

/// Has bytes of the database from `offset` on ask for no WAL; whether they did.
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

/// Whether bytes of the database from `offset` on ask for a WAL.
pub fn asks_for_wal(offset: u64, bytes: &[u8]) -> bool {
    let asks = |place: u64| {
        let at = place.checked_sub(offset).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| bytes.get(at)) == Some(&WAL)
    };
    FORMATS.into_iter().any(asks)
}

/// Whether bytes of the database from `offset` on are the same but for the counters.
pub fn are_alike(offset: u64, some: &[u8], others: &[u8]) -> bool {
    let is_counter = |at: u64| {
        [COUNTER, VALID_FOR].map(u64::from).into_iter().any(|from| (from..from + 4).contains(&at))
    };
    let mut pairs = (offset..).zip(some.iter().zip(others));
    some.len() == others.len()
        && (some == others || pairs.all(|(at, (one, other))| one == other || is_counter(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_counters_may_differ() {
        let some: Vec<u8> = (0..200).map(|at| at as u8).collect();
        for at in 0..200 {
            let mut others = some.clone();
            others[at] ^= 1;
            let is_counter = (24..28).contains(&at) || (92..96).contains(&at);
            assert_eq!(are_alike(0, &some, &others), is_counter, "{at}");
            assert!(!are_alike(512, &some, &others));
            assert!(are_alike(at as u64, &some[at..], &some[at..]));
            assert!(!are_alike(0, &some, &some[..at]));
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
