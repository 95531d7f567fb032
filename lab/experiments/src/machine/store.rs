//! Our page store on the machine: its one file in the page cache, synced as by `fdatasync`.
//!
//! The store gives itself space ahead (`fallocate`): the file system then only notes, in the inode,
//! that a page of it was written for the first time.
//!
//! The store's thread is left out: a commit takes a checkpoint that is due. One connection at a
//! time may use the store: it holds locks of its own while it waits for the device, and another
//! actor would wait for them and have the turn.

use std::io::{Error as IoError, ErrorKind};
use std::sync::{Arc, Mutex};

use esker_device::{DeviceError, DeviceFile, Operation, Purpose, Result};
use esker_pages::Options;

use super::disk::PAGE_BYTES;
use super::filesystem::FileId;
use super::state::{CALL_NS, DATABASE, State, lock};
use super::turns;

/// The options of a store, with or without deltas of pages.
#[must_use]
pub fn options(has_deltas: bool) -> Options {
    let mut options = Options::new().page_size(PAGE_BYTES as u32);
    options.relaxed_interval = None;
    if !has_deltas {
        options.delta_bytes = 0;
    }
    options
}

/// The file of a store.
#[derive(Debug)]
pub struct StoreFile {
    state: Arc<Mutex<State>>,
    id: FileId,
}

impl StoreFile {
    /// The file of the database, which is made where it is missing.
    pub(super) fn open(state: &Arc<Mutex<State>>) -> Self {
        let id = {
            let fs = &mut lock(state).fs;
            fs.named(DATABASE).unwrap_or_else(|| fs.create(DATABASE, true))
        };
        Self { state: Arc::clone(state), id }
    }

    fn call<T>(
        &self,
        operation: Operation,
        offset: u64,
        body: impl FnOnce(&mut State, u64) -> esker_flash::Result<(T, u64)>,
    ) -> Result<T> {
        let now = turns::now() + CALL_NS;
        let done = body(&mut lock(&self.state), now);
        turns::wait_until(done.as_ref().map_or(now, |(_, end)| *end));
        done.map(|(answer, _)| answer).map_err(|error| {
            let kind = match error {
                esker_flash::Error::Full(_) => ErrorKind::StorageFull,
                _ => ErrorKind::Other,
            };
            let source = IoError::new(kind, error.to_string());
            DeviceError::new(operation, DATABASE, offset, source)
        })
    }
}

impl DeviceFile for StoreFile {
    fn name(&self) -> &str {
        DATABASE
    }

    fn len(&self) -> Result<u64> {
        self.call(Operation::Read, 0, |state, now| Ok((state.fs.len(self.id)?, now)))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _: Purpose) -> Result<()> {
        self.call(Operation::Read, offset, |state, now| {
            if state.fs.read_cached(self.id, offset, buf)? == buf.len() {
                return Ok(((), now));
            }
            Err(esker_flash::Error::InvalidArgument("a read past the end of the file".to_owned()))
        })
    }

    fn write_at(&self, offset: u64, buf: &[u8], _: Purpose) -> Result<()> {
        self.call(Operation::Write, offset, |state, now| {
            Ok((state.fs.write_cached(self.id, offset, buf)?, now))
        })
    }

    fn sync(&self, _: Purpose) -> Result<()> {
        self.call(Operation::Sync, 0, |state, now| Ok(((), state.fs.sync(self.id, now, true)?)))
    }

    fn preallocate(&self, len: u64, _: Purpose) -> Result<()> {
        self.call(Operation::Resize, len, |state, now| {
            Ok((state.fs.preallocate(self.id, len)?, now))
        })
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> Result<()> {
        self.preallocate(offset.saturating_add(len), purpose)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.call(Operation::Resize, len, |state, now| Ok((state.fs.truncate(self.id, len)?, now)))
    }

    /// No hole is made.
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}
