//! A leaf: a short ordered set of versions with a memory of its own.

use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_skiplist::{SkipSet, set::Entry};
use esker_format::ids::Seq;

use super::version::{Placed, Position, Version};

/// Estimated memory of a leaf beside its versions and its boundary's key, in bytes: 32 pointers
/// at the set's head, its counters on cache lines of their own, the boundary, two list entries.
pub(super) const LEAF_BYTES: u64 = 640;

/// The versions between its lower boundary and that of the leaf behind it.
pub struct Leaf {
    lower: Boundary,
    versions: SkipSet<Version>,
    /// Estimated memory of the versions.
    load_bytes: AtomicU64,
}

/// Where a leaf begins: between two versions, or at one.
pub(super) struct Boundary {
    key: Box<[u8]>,
    seq: Seq,
}

impl Boundary {
    /// Before everything.
    pub(super) fn least() -> Self {
        Self { key: Box::default(), seq: Seq::MAX }
    }

    /// Where `version` stands.
    pub(super) fn at(version: &Version) -> Self {
        Self { key: version.key().into(), seq: version.seq() }
    }

    /// Just behind `version`: nothing stands between.
    pub(super) fn behind(version: &Version) -> Self {
        match version.seq().0.checked_sub(1) {
            Some(lower) => Self { key: version.key().into(), seq: Seq(lower) },
            None => {
                let key = version.key().iter().copied().chain([0]).collect();
                Self { key, seq: Seq::MAX }
            }
        }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn position(&self) -> Position<'_> {
        Position::new(&self.key, self.seq)
    }
}

impl Clone for Boundary {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), seq: self.seq }
    }
}

impl Leaf {
    /// A leaf of these versions, which are in order and at or behind `lower`.
    pub(super) fn new(lower: Boundary, versions: Vec<Version>) -> Self {
        let leaf = Self { lower, versions: SkipSet::new(), load_bytes: AtomicU64::new(0) };
        // From the back: every search then ends at the first node of each level.
        for version in versions.into_iter().rev() {
            leaf.insert(version);
        }
        leaf
    }

    pub(super) fn insert(&self, version: Version) {
        self.load_bytes.fetch_add(version.memory_bytes(), Ordering::Relaxed);
        self.versions.insert(version);
    }

    pub(super) const fn lower(&self) -> &Boundary {
        &self.lower
    }

    /// Versions in it.
    pub fn len(&self) -> usize {
        self.versions.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// Estimated memory of the versions, in bytes.
    pub(super) fn load_bytes(&self) -> u64 {
        self.load_bytes.load(Ordering::Relaxed)
    }

    /// Estimated memory, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.load_bytes() + self.lower.key().len() as u64 + LEAF_BYTES
    }

    pub(super) fn first(&self) -> Option<Entry<'_, Version>> {
        self.versions.front()
    }

    pub(super) fn last(&self) -> Option<Entry<'_, Version>> {
        self.versions.back()
    }

    /// The first version at or behind `position`.
    pub(super) fn lower_bound(&self, position: Position<'_>) -> Option<Entry<'_, Version>> {
        self.versions.lower_bound(Bound::Included(&position as &dyn Placed))
    }

    /// The last version before `position`.
    pub(super) fn upper_bound(&self, position: Position<'_>) -> Option<Entry<'_, Version>> {
        self.versions.upper_bound(Bound::Excluded(&position as &dyn Placed))
    }

    /// Appends all versions in order.
    pub fn collect(&self, out: &mut Vec<Version>) {
        out.extend(self.versions.iter().map(|entry| entry.value().clone()));
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaf")
            .field("len", &self.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
