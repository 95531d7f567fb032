//! Devices around devices: the forwarding that counting, delaying, throttling and refusing share.
//!
//! A device around another one consists of a [`Hook`] alone, so that a new operation of devices is
//! forwarded in one place.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::shared::Shared;
use crate::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, ReadRequest,
    Result,
};

/// An operation as a [`Hook`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The kind of operation.
    pub kind: StepKind,
    /// The purpose. Syncs of the folder have no purpose of their own and count as
    /// [`Purpose::Manifest`].
    pub purpose: Purpose,
    /// The number of operations: the requests of a parallel read, otherwise 1.
    pub operations: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

/// The operations that a [`Hook`] sees. Opening, listing and similar ones call no hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Syncing a file.
    Sync,
    /// Syncing the folder.
    SyncDir,
}

/// A change by an operation, which a [`Hook`] may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file is created.
    Create,
    /// A file is removed.
    Remove,
    /// A file is renamed.
    Rename,
    /// The folder is synced.
    SyncDir,
    /// Bytes are written.
    Write {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// A file is synced.
    Sync,
    /// Space is reserved from the beginning of a file.
    Preallocate {
        /// The end of that space.
        len: u64,
    },
    /// Space is reserved for a range of a file.
    Allocate {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// A file is truncated.
    Truncate {
        /// The new length.
        len: u64,
    },
    /// A range of a file is discarded.
    Discard {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
}

impl Change {
    /// The error of a hook that refuses this change to the file `name`.
    #[must_use]
    pub fn refused(self, name: &str, kind: std::io::ErrorKind) -> DeviceError {
        let (operation, offset) = match self {
            Self::Create => (Operation::Open, 0),
            Self::Remove | Self::Rename | Self::SyncDir => (Operation::Directory, 0),
            Self::Write { offset, .. } => (Operation::Write, offset),
            Self::Sync => (Operation::Sync, 0),
            Self::Preallocate { len } | Self::Truncate { len } => (Operation::Resize, len),
            Self::Allocate { offset, .. } | Self::Discard { offset, .. } => {
                (Operation::Resize, offset)
            }
        };
        DeviceError::new(operation, name, offset, kind)
    }
}

/// A callback around operations. It is called on the thread of the operation, also by several
/// threads at the same time.
pub trait Hook: Send + Sync + Debug {
    /// Called first, before a file or the folder is changed; `name` is that of the file, for
    /// [`Change::SyncDir`] the device's location. A refused change does not reach the inner device.
    ///
    /// # Errors
    /// The operation fails with it, and has changed nothing.
    fn permit(&self, change: Change, name: &str) -> Result<()> {
        let _ = (change, name);
        Ok(())
    }

    /// The same for an open file. Calls [`Hook::permit`] by default.
    ///
    /// # Errors
    /// As [`Hook::permit`].
    fn permit_in(&self, change: Change, file: &dyn DeviceFile) -> Result<()> {
        self.permit(change, file.name())
    }

    /// Takes the one-process lock of the inner device, or its substitute.
    ///
    /// # Errors
    /// Those of the device, or the refusal.
    fn try_lock(&self, device: &dyn Device) -> Result<Option<DeviceLock>> {
        device.try_lock()
    }

    /// Called before an operation is tried.
    fn before(&self, step: Step) {
        let _ = step;
    }

    /// Called before a word is changed that processes share.
    fn before_word(&self) {}

    /// Called after an operation succeeded; for a parallel read, with the part that succeeded.
    fn after(&self, step: Step) {
        let _ = step;
    }
}

/// A device with a hook around the inner device. Clones share the hook.
#[derive(Debug)]
pub struct Wrapped<H> {
    inner: Arc<dyn Device>,
    hook: Arc<H>,
}

#[derive(Debug)]
struct WrappedFile<H> {
    inner: Arc<dyn DeviceFile>,
    hook: Arc<H>,
}

#[derive(Debug)]
struct WrappedWords<H> {
    inner: Arc<dyn Shared>,
    hook: Arc<H>,
}

impl<H: Hook> Wrapped<H> {
    /// Puts `hook` around `inner`.
    #[must_use]
    pub fn around(inner: Arc<dyn Device>, hook: H) -> Self {
        Self { inner, hook: Arc::new(hook) }
    }

    /// The hook.
    #[must_use]
    pub fn hook(&self) -> &H {
        &self.hook
    }
}

impl<H> Clone for Wrapped<H> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), hook: Arc::clone(&self.hook) }
    }
}

/// Makes one operation with the hook around it.
fn hooked<T>(hook: &impl Hook, step: Step, operation: impl FnOnce() -> Result<T>) -> Result<T> {
    hook.before(step);
    let done = operation()?;
    hook.after(step);
    Ok(done)
}

const fn one(kind: StepKind, purpose: Purpose, bytes: usize) -> Step {
    Step { kind, purpose, operations: 1, bytes: bytes as u64 }
}

impl<H: Hook + 'static> Device for Wrapped<H> {
    fn open(&self, name: &str, open: Open, caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        if open == Open::CreateNew {
            self.hook.permit(Change::Create, name)?;
        }
        let inner = self.inner.open(name, open, caching)?;
        Ok(Arc::new(WrappedFile { inner, hook: Arc::clone(&self.hook) }))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.hook.permit(Change::Remove, name)?;
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.hook.permit(Change::Rename, from)?;
        self.inner.rename(from, to)
    }

    fn sync_dir(&self) -> Result<()> {
        self.hook.permit(Change::SyncDir, &self.inner.location())?;
        let step = one(StepKind::SyncDir, Purpose::Manifest, 0);
        hooked(&*self.hook, step, || self.inner.sync_dir())
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        self.hook.try_lock(&*self.inner)
    }

    fn try_lock_shared(&self) -> Result<Option<DeviceLock>> {
        self.inner.try_lock_shared()
    }

    fn shared_words(
        &self,
        name: &str,
        words: usize,
        make: bool,
    ) -> Result<Option<Arc<dyn Shared>>> {
        let inner = self.inner.shared_words(name, words, make)?;
        let hook = || Arc::clone(&self.hook);
        Ok(inner.map(|inner| Arc::new(WrappedWords { inner, hook: hook() }) as _))
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn folder(&self) -> Option<PathBuf> {
        self.inner.folder()
    }
}

impl<H: Hook> DeviceFile for WrappedFile<H> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        let step = one(StepKind::Read, purpose, buf.len());
        hooked(&*self.hook, step, || self.inner.read_at(offset, buf, purpose))
    }

    fn announce(&self, offset: u64, len: u64, purpose: Purpose) {
        self.inner.announce(offset, len, purpose);
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>], purpose: Purpose) -> Vec<Result<()>> {
        if requests.is_empty() {
            return Vec::new();
        }
        let mut step = Step {
            kind: StepKind::Read,
            purpose,
            operations: requests.len() as u64,
            bytes: requests.iter().map(|request| request.buf.len() as u64).sum(),
        };
        self.hook.before(step);
        let outcomes = self.inner.read_many(requests, purpose);
        for (request, outcome) in requests.iter().zip(&outcomes) {
            if outcome.is_err() {
                step.operations -= 1;
                step.bytes -= request.buf.len() as u64;
            }
        }
        if step.operations > 0 {
            self.hook.after(step);
        }
        outcomes
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        let change = Change::Write { offset, len: buf.len() as u64 };
        self.hook.permit_in(change, &*self.inner)?;
        let step = one(StepKind::Write, purpose, buf.len());
        hooked(&*self.hook, step, || self.inner.write_at(offset, buf, purpose))
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.hook.permit_in(Change::Sync, &*self.inner)?;
        let step = one(StepKind::Sync, purpose, 0);
        hooked(&*self.hook, step, || self.inner.sync(purpose))
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> Result<()> {
        self.hook.permit_in(Change::Preallocate { len }, &*self.inner)?;
        self.inner.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.hook.permit_in(Change::Allocate { offset, len }, &*self.inner)?;
        self.inner.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.hook.permit_in(Change::Truncate { len }, &*self.inner)?;
        self.inner.truncate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.hook.permit_in(Change::Discard { offset, len }, &*self.inner)?;
        self.inner.discard(offset, len)
    }
}

impl<H: Hook> Shared for WrappedWords<H> {
    fn words(&self) -> usize {
        self.inner.words()
    }

    fn load(&self, at: usize) -> u64 {
        self.inner.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        self.hook.before_word();
        self.inner.store(at, value);
    }

    fn try_lock(&self, byte: u64) -> Result<bool> {
        self.inner.try_lock(byte)
    }

    fn unlock(&self, byte: u64) -> Result<()> {
        self.inner.unlock(byte)
    }

    fn is_locked(&self, byte: u64) -> Result<bool> {
        self.inner.is_locked(byte)
    }

    fn is_in_place(&self) -> bool {
        self.inner.is_in_place()
    }

    fn wait(&self, at: usize, value: u64, time: Duration) {
        self.inner.wait(at, value, time);
    }

    fn wake(&self, at: usize) {
        self.inner.wake(at);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Mutex;

    use super::*;
    use crate::memory::MemoryDevice;

    /// Notes what it is asked, and refuses it where that is wanted.
    #[derive(Debug, Default)]
    struct Asked {
        refuses: bool,
        changes: Mutex<Vec<(Change, String)>>,
    }

    impl Hook for Asked {
        fn permit(&self, change: Change, name: &str) -> Result<()> {
            self.changes.lock().unwrap().push((change, name.to_owned()));
            let refused = || Err(change.refused(name, ErrorKind::StorageFull));
            if self.refuses { refused() } else { Ok(()) }
        }
    }

    fn make_all_changes(device: &dyn Device, file: &dyn DeviceFile) -> Vec<Result<()>> {
        vec![
            device.open("new", Open::CreateNew, Caching::Buffered).map(drop),
            device.rename("new", "newer"),
            device.remove("newer"),
            device.sync_dir(),
            file.write_at(4, b"text", Purpose::User),
            file.sync(Purpose::User),
            file.preallocate(5000, Purpose::User),
            file.allocate(6000, 7, Purpose::User),
            file.truncate(4096),
            file.discard(0, 4096),
        ]
    }

    const ALL: [(Change, &str); 10] = [
        (Change::Create, "new"),
        (Change::Rename, "new"),
        (Change::Remove, "newer"),
        (Change::SyncDir, "memory"),
        (Change::Write { offset: 4, len: 4 }, "file"),
        (Change::Sync, "file"),
        (Change::Preallocate { len: 5000 }, "file"),
        (Change::Allocate { offset: 6000, len: 7 }, "file"),
        (Change::Truncate { len: 4096 }, "file"),
        (Change::Discard { offset: 0, len: 4096 }, "file"),
    ];

    #[test]
    fn every_change_is_asked_for_and_what_is_refused_does_not_happen() {
        for refuses in [false, true] {
            let inner: Arc<dyn Device> = Arc::new(MemoryDevice::new());
            let whole = inner.open("file", Open::CreateNew, Caching::Buffered).unwrap();
            whole.write_at(0, b"whole", Purpose::User).unwrap();
            let hook = Asked { refuses, ..Asked::default() };
            let device = Wrapped::around(Arc::clone(&inner), hook);
            let file = device.open("file", Open::Existing, Caching::Buffered).unwrap();
            for result in make_all_changes(&device, &*file) {
                let kind = result.map_err(|error| error.source.kind());
                assert_eq!(kind, if refuses { Err(ErrorKind::StorageFull) } else { Ok(()) });
            }
            let asked = device.hook().changes.lock().unwrap().clone();
            assert_eq!(asked, ALL.map(|(change, name)| (change, name.to_owned())));
            let mut found = [0; 5];
            if refuses {
                file.read_at(0, &mut found, Purpose::User).unwrap();
                assert_eq!((&found, file.len().unwrap()), (b"whole", 5));
                assert_eq!(inner.list().unwrap(), ["file"]);
            }
        }
    }

    #[test]
    fn a_hook_that_permits_everything_makes_no_difference() {
        let inner: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        crate::conformance::all(&Wrapped::around(inner, Asked::default())).unwrap();
    }
}
