//! A cursor over a level in key order, in both directions.
//!
//! The order of a level's blocks is the order of its fences and nothing else, so a cursor walks a
//! stack of parents: through the express fences where they are in memory, else through the blocks
//! of the level above, and theirs; in a growing tree the level's tail comes behind those.
//!
//! A merge that consumes the tree frees blocks that hold nothing behind its wavefront, of every
//! level that it merges. A cursor with that wavefront as its *floor* does not go back past it, on
//! any level of its stack: everything before a fence at or before the floor is at or before the
//! floor too, whichever of a block's fences (I2) that is.

use std::ops::Bound;
use std::sync::Arc;

use esker_format::DecodeError;
use esker_format::block::BlockView;
use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::key;
use esker_format::ptr::BlockPtr;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::cache::CachedBlock;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};
use smallvec::SmallVec;

use crate::run::fence_index::{FenceIndex, KeyedFence, Place};
use crate::run::tree::{BlockReader, Tree};

/// Most blocks of one level that are read ahead: a write unit's length.
pub(crate) const BLOCKS_AHEAD: usize = 64;

/// A position on the fence to one block of a level.
#[derive(Clone, Debug)]
pub struct FenceCursor<'a> {
    tree: &'a Tree,
    reader: &'a BlockReader,
    pub(crate) level: usize,
    /// No key at or before this one is searched for: blocks there may have been freed, and their
    /// space reused.
    floor: Option<&'a [u8]>,
    at: At<'a>,
}

#[derive(Clone, Debug)]
enum At<'a> {
    /// In the express fences.
    Express(Place),
    /// In the level's tail.
    Tail(Place),
    /// In a block of the level above; with the block that the fence names.
    Block { parent: Box<FenceCursor<'a>>, block: Arc<CachedBlock>, index: usize, ptr: BlockPtr },
}

/// The fence of a level that is searched for.
#[derive(Clone, Copy, Debug)]
pub enum Target<'k> {
    /// The last one at or before an internal key.
    At(&'k [u8], Seq),
    /// The last one before an internal key.
    Before(&'k [u8], Seq),
    /// The last one of all.
    Last,
}

impl Target<'_> {
    fn in_index(&self, fences: &FenceIndex) -> Option<Place> {
        match *self {
            Self::Last => fences.last(),
            Self::At(key, seq) => fences.find(key, seq),
            Self::Before(key, seq) => {
                let at = fences.find(key, seq)?;
                let same = fences.get(at).is_some_and(|f| (f.key, f.seq) == (key, seq));
                if same { fences.previous(at) } else { Some(at) }
            }
        }
    }

    fn in_block(&self, view: BlockView<'_>) -> esker_format::Result<Option<usize>> {
        match *self {
            Self::Last => view.fence_before(view.len()),
            Self::At(key, seq) => view.fence_index(key, seq),
            Self::Before(key, seq) => view.fence_before(view.lower_bound(key, seq)?),
        }
    }
}

/// A fence with its key, on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedFence {
    /// The least user key that may enter the block.
    pub key: Vec<u8>,
    /// The largest number at that key.
    pub seq: Seq,
    /// The block.
    pub ptr: BlockPtr,
    /// Puts in the block.
    pub puts: u32,
    /// Tombstones in the block.
    pub tombstones: u32,
    /// The block's filter.
    pub filter: Vec<u8>,
}

/// A key in the memory of what holds it, if it is short: cursors move often.
pub(crate) type ShortKey = SmallVec<[u8; 32]>;

/// The key of a fence, on its own.
#[derive(Clone, Debug)]
pub(crate) struct FenceKey {
    /// The least user key that may enter the block.
    pub key: ShortKey,
    /// The largest number at that key.
    pub seq: Seq,
}

/// The key of an entry of a block.
pub(crate) fn whole_key(view: BlockView<'_>, suffix: &[u8]) -> ShortKey {
    let mut key = ShortKey::from_slice(view.prefix());
    key.extend_from_slice(suffix);
    key
}

impl FenceKey {
    /// The first key all of whose versions are behind the fence: a fence with a sequence number is
    /// between the versions of its key.
    pub(crate) fn first_whole_key(mut self) -> Vec<u8> {
        if self.seq != Seq::MAX {
            self.key.push(0);
        }
        self.key.into_vec()
    }
}

impl<'a> FenceCursor<'a> {
    /// The fence to the first block of `level`.
    pub(crate) fn first(
        tree: &'a Tree,
        reader: &'a BlockReader,
        level: usize,
    ) -> Result<Option<Self>> {
        Self::find(tree, reader, level, Target::At(&[], Seq::MAX))
    }

    /// The fence that `target` names; one block is read a level without express fences.
    pub(crate) fn find(
        tree: &'a Tree,
        reader: &'a BlockReader,
        level: usize,
        target: Target<'_>,
    ) -> Result<Option<Self>> {
        Self::find_behind(tree, reader, level, target, None)
    }

    /// The same in a tree of which a merge has passed everything at or before `floor`; `target` is
    /// behind `floor`.
    pub(crate) fn find_behind(
        tree: &'a Tree,
        reader: &'a BlockReader,
        level: usize,
        target: Target<'_>,
        floor: Option<&'a [u8]>,
    ) -> Result<Option<Self>> {
        tree.enter(reader)?;
        if let Some(fences) = tree.fences(level) {
            let at = target.in_index(fences).map(At::Express);
            return Ok(at.map(|at| Self { tree, reader, level, floor, at }));
        }
        if let Some(place) = tree.tail(level).and_then(|tail| target.in_index(tail)) {
            return Ok(Some(Self { tree, reader, level, floor, at: At::Tail(place) }));
        }
        let Some(above) = level.checked_sub(1) else { return Ok(None) };
        let parent = Self::find_behind(tree, reader, above, target, floor)?;
        let Some(parent) = parent else { return Ok(None) };
        let block = parent.load()?;
        let index = target.in_block(block.view());
        Self::in_block(parent, block, index).map(Some)
    }

    fn in_block(
        parent: Self,
        block: Arc<CachedBlock>,
        index: esker_format::Result<Option<usize>>,
    ) -> Result<Self> {
        let Self { tree, reader, floor, .. } = parent;
        let level = parent.level + 1;
        let fence = index.and_then(|index| {
            let Some(index) = index else { return Ok(None) };
            Ok(Some((index, block.view().fence(index)?.ptr)))
        });
        match fence {
            Ok(Some((index, ptr))) => {
                let at = At::Block { parent: Box::new(parent), block, index, ptr };
                Ok(Self { tree, reader, level, floor, at })
            }
            Ok(None) => Err(Error::Corrupt {
                file: DATA_FILE.into(),
                offset: parent.ptr()?.offset(),
                what: "a block above the last level lacks a required fence (levels/fenced)".into(),
            }),
            Err(error) => Err(reader.damage(&parent.ptr()?, &error)),
        }
    }

    /// Damage of the block of the level above that contains the fence.
    fn damaged(&self, parent: &Self, error: &DecodeError) -> Error {
        match parent.ptr() {
            Ok(ptr) => self.reader.damage(&ptr, error),
            Err(other) => other,
        }
    }

    /// Calls `use_it` with the fence.
    pub(crate) fn with_current<T>(&self, use_it: impl FnOnce(&KeyedFence<'_>) -> T) -> Result<T> {
        match &self.at {
            At::Express(place) => in_memory(self.tree.fences(self.level), *place, use_it),
            At::Tail(place) => in_memory(self.tree.tail(self.level), *place, use_it),
            At::Block { parent, block, index, .. } => {
                let view = block.view();
                let entry = view.entry(*index);
                let entry = entry.map_err(|error| self.damaged(parent, &error))?;
                let Payload::Fence(fence) = entry.payload else {
                    let error = DecodeError::new(0, "entry is not a fence");
                    return Err(self.damaged(parent, &error));
                };
                let key = whole_key(view, entry.suffix);
                Ok(use_it(&KeyedFence { key: &key, seq: entry.seq, fence }))
            }
        }
    }

    /// Calls `use_it` with the fence's key and number: at less cost than with the fence.
    fn with_key<T>(&self, use_it: impl FnOnce(&[u8], Seq) -> T) -> Result<T> {
        match &self.at {
            At::Express(_) | At::Tail(_) => self.with_current(|fence| use_it(fence.key, fence.seq)),
            At::Block { parent, block, index, .. } => {
                let view = block.view();
                let entry = view.entry_key(*index);
                let (_, suffix, seq) = entry.map_err(|error| self.damaged(parent, &error))?;
                Ok(use_it(&whole_key(view, suffix), seq))
            }
        }
    }

    /// The fence's key and number, copied.
    pub(crate) fn key(&self) -> Result<FenceKey> {
        self.with_key(|key, seq| FenceKey { key: key.into(), seq })
    }

    /// The fence, copied.
    pub(crate) fn owned(&self) -> Result<OwnedFence> {
        self.with_current(|at| OwnedFence {
            key: at.key.to_vec(),
            seq: at.seq,
            ptr: at.fence.ptr,
            puts: at.fence.puts,
            tombstones: at.fence.tombstones,
            filter: at.fence.filter.to_vec(),
        })
    }

    /// The block that the fence names.
    pub(crate) fn ptr(&self) -> Result<BlockPtr> {
        match &self.at {
            At::Express(_) | At::Tail(_) => self.with_current(|fence| fence.fence.ptr),
            At::Block { ptr, .. } => Ok(*ptr),
        }
    }

    /// The block of the level above that contains the fence, if there is one.
    pub(crate) fn parent_ptr(&self) -> Result<Option<BlockPtr>> {
        match &self.at {
            At::Express(_) | At::Tail(_) => Ok(None),
            At::Block { parent, .. } => parent.ptr().map(Some),
        }
    }

    /// Reads the block that the fence names, through the cache.
    pub(crate) fn load(&self) -> Result<Arc<CachedBlock>> {
        self.reader.read(&self.ptr()?)
    }

    /// The fence to the next block of the level.
    pub(crate) fn next(self) -> Result<Option<Self>> {
        self.step(true)
    }

    /// The fence to the block before.
    pub(crate) fn previous(self) -> Result<Option<Self>> {
        self.step(false)
    }

    /// I2's duplicates name the block that the neighbouring fence names: they are passed over.
    ///
    /// Fences that do not ascend are refused, so that no content sends a walk round in circles.
    /// Back from a fence at or before the floor, be it a duplicate, there is nothing.
    pub(crate) fn step(mut self, forward: bool) -> Result<Option<Self>> {
        let from = self.ptr()?;
        let origin = match self.at {
            At::Express(_) => None,
            _ => Some(self.key()?),
        };
        loop {
            if !forward && self.is_at_floor()? {
                return Ok(None);
            }
            let moved = match self.at {
                At::Express(place) => {
                    let fences = self.tree.fences(self.level);
                    let place = fences.and_then(|fences| {
                        if forward { fences.next(place) } else { fences.previous(place) }
                    });
                    return Ok(place.map(|place| Self { at: At::Express(place), ..self }));
                }
                At::Tail(place) => self.step_in_tail(place, forward)?,
                At::Block { parent, block, index, .. } => {
                    let Self { tree, reader, level, floor, .. } = self;
                    let moved = Self::step_in_block(*parent, block, index, forward)?;
                    // Behind the last block above comes the tail.
                    let tail = tree.tail(level).filter(|_| forward && moved.is_none());
                    let first = tail.and_then(FenceIndex::first).map(At::Tail);
                    moved.or_else(|| first.map(|at| Self { tree, reader, level, floor, at }))
                }
            };
            match moved {
                None => return Ok(None),
                Some(moved) if moved.ptr()? != from => {
                    let goes_on = moved.with_key(|key, seq| {
                        let Some(origin) = &origin else { return true };
                        let order = key::compare((&origin.key, origin.seq), (key, seq));
                        if forward { order.is_lt() } else { order.is_gt() }
                    })?;
                    return if goes_on { Ok(Some(moved)) } else { Err(out_of_order(&from)) };
                }
                Some(duplicate) => self = duplicate,
            }
        }
    }

    /// Whether the fence is beyond the end of a walk.
    pub(crate) fn is_beyond(&self, end: Bound<&[u8]>, forward: bool) -> bool {
        let is_beyond = |key: &[u8]| match end {
            Bound::Unbounded => false,
            Bound::Included(end) | Bound::Excluded(end) if !forward => key < end,
            Bound::Included(end) => key > end,
            Bound::Excluded(end) => key >= end,
        };
        end != Bound::Unbounded && self.with_key(|key, _| is_beyond(key)).unwrap_or(true)
    }

    /// Whether everything before the fence is at or before the floor.
    fn is_at_floor(&self) -> Result<bool> {
        match self.floor {
            Some(floor) if !planted::is(Bug::FloorIgnored) => self.with_key(|key, _| key <= floor),
            _ => Ok(false),
        }
    }

    /// The neighbour of a fence in the level's tail; before the first one come the blocks of the
    /// level above.
    fn step_in_tail(&self, place: Place, forward: bool) -> Result<Option<Self>> {
        let Self { tree, reader, level, floor, .. } = *self;
        let tail = tree.tail(level);
        let moved = tail.and_then(|t| if forward { t.next(place) } else { t.previous(place) });
        if moved.is_some() || forward {
            let at = |place| Self { tree, reader, level, floor, at: At::Tail(place) };
            return Ok(moved.map(at));
        }
        let Some(above) = level.checked_sub(1) else { return Ok(None) };
        let parent = Self::find_behind(tree, reader, above, Target::Last, floor)?;
        let Some(parent) = parent else { return Ok(None) };
        let block = parent.load()?;
        let last = block.view().fence_before(block.view().len());
        Self::in_block(parent, block, last).map(Some)
    }

    fn step_in_block(
        parent: Self,
        block: Arc<CachedBlock>,
        index: usize,
        forward: bool,
    ) -> Result<Option<Self>> {
        let view = block.view();
        let found = if forward { view.fence_from(index + 1) } else { view.fence_before(index) };
        if !matches!(found, Ok(None)) {
            return Self::in_block(parent, block, found).map(Some);
        }
        let parent = if forward { parent.next()? } else { parent.previous()? };
        let Some(parent) = parent else { return Ok(None) };
        let block = parent.load()?;
        let view = block.view();
        let index = if forward { view.fence_from(0) } else { view.fence_before(view.len()) };
        Self::in_block(parent, block, index).map(Some)
    }
}

fn in_memory<T>(
    fences: Option<&FenceIndex>,
    place: Place,
    use_it: impl FnOnce(&KeyedFence<'_>) -> T,
) -> Result<T> {
    let fence = fences.and_then(|fences| fences.get(place));
    fence.map(|fence| use_it(&fence)).ok_or_else(lost_place)
}

fn out_of_order(ptr: &BlockPtr) -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: ptr.offset(),
        what: "the fences around the one to this block are out of order".into(),
    }
}

fn lost_place() -> Error {
    // Places come from the same index, which never shrinks.
    Error::Invalid { what: "a cursor lost its place".into() }
}
