//! The beginnings and ends of blocks in a backup's copy.
//!
//! The catalog names runs of blocks, and not each block. What is left of a run when the store has
//! reused part of its space is found by units; a compressed block begins and ends anywhere in one.
//! So the blocks at such an edge are looked up in the backup's own copy: a header says which block
//! it is and how long, and the checksum that it is one.

use std::ops::Range;

use esker_device::{DeviceFile, Purpose};
use esker_format::backup::Piece;
use esker_format::block::{self, BlockLayout};
use esker_format::ids::StoreId;
use esker_format::ptr::{BLOCK_BYTES_MAX, SECTOR_BYTES};
use esker_format::value_piece;

use super::folder::{BLOCKS, damaged};
use super::pieces::UNIT_SECTORS;
use crate::error::Result;

/// No block is longer, in sectors.
const BLOCK_SECTORS_MAX: u64 = BLOCK_BYTES_MAX as u64 / SECTOR_BYTES;
/// The number of sectors that are read together in a search.
const WINDOW_SECTORS: u64 = 128;

/// The copy of a run of blocks.
pub(super) struct Copied<'a> {
    pub blocks: &'a dyn DeviceFile,
    pub store: StoreId,
    pub piece: &'a Piece,
}

impl Copied<'_> {
    /// The sectors of the whole blocks, or whole pieces of a value, in `range`, a part of the run.
    ///
    /// Cost: reads a block on each edge that is not one of the run, and up to 1 MiB to find it; of
    /// a value the headers of its pieces.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged) where there is no block on an edge.
    pub fn whole(&self, range: &Range<u64>) -> Result<Range<u64>> {
        let piece = self.piece;
        let start = match range.start == piece.sector {
            true => range.start,
            false => {
                let around = self.around(range.start)?;
                if around.start == range.start { around.start } else { around.end }
            }
        };
        let end = if range.end == piece.end() { range.end } else { self.around(range.end)?.start };
        Ok(start..end.max(start))
    }

    /// Whether the run begins with a block, or a piece of a value, and ends with one.
    ///
    /// Cost: reads both; of a value the headers of its pieces.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged) where there is no block.
    pub fn is_whole(&self) -> Result<bool> {
        let (first, end) = (self.piece.sector, self.piece.end());
        Ok(self.around(first)?.start == first && self.around(end - 1)?.end == end)
    }

    /// The sectors of the block, or of the piece of a value, that contains the sector `at` of the
    /// run.
    fn around(&self, at: u64) -> Result<Range<u64>> {
        let head = self.read(self.piece.sector..self.piece.sector + 1)?;
        let found = if value_piece::is_piece(&head) {
            self.value_around(at)?
        } else {
            self.block_around(at)?
        };
        found.filter(|found| found.contains(&at)).ok_or_else(|| {
            let what = "what the last backup has here is no block: start with an empty folder";
            damaged(BLOCKS, self.place(at), what)
        })
    }

    fn place(&self, sector: u64) -> u64 {
        (self.piece.place + (sector - self.piece.sector)) * SECTOR_BYTES
    }

    fn read(&self, sectors: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; ((sectors.end - sectors.start) * SECTOR_BYTES) as usize];
        self.blocks.read_at(self.place(sectors.start), &mut bytes, Purpose::Backup)?;
        Ok(bytes)
    }

    /// The block that begins last at or before `at`.
    fn block_around(&self, at: u64) -> Result<Option<Range<u64>>> {
        let least = self.piece.sector.max((at + 1).saturating_sub(BLOCK_SECTORS_MAX));
        let mut end = at + 1;
        while end > least {
            let start = least.max(end.saturating_sub(WINDOW_SECTORS));
            let window = self.read(start..end)?;
            for (number, bytes) in window.chunks(SECTOR_BYTES as usize).enumerate().rev() {
                let sector = start + number as u64;
                if bytes.starts_with(&block::MAGIC)
                    && let Some(found) = self.block_at(sector, bytes)?
                {
                    return Ok(Some(found));
                }
            }
            end = start;
        }
        Ok(None)
    }

    /// The block at `sector`, which begins with `head`, if it is one of the run.
    fn block_at(&self, sector: u64, head: &[u8]) -> Result<Option<Range<u64>>> {
        let field = head.get(20..).and_then(<[u8]>::first_chunk::<4>);
        let length = field.map_or(0, |field| u64::from(u32::from_le_bytes(*field)));
        let end = sector.saturating_add(length / SECTOR_BYTES);
        if length == 0 || length > BLOCK_BYTES_MAX as u64 || end > self.piece.end() {
            return Ok(None);
        }
        let bytes = self.read(sector..end)?;
        let is_it = BlockLayout::parse(&bytes).is_ok_and(|layout| {
            let found = layout.identity;
            (found.store, found.sector, found.generation)
                == (self.store, sector, self.piece.generation)
        });
        Ok(is_it.then_some(sector..end))
    }

    /// The piece of a value around `at`: they follow each other from the beginning of the run on.
    fn value_around(&self, at: u64) -> Result<Option<Range<u64>>> {
        let mut start = self.piece.sector;
        while start <= at {
            let head = self.read(start..start + 1)?;
            let Ok(header) = value_piece::parse(&head) else { return Ok(None) };
            let end = start + header.units() * UNIT_SECTORS;
            let identity = header.identity;
            if (identity.store, identity.generation) != (self.store, self.piece.generation) {
                return Ok(None);
            }
            if at < end {
                return Ok(Some(start..end));
            }
            start = end;
        }
        Ok(None)
    }
}
