//! Checkpoints and the log: what a recovery begins from.
//!
//! A checkpoint has the table of subtrees, the descriptors of their buffers and the parts in
//! memory: all of the state that is not in nodes and fragments. A log page has operations since.
//! The state is that of the last complete checkpoint with the operations of its log, in order,
//! added to the top buffer, where they are newest.
//!
//! ```text
//! checkpoint page   index u32 | is last u8 | piece of the stream
//! log page          index u32 | entries
//! stream            page bytes u32 | pages in a block u32 | blocks u32 | levels u8 | root u32 |
//!                   retired blocks u32, u32 each | subtrees u32, for each: level u8 (0: unused) |
//!                   root u32 | fragments u16, for each: pages u32, for each: address u32, prefix
//!                   8 bytes | operations u32, entries
//! ```
//! The owner in the pages' headers is the number of the checkpoint. The level in that of a log page
//! is 1 if all log pages before it were durable when it was programmed: they must be there then.
//!
//! K1: a page that a checkpoint needs is not erased before the next one is complete (S1, S2). K2:
//! numbers ascend, also those of checkpoints that were interrupted. K3: what a checkpoint needs is
//! durable before its last page, which makes it complete, and that page before anything is free.

use alloc::vec::Vec;

use crate::buffer::Buffer;
use crate::chip::{Chip, PageNo};
use crate::error::{Error, Result};
use crate::flash::Flash;
use crate::page::{self, Entry, Kind};
use crate::planted::{self, Bug};
use crate::space::State;
use crate::tree::LaTree;

/// Cuts a stream into pages of a checkpoint.
struct Writer<'a, C> {
    flash: &'a mut Flash<C>,
    number: u32,
    pages: Vec<PageNo>,
    pending: Vec<u8>,
}

impl<C: Chip> Writer<'_, C> {
    fn page(&mut self, is_last: bool) -> Result<()> {
        let room = self.flash.capacity() - 5;
        let taken = self.pending.len().min(room);
        let mut payload = Vec::new();
        payload.extend_from_slice(&(self.pages.len() as u32).to_le_bytes());
        payload.push(u8::from(is_last));
        payload.extend(self.pending.drain(..taken));
        let at = self.flash.write(Kind::Checkpoint, 0, self.number, &payload)?;
        self.pages.push(at);
        Ok(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() > self.flash.capacity() - 5 {
            self.page(false)?;
        }
        Ok(())
    }

    fn number(&mut self, number: u32) -> Result<()> {
        self.bytes(&number.to_le_bytes())
    }

    fn buffer(&mut self, buffer: &Buffer) -> Result<()> {
        let fragments = u16::try_from(buffer.fragments.len()).unwrap_or(u16::MAX);
        self.bytes(&fragments.to_le_bytes())?;
        for fragment in &buffer.fragments {
            self.number(fragment.pages.len() as u32)?;
            for page in &fragment.pages {
                self.number(page.at.0)?;
                self.bytes(&page.prefix.0)?;
            }
        }
        self.number(buffer.part.len() as u32)?;
        for entry in buffer.part.iter() {
            let mut bytes = Vec::new();
            page::append(&mut bytes, entry);
            self.bytes(&bytes)?;
        }
        Ok(())
    }
}

impl<C: Chip> LaTree<C> {
    /// Writes a checkpoint; the log begins anew, and what was held is free. Answers how many
    /// blocks became free.
    pub(crate) fn checkpoint(&mut self) -> Result<usize> {
        if planted::is(Bug::FreedEarly) {
            self.flash.space.forget_held();
        }
        self.log.number = self.log.number.checked_add(1).ok_or(Error::Exhausted)?;
        let empty = Buffer::default();
        let root = if planted::is(Bug::RootForgotten) { self.last_root } else { self.root };
        let (page, in_block) = (self.flash.page_bytes as u32, self.flash.space.pages_per_block());
        let levels = self.options.subtree_levels;
        let retired = self.retired();
        let mut writer = Writer {
            flash: &mut self.flash,
            number: self.log.number,
            pages: Vec::new(),
            pending: Vec::new(),
        };
        for number in [page, in_block, writer.flash.chip.blocks()] {
            writer.number(number)?;
        }
        writer.bytes(&[levels])?;
        writer.number(root.0)?;
        writer.number(retired.len() as u32)?;
        for block in retired {
            writer.number(block)?;
        }
        writer.number(self.table.slots().len() as u32)?;
        for slot in self.table.slots() {
            let Some(subtree) = slot else {
                writer.bytes(&[0])?;
                continue;
            };
            writer.bytes(&[subtree.level])?;
            writer.number(subtree.root.0)?;
            writer.buffer(subtree.buffer.as_deref().unwrap_or(&empty))?;
        }
        // K3
        writer.flash.sync()?;
        writer.page(true)?;
        let pages = writer.pages;
        self.flash.sync()?;
        for old in core::mem::replace(&mut self.log.pages, pages) {
            self.flash.release(old);
        }
        self.log.programmed = 0;
        self.log.pending.clear();
        self.stats.checkpoints += 1;
        self.last_root = self.root;
        Ok(self.flash.space.forget_held())
    }

    fn retired(&self) -> Vec<u32> {
        let blocks = self.flash.space.numbered();
        blocks.filter(|(_, block)| block.state == State::Retired).map(|(at, _)| at.0).collect()
    }

    /// Adds an operation to the log, in memory until a page is full.
    pub(crate) fn log_operation(&mut self, entry: Entry<'_>) -> Result<()> {
        if self.log.pending.len() + page::entry_bytes(entry) > self.flash.capacity() - 4 {
            self.program_log()?;
        }
        page::append(&mut self.log.pending, entry);
        Ok(())
    }

    fn program_log(&mut self) -> Result<()> {
        if self.log.programmed >= self.plan.log_pages_max {
            // It has all operations, also those that wait for the log.
            self.checkpoint()?;
            return Ok(());
        }
        self.make_room(1)?;
        if self.log.pending.is_empty() {
            return Ok(());
        }
        let mut payload = Vec::from(self.log.programmed.to_le_bytes());
        payload.extend_from_slice(&self.log.pending);
        let level = u8::from(self.log.is_synced);
        let at = self.flash.write(Kind::Log, level, self.log.number, &payload)?;
        self.log.pages.push(at);
        self.log.programmed += 1;
        self.log.is_synced = false;
        self.log.pending.clear();
        Ok(())
    }

    /// Makes all operations before durable. Cost: a page for the operations since the last sync,
    /// or a checkpoint when the log is long.
    ///
    /// # Errors
    /// Errors of the chip; [`Error::Full`] without room for a page.
    pub fn sync(&mut self) -> Result<()> {
        self.guarded(|tree| {
            if !tree.log.pending.is_empty() {
                tree.program_log()?;
            }
            tree.flash.sync()?;
            tree.log.is_synced = true;
            Ok(())
        })
    }
}
