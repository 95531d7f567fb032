//! A device around a device: the inner one keeps the bytes, and the files are laid out on blocks.
//!
//! Names change under the lock of the files, in the inner device and here, so that both agree on
//! which file a name means. Operations on an open file do not take that lock while the inner device
//! works: two that overlap in time and range may be in another order here than there.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_device::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, ReadRequest,
    Result,
};

use super::blocks::Blocks;
use super::files::Files;
use super::layout::FileId;
use crate::error::{Error, Result as BlockResult};

/// Bytes that are read at a time of files that are there already.
const CHUNK_BYTES: u64 = 1 << 20;

/// A device whose files are also on a block device. It is used as one of its two aliases,
/// [`SsdDevice`](super::SsdDevice) and [`RecordingDevice`](super::RecordingDevice).
pub struct OnBlocks<B> {
    inner: Arc<dyn Device>,
    files: Arc<Mutex<Files<B>>>,
}

struct FileOnBlocks<B: Blocks> {
    inner: Arc<dyn DeviceFile>,
    files: Arc<Mutex<Files<B>>>,
    id: FileId,
    caching: Caching,
}

impl<B: Blocks> OnBlocks<B> {
    /// Puts the files of `inner` on empty blocks. Those that are there are written first, but for
    /// pages that hold nothing but zeros: a hole reads so.
    pub(super) fn around(inner: Arc<dyn Device>, blocks: B) -> Result<Self> {
        let device = Self { inner, files: Arc::new(Mutex::new(Files::new(blocks))) };
        let mut names = device.inner.list()?;
        names.sort();
        for name in names {
            device.adopt(&name)?;
        }
        Ok(device)
    }

    fn adopt(&self, name: &str) -> Result<()> {
        let file = self.inner.open(name, Open::Existing, Caching::Buffered)?;
        let len = file.len()?;
        let mut files = self.lock();
        let id = files.open(name);
        let page = files.page_bytes();
        let chunk = CHUNK_BYTES.next_multiple_of(page);
        for start in (0..len).step_by(chunk as usize) {
            let mut bytes = vec![0; chunk.min(len - start) as usize];
            file.read_at(start, &mut bytes, Purpose::Recovery)?;
            for (at, part) in (start..).step_by(page as usize).zip(bytes.chunks(page as usize)) {
                if part.iter().any(|byte| *byte != 0) {
                    let written = files.write(id, at, part.len() as u64, Purpose::User);
                    written.map_err(|error| failed(Operation::Write, name, at, &error))?;
                }
            }
        }
        files.close(id);
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Files<B>> {
        lock(&self.files)
    }

    /// Logical pages that were written and not trimmed since.
    #[must_use]
    pub fn used_pages(&self) -> u64 {
        self.lock().used_pages()
    }

    /// The logical pages of the device.
    #[must_use]
    pub fn logical_pages(&self) -> u32 {
        self.lock().blocks.pages()
    }
}

fn lock<B>(files: &Mutex<Files<B>>) -> MutexGuard<'_, Files<B>> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a device for one of the blocks.
fn failed(operation: Operation, name: &str, offset: u64, error: &Error) -> DeviceError {
    let kind = match error {
        Error::Full(_) => ErrorKind::StorageFull,
        _ => ErrorKind::Other,
    };
    DeviceError::new(operation, name, offset, io::Error::new(kind, error.to_string()))
}

impl<B> fmt::Debug for OnBlocks<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnBlocks").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<B: Blocks> Device for OnBlocks<B> {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        let mut files = self.lock();
        let inner = self.inner.open(name, open, caching)?;
        let id = files.open(name);
        Ok(Arc::new(FileOnBlocks { inner, files: Arc::clone(&self.files), id, caching }))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut files = self.lock();
        self.inner.remove(name)?;
        let removed = files.remove(name);
        removed.map_err(|error| failed(Operation::Directory, name, 0, &error))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.lock();
        self.inner.rename(from, to)?;
        let renamed = files.rename(from, to);
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

impl<B: Blocks> Drop for FileOnBlocks<B> {
    fn drop(&mut self) {
        lock(&self.files).close(self.id);
    }
}

impl<B: Blocks> fmt::Debug for FileOnBlocks<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileOnBlocks").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<B: Blocks> FileOnBlocks<B> {
    /// Does an operation at `offset` to the blocks.
    fn on_blocks(
        &self,
        (operation, offset): (Operation, u64),
        done: impl FnOnce(&mut Files<B>, FileId) -> BlockResult<()>,
    ) -> Result<()> {
        let done = done(&mut lock(&self.files), self.id);
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

impl<B: Blocks> DeviceFile for FileOnBlocks<B> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, purpose)?;
        let len = buf.len() as u64;
        self.on_blocks((Operation::Read, offset), |files, id| files.read(id, offset, len, purpose))
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>], purpose: Purpose) -> Vec<Result<()>> {
        let outcomes = self.inner.read_many(requests, purpose);
        let simulated = |(request, outcome): (&ReadRequest<'_>, Result<()>)| {
            outcome?;
            let (offset, len) = (request.offset, request.buf.len() as u64);
            let read = |files: &mut Files<B>, id| files.read(id, offset, len, purpose);
            self.on_blocks((Operation::Read, offset), read)
        };
        requests.iter().zip(outcomes).map(simulated).collect()
    }

    fn announce(&self, offset: u64, len: u64, purpose: Purpose) {
        self.inner.announce(offset, len, purpose);
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        let (len, is_buffered) = (buf.len() as u64, self.is_buffered(purpose));
        self.on_blocks((Operation::Write, offset), |files, id| match is_buffered {
            true => files.buffer(id, offset, len, purpose),
            false => files.write(id, offset, len, purpose),
        })?;
        self.inner.write_at(offset, buf, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.on_blocks((Operation::Sync, 0), Files::sync)?;
        self.inner.sync(purpose)
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> Result<()> {
        self.on_blocks((Operation::Resize, len), |files, id| files.reserve(id, 0, len))?;
        self.inner.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.on_blocks((Operation::Resize, offset), |files, id| files.reserve(id, offset, len))?;
        self.inner.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)?;
        self.on_blocks((Operation::Resize, len), |files, id| {
            let first = len.div_ceil(files.page_bytes());
            files.discard(id, first..u64::MAX)
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)?;
        self.on_blocks((Operation::Resize, offset), |files, id| {
            let pages = files.covered(offset, len);
            files.discard(id, pages)
        })
    }
}
