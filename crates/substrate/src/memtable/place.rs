//! The place of a version in the memtable, and the steps to its neighbours.

use std::fmt;
use std::ops::Deref;

use super::cursor::Cursor;
use super::list::{Leaves, Spot};
use super::version::Version;

/// A version in a list of leaves. Keeps nothing alive but the list it borrows.
pub struct Place<'a> {
    leaves: &'a Leaves,
    spot: Spot,
    /// The gap behind the version.
    cursor: Cursor<'a>,
    version: &'a Version,
}

impl<'a> Place<'a> {
    pub(super) const fn new(
        leaves: &'a Leaves,
        spot: Spot,
        cursor: Cursor<'a>,
        version: &'a Version,
    ) -> Self {
        Self { leaves, spot, cursor, version }
    }

    /// The version behind this one. In a list that still grows, versions that were inserted after
    /// this place was found may be passed over.
    #[must_use]
    pub fn next(&self) -> Option<Self> {
        self.leaves.up(self.spot, self.cursor)
    }

    /// The version before this one; inserts as in [`Place::next`].
    #[must_use]
    pub fn prev(&self) -> Option<Self> {
        let mut cursor = self.cursor;
        cursor.down();
        self.leaves.down(self.spot, cursor)
    }

    /// The version, for as long as the list is borrowed.
    #[must_use]
    pub const fn version(&self) -> &'a Version {
        self.version
    }
}

impl Deref for Place<'_> {
    type Target = Version;
    fn deref(&self) -> &Version {
        self.version
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(self.version).finish()
    }
}
