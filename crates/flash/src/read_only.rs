//! A store that is opened to be read, and may be written later.
//!
//! Opening for reading is recovery that stops before its first write: the log is applied in memory,
//! what is prepared is decided in memory, and the checkpoint that would make all that durable is
//! not taken. The file is behind a [`Gate`], which is shut to writes.
//!
//! Opening for writing later, in the same process, is the same recovery gone on with. The gate is
//! opened and the checkpoint taken; the versions, and the snapshots of whoever reads them, are
//! those of the one engine, so that readers go on and see what is committed from then on.
//!
//! That is right only if nobody else has written meanwhile. Whoever has the file open holds a lock
//! that keeps writers out, but changing that lock into a writer's own is not atomic. So what the
//! first bytes are is compared: nothing of a store changes before an epoch is begun that they tell
//! of. Where they have changed, what is in memory is of a file that is no more, and every read
//! fails.

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
    /// What the first bytes were when it was opened.
    found: Found,
    state: RwLock<State>,
}

#[derive(Debug)]
enum State {
    Shut,
    /// The same file, opened to be written.
    Open(Arc<dyn DeviceFile>),
    /// Somebody else has written to it.
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

    /// Goes on with recovery where it was opened to be read.
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

    /// Gives up what is in memory: somebody else may have written.
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

    /// Has a store that was opened to be read written as well, by way of `file`, which is the same
    /// file. Clones and snapshots go on, and see what is committed from now on. Whoever calls sees
    /// to it that nobody else has the file open, and has not written to it meanwhile. Does nothing
    /// to a store that can be written.
    ///
    /// Costs what [`PageStore::open`] costs after a crash: a checkpoint where something was found
    /// in the log.
    ///
    /// # Errors
    /// [`Error::Full`] or an error of the device: the store stays as it was; or [`Error::Locked`]
    /// where somebody has written to it: then nothing is read any more.
    pub fn make_writable(&self, file: Arc<dyn DeviceFile>) -> Result<()> {
        self.engine().make_writable(file)
    }
}
