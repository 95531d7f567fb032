//! Callers that allow merges to use the reserve of a full device
//! ([`esker_substrate::blocks`] keeps it): those that make room.

use esker_substrate::sync::atomic::Ordering;

use crate::Index;

/// While it lives, merges of its index may use the reserve permanently.
#[derive(Debug)]
#[must_use = "merges may use the reserve only while this lives"]
pub struct ReserveAllowed<'a> {
    index: &'a Index,
}

impl Index {
    /// Lets merges use the reserve: deletes wait for room, or the user asked for a compaction.
    pub fn allow_reserve(&self) -> ReserveAllowed<'_> {
        self.reserve_users.fetch_add(1, Ordering::AcqRel);
        ReserveAllowed { index: self }
    }

    /// Whether merges may use the reserve permanently.
    pub(crate) fn may_use_reserve(&self) -> bool {
        self.reserve_users.load(Ordering::Acquire) > 0
    }
}

impl Drop for ReserveAllowed<'_> {
    fn drop(&mut self) {
        self.index.reserve_users.fetch_sub(1, Ordering::AcqRel);
    }
}
