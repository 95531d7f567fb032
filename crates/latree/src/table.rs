//! The table of subtrees, and what their buffers hold in all.
//!
//! T1: `pool_bytes`, `descriptor_bytes` and `pages` are the sums over all buffers: every change of
//! a buffer is between [`Table::take`] and [`Table::put_back`].

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::buffer::{BUFFER_BYTES, Buffer, Subtree, SubtreeId};
use crate::chip::PageNo;
use crate::error::{Error, Result};

/// All subtrees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    subtrees: Vec<Option<Subtree>>,
    unused: usize,
    pool_bytes: usize,
    descriptor_bytes: usize,
    buffers: usize,
    pages: usize,
}

impl Table {
    pub(crate) fn get(&self, id: SubtreeId) -> Result<&Subtree> {
        self.subtrees
            .get(id.0 as usize)
            .and_then(Option::as_ref)
            .ok_or(Error::Invariant("a child is a subtree of the table"))
    }

    fn get_mut(&mut self, id: SubtreeId) -> Result<&mut Subtree> {
        self.subtrees
            .get_mut(id.0 as usize)
            .and_then(Option::as_mut)
            .ok_or(Error::Invariant("a child is a subtree of the table"))
    }

    pub(crate) fn slots(&self) -> &[Option<Subtree>] {
        &self.subtrees
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SubtreeId, &Subtree)> {
        (0..).map(SubtreeId).zip(&self.subtrees).filter_map(|(id, slot)| Some((id, slot.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.subtrees.len() - self.unused
    }

    /// Pages of all buffers.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Memory of operations that wait.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.pool_bytes
    }

    /// Memory of the pages' descriptors.
    pub(crate) fn descriptor_bytes(&self) -> usize {
        self.descriptor_bytes
    }

    /// Memory of all but the pool.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.subtrees.capacity() * size_of::<Option<Subtree>>()
            + self.buffers * BUFFER_BYTES
            + self.descriptor_bytes
    }

    /// Adds a subtree with an empty buffer.
    pub(crate) fn add(&mut self, root: PageNo, level: u8) -> SubtreeId {
        let subtree = Subtree { root, level, buffer: None };
        let free =
            if self.unused > 0 { self.subtrees.iter().position(Option::is_none) } else { None };
        if let Some((at, slot)) = free.and_then(|at| Some((at, self.subtrees.get_mut(at)?))) {
            *slot = Some(subtree);
            self.unused -= 1;
            return SubtreeId(at as u32);
        }
        if self.subtrees.len() == self.subtrees.capacity() {
            self.subtrees.reserve_exact((self.subtrees.len() / 8).max(8));
        }
        self.subtrees.push(Some(subtree));
        SubtreeId(self.subtrees.len() as u32 - 1)
    }

    /// Adds a slot as a checkpoint has it.
    pub(crate) fn restore(&mut self, slot: Option<(PageNo, u8)>) {
        self.unused += usize::from(slot.is_none());
        if self.subtrees.len() == self.subtrees.capacity() {
            self.subtrees.reserve_exact((self.subtrees.len() / 8).max(8));
        }
        self.subtrees.push(slot.map(|(root, level)| Subtree { root, level, buffer: None }));
    }

    /// Removes a subtree, whose buffer is empty.
    pub(crate) fn remove(&mut self, id: SubtreeId) {
        if let Some(slot) = self.subtrees.get_mut(id.0 as usize) {
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
