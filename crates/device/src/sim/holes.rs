//! Sectors that were discarded: they take no room until they are written or allocated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::image::{InodeId, Names};

/// The holes of all files.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes(BTreeMap<InodeId, BTreeSet<usize>>);

impl Holes {
    /// The number of holes of a range of a file.
    pub(super) fn count(&self, inode: InodeId, sectors: Range<usize>) -> usize {
        let holes = self.0.get(&inode).filter(|_| !sectors.is_empty());
        holes.map_or(0, |holes| holes.range(sectors).count())
    }

    /// The number of holes in the files that have names.
    pub(super) fn named(&self, names: &Names) -> usize {
        let named = names.values().filter_map(|inode| self.0.get(inode));
        named.map(BTreeSet::len).sum()
    }

    /// A range is discarded.
    pub(super) fn add(&mut self, inode: InodeId, sectors: Range<usize>) {
        self.0.entry(inode).or_default().extend(sectors);
    }

    /// A range takes room.
    pub(super) fn fill(&mut self, inode: InodeId, sectors: &Range<usize>) {
        if let Some(holes) = self.0.get_mut(&inode) {
            holes.retain(|sector| !sectors.contains(sector));
        }
    }
}
