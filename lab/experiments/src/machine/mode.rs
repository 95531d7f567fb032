//! Modes: how SQLite keeps its transactions, and on which layer.

use super::disk::LayerKind;

/// A mode of the paper's table 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// SQLite's rollback journal, deleted at each commit.
    Rbj,
    /// SQLite's write-ahead log, with a checkpoint when it has 50 pages.
    Wal50,
    /// The same, when it has 1,000: SQLite's default.
    Wal1000,
    /// No journal: the layer's transactions, and SQLite's locks.
    XFtl,
    /// No journal: the layer's transactions and versions; readers take no lock.
    MvFtl,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Rbj, Self::Wal50, Self::Wal1000, Self::XFtl, Self::MvFtl];

    /// Its name in the paper.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rbj => "RBJ",
            Self::Wal50 => "WAL50",
            Self::Wal1000 => "WAL1000",
            Self::XFtl => "X-FTL",
            Self::MvFtl => "MV-FTL",
        }
    }

    /// The layer of its device.
    #[must_use]
    pub const fn layer(self) -> LayerKind {
        match self {
            Self::Rbj | Self::Wal50 | Self::Wal1000 => LayerKind::PageMapped,
            Self::XFtl => LayerKind::XFtl,
            Self::MvFtl => LayerKind::MvFtl,
        }
    }

    /// Whether the layer's transactions take the place of a journal.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        matches!(self, Self::XFtl | Self::MvFtl)
    }

    /// Whether readers have a version and take no lock.
    #[must_use]
    pub const fn has_versions(self) -> bool {
        matches!(self, Self::MvFtl)
    }

    /// What a connection is told.
    pub(super) const fn pragmas(self) -> &'static str {
        match self {
            Self::Rbj | Self::XFtl | Self::MvFtl => {
                "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL"
            }
            Self::Wal50 => {
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 PRAGMA wal_autocheckpoint = 50"
            }
            Self::Wal1000 => {
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
                 PRAGMA wal_autocheckpoint = 1000"
            }
        }
    }
}
