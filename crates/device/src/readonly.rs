//! A device that is read and never written: what changes anything is refused before it reaches the
//! device inside.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, ReadRequest,
    Result,
};

/// Another device, for reading alone. Its lock is the shared one.
#[derive(Debug)]
pub struct ReadOnlyDevice {
    inner: Arc<dyn Device>,
}

#[derive(Debug)]
struct ReadOnlyFile {
    inner: Arc<dyn DeviceFile>,
}

fn refused<T>(operation: Operation, file: &str) -> Result<T> {
    Err(DeviceError::new(operation, file, 0, ErrorKind::ReadOnlyFilesystem))
}

impl ReadOnlyDevice {
    /// Lets nothing but reading through to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner }
    }
}

impl Device for ReadOnlyDevice {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        match open {
            Open::Existing => {
                Ok(Arc::new(ReadOnlyFile { inner: self.inner.open(name, open, caching)? }))
            }
            Open::CreateNew => refused(Operation::Open, name),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        refused(Operation::Directory, name)
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        refused(Operation::Directory, from)
    }

    fn sync_dir(&self) -> Result<()> {
        refused(Operation::Directory, &self.location())
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        self.inner.try_lock_shared()
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

impl DeviceFile for ReadOnlyFile {
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

    fn write_at(&self, _offset: u64, _buf: &[u8], _purpose: Purpose) -> Result<()> {
        refused(Operation::Write, self.name())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        refused(Operation::Sync, self.name())
    }

    fn preallocate(&self, _len: u64, _purpose: Purpose) -> Result<()> {
        refused(Operation::Resize, self.name())
    }

    fn allocate(&self, _offset: u64, _len: u64, _purpose: Purpose) -> Result<()> {
        refused(Operation::Resize, self.name())
    }

    fn truncate(&self, _len: u64) -> Result<()> {
        refused(Operation::Resize, self.name())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        refused(Operation::Resize, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    #[test]
    fn reading_is_let_through_and_nothing_else() {
        let inner: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let file = inner.open("a", Open::CreateNew, Caching::Buffered).unwrap();
        file.write_at(0, b"text", Purpose::User).unwrap();
        let device = ReadOnlyDevice::new(Arc::clone(&inner));
        let file = device.open("a", Open::Existing, Caching::Buffered).unwrap();
        let mut found = [0; 4];
        file.read_at(0, &mut found, Purpose::User).unwrap();
        assert_eq!((&found, file.len().unwrap()), (b"text", 4));
        let refused = [
            file.write_at(0, b"x", Purpose::User),
            file.sync(Purpose::User),
            file.preallocate(9, Purpose::User),
            file.truncate(0),
            file.discard(0, 4),
            device.remove("a"),
            device.rename("a", "b"),
            device.sync_dir(),
            device.open("b", Open::CreateNew, Caching::Buffered).map(drop),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().source.kind(), ErrorKind::ReadOnlyFilesystem);
        }
        assert_eq!(inner.list().unwrap(), ["a"]);
    }
}
