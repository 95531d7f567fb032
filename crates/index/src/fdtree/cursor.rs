//! Walking a level in key order, both ways.
//!
//! The order of a level's blocks is the order of its fences and nothing else, so a cursor walks a
//! stack of parents: through the express fences where they are in memory, else through the blocks
//! of the level above, and theirs; in a growing tree the level's tail comes behind those.

use std::sync::Arc;

use esker_format::block::BlockView;
use esker_format::entry::{Entry, Payload};
use esker_format::ids::Seq;
use esker_format::key;
use esker_format::ptr::BlockPtr;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::cache::CachedBlock;
use esker_substrate::error::{Error, Result};

use super::fence_index::{FenceIndex, KeyedFence, Place};
use super::tree::{BlockReader, Tree};

/// Most blocks of one level that are read ahead: a write unit's length.
pub(super) const BLOCKS_AHEAD: usize = 64;

/// A position on the fence to one block of a level.
#[derive(Clone, Debug)]
pub struct FenceCursor<'a> {
    tree: &'a Tree,
    reader: &'a BlockReader,
    level: usize,
    at: At<'a>,
}

#[derive(Clone, Debug)]
enum At<'a> {
    /// In the express fences.
    Express(Place),
    /// In the level's tail.
    Tail(Place),
    /// In a block of the level above.
    Block { parent: Box<FenceCursor<'a>>, block: Arc<CachedBlock>, index: usize },
}

/// Which fence of a level is looked for.
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

impl OwnedFence {
    /// The first key all of whose versions are behind the fence: a fence with a number stands
    /// between the versions of its key.
    fn first_whole_key(mut self) -> Vec<u8> {
        if self.seq != Seq::MAX {
            self.key.push(0);
        }
        self.key
    }
}

impl<'a> FenceCursor<'a> {
    /// The fence to the first block of `level`.
    pub(super) fn first(
        tree: &'a Tree,
        reader: &'a BlockReader,
        level: usize,
    ) -> Result<Option<Self>> {
        Self::find(tree, reader, level, Target::At(&[], Seq::MAX))
    }

    /// The fence that `target` names; one block is read a level without express fences.
    pub(super) fn find(
        tree: &'a Tree,
        reader: &'a BlockReader,
        level: usize,
        target: Target<'_>,
    ) -> Result<Option<Self>> {
        tree.enter(reader)?;
        if let Some(fences) = tree.fences(level) {
            let at = target.in_index(fences).map(At::Express);
            return Ok(at.map(|at| Self { tree, reader, level, at }));
        }
        if let Some(place) = tree.tail(level).and_then(|tail| target.in_index(tail)) {
            return Ok(Some(Self { tree, reader, level, at: At::Tail(place) }));
        }
        let Some(above) = level.checked_sub(1) else { return Ok(None) };
        let Some(parent) = Self::find(tree, reader, above, target)? else { return Ok(None) };
        let block = parent.load()?;
        let index = target.in_block(block.view());
        Self::in_block(parent, block, index).map(Some)
    }

    fn in_block(
        parent: Self,
        block: Arc<CachedBlock>,
        index: esker_format::Result<Option<usize>>,
    ) -> Result<Self> {
        let ptr = parent.ptr()?;
        let (tree, reader, level) = (parent.tree, parent.reader, parent.level + 1);
        match index {
            Ok(Some(index)) => {
                let at = At::Block { parent: Box::new(parent), block, index };
                Ok(Self { tree, reader, level, at })
            }
            Ok(None) => Err(Error::Corrupt {
                file: DATA_FILE.into(),
                offset: ptr.offset(),
                what: "a block above the bottom has no fence where one must be (I2)".into(),
            }),
            Err(error) => Err(reader.damage(&ptr, &error)),
        }
    }

    /// Calls `use_it` with the fence.
    pub(super) fn with_current<T>(&self, use_it: impl FnOnce(&KeyedFence<'_>) -> T) -> Result<T> {
        match &self.at {
            At::Express(place) => in_memory(self.tree.fences(self.level), *place, use_it),
            At::Tail(place) => in_memory(self.tree.tail(self.level), *place, use_it),
            At::Block { parent, block, index } => {
                let view = block.view();
                let damage = |error| match parent.ptr() {
                    Ok(ptr) => self.reader.damage(&ptr, &error),
                    Err(other) => other,
                };
                let entry = view.entry(*index).map_err(damage)?;
                let fence = view.fence(*index).map_err(damage)?;
                let mut key = Vec::with_capacity(64);
                view.append_key(entry.suffix, &mut key);
                Ok(use_it(&KeyedFence { key: &key, seq: entry.seq, fence }))
            }
        }
    }

    /// The fence, copied.
    pub(super) fn owned(&self) -> Result<OwnedFence> {
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
    pub(super) fn ptr(&self) -> Result<BlockPtr> {
        match &self.at {
            At::Express(_) | At::Tail(_) => self.with_current(|fence| fence.fence.ptr),
            At::Block { parent, block, index } => {
                let fence = block.view().fence(*index);
                match fence {
                    Ok(fence) => Ok(fence.ptr),
                    Err(error) => Err(self.reader.damage(&parent.ptr()?, &error)),
                }
            }
        }
    }

    /// The block of the level above that the fence stands in, if it does.
    pub(super) fn parent_ptr(&self) -> Result<Option<BlockPtr>> {
        match &self.at {
            At::Express(_) | At::Tail(_) => Ok(None),
            At::Block { parent, .. } => parent.ptr().map(Some),
        }
    }

    /// Reads the block that the fence names, through the cache.
    pub(super) fn load(&self) -> Result<Arc<CachedBlock>> {
        self.reader.read(&self.ptr()?)
    }

    /// The fence to the next block of the level.
    pub(super) fn next(self) -> Result<Option<Self>> {
        self.step(true)
    }

    /// The fence to the block before.
    pub(super) fn previous(self) -> Result<Option<Self>> {
        self.step(false)
    }

    /// I2's duplicates name the block that the neighbouring fence names: they are passed over.
    ///
    /// Fences that do not ascend are refused, so that no content sends a walk round in circles.
    fn step(mut self, forward: bool) -> Result<Option<Self>> {
        let from = self.ptr()?;
        let origin = if matches!(self.at, At::Express(_)) { None } else { Some(self.owned()?) };
        loop {
            let moved = match self.at {
                At::Express(place) => {
                    let fences = self.tree.fences(self.level);
                    let place = fences.and_then(|fences| {
                        if forward { fences.next(place) } else { fences.previous(place) }
                    });
                    return Ok(place.map(|place| Self { at: At::Express(place), ..self }));
                }
                At::Tail(place) => self.step_in_tail(place, forward)?,
                At::Block { parent, block, index } => {
                    let (tree, reader, level) = (self.tree, self.reader, self.level);
                    let moved = Self::step_in_block(*parent, block, index, forward)?;
                    // Behind the last block above comes the tail.
                    let tail = tree.tail(level).filter(|_| forward && moved.is_none());
                    let first = tail.and_then(FenceIndex::first).map(At::Tail);
                    moved.or_else(|| first.map(|at| Self { tree, reader, level, at }))
                }
            };
            match moved {
                None => return Ok(None),
                Some(moved) if moved.ptr()? != from => {
                    let here = |here: &KeyedFence<'_>| {
                        let Some(origin) = &origin else { return true };
                        let order = key::compare((&origin.key, origin.seq), (here.key, here.seq));
                        if forward { order.is_lt() } else { order.is_gt() }
                    };
                    let goes_on = moved.with_current(here)?;
                    return if goes_on { Ok(Some(moved)) } else { Err(out_of_order(&from)) };
                }
                Some(duplicate) => self = duplicate,
            }
        }
    }

    /// The neighbour of a fence in the level's tail; before the first one come the blocks of the
    /// level above.
    fn step_in_tail(&self, place: Place, forward: bool) -> Result<Option<Self>> {
        let (tree, reader, level) = (self.tree, self.reader, self.level);
        let tail = tree.tail(level);
        let moved = tail.and_then(|t| if forward { t.next(place) } else { t.previous(place) });
        if moved.is_some() || forward {
            return Ok(moved.map(|place| Self { tree, reader, level, at: At::Tail(place) }));
        }
        let Some(above) = level.checked_sub(1) else { return Ok(None) };
        let Some(parent) = Self::find(tree, reader, above, Target::Last)? else { return Ok(None) };
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
        what: "fences are out of order beside the one to this block".into(),
    }
}

fn lost_place() -> Error {
    // Places come from the same index that is asked, which never shrinks.
    Error::Invalid { what: "a cursor lost its place".into() }
}

/// A position on a data entry of a level, or past its end.
#[derive(Debug)]
pub struct DataCursor<'a> {
    tree: &'a Tree,
    reader: &'a BlockReader,
    level: usize,
    /// Blocks with nothing behind this key may be gone: a merge has passed them.
    floor: Option<&'a [u8]>,
    at: Option<(FenceCursor<'a>, Arc<CachedBlock>, usize)>,
}

/// A level cannot be read further: the keys in [`from`, `to`) are out of reach.
#[derive(Debug)]
pub struct Unreadable {
    /// First key out of reach.
    pub from: Vec<u8>,
    /// First key within reach again.
    pub to: Option<Vec<u8>>,
    /// Why.
    pub error: Error,
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Self { from: Vec::new(), to: None, error }
    }
}

/// The result of moving a cursor.
pub type CursorResult<T> = std::result::Result<T, Unreadable>;

impl<'a> DataCursor<'a> {
    /// A cursor that stands nowhere yet. It is used only for keys behind `floor`.
    pub(super) const fn new(
        tree: &'a Tree,
        reader: &'a BlockReader,
        level: usize,
        floor: Option<&'a [u8]>,
    ) -> Self {
        Self { tree, reader, level, floor, at: None }
    }

    /// Adds the blocks that a walk over `entries` of `total_entries` will most likely read;
    /// `target` says where it begins. Without express fences the block that leads there is read.
    /// What cannot be read is met again, and reported, by the walk itself.
    pub(super) fn expect(
        &self,
        target: Target<'_>,
        forward: bool,
        entries: usize,
        total_entries: u64,
        ptrs: &mut Vec<BlockPtr>,
    ) {
        if self.tree.fences(self.level).is_none() && self.level > 0 {
            self.tree.note_detour(self.level, self.reader);
        }
        let blocks = self.tree.meta.levels.get(self.level).map_or(0, |level| level.counts.blocks);
        let share = blocks as f64 / total_entries.max(1) as f64;
        // The first block is entered somewhere; behind it come as many as hold the entries.
        let wanted = 1 + (entries as f64 * share).round() as usize;
        let first = FenceCursor::find(self.tree, self.reader, self.level, target).ok().flatten();
        let walk = std::iter::successors(first, |at| at.clone().step(forward).ok().flatten());
        ptrs.extend(walk.take(wanted.min(BLOCKS_AHEAD)).filter_map(|at| at.ptr().ok()));
    }

    /// Data entries of the cursor's level.
    pub(super) fn data_entries(&self) -> u64 {
        let level = self.tree.meta.levels.get(self.level);
        level.map_or(0, |level| level.counts.data_entries())
    }

    /// How blocks are read.
    pub(super) const fn reader(&self) -> &'a BlockReader {
        self.reader
    }

    /// Moves to the first data entry at or behind (`key`, `seq`).
    pub(super) fn seek(&mut self, key: &[u8], seq: Seq) -> CursorResult<()> {
        let Some((fence, block)) = self.enter(Target::At(key, seq))? else { return Ok(()) };
        let index = block.view().lower_bound(key, seq);
        let index = index.map_err(|error| self.damaged(&fence, &error))?;
        self.settle(fence, block, Some(index), true)
    }

    /// Moves to the last data entry before (`key`, `seq`); without a key, to the very last.
    pub(super) fn seek_back(&mut self, before: Option<(&[u8], Seq)>) -> CursorResult<()> {
        let target = before.map_or(Target::Last, |(key, seq)| Target::Before(key, seq));
        let Some((fence, block)) = self.enter(target)? else { return Ok(()) };
        let bound = match before {
            Some((key, seq)) => block.view().lower_bound(key, seq),
            None => Ok(block.view().len()),
        };
        let bound = bound.map_err(|error| self.damaged(&fence, &error))?;
        self.settle(fence, block, bound.checked_sub(1), false)
    }

    fn enter(
        &mut self,
        target: Target<'_>,
    ) -> CursorResult<Option<(FenceCursor<'a>, Arc<CachedBlock>)>> {
        self.at = None;
        let fence = FenceCursor::find(self.tree, self.reader, self.level, target)
            .map_err(|error| self.unreadable_above(target, error))?;
        let Some(fence) = fence else { return Ok(None) };
        let block = self.load(&fence)?;
        Ok(Some((fence, block)))
    }

    /// The entry and its block's common prefix.
    pub(super) fn current(&self) -> CursorResult<Option<(&[u8], Entry<'_>)>> {
        let Some((fence, block, index)) = &self.at else { return Ok(None) };
        let view = block.view();
        let entry = view.entry(*index).map_err(|error| self.damaged(fence, &error))?;
        Ok(Some((view.prefix(), entry)))
    }

    /// Moves one data entry on.
    pub(super) fn next(&mut self) -> CursorResult<()> {
        match self.at.take() {
            Some((fence, block, index)) => self.settle(fence, block, Some(index + 1), true),
            None => Ok(()),
        }
    }

    /// Moves one data entry back.
    pub(super) fn previous(&mut self) -> CursorResult<()> {
        match self.at.take() {
            Some((fence, block, index)) => self.settle(fence, block, index.checked_sub(1), false),
            None => Ok(()),
        }
    }

    /// From `index` on, in the given direction, finds the first data entry and stands there.
    fn settle(
        &mut self,
        mut fence: FenceCursor<'a>,
        mut block: Arc<CachedBlock>,
        mut index: Option<usize>,
        forward: bool,
    ) -> CursorResult<()> {
        loop {
            while let Some(candidate) = index.filter(|index| *index < block.view().len()) {
                let entry = block.view().entry(candidate);
                let entry = entry.map_err(|error| self.damaged(&fence, &error))?;
                if !matches!(entry.payload, Payload::Fence(_)) {
                    self.at = Some((fence, block, candidate));
                    return Ok(());
                }
                index = if forward { Some(candidate + 1) } else { candidate.checked_sub(1) };
            }
            let here = fence.owned()?;
            if !forward && self.reaches_floor(&fence, &here, &block)? {
                return Ok(());
            }
            let moved = if forward { fence.next() } else { fence.previous() };
            let beside = |error| self.unreadable_beside(&here, self.level, error, forward);
            match moved.map_err(beside)? {
                None => return Ok(()),
                Some(moved) => fence = moved,
            }
            block = self.load(&fence)?;
            index = if forward { Some(0) } else { block.view().len().checked_sub(1) };
        }
    }

    /// Whether nothing behind the floor lies before a block: all before it is less than its fence
    /// key, and than its first entry, for the fence may be a duplicate (I2), whose key lies
    /// behind its block's begin.
    fn reaches_floor(
        &self,
        fence: &FenceCursor<'a>,
        here: &OwnedFence,
        block: &CachedBlock,
    ) -> CursorResult<bool> {
        let Some(floor) = self.floor else { return Ok(false) };
        if here.key.as_slice() <= floor {
            return Ok(true);
        }
        let view = block.view();
        let first = view.entry_key(0);
        let (_, first, _) = first.map_err(|error| self.damaged(fence, &error))?;
        Ok([view.prefix(), first].concat().as_slice() <= floor)
    }

    fn load(&self, fence: &FenceCursor<'a>) -> CursorResult<Arc<CachedBlock>> {
        fence.load().map_err(|error| self.unreadable(fence, error))
    }

    fn damaged(&self, fence: &FenceCursor<'a>, error: &esker_format::DecodeError) -> Unreadable {
        match fence.ptr() {
            Ok(ptr) => self.unreadable(fence, self.reader.damage(&ptr, error)),
            Err(other) => self.unreadable(fence, other),
        }
    }

    /// The keys that only the block behind `fence` could answer.
    fn unreadable(&self, fence: &FenceCursor<'a>, error: Error) -> Unreadable {
        let Ok(here) = fence.owned() else { return Unreadable::from(error) };
        let to = match fence.clone().next() {
            Ok(next) => next.and_then(|next| next.owned().ok()).map(OwnedFence::first_whole_key),
            // Damage further up stands between here and there: it ends behind that.
            Err(beside) => self.unreadable_beside(&here, fence.level, beside, true).to,
        };
        Unreadable { from: here.key, to, error }
    }

    /// A block of fences cannot be read on the way to `target`: everything below it is out of
    /// reach.
    fn unreadable_above(&self, target: Target<'_>, error: Error) -> Unreadable {
        for level in (0..self.level).rev() {
            let fence = FenceCursor::find(self.tree, self.reader, level, target);
            if let Ok(Some(fence)) = fence {
                return self.unreadable(&fence, error);
            }
        }
        Unreadable::from(error)
    }

    /// A block of fences beside the current fence of `level` cannot be read. Nothing between the
    /// last readable block and the damage has been answered yet, so it counts as out of reach.
    fn unreadable_beside(
        &self,
        here: &OwnedFence,
        level: usize,
        error: Error,
        forward: bool,
    ) -> Unreadable {
        for level in (0..level).rev() {
            let target = Target::At(&here.key, here.seq);
            let at = FenceCursor::find(self.tree, self.reader, level, target);
            let Ok(Some(at)) = at else { continue };
            // A duplicate fence (I2) leads to a block that reaches over the border between two
            // blocks above it: the damage may be where the current key itself belongs.
            let damaged = match at.load() {
                Err(_) => Some(at),
                Ok(_) if forward => at.next().ok().flatten(),
                Ok(_) => at.previous().ok().flatten(),
            };
            let Some(damaged) = damaged else { continue };
            let mut range = self.unreadable(&damaged, error);
            if forward {
                range.from = range.from.max(here.key.clone());
            } else {
                range.to = Some(here.clone().first_whole_key());
            }
            return range;
        }
        Unreadable { from: Vec::new(), to: None, error }
    }
}
