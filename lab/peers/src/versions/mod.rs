//! Ways of keeping every version of a map, behind one trait.
//!
//! | module | one idea |
//! |---|---|
//! | [`esker`] | keyspaces with history, and one without |
//! | [`sqlite`] | a table, and a table of its history that triggers write |
//! | `rocksdb` | the version behind the key, behind the feature of its name |
//!
//! Writes are buffered, as in [`system`](crate::system): a later [`Versioned::persist`] makes them
//! durable.

pub mod esker;
#[cfg(feature = "rocksdb")]
pub mod rocksdb;
pub mod sqlite;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::system::{Figures, Result};

/// A way of keeping versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// An Esker keyspace without history.
    Plain,
    /// One with all history and the default `history_share`, or another.
    Esker,
    /// One with all history and a `history_share` of 1.0.
    NeverSplit,
    /// RocksDB with versions in its keys.
    Rocksdb,
    /// SQLite with a history table.
    Sqlite,
}

impl Way {
    /// Every way, in the order of tables.
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::Esker, Self::NeverSplit, Self::Rocksdb, Self::Sqlite];

    /// The name as it is typed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Esker => "esker",
            Self::NeverSplit => "never-split",
            Self::Rocksdb => "rocksdb",
            Self::Sqlite => "sqlite",
        }
    }

    /// The way with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.as_str() == name)
    }

    /// Whether it was built into this program.
    #[must_use]
    pub const fn is_built(self) -> bool {
        cfg!(feature = "rocksdb") || !matches!(self, Self::Rocksdb)
    }

    /// Whether earlier versions can be read.
    #[must_use]
    pub const fn has_history(self) -> bool {
        !matches!(self, Self::Plain)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A key and its new value.
pub type Put = ([u8; 16], [u8; 100]);
/// Hears a key and its value.
pub type SeeEntry<'a> = dyn FnMut(&[u8], &[u8]) + 'a;
/// Hears a version and the value that a key got in it, `None` if it was removed.
pub type SeeChange<'a> = dyn FnMut(u64, Option<&[u8]>) + 'a;

/// The state of one version, or the newest.
///
/// # Errors
/// Every method answers [`Error::Failed`](crate::Error::Failed) with what the store said.
pub trait View {
    /// The value of a key.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Reads at most `entries` entries from the first key at or after `from`.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn scan(&self, from: &[u8], entries: u64, see: &mut SeeEntry<'_>) -> Result<()>;
}

/// An open store with one map that keeps its versions. One thread uses it.
///
/// # Errors
/// Every method answers [`Error::Failed`](crate::Error::Failed) with what the store said.
pub trait Versioned {
    /// Makes puts as one commit, buffered. Commits are numbered upwards from 1. The answer is the
    /// version in which they are seen.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn commit(&self, number: u64, puts: &[Put]) -> Result<u64>;

    /// The newest state.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn now(&self) -> Result<Box<dyn View + '_>>;

    /// The state of a version.
    ///
    /// # Errors
    /// [`Error::Unable`](crate::Error::Unable) besides, where there is no history.
    fn at(&self, version: u64) -> Result<Box<dyn View + '_>>;

    /// The changes of a key, newest first.
    ///
    /// # Errors
    /// [`Error::Unable`](crate::Error::Unable) besides, where there is no history.
    fn history(&self, key: &[u8], see: &mut SeeChange<'_>) -> Result<()>;

    /// Makes every commit so far durable.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn persist(&self) -> Result<()>;

    /// Writes out what is buffered in memory and waits until nothing runs in the background.
    /// Says how long at its end it waited only to make sure.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn wait_idle(&self) -> Result<Duration>;

    /// The store's own counters.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn figures(&self) -> Result<Figures>;

    /// Closes the store cleanly.
    #[expect(clippy::missing_errors_doc, reason = "the trait says it for all methods")]
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens the store in `folder`, creating it where there is none, with `budget_bytes` of memory for
/// everything that it lets one limit. `share` is the `history_share` of [`Way::Esker`].
///
/// # Errors
/// [`Error::NotBuilt`](crate::Error::NotBuilt), [`Error::Failed`](crate::Error::Failed).
pub fn open(
    way: Way,
    folder: &Path,
    budget_bytes: u64,
    share: Option<f64>,
) -> Result<Box<dyn Versioned>> {
    match way {
        Way::Plain | Way::Esker | Way::NeverSplit => esker::open(way, folder, budget_bytes, share),
        #[cfg(feature = "rocksdb")]
        Way::Rocksdb => rocksdb::open(folder, budget_bytes),
        #[cfg(not(feature = "rocksdb"))]
        Way::Rocksdb => Err(crate::Error::NotBuilt(way.as_str())),
        Way::Sqlite => sqlite::open(folder, budget_bytes),
    }
}

#[cfg(test)]
mod tests;
