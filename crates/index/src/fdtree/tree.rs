//! A tree on the device: top fences in memory, levels of immutable blocks below.
//!
//! The main tree and every spill run have this form; a spill run's only level with data is its
//! last one.
//!
//! Invariant T1: level i's blocks are named by the fences of level i-1, level 0's by the top
//! fences, which are always in memory.
//! Invariant T2: `fences[i]`, where present, holds exactly the fences to level i's blocks,
//! without I2's duplicates.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use esker_device::Purpose;
use esker_format::DecodeError;
use esker_format::block::BlockView;
use esker_format::ids::{KeyspaceId, Seq};
use esker_format::key;
use esker_format::meta::TreeMeta;
use esker_format::ptr::BlockPtr;
use esker_substrate::blocks::{BlockStore, DATA_FILE};
use esker_substrate::budget::{Budget, Lease, Part};
use esker_substrate::cache::CachedBlock;
use esker_substrate::error::{Error, Result};
use parking_lot::Mutex;

use super::cursor::FenceCursor;
use super::fence_index::{FenceIndex, KeyedFence};

/// How a keyspace's blocks are read.
#[derive(Clone, Debug)]
pub struct BlockReader {
    /// The data file.
    pub blocks: Arc<BlockStore>,
    /// Whose blocks they must be.
    pub keyspace: KeyspaceId,
    /// What fences in memory are counted against.
    pub budget: Arc<Budget>,
}

impl BlockReader {
    /// Reads a block through the cache, at most one I/O.
    pub(super) fn read(&self, ptr: &BlockPtr) -> Result<Arc<CachedBlock>> {
        self.blocks.read(self.keyspace, ptr, Purpose::User)
    }

    /// Names the place of damage that a view found inside a block.
    pub(super) fn damage(&self, ptr: &BlockPtr, error: &DecodeError) -> Error {
        Error::corrupt(DATA_FILE, ptr.offset(), error)
    }
}

/// Fences of one level, counted against the budget as long as they live.
#[derive(Debug)]
pub struct HeldFences {
    pub(super) index: FenceIndex,
    /// Top fences are held whatever the budget says: without them nothing can be found.
    _lease: Lease,
}

impl HeldFences {
    /// Fences that must be held.
    pub(super) fn required(index: FenceIndex, budget: &Arc<Budget>) -> Arc<Self> {
        let lease = budget.lease(Part::Fences, index.memory_bytes());
        Arc::new(Self { index, _lease: lease })
    }

    /// Fences that are held if there is room for them.
    pub(super) fn optional(index: FenceIndex, budget: &Arc<Budget>) -> Option<Arc<Self>> {
        let lease = budget.try_lease(Part::Fences, index.memory_bytes())?;
        Some(Arc::new(Self { index, _lease: lease }))
    }
}

/// One tree.
#[derive(Debug, Default)]
pub struct Tree {
    pub(super) meta: TreeMeta,
    levels: Vec<LevelFences>,
}

#[derive(Debug, Default)]
struct LevelFences {
    held: OnceLock<Arc<HeldFences>>,
    /// Searches that came through the level above since the tree was opened.
    detours: AtomicU64,
    building: Mutex<()>,
}

impl Tree {
    /// A tree just written: its fences level by level, as far as they are held.
    pub(super) fn written(meta: TreeMeta, fences: Vec<Option<Arc<HeldFences>>>) -> Self {
        let level = |held: Option<Arc<HeldFences>>| {
            let fences = LevelFences::default();
            if let Some(held) = held {
                let _first = fences.held.set(held);
            }
            fences
        };
        Self { meta, levels: fences.into_iter().map(level).collect() }
    }

    /// Opens a tree: reads the blocks of its top fences, one I/O each. Where they cannot be
    /// read, this tree's keys are out of reach, and no other tree's; who asks for them makes
    /// another try.
    pub(super) fn open(reader: &BlockReader, meta: TreeMeta) -> Self {
        let fences = meta.levels.iter().map(|_| None).collect();
        let tree = Self::written(meta, fences);
        if let Err(error) = tree.enter(reader) {
            tracing::warn!(keyspace = reader.keyspace.0, %error, "top fences cannot be read");
        }
        tree
    }

    /// Makes sure that the top fences are in memory.
    ///
    /// # Errors
    /// When they cannot be read: nothing in the tree can be found then.
    pub(super) fn enter(&self, reader: &BlockReader) -> Result<()> {
        let Some(top) = self.levels.first() else { return Ok(()) };
        if top.held.get().is_none() {
            let index = read_top_fences(reader, &self.meta)?;
            let _first = top.held.set(HeldFences::required(index, &reader.budget));
        }
        Ok(())
    }

    /// Number of materialised levels.
    pub(super) fn height(&self) -> usize {
        self.levels.len()
    }

    /// The fences to level `level`, if they are in memory.
    pub(super) fn fences(&self, level: usize) -> Option<&FenceIndex> {
        self.levels.get(level)?.held.get().map(|held| &held.index)
    }

    /// The fences to level `level`, shared.
    pub(super) fn held(&self, level: usize) -> Option<Arc<HeldFences>> {
        self.levels.get(level)?.held.get().cloned()
    }

    /// Lets go of the express fences of the upper `levels` levels, which are about to be replaced:
    /// their memory goes to the fences that replace them. The top fences stay.
    pub(super) fn forget_express_fences(&mut self, levels: usize) {
        for level in self.levels.iter_mut().take(levels).skip(1) {
            level.held.take();
        }
    }

    /// Memory that fences take, in bytes.
    pub(super) fn fence_memory_bytes(&self) -> u64 {
        (0..self.height())
            .filter_map(|level| self.fences(level))
            .map(FenceIndex::memory_bytes)
            .sum()
    }

    /// Notes that a search of `level` had to go through the level above, and loads the level's
    /// fences once such detours have cost about as much as loading them: one read per block of
    /// the level above.
    pub(super) fn note_detour(&self, level: usize, reader: &BlockReader) {
        let Some(fences) = self.levels.get(level) else { return };
        let above = level.checked_sub(1).and_then(|above| self.meta.levels.get(above));
        let blocks_above = above.map_or(0, |above| above.counts.blocks);
        if fences.detours.fetch_add(1, Ordering::Relaxed) < blocks_above {
            return;
        }
        let Some(_only_one) = fences.building.try_lock() else { return };
        if fences.held.get().is_some() {
            return;
        }
        // A level that is damaged above, or too large for the budget, is tried again only after
        // as many detours.
        fences.detours.store(0, Ordering::Relaxed);
        if let Ok(Some(index)) = self.load_fences(level, reader)
            && let Some(held) = HeldFences::optional(index, &reader.budget)
        {
            let _first = fences.held.set(held);
        }
    }

    fn load_fences(&self, level: usize, reader: &BlockReader) -> Result<Option<FenceIndex>> {
        let budget = &reader.budget;
        let room = budget.limit_bytes(Part::Fences).saturating_sub(budget.used_bytes(Part::Fences));
        let mut index = FenceIndex::default();
        let mut cursor = FenceCursor::first(self, reader, level)?;
        while let Some(at) = cursor {
            at.with_current(|fence| index.push(fence))?;
            if index.memory_bytes() > room {
                return Ok(None);
            }
            cursor = at.next()?;
        }
        index.shrink();
        Ok(Some(index))
    }
}

fn read_top_fences(reader: &BlockReader, meta: &TreeMeta) -> Result<FenceIndex> {
    let mut top = FenceIndex::default();
    for ptr in &meta.top {
        let read = reader.blocks.read_uncached(reader.keyspace, ptr, Purpose::Recovery)?;
        push_fences(&mut top, read.view()).map_err(|error| reader.damage(ptr, &error))?;
    }
    top.shrink();
    Ok(top)
}

/// Adds the fences of a block to an index.
fn push_fences(index: &mut FenceIndex, view: BlockView<'_>) -> esker_format::Result<()> {
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
        index.push(&KeyedFence { key: &key, seq, fence });
    }
    Ok(())
}
