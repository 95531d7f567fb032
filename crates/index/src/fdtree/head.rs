//! Where a merge's sources stand, and the source that is in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::key::long_head;
use esker_substrate::memtable::{Leaf, Version};

/// Where a source stands: everything that is compared, copied out of block or memtable.
#[derive(Debug, Default)]
pub struct Head {
    pub long_head: u64,
    pub key: Vec<u8>,
    pub seq: Seq,
    pub is_fence: bool,
    pub present: bool,
}

impl Head {
    pub(super) fn set(&mut self, prefix: &[u8], suffix: &[u8], seq: Seq, is_fence: bool) {
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(suffix);
        self.long_head = long_head(&self.key);
        self.seq = seq;
        self.is_fence = is_fence;
        self.present = true;
    }

    /// Key ascending, number descending, a fence before data.
    pub(super) fn before(&self, other: &Self) -> bool {
        (self.long_head.cmp(&other.long_head))
            .then_with(|| self.key.cmp(&other.key))
            .then_with(|| other.seq.cmp(&self.seq))
            .then_with(|| other.is_fence.cmp(&self.is_fence))
            .is_lt()
    }
}

/// A frozen memtable, taken leaf by leaf.
pub struct MemorySource {
    pub(super) leaves: VecDeque<Arc<Leaf>>,
    /// Of the leaf taken last.
    pub(super) versions: Vec<Version>,
    pub(super) at: usize,
}

impl MemorySource {
    /// The current version; takes the next leaf where this one is used up.
    pub(super) fn settle(&mut self) -> Option<&Version> {
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
