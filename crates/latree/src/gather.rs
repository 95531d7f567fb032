//! Operations of buffers, and entries of a leaf, in a range of keys: a bounded batch of them.
//!
//! Sources are added from the oldest to the newest, so that of several operations on a key the
//! newest stays. Each source gives at least a page and at most its share of the batch. The batch
//! ends where the first source that has more ends.

use alloc::vec::Vec;

use crate::buffer::{FragmentPage, Prefix, SubtreeId};
use crate::chip::{Chip, PageNo};
use crate::error::Result;
use crate::flash::Flash;
use crate::page::{self, Entry, Kind};
use crate::part::Part;
use crate::tree::LaTree;

/// From which end of a range a batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In ascending order of the keys.
    Forward,
    /// In descending order.
    Backward,
}

/// Keys from `low` to before `high`.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
}

impl Window {
    fn is_below(&self, key: &[u8]) -> bool {
        key < self.low.as_slice()
    }

    fn is_above(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_some_and(|high| key >= high)
    }

    fn has(&self, key: &[u8]) -> bool {
        !self.is_below(key) && !self.is_above(key)
    }
}

/// A batch that is being gathered.
pub(crate) struct Batch {
    pub ops: Part,
    window: Window,
    direction: Direction,
    share: usize,
    /// The last key of the source that ended first and has more.
    end: Option<Vec<u8>>,
}

impl Batch {
    pub(crate) fn new(window: Window, direction: Direction, share: usize) -> Self {
        Self { ops: Part::default(), window, direction, share, end: None }
    }

    /// Adds entries of one source, which ascend. Answers how many bytes of them are in the window.
    fn add<'a>(&mut self, entries: impl Iterator<Item = Entry<'a>>) -> usize {
        let mut added = 0;
        for entry in entries.filter(|entry| self.window.has(entry.0)) {
            added += page::entry_bytes(entry);
            self.ops.insert(entry);
        }
        added
    }

    /// A source ends at `key` and has more.
    fn ends_at(&mut self, key: &[u8]) {
        let is_nearer = self.end.as_deref().is_none_or(|end| match self.direction {
            Direction::Forward => key < end,
            Direction::Backward => key > end,
        });
        if is_nearer {
            self.end = Some(key.to_vec());
        }
    }

    /// Adds the leaf's entries, all of them.
    pub(crate) fn add_leaf<C: Chip>(&mut self, flash: &mut Flash<C>, leaf: PageNo) -> Result<()> {
        let node = flash.read(leaf, Kind::Node)?;
        self.add(page::entries(page::payload(&node)));
        Ok(())
    }

    pub(crate) fn add_part(&mut self, part: &Part) {
        let mut from = part.position(&self.window.low);
        let mut to = self.window.high.as_deref().map_or(part.end(), |high| part.position(high));
        let mut added = 0;
        while from < to && added < self.share {
            let found = match self.direction {
                Direction::Forward => part.next(from).inspect(|(_, next)| from = *next),
                Direction::Backward => part.before(to).inspect(|(_, before)| to = *before),
            };
            let Some((entry, _)) = found else { return };
            added += page::entry_bytes(entry);
            self.ops.insert(entry);
            if added >= self.share && from < to {
                self.ends_at(entry.0);
            }
        }
    }

    pub(crate) fn add_fragment<C: Chip>(
        &mut self,
        flash: &mut Flash<C>,
        fragment: &[FragmentPage],
    ) -> Result<()> {
        let low = Prefix::of(&self.window.low);
        let first = fragment.partition_point(|page| page.prefix < low).saturating_sub(1);
        let end = self.window.high.as_deref().map_or(fragment.len(), |high| {
            let high = Prefix::of(high);
            fragment.partition_point(|page| page.prefix <= high)
        });
        let pages = fragment.get(first..end).unwrap_or(&[]);
        let mut added = 0;
        for at in 0..pages.len() {
            let place = match self.direction {
                Direction::Forward => at,
                Direction::Backward => pages.len() - 1 - at,
            };
            let Some(page) = pages.get(place) else { return Ok(()) };
            let bytes = flash.read(page.at, Kind::Fragment)?;
            let mut entries = page::entries(page::payload(&bytes));
            added += self.add(page::entries(page::payload(&bytes)));
            let last = match self.direction {
                Direction::Forward => entries.last(),
                Direction::Backward => entries.next(),
            };
            let Some((key, _)) = last else { continue };
            let is_past = match self.direction {
                Direction::Forward => self.window.is_above(key),
                Direction::Backward => self.window.is_below(key),
            };
            if is_past {
                return Ok(());
            }
            if added >= self.share && at + 1 < pages.len() {
                self.ends_at(key);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The operations, and what is left of the window: none when nothing is.
    pub(crate) fn finish(mut self) -> (Part, Option<Window>) {
        let Some(end) = self.end else { return (self.ops, None) };
        match self.direction {
            Direction::Forward => {
                let mut next = end;
                next.push(0);
                self.ops.truncate(self.ops.position(&next));
                (self.ops, Some(Window { low: next, high: self.window.high }))
            }
            Direction::Backward => {
                self.ops.remove_before(self.ops.position(&end));
                (self.ops, Some(Window { low: self.window.low, high: Some(end) }))
            }
        }
    }
}

impl<C: Chip> LaTree<C> {
    /// Adds the operations of a buffer, whose sources are newer than all that were added before.
    pub(crate) fn add_buffer(&mut self, batch: &mut Batch, id: SubtreeId) -> Result<()> {
        let Some(buffer) = self.table.buffer(id)? else { return Ok(()) };
        for fragment in &buffer.fragments {
            batch.add_fragment(&mut self.flash, &fragment.pages)?;
        }
        batch.add_part(&buffer.part);
        Ok(())
    }

    /// Operations of one buffer in ascending order.
    pub(crate) fn gather(
        &mut self,
        id: SubtreeId,
        window: Window,
    ) -> Result<(Part, Option<Window>)> {
        let sources = self.table.buffer(id)?.map_or(1, |buffer| buffer.fragments.len() + 1);
        let share = (self.plan.batch / sources).max(1);
        let mut batch = Batch::new(window, Direction::Forward, share);
        self.add_buffer(&mut batch, id)?;
        Ok(batch.finish())
    }
}
