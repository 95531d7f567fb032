//! Files on a block device: their names, their places, and the page cache.
//!
//! **Invariants.** F1: a file of the layout has a name or an open handle. F2: a page of the page
//! cache is of a file of the layout. F3: pages of a file that has neither name nor handle are
//! trimmed, as a file system does when the last handle of a removed file is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use esker_device::Purpose;

use super::blocks::Blocks;
use super::layout::{FileId, Layout};
use crate::error::{Error, Result};
use crate::nand::Lpn;

/// Bytes of an extent.
const EXTENT_BYTES: u64 = 64 << 10;
/// Dirty bytes after which all dirty pages are written.
const DIRTY_BYTES_MAX: u64 = 16 << 20;

type Pages = BTreeMap<u64, Purpose>;

/// The files of a device.
pub(super) struct Files<B> {
    pub blocks: B,
    layout: Layout,
    names: BTreeMap<String, FileId>,
    /// The number of open handles of each file that has one.
    handles: BTreeMap<FileId, u32>,
    /// Files without a name that have a handle.
    nameless: BTreeSet<FileId>,
    /// Pages of each file that are in the page cache alone, and for what they were written.
    dirty: BTreeMap<FileId, Pages>,
    /// Why the pages of a closed file were not trimmed. The next request answers it.
    failed: Option<Error>,
}

impl<B: Blocks> Files<B> {
    pub fn new(blocks: B) -> Self {
        let extent_pages = EXTENT_BYTES / blocks.page_bytes().max(1);
        Self {
            layout: Layout::new(blocks.pages(), extent_pages as u32),
            blocks,
            names: BTreeMap::new(),
            handles: BTreeMap::new(),
            nameless: BTreeSet::new(),
            dirty: BTreeMap::new(),
            failed: None,
        }
    }

    pub const fn used_pages(&self) -> u64 {
        self.layout.used_pages()
    }

    pub fn page_bytes(&self) -> u64 {
        self.blocks.page_bytes()
    }

    /// Opens a handle of the file of this name, which is created if there is none.
    pub fn open(&mut self, name: &str) -> FileId {
        let id = match self.names.get(name) {
            Some(id) => *id,
            None => {
                let id = self.layout.create();
                self.names.insert(name.to_owned(), id);
                id
            }
        };
        *self.handles.entry(id).or_default() += 1;
        id
    }

    /// Closes a handle.
    pub fn close(&mut self, file: FileId) {
        let Some(count) = self.handles.get_mut(&file) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.handles.remove(&file);
        if self.nameless.remove(&file)
            && let Err(error) = self.forget(file)
        {
            self.failed = Some(error);
        }
    }

    /// Removes a name; its file goes with its last handle.
    pub fn remove(&mut self, name: &str) -> Result<()> {
        let Some(file) = self.names.remove(name) else { return Ok(()) };
        if self.handles.contains_key(&file) {
            self.nameless.insert(file);
            return Ok(());
        }
        self.forget(file)
    }

    /// Gives a file another name, whose file is removed.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        if from == to || !self.names.contains_key(from) {
            return Ok(());
        }
        let removed = self.remove(to);
        if let Some(file) = self.names.remove(from) {
            self.names.insert(to.to_owned(), file);
        }
        removed
    }

    /// The pages that a range of bytes touches.
    fn touched(&self, offset: u64, len: u64) -> Range<u64> {
        let page = self.page_bytes();
        let first = offset / page;
        if len == 0 { first..first } else { first..offset.saturating_add(len).div_ceil(page) }
    }

    /// The pages that a range of bytes covers whole.
    pub fn covered(&self, offset: u64, len: u64) -> Range<u64> {
        let page = self.page_bytes();
        offset.div_ceil(page)..offset.saturating_add(len) / page
    }

    /// One request of the host: all of its pages are in flight together.
    fn request<T>(&mut self, pages: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.blocks.begin();
        let done = pages(self)?;
        self.blocks.end()?;
        Ok(done)
    }

    fn write_page(&mut self, file: FileId, page: u64, purpose: Purpose) -> Result<()> {
        let Some(lpn) = self.layout.place(file, page) else {
            return Err(Error::Full("the files take all extents of the device".into()));
        };
        self.blocks.write(lpn, purpose)
    }

    /// Writes a range past the page cache.
    pub fn write(&mut self, file: FileId, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        let (touched, covered) = (self.touched(offset, len), self.covered(offset, len));
        self.request(|files| {
            for page in touched {
                if let Some(dirty) = files.dirty.get_mut(&file) {
                    dirty.remove(&page);
                }
                let read = files.layout.find(file, page).filter(|_| !covered.contains(&page));
                match read {
                    Some(lpn) => files.blocks.rewrite(lpn, purpose)?,
                    None => files.write_page(file, page, purpose)?,
                }
            }
            Ok(())
        })
    }

    /// Writes a range into the page cache.
    pub fn buffer(&mut self, file: FileId, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        let touched = self.touched(offset, len);
        self.dirty.entry(file).or_default().extend(touched.map(|page| (page, purpose)));
        let pages: usize = self.dirty.values().map(BTreeMap::len).sum();
        if pages as u64 * self.page_bytes() <= DIRTY_BYTES_MAX {
            return Ok(());
        }
        while let Some((file, _)) = self.dirty.first_key_value() {
            self.write_back(*file)?;
        }
        Ok(())
    }

    /// Writes the dirty pages of a file. Those that cannot be written stay dirty.
    fn write_back(&mut self, file: FileId) -> Result<()> {
        let Some(mut dirty) = self.dirty.remove(&file) else { return Ok(()) };
        self.request(|files| {
            while let Some((page, purpose)) = dirty.pop_first() {
                if let Err(error) = files.write_page(file, page, purpose) {
                    dirty.insert(page, purpose);
                    files.dirty.insert(file, dirty);
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    /// Writes the dirty pages of a file, and flushes the device.
    pub fn sync(&mut self, file: FileId) -> Result<()> {
        self.write_back(file)?;
        self.request(|files| files.blocks.flush())
    }

    fn is_dirty(&self, file: FileId, page: u64) -> bool {
        self.dirty.get(&file).is_some_and(|dirty| dirty.contains_key(&page))
    }

    pub fn read(&mut self, file: FileId, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        let pages = self.touched(offset, len);
        self.request(|files| {
            for page in pages {
                let lpn = files.layout.find(file, page).filter(|_| !files.is_dirty(file, page));
                if let Some(lpn) = lpn {
                    files.blocks.read(lpn, purpose)?;
                }
            }
            Ok(())
        })
    }

    fn trim(&mut self, pages: Vec<Lpn>) -> Result<()> {
        self.request(|files| pages.into_iter().try_for_each(|lpn| files.blocks.trim(lpn)))
    }

    pub fn discard(&mut self, file: FileId, pages: Range<u64>) -> Result<()> {
        if let Some(dirty) = self.dirty.get_mut(&file) {
            dirty.retain(|page, _| !pages.contains(page));
        }
        let trimmed = self.layout.discard(file, pages);
        self.trim(trimmed)
    }

    /// Trims a file that has neither name nor handle.
    fn forget(&mut self, file: FileId) -> Result<()> {
        self.dirty.remove(&file);
        let trimmed = self.layout.remove(file);
        self.trim(trimmed)
    }

    /// Keeps room for a range of a file.
    pub fn reserve(&mut self, file: FileId, offset: u64, len: u64) -> Result<()> {
        let pages = self.touched(offset, len);
        if self.layout.reserve(file, pages) {
            return Ok(());
        }
        Err(Error::Full("the files take all extents of the device".into()))
    }
}
