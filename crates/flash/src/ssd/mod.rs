//! A store on a simulated SSD: a device around a device.
//!
//! [`SsdDevice`] passes every operation to an inner device, which keeps the bytes, and lets a
//! translation layer do the same to flash that keeps none. So any store runs on it unchanged, and
//! its write amplification, erases and wear are counted. Files are laid out in extents of 64 KiB
//! (`layout`); discarding, truncating and removing trims.
//!
//! **The page cache.** Writes to a [`Caching::Buffered`] file, and values to a
//! [`Caching::Selective`] one, make pages dirty, and reach the flash at the next sync of the file,
//! or when more than 16 MiB are dirty. All other writes reach it at once, whole pages: a write of a
//! part of a page that was written before reads it first. Every read is one of the flash, also
//! where the page cache of a real system would have it.
//!
//! **Time.** Requests follow each other: each begins when the one before has ended, and all pages
//! of a request are in flight together. What the file system itself writes is not modelled.

mod layout;
mod report;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_device::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, ReadRequest,
    Result,
};

use self::layout::{FileId, Layout};
pub use self::report::SsdReport;
use crate::error::Error;
use crate::ftl::Ftl;
use crate::nand::Lpn;

/// Bytes of an extent.
const EXTENT_BYTES: u64 = 64 << 10;
/// Dirty bytes after which all dirty pages are written.
const DIRTY_BYTES_MAX: u64 = 16 << 20;

/// A device whose writes are also those of a simulated SSD.
pub struct SsdDevice {
    inner: Arc<dyn Device>,
    ssd: Arc<Mutex<Ssd>>,
}

struct SsdFile {
    inner: Arc<dyn DeviceFile>,
    ssd: Arc<Mutex<Ssd>>,
    id: FileId,
    caching: Caching,
}

/// The simulated side.
struct Ssd {
    layer: Box<dyn Ftl + Send>,
    layout: Layout,
    names: BTreeMap<String, FileId>,
    /// Pages of each file that are in the page cache alone, and for what they were written.
    dirty: BTreeMap<FileId, Pages>,
    written: [u64; Purpose::ALL.len()],
    now_ns: u64,
}

type Pages = BTreeMap<u64, Purpose>;

type SimResult<T> = std::result::Result<T, Error>;

impl SsdDevice {
    /// Puts files of `inner` on an empty `layer`, over flash that keeps no data. Files that are
    /// there already are written first, whole.
    ///
    /// # Errors
    /// Those of the inner device; an SSD that is too small for what is there.
    pub fn new(inner: Arc<dyn Device>, layer: Box<dyn Ftl + Send>) -> Result<Self> {
        let extent_pages = EXTENT_BYTES / u64::from(layer.geometry().page_size());
        let layout = Layout::new(layer.logical_pages(), extent_pages as u32);
        let ssd = Ssd {
            layer,
            layout,
            names: BTreeMap::new(),
            dirty: BTreeMap::new(),
            written: [0; Purpose::ALL.len()],
            now_ns: 0,
        };
        let device = Self { inner, ssd: Arc::new(Mutex::new(ssd)) };
        for name in device.inner.list()? {
            let file = device.open(&name, Open::Existing, Caching::Direct)?;
            let len = file.len()?;
            let mut ssd = device.lock();
            let id = ssd.file(&name);
            let written = ssd.write(id, 0, len, Purpose::User);
            written.map_err(|error| failed(Operation::Write, &name, 0, &error))?;
        }
        Ok(device)
    }

    /// What was done so far. Dirty pages in the page cache are not part of it.
    #[must_use]
    pub fn report(&self) -> SsdReport {
        let ssd = self.lock();
        SsdReport {
            page_bytes: ssd.page_bytes(),
            host: ssd.layer.host(),
            written: ssd.written,
            flash: *ssd.layer.counters(),
            wear: ssd.layer.wear(),
            busy_ns: ssd.now_ns,
        }
    }

    /// The logical pages of the device.
    #[must_use]
    pub fn logical_pages(&self) -> u32 {
        self.lock().layer.logical_pages()
    }

    /// Logical pages that were written and not trimmed since.
    #[must_use]
    pub fn used_pages(&self) -> u64 {
        self.lock().layout.used_pages()
    }

    /// Checks the invariants of the layer.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> SimResult<()> {
        self.lock().layer.check()
    }

    fn lock(&self) -> MutexGuard<'_, Ssd> {
        lock(&self.ssd)
    }
}

fn lock(ssd: &Mutex<Ssd>) -> MutexGuard<'_, Ssd> {
    ssd.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a device for one of the simulation.
fn failed(operation: Operation, name: &str, offset: u64, error: &Error) -> DeviceError {
    let kind = match error {
        Error::Full(_) => ErrorKind::StorageFull,
        _ => ErrorKind::Other,
    };
    DeviceError::new(operation, name, offset, io::Error::new(kind, error.to_string()))
}

impl Ssd {
    fn page_bytes(&self) -> u64 {
        u64::from(self.layer.geometry().page_size())
    }

    fn file(&mut self, name: &str) -> FileId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let id = self.layout.create();
        self.names.insert(name.to_owned(), id);
        id
    }

    /// The pages that a range of bytes touches.
    fn touched(&self, offset: u64, len: u64) -> Range<u64> {
        let page = self.page_bytes();
        let first = offset / page;
        if len == 0 { first..first } else { first..offset.saturating_add(len).div_ceil(page) }
    }

    /// The pages that a range of bytes covers whole.
    fn covered(&self, offset: u64, len: u64) -> Range<u64> {
        let page = self.page_bytes();
        offset.div_ceil(page)..offset.saturating_add(len) / page
    }

    /// One request of the host: all of its pages are in flight together.
    fn request<T>(&mut self, pages: impl FnOnce(&mut Self) -> SimResult<T>) -> SimResult<T> {
        self.layer.issue_at(self.now_ns);
        let done = pages(self)?;
        self.now_ns = self.now_ns.max(self.layer.end_ns());
        Ok(done)
    }

    fn write_page(&mut self, file: FileId, page: u64, purpose: Purpose) -> SimResult<()> {
        if !self.layout.has(file) {
            return Ok(());
        }
        let Some(lpn) = self.layout.place(file, page) else {
            return Err(Error::Full("the files take all extents of the device".into()));
        };
        self.layer.write(lpn, &[])?;
        self.written[purpose as usize] += 1;
        Ok(())
    }

    /// Writes a range past the page cache.
    fn write(&mut self, file: FileId, offset: u64, len: u64, purpose: Purpose) -> SimResult<()> {
        let (touched, covered) = (self.touched(offset, len), self.covered(offset, len));
        self.request(|ssd| {
            for page in touched {
                if let Some(dirty) = ssd.dirty.get_mut(&file) {
                    dirty.remove(&page);
                }
                let read = ssd.layout.find(file, page).filter(|_| !covered.contains(&page));
                if let Some(lpn) = read {
                    ssd.layer.read(lpn, &mut [])?;
                }
                ssd.write_page(file, page, purpose)?;
            }
            Ok(())
        })
    }

    /// Writes a range into the page cache.
    fn buffer(&mut self, file: FileId, offset: u64, len: u64, purpose: Purpose) -> SimResult<()> {
        if !self.layout.has(file) {
            return Ok(());
        }
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
    fn write_back(&mut self, file: FileId) -> SimResult<()> {
        let Some(mut dirty) = self.dirty.remove(&file) else { return Ok(()) };
        self.request(|ssd| {
            while let Some((page, purpose)) = dirty.pop_first() {
                if let Err(error) = ssd.write_page(file, page, purpose) {
                    dirty.insert(page, purpose);
                    ssd.dirty.insert(file, dirty);
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    /// Writes the dirty pages of a file, and flushes the device.
    fn sync(&mut self, file: FileId) -> SimResult<()> {
        self.write_back(file)?;
        self.request(|ssd| ssd.layer.flush())
    }

    fn is_dirty(&self, file: FileId, page: u64) -> bool {
        self.dirty.get(&file).is_some_and(|dirty| dirty.contains_key(&page))
    }

    fn read(&mut self, file: FileId, offset: u64, len: u64) -> SimResult<()> {
        let pages = self.touched(offset, len);
        self.request(|ssd| {
            for page in pages {
                let lpn = ssd.layout.find(file, page).filter(|_| !ssd.is_dirty(file, page));
                if let Some(lpn) = lpn {
                    ssd.layer.read(lpn, &mut [])?;
                }
            }
            Ok(())
        })
    }

    fn trim(&mut self, pages: Vec<Lpn>) -> SimResult<()> {
        self.request(|ssd| pages.into_iter().try_for_each(|lpn| ssd.layer.trim(lpn)))
    }

    fn discard(&mut self, file: FileId, pages: Range<u64>) -> SimResult<()> {
        if let Some(dirty) = self.dirty.get_mut(&file) {
            dirty.retain(|page, _| !pages.contains(page));
        }
        let trimmed = self.layout.discard(file, pages);
        self.trim(trimmed)
    }

    fn remove(&mut self, name: &str) -> SimResult<()> {
        let Some(file) = self.names.remove(name) else { return Ok(()) };
        self.dirty.remove(&file);
        let trimmed = self.layout.remove(file);
        self.trim(trimmed)
    }

    /// Keeps room for a range of a file.
    fn reserve(&mut self, file: FileId, offset: u64, len: u64) -> SimResult<()> {
        let pages = self.touched(offset, len);
        if self.layout.reserve(file, pages) {
            return Ok(());
        }
        Err(Error::Full("the files take all extents of the device".into()))
    }

    fn rename(&mut self, from: &str, to: &str) -> SimResult<()> {
        if from == to || !self.names.contains_key(from) {
            return Ok(());
        }
        let removed = self.remove(to);
        if let Some(file) = self.names.remove(from) {
            self.names.insert(to.to_owned(), file);
        }
        removed
    }
}

impl fmt::Debug for SsdDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SsdDevice").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Device for SsdDevice {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        let inner = self.inner.open(name, open, caching)?;
        let id = self.lock().file(name);
        Ok(Arc::new(SsdFile { inner, ssd: Arc::clone(&self.ssd), id, caching }))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)?;
        let removed = self.lock().remove(name);
        removed.map_err(|error| failed(Operation::Directory, name, 0, &error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)?;
        let renamed = self.lock().rename(from, to);
        renamed.map_err(|error| failed(Operation::Directory, from, 0, &error))
    }

    fn sync_dir(&self) -> Result<()> {
        self.inner.sync_dir()
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        self.inner.try_lock()
    }

    fn try_lock_shared(&self) -> Result<Option<DeviceLock>> {
        self.inner.try_lock_shared()
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn folder(&self) -> Option<PathBuf> {
        self.inner.folder()
    }
}

impl fmt::Debug for SsdFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SsdFile").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl SsdFile {
    /// Simulates an operation at `offset`.
    fn simulate(
        &self,
        (operation, offset): (Operation, u64),
        simulated: impl FnOnce(&mut Ssd, FileId) -> SimResult<()>,
    ) -> Result<()> {
        let done = simulated(&mut lock(&self.ssd), self.id);
        done.map_err(|error| failed(operation, self.inner.name(), offset, &error))
    }

    /// Whether a write for this purpose stays in the page cache.
    fn is_buffered(&self, purpose: Purpose) -> bool {
        match self.caching {
            Caching::Buffered => true,
            Caching::Direct => false,
            Caching::Selective => purpose == Purpose::Value,
        }
    }
}

impl DeviceFile for SsdFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, purpose)?;
        let len = buf.len() as u64;
        self.simulate((Operation::Read, offset), |ssd, file| ssd.read(file, offset, len))
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>], purpose: Purpose) -> Vec<Result<()>> {
        let outcomes = self.inner.read_many(requests, purpose);
        let simulated = |(request, outcome): (&ReadRequest<'_>, Result<()>)| {
            outcome?;
            let (offset, len) = (request.offset, request.buf.len() as u64);
            self.simulate((Operation::Read, offset), |ssd, file| ssd.read(file, offset, len))
        };
        requests.iter().zip(outcomes).map(simulated).collect()
    }

    fn announce(&self, offset: u64, len: u64, purpose: Purpose) {
        self.inner.announce(offset, len, purpose);
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        let (len, is_buffered) = (buf.len() as u64, self.is_buffered(purpose));
        self.simulate((Operation::Write, offset), |ssd, file| match is_buffered {
            true => ssd.buffer(file, offset, len, purpose),
            false => ssd.write(file, offset, len, purpose),
        })?;
        self.inner.write_at(offset, buf, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.simulate((Operation::Sync, 0), Ssd::sync)?;
        self.inner.sync(purpose)
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> Result<()> {
        self.simulate((Operation::Resize, len), |ssd, file| ssd.reserve(file, 0, len))?;
        self.inner.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.simulate((Operation::Resize, offset), |ssd, file| ssd.reserve(file, offset, len))?;
        self.inner.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)?;
        self.simulate((Operation::Resize, len), |ssd, file| {
            let first = len.div_ceil(ssd.page_bytes());
            ssd.discard(file, first..u64::MAX)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)?;
        self.simulate((Operation::Resize, offset), |ssd, file| {
            let pages = ssd.covered(offset, len);
            ssd.discard(file, pages)
        })
    }
}

#[cfg(test)]
mod tests;
