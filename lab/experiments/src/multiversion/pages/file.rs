//! A file of pages.

use std::collections::HashMap;

use super::{Counters, PageId};
use crate::{Error, Result};

/// Pages of one size, by number. Pages that were never written, or were freed, take no space.
#[derive(Clone, Debug)]
pub struct PageFile {
    page_bytes: usize,
    pages: HashMap<PageId, Box<[u8]>>,
    last_written: Option<PageId>,
    counters: Counters,
}

impl PageFile {
    /// An empty file with pages of this size.
    #[must_use]
    pub fn new(page_bytes: usize) -> Self {
        let (pages, counters) = (HashMap::new(), Counters::default());
        Self { page_bytes, pages, last_written: None, counters }
    }

    /// The size of a page.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Reads a page.
    ///
    /// # Errors
    /// When it was never written, or was freed.
    pub fn read(&mut self, id: PageId) -> Result<&[u8]> {
        self.counters.reads += 1;
        self.pages.get(&id).map(AsRef::as_ref).ok_or_else(|| missing(id))
    }

    /// Writes a page.
    ///
    /// # Errors
    /// When `bytes` are not a page.
    pub fn write(&mut self, id: PageId, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.page_bytes {
            return Err(Error::Invalid(format!("{} bytes are no page", bytes.len())));
        }
        self.counters.writes += 1;
        let follows = self.last_written.is_some_and(|last| last.wrapping_add(1) == id);
        self.counters.sequential += u64::from(follows);
        self.last_written = Some(id);
        match self.pages.get_mut(&id) {
            Some(page) => page.copy_from_slice(bytes),
            None => drop(self.pages.insert(id, bytes.into())),
        }
        Ok(())
    }

    /// Gives a page's space back.
    pub fn free(&mut self, id: PageId) {
        self.pages.remove(&id);
    }

    /// How many pages take space.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// The bytes of every page, uncounted and in no order: for surveys.
    pub fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.pages.values().map(AsRef::as_ref)
    }

    /// What was read and written.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }
}

fn missing(id: PageId) -> Error {
    Error::Invalid(format!("page {id} is not in the file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted() {
        let mut file = PageFile::new(4);
        for (id, byte) in [(7, 1), (8, 2), (3, 3), (4, 4), (4, 5)] {
            file.write(id, &[byte; 4]).unwrap();
        }
        assert_eq!(file.read(4).unwrap(), [5; 4]);
        assert_eq!(file.counters(), Counters { reads: 1, writes: 5, sequential: 2 });
        file.free(4);
        assert!(file.read(4).is_err());
        assert!(file.write(1, &[0; 3]).is_err());
        assert_eq!(file.pages(), 3);
    }
}
