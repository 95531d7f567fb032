//! One level of the new side: blocks built entry by entry, and the fences to them.
//!
//! Fence keys: a block's fence key is the least internal key that may enter it: the shortest
//! separator above the previous block's last key at ∞; or (u, s-1) where the previous block ends
//! in the same user key u at number s; or the first entry's own key where that is a fence; the
//! first block of a level has (empty key, ∞). So the newest visible version of a key is always in
//! the block of the last fence at or before it.
//!
//! I2: unless a block begins with a fence to the level below at or before its own fence key, it
//! begins with a duplicate of the last fence written (`plast`), at its own fence key.
//!
//! Invariant: a block that was closed stays `owed` until the level above has its fence. An
//! operation that fails leaves the level as it was, so that it can be tried again.

use esker_format::block::{BlockBuilder, Codec, Limit};
use esker_format::entry::Payload;
use esker_format::fence::Fence;
use esker_format::filter;
use esker_format::ids::Seq;
use esker_format::key;
use esker_format::meta::{LevelCounts, LevelMeta, TailFence};
use esker_format::ptr::{BlockPtr, Extent, SECTOR_BYTES, UNIT_BYTES};
use esker_substrate::error::Result;

use crate::build::filter_bits::FilterBits;
use crate::build::preserve::Kept;
use crate::build::writer::ExtentWriter;
use crate::run::fence_index::{Account, FenceIndex, KeyedFence, fence_of, keyed, owned};

/// One new level.
pub struct LevelWriter {
    rank: u8,
    builder: BlockBuilder,
    out: ExtentWriter,
    counts: LevelCounts,
    seqs: Option<(Seq, Seq)>,
    /// The fence key of the block being built.
    fence_key: Vec<u8>,
    fence_seq: Seq,
    /// Filter hashes of the block being built; one for each distinct key.
    hashes: Vec<u64>,
    /// Bits of filters for each.
    filter_bits: usize,
    /// Key of the last entry of the level so far.
    last_key: Vec<u8>,
    /// Number of the last entry, if it was data.
    last_data: Option<Seq>,
    /// The last fence to the level below (`plast`), where there is one.
    plast: Option<TailFence>,
    below: bool,
    /// The fences in the block being built, of a level of nothing but fences.
    open: Option<FenceIndex>,
    /// The fences to the level's blocks, as far as there is memory for them.
    fences: Option<FenceIndex>,
    owed: Option<TailFence>,
}

/// The settings that a level begins with.
pub struct LevelStart {
    /// The level's number.
    pub rank: u8,
    /// It leads to a level below the merge.
    pub below: bool,
    /// It holds nothing but fences.
    pub fences_only: bool,
    /// Its fences are counted here, if they are collected.
    pub account: Option<Account>,
    /// The codec of its blocks.
    pub codec: Codec,
    /// Every block has its units to itself.
    pub own_units: Option<OwnUnits>,
    /// Bits a key of its filters.
    pub filter_bits: FilterBits,
}

/// Sectors of a unit.
pub(crate) const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;

/// Units that a block takes that has its units to itself.
pub(crate) const fn units_of(ptr: &BlockPtr) -> u64 {
    (ptr.sectors as u64).div_ceil(UNIT_SECTORS)
}

/// The space of such a block.
pub(crate) const fn extent_of(ptr: &BlockPtr) -> Extent {
    Extent { start: ptr.offset() / UNIT_BYTES, units: units_of(ptr) }
}

/// The owner of blocks that share their units with no other block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnUnits {
    /// A run's.
    Run,
    /// A level's, which may stay as they are when it is merged into.
    Level,
    /// A level's on a device that is full.
    FullDevice,
}

impl OwnUnits {
    /// Blocks grow as long as more than one part in this many of their units would be empty. Blocks
    /// of runs are filled better; blocks of levels are reused unchanged more often the fewer
    /// entries they have. On a full device a level must not take more space than the runs that are
    /// merged into it.
    const fn grows_above(self) -> usize {
        match self {
            Self::Run => 14,
            Self::Level => 7,
            Self::FullDevice => 28,
        }
    }
}

impl LevelWriter {
    /// An empty level.
    pub(crate) fn new(start: LevelStart, out: ExtentWriter) -> Self {
        let out = out.compressing(start.codec);
        let out = if start.fences_only { out } else { out.entering_cache() };
        let builder = BlockBuilder::new(start.codec.target_bytes());
        Self {
            rank: start.rank,
            // Compressed blocks fill their units to a varying degree.
            builder: match start.own_units {
                Some(own_units) => builder.growing(own_units.grows_above()),
                None => builder,
            },
            out: if start.own_units.is_some() { out.with_own_units() } else { out },
            counts: LevelCounts::default(),
            seqs: None,
            fence_key: Vec::new(),
            fence_seq: Seq::MAX,
            hashes: Vec::new(),
            filter_bits: start.filter_bits.get(),
            last_key: Vec::new(),
            last_data: None,
            plast: None,
            below: start.below,
            open: start.fences_only.then(FenceIndex::default),
            fences: start.account.map(FenceIndex::counted),
            owed: None,
        }
    }

    /// Adds an entry; false when the block has no space for it: then it must be closed first.
    pub(crate) fn try_add(&mut self, key: &[u8], seq: Seq, payload: &Payload<'_>) -> bool {
        // A fence at a key's ∞ alone in its block and the key's first version in the next would
        // give both blocks the same fence key: the version stays with the fence.
        let lone_fence =
            self.builder.len() == 1 && self.last_data.is_none() && self.last_key == key;
        if lone_fence {
            self.builder.push(key, seq, payload);
        } else if self.builder.is_empty() {
            self.begin(key, seq, payload);
            self.builder.push(key, seq, payload);
        } else if !self.builder.try_push(key, seq, payload) {
            return false;
        }
        self.note(key, seq, payload);
        true
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
            // A fence is the least key of what is behind it. All data of its key is before a fence
            // with a number, because all data below is older.
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
            self.builder.push_fence(&self.fence_key, self.fence_seq, &fence_of(plast));
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
                let keyed = KeyedFence { key, seq, fence: *fence };
                if self.below {
                    self.plast = Some(owned(&keyed));
                }
                if let Some(open) = &mut self.open {
                    let _not_counted = open.push(&keyed);
                }
            }
            Payload::Put(value)
            | Payload::PutUntil(_, value)
            | Payload::Reference(value)
            | Payload::Operand(value) => {
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

    /// Closes the block being built, if there is one: its fence is owed to the level above.
    pub(crate) fn close(&mut self) -> Result<()> {
        if self.builder.is_empty() {
            return Ok(());
        }
        let (ptr, finished) = self.out.append(&mut self.builder)?;
        let mut bits = Vec::new();
        filter::build(&self.hashes, self.filter_bits, &mut bits);
        self.hashes.clear();
        self.counts.blocks += 1;
        self.counts.sectors += u64::from(ptr.sectors);
        let fence = TailFence {
            key: std::mem::take(&mut self.fence_key),
            seq: self.fence_seq,
            ptr,
            puts: finished.puts,
            tombstones: finished.tombstones,
            filter: bits,
        };
        let collected = self.fences.as_mut().is_some_and(|fences| fences.push(&keyed(&fence)));
        if !collected {
            self.fences = None;
        }
        if let Some(open) = &mut self.open {
            open.clear();
        }
        self.owed = Some(fence);
        Ok(())
    }

    /// Takes a block of the old level over as it is; the one being built must be closed. Its fence
    /// is owed to the level above.
    pub(crate) fn keep(&mut self, block: &Kept<'_>) {
        let mut fence = owned(&block.fence);
        if self.counts.blocks == 0 {
            // The first block of a level begins with the least key.
            fence.key.clear();
        }
        self.counts.blocks += 1;
        self.counts.sectors += u64::from(fence.ptr.sectors);
        self.counts.puts += u64::from(fence.puts);
        self.counts.put_bytes += block.data_bytes;
        let (low, high) = self.seqs.unwrap_or((Seq::RESET, Seq::RESET));
        self.seqs = Some((low.min(Seq::RESET), high));
        self.out.keep(&fence.ptr);
        let collected = self.fences.as_mut().is_some_and(|fences| fences.push(&keyed(&fence)));
        if !collected {
            self.fences = None;
        }
        self.owed = Some(fence);
        if let Some(last_key) = block.run_end {
            (self.last_key, self.last_data) = (last_key.to_vec(), Some(Seq::RESET));
        }
    }

    /// The key of the last entry, or the last key given for the last block that was passed over.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Takes a block over as it is: the keys behind it are at or above `upper`, and above it if it
    /// is in the block; `None` where nothing follows. The block being built must be closed. Neither
    /// its bytes nor its place are the level's.
    pub(crate) fn pass_over(&mut self, fence: &Fence<'_>, upper: Option<&[u8]>) {
        self.counts.blocks += 1;
        self.counts.sectors += u64::from(fence.ptr.sectors);
        self.counts.puts += u64::from(fence.puts);
        self.counts.tombstones += u64::from(fence.tombstones);
        self.last_key.clear();
        self.last_key.extend_from_slice(upper.unwrap_or_default());
        self.last_data = None;
    }

    /// Sectors of the block being built, at most.
    pub(crate) fn open_sectors(&self) -> u64 {
        let bytes = if self.builder.is_empty() { 0 } else { self.builder.bytes_at_most() as u64 };
        bytes.div_ceil(SECTOR_BYTES)
    }

    /// The size at which its blocks are full.
    pub(crate) const fn limit(&self) -> Limit {
        self.builder.limit()
    }

    /// Bytes that the block being built adds if it is closed now; none where it is compressed, as
    /// it is not known how far.
    pub(crate) fn open_bytes(&self) -> u64 {
        if self.out.is_compressing() { 0 } else { self.open_sectors() * SECTOR_BYTES }
    }

    /// Bytes that stay empty if the block being built is closed and written now, and that more
    /// entries would fill: the rest of the last unit, unless the block is full and takes whole
    /// units or is compressed.
    pub(crate) fn waste_of_closing(&self) -> u64 {
        if self.out.is_compressing() {
            return if self.builder.is_full() { 0 } else { UNIT_BYTES };
        }
        if self.builder.fills_its_units() {
            return 0;
        }
        let end = self.out.end_bytes() + self.open_sectors() * SECTOR_BYTES;
        end.next_multiple_of(UNIT_BYTES) - end
    }

    /// Whether the block being built has no space for another entry like those that it has.
    pub(crate) fn is_open_full(&self) -> bool {
        self.builder.is_full()
    }

    /// Continues a level that a merge had written as described by `meta`, with `open` fences in the
    /// block being built.
    pub(crate) fn resume(
        start: LevelStart,
        out: ExtentWriter,
        meta: &LevelMeta,
        open: &[TailFence],
    ) -> Self {
        let mut level = Self::new(start, out);
        level.fences = None;
        level.counts = meta.counts;
        level.counts.fences = meta.counts.fences.saturating_sub(open.len() as u64);
        level.seqs = Some(meta.seqs).filter(|_| meta.counts.data_entries() > 0);
        for fence in open {
            // They were in one block before.
            let _fits = level.try_add(&fence.key, fence.seq, &Payload::Fence(fence_of(fence)));
        }
        level
    }

    /// Sets the end of the level at the time when the merge was recorded.
    pub(crate) fn resume_end(&mut self, end: LevelEnd) {
        self.last_key = end.last_key;
        self.last_data = end.last_data;
        self.plast = end.plast;
    }

    /// The end of the level, for the record.
    pub(crate) fn end(&self) -> LevelEnd {
        LevelEnd {
            last_key: self.last_key.clone(),
            last_data: self.last_data,
            plast: self.plast.clone(),
        }
    }

    /// The last fence to the level below, where there is one.
    pub(crate) const fn plast(&self) -> Option<&TailFence> {
        self.plast.as_ref()
    }

    /// The fence that the level above does not contain yet.
    pub(crate) const fn owed(&mut self) -> &mut Option<TailFence> {
        &mut self.owed
    }

    /// Counts an entry that is kept for a snapshot alone.
    pub(crate) const fn note_kept(&mut self) {
        self.counts.kept_for_snapshots += 1;
    }

    /// The counts of the level.
    pub(crate) const fn counts(&self) -> &LevelCounts {
        &self.counts
    }

    /// The fences in the block being built.
    pub(crate) const fn open(&self) -> Option<&FenceIndex> {
        self.open.as_ref()
    }

    /// The fences to blocks of the level that are in memory, if they are collected.
    pub(crate) const fn fences(&self) -> Option<&FenceIndex> {
        self.fences.as_ref()
    }

    /// Takes the fences to blocks of the level that are in memory, if they are collected.
    pub(crate) fn take_fences(&mut self) -> Option<FenceIndex> {
        self.fences.take()
    }

    /// Holds fences that were read again.
    pub(crate) fn set_fences(&mut self, fences: FenceIndex) {
        self.fences = Some(fences);
    }

    /// Bytes of the space that the level's blocks take, without those that were kept.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.out.used_bytes()
    }

    /// The level's extents.
    pub(crate) const fn out(&mut self) -> &mut ExtentWriter {
        &mut self.out
    }

    /// The extents that were kept of the old level and still belong to it.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Extent> {
        self.out.kept()
    }

    /// All extents that the level has taken.
    pub(crate) fn taken(&self) -> impl Iterator<Item = Extent> {
        self.out.taken()
    }

    /// The level as it is, with these extents.
    pub(crate) fn meta(&self, extents: Vec<Extent>) -> LevelMeta {
        LevelMeta {
            rank: self.rank,
            counts: self.counts,
            seqs: self.seqs.unwrap_or_default(),
            extents,
        }
    }

    /// The extents as far as they hold flushed blocks.
    pub(crate) fn written(&self) -> Vec<Extent> {
        self.out.written()
    }
}

/// The end of a level: what its next block depends on.
#[derive(Clone, Debug, Default)]
pub struct LevelEnd {
    /// Key of the last entry.
    pub last_key: Vec<u8>,
    /// Number of the last entry, if it was data.
    pub last_data: Option<Seq>,
    /// The last fence to the level below.
    pub plast: Option<TailFence>,
}
