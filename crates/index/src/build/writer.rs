//! Writing a level's blocks into extents, a write unit at a time.

use esker_device::Purpose;
use esker_format::block::{BlockBuilder, BlockIdentity, Codec, Finished, Packer};
use esker_format::ptr::{BlockPtr, Extent, SECTOR_BYTES, UNIT_BYTES};
use esker_substrate::error::Result;
use esker_substrate::generations::OneGeneration;

use crate::build::buffer::CountedBuf;
use crate::run::tree::BlockReader;

/// Bytes written at once.
pub const WRITE_UNIT_BYTES: usize = 256 * 1024;
/// Extents are a power of two between these, in units: 16 KiB to 1 MiB.
const EXTENT_UNITS: (u64, u64) = (4, 256);

/// The length of extents for a level of about `bytes`: a sixteenth, so that little is left over
/// in the last one, within bounds.
#[must_use]
pub fn extent_units(bytes: u64) -> u64 {
    let (least, most) = EXTENT_UNITS;
    (bytes / UNIT_BYTES / 16).clamp(least, most).next_power_of_two().min(most)
}

/// Appends blocks to extents that it allocates.
///
/// Invariant: `buffer[..filled]` belongs at `written` in the current extent; space before it is
/// written, space behind it is unused. The buffer's length, and `written`, are whole units;
/// blocks, and so `filled`, need not be.
pub struct ExtentWriter {
    reader: BlockReader,
    purpose: Purpose,
    generation: OneGeneration,
    units: u64,
    /// In the order of their blocks.
    pieces: Vec<Piece>,
    current: Option<Extent>,
    /// Units of blocks in the extents before it.
    closed_units: u64,
    /// Bytes of the current extent that are on the device.
    written: u64,
    buffer: CountedBuf,
    filled: usize,
    /// The blocks in the buffer and where they begin in it, if they enter the cache when they are
    /// written.
    entering: Option<Vec<(BlockPtr, usize)>>,
    packer: Packer,
    /// Every block has its units to itself, and any gap will do.
    has_own_units: bool,
}

/// Space that belongs to the level.
#[derive(Clone, Copy)]
struct Piece {
    extent: Extent,
    /// It was allocated here. Else it is kept from the old level, which has it still.
    is_own: bool,
}

impl ExtentWriter {
    /// A writer for a level of about `bytes_expected`, of which `extents` are written already.
    pub(crate) fn new(
        reader: &BlockReader,
        purpose: Purpose,
        generation: &OneGeneration,
        bytes_expected: u64,
        extents: Vec<Extent>,
    ) -> Self {
        Self {
            reader: reader.clone(),
            purpose,
            generation: generation.clone(),
            units: extent_units(bytes_expected),
            closed_units: extents.iter().map(|extent| extent.units).sum(),
            pieces: extents.into_iter().map(|extent| Piece { extent, is_own: true }).collect(),
            current: None,
            written: 0,
            buffer: CountedBuf::new(),
            filled: 0,
            entering: None,
            packer: Packer::default(),
            has_own_units: false,
        }
    }

    /// The same, for blocks that `codec` compresses.
    pub(crate) fn compressing(mut self, codec: Codec) -> Self {
        self.packer = Packer::new(codec);
        self
    }

    /// The same, for blocks that readers will want: they enter the cache while it has room.
    pub(crate) fn entering_cache(mut self) -> Self {
        self.entering = Some(Vec::new());
        self
    }

    /// The same, for blocks that each begin a unit, because each may get another owner. Their
    /// lengths show how full they are. They are written to the first gaps.
    pub(crate) fn with_own_units(mut self) -> Self {
        self.packer.set_in_sectors();
        self.has_own_units = true;
        self
    }

    /// Finishes the builder's block and appends it.
    pub(crate) fn append(&mut self, builder: &mut BlockBuilder) -> Result<(BlockPtr, Finished)> {
        let generation = self.generation.get(&self.reader.blocks)?;
        let bytes = builder.pack(&mut self.packer);
        // On two pages a block of whole units would cost two reads.
        if self.packer.codec() == Codec::None && bytes.is_multiple_of(UNIT_BYTES as usize) {
            self.fill_unit();
        }
        self.make_room(bytes)?;
        let start = self.current.map_or(0, |extent| extent.offset());
        let sector = (start + self.written + self.filled as u64) / SECTOR_BYTES;
        let identity = BlockIdentity {
            store: self.reader.blocks.store(),
            keyspace: self.reader.keyspace,
            sector,
            generation,
        };
        let place = self.buffer.get_mut(self.filled..self.filled + bytes).unwrap_or_default();
        let finished = builder.finish_packed(identity, &self.packer, place);
        let at = self.filled;
        self.filled += bytes;
        if self.has_own_units {
            self.fill_unit();
        }
        let sectors = (bytes as u64 / SECTOR_BYTES) as u16;
        let ptr = BlockPtr { sector, sectors, crc: finished.crc, generation };
        if let Some(entering) = &mut self.entering {
            entering.push((ptr, at));
        }
        Ok((ptr, finished))
    }

    /// Leaves the rest of the unit empty in which the last block ends: the next one begins a unit.
    fn fill_unit(&mut self) {
        let end = self.filled.next_multiple_of(UNIT_BYTES as usize);
        self.buffer.get_mut(self.filled..end).unwrap_or_default().fill(0);
        self.filled = end;
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if self.filled + bytes > self.buffer.len() {
            self.flush()?;
            if bytes > self.buffer.len() {
                let extent_bytes = self.units.saturating_mul(UNIT_BYTES) as usize;
                let unit = WRITE_UNIT_BYTES.min(extent_bytes);
                let whole = bytes.next_multiple_of(UNIT_BYTES as usize);
                self.buffer.grow(&self.reader.budget, unit.max(whole));
            }
        }
        let end = self.written + self.filled as u64 + bytes as u64;
        let fits = self.current.is_some_and(|extent| end <= extent.bytes());
        if !fits && !self.extend(end) {
            self.close_extent()?;
            let units = self.units.max((bytes as u64).div_ceil(UNIT_BYTES));
            self.current = Some(self.allocate(units, (bytes as u64).div_ceil(UNIT_BYTES))?);
        }
        Ok(())
    }

    /// Makes the current extent longer, to `end` bytes at least, if the space behind it is free.
    /// Where blocks are whole sectors, the end of an extent that another one follows is partly
    /// empty; whole units leave nothing empty.
    fn extend(&mut self, end: u64) -> bool {
        let begin = self.written + self.filled as u64;
        let fills_units = begin.is_multiple_of(UNIT_BYTES) && end.is_multiple_of(UNIT_BYTES);
        let Some(current) = self.current.as_mut().filter(|_| !self.has_own_units && !fills_units)
        else {
            return false;
        };
        let least = end.div_ceil(UNIT_BYTES).saturating_sub(current.units);
        let (blocks, pot) = (&self.reader.blocks, self.reader.pot.as_deref());
        let units = self.units.max(least);
        let more = blocks.allocate_behind(*current, units, least, self.purpose, pot);
        current.units += more.map_or(0, |more| more.units);
        more.is_some()
    }

    /// An extent of `units`, or of fewer where there is little free space, but at least `least`.
    fn allocate(&self, units: u64, least: u64) -> Result<Extent> {
        let (blocks, pot) = (&self.reader.blocks, self.reader.pot.as_deref());
        if self.has_own_units {
            blocks.allocate_gap(units, least, self.purpose, pot)
        } else {
            blocks.allocate(units, least, self.purpose, pot)
        }
    }

    /// Whether blocks are compressed.
    pub(crate) fn is_compressing(&self) -> bool {
        self.packer.codec() != Codec::None
    }

    /// Bytes of the space that the blocks take, with what is empty between them.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.end_bytes().next_multiple_of(UNIT_BYTES)
    }

    /// The same without what is empty behind the last block.
    pub(crate) const fn end_bytes(&self) -> u64 {
        self.closed_units * UNIT_BYTES + self.written + self.filled as u64
    }

    /// Writes the buffer, as whole units: readers can use it then, and no unit is written twice.
    /// Not durable.
    pub(crate) fn flush(&mut self) -> Result<()> {
        if let Some(extent) = self.current
            && self.filled > 0
        {
            let whole = self.filled.next_multiple_of(UNIT_BYTES as usize);
            self.buffer.get_mut(self.filled..whole).unwrap_or_default().fill(0);
            let bytes = self.buffer.get(..whole).unwrap_or_default();
            self.reader.blocks.write_raw(extent.offset() + self.written, bytes, self.purpose)?;
            self.written += whole as u64;
            self.filled = 0;
            self.enter_cache();
        }
        Ok(())
    }

    /// Has the blocks of the buffer, which are written, enter the cache: never in memory that
    /// memtables may want, because what is freed for them is not always returned to the system.
    fn enter_cache(&mut self) {
        let Self { entering, buffer, reader, .. } = self;
        let Some(entering) = entering else { return };
        let most = reader.budget.cache_without_lending();
        let bytes = |(ptr, at): (BlockPtr, usize)| Some((ptr, buffer.get(at..at + ptr.bytes())?));
        reader.blocks.admit(reader.keyspace, entering.drain(..).filter_map(bytes), most);
    }

    /// Writes the buffer and frees the unused end of the extent. May be repeated.
    pub(crate) fn close_extent(&mut self) -> Result<()> {
        self.flush()?;
        let Some(extent) = self.current.take() else { return Ok(()) };
        let units = self.written.div_ceil(UNIT_BYTES);
        self.written = 0;
        self.closed_units += units;
        if units < extent.units {
            let rest = Extent { start: extent.start + units, units: extent.units - units };
            self.reader.blocks.give_back(rest)?;
        }
        self.push(Extent { start: extent.start, units }, true);
        Ok(())
    }

    /// Adds an extent behind the others, joined to the last where it follows it and has the same
    /// owner.
    fn push(&mut self, extent: Extent, is_own: bool) {
        match self.pieces.last_mut().filter(|last| last.is_own == is_own) {
            Some(last) => {
                if let Some(next) = join(&mut last.extent, extent) {
                    self.pieces.push(Piece { extent: next, is_own });
                }
            }
            None if extent.units > 0 => self.pieces.push(Piece { extent, is_own }),
            None => {}
        }
    }

    /// Takes the place of a block over from the old level. What was appended before must be closed.
    pub(crate) fn keep(&mut self, ptr: &BlockPtr) {
        let start = ptr.offset() / UNIT_BYTES;
        let end = (ptr.offset() + ptr.bytes() as u64).div_ceil(UNIT_BYTES);
        // Its first unit may be the last one of the block before, which was kept too.
        let last = self.pieces.last().filter(|last| !last.is_own).map(|last| last.extent);
        let shared = last.is_some_and(|last| last.start <= start && last.end() == start + 1);
        let start = if shared { start + 1 } else { start };
        self.push(Extent { start, units: end.saturating_sub(start) }, false);
    }

    /// The extents kept of the old level since the last call of [`ExtentWriter::own`].
    pub(crate) fn kept(&self) -> impl Iterator<Item = Extent> {
        self.pieces.iter().filter(|piece| !piece.is_own).map(|piece| piece.extent)
    }

    /// The old level has lost the extents that were kept of it.
    pub(crate) fn own(&mut self) {
        self.pieces.iter_mut().for_each(|piece| piece.is_own = true);
    }

    /// The extents as far as they hold flushed blocks, in the order of writing.
    pub(crate) fn written(&self) -> Vec<Extent> {
        let mut extents = self.joined();
        if let Some(current) = self.current {
            let units = self.written.div_ceil(UNIT_BYTES);
            append(&mut extents, Extent { start: current.start, units });
        }
        extents
    }

    fn joined(&self) -> Vec<Extent> {
        let mut extents = Vec::new();
        self.pieces.iter().for_each(|piece| append(&mut extents, piece.extent));
        extents
    }

    /// All extents that the writer has taken; not those that it keeps of the old level.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> {
        let own = self.pieces.iter().filter(|piece| piece.is_own);
        own.map(|piece| piece.extent).chain(self.current)
    }

    /// Writes the rest and frees unneeded space.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.close_extent()
    }

    /// Drops the extents without freeing them.
    pub(crate) fn forget(&mut self) {
        self.pieces.clear();
        self.current = None;
    }

    /// The extents that hold the level, after [`ExtentWriter::close`]. They are the caller's.
    pub(crate) fn take(&mut self) -> Vec<Extent> {
        let extents = self.joined();
        self.pieces.clear();
        extents
    }
}

/// Adds an extent behind the others, joined to the last where it follows it.
fn append(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) => {
            let next = join(last, extent);
            extents.extend(next);
        }
        None if extent.units > 0 => extents.push(extent),
        None => {}
    }
}

/// Makes `extent` part of the one before, where it follows it; else, and if it is not empty, it is
/// the next one.
fn join(last: &mut Extent, extent: Extent) -> Option<Extent> {
    if last.end() == extent.start {
        last.units += extent.units;
        return None;
    }
    (extent.units > 0).then_some(extent)
}

impl Drop for ExtentWriter {
    /// A merge that failed leaves nothing behind: no manifest names these extents.
    fn drop(&mut self) {
        for extent in self.taken().collect::<Vec<_>>() {
            let _freed = self.reader.blocks.give_back(extent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_grow_with_the_level() {
        assert_eq!(extent_units(0), 4);
        assert_eq!(extent_units(1 << 20), 16);
        assert_eq!(extent_units(5 << 20), 128);
        assert_eq!(extent_units(1 << 40), 256);
    }
}
