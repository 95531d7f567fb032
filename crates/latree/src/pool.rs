//! The pool: operations in memory, flushed in pieces that are as long as possible.

use alloc::vec::Vec;

use crate::buffer::{Buffer, Fragment, SubtreeId};
use crate::chip::Chip;
use crate::error::{Error, Result};
use crate::filter::Keys;
use crate::options::{Buffering, Scan, has_filters, pool_parts};
use crate::page::{self, Kind};
use crate::part::Part;
use crate::planted::{self, Bug};
use crate::tree::{LaTree, bottom};

impl<C: Chip> LaTree<C> {
    /// Makes room in memory and on the chip for an operation.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Subtrees`]: the operation is not done.
    pub(crate) fn admit(&mut self, is_put: bool) -> Result<()> {
        if is_put && self.table.bytes() > self.plan.table_max() {
            return Err(self.too_many_subtrees());
        }
        // Removals and the moves of an emptying need room when puts have none.
        let parts = if is_put { 13 } else { 15 };
        if !self.has_at_most(parts)? && self.log.programmed > 3 {
            // A long log is no reason to refuse, and without it there is more room for emptying.
            self.make_room(0)?;
            self.checkpoint()?;
            self.has_at_most(parts)?;
        }
        if self.used_sixteenths() > parts {
            return Err(Error::Full);
        }
        self.flush_excess()?;
        self.empty_due()
    }

    /// Whether so many sixteenths of the pages are in use at most, when buffers were emptied as
    /// far as that is necessary and there is room for it.
    fn has_at_most(&mut self, parts: u64) -> Result<bool> {
        while self.used_sixteenths() > parts {
            match self.relieve() {
                Ok(true) => {}
                Ok(false) | Err(Error::Full) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(crate) fn too_many_subtrees(&self) -> Error {
        let given_bytes = self.options.memory_bytes;
        let needed_bytes = given_bytes.max(4 * self.table.bytes()).saturating_mul(2);
        Error::Subtrees { needed_bytes, given_bytes }
    }

    /// How many sixteenths of the pages that may be in use are.
    fn used_sixteenths(&self) -> u64 {
        let pool = self.table.pool_bytes().div_ceil(self.flash.capacity()) as u64;
        (self.flash.space.live_pages() + pool) * 16 / self.capacity_pages().max(1)
    }

    /// Empties the largest buffer with pages of a chip that is nearly full. Answers whether there
    /// was one: each time there are fewer.
    fn relieve(&mut self) -> Result<bool> {
        let lowest = self.largest(Self::load_above_leaves);
        let Some(id) = lowest.or_else(|| self.largest(Self::load)) else { return Ok(false) };
        let done = self.empty_keyless(id)?;
        self.stats.sized_empties += u64::from(done);
        Ok(done)
    }

    fn load(&self, id: SubtreeId) -> usize {
        let buffer = self.table.buffer(id).ok().flatten();
        buffer.map_or(0, |buffer| buffer.pages() * self.flash.page_bytes + buffer.part.live_bytes())
    }

    fn load_above_leaves(&self, id: SubtreeId) -> usize {
        let level = self.table.get(id).map_or(u8::MAX, |subtree| subtree.level);
        if bottom(level, self.k()) == 1 { self.load(id) } else { 0 }
    }

    /// The buffer for which `size` is greatest and not 0.
    fn largest(&self, size: impl Fn(&Self, SubtreeId) -> usize) -> Option<SubtreeId> {
        let ids = self.table.iter().filter(|(_, subtree)| subtree.buffer.is_some());
        let sized = ids.map(|(id, _)| (size(self, id), id)).filter(|(size, _)| *size > 0);
        sized.max().map(|(_, id)| id)
    }

    /// Flushes the largest parts until the pool is within its share of memory.
    pub(crate) fn flush_excess(&mut self) -> Result<()> {
        while self.table.pool_bytes() > self.pool_max {
            let part = |tree: &Self, id| {
                let buffer = tree.table.buffer(id).ok().flatten();
                buffer.map_or(0, |buffer| buffer.part.heap_bytes())
            };
            let Some(id) = self.largest(part) else { return Ok(()) };
            if !self.is_emptying && self.is_handed_down(id)? {
                self.hand_down_part(id)?;
                self.stats.handed_down += 1;
                continue;
            }
            self.flush_part(id, true)?;
            self.divide_memory();
        }
        Ok(())
    }

    /// Whether the part of a buffer is moved to the buffers below it and not flushed: where each of
    /// these then has about half a page in memory, flushing the largest of them writes a page that
    /// need not be moved again.
    fn is_handed_down(&self, id: SubtreeId) -> Result<bool> {
        let level = self.table.get(id)?.level;
        // Older operations that stayed in fragments would hide those that are moved.
        let has_fragments = !planted::is(Bug::PartPastFragments)
            && self.table.buffer(id)?.is_some_and(|buffer| buffer.pages() > 0);
        if has_fragments || bottom(level, self.k()) == 1 {
            return Ok(false);
        }
        let below = self.table.iter().filter(|(_, subtree)| subtree.level < level).count();
        Ok(self.pool_max >= below * self.flash.capacity() / 2)
    }

    /// Divides memory between pool and cache anew, by the workload since the last time.
    pub(crate) fn divide_memory(&mut self) {
        self.pool_parts = pool_parts(self.mix.0, self.mix.1);
        self.has_filters = self.options.scan == Scan::Sorted && has_filters(self.mix.0, self.mix.1);
        self.mix = (0, 0);
        self.fit_memory();
    }

    /// Fits pool and cache to what subtrees and descriptors take now.
    pub(crate) fn fit_memory(&mut self) {
        let (taken, filled) = (self.table.taken_bytes(), self.table.pool_bytes());
        let (pool, pages) = self.plan.divide(taken, filled, self.pool_parts);
        self.pool_max = pool;
        self.flash.set_cache(pages);
    }

    /// Writes a buffer's part in memory as a fragment. What does not fill a page stays in memory
    /// if `only_whole`, unless there is no whole page.
    ///
    /// # Errors
    /// [`Error::Full`]: nothing was done.
    pub(crate) fn flush_part(&mut self, id: SubtreeId, only_whole: bool) -> Result<()> {
        let Some(part) = self.table.buffer(id)?.map(|buffer| &buffer.part) else { return Ok(()) };
        let pages = part.live_bytes() / self.flash.capacity() * 4 / 3 + 2;
        self.make_room(pages)?;
        if !self.table.has(id) {
            // The buffer was emptied to make room, and no key was left below it.
            return Ok(());
        }
        let mut buffer = self.table.take(id)?;
        self.write_part(&mut buffer, only_whole)?;
        let is_due = buffer.fragments.len() > self.plan.fragments_max
            || matches!(self.options.buffering, Buffering::Fixed(bytes)
                if buffer.pages() * self.flash.page_bytes >= bytes);
        self.table.put_back(id, buffer)?;
        if is_due && !self.due.contains(&id) {
            self.due.push_back(id);
        }
        Ok(())
    }

    /// See [`LaTree::flush_part`]; room was made.
    pub(crate) fn write_part(&mut self, buffer: &mut Buffer, only_whole: bool) -> Result<()> {
        let mut pages = Vec::new();
        let mut keys = self.has_filters.then(|| Keys::new(buffer.part.len()));
        let (mut done, mut payload) = (Part::begin(), Vec::new());
        payload.reserve_exact(self.flash.capacity());
        while done < buffer.part.end() {
            let mut end = done;
            payload.clear();
            while let Some((entry, next)) = buffer.part.next(end) {
                if payload.len() + page::entry_bytes(entry) > self.flash.capacity() {
                    break;
                }
                page::append(&mut payload, entry);
                end = next;
            }
            if only_whole && end == buffer.part.end() && !pages.is_empty() {
                break;
            }
            pages.push(self.write_fragment_page(&payload)?);
            if let Some(keys) = &mut keys {
                page::entries(&payload).for_each(|entry| keys.add(entry.0));
            }
            done = end;
        }
        buffer.part.remove_before(done);
        if !pages.is_empty() {
            let filter = keys.map(Keys::finish);
            buffer.fragments.push(Fragment { pages: pages.into(), filter });
        }
        Ok(())
    }

    /// Empties the buffers that are due, and others while all together are too large: half as many
    /// pages as leaves (a sixteenth on a chip that is nearly full), and a quarter of the memory.
    /// Without room they wait.
    fn empty_due(&mut self) -> Result<()> {
        let divisor = if self.used_sixteenths() >= 10 { 16 } else { 2 };
        for _ in 0..64 {
            let due = self.due.pop_front();
            let is_crowded = self.table.descriptor_bytes() > self.plan.descriptors_max();
            let is_long = self.table.pages() as u64 > (self.stats.leaves / divisor).max(16);
            // A buffer above leaves needs no others when it is emptied.
            let lowest = if is_crowded { self.largest(Self::load_above_leaves) } else { None };
            let largest = || if is_long || is_crowded { self.largest(Self::load) } else { None };
            let Some(id) = lowest.or(due).or_else(largest) else { return Ok(()) };
            if let Some(due) = due.filter(|due| *due != id) {
                self.due.push_front(due);
            }
            match self.empty_keyless(id) {
                Ok(true) => self.stats.sized_empties += 1,
                // It ended early. Another operation goes on.
                Ok(false) | Err(Error::Full) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Empties a buffer of which no key is known.
    pub(crate) fn empty_keyless(&mut self, id: SubtreeId) -> Result<bool> {
        let is_there = self.table.has(id);
        let Some(buffer) = (if is_there { self.table.buffer(id)? } else { None }) else {
            return Ok(false);
        };
        let key = match (buffer.part.get(Part::begin()), buffer.all_pages().next()) {
            (Some((key, _)), _) => key.to_vec(),
            (None, Some(first)) => {
                let bytes = self.flash.read(first.at, Kind::Fragment)?;
                let entry = page::first(page::payload(&bytes)).map(|(entry, _)| entry.0.to_vec());
                entry.ok_or(Error::Damaged { page: first.at, what: "it has no operation" })?
            }
            (None, None) => return Ok(false),
        };
        self.empty(id, &key)
    }
}
