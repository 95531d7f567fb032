//! Writes that are applied all or not at all.
//!
//! Invariant B1: `writes` is in the order of the calls; of several writes to one key the last
//! counts, and only it is logged.
//! Invariant B2: the first bad argument is kept in `refused`; nothing is collected after it, so
//! a batch that will be refused does not grow.

use std::sync::Arc;
use std::time::Duration;

use esker_format::data::{Data, DataBuf};

use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::options::Durability;
use crate::shared::{Shared, Slot};
use crate::write::{self, Write};

/// A batch of writes to one or several keyspaces of one store. Atomic: after a crash either all
/// of it is there or nothing; every read sees all of it or nothing. Nothing happens before
/// [`commit`](Self::commit).
#[derive(Debug)]
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch {
    shared: Arc<Shared>,
    writes: Vec<Owned>,
    bytes: u64,
    refused: Option<Error>,
}

/// One collected write.
#[derive(Debug)]
struct Owned {
    slot: Arc<Slot>,
    key: Vec<u8>,
    data: DataBuf,
}

impl Batch {
    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, writes: Vec::new(), bytes: 0, refused: None }
    }

    /// Sets the value of `key` in `keyspace`. A key or value out of bounds, or a keyspace of
    /// another store, makes [`commit`](Self::commit) answer
    /// [`Invalid`](crate::Error::Invalid).
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.add(keyspace, key.as_ref(), Data::Put(value.as_ref()));
    }

    /// Sets the value of `key` in `keyspace` for as long as `ttl`, counted from now on and not from
    /// the commit: see [`Keyspace::insert_with_ttl`]. A `ttl` out of bounds makes
    /// [`commit`](Self::commit) answer [`Invalid`](crate::Error::Invalid).
    pub fn insert_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) {
        match write::expiry(&self.shared, ttl) {
            Ok(until) => self.add(keyspace, key.as_ref(), Data::PutUntil(until, value.as_ref())),
            Err(error) => self.refuse(error),
        }
    }

    /// Removes `key` from `keyspace`.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.add(keyspace, key.as_ref(), Data::Delete);
    }

    /// How many writes have been collected, repeats included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether nothing has been collected.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Why [`commit`](Self::commit) will refuse the batch, if it is known already.
    #[must_use]
    pub const fn refused(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Applies the batch with the store's default durability and answers the sequence number of
    /// its last write: the state at that number is the state right after this batch. An empty
    /// batch answers the newest visible number.
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
        let writes = last_of_each_key(&self.writes);
        write::commit(&self.shared, &writes, durability).map(|seq| seq.0)
    }

    fn refuse(&mut self, error: Error) {
        self.refused.get_or_insert(error);
        self.writes = Vec::new();
    }

    fn add(&mut self, keyspace: &Keyspace, key: &[u8], data: Data<'_>) {
        if self.refused.is_some() {
            return;
        }
        if let Err(error) = self.admit(keyspace, key, &data) {
            return self.refuse(error);
        }
        self.writes.push(Owned {
            slot: Arc::clone(&keyspace.slot),
            key: key.to_vec(),
            data: data.into(),
        });
    }

    fn admit(&mut self, keyspace: &Keyspace, key: &[u8], data: &Data<'_>) -> Result<()> {
        keyspace.must_be_of(&self.shared)?;
        write::validate(key, data)?;
        // A small charge for each write keeps a batch of empty keys bounded too.
        let bytes = key.len() + data.value().map_or(0, <[u8]>::len) + size_of::<Owned>();
        self.bytes = self.bytes.saturating_add(bytes as u64);
        let most = self.shared.limits.batch_bytes;
        if self.bytes > most {
            return Err(Error::invalid(format!("a batch is at most {most} bytes long")));
        }
        Ok(())
    }
}

/// The writes that count, by keyspace id and key.
fn last_of_each_key(writes: &[Owned]) -> Vec<Write<'_>> {
    let mut writes: Vec<_> = writes
        .iter()
        .map(|write| Write { slot: &write.slot, key: &write.key, data: write.data.as_data() })
        .collect();
    // The sort is stable: among writes to one key the order of the calls remains, and reversing
    // makes the last one the first of its run, which is the one that deduplication keeps.
    writes.reverse();
    writes.sort_by(|a, b| (a.slot.id, a.key).cmp(&(b.slot.id, b.key)));
    writes.dedup_by(|later, kept| later.slot.id == kept.slot.id && later.key == kept.key);
    writes
}
