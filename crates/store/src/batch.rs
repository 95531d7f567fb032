//! Writes that are applied all or not at all.
//!
//! Invariant: `writes` is in the order of the calls; of several writes to one key the last counts,
//! and only it is logged, with the operands behind it; a range tombstone applies to what was
//! written before it.
//! Invariant: the first bad argument is kept in `refused`; nothing is collected after it, so a
//! batch that will be refused does not grow.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use esker_format::action::{KeyRangeBuf, WriteOp};
use esker_format::data::{Data, DataBuf};

use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::options::Durability;
use crate::range::Interval;
use crate::removal;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::write;
use crate::write_request::Write;

/// A batch of writes to one or several keyspaces of one store. Atomic: after a crash either all of
/// its writes are there or none; every read sees all of them or none. Nothing is written before
/// [`commit`](Self::commit).
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    shared: Arc<Shared>,
    writes: Vec<Owned>,
    bytes: u64,
    refused: Option<Error>,
}

/// One collected write.
struct Owned {
    slot: Arc<Slot>,
    what: What,
}

enum What {
    Say(Vec<u8>, DataBuf),
    Remove(KeyRangeBuf),
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and values are left out: they do not belong in logs.
        f.debug_struct("Batch")
            .field("writes", &self.writes.len())
            .field("bytes", &self.bytes)
            .field("refused", &self.refused.is_some())
            .finish_non_exhaustive()
    }
}

impl Batch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let refused = shared.check_process().err();
        Self { shared, writes: Vec::new(), bytes: 0, refused }
    }

    /// Sets the value of `key` in `keyspace`. If a key or value is out of bounds, or the keyspace
    /// belongs to another store, [`commit`](Self::commit) returns
    /// [`Invalid`](crate::Error::Invalid).
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.add(keyspace, WriteOp::Point(key.as_ref(), Data::Put(value.as_ref())));
    }

    /// Sets the value of `key` in `keyspace` with a time to live of `ttl`, counted from this call
    /// and not from the commit: see [`Keyspace::insert_with_ttl`]. If `ttl` is out of bounds,
    /// [`commit`](Self::commit) returns [`Invalid`](crate::Error::Invalid).
    pub fn insert_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) {
        match write::expiry(&self.shared, ttl) {
            Ok(until) => {
                let data = Data::PutUntil(until, value.as_ref());
                self.add(keyspace, WriteOp::Point(key.as_ref(), data));
            }
            Err(error) => self.refuse(error),
        }
    }

    /// Merges `operand` onto the value of `key` in `keyspace`: see [`Keyspace::merge`]. Several
    /// calls on one key all take effect, and so does an earlier write of the key in the batch.
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        self.add(keyspace, WriteOp::Point(key.as_ref(), Data::Operand(operand.as_ref())));
    }

    /// Removes `key` from `keyspace`.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.add(keyspace, WriteOp::Point(key.as_ref(), Data::Delete));
    }

    /// Removes all keys of `keyspace` within `bounds` that are there when the batch is committed,
    /// and those that the batch has written before: see [`Keyspace::remove_range`].
    pub fn remove_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) {
        let interval = Interval::new(&bounds);
        if let Some(keys) = interval.keys() {
            self.add(keyspace, WriteOp::DeleteRange(keys.as_range()));
        }
    }

    /// The number of writes that have been collected, repeats included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether nothing has been collected.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The error that [`commit`](Self::commit) will return, if the batch is already known to be
    /// refused.
    #[must_use]
    pub const fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Applies the batch with the store's default durability and returns the sequence number of its
    /// last write: the state at that number is the state right after this batch. For an empty
    /// batch, it returns the newest visible number.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for an argument out of bounds, or a batch whose keys
    /// and values are larger than the memory budget (4 MiB are always fine, more than 1 GiB
    /// never); else those of [`Keyspace::insert`]. After an error other than a failed write or
    /// sync, nothing of the batch was applied.
    pub fn commit(self) -> Result<u64> {
        let durability = self.shared.durability;
        self.commit_with(durability)
    }

    /// [`commit`](Self::commit) with the given durability.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_with(self, durability: Durability) -> Result<u64> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let writes = removal::net_effect(self.writes.iter().map(Owned::as_write));
        write::commit(&self.shared, &writes, durability).map(|seq| seq.0)
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
        self.writes = Vec::new();
    }

    fn add(&mut self, keyspace: &Keyspace, action: WriteOp<'_>) {
        if self.refused.is_some() {
            return;
        }
        if let Err(error) = self.admit(keyspace, &action) {
            return self.refuse(error);
        }
        let what = match action {
            WriteOp::Point(key, data) => What::Say(key.to_vec(), data.into()),
            WriteOp::DeleteRange(keys) => What::Remove(keys.into()),
        };
        self.writes.push(Owned { slot: Arc::clone(&keyspace.slot), what });
    }

    fn admit(&mut self, keyspace: &Keyspace, action: &WriteOp<'_>) -> Result<()> {
        self.shared.check_process()?;
        keyspace.must_be_of(&self.shared)?;
        write::validate(&self.shared, &keyspace.slot, action)?;
        // A small charge for each write keeps a batch of empty keys bounded too.
        let bytes = action.user_bytes() + size_of::<Owned>() as u64;
        self.bytes = self.bytes.saturating_add(bytes);
        let most = self.shared.limits.batch_bytes;
        if self.bytes > most {
            return Err(Error::invalid(format!("a batch is at most {most} bytes long")));
        }
        Ok(())
    }
}

impl Owned {
    fn as_write(&self) -> Write<'_> {
        let action = match &self.what {
            What::Say(key, data) => WriteOp::Point(key, data.as_data()),
            What::Remove(keys) => WriteOp::DeleteRange(keys.as_range()),
        };
        Write { slot: &self.slot, action }
    }
}
