//! The registry of index kinds. No other shared module names a kind.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use esker_format::block::Codec;
use esker_format::meta::{IndexMeta, KindMeta};

use crate::Index;
use crate::fdtree::{FdTree, Sizes};
use crate::history::History;
use crate::kind::Kind;
use crate::lsm::{Compaction, Lsm, MergeReport};
use crate::merge::scheme::Scheme;

/// The data structure that holds a keyspace's entries below its memtable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexKind {
    /// An FD+tree: a few levels that are merged whole, concurrently with reads and writes.
    #[default]
    FdTree,
    /// A log-structured merge tree: each merge takes a part of the key range, and blocks that no
    /// merge changes stay in place. Writes least.
    Lsm,
}

impl IndexKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::FdTree, Self::Lsm];

    /// The name: `fdtree` or `lsm`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FdTree => "fdtree",
            Self::Lsm => "lsm",
        }
    }
}

/// The kind of the index that a record describes.
#[must_use]
pub const fn kind_in(meta: &IndexMeta) -> IndexKind {
    match meta.kind {
        KindMeta::FdTree => IndexKind::FdTree,
        KindMeta::Lsm(_) => IndexKind::Lsm,
    }
}

/// The record of an index that nothing has been written to.
#[must_use]
pub fn empty(kind: IndexKind) -> IndexMeta {
    let kind = match kind {
        IndexKind::FdTree => KindMeta::FdTree,
        IndexKind::Lsm => KindMeta::empty_lsm(),
    };
    IndexMeta { kind, ..IndexMeta::default() }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no index kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIndexKind(String);

impl fmt::Display for UnknownIndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = IndexKind::ALL.map(IndexKind::name).join(" or ");
        write!(f, "index is {names}, and not {:?}", self.0)
    }
}

impl std::error::Error for UnknownIndexKind {}

impl FromStr for IndexKind {
    type Err = UnknownIndexKind;

    fn from_str(name: &str) -> Result<Self, UnknownIndexKind> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| UnknownIndexKind(name.to_owned()))
    }
}

/// The options of a keyspace's index.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory of the memtable and of frozen memtables, in bytes.
    pub memtable_bytes_max: u64,
    /// The scheme by which merges run.
    pub scheme: Scheme,
    /// The source of level sizes.
    pub sizes: Sizes,
    /// The codec of data blocks.
    pub codec: Codec,
    /// The parameters of the merges of an LSM index.
    pub compaction: Compaction,
    /// The history that the keyspace keeps.
    pub history: Option<History>,
}

impl Index {
    /// The index's kind.
    pub fn index_kind(&self) -> IndexKind {
        kind_in(&self.durable.load())
    }

    /// The report on the merges of this index and their costs; `None` when it is not an LSM index.
    pub fn merge_report(&self) -> Option<MergeReport> {
        let kind: &dyn Any = &*self.kind;
        let lsm: &Lsm = kind.downcast_ref()?;
        lsm.merge_report(self.context())
    }
}

/// The kind of an index, according to its record.
pub(crate) fn kind_of(meta: &IndexMeta, options: &Options) -> Box<dyn Kind> {
    match meta.kind {
        KindMeta::FdTree => Box::new(FdTree::new(meta, options.scheme, options.sizes)),
        KindMeta::Lsm(_) => Box::new(Lsm::new(options.compaction)),
    }
}
