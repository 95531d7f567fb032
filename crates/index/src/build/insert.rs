//! m-insert: writes entries into the new last level, its blocks' fences into the level above, and
//! so on up to the top fences.
//!
//! At a *publish point* the merge is between two groups: the block being built of the data level is
//! closed, and everything built is written, bottom-up, so that no fence is written before its
//! block. Readers can then use the new side up to that point. Fences that are not in a block yet
//! (those of the blocks being built above) are kept in memory, as the levels' tails.

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::block::Codec;
use esker_format::entry::Payload;
use esker_format::fence::Fence;
use esker_format::ids::Seq;
use esker_format::meta::{LevelMeta, MergeProgress, TailFence, TreeMeta};
use esker_format::ptr::{Extent, SECTOR_BYTES};
use esker_substrate::error::Result;
use esker_substrate::generations::OneGeneration;

use crate::build::filter_bits::FilterBits;
use crate::build::level_writer::{LevelEnd, LevelStart, LevelWriter, OwnUnits, UNIT_SECTORS};
use crate::build::preserve::Kept;
use crate::build::top_writer::TopWriter;
use crate::build::writer::ExtentWriter;
use crate::read::versions::Fate;
use crate::run::fence_index::{Account, FenceIndex, fence_of, keyed, owned};
use crate::run::tree::{BlockReader, LevelFences, Tree};

/// The properties of the levels to write that are known before they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Numbers of the fence-only levels above the data, from the top down.
    pub fence_ranks: Vec<u8>,
    /// Number of the level with the data.
    pub data_rank: u8,
    /// Estimated bytes of the data level.
    pub data_bytes: u64,
    /// A level exists below, to which fences lead.
    pub below: bool,
    /// Most memory that top fences may take.
    pub top_bytes_max: u64,
    /// The codec of data blocks. Fence-only blocks are not compressed: they are mostly checksums
    /// and filters, which do not shrink.
    pub codec: Codec,
    /// Every block of data has its units to itself.
    pub own_units: bool,
    /// Bits a key of the filters of data blocks.
    pub filter_bits: FilterBits,
    /// Most memory that the fences to data blocks may take, where it is bounded.
    pub fence_bytes_max: Option<u64>,
}

/// The destination of the versions that a merge keeps.
pub(crate) trait Sink {
    /// Adds a data entry.
    ///
    /// # Errors
    /// [`esker_substrate::Error::Full`] without space; errors of the device.
    fn add_data(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>, fate: Fate) -> Result<()>;

    /// Adds a fence to the level below the merge.
    ///
    /// # Errors
    /// Those of [`Sink::add_data`].
    fn add_fence(&mut self, key: &[u8], seq: Seq, fence: &Fence<'_>) -> Result<()>;
}

/// Writes the new levels of a merge or flush.
///
/// Every operation may be repeated after an error: nothing is lost or done twice.
pub struct Insert {
    levels: Vec<LevelWriter>,
    top: TopWriter,
    reader: BlockReader,
    purpose: Purpose,
    generation: OneGeneration,
    /// Sectors of the data level that were not written but kept.
    kept_sectors: u64,
    /// Sectors written to the data level at the last publish point.
    published_sectors: u64,
    /// Bytes of space that the data level took then.
    published_space_bytes: u64,
    skipped: bool,
}

impl Insert {
    /// Begins the levels of `plan`.
    pub(crate) fn new(plan: &Plan, reader: &BlockReader, purpose: Purpose) -> Self {
        let generation = OneGeneration::default();
        let ranks = plan.fence_ranks.iter().chain([&plan.data_rank]);
        let bottom = plan.fence_ranks.len();
        let levels = ranks.enumerate().map(|(number, rank)| {
            let start = level_start(plan, reader, number, bottom, *rank);
            let bytes = if number == bottom { plan.data_bytes } else { plan.data_bytes / 32 };
            LevelWriter::new(
                start,
                ExtentWriter::new(reader, purpose, &generation, bytes, Vec::new()),
            )
        });
        let levels = levels.collect();
        let out = ExtentWriter::new(reader, purpose, &generation, 0, Vec::new());
        Self {
            levels,
            top: TopWriter::new(out, Vec::new(), &[]),
            reader: reader.clone(),
            purpose,
            generation,
            kept_sectors: 0,
            published_sectors: 0,
            published_space_bytes: 0,
            skipped: false,
        }
    }

    /// Goes on where a merge was recorded. `plan` gives the estimate of its size.
    ///
    /// # Errors
    /// When the top fences that were written cannot be read.
    pub(crate) fn resume(
        plan: &Plan,
        reader: &BlockReader,
        progress: &MergeProgress,
    ) -> Result<Self> {
        let mut insert =
            Self::new(&Plan { fence_ranks: Vec::new(), ..plan.clone() }, reader, Purpose::Merge);
        let (purpose, generation) = (insert.purpose, insert.generation.clone());
        let bottom = progress.new.levels.len().saturating_sub(1);
        let tail = |number: usize| progress.tails.get(number).map_or(&[][..], Vec::as_slice);
        insert.levels.clear();
        for (number, meta) in progress.new.levels.iter().enumerate() {
            let start = level_start(plan, reader, number, bottom, meta.rank);
            let bytes = if number == bottom { plan.data_bytes } else { plan.data_bytes / 32 };
            let out = ExtentWriter::new(reader, purpose, &generation, bytes, meta.extents.clone());
            // The fences to the level below that no block has yet are in this level's open block.
            let open = if number == bottom { &[][..] } else { tail(number + 1) };
            insert.levels.push(LevelWriter::resume(start, out, meta, open));
        }
        if let Some(data) = insert.levels.last_mut() {
            insert.published_sectors = data.counts().sectors;
            insert.published_space_bytes = data.used_bytes();
            data.resume_end(LevelEnd {
                last_key: progress.last_key.clone(),
                last_data: progress.last_data,
                plast: progress.plast.clone(),
            });
        }
        let extents = progress.new.top_extents.clone();
        let out = ExtentWriter::new(reader, purpose, &generation, 0, extents);
        insert.top = TopWriter::new(out, progress.new.top.clone(), tail(0));
        // Space that the record names is not freed: the next attempt needs it.
        let fences = crate::run::tree::read_top_fences(reader, &progress.new);
        let mut fences = fences.inspect_err(|_| insert.forget())?;
        for fence in tail(0) {
            let _counted_in_any_case = fences.push(&keyed(fence));
        }
        if let Some(first) = insert.levels.first_mut() {
            first.set_fences(fences);
        }
        Ok(insert)
    }

    fn add(&mut self, number: usize, key: &[u8], seq: Seq, payload: &Payload<'_>) -> Result<()> {
        self.deliver(number)?;
        let Some(level) = self.levels.get_mut(number) else { return Ok(()) };
        if level.try_add(key, seq, payload) {
            return Ok(());
        }
        level.close()?;
        self.deliver(number)?;
        if let Some(level) = self.levels.get_mut(number) {
            // An empty block takes any entry.
            let _fits = level.try_add(key, seq, payload);
        }
        Ok(())
    }

    /// Puts the fence of a closed block into the level above.
    fn deliver(&mut self, number: usize) -> Result<()> {
        let Some(fence) = self.levels.get_mut(number).and_then(|level| level.owed().take()) else {
            return Ok(());
        };
        let result = match number.checked_sub(1) {
            Some(above) => {
                self.add(above, &fence.key, fence.seq, &Payload::Fence(fence_of(&fence)))
            }
            None => self.top.add(&keyed(&fence)),
        };
        if result.is_err()
            && let Some(level) = self.levels.get_mut(number)
        {
            *level.owed() = Some(fence);
        }
        result
    }

    fn close_level(&mut self, number: usize) -> Result<()> {
        self.deliver(number)?;
        if let Some(level) = self.levels.get_mut(number) {
            level.close()?;
        }
        self.deliver(number)
    }

    /// Bytes added to the data level since the last publish point, as blocks.
    pub(crate) fn unpublished_bytes(&self) -> u64 {
        self.written_sectors().saturating_sub(self.published_sectors) * SECTOR_BYTES
    }

    /// Bytes of the block of data being built, at most.
    pub(crate) fn open_data_bytes(&self) -> u64 {
        self.levels.last().map_or(0, LevelWriter::open_bytes)
    }

    /// Bytes that stay empty if the block of data being built is closed and written now, and that
    /// more entries would fill.
    pub(crate) fn waste_of_closing(&self) -> u64 {
        self.levels.last().map_or(0, LevelWriter::waste_of_closing)
    }

    /// Bytes of data blocks written in all.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.written_sectors() * SECTOR_BYTES
    }

    /// Bytes of space that blocks take in all: data, and the fences above them.
    pub(crate) fn all_bytes(&self) -> u64 {
        let levels = self.levels.iter().map(LevelWriter::used_bytes).sum::<u64>();
        levels + self.top.used_bytes()
    }

    /// Bytes of space that blocks of data take which were added since the last publish point.
    pub(crate) fn unpublished_space_bytes(&self) -> u64 {
        self.data_space_bytes().saturating_sub(self.published_space_bytes)
    }

    fn data_space_bytes(&self) -> u64 {
        self.levels.last().map_or(0, LevelWriter::used_bytes)
    }

    fn written_sectors(&self) -> u64 {
        let sectors = self.levels.last().map_or(0, |level| level.counts().sectors);
        sectors.saturating_sub(self.kept_sectors)
    }

    /// Takes a block of the old bottom over as it is. After an error the call may be repeated.
    ///
    /// # Errors
    /// Those of [`Sink::add_data`].
    pub(crate) fn keep(&mut self, block: &Kept<'_>) -> Result<()> {
        self.close_unit()?;
        if let Some(level) = self.levels.last_mut() {
            level.out().close_extent()?;
            level.keep(block);
            self.kept_sectors += u64::from(block.fence.fence.ptr.sectors);
        }
        Ok(())
    }

    /// Bytes of data blocks of the level, those kept included.
    pub(crate) fn level_bytes(&self) -> u64 {
        self.data_bytes() + self.kept_sectors * SECTOR_BYTES
    }

    /// The extents kept since the last record.
    pub(crate) fn kept(&self) -> Vec<Extent> {
        self.levels.last().map(|level| level.kept().collect()).unwrap_or_default()
    }

    /// A record has named the kept extents as the new side's.
    pub(crate) fn own_kept(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.out().own();
        }
    }

    /// Units that the blocks being built take at most, and one for the top fences.
    pub(crate) fn open_units(&self) -> u64 {
        let sectors = |level: &LevelWriter| level.open_sectors().div_ceil(UNIT_SECTORS).max(1);
        1 + self.levels.iter().map(sectors).sum::<u64>()
    }

    /// Closes the block of data being built. To be called between two groups.
    ///
    /// # Errors
    /// Those of [`Sink::add_data`].
    pub(crate) fn close_unit(&mut self) -> Result<()> {
        self.close_level(self.levels.len().saturating_sub(1))
    }

    /// Writes everything that was added, the lowest level first: it is readable then.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn flush(&mut self) -> Result<()> {
        for level in self.levels.iter_mut().rev() {
            level.out().flush()?;
        }
        self.top.flush()?;
        self.published_sectors = self.written_sectors();
        self.published_space_bytes = self.data_space_bytes();
        Ok(())
    }

    /// The new side up to the last publish point, on top of the levels below the merge.
    pub(crate) fn tree(&self, below: &[LevelMeta], below_fences: Vec<LevelFences>) -> Tree {
        let mut meta = TreeMeta::default();
        let mut fences = Vec::with_capacity(self.levels.len() + below.len());
        for (number, level) in self.levels.iter().enumerate() {
            meta.levels.push(level.meta(Vec::new()));
            let known = LevelFences::of(level.fences().map(|index| Arc::new(index.snapshot())));
            fences.push(if level.fences().is_some_and(FenceIndex::is_complete) {
                known
            } else {
                known.with_tail(Arc::new(self.open_above(number).snapshot()))
            });
        }
        for level in below {
            meta.levels.push(LevelMeta { extents: Vec::new(), ..level.clone() });
        }
        fences.extend(below_fences);
        Tree::growing(Arc::new(meta), fences)
    }

    /// The fences to blocks of a level that are in no closed block.
    fn open_above(&self, number: usize) -> &FenceIndex {
        let above = number.checked_sub(1).and_then(|above| self.levels.get(above));
        above.and_then(LevelWriter::open).unwrap_or_else(|| self.top.open())
    }

    /// The new side's progress for a record of the merge, as of the last publish point.
    pub(crate) fn progress(&self, progress: &mut MergeProgress) {
        progress.new = TreeMeta {
            top: self.top.blocks().to_vec(),
            top_extents: self.top.written(),
            levels: self.levels.iter().map(|level| level.meta(level.written())).collect(),
        };
        let tail = |number: usize| -> Vec<TailFence> {
            match number {
                0 => self.top.tail(),
                _ => self.open_above(number).iter().map(|fence| owned(&fence)).collect(),
            }
        };
        progress.tails = (0..self.levels.len()).map(tail).collect();
        let end = self.levels.last().map(LevelWriter::end).unwrap_or_default();
        (progress.last_key, progress.last_data) = (end.last_key, end.last_data);
        progress.plast = end.plast;
    }

    /// All extents that the new side has taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> {
        self.levels.iter().flat_map(LevelWriter::taken).chain(self.top.taken())
    }

    /// Drops all extents without freeing them.
    pub(crate) fn forget(&mut self) {
        self.levels.iter_mut().for_each(|level| level.out().forget());
        self.top.forget();
    }

    /// Closes all levels, bottom up, and writes them. Nothing is durable yet.
    ///
    /// # Errors
    /// Those of [`Sink::add_data`].
    pub(crate) fn finish(&mut self) -> Result<()> {
        for number in (0..self.levels.len()).rev() {
            self.close_level(number)?;
        }
        for level in &mut self.levels {
            level.out().close()?;
        }
        self.top.close()
    }

    /// The levels that were written, after [`Insert::finish`]. Upper levels whose fences fit among
    /// the top fences are left out; the top fences may have to be written again for that.
    ///
    /// # Errors
    /// Those of [`Sink::add_data`].
    pub(crate) fn conclude(&mut self, plan: &Plan, leftover: &mut Vec<Extent>) -> Result<()> {
        let memory_bytes = |level: &LevelWriter| {
            level.fences().filter(|fences| fences.is_complete()).map(FenceIndex::memory_bytes)
        };
        let mut skip = levels_to_skip(self.levels.iter().map(memory_bytes), plan.top_bytes_max);
        let empty = self.levels.last().is_none_or(|level| level.counts().blocks == 0);
        if empty {
            skip = self.levels.len();
        }
        if self.skipped || skip == 0 {
            return Ok(());
        }
        let out = ExtentWriter::new(&self.reader, self.purpose, &self.generation, 0, Vec::new());
        let mut top = TopWriter::new(out, Vec::new(), &[]);
        if let Some(index) = self.levels.get(skip).and_then(LevelWriter::fences) {
            index.iter().try_for_each(|fence| top.add(&fence))?;
        }
        top.close()?;
        // Views of the unfinished merge still refer to the levels that are left out.
        for mut level in self.levels.drain(..skip) {
            leftover.extend(level.out().take());
        }
        leftover.extend(std::mem::replace(&mut self.top, top).take().1);
        self.skipped = true;
        Ok(())
    }

    /// The result, after [`Insert::conclude`]; nothing is left then.
    pub(crate) fn take_written(&mut self) -> (TreeMeta, Vec<LevelFences>) {
        let mut meta = TreeMeta::default();
        let mut fences = Vec::new();
        for (number, level) in self.levels.iter_mut().enumerate() {
            let mut held = level.take_fences();
            held.iter_mut().for_each(FenceIndex::finish);
            if number > 0 {
                // Level 0's are the top fences: held in any case.
                held = held.and_then(FenceIndex::within_budget);
            }
            fences.push(LevelFences::of(held.map(Arc::new)));
            let extents = level.out().take();
            meta.levels.push(level.meta(extents));
        }
        if !meta.levels.is_empty() {
            (meta.top, meta.top_extents) = self.top.take();
        }
        (meta, fences)
    }

    /// The result's metadata, before the result is taken.
    pub(crate) fn meta(&self) -> TreeMeta {
        let levels: Vec<_> = self.levels.iter().map(|level| level.meta(level.written())).collect();
        if levels.is_empty() {
            return TreeMeta::default();
        }
        TreeMeta { top: self.top.blocks().to_vec(), top_extents: self.top.written(), levels }
    }
}

impl Sink for Insert {
    fn add_data(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>, fate: Fate) -> Result<()> {
        let bottom = self.levels.len().saturating_sub(1);
        self.add(bottom, key, seq, payload)?;
        if let Some(level) = self.levels.get_mut(bottom).filter(|_| fate == Fate::Superseded) {
            level.note_kept();
        }
        Ok(())
    }

    fn add_fence(&mut self, key: &[u8], seq: Seq, fence: &Fence<'_>) -> Result<()> {
        let bottom = self.levels.len().saturating_sub(1);
        let known = self.levels.get(bottom).and_then(LevelWriter::plast);
        if known.is_some_and(|plast| plast.ptr == fence.ptr) {
            // The old level had it as a duplicate.
            return Ok(());
        }
        self.add(bottom, key, seq, &Payload::Fence(*fence))
    }
}

fn level_start(
    plan: &Plan,
    reader: &BlockReader,
    number: usize,
    bottom: usize,
    rank: u8,
) -> LevelStart {
    let is_data = number == bottom;
    // Level 0's fences are the top fences: held regardless of their memory. A level's that might
    // become the top fences are collected while they could.
    let account = match number {
        0 => Account::required(&reader.budget),
        _ => Account::required_until(&reader.budget, plan.top_bytes_max)
            .at_most(plan.fence_bytes_max.filter(|_| is_data).unwrap_or(u64::MAX)),
    };
    LevelStart {
        rank,
        below: is_data && plan.below,
        fences_only: !is_data,
        account: Some(account),
        codec: if is_data { plan.codec } else { Codec::None },
        own_units: (is_data && plan.own_units).then_some(OwnUnits::Run),
        filter_bits: plan.filter_bits,
    }
}

/// Most memory that top fences may take.
#[must_use]
pub fn top_bytes_max(kappa0_bytes: u64) -> u64 {
    (kappa0_bytes / 4).max(4096)
}

/// The number of upper levels to drop: as many as leave top fences of at most `top_bytes_max` (z of
/// the thesis). The input has, for each new level from the top, the memory that its fences take if
/// they are held; the last level has the data and is kept. Only fence-only levels may become part
/// of L0: data whose log has been deleted must never be in memory only.
#[must_use]
pub fn levels_to_skip(fence_bytes: impl Iterator<Item = Option<u64>>, top_bytes_max: u64) -> usize {
    let small = |bytes: &Option<u64>| bytes.is_some_and(|bytes| bytes <= top_bytes_max);
    fence_bytes
        .enumerate()
        .filter(|(_, bytes)| small(bytes))
        .map(|(level, _)| level)
        .last()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::levels_to_skip;

    #[test]
    fn the_deepest_level_whose_fences_fit_comes_first() {
        assert_eq!(levels_to_skip([Some(10), Some(400), None].into_iter(), 50), 0);
        assert_eq!(levels_to_skip([Some(1), Some(10), Some(400)].into_iter(), 50), 1);
        assert_eq!(levels_to_skip([Some(1), Some(2), Some(3)].into_iter(), 50), 2);
        assert_eq!(levels_to_skip([Some(99)].into_iter(), 50), 0);
    }
}
