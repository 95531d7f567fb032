//! Durability bugs on purpose, so that the crash tests can prove that they would find them.
//!
//! Without the feature `planted` the question [`is`] is a constant `false` and the compiler
//! removes every planted branch. With it, a bug is active inside `with` on that thread only.

/// A bug that a crash-safe store must not have. Each is planted where the real code would have
/// it; the test suites must fail with each of them and pass without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The superblock names a new manifest before that manifest is synced.
    NoBarrierBeforeSuperblock,
    /// Blocks given up by a merge are reused before the record that gives them up is durable.
    ReclaimBeforeCommit,
    /// Log records are accepted whatever their checksums say.
    LogWithoutChecksum,
    /// Records of a segment's earlier use, or of a crashed run, are taken for the log's tail.
    StaleLogTailAccepted,
    /// A synced write is acknowledged when it is only written.
    AcknowledgedBeforeSync,
    /// Superblocks are accepted whatever their checksums say.
    SuperblockWithoutChecksum,
    /// A file is used without making its directory entry durable.
    NoDirectorySync,
    /// A new file is named by the manifest before its length is durable.
    LengthNotSynced,
    /// Log segments are given up although the merge that replaces them is not durable.
    LogTruncatedBeforeMerge,
    /// Blocks that only a snapshot still needs are reused.
    SnapshotBlocksReused,
    /// After recovery, sequence numbers are handed out twice.
    SequenceReusedAfterRecovery,
    /// A log segment's file is removed before the manifest stops naming it.
    SegmentUnlinkedEarly,
    /// An extent is freed twice.
    FreedTwice,
    /// A merge's record is made durable before the blocks that it names.
    CommitBeforeBlocks,
    /// A merge's record is made durable before the log that it builds on.
    CommitBeforeLog,
    /// Space that a merge has passed is reused before the record of its progress is durable.
    ReclaimBeforeRecord,
    /// Space that a merge has passed is reused while views that lead to it are read.
    QuarantineIgnored,
    /// A lookup reads the visible number before it loads its view.
    NumberBeforeView,
}

impl Bug {
    /// Those that crashes, damage and failing operations find.
    pub const ALL: [Self; 16] = [
        Self::NoBarrierBeforeSuperblock,
        Self::ReclaimBeforeCommit,
        Self::LogWithoutChecksum,
        Self::StaleLogTailAccepted,
        Self::AcknowledgedBeforeSync,
        Self::SuperblockWithoutChecksum,
        Self::NoDirectorySync,
        Self::LengthNotSynced,
        Self::LogTruncatedBeforeMerge,
        Self::SnapshotBlocksReused,
        Self::SequenceReusedAfterRecovery,
        Self::SegmentUnlinkedEarly,
        Self::FreedTwice,
        Self::CommitBeforeBlocks,
        Self::CommitBeforeLog,
        Self::ReclaimBeforeRecord,
    ];

    /// Those that only several threads find.
    pub const CONCURRENT: [Self; 2] = [Self::QuarantineIgnored, Self::NumberBeforeView];
}

#[cfg(not(feature = "planted"))]
mod active {
    use super::Bug;

    /// Whether `bug` is active here: never, in a build without the feature `planted`.
    #[must_use]
    pub const fn is(_bug: Bug) -> bool {
        false
    }
}

#[cfg(feature = "planted")]
mod active {
    use std::cell::Cell;

    use super::Bug;

    thread_local! {
        static ACTIVE: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    struct Restore(Option<Bug>);

    impl Drop for Restore {
        fn drop(&mut self) {
            ACTIVE.set(self.0);
        }
    }

    /// Whether `bug` is active on this thread.
    #[must_use]
    pub fn is(bug: Bug) -> bool {
        ACTIVE.get() == Some(bug)
    }

    /// Runs `work` with `bug` active on this thread; afterwards, a panic included, the bug is
    /// gone again.
    pub fn with<T>(bug: Bug, work: impl FnOnce() -> T) -> T {
        let _restore = Restore(ACTIVE.replace(Some(bug)));
        work()
    }
}

pub use active::is;
#[cfg(feature = "planted")]
pub use active::with;
