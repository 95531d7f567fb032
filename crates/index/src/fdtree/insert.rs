//! m-insert: entries go into the new last level; its blocks' fences into the level above, and so
//! on up to the top fences.
//!
//! Fence keys: a block's fence key is the least internal key that may enter it: the shortest
//! separator above the previous block's last key at ∞; or (u, s-1) where the previous block ends
//! in the same user key u at number s; or the first entry's own key where that is a fence; the
//! first block of a level has (empty key, ∞). So the newest visible version of a key is always in
//! the block of the last fence at or before it.
//!
//! I2: unless a block begins with a fence to the level below at or before its own fence key, it
//! begins with a duplicate of the last fence written (`plast`), at its own fence key.

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::block::BlockBuilder;
use esker_format::entry::Payload;
use esker_format::fence::Fence;
use esker_format::filter;
use esker_format::ids::{Generation, Seq};
use esker_format::key;
use esker_format::meta::{LevelCounts, LevelMeta, TreeMeta};
use esker_format::ptr::{BlockPtr, UNIT_BYTES};
use esker_substrate::budget::{Budget, Part};
use esker_substrate::error::Result;

use super::cursor::OwnedFence;
use super::fence_index::{FenceIndex, KeyedFence};
use super::tree::{BlockReader, HeldFences};
use super::versions::Fate;
use super::writer::ExtentWriter;

/// What is known about the levels to write before they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Numbers of the fence-only levels above the data, from the top down.
    pub fence_ranks: Vec<u8>,
    /// Number of the level with the data.
    pub data_rank: u8,
    /// Estimated bytes of the data level.
    pub data_bytes: u64,
    /// A level exists below, to which fences lead.
    pub below: bool,
}

/// Writes the new levels of a merge or spill.
pub struct Insert<'a> {
    levels: Vec<LevelWriter<'a>>,
    budget: &'a Arc<Budget>,
    reader: &'a BlockReader,
    purpose: Purpose,
    generation: Generation,
}

/// The fences to one level's blocks, collected while they fit the budget.
#[derive(Default)]
struct Collected {
    index: Option<FenceIndex>,
    limit_bytes: u64,
}

impl Collected {
    fn push(&mut self, item: &KeyedFence<'_>) {
        if let Some(index) = &mut self.index {
            index.push(item);
            if index.memory_bytes() > self.limit_bytes {
                self.index = None;
            }
        }
    }
}

/// One new level.
struct LevelWriter<'a> {
    rank: u8,
    builder: BlockBuilder,
    out: ExtentWriter<'a>,
    counts: LevelCounts,
    seqs: Option<(Seq, Seq)>,
    /// The fence key of the block being built.
    fence_key: Vec<u8>,
    fence_seq: Seq,
    /// Filter hashes of the block being built; one for each distinct key.
    hashes: Vec<u64>,
    /// Key of the last entry of the level so far.
    last_key: Vec<u8>,
    /// Number of the last entry, if it was data.
    last_data: Option<Seq>,
    /// The last fence to the level below (`plast`), where there is one.
    plast: Option<OwnedFence>,
    below: bool,
    fences: Collected,
}

/// A block that was just appended: what its fence says.
struct Appended {
    key: Vec<u8>,
    seq: Seq,
    ptr: BlockPtr,
    puts: u32,
    tombstones: u32,
    filter: Vec<u8>,
}

impl Appended {
    fn keyed(&self) -> KeyedFence<'_> {
        let fence = Fence {
            ptr: self.ptr,
            puts: self.puts,
            tombstones: self.tombstones,
            filter: &self.filter,
        };
        KeyedFence { key: &self.key, seq: self.seq, fence }
    }
}

impl<'a> LevelWriter<'a> {
    fn new(rank: u8, below: bool, out: ExtentWriter<'a>, fences: Collected) -> Self {
        Self {
            rank,
            builder: BlockBuilder::new(UNIT_BYTES as usize),
            out,
            counts: LevelCounts::default(),
            seqs: None,
            fence_key: Vec::new(),
            fence_seq: Seq::MAX,
            hashes: Vec::new(),
            last_key: Vec::new(),
            last_data: None,
            plast: None,
            below,
            fences,
        }
    }

    /// Adds an entry; hands back the block that had to be closed for it.
    fn add(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) -> Result<Option<Appended>> {
        // A fence at a key's ∞ alone in its block and the key's first version in the next would
        // give both blocks the same fence key: the version stays with the fence.
        let lone_fence =
            self.builder.len() == 1 && self.last_data.is_none() && self.last_key == key;
        let mut closed = None;
        if lone_fence {
            self.builder.push(key, seq, payload);
        } else if self.builder.is_empty() {
            self.begin(key, seq, payload);
            self.builder.push(key, seq, payload);
        } else if !self.builder.try_push(key, seq, payload) {
            closed = self.close()?;
            self.begin(key, seq, payload);
            self.builder.push(key, seq, payload);
        }
        self.note(key, seq, payload);
        Ok(closed)
    }

    /// Begins a block whose first entry will be (`key`, `seq`): sets its fence key and puts I2's
    /// duplicate in front where it is needed.
    fn begin(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) {
        let is_fence = matches!(payload, Payload::Fence(_));
        let same_key = self.counts.blocks > 0 && self.last_key == key;
        self.fence_key.clear();
        self.fence_seq = Seq::MAX;
        match self.last_data {
            _ if self.counts.blocks == 0 => {}
            // A fence is the least key of what lies behind it. All data of its key stands before
            // a fence with a number, because all data below is older (I8).
            _ if is_fence => {
                self.fence_key.extend_from_slice(key);
                self.fence_seq = seq;
            }
            Some(last) if same_key => {
                self.fence_key.extend_from_slice(key);
                self.fence_seq = Seq(last.0.saturating_sub(1));
            }
            // The previous block ends in a fence at this very key and ∞: its versions begin here.
            None if same_key => self.fence_key.extend_from_slice(key),
            _ => self.fence_key.extend_from_slice(key::separator(&self.last_key, key)),
        }
        if let Some(plast) = self.plast.as_ref().filter(|_| self.below && !is_fence) {
            let fence = Fence {
                ptr: plast.ptr,
                puts: plast.puts,
                tombstones: plast.tombstones,
                filter: &plast.filter,
            };
            self.builder.push_fence(&self.fence_key, self.fence_seq, &fence);
            self.counts.fences += 1;
        }
    }

    fn note(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) {
        let bytes = key.len() as u64 + esker_format::entry::PUT_OVERHEAD_BYTES as u64;
        let same_key = self.last_key == key && self.last_data.is_some() && !self.hashes.is_empty();
        match payload {
            Payload::Fence(fence) => {
                self.counts.fences += 1;
                self.last_data = None;
                if self.below {
                    self.plast = Some(OwnedFence {
                        key: Vec::new(),
                        seq,
                        ptr: fence.ptr,
                        puts: fence.puts,
                        tombstones: fence.tombstones,
                        filter: fence.filter.to_vec(),
                    });
                }
            }
            Payload::Put(value) => {
                self.counts.puts += 1;
                self.counts.put_bytes += bytes + value.len() as u64;
            }
            Payload::Delete => {
                self.counts.tombstones += 1;
                self.counts.tombstone_bytes += bytes;
            }
        }
        if !matches!(payload, Payload::Fence(_)) {
            let (low, high) = self.seqs.unwrap_or((seq, seq));
            self.seqs = Some((low.min(seq), high.max(seq)));
            self.last_data = Some(seq);
            if !same_key {
                self.hashes.push(filter::hash(key));
            }
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
    }

    /// Appends the block being built, if there is one.
    fn close(&mut self) -> Result<Option<Appended>> {
        if self.builder.is_empty() {
            return Ok(None);
        }
        let (ptr, finished) = self.out.append(&mut self.builder)?;
        let mut bits = Vec::with_capacity(filter::bytes_for(self.hashes.len()));
        filter::build(&self.hashes, &mut bits);
        self.hashes.clear();
        self.counts.blocks += 1;
        self.counts.sectors += u64::from(ptr.sectors);
        let appended = Appended {
            key: std::mem::take(&mut self.fence_key),
            seq: self.fence_seq,
            ptr,
            puts: finished.puts,
            tombstones: finished.tombstones,
            filter: bits,
        };
        self.fences.push(&appended.keyed());
        Ok(Some(appended))
    }
}

/// The levels written, and the fences to them that are held in memory.
#[derive(Debug)]
pub struct Written {
    /// Levels from the top down, top fences included.
    pub meta: TreeMeta,
    /// Fences to each level's blocks.
    pub(super) fences: Vec<Option<Arc<HeldFences>>>,
}

impl<'a> Insert<'a> {
    /// Begins the levels of `plan`. `top_bytes_max` bounds the memory of top fences.
    pub(super) fn new(
        plan: &Plan,
        reader: &'a BlockReader,
        budget: &'a Arc<Budget>,
        purpose: Purpose,
        top_bytes_max: u64,
    ) -> Self {
        let generation = reader.blocks.take_generation();
        let room = budget.limit_bytes(Part::Fences).saturating_sub(budget.used_bytes(Part::Fences));
        let mut levels = Vec::new();
        for (number, rank) in plan.fence_ranks.iter().chain([&plan.data_rank]).enumerate() {
            let is_data = number == plan.fence_ranks.len();
            // Level 0's fences are the top fences: held whatever they take. A level's that might
            // become the top fences are collected while they could.
            let limit_bytes = if number == 0 { u64::MAX } else { room.max(top_bytes_max) };
            let fences = Collected { index: Some(FenceIndex::default()), limit_bytes };
            let bytes = if is_data { plan.data_bytes } else { plan.data_bytes / 32 };
            let out = ExtentWriter::new(reader, purpose, generation, bytes);
            levels.push(LevelWriter::new(*rank, is_data && plan.below, out, fences));
        }
        Self { levels, budget, reader, purpose, generation }
    }

    /// Adds a data entry.
    pub(super) fn add_data(
        &mut self,
        key: &[u8],
        seq: Seq,
        payload: &Payload<'_>,
        fate: Fate,
    ) -> Result<()> {
        let bottom = self.levels.len().saturating_sub(1);
        self.add(bottom, key, seq, payload)?;
        if let Some(level) = self.levels.get_mut(bottom).filter(|_| fate == Fate::ForSnapshot) {
            level.counts.kept_for_snapshots += 1;
        }
        Ok(())
    }

    /// Adds a fence to the level below the merge.
    pub(super) fn add_fence(&mut self, key: &[u8], seq: Seq, fence: &Fence<'_>) -> Result<()> {
        let bottom = self.levels.len().saturating_sub(1);
        let known = self.levels.get(bottom).and_then(|level| level.plast.as_ref());
        if known.is_some_and(|plast| plast.ptr == fence.ptr) {
            // The old level had it as a duplicate.
            return Ok(());
        }
        self.add(bottom, key, seq, &Payload::Fence(*fence))
    }

    fn add(&mut self, number: usize, key: &[u8], seq: Seq, payload: &Payload<'_>) -> Result<()> {
        let Some(level) = self.levels.get_mut(number) else { return Ok(()) };
        match level.add(key, seq, payload)? {
            Some(block) => self.fence(number, &block),
            None => Ok(()),
        }
    }

    /// Puts the fence of a block of level `number` into the level above.
    fn fence(&mut self, number: usize, block: &Appended) -> Result<()> {
        match number.checked_sub(1) {
            Some(above) => {
                let keyed = block.keyed();
                self.add(above, keyed.key, keyed.seq, &Payload::Fence(keyed.fence))
            }
            None => Ok(()),
        }
    }

    /// Closes all levels, bottom up, drops upper levels that fit among the top fences, and writes
    /// the top fences. Nothing is durable yet.
    pub(super) fn finish(mut self, top_bytes_max: u64) -> Result<Written> {
        for number in (0..self.levels.len()).rev() {
            let closed = match self.levels.get_mut(number) {
                Some(level) => level.close()?,
                None => None,
            };
            if let Some(block) = closed {
                self.fence(number, &block)?;
            }
        }
        let skipped = super::finalize::levels_to_skip(
            self.levels
                .iter()
                .map(|level| level.fences.index.as_ref().map(FenceIndex::memory_bytes)),
            top_bytes_max,
        );
        // Dropping a writer gives its extents back.
        self.levels.drain(..skipped);
        let empty = self.levels.last().is_none_or(|level| level.counts.blocks == 0);
        if empty {
            return Ok(Written { meta: TreeMeta::default(), fences: Vec::new() });
        }
        self.write_top()
    }

    fn write_top(self) -> Result<Written> {
        let blocks = &self.reader.blocks;
        let mut written = Written { meta: TreeMeta::default(), fences: Vec::new() };
        let result = self.write_top_into(&mut written);
        if result.is_err() {
            // What finished writers had is nobody's now.
            for extent in written.meta.extents() {
                blocks.give_back(*extent)?;
            }
        }
        result.map(|()| written)
    }

    fn write_top_into(self, written: &mut Written) -> Result<()> {
        for (number, level) in self.levels.into_iter().enumerate() {
            let mut index = level.fences.index;
            if let Some(index) = &mut index {
                index.shrink();
            }
            let meta = &mut written.meta;
            if let Some(top) = index.as_ref().filter(|_| number == 0) {
                let out = ExtentWriter::new(self.reader, self.purpose, self.generation, 0);
                (meta.top, meta.top_extents) = write_top_fences(top, out)?;
            }
            meta.levels.push(LevelMeta {
                rank: level.rank,
                counts: level.counts,
                seqs: level.seqs.unwrap_or_default(),
                extents: level.out.finish()?,
            });
            written.fences.push(match index {
                Some(index) if number == 0 => Some(HeldFences::required(index, self.budget)),
                Some(index) => HeldFences::optional(index, self.budget),
                None => None,
            });
        }
        Ok(())
    }
}

/// Writes top fences as ordinary blocks of fences.
fn write_top_fences(
    top: &FenceIndex,
    mut out: ExtentWriter<'_>,
) -> Result<(Vec<BlockPtr>, Vec<esker_format::ptr::Extent>)> {
    let mut blocks = Vec::new();
    let mut builder = BlockBuilder::new(UNIT_BYTES as usize);
    for item in top.iter() {
        let payload = Payload::Fence(item.fence);
        if !builder.try_push(item.key, item.seq, &payload) {
            blocks.push(out.append(&mut builder)?.0);
            builder.push(item.key, item.seq, &payload);
        }
    }
    if !builder.is_empty() {
        blocks.push(out.append(&mut builder)?.0);
    }
    Ok((blocks, out.finish()?))
}
