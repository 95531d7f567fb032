//! The source of a merge that is in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_substrate::memtable::{Leaf, Version};

/// A frozen memtable, taken leaf by leaf.
pub(super) struct MemorySource {
    pub(super) leaves: VecDeque<Arc<Leaf>>,
    /// Of the leaf taken last.
    pub(super) versions: Vec<Version>,
    pub(super) at: usize,
}

impl MemorySource {
    /// The current version; takes the next leaf where this one is used up.
    pub(super) fn current(&mut self) -> Option<&Version> {
        while self.at >= self.versions.len()
            && let Some(leaf) = self.leaves.pop_front()
        {
            self.versions.clear();
            leaf.collect(&mut self.versions);
            self.at = 0;
        }
        self.versions.get(self.at)
    }
}
