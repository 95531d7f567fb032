//! A cursor over the data entries of a level, in both directions.
//!
//! A block that cannot be read is reported with the range of keys that it makes unreachable. Where
//! a level has lost keys ([`Consumed`]), blocks that held only such keys are not read: their space
//! may have been reused.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;

use esker_format::action::KeyRange;
use esker_format::block::BlockView;
use esker_format::entry::{Entry, Kind, Payload};
use esker_format::ids::Seq;
use esker_format::ptr::{BlockPtr, SECTOR_BYTES};
use esker_substrate::cache::CachedBlock;
use esker_substrate::error::Error;

use crate::run::consumed::Consumed;
use crate::run::cursor::{BLOCKS_AHEAD, FenceCursor, FenceKey, Target, whole_key};
use crate::run::held_blocks::HeldBlocks;
use crate::run::numbers::Numbers;
use crate::run::tree::{BlockReader, Tree};

/// Most neighbours that are one read, and the part of the memory budget that they may take.
const BLOCKS_TOGETHER: usize = 16;
const TOGETHER_SHARE: u64 = 64;

/// A position on a data entry of a level, or past its end.
#[derive(Debug)]
pub struct DataCursor<'a> {
    tree: &'a Tree,
    reader: &'a BlockReader,
    level: usize,
    /// Blocks with nothing behind this key may have been freed: a merge has passed them.
    floor: Option<&'a [u8]>,
    /// Keys that the level no longer has: blocks that held only such keys may have been freed.
    gone: Option<&'a Consumed>,
    /// The fence that the first search will find, if it is known: a search forward is for a key
    /// that has not been consumed.
    first: Option<FenceCursor<'a>>,
    /// Blocks that are held already.
    held: HeldBlocks,
    /// Blocks that the walk has entered so far, and most that it is expected to enter.
    entered: usize,
    expected: usize,
    /// The block that was looked into last, and whether it may hold any of these keys.
    looked: Option<(Arc<CachedBlock>, bool)>,
    at: Option<(FenceCursor<'a>, Arc<CachedBlock>, usize)>,
}

/// What a walk is expected to read in all levels together.
pub(crate) struct Expected<'k> {
    /// The entries and bytes that the walk takes at most.
    pub entries: usize,
    pub bytes: usize,
    /// The entries and bytes of all levels.
    pub total_entries: u64,
    pub total_bytes: u64,
    pub forward: bool,
    /// The bound at which the walk ends.
    pub end: Bound<&'k [u8]>,
}

impl Expected<'_> {
    /// The blocks of a level that the walk will most likely read behind the first one.
    fn blocks(&self, tree: &Tree, level: usize) -> usize {
        let Some(counts) = tree.meta.levels.get(level).map(|level| &level.counts) else { return 0 };
        let of_entries = self.entries as f64 / self.total_entries.max(1) as f64;
        let of_bytes = self.bytes as f64 / self.total_bytes.max(1) as f64;
        (counts.blocks as f64 * of_entries.min(of_bytes)).round() as usize
    }
}

/// A level cannot be read further: the keys in [`from`, `to`) are out of reach.
#[derive(Debug)]
pub struct Unreadable {
    /// First key out of reach.
    pub from: Vec<u8>,
    /// First key within reach again.
    pub to: Option<Vec<u8>>,
    /// The reason.
    pub error: Error,
}

impl From<Error> for Unreadable {
    fn from(error: Error) -> Self {
        Self { from: Vec::new(), to: None, error }
    }
}

/// The result of moving a cursor.
pub type CursorResult<T> = Result<T, Unreadable>;

impl<'a> DataCursor<'a> {
    /// A cursor without a position yet. It is used only for keys behind `floor`.
    pub(crate) fn new(
        tree: &'a Tree,
        reader: &'a BlockReader,
        level: usize,
        floor: Option<&'a [u8]>,
    ) -> Self {
        let held = HeldBlocks::default();
        let (gone, first, looked, at) = (None, None, None, None);
        let (entered, expected) = (0, usize::MAX);
        Self { tree, reader, level, floor, gone, first, held, entered, expected, looked, at }
    }

    /// The same in a level that has lost keys.
    pub(crate) fn without(self, gone: &'a Consumed) -> Self {
        Self { gone: Some(gone), ..self }
    }

    /// Adds the blocks that a walk will most likely read; it begins at `target`. None of a level
    /// whose keys there are consumed. Without express fences the block that leads there is read.
    /// Unreadable blocks are found again, and reported, by the walk itself.
    pub(crate) fn expect(
        &mut self,
        target: Target<'_>,
        expected: &Expected<'_>,
        ptrs: &mut Vec<BlockPtr>,
    ) {
        let forward = expected.forward;
        if forward && matches!(target, Target::At(key, _) if self.consumed_at(key).is_some()) {
            return;
        }
        if self.tree.fences(self.level).is_none() && self.level > 0 {
            self.tree.note_detour(self.level, self.reader);
        }
        let Some(first) = self.find(self.level, target).ok().flatten() else { return };
        ptrs.extend(first.ptr().ok());
        let blocks = expected.blocks(self.tree, self.level);
        // Levels are not mixed evenly.
        self.expected = 2 * blocks + 1;
        let more = blocks.min(BLOCKS_AHEAD - 1);
        // Where the walk has an end, it is looked for among all blocks that may be read ahead.
        let has_end = expected.end != Bound::Unbounded;
        let within = if has_end { (2 * blocks).min(BLOCKS_AHEAD - 1) } else { more };
        let mut next = (within > 0).then(|| first.clone());
        for behind in 0..within {
            // Before a block that begins below the end of a walk back there is nothing.
            next = next.filter(|at| forward || !at.is_beyond(expected.end, forward));
            next = next.and_then(|at| at.step(forward).ok().flatten());
            next = next.filter(|at| !forward || !at.is_beyond(expected.end, forward));
            let Some(at) = &next else {
                self.expected = 1 + behind;
                break;
            };
            if behind < more {
                ptrs.extend(at.ptr().ok());
            }
        }
        // Back from consumed keys the walk may begin at another fence.
        self.first = Some(first).filter(|_| forward || self.gone.is_none());
    }

    /// Data entries of the cursor's level.
    pub(crate) fn data_entries(&self) -> u64 {
        let level = self.tree.meta.levels.get(self.level);
        level.map_or(0, |level| level.counts.data_entries())
    }

    /// Bytes of the cursor's level.
    pub(crate) fn data_bytes(&self) -> u64 {
        let level = self.tree.meta.levels.get(self.level);
        level.map_or(0, |level| level.counts.sectors * SECTOR_BYTES)
    }

    /// The sequence numbers of the cursor's level.
    pub(crate) fn numbers(&self) -> Cow<'a, Numbers> {
        self.tree.numbers(self.level)
    }

    /// Whether it is known where the first search leads.
    pub(crate) const fn knows_first(&self) -> bool {
        self.first.is_some()
    }

    /// The reader of the level's blocks.
    pub(crate) const fn reader(&self) -> &'a BlockReader {
        self.reader
    }

    /// The consumed keys around `key`.
    pub(crate) fn consumed_at(&self, key: &[u8]) -> Option<KeyRange<'a>> {
        self.gone?.at(key)
    }

    /// Moves to the first data entry at or behind (`key`, `seq`).
    pub(crate) fn seek(&mut self, key: &[u8], seq: Seq) -> CursorResult<()> {
        if let Some(first) = self.first.take() {
            return self.enter_through(Some(first), key, seq);
        }
        if let Some(range) = self.consumed_at(key) {
            self.at = None;
            return range.end.map_or(Ok(()), |end| self.enter_at(end, Seq::MAX));
        }
        self.enter_at(key, seq)
    }

    fn enter_at(&mut self, key: &[u8], seq: Seq) -> CursorResult<()> {
        self.enter_through(None, key, seq)
    }

    /// The same, where the fence may be known.
    fn enter_through(
        &mut self,
        fence: Option<FenceCursor<'a>>,
        key: &[u8],
        seq: Seq,
    ) -> CursorResult<()> {
        let Some((fence, block)) = self.enter(fence, Target::At(key, seq))? else { return Ok(()) };
        let index = block.view().lower_bound(key, seq);
        let index = index.map_err(|error| self.damaged(&fence, &error))?;
        self.seek_entry(fence, block, Some(index), true)
    }

    /// Moves to the last data entry before (`key`, `seq`); without a key, to the very last.
    pub(crate) fn seek_back(&mut self, before: Option<(&[u8], Seq)>) -> CursorResult<()> {
        let range = self.gone.and_then(|gone| match before {
            // Versions of the key itself are before it.
            Some((key, seq)) if seq != Seq::MAX => gone.at(key),
            _ => gone.before(before.map(|(key, _)| key)),
        });
        if let Some(range) = range {
            if range.begin.is_empty() {
                self.at = None;
                return Ok(());
            }
            return self.enter_before(Some((range.begin, Seq::MAX)));
        }
        self.enter_before(before)
    }

    fn enter_before(&mut self, before: Option<(&[u8], Seq)>) -> CursorResult<()> {
        let first = self.first.take();
        if before.is_some_and(|(key, _)| self.floor.is_some_and(|floor| key <= floor)) {
            self.at = None;
            return Ok(());
        }
        let target = before.map_or(Target::Last, |(key, seq)| Target::Before(key, seq));
        let Some((fence, block)) = self.enter(first, target)? else { return Ok(()) };
        let bound = match before {
            Some((key, seq)) => block.view().lower_bound(key, seq),
            None => Ok(block.view().len()),
        };
        let bound = bound.map_err(|error| self.damaged(&fence, &error))?;
        self.seek_entry(fence, block, bound.checked_sub(1), false)
    }

    fn enter(
        &mut self,
        known: Option<FenceCursor<'a>>,
        target: Target<'_>,
    ) -> CursorResult<Option<(FenceCursor<'a>, Arc<CachedBlock>)>> {
        self.at = None;
        let fence = match known {
            Some(known) => Some(known),
            None => {
                let fence = self.find(self.level, target);
                fence.map_err(|error| self.unreadable_above(target, error))?
            }
        };
        let Some(fence) = fence else { return Ok(None) };
        let block = self.load(&fence)?;
        Ok(Some((fence, block)))
    }

    /// The fence of a level of the tree that `target` names.
    fn find(&self, level: usize, target: Target<'_>) -> Result<Option<FenceCursor<'a>>, Error> {
        FenceCursor::find_behind(self.tree, self.reader, level, target, self.floor)
    }

    /// The entry and its block's common prefix.
    pub(crate) fn current(&self) -> CursorResult<Option<(&[u8], Entry<'_>)>> {
        let Some((fence, block, index)) = &self.at else { return Ok(None) };
        let view = block.view();
        let entry = view.entry(*index).map_err(|error| self.damaged(fence, &error))?;
        Ok(Some((view.prefix(), entry)))
    }

    /// Moves to the next entry if it is in the same block and certainly one of the level's data;
    /// returns the length of the block's common prefix, the rest of the key, and the number. Else
    /// the cursor stays where it is.
    #[inline]
    pub(crate) fn step_within(&mut self, forward: bool) -> Option<(usize, &[u8], Seq)> {
        let (_, block, index) = self.at.as_mut()?;
        let is_whole = self.gone.is_none()
            || matches!(&self.looked, Some((looked, false)) if Arc::ptr_eq(looked, block));
        let next = if forward { index.checked_add(1) } else { index.checked_sub(1) }?;
        let view = block.view();
        if !is_whole || next >= view.len() {
            return None;
        }
        let (kind, suffix, seq) = view.entry_key(next).ok()?;
        if kind == Kind::Fence {
            return None;
        }
        *index = next;
        Some((view.prefix().len(), suffix, seq))
    }

    /// Moves one data entry on.
    pub(crate) fn next(&mut self) -> CursorResult<()> {
        match self.at.take() {
            Some((fence, block, index)) => self.seek_entry(fence, block, Some(index + 1), true),
            None => Ok(()),
        }
    }

    /// Moves one data entry back.
    pub(crate) fn previous(&mut self) -> CursorResult<()> {
        match self.at.take() {
            Some((fence, block, index)) => {
                self.seek_entry(fence, block, index.checked_sub(1), false)
            }
            None => Ok(()),
        }
    }

    /// Finds the first data entry from `index` on, in the given direction, and positions the cursor
    /// there.
    fn seek_entry(
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
                    if let Some(range) = self.gone_at(&block, entry.suffix) {
                        return self.pass(range, forward);
                    }
                    self.at = Some((fence, block, candidate));
                    return Ok(());
                }
                index = if forward { Some(candidate + 1) } else { candidate.checked_sub(1) };
            }
            let here = fence.key()?;
            let moved = if forward { fence.next() } else { fence.previous() };
            let unreadable = |error| self.unreadable_fences(&here, self.level, error, forward);
            match moved.map_err(unreadable)? {
                None => return Ok(()),
                Some(moved) => fence = moved,
            }
            if let Some(range) = self.gone_block(&fence, &here, forward)? {
                return self.pass(range, forward);
            }
            self.read_ahead(&fence, forward);
            block = self.load(&fence)?;
            index = if forward { Some(0) } else { block.view().len().checked_sub(1) };
        }
    }

    /// The consumed range that contains an entry's key, if there is one. Few blocks of a level have
    /// such keys: the check is made once per block, and per entry only where it is needed.
    fn gone_at(&mut self, block: &Arc<CachedBlock>, suffix: &[u8]) -> Option<KeyRange<'a>> {
        let gone = self.gone?;
        let known = self.looked.as_ref().filter(|(looked, _)| Arc::ptr_eq(looked, block));
        let meets = known.map_or_else(|| meets(gone, block.view()), |(_, meets)| *meets);
        if known.is_none() {
            self.looked = Some((Arc::clone(block), meets));
        }
        meets.then(|| gone.at(&whole_key(block.view(), suffix)))?
    }

    /// The consumed range that contains all keys of a block, or its first keys if the walk enters
    /// the block from the front; `here` is the fence that the walk comes from.
    fn gone_block(
        &self,
        fence: &FenceCursor<'a>,
        here: &FenceKey,
        forward: bool,
    ) -> CursorResult<Option<KeyRange<'a>>> {
        let Some(gone) = self.gone else { return Ok(None) };
        let moved = fence.key()?;
        let range = gone.at(&moved.key);
        if forward {
            return Ok(range);
        }
        let is_gone = gone.has_block(&moved.key, Some((&here.key, here.seq)));
        Ok(range.filter(|_| is_gone))
    }

    /// Continues behind consumed keys.
    fn pass(&mut self, range: KeyRange<'a>, forward: bool) -> CursorResult<()> {
        self.at = None;
        match (forward, range.end) {
            (true, Some(end)) => self.enter_at(end, Seq::MAX),
            (false, _) if !range.begin.is_empty() => {
                self.enter_before(Some((range.begin, Seq::MAX)))
            }
            _ => Ok(()),
        }
    }

    /// Before the walk goes on to a block that has to be read: reads the neighbours behind it too,
    /// as many as the walk has entered so far, or is expected to enter still. So at most half of
    /// what is read is not used.
    fn read_ahead(&mut self, fence: &FenceCursor<'a>, forward: bool) {
        let Ok(ptr) = fence.ptr() else { return };
        if self.entered < 2 || self.held.has(&ptr) || self.held.is_lost(&ptr) {
            return;
        }
        if self.reader.is_cached(&ptr) {
            return;
        }
        let (mut ptrs, mut next) = (vec![ptr], Some(fence.clone()));
        let (mut last, mut bytes) = (ptr, ptr.bytes() as u64);
        let bytes_max = self.reader.budget.total_bytes() / TOGETHER_SHARE;
        let more = self.entered.min(self.expected.saturating_sub(self.entered));
        while ptrs.len() <= more.min(BLOCKS_TOGETHER - 1) {
            next = next.and_then(|at| at.step(forward).ok().flatten());
            let Some(ptr) = next.as_ref().and_then(|at| at.ptr().ok()) else { break };
            let (before, behind) = if forward { (last, ptr) } else { (ptr, last) };
            if before.offset() + before.bytes() as u64 != behind.offset() {
                break;
            }
            bytes += ptr.bytes() as u64;
            if bytes > bytes_max {
                break;
            }
            ptrs.push(ptr);
            last = ptr;
        }
        if ptrs.len() > 1 {
            self.reader.read_ahead(ptrs, &mut self.held);
        }
    }

    fn load(&mut self, fence: &FenceCursor<'a>) -> CursorResult<Arc<CachedBlock>> {
        self.entered += 1;
        if let Ok(ptr) = fence.ptr()
            && let Some(block) = self.held.take(&ptr)
        {
            return Ok(block);
        }
        fence.load().map_err(|error| self.unreadable(fence, error))
    }

    /// Tells the cursor which blocks are lost.
    pub(crate) fn lose_those_of(&mut self, held: &HeldBlocks) {
        self.held.lose_those_of(held);
    }

    /// Hands the cursor a block that it will read.
    pub(crate) fn hold(&mut self, ptr: BlockPtr, block: Arc<CachedBlock>) {
        self.held.put(ptr, block);
    }

    /// Adds the cursor's current block to `held`. Returns those that it has not read.
    pub(crate) fn release(self, held: &mut HeldBlocks) -> HeldBlocks {
        if let Some((fence, block, _)) = self.at
            && let Ok(ptr) = fence.ptr()
        {
            held.put(ptr, block);
        }
        self.held
    }

    fn damaged(&self, fence: &FenceCursor<'a>, error: &esker_format::DecodeError) -> Unreadable {
        match fence.ptr() {
            Ok(ptr) => self.unreadable(fence, self.reader.damage(&ptr, error)),
            Err(other) => self.unreadable(fence, other),
        }
    }

    /// The keys that only the block behind `fence` could answer.
    fn unreadable(&self, fence: &FenceCursor<'a>, error: Error) -> Unreadable {
        let Ok(here) = fence.key() else { return Unreadable::from(error) };
        let to = match fence.clone().next() {
            Ok(next) => next.and_then(|next| next.key().ok()).map(FenceKey::first_whole_key),
            // Damage further up is between here and there: the unreadable range ends behind that.
            Err(error) => self.unreadable_fences(&here, fence.level, error, true).to,
        };
        Unreadable { from: here.key.into_vec(), to, error }
    }

    /// A block of fences cannot be read on the way to `target`: everything below it is out of
    /// reach.
    fn unreadable_above(&self, target: Target<'_>, error: Error) -> Unreadable {
        for level in (0..self.level).rev() {
            let fence = self.find(level, target);
            if let Ok(Some(fence)) = fence {
                return self.unreadable(&fence, error);
            }
        }
        Unreadable::from(error)
    }

    /// A block of fences next to the current fence of `level` cannot be read. No key between the
    /// last readable block and the damage has been returned yet, so all of them count as out of
    /// reach.
    fn unreadable_fences(
        &self,
        here: &FenceKey,
        level: usize,
        error: Error,
        forward: bool,
    ) -> Unreadable {
        for level in (0..level).rev() {
            let target = Target::At(&here.key, here.seq);
            let at = self.find(level, target);
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
                range.from = range.from.max(here.key.to_vec());
            } else {
                range.to = Some(here.clone().first_whole_key());
            }
            return range;
        }
        Unreadable { from: Vec::new(), to: None, error }
    }
}

/// Whether any key from a block's first to its last may have been consumed.
fn meets(gone: &Consumed, view: BlockView<'_>) -> bool {
    let key = |index: usize| {
        let (_, suffix, _) = view.entry_key(index).ok()?;
        Some(whole_key(view, suffix))
    };
    let ends = key(0).zip(view.len().checked_sub(1).and_then(key));
    // Entries that cannot be decoded are reported one by one.
    ends.is_none_or(|(first, last)| {
        gone.at(&last).is_some() || gone.meets(KeyRange { begin: &first, end: Some(&last) })
    })
}
