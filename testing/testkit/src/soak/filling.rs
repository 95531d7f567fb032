//! A device that is full for a while: what is there can be written over, nothing grows.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_device::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, ReadRequest,
    Result,
};

/// Whether a device is full, and how often it has said so.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub is_full: AtomicBool,
    pub refusals: AtomicU64,
}

impl Filled {
    fn refuse(&self, operation: Operation, file: &str, offset: u64) -> DeviceError {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        DeviceError::new(operation, file, offset, std::io::ErrorKind::StorageFull)
    }

    fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// The device.
#[derive(Debug)]
pub(super) struct FillingDevice {
    pub inner: Arc<dyn Device>,
    pub filled: Arc<Filled>,
}

#[derive(Debug)]
struct FillingFile {
    inner: Arc<dyn DeviceFile>,
    filled: Arc<Filled>,
}

impl Device for FillingDevice {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        let inner = self.inner.open(name, open, caching)?;
        Ok(Arc::new(FillingFile { inner, filled: Arc::clone(&self.filled) }))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_dir(&self) -> Result<()> {
        self.inner.sync_dir()
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        self.inner.try_lock()
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn folder(&self) -> Option<PathBuf> {
        self.inner.folder()
    }
}

impl DeviceFile for FillingFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, purpose)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>], purpose: Purpose) -> Vec<Result<()>> {
        self.inner.read_many(requests, purpose)
    }

    fn announce(&self, offset: u64, len: u64, purpose: Purpose) {
        self.inner.announce(offset, len, purpose);
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        if self.filled.is_full() && offset.saturating_add(buf.len() as u64) > self.inner.len()? {
            return Err(self.filled.refuse(Operation::Write, self.name(), offset));
        }
        self.inner.write_at(offset, buf, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.inner.sync(purpose)
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> Result<()> {
        if self.filled.is_full() && len > self.inner.len()? {
            return Err(self.filled.refuse(Operation::Resize, self.name(), len));
        }
        self.inner.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        if self.filled.is_full() {
            return Err(self.filled.refuse(Operation::Resize, self.name(), offset));
        }
        self.inner.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
}
