//! Back-pressure: how far writers may run ahead of a merge.
//!
//! While a merge runs, concurrent writes collect in the memtable and in new sorted runs, and the
//! space for both is bounded. A writer that is faster than the merge would use up all of it at once
//! and then stall until the merge is done. So the space opens step by step with the merge: from the
//! merge's first write unit on, writers may have used the same share of the space as the merge has
//! done of its work, and half a memtable more. A writer that is further ahead waits for the next
//! write unit, which takes milliseconds. No clock is used.

use esker_substrate::sync::atomic::{AtomicU64, Ordering};

/// No merge is under way, or it does not report its progress.
const NO_BOUND: u64 = u64::MAX;

/// Bytes written concurrently with a merge, and their limit.
#[derive(Debug)]
pub struct Lead {
    /// Payload that was frozen since the merge began.
    frozen_bytes: AtomicU64,
    /// Payload that the memtable held when the merge began.
    begun_with_bytes: AtomicU64,
    allowed_bytes: AtomicU64,
}

impl Default for Lead {
    fn default() -> Self {
        Self { frozen_bytes: 0.into(), begun_with_bytes: 0.into(), allowed_bytes: NO_BOUND.into() }
    }
}

impl Lead {
    /// A merge begins while the memtable holds `memtable_bytes` of payload.
    pub(super) fn begin(&self, memtable_bytes: u64) {
        self.begun_with_bytes.store(memtable_bytes, Ordering::Relaxed);
        self.frozen_bytes.store(0, Ordering::Relaxed);
    }

    /// The merge has done `done` of `total`.
    pub(super) fn advance(&self, room_bytes: u64, kappa0_bytes: u64, done: u64, total: u64) {
        let begun_with = self.begun_with_bytes.load(Ordering::Relaxed);
        let allowed =
            begun_with.saturating_add(allowed_bytes(room_bytes, kappa0_bytes, done, total));
        self.allowed_bytes.store(allowed, Ordering::Relaxed);
    }

    /// The merge is done, or continues without reporting progress.
    pub(super) fn end(&self) {
        self.allowed_bytes.store(NO_BOUND, Ordering::Relaxed);
    }

    /// A memtable with `bytes` of payload was frozen.
    pub(super) fn froze(&self, bytes: u64) {
        self.frozen_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether writers should wait for the merge when the memtable holds `memtable_bytes` of
    /// payload.
    pub(super) fn is_used_up(&self, memtable_bytes: u64) -> bool {
        let allowed = self.allowed_bytes.load(Ordering::Relaxed);
        self.frozen_bytes.load(Ordering::Relaxed).saturating_add(memtable_bytes) > allowed
    }
}

/// The bytes that may have been written concurrently with a merge that has done `done` of `total`,
/// of a space of `room_bytes`.
fn allowed_bytes(room_bytes: u64, kappa0_bytes: u64, done: u64, total: u64) -> u64 {
    let share = u128::from(done.min(total)) * u128::from(room_bytes) / u128::from(total.max(1));
    // At most the space's size, which fits.
    (share as u64).saturating_add(kappa0_bytes / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By hand: a space of 800, κ0 of 100. A quarter of the merge allows 200 and half a memtable.
    #[test]
    fn room_opens_with_the_merge() {
        assert_eq!(allowed_bytes(800, 100, 0, 4000), 50);
        assert_eq!(allowed_bytes(800, 100, 1000, 4000), 250);
        assert_eq!(allowed_bytes(800, 100, 4000, 4000), 850);
        assert_eq!(allowed_bytes(800, 100, 5000, 4000), 850);
        assert_eq!(allowed_bytes(800, 100, 0, 0), 50);
    }

    #[test]
    fn what_was_there_before_does_not_count() {
        let lead = Lead::default();
        assert!(!lead.is_used_up(u64::MAX));
        lead.begin(70);
        lead.advance(800, 100, 0, 4000);
        assert!(!lead.is_used_up(120) && lead.is_used_up(121));
        lead.froze(120);
        lead.advance(800, 100, 1000, 4000);
        assert!(!lead.is_used_up(200) && lead.is_used_up(201));
        lead.end();
        assert!(!lead.is_used_up(u64::MAX - 120));
    }

    proptest! {
        #[test]
        fn there_is_no_cliff(room: u64, kappa0: u64, total in 1u64.., a: u64, b: u64) {
            let (less, more) = (a.min(b), a.max(b));
            let at = |done| allowed_bytes(room, kappa0, done, total);
            prop_assert!(at(less) <= at(more));
            prop_assert!(at(more) <= room.saturating_add(kappa0 / 2));
        }
    }
}
