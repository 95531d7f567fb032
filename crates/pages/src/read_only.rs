//! A store that is opened for reading, and may be written later.
//!
//! Opening for reading is recovery that stops before its first write: the log is applied in memory,
//! a prepared transaction is decided in memory, and the checkpoint that would make all of it
//! durable is not taken. The file is behind a [`Gate`], which refuses writes.
//!
//! Opening for writing later, in the same process, continues the same recovery. The gate is opened
//! and the checkpoint is taken; the versions and all snapshots belong to the same engine, so
//! readers continue and see later commits.
//!
//! This is correct only if no other process has written in the meantime. Every opening holds a lock
//! that keeps writers out, but changing a shared lock into an exclusive one is not atomic.
//! Therefore the first bytes of the file are compared: nothing in a store changes before an epoch
//! is begun, which changes these bytes. If they have changed, the state in memory describes a file
//! that no longer exists, and every read fails.

use std::io;
use std::sync::Arc;

use esker_device::{DeviceError, DeviceFile, Operation, Purpose, Result as DeviceResult};
use parking_lot::RwLock;

use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::recovery::{check_new, find_in, put_zeros};
use crate::store::PageStore;
use crate::superblock::Found;

/// A file that is read, and is written only once it is opened for that as well.
#[derive(Debug)]
pub(crate) struct Gate {
    file: Arc<dyn DeviceFile>,
    /// The contents of the first bytes when it was opened.
    found: Found,
    state: RwLock<State>,
}

#[derive(Debug)]
enum State {
    Shut,
    /// The same file, opened to be written.
    Open(Arc<dyn DeviceFile>),
    /// Another process has written to it.
    Lost,
}

impl Gate {
    pub(crate) fn new(file: Arc<dyn DeviceFile>, found: Found) -> Self {
        Self { file, found, state: RwLock::new(State::Shut) }
    }

    fn is_open(&self) -> bool {
        matches!(*self.state.read(), State::Open(_))
    }

    fn set(&self, state: State) {
        *self.state.write() = state;
    }

    fn failed(&self, operation: Operation, why: &'static str) -> DeviceError {
        DeviceError::new(operation, self.file.name(), 0, io::Error::other(why))
    }

    /// Does what writes.
    fn write<T>(
        &self,
        operation: Operation,
        write: impl FnOnce(&dyn DeviceFile) -> DeviceResult<T>,
    ) -> DeviceResult<T> {
        match &*self.state.read() {
            State::Open(file) => write(&**file),
            State::Shut | State::Lost => Err(self.failed(operation, "it is open for reading only")),
        }
    }
}

impl DeviceFile for Gate {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> DeviceResult<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> DeviceResult<()> {
        if matches!(*self.state.read(), State::Lost) {
            let why = "another process has written to it: close it and open it again";
            return Err(self.failed(Operation::Read, why));
        }
        self.file.read_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> DeviceResult<()> {
        self.write(Operation::Write, |file| file.write_at(offset, buf, purpose))
    }

    fn sync(&self, purpose: Purpose) -> DeviceResult<()> {
        self.write(Operation::Sync, |file| file.sync(purpose))
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.write(Operation::Resize, |file| file.preallocate(len, purpose))
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.write(Operation::Resize, |file| file.allocate(offset, len, purpose))
    }

    fn truncate(&self, len: u64) -> DeviceResult<()> {
        self.write(Operation::Resize, |file| file.truncate(len))
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.write(Operation::Resize, |file| file.discard(offset, len))
    }
}

impl Engine {
    /// Whether the store was opened to be read, and has not been made writable.
    pub(crate) fn is_read_only(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| !gate.is_open())
    }

    /// Continues recovery where the store was opened for reading.
    fn make_writable(&self, file: Arc<dyn DeviceFile>) -> Result<()> {
        // Others look whether the gate is open while they hold this.
        let mut core = self.core.lock();
        let Some(gate) = self.gate.as_ref().filter(|gate| !gate.is_open()) else { return Ok(()) };
        self.check_unchanged()?;
        gate.set(State::Open(file));
        let finished = self.finish_recovery(&mut core, gate.found);
        if finished.is_err() {
            gate.set(State::Shut);
        }
        finished
    }

    /// Makes durable what recovery found.
    fn finish_recovery(&self, core: &mut Core, found: Found) -> Result<()> {
        if found == Found::Nothing {
            check_new(&*self.file, &self.options)?;
            put_zeros(&*self.file, self.segment_bytes)?;
        } else if core.log.bytes == 0 {
            return Ok(());
        }
        self.checkpoint_core(core)
    }

    /// Fails where the file is not the one any more that was opened to be read.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let Some(gate) = &self.gate else { return Ok(()) };
        match find_in(&*gate.file) {
            Ok(found) if found == gate.found => Ok(()),
            Ok(_) | Err(Error::Corrupt { .. } | Error::Foreign { .. } | Error::TooNew { .. }) => {
                Err(self.lose())
            }
            Err(error) => Err(error),
        }
    }

    /// Discards the state in memory: another process may have written.
    pub(crate) fn lose(&self) -> Error {
        if let Some(gate) = &self.gate {
            gate.set(State::Lost);
        }
        let how = "written by another process since it was opened here to be read: close it and \
                   open it again";
        Error::Locked { file: self.file.name().to_owned(), how }
    }
}

impl PageStore {
    /// Whether the store can only be read: [`PageStore::open_read_only`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine().is_read_only()
    }

    /// Makes a store that was opened for reading writable, through `file`, which is the same file.
    /// Clones and snapshots continue, and see later commits. The caller ensures that no other
    /// process has the file open, or has written to it in the meantime. Does nothing to a store
    /// that is writable.
    ///
    /// Has the cost of [`PageStore::open`] after a crash: a checkpoint if the log had records.
    ///
    /// # Errors
    /// [`Error::Full`] or an error of the device: the store stays as it was; or [`Error::Locked`]
    /// where another process has written to it: then every read fails.
    pub fn make_writable(&self, file: Arc<dyn DeviceFile>) -> Result<()> {
        self.engine().make_writable(file)
    }
}
