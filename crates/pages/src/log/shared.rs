//! The state of a store that several processes have open, in addition to what every store has.
//!
//! One of the processes writes. Each has its own maps and its own free slots, in memory, which it
//! makes of the same checkpoint and the same records. So what is freed may depend on the log alone:
//! versions are purged by the record "held" ([`crate::log::record::Record::Held`]), which is
//! written when a checkpoint begins; dead slots, the older log and the older nodes are free when
//! that checkpoint is the newest.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::log::record::Unlisted;
use crate::log::scan::Position;
use crate::log::superblock::Superblock;
use crate::place::Sector;
use crate::version::map::Root;

/// Names, number and root of a version.
pub(crate) type KeptRoot = (Vec<Arc<str>>, u64, Arc<Root>);

/// The end of the log, as the writing process says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    /// The epoch of the newest checkpoint.
    pub(crate) epoch: u64,
    /// The number of the next frame: those before it are written whole, and take effect.
    pub(crate) number: u64,
}

/// The state when the newest record "held" was applied: a checkpoint that follows has this.
#[derive(Debug)]
pub(crate) struct HeldMark {
    /// The versions of the checkpoint, the oldest first.
    pub(crate) roots: Vec<KeptRoot>,
    /// The number of slots that were dead.
    pub(crate) dead: usize,
    /// The number of records that the checkpoint's log begins with: the transaction that was
    /// prepared, and the records since.
    pub(crate) carried: usize,
    /// Whether no version is held that is older than the checkpoint that was loaded, except those
    /// with names.
    pub(crate) is_complete: bool,
}

/// What a store that several processes have open keeps in addition.
#[derive(Debug)]
pub(crate) struct SharedCore {
    /// The newest checkpoint.
    pub(crate) block: Superblock,
    /// The place in its log up to which records are applied; used by processes that follow.
    pub(crate) at: Position,
    /// The segments of the log before the present one. They are free with the next checkpoint: a
    /// process may be reading there.
    pub(crate) log_before: Vec<u32>,
    /// The places of all nodes of the newest checkpoint. Only these are in use: a node in memory
    /// that is in no checkpoint any more may remember a place that is not its own.
    pub(crate) nodes: BTreeSet<Sector>,
    pub(crate) mark: Option<HeldMark>,
    /// The newest version of the checkpoint that was loaded. Slots that only older versions have
    /// are not known here to be in use.
    pub(crate) loaded: u64,
    /// Whether the free slots are known to be those of every process. Without that, slots may seem
    /// free here that are not, and nothing may be allocated in the segments that `unlisted` names;
    /// nowhere, if it names none.
    pub(crate) is_complete: bool,
    /// What the checkpoint that was loaded, or the last one that was taken here, does not list.
    pub(crate) unlisted: Unlisted,
    /// Whether this process keeps all others from opening the store ([`crate::log::alone`]).
    pub(crate) is_alone: bool,
    /// Whether it moves pages still.
    pub(crate) needs_alone: bool,
}

impl SharedCore {
    /// A checkpoint that was loaded by a process that follows, before anything of its log.
    pub(crate) fn new(block: Superblock, newest: u64, nodes: BTreeSet<Sector>) -> Self {
        Self {
            block,
            at: Position::first(&block),
            log_before: Vec::new(),
            nodes,
            mark: None,
            loaded: newest,
            is_complete: false,
            unlisted: Unlisted::default(),
            is_alone: false,
            needs_alone: false,
        }
    }
}
