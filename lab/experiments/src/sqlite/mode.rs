//! Modes: the ways in which SQLite keeps its transactions, its own and ours.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::failed;
use crate::{Error, Result};

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The VFS over the page store, each commit durable.
    Esker,
    /// The same in one process, which locks the database: `processes=one`.
    EskerOne,
    /// Each commit durable soon, in order: `synchronous = NORMAL`.
    EskerRelaxed,
    /// `journal_mode = WAL`, `synchronous = FULL`: each commit durable.
    Wal,
    /// `journal_mode = WAL`, `synchronous = NORMAL`: durable at checkpoints.
    WalNormal,
    /// `journal_mode = DELETE`, `synchronous = FULL`: SQLite's default.
    Delete,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Esker, Self::EskerOne, Self::EskerRelaxed, Self::Wal, Self::WalNormal, Self::Delete];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Esker => "esker",
            Self::EskerOne => "esker-one",
            Self::EskerRelaxed => "esker-relaxed",
            Self::Wal => "wal",
            Self::WalNormal => "wal-normal",
            Self::Delete => "delete",
        }
    }

    /// The mode of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Whether the file is ours.
    #[must_use]
    pub const fn is_esker(self) -> bool {
        matches!(self, Self::Esker | Self::EskerOne | Self::EskerRelaxed)
    }

    const fn pragmas(self) -> &'static str {
        match self {
            Self::Esker | Self::EskerOne => "PRAGMA synchronous = FULL",
            Self::EskerRelaxed => "PRAGMA synchronous = NORMAL",
            Self::Wal => "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL",
            Self::WalNormal => "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
            Self::Delete => "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL",
        }
    }
}

/// A database of some mode, in a folder that holds nothing else.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its mode.
    pub mode: Mode,
    /// The folder.
    pub folder: PathBuf,
    /// MiB that each connection caches.
    pub cache_mib: u32,
}

impl Place {
    /// The name of the database as SQLite takes it.
    #[must_use]
    pub fn uri(&self) -> String {
        let vfs = match self.mode {
            Mode::Esker | Mode::EskerRelaxed => "esker",
            Mode::EskerOne => "esker&processes=one",
            Mode::Wal | Mode::WalNormal | Mode::Delete => "counted",
        };
        format!("{}?vfs={vfs}", uri(&self.folder.join("app.db")))
    }

    /// Opens a connection.
    pub fn open(&self) -> Result<Connection> {
        let open = || {
            let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
            let connection = Connection::open_with_flags(self.uri(), flags)?;
            connection.execute_batch(self.mode.pragmas())?;
            let cache = u64::from(self.cache_mib) << 10;
            connection.execute_batch(&format!(
                "PRAGMA cache_size = -{cache}; PRAGMA temp_store = MEMORY"
            ))?;
            Ok(connection)
        };
        open().map_err(failed(self.mode, "open the database"))
    }

    /// Bytes that the files of the database take of the device, whatever they are called.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return 0 };
        let sizes = entries.flatten().filter_map(|entry| entry.metadata().ok());
        sizes.map(|file| file.blocks() * 512).sum()
    }
}

/// A path as a URI.
pub(super) fn uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

/// Makes the VFS known, and SQLite's own with its syncs counted.
pub(super) fn link() -> Result<()> {
    let linked = esker_sqlite::link().and_then(|()| esker_sqlite::count_syncs());
    linked.map_err(|why| Error::Run(format!("cannot register the VFS: {why}")))
}
