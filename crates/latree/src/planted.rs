//! Bugs on purpose, so that the tests can prove that they would find them.
//!
//! Without the feature `_planted` the question [`is`] is a constant `false`.

/// A bug that the tree must not have. Each is planted where the real code would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A subtree is split and its buffer stays with the first half.
    SplitKeepsBuffer,
    /// A group of operations becomes a fragment while older ones of its buffer are in memory.
    FragmentOlderThanPool,
    /// A part in memory is moved to the buffers below while its own has older fragments.
    PartPastFragments,
    /// A checkpoint does not have the new root of the tree.
    RootForgotten,
    /// Garbage collection copies a page of a buffer that was emptied.
    DeadFragmentCopied,
    /// Blocks are free before the checkpoint that no longer needs them is complete.
    FreedEarly,
    /// A recovery does not read the log.
    LogIgnored,
    /// What was programmed is not made durable on a chip with a cache.
    SyncForgotten,
}

#[cfg(feature = "_planted")]
esker_device::planting!(super::Bug, "_planted");

/// Whether a bug is active: never, in a build without its feature.
#[cfg(not(feature = "_planted"))]
#[must_use]
pub const fn is(_bug: Bug) -> bool {
    false
}
