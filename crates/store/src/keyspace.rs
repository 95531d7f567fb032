//! One ordered map of byte strings.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use esker_device::Device;
use esker_format::action::WriteOp;
use esker_format::data::Data;

use crate::error::{Error, Result};
use crate::large::{self, ValueReader, ValueWriter};
use crate::maintenance;
use crate::options::Durability;
use crate::range::{Interval, Range};
use crate::read::{self, Entry};
use crate::shared::{Shared, Slot};
use crate::write::{self, Write};

/// An ordered map from keys (0 to 64 KiB) to values (up to 1 GiB). A cheap handle.
///
/// Values longer than [`inline_bytes_max`](crate::KeyspaceOptions::inline_bytes_max) are stored
/// apart from their keys, once: merges do not move them.
///
/// Keys are ordered as byte strings. Reads see every write that returned before they began, and
/// run beside each other, beside writes and beside merges; they wait for none of them.
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

    /// Sets the value of `key`, with the store's default durability. No read; one log write, or
    /// a share of one. It waits when writes have outrun flushes and merges for so long that there
    /// is no memory left.
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

    /// Sets the value of `key` for as long as `ttl`, in steps of a millisecond, with the store's
    /// default durability; from then on `key` has no value, as if it had been removed. A later
    /// write of `key` takes this one's place, expiry included.
    ///
    /// Time is that of the wall clock, of which the store never sees it go back while it is open;
    /// what is kept is the moment of expiry. Reads answer what has not expired when they begin. A
    /// [`Snapshot`](crate::Snapshot), a [`Range`] or a [`Transaction`](crate::Transaction) keeps
    /// to the moment at which it began: in it nothing expires.
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
    /// Costs what [`insert`](Self::insert) costs and 6 bytes; the first one of a store's life makes
    /// a new manifest besides, so that versions which do not know of expiry refuse the store. The
    /// space comes back with the merges that meet the entry.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert); [`Invalid`](crate::Error::Invalid) when `ttl` is zero, or
    /// ends later than the clock can show.
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

    /// Merges `operand` onto the value of `key`, with the store's default durability: from now on
    /// its value is what the keyspace's merge operator makes of both
    /// ([`KeyspaceOptions::merge_operator`](crate::KeyspaceOptions::merge_operator),
    /// [`KeyspaceOptions::merge`](crate::KeyspaceOptions::merge)). Where the key has no value, the
    /// operand is the value. Nothing is read, and nobody can come in between.
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
    /// A snapshot sees what was merged before it. A value with an expiry takes only itself with it:
    /// what has been merged onto it stays, and is the value then. The value may be longer than an
    /// operand, up to the longest value there is; one beyond that is an error of the read.
    ///
    /// Costs what [`insert`](Self::insert) costs. A read merges the operands that it meets; merges
    /// of the index join them, but none between which a snapshot sees, and leave them on values
    /// with an expiry, on those that lie apart, and where the result would not fit in a block. When
    /// 64 of one key have come together in memory, and at every 64 after, a writer puts the value
    /// in their place, unless it expires or is several times as long as they are. That is a write
    /// of its own, with a number of its own.
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

    /// Removes `key`; removing what is not there is fine and costs the same.
    ///
    /// # Errors
    /// Those of [`insert`](Self::insert); deletes are accepted longer than puts when the device
    /// is full.
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

    /// Removes all keys within `bounds`, however many there are: one log write, and no read.
    /// Whoever looks from then on finds none of them that was not written again; a snapshot taken
    /// before sees them still. Reversed or empty bounds remove nothing.
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
    /// The space comes back with the merges that meet the keys; [`compact`](Self::compact) does it
    /// at once. Until a full merge has done so the keyspace remembers the range in memory, where
    /// ranges that touch and that nobody can tell apart become one. Thousands that do not make a
    /// full merge due, and the next one waits for it.
    ///
    /// # Errors
    /// Those of [`remove`](Self::remove); [`Full`](crate::Error::Full) also when the keyspace
    /// remembers 4096 removals because of live snapshots.
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
        write::validate(&self.slot, &action)?;
        write::commit(&self.shared, &[Write { slot: &self.slot, action }], durability)?;
        Ok(())
    }

    /// The value of `key`. At most one block read a level; none for what the memtable or the
    /// filters can answer.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key too long; [`Damaged`](crate::Error::Damaged),
    /// [`Io`](crate::Error::Io), [`NoKeyspace`](crate::Error::NoKeyspace),
    /// [`Closed`](crate::Error::Closed).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        read::get(&self.shared, &self.slot, key.as_ref(), None)
    }

    /// The value of `key` as it is now, as a stream that can be read from any place, in the memory
    /// of 64 KiB for a value that is stored apart. It stays what it is whatever is written
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        let snapshot = self.shared.register()?;
        large::reader(&self.shared, &self.slot, key.as_ref(), snapshot)
    }

    /// Begins a value of `key` that is written as it comes, and is there when the writer is
    /// [finished](ValueWriter::finish). Its length need not be known.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for a key too long;
    /// [`NoKeyspace`](crate::Error::NoKeyspace), [`Closed`](crate::Error::Closed).
    pub fn writer(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        let key = key.as_ref();
        read::validate_key(key)?;
        let _open = self.shared.enter()?;
        self.slot.tree()?;
        Ok(ValueWriter::new(Arc::clone(&self.shared), Arc::clone(&self.slot), key.to_vec()))
    }

    /// Whether `key` has a value. Costs the same as [`get`](Self::get) for a value in a block, and
    /// does not read one that is stored apart.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        read::contains(&self.shared, &self.slot, key.as_ref(), None)
    }

    /// The values of all `keys`, in their order and as of one moment; blocks are read in
    /// parallel.
    ///
    /// # Errors
    /// Those of [`get`](Self::get), of any of the keys.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let snapshot = self.shared.register()?;
        read::multi_get(&self.shared, &self.slot, keys, &snapshot)
    }

    /// The entry with the smallest key.
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

    fn scan(&self, interval: Interval) -> Result<Range> {
        let snapshot = self.shared.register()?;
        Ok(Range::new(Arc::clone(&self.shared), Arc::clone(&self.slot), snapshot, interval))
    }

    /// Writes this keyspace's memtable to the data file.
    ///
    /// # Errors
    /// Those of [`Db::flush`](crate::Db::flush).
    pub fn flush(&self) -> Result<()> {
        let _open = self.shared.enter()?;
        maintenance::flush(&self.shared, &self.slot)
    }

    /// Merges this keyspace into one level without garbage, live snapshots' versions excepted.
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
