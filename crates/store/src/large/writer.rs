//! Writing a value as a stream.

use std::fmt;
use std::io;
use std::sync::Arc;

use esker_format::action::WriteOp;
use esker_format::data::Data;
use esker_format::value_ref::LARGE_VALUE_BYTES_MAX;
use esker_substrate::sync::atomic::Ordering;
use esker_substrate::values;

use super::{encoded, failed, prepare};
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::times::Writing;
use crate::write;
use crate::write_request::{Always, Write};

/// A value that is written as a stream: [`Write`](io::Write) in bounded memory, up to 1 GiB. No
/// reader sees any of it before [`finish`](Self::finish), which sets the key's value atomically. If
/// it is dropped before that, it leaves nothing, also after a crash.
///
/// A value that is short enough to be inline is kept in memory until then. Errors of
/// [`write`](io::Write::write) are of kind [`Other`](io::ErrorKind::Other) and carry an
/// [`esker::Error`](Error); `finish` returns the first of them again.
#[must_use = "a value that is not finished is not written"]
pub struct ValueWriter {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    key: Vec<u8>,
    /// All of it, while it is short.
    short: Vec<u8>,
    blob: Option<values::ValueWriter>,
    failure: Option<Error>,
}

impl ValueWriter {
    pub(crate) const fn new(shared: Arc<Shared>, slot: Arc<Slot>, key: Vec<u8>) -> Self {
        Self { shared, slot, key, short: Vec::new(), blob: None, failure: None }
    }

    /// Length so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blob.as_ref().map_or(self.short.len() as u64, values::ValueWriter::bytes)
    }

    /// Sets the value of the key to what was written, with the store's default durability.
    ///
    /// # Errors
    /// Those of [`Keyspace::insert`](crate::Keyspace::insert). The key has its old value then.
    pub fn finish(self) -> Result<()> {
        let durability = self.shared.durability;
        self.finish_with(durability)
    }

    /// [`finish`](Self::finish) with the given durability.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    pub fn finish_with(self, durability: Durability) -> Result<()> {
        let Self { shared, slot, key, short, blob, failure } = self;
        if let Some(error) = failure {
            return Err(error);
        }
        let Some(blob) = blob else {
            let write = Write { slot: &slot, action: WriteOp::Point(&key, Data::Put(&short)) };
            return write::commit(&shared, &[write], durability).map(drop);
        };
        let _open = shared.enter()?;
        shared.poison.check()?;
        let (reference, runs) = blob.finish(None).map_err(|error| failed(&shared, error))?;
        let content = encoded(&reference);
        let action = WriteOp::Point(&key, Data::Reference(&content));
        let writes = [Write { slot: &slot, action }];
        let (stamp, writing) = write::due_moment(&shared, &writes).unzip();
        let writes = write::with_moment(stamp.as_ref(), &writes);
        let ordered = write::order(&shared, &writes, &Always)?;
        writing.into_iter().for_each(Writing::end);
        runs.keep();
        write::wait_durable(&shared, &ordered, durability).map(drop)
    }

    fn append(&mut self, data: &[u8]) -> Result<()> {
        let _open = self.shared.enter()?;
        self.shared.poison.check()?;
        let len = self.short.len().saturating_add(data.len());
        if self.blob.is_none() {
            if len as u64 <= self.slot.inline_bytes_max.load(Ordering::Relaxed) {
                self.short.extend_from_slice(data);
                return Ok(());
            }
            prepare(&self.shared)?;
        }
        let shared = &self.shared;
        if self.blob.is_none() {
            let begun = values::ValueWriter::new(&shared.env.blocks, None);
            let mut blob = begun.map_err(|error| failed(shared, error))?;
            blob.append(&self.short).map_err(|error| failed(shared, error))?;
            (self.short, self.blob) = (Vec::new(), Some(blob));
        }
        match &mut self.blob {
            Some(blob) => blob.append(data).map_err(|error| failed(shared, error)),
            None => Ok(()),
        }
    }
}

impl io::Write for ValueWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if let Some(error) = &self.failure {
            return Err(io::Error::other(error.clone()));
        }
        let room = LARGE_VALUE_BYTES_MAX.saturating_sub(self.bytes());
        let appended = if data.len() as u64 > room {
            Err(Error::invalid(format!("a value is at most {LARGE_VALUE_BYTES_MAX} bytes long")))
        } else {
            self.append(data)
        };
        if let Err(error) = appended {
            // What was written of it goes back at once.
            (self.short, self.blob) = (Vec::new(), None);
            self.failure = Some(error.clone());
            return Err(io::Error::other(error));
        }
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing of a value is durable before all of it is.
        Ok(())
    }
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Key and value are left out: they do not belong in logs.
        f.debug_struct("ValueWriter")
            .field("keyspace", &self.slot.name)
            .field("bytes", &self.bytes())
            .field("failed", &self.failure.is_some())
            .finish_non_exhaustive()
    }
}
