//! The table of subtrees, and what their buffers hold in all.
//!
//! T1: `pool_bytes`, `descriptor_bytes` and `pages` are the sums over all buffers: every change of
//! a buffer is between [`Table::take`] and [`Table::put_back`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::buffer::{BUFFER_BYTES, Buffer, Subtree, SubtreeId};
use crate::chip::PageNo;
use crate::error::{Error, Result};

const GROUP: usize = 64;

/// All subtrees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Slots in groups of `GROUP`, so that a table that grows is never copied as a whole.
    groups: Vec<Vec<Option<Subtree>>>,
    slots: usize,
    unused: usize,
    pool_bytes: usize,
    descriptor_bytes: usize,
    buffers: usize,
    pages: usize,
}

impl Table {
    pub(crate) fn get(&self, id: SubtreeId) -> Result<&Subtree> {
        self.slot(id)
            .and_then(Option::as_ref)
            .ok_or(Error::Invariant("a child is a subtree of the table"))
    }

    fn get_mut(&mut self, id: SubtreeId) -> Result<&mut Subtree> {
        self.slot_mut(id)
            .and_then(Option::as_mut)
            .ok_or(Error::Invariant("a child is a subtree of the table"))
    }

    fn slot(&self, id: SubtreeId) -> Option<&Option<Subtree>> {
        self.groups.get(id.0 as usize / GROUP)?.get(id.0 as usize % GROUP)
    }

    fn slot_mut(&mut self, id: SubtreeId) -> Option<&mut Option<Subtree>> {
        self.groups.get_mut(id.0 as usize / GROUP)?.get_mut(id.0 as usize % GROUP)
    }

    /// Whether there is such a subtree.
    pub(crate) fn has(&self, id: SubtreeId) -> bool {
        self.slot(id).is_some_and(Option::is_some)
    }

    /// All slots, in the order of the ids; those that are not used are empty.
    pub(crate) fn slots(&self) -> impl ExactSizeIterator<Item = Option<&Subtree>> {
        (0..self.slots).map(|id| self.slot(SubtreeId(id as u32)).and_then(Option::as_ref))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SubtreeId, &Subtree)> {
        (0..).map(SubtreeId).zip(self.slots()).filter_map(|(id, slot)| Some((id, slot?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots - self.unused
    }

    /// Pages of all buffers.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Memory of operations that wait.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.pool_bytes
    }

    /// Memory of descriptors: of buffers and of their pages.
    pub(crate) fn descriptor_bytes(&self) -> usize {
        self.buffers * BUFFER_BYTES + self.descriptor_bytes
    }

    /// Memory of the table without the buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.len() * GROUP * size_of::<Option<Subtree>>()
    }

    /// Memory of all but the pool.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.bytes() + self.descriptor_bytes()
    }

    /// Adds a subtree with an empty buffer.
    pub(crate) fn add(&mut self, root: PageNo, level: u8) -> SubtreeId {
        let subtree = Subtree { root, level, buffer: None };
        let free =
            if self.unused > 0 { self.slots().position(|slot| slot.is_none()) } else { None };
        if let Some(id) = free.map(|at| SubtreeId(at as u32))
            && let Some(slot) = self.slot_mut(id)
        {
            *slot = Some(subtree);
            self.unused -= 1;
            return id;
        }
        self.push(Some(subtree))
    }

    fn push(&mut self, slot: Option<Subtree>) -> SubtreeId {
        if self.slots.is_multiple_of(GROUP) {
            self.groups.push(Vec::with_capacity(GROUP));
        }
        if let Some(group) = self.groups.last_mut() {
            group.push(slot);
        }
        self.slots += 1;
        SubtreeId(self.slots as u32 - 1)
    }

    /// Adds a slot as a checkpoint has it.
    pub(crate) fn restore(&mut self, slot: Option<(PageNo, u8)>) {
        self.unused += usize::from(slot.is_none());
        self.push(slot.map(|(root, level)| Subtree { root, level, buffer: None }));
    }

    /// Removes a subtree, whose buffer is empty.
    pub(crate) fn remove(&mut self, id: SubtreeId) {
        if let Some(slot) = self.slot_mut(id) {
            *slot = None;
            self.unused += 1;
        }
    }

    pub(crate) fn set_root(&mut self, id: SubtreeId, root: PageNo, level: u8) -> Result<()> {
        let subtree = self.get_mut(id)?;
        (subtree.root, subtree.level) = (root, level);
        Ok(())
    }

    pub(crate) fn buffer(&self, id: SubtreeId) -> Result<Option<&Buffer>> {
        Ok(self.get(id)?.buffer.as_deref())
    }

    /// Takes a buffer out, to be changed.
    pub(crate) fn take(&mut self, id: SubtreeId) -> Result<Box<Buffer>> {
        let Some(buffer) = self.get_mut(id)?.buffer.take() else { return Ok(Box::default()) };
        self.pool_bytes -= buffer.part.heap_bytes();
        self.descriptor_bytes -= buffer.descriptor_bytes();
        self.pages -= buffer.pages();
        self.buffers -= 1;
        Ok(buffer)
    }

    /// Puts a buffer back, or for another subtree that has none.
    pub(crate) fn put_back(&mut self, id: SubtreeId, buffer: Box<Buffer>) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.pool_bytes += buffer.part.heap_bytes();
        self.descriptor_bytes += buffer.descriptor_bytes();
        self.pages += buffer.pages();
        self.buffers += 1;
        self.get_mut(id)?.buffer = Some(buffer);
        Ok(())
    }
}
