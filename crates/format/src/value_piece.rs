//! The pieces of a blob, the units in which it is read and checked.
//!
//! ```text
//! byte  0  u32  "EskV"
//! byte  4  u32  CRC-32C of everything behind, up to the end of the piece's last unit
//! byte  8  u64  store id
//! byte 16  u64  generation: of this value alone
//! byte 24  u32  number of the piece in its value, from 0
//! byte 28  u32  length of the data in bytes
//! byte 32  u32  the sum of the checksums of all pieces before it
//! byte 36  u32  zero
//! byte 40       data, then zeros up to a whole unit
//! ```
//!
//! All pieces but the last are [`PIECE_BYTES`] long. A piece identifies its blob, so that a stale,
//! misplaced or foreign one is refused, and a part of a blob can be read without the rest of it.
//! The last one's checksum depends on all of the blob.

use crate::bytes::Reader;
use crate::error::{DecodeError, Result};
use crate::ids::{Generation, StoreId};
use crate::ptr::UNIT_BYTES;

/// Units of a piece that is not the last.
pub const PIECE_UNITS: u64 = 16;
/// Length of such a piece, in bytes.
pub const PIECE_BYTES: usize = (PIECE_UNITS * UNIT_BYTES) as usize;
/// Bytes of a piece before its data.
pub const PIECE_HEADER_BYTES: usize = 40;
/// Data of a piece that is not the last, in bytes.
pub const PIECE_DATA_BYTES: u64 = (PIECE_BYTES - PIECE_HEADER_BYTES) as u64;

const MAGIC: u32 = u32::from_le_bytes(*b"EskV");
const COVERED_FROM: usize = 8;

/// Units that the pieces of a value of `bytes` take.
#[must_use]
pub const fn units_for(bytes: u64) -> u64 {
    let (whole, rest) = (bytes / PIECE_DATA_BYTES, bytes % PIECE_DATA_BYTES);
    let last = if rest == 0 {
        0
    } else {
        rest.saturating_add(PIECE_HEADER_BYTES as u64).div_ceil(UNIT_BYTES)
    };
    whole.saturating_mul(PIECE_UNITS).saturating_add(last)
}

/// The identity of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceIdentity {
    /// The store.
    pub store: StoreId,
    /// The value.
    pub generation: Generation,
    /// The piece in it.
    pub number: u32,
}

/// Makes a piece of `piece`, whole units that hold zeros except `len` bytes of data behind the
/// header. `before` is the [`sum`] of the pieces before it. Returns the sum with it.
pub fn seal(piece: &mut [u8], identity: PieceIdentity, before: u32, len: usize) -> u32 {
    let mut header = Vec::with_capacity(PIECE_HEADER_BYTES);
    header.extend_from_slice(&MAGIC.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    header.extend_from_slice(&identity.store.0.to_le_bytes());
    header.extend_from_slice(&identity.generation.0.to_le_bytes());
    header.extend_from_slice(&identity.number.to_le_bytes());
    header.extend_from_slice(&(len as u32).to_le_bytes());
    header.extend_from_slice(&before.to_le_bytes());
    header.extend_from_slice(&[0; 4]);
    if let Some(place) = piece.get_mut(..PIECE_HEADER_BYTES) {
        place.copy_from_slice(&header);
    }
    let crc = crc32c::crc32c(piece.get(COVERED_FROM..).unwrap_or_default());
    if let Some(place) = piece.get_mut(4..COVERED_FROM) {
        place.copy_from_slice(&crc.to_le_bytes());
    }
    sum(before, crc)
}

/// The checksum of the checksums of pieces in order, with one more; it begins with 0.
#[must_use]
pub fn sum(so_far: u32, piece_crc: u32) -> u32 {
    crc32c::crc32c_append(so_far, &piece_crc.to_le_bytes())
}

/// Whether `bytes` begin like a piece.
#[must_use]
pub fn is_piece(bytes: &[u8]) -> bool {
    bytes.first_chunk::<4>().is_some_and(|magic| u32::from_le_bytes(*magic) == MAGIC)
}

/// The header of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceHeader {
    /// The piece's identity.
    pub identity: PieceIdentity,
    /// Length of its data, in bytes.
    pub len: usize,
    /// The [`sum`] of the pieces before it, as recorded.
    pub before: u32,
    /// The [`sum`] of all pieces up to it.
    pub sum: u32,
    crc: u32,
}

impl PieceHeader {
    /// The number of units.
    #[must_use]
    pub const fn units(&self) -> u64 {
        units_for(self.len as u64)
    }
}

/// Reads a piece's header, which [`open`] checks.
pub fn parse(piece: &[u8]) -> Result<PieceHeader> {
    let mut reader = Reader::new(piece);
    if reader.u32()? != MAGIC {
        return Err(DecodeError::new(0, "not a piece of a value"));
    }
    let crc = reader.u32()?;
    let identity = PieceIdentity {
        store: StoreId(reader.u64()?),
        generation: Generation(reader.u64()?),
        number: reader.u32()?,
    };
    let len = reader.u32()? as usize;
    let (before, zero) = (reader.u32()?, reader.u32()?);
    if zero != 0 {
        return Err(DecodeError::new(36, "reserved bytes are not zero"));
    }
    if len == 0 || len as u64 > PIECE_DATA_BYTES {
        return Err(DecodeError::new(28, "length of a piece is out of range"));
    }
    Ok(PieceHeader { identity, len, before, sum: sum(before, crc), crc })
}

/// The data of a piece, without any check.
#[must_use]
pub fn open_unchecked(piece: &[u8]) -> &[u8] {
    let len = parse(piece).map_or(0, |header| header.len);
    let end = PIECE_HEADER_BYTES.saturating_add(len).min(piece.len());
    piece.get(PIECE_HEADER_BYTES..end).unwrap_or_default()
}

/// The data of the piece that `piece` consists of, and its header.
pub fn open(piece: &[u8], expected: PieceIdentity) -> Result<(&[u8], PieceHeader)> {
    let header = parse(piece)?;
    let PieceHeader { identity, len, crc, .. } = header;
    if crc32c::crc32c(piece.get(COVERED_FROM..).unwrap_or_default()) != crc {
        return Err(DecodeError::new(4, "piece of a value does not match its checksum"));
    }
    if identity != expected {
        return Err(DecodeError::new(8, "piece belongs to another value, or to another place"));
    }
    let (_, behind) = piece.split_at_checked(PIECE_HEADER_BYTES).unwrap_or_default();
    let Some((data, padding)) = behind.split_at_checked(len) else {
        return Err(DecodeError::new(28, "length of a piece is out of range"));
    };
    if padding.iter().any(|byte| *byte != 0) {
        return Err(DecodeError::new(PIECE_HEADER_BYTES, "padding of a piece is not zero"));
    }
    Ok((data, header))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: PieceIdentity =
        PieceIdentity { store: StoreId(7), generation: Generation(8), number: 9 };

    fn piece(data: &[u8]) -> Vec<u8> {
        let mut piece = vec![0; (units_for(data.len() as u64) * UNIT_BYTES) as usize];
        piece[PIECE_HEADER_BYTES..PIECE_HEADER_BYTES + data.len()].copy_from_slice(data);
        seal(&mut piece, IDENTITY, 7, data.len());
        piece
    }

    #[test]
    fn values_take_whole_pieces_and_a_rest() {
        assert_eq!(units_for(1), 1);
        assert_eq!(units_for(4096 - 40), 1);
        assert_eq!(units_for(4096 - 39), 2);
        assert_eq!(units_for(PIECE_DATA_BYTES), 16);
        assert_eq!(units_for(PIECE_DATA_BYTES + 1), 17);
        assert_eq!(units_for(2 * PIECE_DATA_BYTES), 32);
    }

    #[test]
    fn pieces_round_trip_and_every_flipped_byte_is_found() {
        for data in [&b"a"[..], &[3; 4056], &[4; PIECE_DATA_BYTES as usize]] {
            let good = piece(data);
            assert_eq!(open(&good, IDENTITY).unwrap().0, data);
            assert!(is_piece(&good));
            let header = parse(&good).unwrap();
            assert_eq!((header.identity, header.len), (IDENTITY, data.len()));
            assert_eq!(header.units(), good.len() as u64 / UNIT_BYTES);
            assert_eq!(header, open(&good, IDENTITY).unwrap().1);
            assert_eq!(header.before, 7);
            for at in (0..good.len()).step_by(if good.len() > 8192 { 97 } else { 1 }) {
                let mut bad = good.clone();
                bad[at] ^= 0x10;
                assert!(open(&bad, IDENTITY).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_stale_misplaced_or_foreign_piece_is_refused() {
        let good = piece(b"data");
        for other in [
            PieceIdentity { store: StoreId(6), ..IDENTITY },
            PieceIdentity { generation: Generation(7), ..IDENTITY },
            PieceIdentity { number: 8, ..IDENTITY },
        ] {
            assert!(open(&good, other).is_err());
        }
        assert!(open(&good[..16], IDENTITY).is_err());
        assert!(open(&[], IDENTITY).is_err());
    }
}
