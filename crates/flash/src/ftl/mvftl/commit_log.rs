//! The mappings of commitLog pages. No I/O.
//!
//! A mapping has 8 bytes: logical page and physical page, 4 bytes each, `ffff_ffff` for none. With
//! the longer header of [`record`](crate::ftl::transactional::record) a page holds (P − 16) / 8
//! mappings instead of (P − 8) / 8: 1,022 instead of 1,023 with pages of 8 KiB.
//!
//! A record is one transaction, or what garbage collection moved, or a compaction of older records.

use crate::ftl::transactional::record::{self, Record};
use crate::nand::{Lpn, Ppn};

pub(crate) const MAGIC: [u8; 4] = *b"MVCL";

/// Bytes of a mapping.
pub(crate) const MAPPING_BYTES: usize = 8;

/// A mapping as it is in the log.
pub(crate) type Mapping = (Lpn, Ppn);

/// The mappings that a page of the log holds.
pub(crate) fn per_page(page_size: usize) -> usize {
    record::per_page::<MAPPING_BYTES>(page_size)
}

/// The pages of a record with so many mappings.
pub(crate) fn pages_for(mappings: usize, page_size: usize) -> usize {
    record::pages_for::<MAPPING_BYTES>(mappings, page_size)
}

/// The bytes of a mapping.
pub(crate) fn pack((lpn, ppn): Mapping) -> [u8; MAPPING_BYTES] {
    (u64::from(ppn.0) << 32 | u64::from(lpn.0)).to_le_bytes()
}

/// The mapping of these bytes.
pub(crate) fn unpack(bytes: [u8; MAPPING_BYTES]) -> Mapping {
    let both = u64::from_le_bytes(bytes);
    (Lpn(both as u32), Ppn((both >> 32) as u32))
}

/// The mappings of a record.
pub(crate) fn mappings(record: &Record<MAPPING_BYTES>) -> impl Iterator<Item = Mapping> {
    record.entries.iter().map(|bytes| unpack(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::transactional::NONE;

    #[test]
    fn mappings_have_the_logical_page_first() {
        let mapping = (Lpn(0x0102_0304), Ppn(0x0506_0708));
        assert_eq!(pack(mapping), [4, 3, 2, 1, 8, 7, 6, 5]);
        assert_eq!(unpack(pack(mapping)), mapping);
        assert_eq!(unpack(pack((Lpn(0), NONE))), (Lpn(0), NONE));
    }
}
