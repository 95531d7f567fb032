//! A file that is open for reading, and may be written later.

use std::io;
use std::sync::Arc;

use esker_device::{DeviceError, DeviceFile, Operation, Purpose, Result as DeviceResult};
use parking_lot::RwLock;

/// Why a file is refused whose contents are not known any more.
const LOST: &str = "another process has written to it: close it and open it again";

/// A file that is read, and is written only once it is opened for that as well.
#[derive(Debug)]
pub(crate) struct Gate {
    file: Arc<dyn DeviceFile>,
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
    pub(crate) fn new(file: Arc<dyn DeviceFile>) -> Self {
        Self { file, state: RwLock::new(State::Shut) }
    }

    /// The file as it is read, also where another process has written to it.
    pub(crate) fn file(&self) -> &Arc<dyn DeviceFile> {
        &self.file
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.state.read(), State::Open(_))
    }

    /// Writes go to `file`, the same file, opened to be written.
    pub(crate) fn open(&self, file: Arc<dyn DeviceFile>) {
        *self.state.write() = State::Open(file);
    }

    /// Refuses writes, also those of a thread that began one before.
    pub(crate) fn shut(&self) {
        let mut state = self.state.write();
        if !matches!(*state, State::Lost) {
            *state = State::Shut;
        }
    }

    /// Whether another process has written to the file.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(*self.state.read(), State::Lost)
    }

    /// Refuses everything: another process has written to the file.
    pub(crate) fn lose(&self) {
        *self.state.write() = State::Lost;
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
            return Err(self.failed(Operation::Read, LOST));
        }
        self.file.read_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> DeviceResult<()> {
        self.write(Operation::Write, |file| file.write_at(offset, buf, purpose))
    }

    /// Where it is shut, what was written before: a thread may come late with its sync.
    fn sync(&self, purpose: Purpose) -> DeviceResult<()> {
        match &*self.state.read() {
            State::Open(file) => file.sync(purpose),
            State::Shut => self.file.sync(purpose),
            State::Lost => Err(self.failed(Operation::Sync, LOST)),
        }
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
