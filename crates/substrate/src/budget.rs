//! The memory budget of a store, which is a hard limit.
//!
//! Half is for memtables, three eighths for express fences and filters, an eighth for the block
//! cache and merge buffers. Unused memory of the first two is lent to the cache, which returns it
//! by evicting.
//!
//! Thread safety: everything may be called from any thread.
//! Invariant: the shares add up to the total.
//! Invariant: fences never exceed their share, because [`Budget::try_lease`] refuses; the cache's
//! limit is what is then left, so that the parts together stay within the total as long as
//! memtables stay within their share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below this total, in bytes, a store takes less memory for reading ahead, and writes less often
/// for the progress of merges.
pub const SMALL_BYTES: u64 = 1 << 20;

/// The uses of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Memtables, frozen ones included until they are drained.
    Memtables,
    /// Express fences and filters held in memory.
    Fences,
    /// Block cache and merge buffers.
    Cache,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Memtables, Self::Fences, Self::Cache];

    const fn index(self) -> usize {
        match self {
            Self::Memtables => 0,
            Self::Fences => 1,
            Self::Cache => 2,
        }
    }
}

/// The budget of one store.
#[derive(Debug)]
pub struct Budget {
    total_bytes: u64,
    used_bytes: [AtomicU64; 3],
}

/// Memory counted against a part until this is dropped.
#[derive(Debug)]
#[must_use = "the memory is counted only while the lease lives"]
pub struct Lease {
    budget: Arc<Budget>,
    part: Part,
    bytes: u64,
}

impl Budget {
    /// A budget of `total_bytes`.
    #[must_use]
    pub const fn new(total_bytes: u64) -> Self {
        Self { total_bytes, used_bytes: [const { AtomicU64::new(0) }; 3] }
    }

    /// The whole budget.
    #[must_use]
    pub const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// The part's own share, before anything is lent.
    #[must_use]
    pub const fn share_bytes(&self, part: Part) -> u64 {
        let eighth = self.total_bytes / 8;
        match part {
            Part::Memtables => self.total_bytes / 2,
            Part::Fences => 3 * eighth,
            Part::Cache => self.total_bytes - self.total_bytes / 2 - 3 * eighth,
        }
    }

    /// The limit of the part now: its share and, for the cache, the unused memory of the others.
    #[must_use]
    pub fn limit_bytes(&self, part: Part) -> u64 {
        match part {
            Part::Memtables | Part::Fences => self.share_bytes(part),
            Part::Cache => {
                let others =
                    self.used_bytes(Part::Memtables).saturating_add(self.used_bytes(Part::Fences));
                self.total_bytes.saturating_sub(others)
            }
        }
    }

    /// What the block cache may have when memtables take all of their share, in bytes.
    #[must_use]
    pub fn cache_without_lending(&self) -> u64 {
        let others = self.used_bytes(Part::Fences).saturating_add(self.used_bytes(Part::Cache));
        let rest = self.total_bytes - self.share_bytes(Part::Memtables);
        rest.saturating_sub(others)
    }

    /// The bytes that the part uses now.
    #[must_use]
    pub fn used_bytes(&self, part: Part) -> u64 {
        self.used_bytes[part.index()].load(Ordering::Relaxed)
    }

    /// The bytes that the part may still use.
    #[must_use]
    pub fn room_bytes(&self, part: Part) -> u64 {
        self.limit_bytes(part).saturating_sub(self.used_bytes(part))
    }

    /// The bytes that all parts use now.
    #[must_use]
    pub fn used_bytes_total(&self) -> u64 {
        Part::ALL.iter().fold(0, |sum, part| sum.saturating_add(self.used_bytes(*part)))
    }

    /// Counts `bytes` more for the part. For users that cannot be refused, such as a memtable after
    /// its write has been logged.
    pub fn add(&self, part: Part, bytes: u64) {
        self.used_bytes[part.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` less for the part; saturates at zero.
    pub fn sub(&self, part: Part, bytes: u64) {
        let used = &self.used_bytes[part.index()];
        let less = |now: u64| Some(now.saturating_sub(bytes));
        let _always_some = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Replaces the part's count, for users that know their whole use better than its changes.
    pub fn set(&self, part: Part, bytes: u64) {
        self.used_bytes[part.index()].store(bytes, Ordering::Relaxed);
    }

    /// Counts `bytes` for the part until the lease is dropped, within the part's limit or not.
    pub fn lease(self: &Arc<Self>, part: Part, bytes: u64) -> Lease {
        self.add(part, bytes);
        Lease { budget: Arc::clone(self), part, bytes }
    }

    /// Counts `bytes` for the part until the lease is dropped; `None` when that would exceed its
    /// limit.
    pub fn try_lease(self: &Arc<Self>, part: Part, bytes: u64) -> Option<Lease> {
        let limit = self.limit_bytes(part);
        let more = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used_bytes[part.index()]
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(|_| Lease { budget: Arc::clone(self), part, bytes })
    }
}

impl Lease {
    /// The bytes counted.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.sub(self.part, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn shares_add_up(total: u64) {
            let budget = Budget::new(total);
            let sum: u64 = Part::ALL.iter().map(|part| budget.share_bytes(*part)).sum();
            prop_assert_eq!(sum, total);
        }

        #[test]
        fn leases_never_exceed_the_limit(total in 0u64..1 << 40, asks: Vec<u32>) {
            let budget = Arc::new(Budget::new(total));
            let leases: Vec<_> =
                asks.iter().filter_map(|b| budget.try_lease(Part::Fences, (*b).into())).collect();
            let held: u64 = leases.iter().map(Lease::bytes).sum();
            prop_assert_eq!(budget.used_bytes(Part::Fences), held);
            prop_assert!(held <= budget.share_bytes(Part::Fences));
            drop(leases);
            prop_assert_eq!(budget.used_bytes_total(), 0);
        }
    }

    #[test]
    fn the_cache_borrows_what_the_others_leave() {
        let budget = Arc::new(Budget::new(1000));
        assert_eq!(budget.limit_bytes(Part::Cache), 1000);
        budget.add(Part::Memtables, 400);
        let fences = budget.try_lease(Part::Fences, 100);
        assert_eq!(budget.limit_bytes(Part::Cache), 500);
        drop(fences);
        budget.sub(Part::Memtables, 999);
        assert_eq!(budget.limit_bytes(Part::Cache), 1000);
    }
}
