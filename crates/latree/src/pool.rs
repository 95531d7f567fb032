//! The pool: operations in memory, flushed in pieces that are as long as possible.

use alloc::vec::Vec;

use crate::buffer::{Fragment, SubtreeId};
use crate::chip::Chip;
use crate::error::{Error, Result};
use crate::options::{Buffering, pool_parts};
use crate::page::{self, Kind};
use crate::tree::LaTree;

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
        let mut fragment = Vec::new();
        let mut done = 0;
        while done < buffer.part.len() {
            let (mut end, mut bytes) = (done, 0);
            while let Some(entry) = buffer.part.get(end) {
                bytes += page::entry_bytes(entry);
                if bytes > self.flash.capacity() {
                    break;
                }
                end += 1;
            }
            if only_whole && end == buffer.part.len() && !fragment.is_empty() {
                break;
            }
            let entries: Vec<_> = (done..end).filter_map(|at| buffer.part.get(at)).collect();
            fragment.push(self.write_fragment_page(&entries)?);
            done = end;
        }
        buffer.part = buffer.part.compacted(done, buffer.part.len());
        if !fragment.is_empty() {
            buffer.fragments.push(Fragment::from(fragment));
        }
        let is_due = buffer.fragments.len() > self.plan.fragments_max
            || matches!(self.options.buffering, Buffering::Fixed(bytes)
                if buffer.pages() * self.flash.page_bytes >= bytes);
        self.table.put_back(id, buffer)?;
        if is_due && !self.due.contains(&id) {
            self.due.push_back(id);
        }
        Ok(())
    }

    /// Empties the buffers that are due, and others while all together are too large: half as many
    /// pages as leaves (a sixteenth on a chip that is nearly full), and a quarter of the memory.
    /// Without room they wait.
    fn empty_due(&mut self) -> Result<()> {
        let divisor = if self.used_sixteenths() >= 10 { 16 } else { 2 };
        for _ in 0..64 {
            let id = if let Some(id) = self.due.pop_front() {
                id
            } else if self.table.pages() as u64 > (self.stats.leaves / divisor).max(16)
                || self.table.descriptor_bytes() > self.plan.descriptors_max()
            {
                let pages = |tree: &Self, id| {
                    tree.table.buffer(id).ok().flatten().map_or(0, |buffer| buffer.pages())
                };
                let Some(id) = self.largest(pages) else { return Ok(()) };
                id
            } else {
                return Ok(());
            };
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
        let is_there = self.table.slots().get(id.0 as usize).is_some_and(Option::is_some);
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
