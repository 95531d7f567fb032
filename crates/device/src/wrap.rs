//! Devices around devices: the forwarding that counting, delaying and throttling share.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use crate::{Caching, Device, DeviceFile, DeviceLock, Open, Purpose, ReadRequest, Result};

/// What a [`Hook`] sees of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub kind: StepKind,
    /// Why. Syncs of the folder have no reason of their own and count as [`Purpose::Manifest`].
    pub purpose: Purpose,
    /// How many operations this is: the requests of a parallel read, else 1.
    pub operations: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

/// The operations that a [`Hook`] sees. Opening, listing and the like are not worth hooks.
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

/// Something that happens around operations. Called on the thread of the operation, also from
/// several at once.
pub trait Hook: Send + Sync + Debug {
    /// Called before an operation is tried.
    fn before(&self, step: Step) {
        let _ = step;
    }

    /// Called after an operation succeeded; of a parallel read, with what succeeded of it.
    fn after(&self, step: Step) {
        let _ = step;
    }
}

/// A device with a hook around the one inside. Clones share the hook.
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
        let inner = self.inner.open(name, open, caching)?;
        Ok(Arc::new(WrappedFile { inner, hook: Arc::clone(&self.hook) }))
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
        let step = one(StepKind::SyncDir, Purpose::Manifest, 0);
        hooked(&*self.hook, step, || self.inner.sync_dir())
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
        let step = one(StepKind::Write, purpose, buf.len());
        hooked(&*self.hook, step, || self.inner.write_at(offset, buf, purpose))
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        let step = one(StepKind::Sync, purpose, 0);
        hooked(&*self.hook, step, || self.inner.sync(purpose))
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> Result<()> {
        self.inner.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.inner.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
}
