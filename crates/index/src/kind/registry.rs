//! The registry of index kinds. No other shared module names a kind.

use esker_format::block::Codec;
use esker_format::meta::IndexMeta;

use crate::fdtree::{FdTree, Sizes};
use crate::kind::Kind;
use crate::lsm::{Compaction, Lsm};
use crate::merge::scheme::Scheme;

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
}

/// The kind of an index, according to its record.
pub(crate) fn kind_of(meta: &IndexMeta, options: &Options) -> Box<dyn Kind> {
    if meta.lsm.is_some() {
        Box::new(Lsm::new(options.compaction))
    } else {
        Box::new(FdTree::new(meta, options.scheme, options.sizes))
    }
}
