//! The pool: operations in memory, flushed in pieces that are as long as possible.

use alloc::vec::Vec;

use crate::buffer::{Buffer, Fragment, SubtreeId};
use crate::chip::Chip;
use crate::error::{Error, Result};
use crate::options::{Buffering, pool_parts};
use crate::page::{self, Kind};
use crate::tree::{LaTree, bottom};

impl<C: Chip> LaTree<C> {
    /// Makes room in memory and on the chip for an operation.
    ///
    /// # Errors
    /// [`Error::Full`]: the operation is not done.
    pub(crate) fn admit(&mut self, is_put: bool) -> Result<()> {
        // Removals and the moves of an emptying need room when puts have none.
        let parts = if is_put { 11 } else { 14 };
        if self.used_sixteenths() > parts {
            self.relieve()?;
            if self.used_sixteenths() > parts && self.log.programmed > 3 {
                // A long log is no reason to refuse.
                self.make_room(0)?;
                self.checkpoint()?;
            }
            if self.used_sixteenths() > parts {
                return Err(Error::Full);
            }
        }
        self.flush_excess()?;
        self.empty_due()
    }

    /// How many sixteenths of the chip, without its reserve, are in use.
    fn used_sixteenths(&self) -> u64 {
        let space = &self.flash.space;
        let reserve = self.reserve_blocks() as u64 * u64::from(space.pages_per_block());
        let capacity = space.usable_pages().saturating_sub(reserve).max(1);
        let pool = self.table.pool_bytes().div_ceil(self.flash.capacity()) as u64;
        (space.live_pages() + pool) * 16 / capacity
    }

    /// Empties the largest buffer of a chip that is nearly full.
    fn relieve(&mut self) -> Result<()> {
        let Some(id) = self.largest(Self::load) else { return Ok(()) };
        let done = self.empty_keyless(id)?;
        self.stats.sized_empties += u64::from(done);
        Ok(())
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
            self.flush_part(id, true)?;
            self.divide_memory();
        }
        Ok(())
    }

    /// Divides memory between pool and cache, by what subtrees take and by the workload.
    pub(crate) fn divide_memory(&mut self) {
        let parts = pool_parts(self.mix.0, self.mix.1);
        self.mix = (0, 0);
        let (pool, pages) = self.plan.divide(self.table.taken_bytes(), parts);
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
        let mut fragment = Vec::new();
        let (mut done, mut payload) = (0, Vec::new());
        payload.reserve_exact(self.flash.capacity());
        while done < buffer.part.len() {
            let mut end = done;
            payload.clear();
            while let Some(entry) = buffer.part.get(end) {
                if payload.len() + page::entry_bytes(entry) > self.flash.capacity() {
                    break;
                }
                page::append(&mut payload, entry);
                end += 1;
            }
            if only_whole && end == buffer.part.len() && !fragment.is_empty() {
                break;
            }
            fragment.push(self.write_fragment_page(&payload)?);
            done = end;
        }
        buffer.part.remove_first(done);
        if !fragment.is_empty() {
            buffer.fragments.push(Fragment::from(fragment));
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
                Ok(done) => self.stats.sized_empties += u64::from(done),
                Err(Error::Full) => return Ok(()),
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
        let key = match (buffer.part.get(0), buffer.fragments.iter().flatten().next()) {
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
