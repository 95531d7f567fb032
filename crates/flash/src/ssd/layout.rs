//! Where the pages of files are on the device: in extents, the lowest free one first, as a file
//! system that is not full would place them.
//!
//! **Invariants.** L1: an extent is free or belongs to one file. L2: an extent of a file has at
//! least one page that was written and not discarded since, or was reserved and not discarded
//! whole since; another one is free.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::nand::Lpn;

/// A file, also after its name is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileId(u64);

/// The places of all files. Memory: about 100 bytes and a bit for each page, for each extent.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    extent_pages: u32,
    free: BTreeSet<u32>,
    files: BTreeMap<FileId, BTreeMap<u64, Extent>>,
    created: u64,
    used: u64,
}

#[derive(Clone, Debug)]
struct Extent {
    number: u32,
    /// Of each page, whether it was written and not discarded since.
    written: Vec<u64>,
    count: u32,
    reserved: bool,
}

impl Extent {
    fn new(number: u32, pages: u32) -> Self {
        let written = vec![0; pages.div_ceil(64) as usize];
        Self { number, written, count: 0, reserved: false }
    }

    /// Answers whether it was written before.
    fn set(&mut self, at: u32, is_written: bool) -> bool {
        let (word, bit) = (&mut self.written[at as usize / 64], 1 << (at % 64));
        let was_written = *word & bit != 0;
        if is_written != was_written {
            *word ^= bit;
            self.count = if is_written { self.count + 1 } else { self.count - 1 };
        }
        was_written
    }

    fn is_written(&self, at: u32) -> bool {
        self.written[at as usize / 64] & (1 << (at % 64)) != 0
    }
}

impl Layout {
    /// A device of `pages` logical pages, in whole extents of `extent_pages`.
    pub fn new(pages: u32, extent_pages: u32) -> Self {
        let extent_pages = extent_pages.max(1);
        let free = (0..pages / extent_pages).collect();
        Self { extent_pages, free, files: BTreeMap::new(), created: 0, used: 0 }
    }

    /// A new, empty file.
    pub fn create(&mut self) -> FileId {
        self.created += 1;
        let id = FileId(self.created);
        self.files.insert(id, BTreeMap::new());
        id
    }

    fn split(&self, page: u64) -> (u64, u32) {
        let pages = u64::from(self.extent_pages);
        (page / pages, (page % pages) as u32)
    }

    fn lpn(&self, extent: u32, at: u32) -> Lpn {
        Lpn(extent * self.extent_pages + at)
    }

    /// The logical page of a file's page that is about to be written; `None` where the device has
    /// no free extent, or the file is gone.
    pub fn place(&mut self, file: FileId, page: u64) -> Option<Lpn> {
        let (index, at) = self.split(page);
        let extent = match self.files.get_mut(&file)?.entry(index) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => {
                place.insert(Extent::new(self.free.pop_first()?, self.extent_pages))
            }
        };
        self.used += u64::from(!extent.set(at, true));
        let number = extent.number;
        Some(self.lpn(number, at))
    }

    /// Keeps the extents of a range of a file for it. False where there are too few, and then it
    /// keeps none of them.
    pub fn reserve(&mut self, file: FileId, pages: Range<u64>) -> bool {
        let per_extent = u64::from(self.extent_pages);
        let range = pages.start / per_extent..pages.end.div_ceil(per_extent);
        let Some(extents) = self.files.get_mut(&file).filter(|_| !pages.is_empty()) else {
            return true;
        };
        let there = extents.range(range.clone()).count() as u64;
        if range.end - range.start - there > self.free.len() as u64 {
            return false;
        }
        for index in range {
            if let Entry::Vacant(place) = extents.entry(index)
                && let Some(number) = self.free.pop_first()
            {
                place.insert(Extent::new(number, self.extent_pages));
            }
            if let Some(extent) = extents.get_mut(&index) {
                extent.reserved = true;
            }
        }
        true
    }

    /// Pages of files that were written and not discarded since.
    pub const fn used_pages(&self) -> u64 {
        self.used
    }

    /// The logical page of a file's page, if it was written.
    pub fn find(&self, file: FileId, page: u64) -> Option<Lpn> {
        let (index, at) = self.split(page);
        let extent = self.files.get(&file)?.get(&index)?;
        extent.is_written(at).then(|| self.lpn(extent.number, at))
    }

    /// Forgets pages of a file, and returns those that had been written, for a trim.
    pub fn discard(&mut self, file: FileId, pages: Range<u64>) -> Vec<Lpn> {
        let per_extent = u64::from(self.extent_pages);
        let (mut trimmed, mut empty) = (Vec::new(), Vec::new());
        let Some(extents) = self.files.get_mut(&file) else { return trimmed };
        let (first, behind) = (pages.start / per_extent, pages.end.div_ceil(per_extent));
        if first >= behind {
            return trimmed;
        }
        for (index, extent) in extents.range_mut(first..behind) {
            let begin = pages.start.saturating_sub(index * per_extent).min(per_extent);
            let end = pages.end.saturating_sub(index * per_extent).min(per_extent);
            for at in begin as u32..end as u32 {
                if extent.set(at, false) {
                    trimmed.push(Lpn(extent.number * self.extent_pages + at));
                }
            }
            extent.reserved &= begin > 0 || end < per_extent;
            if extent.count == 0 && !extent.reserved {
                empty.push(*index);
            }
        }
        self.used -= trimmed.len() as u64;
        let numbers = empty.iter().filter_map(|index| extents.remove(index));
        self.free.extend(numbers.map(|extent| extent.number));
        trimmed
    }

    /// Forgets a file, and returns its pages that had been written, for a trim.
    pub fn remove(&mut self, file: FileId) -> Vec<Lpn> {
        let trimmed = self.discard(file, 0..u64::MAX);
        self.files.remove(&file);
        trimmed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By hand: extents of 4 pages on a device of 11.
    #[test]
    fn extents_are_taken_from_the_lowest_on_and_given_back() {
        let mut layout = Layout::new(11, 4);
        let (a, b) = (layout.create(), layout.create());
        assert_eq!(layout.place(a, 5), Some(Lpn(1)));
        assert_eq!(layout.place(b, 0), Some(Lpn(4)));
        assert_eq!(layout.place(a, 0), None, "11 pages are two extents");
        assert_eq!(layout.find(a, 5), Some(Lpn(1)));
        assert_eq!(layout.find(a, 4), None);
        assert_eq!(layout.discard(a, 4..6), [Lpn(1)]);
        assert_eq!(layout.place(b, 9), Some(Lpn(1)));
        assert_eq!(layout.remove(b), [Lpn(4), Lpn(1)]);
        assert_eq!(layout.place(b, 0), None);
    }

    #[test]
    fn extents_are_kept_for_their_file() {
        let mut layout = Layout::new(12, 4);
        let (a, b) = (layout.create(), layout.create());
        assert!(layout.reserve(a, 1..6));
        assert!(!layout.reserve(b, 0..8), "one extent is left");
        assert_eq!(layout.place(b, 0), Some(Lpn(8)));
        assert_eq!(layout.place(b, 4), None);
        assert_eq!(layout.place(a, 5), Some(Lpn(5)));
        assert_eq!(layout.discard(a, 2..6), [Lpn(5)]);
        assert_eq!(layout.place(b, 4), None, "neither extent was discarded whole");
        assert_eq!(layout.discard(a, 0..8), []);
        assert_eq!(layout.place(b, 4), Some(Lpn(0)));
    }

    proptest! {
        /// The same as a map of pages: no two pages of files share a logical page, and what was
        /// written is found until it is discarded.
        #[test]
        fn pages_are_found_until_they_are_discarded(
            steps in prop::collection::vec((0u8..3, 0usize..3, 0u64..40, 0u64..12), 0..200),
        ) {
            let mut layout = Layout::new(100, 7);
            let files: Vec<_> = (0..3).map(|_| layout.create()).collect();
            let mut model = BTreeMap::new();
            for (kind, file, page, len) in steps {
                if kind < 2 {
                    if let Some(lpn) = layout.place(files[file], page) {
                        model.insert((file, page), lpn);
                    }
                } else {
                    let mut trimmed = layout.discard(files[file], page..page + len);
                    let mut expected: Vec<_> = (page..page + len)
                        .filter_map(|page| model.remove(&(file, page)))
                        .collect();
                    trimmed.sort();
                    expected.sort();
                    prop_assert_eq!(trimmed, expected);
                }
                let places: BTreeSet<_> = model.values().copied().collect();
                prop_assert_eq!(places.len(), model.len());
                prop_assert_eq!(layout.used_pages(), model.len() as u64);
                for page in 0..40 {
                    let expected = model.get(&(file, page)).copied();
                    prop_assert_eq!(layout.find(files[file], page), expected);
                }
            }
        }
    }
}
