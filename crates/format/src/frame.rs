//! The frame around every record of the log and of the manifest.
//!
//! ```text
//! byte   0  u32  CRC-32C of the seal, then of bytes 4..32
//! byte   4  u32  CRC-32C of the body, its padding included
//! byte   8  u32  length of the body in bytes, without padding
//! byte  12  u32  count of items in the body, at least 1
//! byte  16  u64  number of the record
//! byte  24  u64  mark: what was known durable when the record was made
//! byte  32       body, then zeros up to a multiple of the file's grain
//! ```
//!
//! All integers are little-endian. The header has a checksum of its own so that a reader behind
//! damage can look for a later record at one short check an offset, and so that the mark of a
//! record counts as evidence even when its body is torn.
//!
//! The **seal** is not stored: it is the store's id, the kind of file and the segment or epoch
//! that the record belongs to. A record of another store, or of an earlier use of the same file,
//! therefore never passes for one of this use. CRC-32C is linear, so two seals that differ in at
//! most 32 neighbouring bits never give the same checksum.

use crate::bytes::Reader;
use crate::error::{DecodeError, Result};
use crate::ids::StoreId;

/// Length of a frame's header, in bytes.
pub const FRAME_HEADER_BYTES: usize = 32;
/// The longest body, in bytes (1 GiB).
pub const FRAME_BODY_BYTES_MAX: usize = 1 << 30;

/// The kind of file that a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A log segment; the owner is the segment's id.
    Log = 1,
    /// A manifest; the owner is its epoch.
    Manifest = 2,
}

/// The parts of a frame's identity that are not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    seed: u32,
}

impl Seal {
    /// The seal of the frames in one use of one file.
    #[must_use]
    pub fn new(store: StoreId, kind: FrameKind, owner: u64) -> Self {
        let seed = crc32c::crc32c(&store.0.to_le_bytes());
        let seed = crc32c::crc32c_append(seed, &[kind as u8]);
        Self { seed: crc32c::crc32c_append(seed, &owner.to_le_bytes()) }
    }
}

/// A frame's header without its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// CRC-32C of the body with its padding.
    pub body_crc: u32,
    /// Length of the body, in bytes.
    pub body_bytes: u32,
    /// Count of items in the body, at least 1.
    pub count: u32,
    /// Number of the record.
    pub number: u64,
    /// The number that was known durable when the record was made.
    pub mark: u64,
}

impl FrameHeader {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self, seal: Seal) -> [u8; FRAME_HEADER_BYTES] {
        let mut fields = [0; FRAME_HEADER_BYTES - 4];
        let parts: [&[u8]; 5] = [
            &self.body_crc.to_le_bytes(),
            &self.body_bytes.to_le_bytes(),
            &self.count.to_le_bytes(),
            &self.number.to_le_bytes(),
            &self.mark.to_le_bytes(),
        ];
        copy_parts(&mut fields, &parts);
        let crc = crc32c::crc32c_append(seal.seed, &fields);
        let mut out = [0; FRAME_HEADER_BYTES];
        copy_parts(&mut out, &[&crc.to_le_bytes(), &fields]);
        out
    }

    /// Reads a header and checks its checksum and bounds, but nothing of the body.
    pub fn decode(bytes: &[u8], seal: Seal) -> Result<Self> {
        let header = Self::decode_unchecked(bytes)?;
        if header.encode(seal) != bytes.get(..FRAME_HEADER_BYTES).unwrap_or_default() {
            return Err(DecodeError::new(0, "record header does not match its checksum"));
        }
        Ok(header)
    }

    /// Reads a header and checks its bounds, but no checksum.
    pub fn decode_unchecked(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        reader.u32()?;
        let header = Self {
            body_crc: reader.u32()?,
            body_bytes: reader.u32()?,
            count: reader.u32()?,
            number: reader.u64()?,
            mark: reader.u64()?,
        };
        if header.count == 0 || header.body_bytes as usize > FRAME_BODY_BYTES_MAX {
            return Err(DecodeError::new(0, "record header is out of bounds"));
        }
        Ok(header)
    }

    /// Length of header, body and padding in a file of grain `grain_bytes`.
    #[must_use]
    pub const fn frame_bytes(&self, grain_bytes: u64) -> u64 {
        frame_bytes(self.body_bytes as usize, grain_bytes)
    }

    /// Checks a body with its padding against the header.
    pub fn check_body(&self, padded: &[u8]) -> Result<()> {
        self.check_body_crc(crc32c::crc32c(padded))
    }

    /// The checksum of a body after `bytes` are appended; that of no bytes is 0.
    #[must_use]
    pub fn continue_body(crc: u32, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc, bytes)
    }

    /// Checks the checksum of a body with its padding against the header.
    pub fn check_body_crc(&self, crc: u32) -> Result<()> {
        if crc == self.body_crc {
            Ok(())
        } else {
            Err(DecodeError::new(FRAME_HEADER_BYTES, "record body does not match its checksum"))
        }
    }
}

/// Length of a frame with `body_bytes` of body in a file of grain `grain_bytes`.
#[must_use]
pub const fn frame_bytes(body_bytes: usize, grain_bytes: u64) -> u64 {
    let unpadded = (body_bytes as u64).saturating_add(FRAME_HEADER_BYTES as u64);
    match unpadded.checked_next_multiple_of(grain_bytes) {
        Some(padded) => padded,
        None => u64::MAX,
    }
}

/// Extends a body with zeros so that its frame ends at a multiple of `grain_bytes`.
pub fn pad_body(body: &mut Vec<u8>, grain_bytes: u64) {
    let padded = frame_bytes(body.len(), grain_bytes) as usize;
    body.resize(padded.saturating_sub(FRAME_HEADER_BYTES), 0);
}

/// A whole frame around `body`, which has `count` items. Fails when the body is longer than
/// [`FRAME_BODY_BYTES_MAX`] or has no item.
pub fn encode_frame(
    mut body: Vec<u8>,
    count: usize,
    number: u64,
    mark: u64,
    seal: Seal,
    grain_bytes: u64,
) -> Result<Vec<u8>> {
    let len = body.len();
    let Some(count) = u32::try_from(count).ok().filter(|count| *count > 0) else {
        return Err(DecodeError::new(0, "a record needs 1 to 2^32 items"));
    };
    if len > FRAME_BODY_BYTES_MAX {
        return Err(DecodeError::new(len, "a record is too long"));
    }
    pad_body(&mut body, grain_bytes);
    let body_crc = crc32c::crc32c(&body);
    let header = FrameHeader { body_crc, body_bytes: len as u32, count, number, mark };
    let mut frame = header.encode(seal).to_vec();
    frame.append(&mut body);
    Ok(frame)
}

/// Copies parts that are as long together as `out`.
#[inline]
fn copy_parts(out: &mut [u8], parts: &[&[u8]]) {
    let mut rest = out;
    for part in parts {
        let Some((to, behind)) = rest.split_at_mut_checked(part.len()) else { return };
        to.copy_from_slice(part);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seal(owner: u64) -> Seal {
        Seal::new(StoreId(7), FrameKind::Log, owner)
    }

    prop_compose! {
        fn header()(
            body_crc: u32,
            body_bytes in 0..=FRAME_BODY_BYTES_MAX as u32,
            count in 1u32..,
            number: u64,
            mark: u64,
        ) -> FrameHeader {
            FrameHeader { body_crc, body_bytes, count, number, mark }
        }
    }

    proptest! {
        #[test]
        fn headers_round_trip(header in header()) {
            let bytes = header.encode(seal(3));
            prop_assert_eq!(FrameHeader::decode(&bytes, seal(3)).unwrap(), header);
        }

        #[test]
        fn a_header_fits_no_other_owner_store_or_kind(header in header(), other: u32) {
            prop_assume!(other != 3);
            let bytes = header.encode(seal(3));
            prop_assert!(FrameHeader::decode(&bytes, seal(other.into())).is_err());
            let store = Seal::new(StoreId(8), FrameKind::Log, 3);
            prop_assert!(FrameHeader::decode(&bytes, store).is_err());
            let kind = Seal::new(StoreId(7), FrameKind::Manifest, 3);
            prop_assert!(FrameHeader::decode(&bytes, kind).is_err());
        }

        #[test]
        fn any_flipped_bit_is_noticed(header in header(), bit in 0..FRAME_HEADER_BYTES * 8) {
            let mut bytes = header.encode(seal(3));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(FrameHeader::decode(&bytes, seal(3)).is_err());
        }
    }

    #[test]
    fn zeros_are_no_header_under_any_seal() {
        for owner in 0..1000 {
            assert!(FrameHeader::decode(&[0; FRAME_HEADER_BYTES], seal(owner)).is_err());
        }
        assert!(FrameHeader::decode(&[], seal(0)).is_err());
    }

    #[test]
    fn padding_ends_the_frame_on_the_grain() {
        for len in [0, 1, 8, 479, 480, 481] {
            let mut body = vec![1; len];
            pad_body(&mut body, 512);
            assert_eq!((body.len() + FRAME_HEADER_BYTES) as u64, frame_bytes(len, 512));
            assert_eq!((body.len() + FRAME_HEADER_BYTES) % 512, 0);
        }
    }
}
