//! One ordered map of byte strings.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use esker_device::Device;
use esker_format::action::WriteOp;
use esker_format::data::Data;
use esker_index::ErasedKeys;

use crate::changes::Changes;
use crate::diff::{Diff, KeyChanges};
use crate::erase;
use crate::error::{Error, Result};
use crate::follow;
use crate::history::History;
use crate::large::{self, ValueReader, ValueWriter};
use crate::limits::validate_key;
use crate::maintenance;
use crate::options::Durability;
use crate::past::{Past, oldest_version};
use crate::range::{Interval, Range};
use crate::read::{self, Entry};
use crate::set_history;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::times;
use crate::write;
use crate::write_request::Write;

/// An ordered map from keys (0 to 64 KiB) to values (up to 1 GiB). A cheap handle.
///
/// Values longer than [`inline_bytes_max`](crate::KeyspaceOptions::inline_bytes_max) are stored as
/// blobs, outside their keys and only once: merges do not move them.
///
/// Keys are ordered as byte strings. A read sees every write that returned before it began. Reads
/// run concurrently with other reads, with writes and with merges, and wait for none of them.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slot: Arc<Slot>,
}

impl Keyspace {
    pub(crate) const fn new(shared: Arc<Shared>, slot: Arc<Slot>) -> Self {
        Self { shared, slot }
    }

    /// Fails for a keyspace of another store.
    pub(crate) fn must_be_of(&self, shared: &Arc<Shared>) -> Result<()> {
        if Arc::ptr_eq(shared, &self.shared) {
            return Ok(());
        }
        let name = self.name();
        Err(Error::invalid(format!("keyspace {name} belongs to another store")))
    }

    /// The keyspace's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.slot.name
    }

    /// Sets the value of `key`, with the store's default durability. No read; one log write, or a
    /// share of one. If flushes and merges have fallen behind and no memory is left, it waits for
    /// them (a write stall).
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key or value too long;
    /// [`Full`](crate::Error::Full), [`Poisoned`](crate::Error::Poisoned),
    /// [`Io`](crate::Error::Io); [`Damaged`](crate::Error::Damaged) when damage has kept merges
    /// from making room; [`NoKeyspace`](crate::Error::NoKeyspace),
    /// [`Closed`](crate::Error::Closed).
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.insert_with(key, value, self.shared.durability)
    }

    /// [`insert`](Self::insert) with the given durability.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert).
    pub fn insert_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write(key.as_ref(), Data::Put(value.as_ref()), durability)
    }

    /// Sets the value of `key` with a time to live of `ttl`, in steps of a millisecond, with the
    /// store's default durability. After that time `key` has no value, as if it had been removed. A
    /// later write of `key` replaces this one, including its expiry.
    ///
    /// Time is that of the wall clock; while the store is open, its time never goes back. The store
    /// keeps the moment of expiry. A read returns what has not expired when it begins. A
    /// [`Snapshot`](crate::Snapshot), a [`Range`] or a [`Transaction`](crate::Transaction) uses the
    /// moment at which it began: nothing expires in it.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # use std::time::Duration;
    /// # let folder = std::env::temp_dir().join(format!("esker-doc-ttl-{}", std::process::id()));
    /// # let db = esker::Db::open(&folder)?;
    /// let sessions = db.keyspace("sessions", Default::default())?;
    /// sessions.insert_with_ttl("ada", "token", Duration::from_secs(1800))?;
    /// sessions.insert_with_ttl("alan", "token", Duration::from_millis(1))?;
    /// std::thread::sleep(Duration::from_millis(5));
    /// assert!(sessions.contains("ada")? && !sessions.contains("alan")?);
    /// # db.close()?;
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Costs what [`insert`](Self::insert) costs and 6 bytes; the first one in a store also writes
    /// a new manifest, so that versions without expiry refuse the store. Merges that reach the
    /// entry free its space.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert); [`Invalid`](crate::Error::Invalid) when `ttl` is zero, or
    /// the moment of expiry is later than the clock can represent.
    pub fn insert_with_ttl(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let until = write::expiry(&self.shared, ttl)?;
        let data = Data::PutUntil(until, value.as_ref());
        self.write(key.as_ref(), data, self.shared.durability)
    }

    /// Merges `operand` onto the value of `key`, with the store's default durability: its new value
    /// is the result of the keyspace's merge operator for both
    /// ([`KeyspaceOptions::merge_operator`](crate::KeyspaceOptions::merge_operator),
    /// [`KeyspaceOptions::merge`](crate::KeyspaceOptions::merge)). If the key has no value, the
    /// operand becomes the value. The call reads nothing and is atomic.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("esker-doc-merge-{}", std::process::id()));
    /// # let db = esker::Db::open(&folder)?;
    /// use esker::{KeyspaceOptions, Merge};
    /// let visits = db.keyspace("visits", KeyspaceOptions::default().merge(Merge::Add))?;
    /// visits.merge("/", 1_u64.to_le_bytes())?;
    /// visits.merge("/", 2_u64.to_le_bytes())?;
    /// assert_eq!(visits.get("/")?, Some(3_u64.to_le_bytes().to_vec()));
    /// # db.close()?;
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A snapshot sees the operands merged before it. When a value expires, the operands merged
    /// onto it remain and become the value. The value may be longer than an operand, up to the
    /// longest value allowed; if it would be longer, the read fails.
    ///
    /// Costs what [`insert`](Self::insert) costs. A read merges the operands that it finds. Merges
    /// of the index combine operands, except across a snapshot. They do not combine an operand with
    /// a value that has an expiry, with a blob, or where the result would not fit in a block. When
    /// 64 operands of one key are in memory, and after every 64 more, a writer replaces them by the
    /// value, unless the value expires or is several times as long as they are. That is a separate
    /// write with its own sequence number.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert); [`Invalid`](crate::Error::Invalid) for an operand longer
    /// than 256 KiB, and where the keyspace has no operator, or was opened without it.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_with(key, operand, self.shared.durability)
    }

    /// [`merge`](Self::merge) with the given durability.
    ///
    /// # Errors
    /// Those of [`merge`](Self::merge).
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write(key.as_ref(), Data::Operand(operand.as_ref()), durability)
    }

    /// Removes `key`. Removing an absent key is no error and costs the same.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert). While a device fills up, deletes are accepted for longer
    /// than puts.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.remove_with(key, self.shared.durability)
    }

    /// [`remove`](Self::remove) with the given durability.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove).
    pub fn remove_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write(key.as_ref(), Data::Delete, durability)
    }

    /// Removes all keys within `bounds`, however many there are, with one range tombstone: one log
    /// write and no read. Later reads find only keys that were written again; an earlier snapshot
    /// still sees all of them. Reversed or empty bounds remove nothing.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("esker-doc-rr-{}", std::process::id()));
    /// # let db = esker::Db::open(&folder)?;
    /// # let readings = db.keyspace("readings", Default::default())?;
    /// for day in ["2026-11-01", "2026-11-02", "2026-11-03"] {
    ///     readings.insert(day, "7.5")?;
    /// }
    /// readings.remove_range(.."2026-11-03")?;
    /// assert_eq!(readings.iter()?.count(), 1);
    /// # db.close()?;
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Merges that reach the keys free their space; [`compact`](Self::compact) does so immediately.
    /// Until a full merge has done so, the keyspace keeps the range tombstone in memory, where
    /// ranges that touch are joined if no snapshot distinguishes them. Thousands of ranges that
    /// cannot be joined make a full merge due, and the next removal waits for it.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove); [`Full`](crate::Error::Full) also when the
    /// keyspace keeps 4096 range tombstones because of live snapshots.
    pub fn remove_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<()> {
        self.remove_range_with(bounds, self.shared.durability)
    }

    /// [`remove_range`](Self::remove_range) with the given durability.
    ///
    /// # Errors
    /// Those of [`remove_range`](Self::remove_range).
    pub fn remove_range_with<K: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<K>,
        durability: Durability,
    ) -> Result<()> {
        let interval = Interval::new(&bounds);
        match interval.keys() {
            Some(keys) => self.commit(WriteOp::DeleteRange(keys.as_range()), durability),
            None => self.shared.check_process(),
        }
    }

    /// Removes all keys that begin with `prefix`: see [`remove_range`](Self::remove_range).
    ///
    /// # Errors
    /// Those of [`remove_range`](Self::remove_range).
    pub fn remove_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<()> {
        let keys = Interval::prefix(prefix.as_ref());
        self.remove_range::<&[u8]>((keys.lower(), keys.upper()))
    }

    fn write(&self, key: &[u8], data: Data<'_>, durability: Durability) -> Result<()> {
        self.commit(WriteOp::Point(key, data), durability)
    }

    fn commit(&self, action: WriteOp<'_>, durability: Durability) -> Result<()> {
        self.shared.check_process()?;
        write::validate(&self.shared, &self.slot, &action)?;
        write::commit(&self.shared, &[Write { slot: &self.slot, action }], durability)?;
        Ok(())
    }

    /// The value of `key`. Reads at most one block per level, and none if the memtable or the
    /// filters can answer.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key too long; [`Damaged`](crate::Error::Damaged),
    /// [`Io`](crate::Error::Io), [`NoKeyspace`](crate::Error::NoKeyspace),
    /// [`Closed`](crate::Error::Closed).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        read::get(&self.shared, &self.slot, key.as_ref(), None)
    }

    /// The current value of `key` as a seekable stream. A blob is read with 64 KiB of memory. Later
    /// writes do not change what the stream returns.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        let snapshot = self.shared.register()?;
        large::reader(&self.shared, &self.slot, key.as_ref(), snapshot.into())
    }

    /// A writer for a value of `key` as a stream. The value becomes visible when the writer is
    /// [finished](ValueWriter::finish); its length need not be known in advance.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key too long;
    /// [`NoKeyspace`](crate::Error::NoKeyspace), [`Closed`](crate::Error::Closed).
    pub fn writer(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        let key = key.as_ref();
        validate_key(key)?;
        let _open = self.shared.enter()?;
        self.slot.tree()?;
        Ok(ValueWriter::new(Arc::clone(&self.shared), Arc::clone(&self.slot), key.to_vec()))
    }

    /// Whether `key` has a value. For an inline value it costs the same as [`get`](Self::get); a
    /// blob is not read.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        read::contains(&self.shared, &self.slot, key.as_ref(), None)
    }

    /// The values of all `keys`, in the order of `keys` and as of one moment. Blocks are read in
    /// parallel.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), of any of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let snapshot = self.shared.register()?;
        read::multi_get(&self.shared, &self.slot, keys, snapshot.at())
    }

    /// The entry with the smallest key. Costs what the first one of a [`range`](Self::range) does.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn first(&self) -> Result<Option<Entry>> {
        self.scan(Interval::all())?.one(false)
    }

    /// The entry with the largest key.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn last(&self) -> Result<Option<Entry>> {
        self.scan(Interval::all())?.one(true)
    }

    /// All entries in the order of their keys, as of now.
    ///
    /// # Errors
    /// [`NoKeyspace`](crate::Error::NoKeyspace), [`Closed`](crate::Error::Closed).
    pub fn iter(&self) -> Result<Range> {
        self.scan(Interval::all())?.checked()
    }

    /// The entries whose keys are within `bounds`, as of now. Reversed or empty bounds give no
    /// entries.
    ///
    /// Keys before the first entry that were removed, and that compaction has not dropped, are
    /// passed one by one by the first scans from a key; the third one begins behind them.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Range> {
        self.scan(Interval::new(&bounds))?.checked()
    }

    /// The entries whose keys begin with `prefix`, as of now.
    ///
    /// # Errors
    /// Those of [`iter`](Self::iter).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.scan(Interval::prefix(prefix.as_ref()))?.checked()
    }

    /// The keyspace as it was at `version`: after the commit of that number and before the next
    /// one. [`Db::version`](crate::Db::version) and [`Batch::commit`](crate::Batch::commit) return
    /// versions. No I/O.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("esker-doc-at-{}", std::process::id()));
    /// # let db = esker::Db::open(&folder)?;
    /// use esker::{History, KeyspaceOptions};
    /// let options = KeyspaceOptions::default().history(History::All);
    /// let prices = db.keyspace("prices", options)?;
    /// prices.insert("tea", "3.20")?;
    /// let before = db.version();
    /// prices.insert("tea", "3.60")?;
    /// prices.remove("tea")?;
    /// assert_eq!(prices.at(before)?.get("tea")?, Some(b"3.20".to_vec()));
    /// assert_eq!(prices.history("tea")?.count(), 3);
    /// # db.close()?;
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a keyspace without
    /// [history](crate::KeyspaceOptions::history), and for a version from before it began or of the
    /// future; [`NoKeyspace`](crate::Error::NoKeyspace), [`Closed`](crate::Error::Closed).
    pub fn at(&self, version: u64) -> Result<Past> {
        Past::new(&self.shared, &self.slot, version)
    }

    /// The keyspace as it was at `time`: after the last commit up to then, to the millisecond.
    /// Costs a few lookups, which grow with the logarithm of the number of versions.
    ///
    /// # Errors
    /// Those of [`at`](Self::at): a time before the keyspace was created is before its history,
    /// unless nothing was committed in the store then.
    pub fn at_time(&self, time: SystemTime) -> Result<Past> {
        let version = {
            let _open = self.shared.enter()?;
            oldest_version(&self.slot)?;
            let newest = self.shared.snapshots().visible();
            let times = self.shared.times.get();
            let version = |times: &times::Times| times.version(times::moment(time), newest);
            follow::reading(&self.shared, || times.map_or(Ok(newest), version))?
        };
        self.at(version.0)
    }

    /// The keyspace as it was at a version that [`Db::pin`](crate::Db::pin) has given a name.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) when no version has this name; those of [`at`](Self::at).
    pub fn at_named(&self, name: &str) -> Result<Past> {
        self.shared.check_process()?;
        self.at(self.shared.named.version(name)?)
    }

    /// The changes of `key` after the oldest version that can be read, newest first. A removal of
    /// an absent key is no change. Each step costs
    /// what [`get`](Self::get) costs; versions of a key are next to each other, so that most steps
    /// find their block in the cache.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key too long, and for a keyspace without
    /// [history](crate::KeyspaceOptions::history); those of [`get`](Self::get).
    pub fn history(&self, key: impl AsRef<[u8]>) -> Result<Changes> {
        let newest = self.shared.snapshots().visible();
        Changes::new(&self.shared, &self.slot, key.as_ref(), newest)
    }

    /// The changes of all keys that `versions` made, by key, those of a key newest first. Without a
    /// first version, those after the oldest one that can be read. A removal of an absent key is no
    /// change.
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("esker-doc-kc-{}", std::process::id()));
    /// # let db = esker::Db::open(&folder)?;
    /// # let options = esker::KeyspaceOptions::default().history(esker::History::All);
    /// # let prices = db.keyspace("prices", options)?;
    /// prices.insert("tea", "3.20")?;
    /// let seen = db.version();
    /// prices.insert("salt", "0.90")?;
    /// prices.insert("tea", "3.60")?;
    /// let keys = prices.changes(seen + 1..)?.map(|change| Ok(change?.key));
    /// assert_eq!(keys.collect::<esker::Result<Vec<_>>>()?, [b"salt".to_vec(), b"tea".to_vec()]);
    /// # db.close()?;
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Reads the sorted runs and levels that have entries of these versions, and costs what
    /// [`history`](Self::history) costs for each key that it finds there. Where a range was removed
    /// by one of the versions, it reads all levels.
    ///
    /// # Errors
    /// Those of [`at`](Self::at), also where the changes of the first version are not kept.
    pub fn changes(&self, versions: impl RangeBounds<u64>) -> Result<KeyChanges> {
        KeyChanges::new(&self.shared, &self.slot, &versions)
    }

    /// The keys whose values differ between version `before` and version `after`, in their order.
    /// Finds keys as [`changes`](Self::changes) does, and costs two lookups for each.
    ///
    /// # Errors
    /// Those of [`at`](Self::at).
    pub fn diff(&self, before: u64, after: u64) -> Result<Diff> {
        Diff::new(&self.shared, &self.slot, before, after)
    }

    /// Keeps earlier versions of the keyspace readable from now on, where it keeps no history; else
    /// changes which of them stay. What is not kept any more is freed as whole past indexes are not
    /// needed. A history cannot be ended: it may be made as short as [`History::Newest`]`(1)`.
    ///
    /// Waits for the step of a merge, holds commits up, and costs two syncs.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a keyspace with a merge operator or an LSM index, for
    /// a history of nothing, and where a [share](crate::KeyspaceOptions::history_share) of 1.0
    /// keeps everything; those of a write.
    pub fn set_history(&self, history: History) -> Result<()> {
        let _open = self.shared.enter()?;
        set_history::set(&self.shared, &self.slot, history)
    }

    /// Erases keys with all of their versions, where [`remove`](Self::remove) leaves them in the
    /// past: afterwards every version reads as if they had never been written. For those who must,
    /// as data protection laws ask.
    ///
    /// Removes the keys, compacts the keyspace, and rewrites each past index that has any of them:
    /// erase many keys by one call. While a past index is rewritten, a backup, a check or a drop of
    /// the keyspace waits. What was erased is discarded from the data file, and overwritten where
    /// its space stays the file's, unless a reader needs its blocks then. Segments of the log have
    /// it until they are written over, and backups that were made before have it too. A
    /// [`ValueReader`] of an erased value ends with an error.
    ///
    /// A key that is written again meanwhile exists again. After an error, some of the versions may
    /// be left: repeat the call.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a keyspace without history, with a
    /// [share](crate::KeyspaceOptions::history_share) of 1.0, or a key too long;
    /// [`Full`](crate::Error::Full) without space for a copy of the longest past index; those of a
    /// write.
    pub fn erase<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Result<()> {
        let keys: ErasedKeys = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        self.shared.check_process()?;
        erase::check(&self.slot)?;
        keys.iter().try_for_each(|key| validate_key(key))?;
        let written = self.shared.snapshots().visible();
        for key in erase::to_remove(&self.shared, &self.slot, &keys)? {
            self.remove(key)?;
        }
        let removed = self.shared.snapshots().visible();
        let _open = self.shared.enter()?;
        erase::erase(&self.shared, &self.slot, &keys, (written, removed))
    }

    fn scan(&self, interval: Interval) -> Result<Range> {
        let snapshot = self.shared.register()?;
        Ok(Range::new(Arc::clone(&self.shared), Arc::clone(&self.slot), snapshot.into(), interval))
    }

    /// Writes this keyspace's memtable to the data file.
    ///
    /// # Errors
    /// Those of [`Db::flush`](crate::Db::flush).
    pub fn flush(&self) -> Result<()> {
        let _open = self.shared.enter()?;
        maintenance::flush(&self.shared, &self.slot)
    }

    /// Compacts this keyspace: merges it into one level without garbage, except the versions that
    /// live snapshots need.
    ///
    /// # Errors
    /// Those of [`Db::compact`](crate::Db::compact).
    pub fn compact(&self) -> Result<()> {
        let _open = self.shared.enter()?;
        maintenance::compact(&self.shared, &self.slot)
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut printed = f.debug_struct("Keyspace");
        self.shared.print_planted(&mut printed);
        printed
            .field("name", &self.slot.name)
            .field("location", &self.shared.device.location())
            .finish_non_exhaustive()
    }
}
