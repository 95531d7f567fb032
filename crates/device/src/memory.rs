//! A device in memory, for tests and scratch. Nothing is durable; syncs do nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::sim::SimShared;
use crate::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, Result, name,
    shared,
};

/// Files in memory. Clones share the files and the lock.
///
/// An open file stays readable and writable after it is removed or renamed, as in a file system.
#[derive(Clone, Debug, Default)]
pub struct MemoryDevice {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    files: Mutex<BTreeMap<String, Arc<Contents>>>,
    locked: AtomicBool,
    /// The words that users of the device share, by the name of their file.
    words: Mutex<BTreeMap<String, SimShared>>,
}

#[derive(Default)]
struct Contents {
    bytes: RwLock<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes.read().len())
    }
}

#[derive(Debug)]
struct MemoryFile {
    name: String,
    contents: Arc<Contents>,
}

/// Releases the lock when dropped.
#[derive(Debug)]
struct LockGuard(Arc<Shared>);

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.0.locked.store(false, Ordering::Release);
    }
}

const LOCATION: &str = "memory";

impl MemoryDevice {
    /// An empty device.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes held in all files.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        let files = self.shared.files.lock();
        files.values().map(|contents| contents.bytes.read().len() as u64).sum()
    }

    /// Another device with the files as they are at one moment, also while others write: the state
    /// that a killed process leaves behind.
    #[must_use]
    pub fn copy(&self) -> Self {
        let files = self.shared.files.lock();
        // With all of them held none is ahead of another.
        let held: Vec<_> =
            files.iter().map(|(name, contents)| (name, contents.bytes.read())).collect();
        let copy = |bytes: &Vec<u8>| Arc::new(Contents { bytes: RwLock::new(bytes.clone()) });
        let files = held.iter().map(|(name, bytes)| ((*name).clone(), copy(bytes))).collect();
        let shared = Shared { files: Mutex::new(files), ..Shared::default() };
        Self { shared: Arc::new(shared) }
    }
}

fn path(name: &str) -> String {
    format!("{LOCATION}/{name}")
}

fn missing(operation: Operation, name: &str) -> DeviceError {
    DeviceError::new(operation, path(name), 0, io::ErrorKind::NotFound)
}

impl Device for MemoryDevice {
    fn open(&self, name: &str, open: Open, _caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        name::check(name, Operation::Open, LOCATION)?;
        let mut files = self.shared.files.lock();
        let contents = match (files.get(name), open) {
            (Some(contents), Open::Existing) => Arc::clone(contents),
            (None, Open::Existing) => return Err(missing(Operation::Open, name)),
            (Some(_), Open::CreateNew) => {
                let source = io::ErrorKind::AlreadyExists;
                return Err(DeviceError::new(Operation::Open, path(name), 0, source));
            }
            (None, Open::CreateNew) => {
                let contents = Arc::<Contents>::default();
                files.insert(name.to_owned(), Arc::clone(&contents));
                contents
            }
        };
        Ok(Arc::new(MemoryFile { name: name.to_owned(), contents }))
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.shared.files.lock().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check(name, Operation::Directory, LOCATION)?;
        let removed = self.shared.files.lock().remove(name);
        removed.map(drop).ok_or_else(|| missing(Operation::Directory, name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        name::check(from, Operation::Directory, LOCATION)?;
        name::check(to, Operation::Directory, LOCATION)?;
        let mut files = self.shared.files.lock();
        let contents = files.remove(from).ok_or_else(|| missing(Operation::Directory, from))?;
        files.insert(to.to_owned(), contents);
        Ok(())
    }

    fn sync_dir(&self) -> Result<()> {
        Ok(())
    }

    fn shared_words(
        &self,
        name: &str,
        words: usize,
        make: bool,
    ) -> Result<Option<Arc<dyn shared::Shared>>> {
        name::check(name, Operation::Open, LOCATION)?;
        let mut all = self.shared.words.lock();
        if let Some(known) = all.get(name) {
            return Ok(Some(Arc::new(known.another())));
        }
        if !make {
            return Ok(None);
        }
        let first = SimShared::new(words);
        let opened = first.another();
        all.insert(name.to_owned(), first);
        Ok(Some(Arc::new(opened)))
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        if self.shared.locked.swap(true, Ordering::Acquire) {
            return Ok(None);
        }
        Ok(Some(Box::new(LockGuard(Arc::clone(&self.shared)))))
    }

    fn location(&self) -> String {
        LOCATION.to_owned()
    }
}

impl MemoryFile {
    fn full(&self, operation: Operation, offset: u64) -> DeviceError {
        DeviceError::new(operation, path(&self.name), offset, io::ErrorKind::StorageFull)
    }

    /// Makes `bytes` at least `end` long; asks first, so that a wild offset is an error.
    fn extend(
        &self,
        bytes: &mut Vec<u8>,
        end: u64,
        operation: Operation,
        offset: u64,
    ) -> Result<usize> {
        let end = usize::try_from(end).map_err(|_| self.full(operation, offset))?;
        if let Some(more) = end.checked_sub(bytes.len()) {
            bytes.try_reserve(more).map_err(|_| self.full(operation, offset))?;
            bytes.resize(end, 0);
        }
        Ok(end)
    }
}

impl DeviceFile for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        Ok(self.contents.bytes.read().len() as u64)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _purpose: Purpose) -> Result<()> {
        let bytes = self.contents.bytes.read();
        let wanted = usize::try_from(offset)
            .ok()
            .and_then(|start| bytes.get(start..start.checked_add(buf.len())?));
        match wanted {
            Some(wanted) => buf.copy_from_slice(wanted),
            None => {
                let len_bytes = bytes.len() as u64;
                return Err(name::past_end(&path(&self.name), offset, buf.len(), len_bytes));
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], _purpose: Purpose) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let mut bytes = self.contents.bytes.write();
        let end = offset.checked_add(buf.len() as u64);
        let end = end.ok_or_else(|| self.full(Operation::Write, offset))?;
        let end = self.extend(&mut bytes, end, Operation::Write, offset)?;
        bytes[end - buf.len()..end].copy_from_slice(buf);
        Ok(())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn preallocate(&self, len: u64, _purpose: Purpose) -> Result<()> {
        let mut bytes = self.contents.bytes.write();
        self.extend(&mut bytes, len, Operation::Resize, len).map(drop)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        let end = offset.checked_add(len).ok_or_else(|| self.full(Operation::Resize, offset))?;
        if len == 0 { Ok(()) } else { self.preallocate(end, purpose) }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut bytes = self.contents.bytes.write();
        if let Ok(len) = usize::try_from(len) {
            bytes.truncate(len);
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let mut bytes = self.contents.bytes.write();
        let end = offset.saturating_add(len).min(bytes.len() as u64);
        // Both ends are at most the length of a vector, so they fit.
        if let (Ok(start), Ok(end)) = (usize::try_from(offset), usize::try_from(end))
            && start < end
        {
            bytes[start..end].fill(0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;

    #[test]
    fn conforms() -> Result<()> {
        conformance::all(&MemoryDevice::new())
    }

    #[test]
    fn clones_share_files_and_lock() -> Result<()> {
        let first = MemoryDevice::new();
        let second = first.clone();
        let file = first.open("a", Open::CreateNew, Caching::Buffered)?;
        file.write_at(0, b"abc", Purpose::User)?;
        let mut buf = [0; 3];
        second.open("a", Open::Existing, Caching::Direct)?.read_at(0, &mut buf, Purpose::User)?;
        assert_eq!(&buf, b"abc");
        let lock = first.try_lock()?;
        assert!(lock.is_some() && second.try_lock()?.is_none());
        drop(lock);
        assert!(second.try_lock()?.is_some());
        Ok(())
    }

    #[test]
    fn wild_offsets_are_errors() -> Result<()> {
        let device = MemoryDevice::new();
        let file = device.open("a", Open::CreateNew, Caching::Buffered)?;
        for offset in [u64::MAX, u64::MAX - 1, i64::MAX as u64] {
            let outcome = file.write_at(offset, b"abc", Purpose::User);
            assert!(outcome.is_err_and(|error| error.is_full()), "{offset}");
            assert!(file.preallocate(offset, Purpose::User).is_err(), "{offset}");
            assert!(file.read_at(offset, &mut [0], Purpose::User).is_err(), "{offset}");
        }
        assert_eq!(device.len_bytes(), 0);
        Ok(())
    }
}
