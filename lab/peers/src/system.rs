//! The operations of every store, and the opening of one by its name.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use esker::{CompactionPolicy, Device, IndexKind};

/// When a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When a later [`System::persist`] will make it durable.
    Buffered,
    /// When it is on the device.
    Synced,
}

/// A store's own counters, by name, since it was opened. Stores differ in what they count.
pub type Figures = BTreeMap<String, f64>;

/// The reason for which a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed, with its own message.
    #[error("{system}: {message}")]
    Failed {
        /// Which store.
        system: &'static str,
        /// Its message.
        message: String,
    },
    /// The store cannot do this at all, or not in its present state.
    #[error("{system} cannot {what}")]
    Unable {
        /// Which store.
        system: &'static str,
        /// The request.
        what: &'static str,
    },
    /// The peer was left out when this program was built.
    #[error("{0} is not built in: build with `--features peers`")]
    NotBuilt(&'static str),
}

/// The result of asking a store.
pub type Result<T> = std::result::Result<T, Error>;

/// A store that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    /// Esker.
    Esker,
    /// RocksDB with leveled compaction and two write buffers of a quarter of the budget.
    Rocksdb,
    /// The same with four write buffers of an eighth.
    RocksdbEighths,
    /// RocksDB with universal compaction and two write buffers of a quarter.
    RocksdbUniversal,
    /// The same with four write buffers of an eighth.
    RocksdbUniversalEighths,
    /// fjall.
    Fjall,
    /// redb.
    Redb,
}

impl Name {
    /// Every store, in the order of tables.
    pub const ALL: [Self; 7] = [
        Self::Esker,
        Self::Rocksdb,
        Self::RocksdbEighths,
        Self::RocksdbUniversal,
        Self::RocksdbUniversalEighths,
        Self::Fjall,
        Self::Redb,
    ];

    /// RocksDB with leveled compaction, its default, in each setting of write buffers.
    pub const ROCKSDB_LEVELED: [Self; 2] = [Self::Rocksdb, Self::RocksdbEighths];

    /// The name as it is typed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Esker => "esker",
            Self::Rocksdb => "rocksdb",
            Self::RocksdbEighths => "rocksdb-eighths",
            Self::RocksdbUniversal => "rocksdb-universal",
            Self::RocksdbUniversalEighths => "rocksdb-universal-eighths",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
        }
    }

    /// The store with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|system| system.as_str() == name)
    }

    /// Whether the store was built into this program.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            Self::Esker => true,
            Self::Rocksdb
            | Self::RocksdbEighths
            | Self::RocksdbUniversal
            | Self::RocksdbUniversalEighths => cfg!(feature = "rocksdb"),
            Self::Fjall => cfg!(feature = "fjall"),
            Self::Redb => cfg!(feature = "redb"),
        }
    }

    /// Whether it is RocksDB, in any setting.
    #[must_use]
    pub const fn is_rocksdb(self) -> bool {
        matches!(
            self,
            Self::Rocksdb
                | Self::RocksdbEighths
                | Self::RocksdbUniversal
                | Self::RocksdbUniversalEighths
        )
    }

    pub(crate) fn failed(self, error: impl fmt::Display) -> Error {
        Error::failed(self.as_str(), error)
    }
}

impl Error {
    pub(crate) fn failed(system: &'static str, error: impl fmt::Display) -> Self {
        Self::Failed { system, message: error.to_string() }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something that is kept open until it is dropped.
pub struct Held<'a> {
    _kept: Box<dyn Anything + 'a>,
}

trait Anything {}
impl<T> Anything for T {}

impl fmt::Debug for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl<'a> Held<'a> {
    pub(crate) fn new(kept: impl Sized + 'a) -> Self {
        Self { _kept: Box::new(kept) }
    }
}

/// An open store with one ordered map. Its threads run concurrently with those that ask.
///
/// # Errors
/// Every method answers [`Error::Failed`] with what the store said.
pub trait System: Send + Sync {
    /// Sets the value of a key.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn put(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<()>;

    /// Removes a key, buffered.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Removes all keys from `from` on that are below `to`, buffered.
    ///
    /// # Errors
    /// [`Error::Unable`] besides.
    fn remove_range(&self, from: &[u8], to: &[u8]) -> Result<()>;

    /// The value of a key.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Reads at most `entries` entries, keys and values, from the first key at or after `from`,
    /// and says how many there were.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn scan(&self, from: &[u8], entries: u64) -> Result<u64>;

    /// Begins a scan of everything, reads `entries` entries and leaves it open.
    ///
    /// # Errors
    /// [`Error::Unable`] besides.
    fn hold_scan(&self, entries: u64) -> Result<Held<'_>>;

    /// Makes every write so far durable.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn persist(&self) -> Result<()>;

    /// Writes out what is buffered in memory and waits until nothing runs in the background.
    /// Says how long at its end it waited only to make sure.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn wait_idle(&self) -> Result<Duration>;

    /// Rewrites the whole map without garbage, in the calling thread where the store can, and
    /// returns when that is done.
    ///
    /// # Errors
    /// [`Error::Unable`] besides.
    fn compact(&self) -> Result<()>;

    /// Whether [`compact`](Self::compact) can run while a scan is open.
    fn compacts_during_scans(&self) -> bool {
        true
    }

    /// The store's own counters.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn figures(&self) -> Result<Figures>;

    /// Closes the store cleanly.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn close(self: Box<Self>) -> Result<()>;
}

/// The interval of looks at a store, and the number of those in a row that must find it at rest.
const REST_INTERVAL: Duration = Duration::from_millis(40);
const REST_ROUNDS: u32 = 5;

/// Waits until `is_busy` has said no several times in a row, and says how long those took.
pub(crate) fn rest(mut is_busy: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let mut rounds = 0;
    let mut since = Instant::now();
    while rounds < REST_ROUNDS {
        thread::sleep(REST_INTERVAL);
        if is_busy()? {
            rounds = 0;
            since = Instant::now();
        } else {
            rounds += 1;
        }
    }
    Ok(since.elapsed())
}

/// The kind of index of Esker's keyspaces, and the policy of their merges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrangement {
    /// The kind of index.
    pub index: IndexKind,
    /// Which parts of an LSM index are merged.
    pub policy: CompactionPolicy,
}

/// Opens the store `name` in `folder`, creating it where there is none, with `budget_bytes` of
/// memory for everything that it lets one limit. Esker's keyspace is arranged so.
///
/// # Errors
/// [`Error::NotBuilt`], [`Error::Failed`].
pub fn open(
    name: Name,
    folder: &Path,
    budget_bytes: u64,
    arrangement: Arrangement,
) -> Result<Box<dyn System>> {
    match name {
        Name::Esker => crate::esker::open(folder, budget_bytes, arrangement),
        #[cfg(feature = "rocksdb")]
        Name::Rocksdb
        | Name::RocksdbEighths
        | Name::RocksdbUniversal
        | Name::RocksdbUniversalEighths => crate::rocksdb::open(name, folder, budget_bytes),
        #[cfg(feature = "fjall")]
        Name::Fjall => crate::fjall::open(folder, budget_bytes),
        #[cfg(feature = "redb")]
        Name::Redb => crate::redb::open(folder, budget_bytes),
        #[cfg(not(all(feature = "rocksdb", feature = "fjall", feature = "redb")))]
        name => Err(Error::NotBuilt(name.as_str())),
    }
}

/// The version of the RocksDB library that is loaded; `None` where none is built in. Makes an empty
/// store in `folder`, which is left there.
///
/// # Errors
/// [`Error::Failed`], also for a library that is too old for this program.
pub fn rocksdb_version(folder: &Path) -> Result<Option<String>> {
    #[cfg(feature = "rocksdb")]
    return crate::rocksdb::version(folder).map(Some);
    #[cfg(not(feature = "rocksdb"))]
    return {
        let _ = folder;
        Ok(None)
    };
}

/// Opens the store `name` on a device, for instance a simulated one, creating it where there is
/// none. Only Esker can: peers write through the kernel.
///
/// # Errors
/// [`Error::Unable`], [`Error::Failed`].
pub fn open_on(
    name: Name,
    device: Arc<dyn Device>,
    budget_bytes: u64,
    arrangement: Arrangement,
) -> Result<Box<dyn System>> {
    match name {
        Name::Esker => crate::esker::open_on(device, budget_bytes, arrangement),
        name => Err(Error::Unable {
            system: name.as_str(),
            what: "run on a simulated device: it writes through the kernel",
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        assert!(Name::ALL.iter().all(|name| Name::parse(name.as_str()) == Some(*name)));
        assert_eq!(Name::parse("sled"), None);
    }

    #[test]
    fn rest_begins_when_work_last_ended() {
        let mut calls = 0;
        let idle = rest(|| {
            calls += 1;
            Ok(calls <= 3)
        });
        assert_eq!(calls, 3 + REST_ROUNDS);
        let idle = idle.unwrap();
        assert!(idle >= REST_INTERVAL * REST_ROUNDS && idle < REST_INTERVAL * 50, "{idle:?}");
    }

    #[test]
    fn a_peer_that_is_not_built_says_so() {
        for name in Name::ALL.into_iter().filter(|name| !name.is_built()) {
            let error = open(name, Path::new("/nonexistent"), 1 << 20, Arrangement::default())
                .err()
                .unwrap();
            assert!(matches!(error, Error::NotBuilt(_)), "{error}");
        }
    }

    /// Every store that is built keeps the promises that the measurements rely on.
    #[test]
    fn every_store_does_what_it_is_asked() {
        let systems = Name::ALL.into_iter().filter(|name| name.is_built());
        let systems = systems.map(|name| (name, Arrangement::default()));
        let by = |policy| (Name::Esker, Arrangement { index: IndexKind::Lsm, policy });
        for (name, arrangement) in systems.chain(CompactionPolicy::ALL.map(by)) {
            let folder = tempfile::tempdir().unwrap();
            let store = open(name, folder.path(), 4 << 20, arrangement).unwrap();
            for number in 0..500u32 {
                let durability =
                    if number == 7 { Durability::Synced } else { Durability::Buffered };
                store.put(&number.to_be_bytes(), &[1; 100], durability).unwrap();
            }
            store.put(&3u32.to_be_bytes(), b"new", Durability::Buffered).unwrap();
            store.delete(&4u32.to_be_bytes()).unwrap();
            store.persist().unwrap();
            store.wait_idle().unwrap();
            assert_eq!(store.get(&3u32.to_be_bytes()).unwrap().unwrap(), b"new", "{name}");
            assert_eq!(store.get(&4u32.to_be_bytes()).unwrap(), None, "{name}");
            assert_eq!(store.scan(&2u32.to_be_bytes(), 10).unwrap(), 10, "{name}");
            assert_eq!(store.scan(&490u32.to_be_bytes(), 100).unwrap(), 10, "{name}");
            drop(store.hold_scan(200).unwrap());
            store.compact().unwrap();
            assert_eq!(store.scan(&[], 1000).unwrap(), 499, "{name}");
            store.figures().unwrap();
            store.close().unwrap();

            let store = open(name, folder.path(), 4 << 20, arrangement).unwrap();
            assert_eq!(store.scan(&[], 1000).unwrap(), 499, "{name}");
            store.close().unwrap();
        }
    }
}
