//! Pages of tables on the versioned page store: which are free, and transactions that fill them.
//!
//! A page that a transaction frees may be used again at once: until the commit, and for readers
//! that hold an older version also after it, the store has the old contents elsewhere. A page that
//! stays free is written as zeros, which take no space.

use std::collections::{BTreeMap, BTreeSet};

use esker_pages::{Durability, PageStore, Snapshot, Versioned, Writer};

use super::error::pages;
use crate::{Error, Result};

/// Consecutive pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first.
    pub page: u32,
    /// Their number.
    pub pages: u32,
}

impl Span {
    /// Its pages.
    pub fn all(self) -> std::ops::Range<u32> {
        self.page..self.page.saturating_add(self.pages)
    }
}

/// The pages of a store, and which of them are free.
#[derive(Debug)]
pub struct Pager {
    store: PageStore,
    page_bytes: usize,
    /// Free pages below `end`, by the first of each span; no two of them touch.
    free: BTreeMap<u32, u32>,
    end: u32,
}

impl Pager {
    /// The pages of a store of which these are used.
    ///
    /// # Errors
    /// Two of them overlap.
    pub fn new(store: PageStore, mut used: Vec<Span>) -> Result<Self> {
        let page_bytes = store.pin().page_size() as usize;
        used.sort_unstable();
        let mut pager = Self { store, page_bytes, free: BTreeMap::new(), end: 0 };
        for span in used {
            if span.page < pager.end {
                return Err(Error::Invalid(format!("two tables have the page {}", span.page)));
            }
            if span.page > pager.end {
                pager.free.insert(pager.end, span.page - pager.end);
            }
            pager.end = span.all().end;
        }
        Ok(pager)
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &PageStore {
        &self.store
    }

    /// Bytes of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Pages that are used.
    #[must_use]
    pub fn used(&self) -> u64 {
        u64::from(self.end) - self.free.values().map(|pages| u64::from(*pages)).sum::<u64>()
    }

    /// Takes consecutive pages, the first that are free.
    fn take(&mut self, pages: u32) -> Result<Span> {
        let found = self.free.iter().find(|(_, free)| **free >= pages);
        let Some((page, free)) = found.map(|(page, free)| (*page, *free)) else {
            let page = self.end;
            let full = || Error::Run("a store of tables has 2^32 - 1 pages at most".to_owned());
            self.end = self.end.checked_add(pages).ok_or_else(full)?;
            return Ok(Span { page, pages });
        };
        self.free.remove(&page);
        if free > pages {
            self.free.insert(page + pages, free - pages);
        }
        Ok(Span { page, pages })
    }

    /// Gives pages back.
    fn put_back(&mut self, span: Span) {
        let Span { mut page, mut pages } = span;
        if let Some((before, count)) = self.free.range(..page).next_back()
            && before + count == page
        {
            (page, pages) = (*before, count + pages);
        }
        if let Some(behind) = self.free.remove(&span.all().end) {
            pages += behind;
        }
        self.free.insert(page, pages);
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// Those of the store.
    pub fn begin(&mut self) -> Result<Edit<'_>> {
        let writer = Versioned::begin(&self.store).map_err(pages)?;
        Ok(Edit { pager: self, writer, freed: BTreeSet::new() })
    }
}

/// A transaction. One that is dropped leaves the pages of its pager as they were, but not the
/// pager's account of them: it is then to be opened again.
#[derive(Debug)]
pub struct Edit<'a> {
    pager: &'a mut Pager,
    writer: Writer,
    freed: BTreeSet<u32>,
}

impl Edit<'_> {
    /// Bytes of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.pager.page_bytes
    }

    /// Writes bytes to pages that were free.
    ///
    /// # Errors
    /// Those of the store.
    pub fn add(&mut self, bytes: &[u8]) -> Result<Span> {
        let pages = bytes.len().div_ceil(self.pager.page_bytes).max(1);
        let span = self.pager.take(u32::try_from(pages).unwrap_or(u32::MAX))?;
        let mut page = vec![0; self.pager.page_bytes];
        for (number, part) in span.all().zip(bytes.chunks(self.pager.page_bytes)) {
            let (front, rest) = page.split_at_mut(part.len());
            front.copy_from_slice(part);
            rest.fill(0);
            self.write(number, 0, &page)?;
            self.freed.remove(&number);
        }
        Ok(span)
    }

    /// Changes a part of a page.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(&mut self, page: u32, offset: u32, bytes: &[u8]) -> Result<()> {
        Versioned::write(&self.pager.store, &mut self.writer, page, offset, bytes).map_err(pages)
    }

    /// Frees pages.
    pub fn release(&mut self, span: Span) {
        self.pager.put_back(span);
        self.freed.extend(span.all());
    }

    /// Makes the transaction the newest version, and durable.
    ///
    /// # Errors
    /// Those of the store.
    pub fn commit(mut self) -> Result<Snapshot> {
        let zeros = vec![0; self.pager.page_bytes];
        for page in std::mem::take(&mut self.freed) {
            self.write(page, 0, &zeros)?;
        }
        let Self { pager, writer, .. } = self;
        Versioned::commit(&pager.store, writer, Durability::Full).map_err(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_device::memory::MemoryDevice;
    use esker_device::{Caching, Device, Open};
    use esker_pages::Options;

    fn store() -> PageStore {
        let device = MemoryDevice::new();
        let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
        PageStore::open(file, Options::new().page_size(512)).unwrap()
    }

    fn span(page: u32, pages: u32) -> Span {
        Span { page, pages }
    }

    #[test]
    fn free_pages_are_joined_and_used_again() {
        let mut pager = Pager::new(store(), vec![span(0, 4), span(8, 2)]).unwrap();
        assert_eq!((pager.used(), pager.end), (6, 10));
        assert_eq!(pager.take(3).unwrap(), span(4, 3));
        assert_eq!(pager.take(3).unwrap(), span(10, 3));
        pager.put_back(span(4, 3));
        pager.put_back(span(8, 2));
        assert_eq!(pager.free, BTreeMap::from([(4, 6)]));
        assert_eq!(pager.take(6).unwrap(), span(4, 6));
        assert!(pager.free.is_empty());
        assert!(Pager::new(store(), vec![span(0, 4), span(3, 2)]).is_err());
    }

    #[test]
    fn a_freed_page_is_another_ones_and_readers_keep_the_old() {
        let mut pager = Pager::new(store(), vec![]).unwrap();
        let mut edit = pager.begin().unwrap();
        let first = edit.add(&[1; 700]).unwrap();
        let old = edit.commit().unwrap();
        assert_eq!(first, span(0, 2));
        let mut edit = pager.begin().unwrap();
        edit.release(first);
        assert_eq!(edit.add(&[2; 10]).unwrap(), span(0, 1));
        let new = edit.commit().unwrap();
        let read = |at: &Snapshot, page| {
            let mut bytes = [9; 512];
            at.read(page, 0, &mut bytes).unwrap();
            (bytes[0], bytes[511])
        };
        assert_eq!([read(&old, 0), read(&old, 1)], [(1, 1), (1, 0)]);
        assert_eq!([read(&new, 0), read(&new, 1)], [(2, 0), (0, 0)]);
        assert_eq!(pager.used(), 1);
    }
}
