//! Records of fixed-size entries on one or several pages: their bytes, and which of them are whole.
//! No I/O.
//!
//! Both transactional layers commit by such a record: the commitLog of MV-FTL (figure 4 of its
//! paper: magic number, n_c, mappings) and the X-L2P table of X-FTL. The header is that of the
//! commitLog page with a sequence number added, so it has 16 bytes instead of 8.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic number |
//! | 4..8 | n_c: the number of entries on this page, 0 if it is full and the record continues |
//! | 8..16 | sequence number of the record |
//! | 16.. | entries of `N` bytes |
//!
//! Numbers are little-endian. A record is committed when its last page, the one with n_c ≠ 0, is
//! there. As published, a page that a crash left without its end would be joined to the record that
//! follows after the restart. So only pages of one sequence number are joined, and no record has
//! the number of an earlier one.

use crate::planted::{self, Bug};

/// Bytes before the first entry.
pub(crate) const HEADER_BYTES: usize = 16;

/// The entries of `N` bytes that a page of `page_size` bytes holds.
pub(crate) fn per_page<const N: usize>(page_size: usize) -> usize {
    page_size.saturating_sub(HEADER_BYTES) / N
}

/// The pages of a record with so many entries of `N` bytes.
pub(crate) fn pages_for<const N: usize>(entries: usize, page_size: usize) -> usize {
    entries.div_ceil(per_page::<N>(page_size).max(1))
}

/// Writes one page of a record into `page`, which is a whole page. `is_last` if the record ends
/// here; otherwise `entries` fill the page.
pub(crate) fn encode<const N: usize>(
    page: &mut [u8],
    magic: [u8; 4],
    sequence: u64,
    entries: &[[u8; N]],
    is_last: bool,
) {
    let count = if is_last { entries.len() as u32 } else { 0 };
    page.fill(0);
    let Some((header, body)) = page.split_first_chunk_mut::<HEADER_BYTES>() else { return };
    header[..4].copy_from_slice(&magic);
    header[4..8].copy_from_slice(&count.to_le_bytes());
    header[8..].copy_from_slice(&sequence.to_le_bytes());
    for (bytes, entry) in body.chunks_exact_mut(N).zip(entries) {
        bytes.copy_from_slice(entry);
    }
}

/// A page of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordPage<const N: usize> {
    pub(crate) sequence: u64,
    pub(crate) is_last: bool,
    pub(crate) entries: Vec<[u8; N]>,
}

/// Reads a page; None if it is not one of a record. Bounds: at most a page of entries.
pub(crate) fn decode<const N: usize>(page: &[u8], magic: [u8; 4]) -> Option<RecordPage<N>> {
    let (header, body) = page.split_first_chunk::<HEADER_BYTES>()?;
    if header[..4] != magic {
        return None;
    }
    let count = u32::from_le_bytes(header[4..8].try_into().ok()?) as usize;
    let sequence = u64::from_le_bytes(header[8..].try_into().ok()?);
    let held = per_page::<N>(page.len());
    if count > held {
        return None;
    }
    let taken = if count == 0 { held } else { count };
    let entries = body.chunks_exact(N).take(taken).filter_map(|bytes| bytes.try_into().ok());
    Some(RecordPage { sequence, is_last: count != 0, entries: entries.collect() })
}

/// A committed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record<const N: usize> {
    pub(crate) sequence: u64,
    pub(crate) entries: Vec<[u8; N]>,
}

/// Joins pages, in the order in which they were programmed, to records.
#[derive(Debug)]
pub(crate) struct Joiner<const N: usize> {
    /// The pages of a record whose last page has not come.
    begun: Option<Record<N>>,
}

impl<const N: usize> Joiner<N> {
    pub(crate) fn new() -> Self {
        Self { begun: None }
    }

    /// Takes the next page; the record that it ends, if it does.
    pub(crate) fn push(&mut self, page: RecordPage<N>) -> Option<Record<N>> {
        let continues = |begun: &Record<N>| {
            begun.sequence == page.sequence || planted::is(Bug::OrphanJoinsNext)
        };
        let begun = self.begun.take().filter(continues);
        let mut record = begun.unwrap_or(Record { sequence: 0, entries: Vec::new() });
        record.sequence = page.sequence;
        record.entries.extend(page.entries);
        if page.is_last {
            return Some(record);
        }
        self.begun = Some(record);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGIC: [u8; 4] = *b"TEST";

    fn entry(n: u8) -> [u8; 8] {
        [n; 8]
    }

    fn page(sequence: u64, entries: std::ops::Range<u8>, is_last: bool) -> RecordPage<8> {
        let mut bytes = vec![0; 64];
        let entries: Vec<_> = entries.map(entry).collect();
        encode(&mut bytes, MAGIC, sequence, &entries, is_last);
        decode(&bytes, MAGIC).unwrap()
    }

    fn joined(pages: Vec<RecordPage<8>>) -> Vec<Record<8>> {
        let mut joiner = Joiner::new();
        pages.into_iter().filter_map(|page| joiner.push(page)).collect()
    }

    #[test]
    fn a_page_of_8_kib_holds_1022_mappings_of_8_bytes() {
        assert_eq!(per_page::<8>(8192), 1022);
        assert_eq!((pages_for::<8>(1022, 8192), pages_for::<8>(1023, 8192)), (1, 2));
    }

    #[test]
    fn a_record_of_several_pages_is_joined() {
        let pages = vec![page(7, 0..6, false), page(7, 6..12, false), page(7, 12..14, true)];
        let entries = (0..14).map(entry).collect();
        assert_eq!(joined(pages), vec![Record { sequence: 7, entries }]);
    }

    #[test]
    fn a_page_without_its_end_is_not_joined_to_the_next_record() {
        let pages = || vec![page(7, 0..6, false), page(8, 20..22, true)];
        assert_eq!(joined(pages())[0].entries, (20..22).map(entry).collect::<Vec<_>>());
        let as_published = planted::with(Bug::OrphanJoinsNext, || joined(pages()));
        assert_eq!(as_published[0].entries.len(), 8, "the bug joins them");
    }

    #[test]
    fn what_is_not_a_page_of_a_record_is_refused() {
        let mut bytes = vec![0; 64];
        encode(&mut bytes, MAGIC, 1, &[entry(1)], true);
        assert!(decode::<8>(&bytes, MAGIC).is_some());
        for cut in 0..HEADER_BYTES {
            assert_eq!(decode::<8>(&bytes[..cut], MAGIC), None, "{cut} bytes");
        }
        bytes[4] = 7;
        assert_eq!(decode::<8>(&bytes, MAGIC), None, "more entries than a page holds");
        bytes[4] = 1;
        bytes[0] = b'X';
        assert_eq!(decode::<8>(&bytes, MAGIC), None, "another magic number");
    }
}
