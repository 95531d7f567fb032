//! Fences of a level that come into memory when searches need them often enough.

use std::sync::Arc;

use esker_format::ptr::BlockPtr;
use esker_substrate::budget::{Budget, Part};
use esker_substrate::error::Result;
use esker_substrate::sync::atomic::Ordering;

use crate::run::cursor::{BLOCKS_AHEAD, FenceCursor};
use crate::run::fence_index::{Account, FenceIndex};
use crate::run::tree::{BlockReader, Tree};

/// Fences are loaded if there is memory for one of so many.
const LOADED_PART: u64 = 4;
/// A part of them leaves one in so many bytes of the memory for fences to other levels.
const LEFT_PART: u64 = 16;

/// What became of an attempt to load the fences of a level.
enum Loaded {
    /// All of them, or those of the least keys, as many as there is memory for.
    Held(Arc<FenceIndex>),
    /// The budget has too little memory for a part of this size, in bytes.
    TooLarge(u64),
}

impl Tree {
    /// Notes that a search of `level` had to go through the level above, and loads the level's
    /// fences once such detours have cost about as much as loading them: a read each, where
    /// loading reads the level above from its beginning to its end.
    pub(crate) fn note_detour(&self, level: usize, reader: &BlockReader) {
        if self.moving {
            return;
        }
        let Some(fences) = self.levels.get(level).filter(|level| level.held.get().is_none()) else {
            return;
        };
        let above = level.checked_sub(1).and_then(|above| self.meta.levels.get(above));
        let blocks_above = above.map_or(0, |above| above.counts.blocks);
        if fences.detours.fetch_add(1, Ordering::Relaxed) < blocks_above / BLOCKS_AHEAD as u64 {
            return;
        }
        let Some(_only_one) = fences.building.try_lock() else { return };
        if fences.held.get().is_some() {
            return;
        }
        // A level with damage above it is tried again only after the same number of detours; one
        // that is too large for the budget only when there is enough memory.
        fences.detours.store(0, Ordering::Relaxed);
        let room = reader.budget.room_bytes(Part::Fences);
        if room < fences.needs_bytes.load(Ordering::Relaxed) {
            return;
        }
        match self.load_fences(level, room, reader) {
            Ok(Loaded::Held(index)) => {
                let _first = fences.held.set(index);
            }
            Ok(Loaded::TooLarge(needs)) => fences.needs_bytes.store(needs, Ordering::Relaxed),
            Err(_) => {}
        }
    }

    /// The fences of a level, for which there are `room` bytes. Where that is too little for a part
    /// of as many fences as the level has blocks, the first chunk tells, and the rest is not read.
    fn load_fences(&self, level: usize, room: u64, reader: &BlockReader) -> Result<Loaded> {
        let blocks = self.meta.levels.get(level).map_or(0, |level| level.counts.blocks);
        let mut index = FenceIndex::counted(Account::optional(&reader.budget));
        let above = level.checked_sub(1).map(|above| FenceCursor::first(self, reader, above));
        let mut ahead = above.transpose()?.flatten();
        let mut announced_until = None;
        let mut cursor = FenceCursor::first(self, reader, level)?;
        while let Some(at) = cursor {
            let parent = at.parent_ptr()?;
            if announced_until.is_none_or(|until| parent == Some(until)) {
                announced_until = announce_some(reader, &mut ahead)?.or(announced_until);
            }
            let needs = index.expected_bytes(blocks);
            let least = needs / LOADED_PART + left_bytes(&reader.budget);
            if needs > room && least > room {
                return Ok(Loaded::TooLarge(needs.min(least)));
            }
            if needs > room && reader.budget.room_bytes(Part::Fences) < left_bytes(&reader.budget) {
                at.with_current(|fence| index.miss(fence.key, fence.seq))?;
                break;
            }
            if !at.with_current(|fence| index.push(fence))? {
                return Ok(Loaded::TooLarge(needs));
            }
            cursor = at.next()?;
        }
        index.finish();
        let needs = index.expected_bytes(blocks);
        let held = index.iter().count() as u64;
        let held_enough = held.saturating_mul(LOADED_PART) >= blocks;
        Ok(if held_enough { Loaded::Held(Arc::new(index)) } else { Loaded::TooLarge(needs) })
    }
}

/// The memory that a part of a level's fences leaves for other levels, in bytes.
fn left_bytes(budget: &Budget) -> u64 {
    budget.share_bytes(Part::Fences) / LEFT_PART
}

/// Has the next blocks read of those that `ahead` walks over; the last of them.
fn announce_some(
    reader: &BlockReader,
    ahead: &mut Option<FenceCursor<'_>>,
) -> Result<Option<BlockPtr>> {
    let mut ptrs = Vec::new();
    while ptrs.len() < BLOCKS_AHEAD
        && let Some(at) = ahead.take()
    {
        ptrs.push(at.ptr()?);
        *ahead = at.next()?;
    }
    reader.announce(&ptrs);
    Ok(ptrs.last().copied())
}
