//! Transactions: reads of one moment, writes that wait, and a check when they are committed.

mod live;
mod merge;
mod range;
mod reads;
pub(crate) mod turn;

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use esker_format::action::WriteOp;
use esker_format::data::Data;
use esker_format::ids::Seq;
use esker_substrate::sync::Mutex;

use range::Scanned;
pub use range::TransactionRange;
use reads::{CheckedReads, Reads, Span, Writes};

use crate::conflict_window::Stale;
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::large::{self, Unlogged};
use crate::limits::validate_key;
use crate::options::Durability;
use crate::range::{Interval, Range};
use crate::read::{self, Entry};
use crate::shared::Shared;
use crate::times::Writing;
use crate::write;
use crate::write_request::Condition;
use live::Live;
use turn::Turn;

/// Reads and writes in any keyspaces of one store that take effect at one moment, or not at all.
///
/// It reads the store as it was when it began, and its own writes, which no other reader sees
/// before [`commit`](Self::commit). The commit returns [`Conflict`](crate::Error::Conflict), and
/// applies nothing, if anything that was read has been written since by another transaction, a
/// batch or a single write. A key that was absent, a new key within a scanned range, and a value
/// that was overwritten with itself count too. All transactions and all other reads and writes
/// therefore behave as if each had happened alone, at one moment between its beginning and its end
/// (they are *strictly serializable*).
///
/// Its clock stops at its beginning: an entry that expires ([`Keyspace::insert_with_ttl`]) while it
/// runs stays visible to it. An expiry is no conflict; a write to the expired key is.
///
/// Only reads are checked: transactions that only write never conflict. Nor do transactions that
/// only read: they take effect at the moment at which they began. Dropping a transaction rolls it
/// back.
///
/// It keeps versions as a [`Snapshot`](crate::Snapshot) does, and blocks no other operation. Its
/// writes and the keys that it reads are kept in memory until it ends; of a scan only the two ends
/// are.
///
/// ```
/// # fn main() -> esker::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("esker-doc-tx-{}", std::process::id()));
/// # let db = esker::Db::open(&folder)?;
/// # let accounts = db.keyspace("accounts", Default::default())?;
/// # accounts.insert("ada", [100])?;
/// let mut tx = db.transaction()?;
/// let ada = tx.get(&accounts, "ada")?.map_or(0, |value| value[0]);
/// tx.insert(&accounts, "ada", [ada - 1])?;
/// accounts.insert("ada", [7])?;
/// assert!(tx.commit().is_err_and(|error| error.is_conflict()));
///
/// // Repeated until no other write came in between:
/// let left = db.transact(|tx| -> esker::Result<u8> {
///     let ada = tx.get(&accounts, "ada")?.map_or(0, |value| value[0]);
///     tx.insert(&accounts, "ada", [ada - 1])?;
///     Ok(ada - 1)
/// })?;
/// assert_eq!(left, 6);
/// # db.close()?;
/// # let _ = std::fs::remove_dir_all(&folder);
/// # Ok(())
/// # }
/// ```
#[must_use = "a transaction is rolled back when it is dropped"]
pub struct Transaction {
    writes: Writes,
    reads: Mutex<Reads>,
    live: Live,
    turn: Option<Turn>,
}

impl Transaction {
    /// Begins a transaction; it holds the writer lock until it ends, if the lock is given.
    pub(crate) fn begin(shared: &Arc<Shared>, turn: Option<Turn>) -> Self {
        let (writes, reads) = (Writes::default(), Mutex::default());
        Self { writes, reads, live: Live::begin(shared), turn }
    }

    /// The newest sequence number that the transaction sees.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.live.snapshot().seq().0
    }

    /// The number of keys that it will write plus the number of ranges that it will remove.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether it has neither a key to write nor a range to remove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The value of `key` in `keyspace`: the one written by this transaction, or the one of the
    /// moment at which it began.
    ///
    /// # Errors
    /// Those of [`Keyspace::get`]; [`Invalid`](crate::Error::Invalid) for a keyspace of another
    /// store, and when the transaction has become too large: its reads and writes together may be
    /// at most as large as a [`Batch`](crate::Batch).
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.read(keyspace, key.as_ref())
    }

    /// Whether `key` has a value in `keyspace`.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        match self.writes.get(keyspace.slot.id, key) {
            Some(own) => self.must_be_open(keyspace).map(|()| own.data.value().is_some()),
            None => self.read(keyspace, key).map(|value| value.is_some()),
        }
    }

    /// The values of all `keys` in `keyspace`, in their order.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), of any of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        let own = |key: &K| self.writes.get(keyspace.slot.id, key.as_ref());
        self.must_be_open(keyspace)?;
        let is_asked = |key: &&K| own(key).is_none_or(|own| own.data.is_operand());
        let asked: Vec<&K> = keys.iter().filter(is_asked).collect();
        for key in &asked {
            self.note_point(keyspace, key.as_ref())?;
        }
        let snapshot = self.live.snapshot();
        let found = read::multi_get(self.shared(), &keyspace.slot, asked, snapshot.at())?;
        let mut found = found.into_iter();
        let value = |key: &K| {
            merge::value(&keyspace.slot, key.as_ref(), own(key), || Ok(found.next().flatten()))
        };
        keys.iter().map(value).collect()
    }

    /// The entry of `keyspace` with the smallest key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.scan(keyspace, &Interval::all(), Range::for_one)?.next().transpose()
    }

    /// The entry of `keyspace` with the largest key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last(&self, keyspace: &Keyspace) -> Result<Option<Entry>> {
        self.scan(keyspace, &Interval::all(), Range::for_one)?.next_back().transpose()
    }

    /// All entries of `keyspace`, in the order of their keys.
    ///
    /// # Errors
    /// Those of [`Keyspace::iter`]; [`Invalid`](crate::Error::Invalid) as for [`get`](Self::get).
    pub fn iter(&self, keyspace: &Keyspace) -> Result<TransactionRange<'_>> {
        self.scan(keyspace, &Interval::all(), |base| base)
    }

    /// The entries of `keyspace` whose keys are within `bounds`.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<TransactionRange<'_>> {
        self.scan(keyspace, &Interval::new(&bounds), |base| base)
    }

    /// The entries of `keyspace` whose keys begin with `prefix`.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn prefix(
        &self,
        keyspace: &Keyspace,
        prefix: impl AsRef<[u8]>,
    ) -> Result<TransactionRange<'_>> {
        self.scan(keyspace, &Interval::prefix(prefix.as_ref()), |base| base)
    }

    /// Sets the value of `key` in `keyspace`, when the transaction is committed.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key or value too long, a keyspace of another store,
    /// or a transaction too large (see [`get`](Self::get));
    /// [`NoKeyspace`](crate::Error::NoKeyspace), [`Closed`](crate::Error::Closed). The transaction
    /// is then as it was before.
    pub fn insert(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.write(keyspace, key.as_ref(), Data::Put(value.as_ref()))
    }

    /// Sets the value of `key` in `keyspace` with a time to live of `ttl`, counted from this call,
    /// when the transaction is committed: see [`Keyspace::insert_with_ttl`]. For the transaction
    /// itself the value does not expire.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert) and of [`Keyspace::insert_with_ttl`].
    pub fn insert_with_ttl(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let until = write::expiry(self.shared(), ttl)?;
        self.write(keyspace, key.as_ref(), Data::PutUntil(until, value.as_ref()))
    }

    /// Merges `operand` onto the value of `key` in `keyspace`, when the transaction is committed:
    /// see [`Keyspace::merge`]. It reads nothing: transactions that only merge never conflict, and
    /// all their operands take effect.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert) and of [`Keyspace::merge`]; those of the operator, where
    /// the transaction has written the key before.
    pub fn merge(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.must_be_open(keyspace)?;
        let slot = &keyspace.slot;
        write::validate(self.shared(), slot, &WriteOp::Point(key, Data::Operand(operand)))?;
        let merged = merge::onto(slot, key, self.writes.get(slot.id, key), operand)?;
        let (data, operand) = merged.parts();
        self.must_have_room(&self.reads.lock(), Writes::cost(key, &data, operand))?;
        self.writes.put(slot, key, data, operand.map(<[u8]>::to_vec));
        Ok(())
    }

    /// Removes `key` from `keyspace`, when the transaction is committed.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(keyspace, key.as_ref(), Data::Delete)
    }

    /// Removes all keys of `keyspace` within `bounds` when the transaction is committed, including
    /// keys that others have written by then: see [`Keyspace::remove_range`]. It reads none of
    /// them. The transaction itself no longer sees them.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn remove_range<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        bounds: impl RangeBounds<K>,
    ) -> Result<()> {
        self.must_be_open(keyspace)?;
        let Some(keys) = Interval::new(&bounds).keys() else { return Ok(()) };
        let keys = keys.as_range();
        self.must_have_room(&self.reads.lock(), Writes::cost_of_range(keys))?;
        self.writes.remove_range(&keyspace.slot, keys);
        Ok(())
    }

    /// Applies the writes, with the store's default durability, if nothing that was read has been
    /// written since. Returns the sequence number of the last write: the state at that number is
    /// the state right after this transaction. A transaction that writes nothing returns
    /// [`seq`](Self::seq).
    ///
    /// # Errors
    /// [`Conflict`](crate::Error::Conflict): run the transaction again from its beginning.
    /// A transaction that has read anything also conflicts if it is older than the writes whose
    /// keys are remembered; these take up to a sixteenth of the memory budget.
    /// [`NoKeyspace`](crate::Error::NoKeyspace) when a keyspace that it read or wrote has been
    /// dropped. Else those of [`Keyspace::insert`]. After an error other than a failed write or
    /// sync nothing was applied.
    pub fn commit(self) -> Result<u64> {
        let durability = self.shared().durability;
        self.commit_with(durability)
    }

    /// [`commit`](Self::commit) with the given durability.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_with(self, durability: Durability) -> Result<u64> {
        let Self { writes, mut reads, live, turn } = self;
        let shared = Arc::clone(live.shared());
        let _open = shared.enter()?;
        let list: Vec<_> = writes.parts().flat_map(reads::WritesOf::list).collect();
        if list.is_empty() {
            return Ok(live.snapshot().seq().0);
        }
        let (stamp, writing) = write::due_moment(&shared, &list).unzip();
        let list = write::with_moment(stamp.as_ref(), &list);
        let reads = reads.get_mut();
        let checked_reads = reads.for_check(&writes);
        let condition = Unchanged { live: &live, reads, checked_reads };
        let (blobs, unlogged) = large::write_blobs(&shared, &list)?.unzip();
        let replaced = blobs.as_ref().map(|blobs| blobs.writes(&list));
        let list = replaced.as_deref().unwrap_or(&*list);
        let ordered = write::order(&shared, list, &condition)?;
        writing.into_iter().for_each(Writing::end);
        unlogged.into_iter().for_each(Unlogged::keep);
        drop(condition);
        // What it read may be written from now on, also while it waits for the device.
        drop((live, turn));
        write::wait_durable(&shared, &ordered, durability).map(|seq| seq.0)
    }

    /// Rolls the transaction back, as dropping it does.
    pub fn rollback(self) {
        drop(self);
    }

    const fn shared(&self) -> &Arc<Shared> {
        self.live.shared()
    }

    fn must_be_open(&self, keyspace: &Keyspace) -> Result<()> {
        keyspace.must_be_of(self.shared())?;
        let _open = self.shared().enter()?;
        keyspace.slot.tree().map(drop)
    }

    fn must_have_room(&self, reads: &Reads, more: u64) -> Result<()> {
        let most = self.shared().limits.batch_bytes;
        if reads.bytes().saturating_add(self.writes.bytes()).saturating_add(more) <= most {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a transaction is at most {most} bytes long, the keys that it has read included"
        )))
    }

    fn note_point(&self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        let mut reads = self.reads.lock();
        if !reads.has_point(keyspace.slot.id, key) {
            self.must_have_room(&reads, Reads::point_cost(key))?;
            reads.add_point(&keyspace.slot, key);
        }
        Ok(())
    }

    fn read(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.shared().check_process()?;
        let own = self.writes.get(keyspace.slot.id, key);
        if own.is_some() {
            self.must_be_open(keyspace)?;
        }
        merge::value(&keyspace.slot, key, own, || {
            keyspace.must_be_of(self.shared())?;
            validate_key(key)?;
            self.note_point(keyspace, key)?;
            read::get(self.shared(), &keyspace.slot, key, Some(self.live.snapshot().at()))
        })
    }

    fn scan(
        &self,
        keyspace: &Keyspace,
        interval: &Interval,
        manner: impl FnOnce(Range) -> Range,
    ) -> Result<TransactionRange<'_>> {
        self.must_be_open(keyspace)?;
        let (shared, slot) = (Arc::clone(self.shared()), Arc::clone(&keyspace.slot));
        let snapshot = self.live.snapshot().clone();
        let base = manner(Range::new(shared, slot, snapshot.into(), interval.clone()));
        if interval.is_empty() {
            return Ok(TransactionRange::new(base, None, Scanned::new(&self.reads, None)));
        }
        let own = self.writes.of(keyspace.slot.id);
        let span = Span::new(interval, self.writes.count());
        let place = {
            let mut reads = self.reads.lock();
            self.must_have_room(&reads, span.bytes())?;
            reads.add_span(&keyspace.slot, span)
        };
        let scanned = Scanned::new(&self.reads, Some((keyspace.slot.id, place)));
        Ok(TransactionRange::new(base, own.map(|own| (own, interval)), scanned))
    }

    fn write(&mut self, keyspace: &Keyspace, key: &[u8], data: Data<'_>) -> Result<()> {
        self.must_be_open(keyspace)?;
        write::validate(self.shared(), &keyspace.slot, &WriteOp::Point(key, data))?;
        self.must_have_room(&self.reads.lock(), Writes::cost(key, &data, None))?;
        self.writes.put(&keyspace.slot, key, data, None);
        Ok(())
    }
}

/// Nothing that a transaction has read has been written since it began.
struct Unchanged<'a> {
    live: &'a Live,
    reads: &'a Reads,
    checked_reads: CheckedReads<'a>,
}

impl Unchanged<'_> {
    fn conflict(&self, stale: Stale) -> Error {
        let recent = &self.live.shared().recent;
        recent.count_conflict();
        let what = match stale {
            Stale::Written(id) => {
                let slot = self.reads.slots().find(|slot| slot.id == id);
                let name = slot.map_or("?", |slot| slot.name.as_str());
                format!("what the transaction read from keyspace {name} has been written since")
            }
            Stale::Forgotten => format!(
                "the transaction is older than the last {} bytes of keys written, which are all \
                 that is remembered; make it shorter, or the memory budget larger",
                recent.bytes_max()
            ),
        };
        Error::Conflict { what }
    }
}

impl Condition for Unchanged<'_> {
    const IS_TRANSACTION: bool = true;

    fn check_ahead(&self) -> Result<Seq> {
        let start = self.live.snapshot().seq();
        if self.checked_reads.is_empty() {
            return Ok(start);
        }
        let recent = &self.live.shared().recent;
        recent.check_ahead(start, &self.checked_reads).map_err(|stale| self.conflict(stale))
    }

    fn check(&self, checked: Seq) -> Result<()> {
        if self.checked_reads.is_empty() {
            return Ok(());
        }
        // Dropping a keyspace writes all of it.
        self.reads.slots().try_for_each(|slot| slot.tree().map(drop))?;
        let recent = &self.live.shared().recent;
        recent.check_rest(checked, &self.checked_reads).map_err(|stale| self.conflict(stale))
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys and values are left out: they do not belong in logs.
        f.debug_struct("Transaction")
            .field("seq", &self.seq())
            .field("writes", &self.len())
            .field("has_turn", &self.turn.is_some())
            .finish_non_exhaustive()
    }
}
