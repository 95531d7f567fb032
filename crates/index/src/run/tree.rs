//! A tree on the device: top fences in memory, levels of immutable blocks below.
//!
//! The main tree and every sorted run have this form; a sorted run's only level with data is its
//! last one. So has the new side of a merge under way: a tree that ends at the wavefront.
//!
//! Invariant: level i's blocks are named by the fences of level i-1 and by the level's *tail*
//! (fences that are in no block yet, and behind all that are), level 0's by the top fences, which
//! are always in memory. Only a growing tree has tails.
//! Invariant: `held`, where present, holds exactly the fences to the level's blocks, without I2's
//! duplicates; in a tree that a merge consumes, those may be missing that lead only to keys at or
//! before the wavefront, and of levels below the first any chunk for which there was no memory.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use esker_device::Purpose;
use esker_format::DecodeError;
use esker_format::block::BlockView;
use esker_format::ids::{KeyspaceId, Seq};
use esker_format::key;
use esker_format::meta::{IndexMeta, MergeProgress, TreeMeta};
use esker_format::ptr::BlockPtr;
use esker_substrate::blocks::{BlockStore, DATA_FILE, Pot};
use esker_substrate::budget::Budget;
use esker_substrate::cache::CachedBlock;
use esker_substrate::error::{Error, Result};
use esker_substrate::sync::Mutex;
use esker_substrate::sync::atomic::AtomicU64;

use crate::run::fence_index::{Account, FenceIndex, KeyedFence, keyed};
use crate::run::held_blocks::HeldBlocks;
use crate::run::numbers::Numbers;

/// The means of reading a keyspace's blocks.
#[derive(Clone, Debug)]
pub struct BlockReader {
    /// The data file.
    pub blocks: Arc<BlockStore>,
    /// The keyspace to which the blocks must belong.
    pub keyspace: KeyspaceId,
    /// The budget that fences in memory are counted against.
    pub budget: Arc<Budget>,
    /// The reservation that writes with this reader use.
    pub pot: Option<Arc<Pot>>,
}

impl BlockReader {
    /// The same for a writer with this reservation.
    pub(crate) fn with_pot(&self, pot: &Arc<Pot>) -> Self {
        Self { pot: Some(Arc::clone(pot)), ..self.clone() }
    }

    /// Reads a block through the cache, at most one I/O.
    pub(crate) fn read(&self, ptr: &BlockPtr) -> Result<Arc<CachedBlock>> {
        self.blocks.read(self.keyspace, ptr, Purpose::User)
    }

    /// Whether a block is in the cache.
    pub(crate) fn is_cached(&self, ptr: &BlockPtr) -> bool {
        self.blocks.is_cached(ptr)
    }

    /// Has the device begin to read blocks that are wanted soon.
    pub(crate) fn announce(&self, ptrs: &[BlockPtr]) {
        self.blocks.announce(ptrs, Purpose::User);
    }

    /// Reads neighbours among blocks that are wanted soon, and keeps them; has the device begin
    /// with the others. Those that did not come before are left out.
    pub(crate) fn read_ahead(&self, mut ptrs: Vec<BlockPtr>, held: &mut HeldBlocks) {
        ptrs.retain(|ptr| !held.is_lost(ptr));
        let keep = |ptr: &BlockPtr, block| match block {
            Some(block) => held.put(*ptr, block),
            None => held.lose(ptr),
        };
        self.blocks.read_ahead(self.keyspace, &ptrs, Purpose::User, keep);
    }

    /// Names the place of damage that a view found inside a block.
    pub(crate) fn damage(&self, ptr: &BlockPtr, error: &DecodeError) -> Error {
        Error::corrupt(DATA_FILE, ptr.offset(), error)
    }
}

/// One tree.
#[derive(Debug, Default)]
pub struct Tree {
    pub(crate) meta: Arc<TreeMeta>,
    pub(super) levels: Vec<LevelFences>,
    /// A merge is writing or consuming the tree, or it is one of a past index: no fences are loaded
    /// for it.
    pub(super) moving: bool,
    /// A merge is writing it.
    growing: bool,
    /// Each block is its own, anywhere in the file.
    is_level: bool,
    /// Fences that a merge needs no more may be missing.
    is_trimmed: bool,
    /// The sequence numbers of the last level's data, where more is known than its record has.
    numbers: Option<Numbers>,
}

/// The fences to one level's blocks, as far as they are in memory.
#[derive(Debug, Default)]
pub struct LevelFences {
    pub(super) held: OnceLock<Arc<FenceIndex>>,
    tail: Option<Arc<FenceIndex>>,
    /// Searches that came through the level above since the tree was opened.
    pub(super) detours: AtomicU64,
    /// The memory that the budget must have for them before they are loaded: more than it had when
    /// it refused them.
    pub(super) needs_bytes: AtomicU64,
    pub(super) building: Mutex<()>,
}

impl LevelFences {
    /// The fences of the level that are in memory.
    pub(crate) fn of(held: Option<Arc<FenceIndex>>) -> Self {
        let fences = Self::default();
        if let Some(held) = held {
            let _first = fences.held.set(held);
        }
        fences
    }

    /// Those that no block above has yet, in addition.
    pub(crate) fn with_tail(self, tail: Arc<FenceIndex>) -> Self {
        Self { tail: Some(tail), ..self }
    }
}

impl Tree {
    /// A tree whose fences are known level by level, as far as they are in memory.
    pub(crate) fn written(meta: Arc<TreeMeta>, levels: Vec<LevelFences>) -> Self {
        Self { meta, levels, ..Self::default() }
    }

    /// A level that owns its blocks one by one, with its top fences. None of its other fences are
    /// loaded: the next merge replaces it.
    pub(crate) fn level(meta: Arc<TreeMeta>, top: Option<Arc<FenceIndex>>) -> Self {
        let mut levels: Vec<_> = meta.levels.iter().map(|_| LevelFences::default()).collect();
        if let Some(first) = levels.first_mut() {
            *first = LevelFences::of(top);
        }
        Self { meta, levels, moving: true, is_level: true, ..Self::default() }
    }

    /// The new side of a merge under way.
    pub(crate) fn growing(meta: Arc<TreeMeta>, levels: Vec<LevelFences>) -> Self {
        Self { meta, levels, moving: true, growing: true, ..Self::default() }
    }

    /// The same tree for a merge that consumes it.
    pub(crate) fn consumed(&self) -> Self {
        let levels = self.levels.iter().map(|level| LevelFences::of(level.held.get().cloned()));
        Self {
            meta: Arc::clone(&self.meta),
            levels: levels.collect(),
            moving: true,
            is_trimmed: self.is_trimmed,
            ..Self::default()
        }
    }

    /// A consumed tree without the chunks of fences to its upper `levels` levels that are not
    /// needed behind `wavefront`; `None` when there are none.
    pub(crate) fn trimmed(&self, levels: usize, wavefront: &[u8]) -> Option<Self> {
        let trim = |(number, level): (usize, &LevelFences)| {
            let held = level.held.get().filter(|_| number < levels)?;
            held.behind(wavefront).map(Arc::new)
        };
        let trimmed: Vec<_> = self.levels.iter().enumerate().map(trim).collect();
        if trimmed.iter().all(Option::is_none) {
            return None;
        }
        let levels = self.levels.iter().zip(trimmed);
        let levels = levels
            .map(|(level, trimmed)| LevelFences::of(trimmed.or_else(|| level.held.get().cloned())));
        Some(Self {
            meta: Arc::clone(&self.meta),
            levels: levels.collect(),
            moving: true,
            is_trimmed: true,
            ..Self::default()
        })
    }

    /// The same for readers of the past: as [`Tree::past`].
    pub(crate) fn as_past(&self) -> Self {
        let top = self.levels.first().map(|top| LevelFences::of(top.held.get().cloned()));
        let lower = self.levels.iter().skip(1).map(|_| LevelFences::default());
        let levels = top.into_iter().chain(lower).collect();
        let meta = Arc::clone(&self.meta);
        Self { meta, levels, moving: true, ..Self::default() }
    }

    /// A tree of which nothing has been read: the first search reads its top fences.
    pub(crate) fn unopened(meta: TreeMeta) -> Self {
        let levels = meta.levels.iter().map(|_| LevelFences::default()).collect();
        Self::written(Arc::new(meta), levels)
    }

    /// The same of a tree that is searched seldom: no fences but the top ones come into memory,
    /// and the cache has the others' blocks.
    pub(crate) fn past(meta: TreeMeta) -> Self {
        Self { moving: true, ..Self::unopened(meta) }
    }

    /// The same tree for another index, with the fences that are in memory.
    pub(crate) fn opened_again(&self) -> Self {
        let levels = self.levels.iter().map(|level| LevelFences::of(level.held.get().cloned()));
        Self::written(Arc::clone(&self.meta), levels.collect())
    }

    /// Opens a tree: reads the blocks of its top fences, one I/O each, unless they are in memory.
    /// Where they cannot be read, this tree's keys are out of reach, and no other tree's; each read
    /// of them tries again.
    pub(crate) fn enter_or_warn(&self, reader: &BlockReader) {
        if let Err(error) = self.enter(reader) {
            tracing::warn!(keyspace = reader.keyspace.0, %error, "top fences cannot be read");
        }
    }

    /// The new side of a merge as it was recorded. Where its top fences cannot be read, its keys
    /// are out of reach.
    pub(crate) fn recorded(
        reader: &BlockReader,
        index: &IndexMeta,
        progress: &MergeProgress,
    ) -> Self {
        let tail = |level: usize| {
            let mut tail = FenceIndex::default();
            for fence in progress.tails.get(level).into_iter().flatten() {
                let _not_counted = tail.push(&keyed(fence));
            }
            tail
        };
        let mut meta = progress.new.clone();
        let top = read_top_fences(reader, &meta).map(|mut top| {
            for fence in tail(0).iter() {
                let _counted_in_any_case = top.push(&fence);
            }
            Arc::new(top)
        });
        let with_tail = |level| LevelFences::default().with_tail(Arc::new(tail(level)));
        let mut levels = vec![LevelFences::of(top.ok())];
        levels.extend((1..meta.levels.len()).map(with_tail));
        let below = index.main.levels.get(usize::from(progress.levels)..).unwrap_or_default();
        levels.extend(below.iter().map(|_| LevelFences::default()));
        meta.levels.extend_from_slice(below);
        Self::growing(Arc::new(meta), levels)
    }

    /// Makes sure that the top fences are in memory.
    ///
    /// # Errors
    /// When they cannot be read: nothing in the tree can be found then.
    pub(crate) fn enter(&self, reader: &BlockReader) -> Result<()> {
        let Some(top) = self.levels.first() else { return Ok(()) };
        if top.held.get().is_none() {
            if self.growing {
                // Its last top fences are in no block: only the merge itself can read the rest.
                return Err(Error::Corrupt {
                    file: DATA_FILE.into(),
                    offset: self.meta.top.first().map_or(0, BlockPtr::offset),
                    what: "top fences of a merge under way could not be read".into(),
                });
            }
            let _first = top.held.set(Arc::new(read_top_fences(reader, &self.meta)?));
        }
        Ok(())
    }

    /// Whether the fences in memory are all that its record has at their levels.
    pub(crate) const fn is_complete(&self) -> bool {
        !self.growing && !self.is_trimmed
    }

    /// The same level with what is known of its sequence numbers.
    pub(crate) fn with_numbers(self, numbers: Numbers) -> Self {
        Self { numbers: Some(numbers), ..self }
    }

    /// The sequence numbers of a level's data.
    pub(crate) fn numbers(&self, level: usize) -> Cow<'_, Numbers> {
        match &self.numbers {
            Some(numbers) if level + 1 == self.height() => Cow::Borrowed(numbers),
            _ => {
                let newest = self.meta.levels.get(level).map_or(Seq::MAX, |level| level.seqs.1);
                Cow::Owned(Numbers::up_to(newest))
            }
        }
    }

    /// Whether it is a level with scattered blocks.
    pub(crate) const fn is_level(&self) -> bool {
        self.is_level
    }

    /// Number of materialised levels.
    pub(crate) fn height(&self) -> usize {
        self.levels.len()
    }

    /// The fences to level `level`, if they are all in memory.
    pub(crate) fn fences(&self, level: usize) -> Option<&FenceIndex> {
        self.known_fences(level).filter(|fences| fences.is_complete())
    }

    /// The fences to level `level` that are in memory, for searches.
    pub(crate) fn known_fences(&self, level: usize) -> Option<&FenceIndex> {
        self.levels.get(level)?.held.get().map(Arc::as_ref)
    }

    /// The fences to blocks of `level` that are in no block of the level above yet.
    pub(crate) fn tail(&self, level: usize) -> Option<&FenceIndex> {
        self.levels.get(level)?.tail.as_deref()
    }

    /// The fences to level `level` that are in memory, shared.
    pub(crate) fn held(&self, level: usize) -> Option<Arc<FenceIndex>> {
        self.levels.get(level)?.held.get().cloned()
    }

    /// Whether the level has no blocks (yet).
    pub(crate) fn is_empty(&self, level: usize) -> bool {
        self.meta.levels.get(level).is_none_or(|level| level.counts.blocks == 0)
    }

    /// Memory that fences take, in bytes.
    pub(crate) fn fence_memory_bytes(&self) -> u64 {
        (0..self.height())
            .filter_map(|level| self.known_fences(level))
            .map(FenceIndex::memory_bytes)
            .sum()
    }
}

pub(crate) fn read_top_fences(reader: &BlockReader, meta: &TreeMeta) -> Result<FenceIndex> {
    let mut top = FenceIndex::counted(Account::required(&reader.budget));
    for ptr in &meta.top {
        let read = reader.blocks.read_uncached(reader.keyspace, ptr, Purpose::Recovery)?;
        push_fences(&mut top, read.view()).map_err(|error| reader.damage(ptr, &error))?;
    }
    top.finish();
    Ok(top)
}

/// Adds the fences of a block to an index.
pub(crate) fn push_fences(index: &mut FenceIndex, view: BlockView<'_>) -> esker_format::Result<()> {
    let mut key = Vec::new();
    for number in 0..view.len() {
        let entry = view.entry(number)?;
        let fence = view.fence(number)?;
        key.clear();
        view.append_key(entry.suffix, &mut key);
        let seq: Seq = entry.seq;
        if index.last_key().is_some_and(|last| key::compare(last, (&key, seq)).is_ge()) {
            return Err(DecodeError::new(0, "fences are out of order"));
        }
        let _counted_in_any_case = index.push(&KeyedFence { key: &key, seq, fence });
    }
    Ok(())
}
