//! A segment that is filled from its start to its end, and reused only as a whole.
//!
//! It holds pages, and commit records followed by their pages. For every slot the page number is
//! kept here, so that garbage collection knows which pages to look up.
//!
//! Invariants: `live_count` counts the bits of `live`; slots from `filled` on are not live; an open
//! row is filled further, or belongs to the log, and is never freed.

use crate::place::Class;

/// The owner of a slot that holds a commit record.
pub(crate) const RECORD: u32 = u32::MAX;

/// The kind of pages in a row: pages that are likely to die at the same time share rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Heat {
    /// Pages of large transactions, which do not fit behind their record.
    Hot,
    /// Pages that have outlived their neighbours, and were moved.
    Cold,
}

/// One such segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) class: Class,
    pub(crate) is_open: bool,
    /// The number of slots that have been given out.
    filled: u32,
    live: Vec<u64>,
    live_count: u32,
    /// Page, or [`RECORD`], of each slot.
    owners: Vec<u32>,
}

impl Row {
    pub(crate) fn new(class: Class, slots: u32) -> Self {
        Self {
            class,
            is_open: true,
            filled: 0,
            live: vec![0; slots.div_ceil(64) as usize],
            live_count: 0,
            owners: vec![RECORD; slots as usize],
        }
    }

    /// A row that nothing is appended to.
    pub(crate) fn closed(class: Class, slots: u32) -> Self {
        Self { is_open: false, ..Self::new(class, slots) }
    }

    pub(crate) fn slots(&self) -> u32 {
        self.owners.len() as u32
    }

    pub(crate) fn live_count(&self) -> u32 {
        self.live_count
    }

    /// The number of live pages in it.
    pub(crate) fn page_count(&self) -> u32 {
        self.live().filter(|(_, owner)| *owner != RECORD).count() as u32
    }

    /// The number of slots that it can still give out.
    pub(crate) fn room(&self) -> u32 {
        if self.is_open { self.slots() - self.filled } else { 0 }
    }

    /// The next slot, for a page.
    pub(crate) fn next(&mut self, page: u32) -> Option<u32> {
        let slot = self.filled;
        (self.room() > 0 && self.set(slot, page)).then_some(slot)
    }

    pub(crate) fn is_live(&self, slot: u32) -> bool {
        let word = self.live.get((slot / 64) as usize).copied().unwrap_or_default();
        word & (1 << (slot % 64)) != 0
    }

    /// Says that this very slot is in use. `false` where there is none, or where it is already.
    pub(crate) fn set(&mut self, slot: u32, owner: u32) -> bool {
        let Some(owned) = self.owners.get_mut(slot as usize) else { return false };
        let Some(word) = self.live.get_mut((slot / 64) as usize) else { return false };
        let bit = 1 << (slot % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        *owned = owner;
        self.live_count += 1;
        self.filled = self.filled.max(slot + 1);
        true
    }

    /// The page, or [`RECORD`], that a slot was last given to.
    pub(crate) fn owner(&self, slot: u32) -> u32 {
        self.owners.get(slot as usize).copied().unwrap_or(RECORD)
    }

    /// Marks a slot as no longer needed. Returns `false` where it was not live.
    pub(crate) fn clear(&mut self, slot: u32) -> bool {
        let Some(word) = self.live.get_mut((slot / 64) as usize) else { return false };
        let bit = 1 << (slot % 64);
        let was_live = *word & bit != 0;
        *word &= !bit;
        self.live_count -= u32::from(was_live);
        was_live
    }

    /// The slots in use, each with its owner, in order.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, u32)> {
        let owners = (0..).zip(&self.owners);
        owners.filter(|(slot, _)| self.is_live(*slot)).map(|(slot, owner)| (slot, *owner))
    }
}
