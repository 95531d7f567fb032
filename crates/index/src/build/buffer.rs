//! The buffers that merges read and write through, counted against the memory budget.

use std::sync::Arc;

use esker_device::AlignedBuf;
use esker_substrate::budget::{Budget, Lease, Part};

/// A buffer that grows, and whose bytes are counted for as long as it lives. They are subtracted
/// from the block cache's part of the budget.
pub struct CountedBuf {
    bytes: AlignedBuf,
    lease: Option<Lease>,
}

impl CountedBuf {
    pub(crate) fn new() -> Self {
        Self { bytes: AlignedBuf::zeroed(0), lease: None }
    }

    /// Makes the buffer at least `length` bytes long. Growing it discards its contents.
    pub(crate) fn grow(&mut self, budget: &Arc<Budget>, length: usize) {
        if self.bytes.len() < length {
            // The old one first: never both.
            (self.bytes, self.lease) = (AlignedBuf::zeroed(0), None);
            self.lease = Some(budget.lease(Part::Cache, length as u64));
            self.bytes = AlignedBuf::zeroed(length);
        }
    }
}

impl std::ops::Deref for CountedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for CountedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_counted_once() {
        let budget = Arc::new(Budget::new(1 << 20));
        let counted = || budget.used_bytes(Part::Cache);
        let mut buffer = CountedBuf::new();
        assert_eq!((buffer.len(), counted()), (0, 0));
        buffer.grow(&budget, 8192);
        buffer.grow(&budget, 4096);
        assert_eq!((buffer.len(), counted()), (8192, 8192));
        buffer.grow(&budget, 16384);
        assert_eq!((buffer.len(), counted()), (16384, 16384));
        drop(buffer);
        assert_eq!(counted(), 0);
    }
}
