//! The first bytes of the file: what it is, and where its checkpoint and its log begin.
//!
//! ```text
//! byte   0  16 bytes "Esker page store"
//! byte  16  u32  version of the format
//! byte  20  u32  CRC-32C of all other bytes
//! byte  24  u64  store id, drawn at random
//! byte  32  u64  epoch: one checkpoint, from 1
//! byte  40  u64  number of the log's first frame
//! byte  48  u32  bytes of a segment
//! byte  52  u32  the log's first segment
//! byte  56  u32  the log's second segment
//! byte  60  u32  sector, u32 bytes, u32 CRC-32C of the list of roots
//! byte  72  u32  allocation: 0 slot, 1 segment
//! byte  76  u32  bytes of which the log's frames are multiples, with segment allocation
//! byte  80  zeros up to byte 512
//! ```
//!
//! A store with slot allocation has format 1, and zeros from byte 72 on: it is what was written
//! before there was another allocation. One with segment allocation has format 2, so that an older
//! version of the code refuses it. So it does format 3: that of a store with slot allocation while
//! several processes may have it open, of which an older version knows nothing.
//!
//! There are four copies, at intervals of 4 KiB: those of an epoch are the first and third, or the
//! second and fourth, alternately. While one pair is rewritten the other is whole. A damaged copy
//! has a twin, so damage does not bring an older state back.

use esker_format::bytes::Reader;
use esker_format::ids::StoreId;

use crate::options::{Allocation, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, check_page_size};
use crate::place::{SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};
use crate::version::node::NUMBER_MAX;
use crate::version::tree::NodeRef;

/// The newest format that is understood here: that of stores which several processes have open.
pub(crate) const FORMAT: u32 = 3;
/// The format of stores with segment allocation.
const FORMAT_SEGMENT: u32 = 2;
/// The format of stores with slot allocation.
const FORMAT_SLOT: u32 = 1;
/// Bytes that the four copies take, what is between them included.
pub(crate) const SUPERBLOCKS_BYTES: usize = 16 * 1024;
/// The first bytes of a page store.
pub(crate) const MAGIC: &[u8; 16] = b"Esker page store";
/// The first bytes of an SQLite database.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

const EPOCH_MAX: u64 = 1 << 39;

const BYTES: usize = 512;
const APART: usize = 4096;

/// One copy's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) store: StoreId,
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    pub(crate) segment_bytes: u32,
    pub(crate) log: [u32; 2],
    pub(crate) roots: NodeRef,
    pub(crate) allocation: Allocation,
    /// The unit of the log's frames, in bytes: their lengths are multiples of it.
    pub(crate) log_unit: u32,
    /// Whether several processes may have the store open: with slot allocation alone.
    pub(crate) is_shared: bool,
}

/// The meaning of the first bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Superblock(Superblock),
    /// Nothing was ever written, or the first write of all was cut off; or it begins with zeros.
    Nothing,
    Newer(u32),
    Foreign(&'static str),
    /// It is or was one of ours, and the newest superblock is lost.
    Damaged,
}

impl Superblock {
    pub(crate) fn encode(&self) -> [u8; BYTES] {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(MAGIC);
        let (format, allocation) = match self.allocation {
            Allocation::Slot if self.is_shared => (FORMAT, [0, 0]),
            Allocation::Slot => (FORMAT_SLOT, [0, 0]),
            Allocation::Segment => (FORMAT_SEGMENT, [1, self.log_unit]),
        };
        out.extend_from_slice(&format.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for field in [self.store.0, self.epoch, self.number] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        let roots = self.roots;
        let fields = [self.segment_bytes, self.log[0], self.log[1], roots.sector.0];
        for field in fields.into_iter().chain([roots.bytes, roots.crc]).chain(allocation) {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(BYTES, 0);
        let crc = checksum(&out).to_le_bytes();
        let mut block = [0; BYTES];
        for (at, (to, from)) in block.iter_mut().zip(&out).enumerate() {
            *to = if (20..24).contains(&at) { crc[at - 20] } else { *from };
        }
        block
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let block = bytes.get(..BYTES)?;
        let mut reader = Reader::new(block);
        let is_ours = reader.take(MAGIC.len()).ok()? == MAGIC;
        let format = reader.u32().ok()?;
        let is_known = (FORMAT_SLOT..=FORMAT).contains(&format);
        if !is_ours || !is_known || reader.u32().ok()? != checksum(block) {
            return None;
        }
        let mut number = || reader.u64().ok();
        let (store, epoch, first) = (StoreId(number()?), number()?, number()?);
        let mut field = || reader.u32().ok();
        let (segment_bytes, log) = (field()?, [field()?, field()?]);
        let (sector, bytes, crc) = (Sector(field()?), field()?, field()?);
        let (allocation, log_unit) = Self::allocation(format, field()?, field()?, segment_bytes)?;
        let sizes = SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX;
        let is_size = segment_bytes.is_power_of_two() && sizes.contains(&segment_bytes);
        let roots = NodeRef { sector, bytes, crc, count: 0 };
        let is_number = epoch < EPOCH_MAX && (1..NUMBER_MAX).contains(&first);
        (is_size && is_number).then_some(Self {
            store,
            epoch,
            number: first,
            segment_bytes,
            log,
            roots,
            allocation,
            log_unit,
            is_shared: format == FORMAT,
        })
    }

    /// Only format 2 says; a log's unit is a page.
    fn allocation(
        format: u32,
        allocation: u32,
        log_unit: u32,
        segment_bytes: u32,
    ) -> Option<(Allocation, u32)> {
        match (format, allocation) {
            (FORMAT_SLOT | FORMAT, _) => Some((Allocation::Slot, SECTOR_BYTES as u32)),
            (FORMAT_SEGMENT, 1)
                if check_page_size(log_unit).is_ok() && log_unit <= segment_bytes =>
            {
                Some((Allocation::Segment, log_unit))
            }
            _ => None,
        }
    }

    /// The places of the two copies of this epoch, in bytes.
    pub(crate) fn places(&self) -> [u64; 2] {
        let first = (self.epoch % 2) * APART as u64;
        [first, first + 2 * APART as u64]
    }
}

fn checksum(block: &[u8]) -> u32 {
    let (head, tail) = block.split_at_checked(24).unwrap_or_default();
    let seed = crc32c::crc32c(head.get(..20).unwrap_or_default());
    crc32c::crc32c_append(seed, tail)
}

/// The format of a whole copy that is newer than ours: every format has the first 24 bytes, and the
/// checksum over 512.
fn newer(copy: &[u8]) -> Option<u32> {
    let block = copy.get(..BYTES)?;
    let mut reader = Reader::new(block);
    let is_ours = reader.take(MAGIC.len()).ok()? == MAGIC;
    let version = reader.u32().ok()?;
    let is_whole = reader.u32().ok()? == checksum(block);
    (is_ours && is_whole && version > FORMAT).then_some(version)
}

/// The kind of a file of which this is the newest whole copy. A copy that was written is never
/// zeros again. So if both copies of the other pair are lost, and one of them is zeros, the first
/// bytes of the file were lost, and the lost copies may have been newer; unless nothing was written
/// there yet.
fn newest_of(newest: &Superblock, bytes: &[u8]) -> Found {
    let copy = |at: u64| {
        bytes.get(at as usize..).map_or(&[][..], |rest| rest.get(..BYTES).unwrap_or(rest))
    };
    let is_zeros = |at: &u64| copy(*at).iter().all(|byte| *byte == 0);
    let others = Superblock { epoch: newest.epoch + 1, ..*newest }.places();
    let is_whole = |at: &u64| Superblock::decode(copy(*at)).is_some();
    let is_lost = others.iter().any(is_zeros) && !others.iter().any(is_whole);
    match newest.epoch {
        _ if !is_lost || planted::is(Bug::HeadIsEnough) => Found::Superblock(*newest),
        // The first one of all, and it is alone: its twin was not written, or is lost as well.
        1 if newest.places().iter().any(is_zeros) => Found::Nothing,
        1 => Found::Superblock(*newest),
        _ => Found::Damaged,
    }
}

/// Bytes of the first superblock of a store, if a block begins with it.
pub(crate) fn first_bytes(block: &[u8]) -> usize {
    let is_first = Superblock::decode(block).is_some_and(|first| first.epoch == 1);
    if is_first { BYTES } else { 0 }
}

/// The superblock of an epoch, if a copy of it is whole.
pub(crate) fn find_epoch(bytes: &[u8], epoch: u64) -> Option<Superblock> {
    bytes.chunks(APART).filter_map(Superblock::decode).find(|copy| copy.epoch == epoch)
}

/// Says what a file is from its first [`SUPERBLOCKS_BYTES`], or all of it where it is shorter.
pub(crate) fn find(bytes: &[u8]) -> Found {
    let copies = || bytes.chunks(APART);
    // A newer format leaves the older pair as it was, whole and out of date.
    if let Some(version) = copies().filter_map(newer).max() {
        return Found::Newer(version);
    }
    if let Some(newest) = copies().filter_map(Superblock::decode).max_by_key(|copy| copy.epoch) {
        return newest_of(&newest, bytes);
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Nothing;
    }
    if bytes.starts_with(SQLITE) {
        return Found::Foreign("an SQLite database: bring it in with `esker sqlite import`");
    }
    let versions = copies().filter(|copy| copy.starts_with(MAGIC)).map(|copy| {
        let mut reader = Reader::new(copy.get(MAGIC.len()..).unwrap_or_default());
        reader.u32().unwrap_or(FORMAT)
    });
    match versions.max() {
        Some(version) if version > FORMAT => Found::Newer(version),
        Some(_) => Found::Damaged,
        None => Found::Foreign("no page store: choose another file"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(epoch: u64) -> Superblock {
        let roots = NodeRef { sector: Sector(9), bytes: 10, crc: 11, count: 0 };
        Superblock {
            store: StoreId(7),
            epoch,
            number: 5,
            segment_bytes: 1 << 20,
            log: [1, 2],
            roots,
            allocation: Allocation::Slot,
            log_unit: 512,
            is_shared: false,
        }
    }

    fn file(blocks: &[Superblock]) -> Vec<u8> {
        let mut file = vec![0; SUPERBLOCKS_BYTES];
        for block in blocks {
            for place in block.places() {
                file[place as usize..][..BYTES].copy_from_slice(&block.encode());
            }
        }
        file
    }

    #[test]
    fn a_pair_that_is_zeros_may_have_been_the_newest() {
        let all = file(&[block(3), block(4)]);
        let cut = |len: usize| {
            let mut file = all.clone();
            file[..len].fill(0);
            find(&file)
        };
        for len in [1, BYTES, APART, APART + 1, 2 * APART] {
            assert_eq!(cut(len), Found::Superblock(block(4)), "{len}");
        }
        for len in [2 * APART + 1, 2 * APART + BYTES, 3 * APART] {
            assert_eq!(cut(len), Found::Damaged, "{len}");
        }
        // A new store has one pair.
        assert_eq!(find(&file(&[block(1)])), Found::Superblock(block(1)));
        // Its second copy alone may be the end of a creation that was cut off.
        let mut half = file(&[block(1)]);
        half[..3 * APART].fill(0);
        assert_eq!(find(&half), Found::Nothing);
    }

    #[test]
    fn the_newest_of_both_pairs_counts_and_has_a_twin() {
        let mut file = file(&[block(3), block(4)]);
        assert_eq!(find(&file), Found::Superblock(block(4)));
        for at in 0..BYTES {
            file[at] ^= 1;
            assert_eq!(find(&file), Found::Superblock(block(4)), "{at}");
            file[at] ^= 1;
        }
        file[0] ^= 1;
        file[2 * APART + 100] ^= 1;
        assert_eq!(find(&file), Found::Superblock(block(3)));
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut expected = b"Esker page store\x01\0\0\0".to_vec();
        expected.extend_from_slice(&[0xe5, 0xce, 0x71, 0x29]);
        for number in [7u64, 3, 5] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        for number in [1u32 << 20, 1, 2, 9, 10, 11] {
            expected.extend_from_slice(&number.to_le_bytes());
        }
        expected.resize(BYTES, 0);
        assert_eq!(block(3).encode()[..], expected);
    }

    #[test]
    fn a_newer_format_next_to_an_older_pair_is_newer() {
        let mut file = file(&[block(3), block(4)]);
        let at = block(4).places()[0] as usize;
        file[at + 16] = 4;
        // One number alone is damage, which the twin makes good.
        assert_eq!(find(&file), Found::Superblock(block(4)));
        let crc = checksum(&file[at..at + BYTES]).to_le_bytes();
        file[at + 20..at + 24].copy_from_slice(&crc);
        assert_eq!(find(&file), Found::Newer(4));
    }

    #[test]
    fn segment_allocation_is_a_format_of_its_own() {
        let slot = block(1);
        let segment = Superblock { allocation: Allocation::Segment, log_unit: 4096, ..slot };
        let bytes = segment.encode();
        assert_eq!((bytes[16], slot.encode()[16]), (2, 1));
        assert_eq!(bytes[72..80], [1, 0, 0, 0, 0, 16, 0, 0]);
        assert_eq!(find(&file(&[segment])), Found::Superblock(segment));
        for log_unit in [0, 511, 1000, 1 << 17] {
            let wrong = Superblock { log_unit, ..segment };
            assert_eq!(find(&file(&[wrong])), Found::Damaged, "{log_unit}");
        }
    }

    #[test]
    fn a_shared_store_is_a_format_of_its_own() {
        let shared = Superblock { is_shared: true, ..block(4) };
        let bytes = shared.encode();
        assert_eq!((bytes[16], &bytes[72..80]), (3, &[0; 8][..]));
        assert_eq!(find(&file(&[block(3), shared])), Found::Superblock(shared));
        assert_eq!(find(&file(&[shared, block(5)])), Found::Superblock(block(5)));
    }

    #[test]
    fn other_files_are_recognised() {
        assert_eq!(find(&[]), Found::Nothing);
        assert_eq!(find(&[0; 5000]), Found::Nothing);
        assert!(
            matches!(find(b"SQLite format 3\0..."), Found::Foreign(what) if what.contains("import"))
        );
        assert!(matches!(find(b"some text"), Found::Foreign(_)));
        let mut newer = file(&[block(1)]);
        for at in [APART, 3 * APART] {
            newer[at + 16] = 9;
        }
        assert_eq!(find(&newer), Found::Newer(9));
        let mut damaged = file(&[block(1)]);
        for at in [APART, 3 * APART] {
            damaged[at + 30] ^= 9;
        }
        assert_eq!(find(&damaged), Found::Damaged);
    }
}
