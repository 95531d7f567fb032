//! Addresses in the data file: sectors, units, extents, block pointers.

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::Generation;

/// The grain of block addresses, in bytes.
pub const SECTOR_BYTES: u64 = 512;
/// The grain of space, and the smallest block of an uncompressed level, in bytes.
pub const UNIT_BYTES: u64 = 4096;
/// The longest block, in bytes; it always fits one extent.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The largest data file that addresses can reach, in bytes (2^56, 64 PiB).
pub const DATA_FILE_BYTES_MAX: u64 = 1 << 56;

/// A run of 4 KiB units of the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First unit.
    pub start: u64,
    /// Number of units, at least 1.
    pub units: u64,
}

impl Extent {
    /// The first unit after the extent.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.units)
    }

    /// Offset of the first byte in the data file.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.start.saturating_mul(UNIT_BYTES)
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.units.saturating_mul(UNIT_BYTES)
    }
}

/// Everything a reader needs to fetch a block and to refuse the wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockPtr {
    /// First sector of the block in the data file.
    pub sector: u64,
    /// Length in sectors, at least 1.
    pub sectors: u16,
    /// CRC-32C that the block must carry.
    pub crc: u32,
    /// Generation that the block must carry.
    pub generation: Generation,
}

impl BlockPtr {
    /// Offset of the block in the data file, in bytes.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.sector.saturating_mul(SECTOR_BYTES)
    }

    /// Length of the block, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        (self.sectors as usize).saturating_mul(SECTOR_BYTES as usize)
    }

    /// Appends the pointer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.sector);
        put_varint(out, u64::from(self.sectors));
        put_varint(out, self.generation.0);
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    /// Reads a pointer and checks that it is within the largest data file.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let sector = reader.varint()?;
        let sectors = reader.length(BLOCK_BYTES_MAX / SECTOR_BYTES as usize)?;
        let generation = Generation(reader.varint()?);
        let crc = reader.u32()?;
        if sectors == 0 || sector >= DATA_FILE_BYTES_MAX / SECTOR_BYTES {
            return Err(at.error("block pointer is out of range"));
        }
        Ok(Self { sector, sectors: sectors as u16, crc, generation })
    }
}

/// Appends a list of extents.
pub fn encode_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    put_varint(out, extents.len() as u64);
    for extent in extents {
        put_varint(out, extent.start);
        put_varint(out, extent.units);
    }
}

/// Reads a list of extents; each is within the largest data file.
pub fn decode_extents(reader: &mut Reader<'_>) -> Result<Vec<Extent>> {
    let count = reader.length(usize::MAX)?;
    let mut extents = Vec::new();
    for _ in 0..count {
        let at = reader.clone();
        let extent = Extent { start: reader.varint()?, units: reader.varint()? };
        let end = extent.start.checked_add(extent.units);
        if extent.units == 0 || end.is_none_or(|end| end > DATA_FILE_BYTES_MAX / UNIT_BYTES) {
            return Err(at.error("extent is out of range"));
        }
        extents.push(extent);
    }
    Ok(extents)
}
