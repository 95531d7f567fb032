//! Bugs on purpose, so that the tests can prove that they would find them.
//!
//! Without the feature `_planted` the question [`is`] is a constant `false` and the compiler
//! removes every planted branch. With it, a bug is active inside `with` on that thread only.

/// A bug that a translation layer must not have. Each is planted where the real code would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// Garbage collection moves a page and leaves its owner at the old place.
    GcForgetsOwner,
    /// A trim that was flushed is forgotten by a recovery.
    TrimKept,
    /// A trimmed page is given up before its trim is durable.
    TrimFreedEarly,
    /// Host writes take the blocks that are kept in reserve for garbage collection.
    ReserveUsed,
    /// A transaction's commit record is programmed before its data.
    CommitBeforeData,
    /// The unfinished commit record of a crash is taken as the beginning of the next one.
    OrphanJoinsNext,
    /// Garbage collection drops a version that a reader still pins.
    GcForgetsVersion,
}

impl Bug {
    /// Those of every translation layer.
    pub const OF_EVERY_LAYER: [Self; 4] =
        [Self::GcForgetsOwner, Self::TrimKept, Self::TrimFreedEarly, Self::ReserveUsed];
    /// Those of transactional layers.
    pub const OF_TRANSACTIONS: [Self; 3] =
        [Self::CommitBeforeData, Self::OrphanJoinsNext, Self::GcForgetsVersion];
}

esker_device::planting!(super::Bug, "_planted");
