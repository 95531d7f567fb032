//! The lower level's new blocks: those that are written, and those that stay as they are.
//!
//! The space of written blocks is freed when this is dropped, unless it was kept.

use esker_format::block::Codec;
use esker_format::entry::Payload;
use esker_format::fence::Fence;
use esker_format::ids::Seq;
use esker_format::key;
use esker_format::meta::{LevelCounts, TailFence};
use esker_format::ptr::Extent;
use esker_substrate::error::{Error, Result};
use esker_substrate::generations::OneGeneration;

use super::fill_factor::{Fill, Room, is_full, waste_of};
use crate::build::filter_bits::FilterBits;
use crate::build::insert::Sink;
use crate::build::level_writer::{LevelStart, LevelWriter, OwnUnits, UNIT_SECTORS, units_of};
use crate::build::writer::ExtentWriter;
use crate::job::BackgroundJob;
use crate::read::versions::Fate;
use crate::run::cursor::OwnedFence;
use crate::run::fence_index::fence_of;
use crate::run::tree::BlockReader;

/// New blocks in the making.
pub(super) struct Output {
    level: LevelWriter,
    /// Fences to all blocks so far, in order.
    fences: Vec<TailFence>,
    /// The number of these blocks that were written.
    written: u64,
    /// The level as it will be, as far as is known.
    fill: Fill,
    room: Room,
    /// Sectors that were not written, because blocks stay, beyond what those that they left empty
    /// will cost.
    saved_sectors: u64,
}

/// The result of a merge.
pub(super) struct Written {
    /// Fences to all blocks, in order.
    pub fences: Vec<TailFence>,
    /// Counts of the blocks; of blocks that stayed, without bytes of data.
    pub counts: LevelCounts,
    /// The least and the greatest sequence number written.
    pub seqs: (Seq, Seq),
    /// Units of all blocks.
    pub units: u64,
    /// The number of blocks that were written; the others stayed as they were.
    pub blocks: u64,
}

impl Output {
    /// `fill`: of the level without the merged part.
    pub fn new(
        reader: &BlockReader,
        generation: &OneGeneration,
        (codec, own_units): (Codec, OwnUnits),
        (fill, room): (Fill, Room),
    ) -> Self {
        let purpose = BackgroundJob::Merge.purpose();
        let out = ExtentWriter::new(reader, purpose, generation, 1 << 24, Vec::new());
        let start = LevelStart {
            rank: 1,
            below: false,
            fences_only: false,
            account: None,
            codec,
            own_units: Some(own_units),
            filter_bits: FilterBits::MANY,
        };
        let level = LevelWriter::new(start, out);
        Self { level, fences: Vec::new(), written: 0, fill, room, saved_sectors: 0 }
    }

    /// Whether a block may stay as it is, behind the one being built, which is closed for it: if
    /// that leaves no more empty than writing it again would, or if little of the level is empty,
    /// or if it pays and not too much is.
    pub fn lets_stay(&self, fence: &OwnedFence) -> bool {
        let open_sectors = self.level.open_sectors();
        let takes = |most_millionths| self.fill.takes(&fence.ptr, open_sectors, most_millionths);
        let Room { omega_millionths, unpackable_millionths } = self.room;
        match self.left_empty(fence) {
            0 => true,
            _ if takes(unpackable_millionths.max(omega_millionths / 2)) => true,
            sectors => self.room.cost(sectors) <= self.saved_sectors && takes(omega_millionths),
        }
    }

    /// Sectors that writing a block again might fill: its own, and those of the one being built.
    fn left_empty(&self, fence: &OwnedFence) -> u64 {
        let open_sectors = self.level.open_sectors();
        let open = open_sectors.next_multiple_of(UNIT_SECTORS) - open_sectors;
        let open = if self.level.is_open_full() { 0 } else { open };
        open + if is_full(fence, &self.level.limit()) { 0 } else { waste_of(&fence.ptr) }
    }

    /// Closes the block being built for one that stays.
    fn close_before(&mut self, fence: &OwnedFence) -> Result<()> {
        let cost = self.room.cost(self.left_empty(fence));
        self.close()?;
        let saved = units_of(&fence.ptr) * UNIT_SECTORS;
        self.saved_sectors = self.saved_sectors.saturating_sub(cost) + saved;
        Ok(())
    }

    /// Takes over a block as it is, whose keys are less than `upper`.
    pub fn stay(&mut self, fence: &OwnedFence, upper: Option<&[u8]>) -> Result<()> {
        self.close_before(fence)?;
        self.pass_over(fence, fence.key.clone(), upper);
        Ok(())
    }

    /// The same for a block that has been read: from `first` to `last` key. If its fence is not
    /// above the keys before it, it gets a new one.
    pub fn stay_within(&mut self, fence: &OwnedFence, first: &[u8], last: &[u8]) -> Result<()> {
        self.close_before(fence)?;
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

    /// A record names what was written.
    pub fn keep(&mut self) {
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
