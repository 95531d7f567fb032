//! The lower level's new blocks: those that are written, and those that stay as they are.
//!
//! The space of what was written is given back when this is dropped, unless it was kept.

use esker_format::block::Codec;
use esker_format::entry::Payload;
use esker_format::fence::Fence;
use esker_format::ids::{Generation, Seq};
use esker_format::key;
use esker_format::meta::{LevelCounts, LsmLevel, TailFence};
use esker_format::ptr::{BlockPtr, Extent};
use esker_substrate::error::{Error, Result};

use crate::cursor::OwnedFence;
use crate::insert::Sink;
use crate::level_writer::{Apart, LevelStart, LevelWriter, UNIT_SECTORS, fence_of, units_of};
use crate::tree::BlockReader;
use crate::versions::Fate;
use crate::view::Which;
use crate::writer::ExtentWriter;

/// Sectors of a block's units that it leaves empty.
pub(super) const fn waste_of(ptr: &BlockPtr) -> u64 {
    units_of(ptr) * UNIT_SECTORS - ptr.sectors as u64
}

/// How much of a level is empty: sectors, of how many units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fill {
    pub wasted_sectors: u64,
    pub units: u64,
}

impl Fill {
    /// Of a level's blocks of data.
    pub fn of(level: &LsmLevel) -> Self {
        let sectors = level.tree.levels.last().map_or(0, |data| data.counts.sectors);
        Self {
            wasted_sectors: level.units.saturating_mul(UNIT_SECTORS).saturating_sub(sectors),
            units: level.units,
        }
    }

    pub fn add(&mut self, ptr: &BlockPtr) {
        self.wasted_sectors = self.wasted_sectors.saturating_add(waste_of(ptr));
        self.units = self.units.saturating_add(units_of(ptr));
    }

    pub fn sub(&mut self, ptr: &BlockPtr) {
        self.wasted_sectors = self.wasted_sectors.saturating_sub(waste_of(ptr));
        self.units = self.units.saturating_sub(units_of(ptr));
    }

    /// The share that is empty, in millionths, rounded up.
    pub fn millionths(&self) -> u64 {
        let sectors = u128::from(self.units.max(1)) * u128::from(UNIT_SECTORS);
        (u128::from(self.wasted_sectors) * 1_000_000).div_ceil(sectors) as u64
    }

    /// Whether more than this share of the level is empty, not counting one block: the last of a
    /// level may have any length.
    pub fn is_beyond(&self, millionths: u64) -> bool {
        let wasted = self.wasted_sectors.saturating_sub(UNIT_SECTORS);
        let sectors = u128::from(self.units) * u128::from(UNIT_SECTORS);
        u128::from(wasted) * 1_000_000 > u128::from(millionths) * sectors
    }

    /// Whether as large a share of it is empty as of `level`.
    pub fn is_as_empty_as(&self, level: &Self) -> bool {
        let product = |wasted: u64, units: u64| u128::from(wasted) * u128::from(units);
        product(self.wasted_sectors, level.units) >= product(level.wasted_sectors, self.units)
    }

    /// Whether a block may stay as it is, behind one of `open_sectors` that is closed for it: at
    /// most ω of the level, here in millionths, is empty then (the thesis, section 5.3, with what
    /// the block itself leaves empty counted).
    pub fn takes(&self, ptr: &BlockPtr, open_sectors: u64, omega_millionths: u64) -> bool {
        let open = open_sectors.next_multiple_of(UNIT_SECTORS) - open_sectors;
        // What a file says of a level may be any number.
        let wasted = self.wasted_sectors.saturating_add(open + waste_of(ptr));
        let more = units_of(ptr) + open_sectors.div_ceil(UNIT_SECTORS) + 1;
        let sectors = u128::from(self.units.saturating_add(more)) * u128::from(UNIT_SECTORS);
        u128::from(wasted) * 1_000_000 <= u128::from(omega_millionths) * sectors
    }
}

/// New blocks in the making.
pub(super) struct Output {
    level: LevelWriter,
    /// Fences to all blocks so far, in order.
    fences: Vec<TailFence>,
    /// How many of these blocks were written.
    written: u64,
    /// The level as it will be, as far as is known.
    pub fill: Fill,
}

/// What came of a merge.
pub(super) struct Written {
    /// Fences to all blocks, in order.
    pub fences: Vec<TailFence>,
    /// What they hold; of blocks that stayed, without bytes of data.
    pub counts: LevelCounts,
    /// Numbers of what was written; the least and the greatest.
    pub seqs: (Seq, Seq),
    /// Units of all blocks.
    pub units: u64,
    /// How many of the blocks were written; the others stayed as they were.
    pub blocks: u64,
}

impl Output {
    /// `fill`: of the level without what is merged.
    pub fn new(reader: &BlockReader, generation: Generation, codec: Codec, fill: Fill) -> Self {
        let purpose = Which::Merge.purpose();
        let out = ExtentWriter::new(reader, purpose, generation, 1 << 24, Vec::new());
        let start = LevelStart {
            rank: 1,
            below: false,
            fences_only: false,
            account: None,
            codec,
            apart: Some(Apart::Level),
        };
        let level = LevelWriter::new(start, out);
        Self { level, fences: Vec::new(), written: 0, fill }
    }

    /// Sectors of the block being built.
    pub fn open_sectors(&self) -> u64 {
        self.level.open_sectors()
    }

    /// Takes a block over as it is, whose keys are less than `upper`.
    pub fn stay(&mut self, fence: &OwnedFence, upper: Option<&[u8]>) -> Result<()> {
        self.close()?;
        self.pass_over(fence, fence.key.clone(), upper);
        Ok(())
    }

    /// The same of a block that was looked into: from `first` to `last` key. Where its fence is
    /// not above what comes before it, it gets another one.
    pub fn stay_within(&mut self, fence: &OwnedFence, first: &[u8], last: &[u8]) -> Result<()> {
        self.close()?;
        let before = self.level.last_key();
        let is_above = self.fences.is_empty() || before < fence.key.as_slice();
        let key = if is_above { &fence.key } else { key::separator(before, first) };
        self.pass_over(fence, key.to_vec(), Some(last));
        Ok(())
    }

    fn pass_over(&mut self, fence: &OwnedFence, key: Vec<u8>, upper: Option<&[u8]>) {
        let fence = TailFence {
            key,
            seq: fence.seq,
            ptr: fence.ptr,
            puts: fence.puts,
            tombstones: fence.tombstones,
            filter: fence.filter.clone(),
        };
        self.fill.add(&fence.ptr);
        self.level.pass_over(&fence_of(&fence), upper);
        self.fences.push(fence);
    }

    fn close(&mut self) -> Result<()> {
        self.level.close()?;
        if let Some(fence) = self.level.owed().take() {
            self.fill.add(&fence.ptr);
            self.fences.push(fence);
            self.written += 1;
        }
        Ok(())
    }

    /// Writes the rest. Nothing is durable yet.
    pub fn finish(&mut self) -> Result<Written> {
        self.close()?;
        self.level.out().close()?;
        let meta = self.level.meta(Vec::new());
        let fences = std::mem::take(&mut self.fences);
        let units = fences.iter().map(|fence| units_of(&fence.ptr)).sum();
        let blocks = std::mem::take(&mut self.written);
        Ok(Written { fences, counts: meta.counts, seqs: meta.seqs, units, blocks })
    }

    /// The space that was written.
    pub fn taken(&self) -> Vec<Extent> {
        self.level.taken().collect()
    }

    /// What was written is named by a record.
    pub fn keep(mut self) {
        self.level.out().forget();
    }
}

impl Sink for Output {
    fn add_data(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>, _: Fate) -> Result<()> {
        if !self.level.try_add(key, seq, payload) {
            self.close()?;
            // An empty block takes any entry.
            let _fits = self.level.try_add(key, seq, payload);
        }
        Ok(())
    }

    fn add_fence(&mut self, _: &[u8], _: Seq, fence: &Fence<'_>) -> Result<()> {
        Err(Error::Corrupt {
            file: esker_substrate::blocks::DATA_FILE.into(),
            offset: fence.ptr.offset(),
            what: "a block of data of an LSM index holds a fence to this one".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(sectors: u16) -> BlockPtr {
        BlockPtr { sector: 0, sectors, crc: 0, generation: Generation(1) }
    }

    /// By hand, with a fifth: ten full units and one of four sectors waste 4 of 88.
    #[test]
    fn a_block_stays_while_a_fifth_is_empty_at_most() {
        let mut fill = Fill::default();
        (0..10).for_each(|_| fill.add(&block(8)));
        fill.add(&block(4));
        assert_eq!(fill, Fill { wasted_sectors: 4, units: 11 });
        assert!(fill.takes(&block(1), 1, 200_000), "18 of 112");
        fill.wasted_sectors = 9;
        assert!(!fill.takes(&block(1), 1, 200_000), "23 of 112");
        assert!(fill.takes(&block(8), 0, 200_000), "9 of 104");
    }

    #[test]
    fn blocks_take_whole_units() {
        let of = |sectors| (units_of(&block(sectors)), waste_of(&block(sectors)));
        assert_eq!([of(1), of(8), of(9)], [(1, 7), (1, 0), (2, 7)]);
    }
}
