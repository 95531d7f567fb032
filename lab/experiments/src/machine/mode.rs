//! Modes: how SQLite keeps its transactions, and on which layer.

use super::board::Board;
use super::disk::LayerKind;

/// How SQLite keeps its transactions, and on what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct System {
    /// The mode.
    pub mode: Mode,
    /// The device.
    pub board: Board,
}

impl System {
    /// The modes of the paper, each on all devices that differ for it.
    pub fn of_the_paper() -> impl Iterator<Item = Self> {
        let on = |board: Board| Mode::PAPER.into_iter().map(move |mode| Self { mode, board });
        let by_records = on(Board::JasmineByRecords).filter(|of| of.mode.is_transactional());
        on(Board::Jasmine).chain(by_records).chain(on(Board::Plain))
    }

    /// Its name: the mode's on the paper's board.
    #[must_use]
    pub fn name(self) -> String {
        match self.board {
            Board::Jasmine => self.mode.name().to_owned(),
            Board::JasmineByRecords => format!("{}, records alone", self.mode.name()),
            Board::Plain => format!("{}, plain device", self.mode.name()),
        }
    }
}

/// A mode of the paper's table 4, or one of ours.
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
    /// Our VFS over the page store, on a layer without transactions.
    PageStore,
    /// The same without deltas: each changed page is written whole.
    WholePages,
}

impl Mode {
    /// Those of the paper.
    pub const PAPER: [Self; 5] = [Self::Rbj, Self::Wal50, Self::Wal1000, Self::XFtl, Self::MvFtl];
    /// Ours.
    pub const OURS: [Self; 2] = [Self::PageStore, Self::WholePages];

    /// Its name in the paper.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rbj => "RBJ",
            Self::Wal50 => "WAL50",
            Self::Wal1000 => "WAL1000",
            Self::XFtl => "X-FTL",
            Self::MvFtl => "MV-FTL",
            Self::PageStore => "page store",
            Self::WholePages => "page store, whole pages",
        }
    }

    /// The layer of its device.
    #[must_use]
    pub const fn layer(self) -> LayerKind {
        match self {
            Self::Rbj | Self::Wal50 | Self::Wal1000 | Self::PageStore | Self::WholePages => {
                LayerKind::PageMapped
            }
            Self::XFtl => LayerKind::XFtl,
            Self::MvFtl => LayerKind::MvFtl,
        }
    }

    /// Whether the layer's transactions take the place of a journal.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        matches!(self, Self::XFtl | Self::MvFtl)
    }

    /// Whether it is our page store, in one of its two ways.
    #[must_use]
    pub const fn is_store(self) -> bool {
        matches!(self, Self::PageStore | Self::WholePages)
    }

    /// Whether readers have a version and take no lock.
    #[must_use]
    pub const fn has_versions(self) -> bool {
        matches!(self, Self::MvFtl)
    }

    /// What a connection is told.
    pub(super) const fn pragmas(self) -> &'static str {
        match self {
            Self::Rbj | Self::XFtl | Self::MvFtl | Self::PageStore | Self::WholePages => {
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
