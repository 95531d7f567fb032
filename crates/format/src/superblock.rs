//! The superblock: the epoch whose manifest is the current one.
//!
//! The file has four slots, two for each parity of the epoch, at distant offsets. A new epoch is
//! written to both slots of its parity, so the superblock before it is never overwritten by it, and
//! one corrupt copy does not take a store back to an older epoch.
//!
//! ```text
//! byte   0  u32  "EskS"
//! byte   4  u32  format version
//! byte   8  u32  required features: a reader that does not know one of these refuses the store
//! byte  12  u32  optional features: a reader may ignore them
//! byte  16  u32  cipher, 0 = none
//! byte  20  u32  zero
//! byte  24  u64  store id
//! byte  32  u64  epoch
//! byte  40  u64  length of a manifest region in bytes
//! byte  48       zeros
//! byte 4092 u32  CRC-32C of bytes 0..4092
//! ```
//!
//! Magic, version and checksum stay where they are in every future version.

use crate::FORMAT_VERSION;
use crate::bytes::Reader;
use crate::error::{DecodeError, Result};
use crate::ids::{Epoch, StoreId};
use crate::manifest_edit::MANIFEST_GRAIN_BYTES;

/// Length of a slot, in bytes.
pub const SLOT_BYTES: usize = 4096;
/// Number of slots.
pub const SLOTS: u64 = 4;
/// Distance between the starts of two slots, in bytes.
pub const SLOT_DISTANCE_BYTES: u64 = 64 * 1024;
/// Copies of one epoch's superblock.
pub const COPIES: u64 = 2;
/// Length of the whole file, in bytes.
pub const SUPERBLOCK_FILE_BYTES: u64 = 3 * SLOT_DISTANCE_BYTES + SLOT_BYTES as u64;
/// The shortest manifest region, in bytes.
pub const REGION_BYTES_MIN: u64 = 4096;
/// The longest manifest region, in bytes.
pub const REGION_BYTES_MAX: u64 = 1 << 31;

const MAGIC: u32 = u32::from_le_bytes(*b"EskS");
const CHECKSUM_OFFSET: usize = SLOT_BYTES - 4;
/// Required feature: there may be blocks with a codec.
pub const FEATURE_COMPRESSION: u32 = 1;
/// Required feature: there may be blobs. Bit *k* corresponds to entries of kind *k*.
pub const FEATURE_LARGE_VALUES: u32 = 1 << 3;
/// Required feature: there may be puts with expiry.
pub const FEATURE_EXPIRY: u32 = 1 << 5;
/// Required feature: there may be range tombstones, in the log and in the manifest.
pub const FEATURE_REMOVED_RANGES: u32 = 1 << 4;
/// Required feature: there may be merge operands, and keyspaces with a merge operator.
pub const FEATURE_OPERANDS: u32 = 1 << 6;
/// Required feature: there may be keyspaces whose index is an LSM index.
pub const FEATURE_LSM: u32 = 1 << 7;
/// Required feature: there may be keyspaces that keep history.
pub const FEATURE_HISTORY: u32 = 1 << 8;
/// Required features that this build knows.
pub(crate) const KNOWN_FEATURES: u32 = FEATURE_EXPIRY
    | FEATURE_REMOVED_RANGES
    | FEATURE_LARGE_VALUES
    | FEATURE_COMPRESSION
    | FEATURE_OPERANDS
    | FEATURE_LSM
    | FEATURE_HISTORY;

/// The contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The store.
    pub store: StoreId,
    /// The current manifest's epoch, at least 1.
    pub epoch: Epoch,
    /// Length of each of the manifest's two regions, in bytes.
    pub region_bytes: u64,
    /// Required features: a reader must know all of them.
    pub features: u32,
}

/// The reason why a slot does not hold a usable superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotError {
    /// Nothing was ever written here, or something foreign.
    NotOurs,
    /// It begins like a superblock, but is damaged or was never finished.
    Damaged(DecodeError),
    /// A valid superblock of a newer version, with that version.
    TooNew(u32),
    /// A valid superblock of an older version, which is not read any more, with that version.
    TooOld(u32),
    /// A valid superblock that needs features, or a cipher, that this build does not know.
    UnknownFeatures(u32),
}

/// Offset in the file of one copy (0 or 1) of an epoch's superblock.
#[must_use]
pub const fn slot_offset(epoch: Epoch, copy: u64) -> u64 {
    let parity = epoch.0 & 1;
    parity.saturating_mul(COPIES).saturating_add(copy).saturating_mul(SLOT_DISTANCE_BYTES)
}

impl Superblock {
    /// The bytes of a slot.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SLOT_BYTES);
        let (required, optional, cipher, zero) = (self.features, 0, 0, 0);
        for field in [MAGIC, FORMAT_VERSION, required, optional, cipher, zero] {
            out.extend_from_slice(&u32::to_le_bytes(field));
        }
        for field in [self.store.0, self.epoch.0, self.region_bytes] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(CHECKSUM_OFFSET, 0);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a slot.
    pub fn decode(slot: &[u8]) -> core::result::Result<Self, SlotError> {
        check_sum(slot)?;
        Self::decode_unchecked(slot)
    }

    /// Reads a slot without checking its checksum.
    pub fn decode_unchecked(slot: &[u8]) -> core::result::Result<Self, SlotError> {
        let mut reader = Reader::new(slot);
        let head = Head::decode(&mut reader).map_err(SlotError::Damaged)?;
        if head.magic != MAGIC {
            return Err(SlotError::NotOurs);
        }
        if head.version > FORMAT_VERSION {
            return Err(SlotError::TooNew(head.version));
        }
        if head.version == 0 {
            return Err(SlotError::Damaged(DecodeError::new(4, "there is no format version 0")));
        }
        if head.version < FORMAT_VERSION {
            return Err(SlotError::TooOld(head.version));
        }
        let unknown = head.required & !KNOWN_FEATURES;
        if unknown != 0 || head.cipher != 0 {
            return Err(SlotError::UnknownFeatures(unknown));
        }
        Self::decode_body(reader, head.required).map_err(SlotError::Damaged)
    }

    fn decode_body(mut reader: Reader<'_>, features: u32) -> Result<Self> {
        let superblock = Self {
            store: StoreId(reader.u64()?),
            epoch: Epoch(reader.u64()?),
            region_bytes: reader.u64()?,
            features,
        };
        let region = superblock.region_bytes;
        if superblock.epoch.0 == 0
            || !(REGION_BYTES_MIN..=REGION_BYTES_MAX).contains(&region)
            || !region.is_multiple_of(MANIFEST_GRAIN_BYTES)
        {
            return Err(DecodeError::new(32, "superblock field is out of range"));
        }
        Ok(superblock)
    }
}

struct Head {
    magic: u32,
    version: u32,
    required: u32,
    cipher: u32,
}

impl Head {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let (magic, version, required) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let _optional = reader.u32()?;
        let cipher = reader.u32()?;
        let _zero = reader.u32()?;
        Ok(Self { magic, version, required, cipher })
    }
}

fn check_sum(slot: &[u8]) -> core::result::Result<(), SlotError> {
    let damaged = |what| SlotError::Damaged(DecodeError::new(0, what));
    if slot.get(..4) != Some(&MAGIC.to_le_bytes()) {
        return Err(SlotError::NotOurs);
    }
    let (covered, crc) =
        slot.split_at_checked(CHECKSUM_OFFSET).ok_or_else(|| damaged("superblock ends early"))?;
    if crc != crc32c::crc32c(covered).to_le_bytes() {
        return Err(damaged("superblock does not match its checksum"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: Superblock = Superblock {
        store: StoreId(0x1234_5678_9abc_def0),
        epoch: Epoch(5),
        region_bytes: 65536,
        features: 0,
    };

    fn with_checksum(mut slot: Vec<u8>) -> Vec<u8> {
        let crc = crc32c::crc32c(&slot[..CHECKSUM_OFFSET]);
        slot[CHECKSUM_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        slot
    }

    proptest! {
        #[test]
        fn superblocks_round_trip(
            store: u64, epoch in 1u64.., grains in 8u64..1 << 22, known: u32,
        ) {
            let features = known & KNOWN_FEATURES;
            let region = grains * MANIFEST_GRAIN_BYTES;
            let (store, epoch) = (StoreId(store), Epoch(epoch));
            let superblock = Superblock { store, epoch, region_bytes: region, features };
            let slot = superblock.encode();
            prop_assert_eq!(slot.len(), SLOT_BYTES);
            prop_assert_eq!(Superblock::decode(&slot), Ok(superblock));
        }

        #[test]
        fn any_slot_is_decoded_or_refused(mut slot: Vec<u8>) {
            slot.resize(SLOT_BYTES, 0);
            slot[..4].copy_from_slice(&MAGIC.to_le_bytes());
            let _either = Superblock::decode(&with_checksum(slot));
        }
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let slot = SAMPLE.encode();
        for at in 0..SLOT_BYTES {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = slot.clone();
                bad[at] ^= mask;
                assert!(Superblock::decode(&bad).is_err(), "byte {at} xor {mask:#x}");
            }
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        let slot = SAMPLE.encode();
        for len in 0..SLOT_BYTES {
            assert!(Superblock::decode(&slot[..len]).is_err());
        }
    }

    #[test]
    fn other_versions_and_unknown_features_are_named() {
        for (version, error) in [(3u32, SlotError::TooNew(3)), (1, SlotError::TooOld(1))] {
            let mut slot = SAMPLE.encode();
            slot[4..8].copy_from_slice(&version.to_le_bytes());
            assert_eq!(Superblock::decode(&with_checksum(slot)), Err(error));
        }
        let mut slot = SAMPLE.encode();
        slot[8] = 4;
        assert_eq!(Superblock::decode(&with_checksum(slot)), Err(SlotError::UnknownFeatures(4)));
        let mut slot = SAMPLE.encode();
        slot[12] = 4;
        assert_eq!(Superblock::decode(&with_checksum(slot)), Ok(SAMPLE));
        assert_eq!(Superblock::decode(&[0; SLOT_BYTES]), Err(SlotError::NotOurs));
    }

    #[test]
    fn slots_of_neighbouring_epochs_are_distant() {
        let offsets: Vec<u64> = (4..6)
            .flat_map(|epoch| (0..COPIES).map(move |copy| slot_offset(Epoch(epoch), copy)))
            .collect();
        assert_eq!(offsets, [0, 65536, 131_072, 196_608]);
        assert_eq!(SUPERBLOCK_FILE_BYTES, offsets[3] + SLOT_BYTES as u64);
    }
}
