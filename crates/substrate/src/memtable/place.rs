//! A version where it stands, and the way to its neighbours.

use std::fmt;
use std::ops::Deref;

use crossbeam_skiplist::set::Entry;

use super::list::{Leaves, Spot};
use super::version::Version;

/// A version in a list of leaves. Keeps nothing alive but the list it borrows.
pub struct Place<'a> {
    leaves: &'a Leaves,
    spot: Spot,
    entry: Entry<'a, Version>,
}

impl<'a> Place<'a> {
    pub(super) const fn new(leaves: &'a Leaves, spot: Spot, entry: Entry<'a, Version>) -> Self {
        Self { leaves, spot, entry }
    }

    /// The version behind this one. In a list that still grows it may be one that was inserted
    /// since. At once, or the cost of finding the next leaf.
    #[must_use]
    pub fn next(&self) -> Option<Self> {
        match self.entry.next() {
            Some(entry) => Some(Self { entry, ..*self }),
            None => self.leaves.first_from(self.leaves.after(self.spot)?),
        }
    }

    /// The version before this one. Costs a search of the leaf.
    #[must_use]
    pub fn prev(&self) -> Option<Self> {
        match self.entry.prev() {
            Some(entry) => Some(Self { entry, ..*self }),
            None => self.leaves.last_to(self.leaves.before(self.spot)?),
        }
    }
}

impl Deref for Place<'_> {
    type Target = Version;
    fn deref(&self) -> &Version {
        self.entry.value()
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&**self).finish()
    }
}
