//! The positions of a merge's sources, and which source comes first.

use esker_format::ids::Seq;
use esker_format::key::long_head;

/// A source's position: all that is compared, copied out of the block or memtable.
#[derive(Debug, Default)]
pub struct Head {
    pub long_head: u64,
    pub key: Vec<u8>,
    pub seq: Seq,
    pub is_fence: bool,
    pub present: bool,
}

impl Head {
    pub(crate) fn set(&mut self, prefix: &[u8], suffix: &[u8], seq: Seq, is_fence: bool) {
        self.key.clear();
        self.key.extend_from_slice(prefix);
        self.key.extend_from_slice(suffix);
        self.long_head = long_head(&self.key);
        self.seq = seq;
        self.is_fence = is_fence;
        self.present = true;
    }

    /// Key ascending, number descending, a fence before data.
    pub(crate) fn before(&self, other: &Self) -> bool {
        (self.long_head.cmp(&other.long_head))
            .then_with(|| self.key.cmp(&other.key))
            .then_with(|| other.seq.cmp(&self.seq))
            .then_with(|| other.is_fence.cmp(&self.is_fence))
            .is_lt()
    }
}
