//! The catalog of a backup: what the store was, and where in the backup's file its blocks and its
//! log are.
//!
//! The file is two equal halves with the same bytes, so that one rotten copy loses nothing. A half:
//!
//! ```text
//! byte   0  u32  "EskB"
//! byte   4  u32  format version
//! byte   8  u32  required features, those of the store's superblock
//! byte  12  u32  zero
//! byte  16  u64  store id
//! byte  24  u64  length of the body in bytes
//! byte  32  u32  CRC-32C of the body
//! byte  36  u32  CRC-32C of bytes 0..36
//! byte  40       body, zeros up to a multiple of 4096 bytes
//! ```

use crate::FORMAT_VERSION;
use crate::bytes::{Reader, put_byte_string, put_varint};
use crate::error::{DecodeError, Result};
use crate::ids::{Generation, SegmentId, Seq, StoreId};
use crate::manifest_edit::RecordBody;
use crate::ptr::UNIT_BYTES;
use crate::superblock::KNOWN_FEATURES;

const MAGIC: u32 = u32::from_le_bytes(*b"EskB");
const HEADER_BYTES: usize = 40;
/// No address reaches past this sector: 2^56 bytes.
const SECTORS_MAX: u64 = 1 << 47;
/// Sectors of a unit.
const UNIT_SECTORS: u64 = UNIT_BYTES / crate::ptr::SECTOR_BYTES;
/// The part of a log segment that is kept and checked as one, in bytes.
pub const LOG_CHUNK_BYTES: u64 = 64 * 1024;

/// The checksum of a log chunk.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The catalog: the description of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// The store it is of.
    pub store: StoreId,
    /// Required features: a reader must know all of them.
    pub features: u32,
    /// The number of the backup in this folder, from 1.
    pub run: u64,
    /// The operations up to this number are in it, and no others.
    pub seq: Seq,
    /// The store's manifest.
    pub record: RecordBody,
    /// Blocks, ascending by sector.
    pub pieces: Vec<Piece>,
    /// Log, ascending by segment and offset.
    pub chunks: Vec<LogChunk>,
}

/// Adjacent blocks of one generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First sector in the store's data file.
    pub sector: u64,
    /// Length in sectors, at least 1.
    pub sectors: u64,
    /// Generation of the blocks.
    pub generation: Generation,
    /// First sector in the backup's file: as far from the start of a unit as `sector` is.
    pub place: u64,
}

/// A part of a log segment: of [`LOG_CHUNK_BYTES`], or shorter and the segment's last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// The segment.
    pub segment: SegmentId,
    /// Offset in the segment, in bytes; a multiple of [`LOG_CHUNK_BYTES`].
    pub offset: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
    /// CRC-32C of those bytes.
    pub crc: u32,
    /// First unit in the backup's file.
    pub place: u64,
}

impl Piece {
    /// The first sector behind it in the store's data file.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.sector.saturating_add(self.sectors)
    }
}

impl LogChunk {
    /// The units it takes in the backup's file.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.bytes.div_ceil(UNIT_BYTES)
    }
}

/// The reason why a half does not hold a usable catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HalfError {
    /// It is damaged, or something foreign.
    Damaged(DecodeError),
    /// A catalog of a newer version, with that version.
    TooNew(u32),
    /// A valid catalog of an older version, which is not read any more, with that version.
    TooOld(u32),
    /// A catalog that needs features that this build does not know.
    UnknownFeatures(u32),
}

impl From<DecodeError> for HalfError {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error)
    }
}

impl Catalog {
    /// The bytes of the file: both halves.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body = self.encode_body();
        let mut half = Vec::with_capacity(HEADER_BYTES.saturating_add(body.len()));
        for field in [MAGIC, FORMAT_VERSION, self.features, 0] {
            half.extend_from_slice(&field.to_le_bytes());
        }
        for field in [self.store.0, body.len() as u64] {
            half.extend_from_slice(&field.to_le_bytes());
        }
        half.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        let crc = crc32c::crc32c(&half);
        half.extend_from_slice(&crc.to_le_bytes());
        half.extend_from_slice(&body);
        half.resize(half.len().next_multiple_of(UNIT_BYTES as usize), 0);
        half.repeat(2)
    }

    fn encode_body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.run);
        put_varint(&mut out, self.seq.0);
        put_varint(&mut out, self.record.edits.len() as u64);
        let record = RecordBody::encode(&self.record.edits, self.record.next_generation);
        put_byte_string(&mut out, &record);
        put_varint(&mut out, self.pieces.len() as u64);
        for piece in &self.pieces {
            for field in [piece.sector, piece.sectors, piece.generation.0, piece.place] {
                put_varint(&mut out, field);
            }
        }
        put_varint(&mut out, self.chunks.len() as u64);
        for chunk in &self.chunks {
            for field in [chunk.segment.0, chunk.offset, chunk.bytes] {
                put_varint(&mut out, field);
            }
            out.extend_from_slice(&chunk.crc.to_le_bytes());
            put_varint(&mut out, chunk.place);
        }
        out
    }

    /// Reads one half of the file.
    pub fn decode(half: &[u8]) -> core::result::Result<Self, HalfError> {
        let mut reader = Reader::new(half);
        if reader.u32()? != MAGIC {
            return Err(DecodeError::new(0, "not the catalog of a backup").into());
        }
        let (version, features, _zero) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let store = StoreId(reader.u64()?);
        let (body_bytes, body_crc) = (reader.u64()?, reader.u32()?);
        let covered = half.get(..reader.offset()).unwrap_or_default();
        if reader.u32()? != crc32c::crc32c(covered) {
            return Err(DecodeError::new(0, "catalog header does not match its checksum").into());
        }
        if version > FORMAT_VERSION {
            return Err(HalfError::TooNew(version));
        }
        if version < FORMAT_VERSION {
            return Err(HalfError::TooOld(version));
        }
        let unknown = features & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(HalfError::UnknownFeatures(unknown));
        }
        let rest = half.get(HEADER_BYTES..).unwrap_or_default();
        let parts = usize::try_from(body_bytes).ok().and_then(|len| rest.split_at_checked(len));
        let Some((body, padding)) = parts else {
            return Err(DecodeError::new(24, "catalog ends early").into());
        };
        if crc32c::crc32c(body) != body_crc {
            return Err(DecodeError::new(32, "catalog does not match its checksum").into());
        }
        if padding.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::new(HEADER_BYTES, "catalog padding is not zero").into());
        }
        let within = |error: DecodeError| {
            DecodeError::new(HEADER_BYTES.saturating_add(error.offset), error.what)
        };
        let decoded = decode_body(store, &mut Reader::new(body));
        let decoded = decoded.map_err(within)?;
        Ok(Self { features, ..decoded })
    }
}

fn decode_body(store: StoreId, reader: &mut Reader<'_>) -> Result<Catalog> {
    let (run, seq) = (reader.varint()?, Seq(reader.varint()?));
    let edits = reader.varint_u32()?;
    let record = RecordBody::decode(reader.byte_string(usize::MAX)?, edits)?;
    let mut catalog =
        Catalog { store, features: 0, run, seq, record, pieces: Vec::new(), chunks: Vec::new() };
    for _ in 0..reader.varint()? {
        let piece = decode_piece(reader, catalog.pieces.last())?;
        catalog.pieces.push(piece);
    }
    for _ in 0..reader.varint()? {
        let chunk = decode_chunk(reader, catalog.chunks.last())?;
        catalog.chunks.push(chunk);
    }
    reader.finish()?;
    Ok(catalog)
}

fn decode_piece(reader: &mut Reader<'_>, before: Option<&Piece>) -> Result<Piece> {
    let at = reader.clone();
    let piece = Piece {
        sector: reader.varint()?,
        sectors: reader.varint()?,
        generation: Generation(reader.varint()?),
        place: reader.varint()?,
    };
    let in_order = before.is_none_or(|before| before.end() <= piece.sector);
    let aligned = piece.place % UNIT_SECTORS == piece.sector % UNIT_SECTORS;
    let ends = [piece.sector, piece.place].map(|start| start.saturating_add(piece.sectors));
    if piece.sectors == 0 || !in_order || !aligned || ends.iter().any(|end| *end > SECTORS_MAX) {
        return Err(at.error("piece of a backup is out of bounds"));
    }
    Ok(piece)
}

fn decode_chunk(reader: &mut Reader<'_>, before: Option<&LogChunk>) -> Result<LogChunk> {
    let at = reader.clone();
    let chunk = LogChunk {
        segment: SegmentId(reader.varint()?),
        offset: reader.varint()?,
        bytes: reader.varint()?,
        crc: reader.u32()?,
        place: reader.varint()?,
    };
    // The chunks of a segment follow each other, and all but the last are whole.
    let expected = match before.filter(|before| before.segment == chunk.segment) {
        Some(before) if before.bytes < LOG_CHUNK_BYTES => None,
        Some(before) => before.offset.checked_add(LOG_CHUNK_BYTES),
        None => Some(0),
    };
    let in_order = before.is_none_or(|before| before.segment <= chunk.segment);
    let fits = chunk.bytes > 0 && chunk.bytes <= LOG_CHUNK_BYTES;
    let place_end = chunk.place.saturating_add(LOG_CHUNK_BYTES).saturating_mul(UNIT_SECTORS);
    if expected != Some(chunk.offset) || !in_order || !fits || place_end > SECTORS_MAX {
        return Err(at.error("log chunk of a backup is out of bounds"));
    }
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::KeyspaceId;
    use crate::manifest_edit::Edit;
    use crate::superblock::FEATURE_EXPIRY;
    use proptest::prelude::*;

    fn sample() -> Catalog {
        let piece = |sector, sectors, generation, place| Piece {
            sector,
            sectors,
            generation: Generation(generation),
            place,
        };
        let chunk = |segment, offset, bytes, place| LogChunk {
            segment: SegmentId(segment),
            offset,
            bytes,
            crc: 7,
            place,
        };
        Catalog {
            store: StoreId(0x1234),
            features: FEATURE_EXPIRY,
            run: 3,
            seq: Seq(1001),
            record: RecordBody {
                next_generation: Generation(301),
                edits: vec![Edit::NextKeyspace { id: KeyspaceId(4) }],
            },
            pieces: vec![piece(0, 8, 5, 16), piece(12, 4, 6, 28)],
            chunks: vec![chunk(6, 0, 65536, 4), chunk(6, 65536, 100, 20), chunk(7, 0, 4096, 21)],
        }
    }

    fn first_half(catalog: &Catalog) -> Vec<u8> {
        let bytes = catalog.encode();
        bytes[..bytes.len() / 2].to_vec()
    }

    proptest! {
        #[test]
        fn catalogs_round_trip(
            lengths in proptest::collection::vec((0u64..20, 1u64..300, 0u64..9), 0..40),
            chunks in proptest::collection::vec((1u64..4, 1u64..LOG_CHUNK_BYTES), 0..9),
        ) {
            let mut catalog = Catalog { pieces: Vec::new(), chunks: Vec::new(), ..sample() };
            let mut sector = 0;
            for (gap, sectors, generation) in lengths {
                sector += gap;
                let place = 80_000 + sector;
                let generation = Generation(generation);
                catalog.pieces.push(Piece { sector, sectors, generation, place });
                sector += sectors;
            }
            let mut segment = 0;
            for (step, bytes) in chunks {
                segment += step;
                let id = SegmentId(segment);
                catalog.chunks.push(LogChunk { segment: id, offset: 0, bytes, crc: 9, place: 5 });
            }
            prop_assert_eq!(Catalog::decode(&first_half(&catalog)), Ok(catalog));
        }

        #[test]
        fn any_half_is_decoded_or_refused(body: Vec<u8>) {
            let mut half = first_half(&sample());
            half.truncate(32);
            half[24..32].copy_from_slice(&(body.len() as u64).to_le_bytes());
            half.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
            half.extend_from_slice(&crc32c::crc32c(&half).to_le_bytes());
            half.extend_from_slice(&body);
            let _either = Catalog::decode(&half);
        }
    }

    #[test]
    fn both_halves_are_the_same() {
        let bytes = sample().encode();
        let (first, second) = bytes.split_at(bytes.len() / 2);
        assert_eq!(first, second);
        assert_eq!(first.len() % 4096, 0);
        assert_eq!(Catalog::decode(first), Ok(sample()));
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let half = first_half(&sample());
        for at in 0..half.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = half.clone();
                bad[at] ^= mask;
                assert!(Catalog::decode(&bad).is_err(), "byte {at} xor {mask:#x}");
            }
        }
    }

    #[test]
    fn disorder_is_refused() {
        let refused = |change: fn(&mut Catalog)| {
            let mut catalog = sample();
            change(&mut catalog);
            assert!(Catalog::decode(&first_half(&catalog)).is_err());
        };
        refused(|catalog| catalog.pieces[1].sector = 4);
        refused(|catalog| catalog.pieces[1].place += 1);
        refused(|catalog| catalog.pieces[0].sectors = 0);
        refused(|catalog| catalog.chunks[1].offset = 4096);
        refused(|catalog| catalog.chunks[0].bytes = 100);
        refused(|catalog| catalog.chunks[2].segment = SegmentId(5));
    }

    #[test]
    fn a_catalog_of_another_version_is_named() {
        for (version, error) in [(3u32, HalfError::TooNew(3)), (1, HalfError::TooOld(1))] {
            let mut half = first_half(&sample());
            half[4..8].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c::crc32c(&half[..36]);
            half[36..40].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Catalog::decode(&half), Err(error));
        }
        let mut half = first_half(&sample());
        half[8] |= 4;
        let crc = crc32c::crc32c(&half[..36]);
        half[36..40].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Catalog::decode(&half), Err(HalfError::UnknownFeatures(4)));
    }
}
