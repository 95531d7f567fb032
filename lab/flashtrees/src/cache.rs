//! Nodes in memory, the least recently used evicted first.
//!
//! Numbers of nodes are dense, so the index is a vector. The caller evicts, since that writes.

use crate::page::Page;

const NONE: u32 = u32::MAX;
/// Bytes of memory of a frame beyond its page: number, links, state.
pub const FRAME_BYTES: usize = 16;

/// A cached node.
#[derive(Debug)]
pub struct Frame {
    /// The node.
    pub node: u32,
    /// Its newest image.
    pub page: Page,
    /// Whether the image is newer than flash and the buffers.
    pub is_dirty: bool,
    /// Changes since the node was cached.
    pub changes: u32,
}

#[derive(Debug)]
struct Slot {
    frame: Option<Frame>,
    newer: u32,
    older: u32,
}

/// Cached nodes in the order of their use.
#[derive(Debug)]
pub struct Cache {
    slots: Vec<Slot>,
    unused: Vec<u32>,
    /// The slot of each node.
    index: Vec<u32>,
    newest: u32,
    oldest: u32,
    len: usize,
}

impl Default for Cache {
    fn default() -> Self {
        let (slots, unused, index) = (Vec::new(), Vec::new(), Vec::new());
        Self { slots, unused, index, newest: NONE, oldest: NONE, len: 0 }
    }
}

impl Cache {
    /// The number of cached nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is cached.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A cached node, without using it.
    #[must_use]
    pub fn peek(&self, node: u32) -> Option<&Frame> {
        self.slots.get(self.slot_of(node)?)?.frame.as_ref()
    }

    /// A cached node, to be changed, without using it.
    pub fn peek_mut(&mut self, node: u32) -> Option<&mut Frame> {
        let slot = self.slot_of(node)?;
        self.slots.get_mut(slot)?.frame.as_mut()
    }

    /// A cached node, which is the most recently used one from now on.
    pub fn touch(&mut self, node: u32) -> Option<&mut Frame> {
        let slot = self.slot_of(node)?;
        if self.newest != slot as u32 {
            self.unlink(slot);
            self.link(slot);
        }
        self.slots.get_mut(slot)?.frame.as_mut()
    }

    /// Caches a node that is not cached, as the most recently used one.
    pub fn insert(&mut self, frame: Frame) {
        let node = frame.node as usize;
        let entry = Slot { frame: Some(frame), newer: NONE, older: NONE };
        let slot = self.unused.pop().unwrap_or(self.slots.len() as u32) as usize;
        if slot == self.slots.len() {
            self.slots.push(entry);
        } else if let Some(place) = self.slots.get_mut(slot) {
            *place = entry;
        }
        if self.index.len() <= node {
            self.index.resize(node + 1, NONE);
        }
        if let Some(place) = self.index.get_mut(node) {
            *place = slot as u32;
        }
        self.link(slot);
        self.len += 1;
    }

    /// Takes a node out.
    pub fn remove(&mut self, node: u32) -> Option<Frame> {
        let slot = self.slot_of(node)?;
        self.unlink(slot);
        if let Some(place) = self.index.get_mut(node as usize) {
            *place = NONE;
        }
        self.unused.push(slot as u32);
        self.len -= 1;
        self.slots.get_mut(slot)?.frame.take()
    }

    /// Takes the least recently used node out.
    pub fn remove_oldest(&mut self) -> Option<Frame> {
        let node = self.slots.get(self.oldest as usize)?.frame.as_ref()?.node;
        self.remove(node)
    }

    /// The cached nodes, in ascending order.
    #[must_use]
    pub fn nodes(&self) -> Vec<u32> {
        (0..self.index.len() as u32).filter(|node| self.slot_of(*node).is_some()).collect()
    }

    fn slot_of(&self, node: u32) -> Option<usize> {
        self.index.get(node as usize).filter(|slot| **slot != NONE).map(|slot| *slot as usize)
    }

    fn link(&mut self, slot: usize) {
        let before = self.newest;
        if let Some(entry) = self.slots.get_mut(slot) {
            (entry.newer, entry.older) = (NONE, before);
        }
        match self.slots.get_mut(before as usize) {
            Some(entry) => entry.newer = slot as u32,
            None => self.oldest = slot as u32,
        }
        self.newest = slot as u32;
    }

    fn unlink(&mut self, slot: usize) {
        let Some(Slot { newer, older, .. }) = self.slots.get(slot) else { return };
        let (newer, older) = (*newer, *older);
        match self.slots.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
        match self.slots.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Layout;

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = Cache::default();
        for node in 0..4 {
            let page = Page::new(Layout::of_page(64), node, 0);
            cache.insert(Frame { node, page, is_dirty: false, changes: 0 });
        }
        assert!(cache.touch(0).is_some() && cache.touch(9).is_none() && cache.peek(1).is_some());
        assert_eq!(cache.remove(2).unwrap().node, 2);
        let order: Vec<_> =
            std::iter::from_fn(|| cache.remove_oldest()).map(|frame| frame.node).collect();
        assert_eq!(order, [1, 3, 0]);
        assert!(cache.is_empty() && cache.nodes().is_empty());
    }
}
