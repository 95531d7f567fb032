//! Planted bugs, with which the tests prove that they would find them: of durability, for the crash
//! tests, and of concurrent threads, for the schedules.
//!
//! Without the feature `_planted` the question [`is`] is a constant `false` and the compiler
//! removes every planted branch. With it, a bug is active inside `with` on that thread only.

/// A bug that a crash-safe store must not have. Each is planted where the real code would have
/// it; the test suites must fail with each of them and pass without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// The superblock names a new manifest before that manifest is synced.
    NoBarrierBeforeSuperblock,
    /// Blocks freed by a merge are reused before the record that frees them is durable.
    ReclaimBeforeCommit,
    /// Log records are accepted without a check of their checksums.
    LogWithoutChecksum,
    /// Records of a segment's earlier use, or of a crashed run, are taken for the log's tail.
    StaleLogTailAccepted,
    /// A synced write is acknowledged when it is only written.
    AcknowledgedBeforeSync,
    /// Superblocks are accepted without a check of their checksums.
    SuperblockWithoutChecksum,
    /// A file is used without making its directory entry durable.
    NoDirectorySync,
    /// A new file is named by the manifest before its length is durable.
    LengthNotSynced,
    /// Log segments are freed although the merge that replaces them is not durable.
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
    /// The blocks that a merge keeps of the old bottom are freed with the rest of it.
    KeptFreed,
    /// A follower takes a segment of the log that was closed meanwhile for one that it has read.
    FollowerSkipsSegment,
    /// Merges drop versions that only followers read.
    FollowerPinIgnored,
    /// A follower takes numbers for kept that it has not compared with what the writer has asked.
    AskedNotCompared,
    /// A writer that opens the store forgets what merges of the one before have asked.
    AskedForgotten,
    /// A follower does not notice that its cell is in a file that was removed.
    CellNotFound,
    /// A merge takes values for expired that a snapshot of an earlier moment still sees.
    ExpiredForSnapshots,
    /// A merge leaves expired values out, and with them what hides older ones of their keys.
    ExpiredHideNothing,
    /// Range tombstones are left out of the record of the merge whose log they were in.
    RemovalsNotRecorded,
    /// A full merge retires range tombstones although it keeps for snapshots what they hide.
    RetiredForSnapshots,
    /// A merge of the upper levels retires range tombstones.
    RetiredByHalf,
    /// A scan jumps over a removed range although a source has newer entries there.
    JumpsOverNewer,
    /// Scans go on to begin behind keys of which one was put.
    GapNotClosed,
    /// Scans of an earlier moment begin behind keys that are not live later.
    GapForOlder,
    /// An index that takes a memtable over does not know the numbers in it.
    SharedNotCounted,
    /// A full merge gives a version newer than a range tombstone of its key a number below that
    /// one's.
    ResetUnderRangeTombstone,
    /// A merge drops the base of an operand, as if the operand were a value.
    OperandsAnswer,
    /// A merge joins operands between which a snapshot sees.
    MergedForSnapshots,
    /// Blocks are decompressed and read without a check of their checksums.
    BlockWithoutChecksum,
    /// A merge drops a reference, and the blob's space is leaked for ever.
    ValueForgotten,
    /// A blob's space is reused although the manifest still records it as taken.
    ValueFreedEarly,
    /// A sync of the log leaves out the blobs that its records refer to.
    ValueNotSynced,
    /// Recovery believes records that may not have been durable without looking at their values.
    ValueNotVerified,
    /// After recovery, space of blobs that only the log refers to counts as free.
    ValueNotClaimed,
    /// Pieces of a blob are read without a check of their checksums.
    ValueWithoutChecksum,
    /// Generations are handed out before they are in the manifest, and what recovery finds is not
    /// looked at.
    GenerationsNotReserved,
    /// A slice records nothing of the keys that runs have lost to it.
    GoneNotRecorded,
    /// A block goes down as it is although something newer or older has keys within its.
    StaysAmongOthers,
    /// A block stays as what a merge would write although that is more than the block holds.
    RepeatsAmongOthers,
    /// A batch that puts one large value under two keys stores it once, and both own it.
    ValueOwnedTwice,
    /// A scan from the end goes back past the wavefront in a tree that a merge consumes, into space
    /// that may be another's.
    FloorIgnored,
    /// A lookup reads the visible number before it loads its view.
    NumberBeforeView,
    /// A backup's catalog is put in place before the blocks that it names are durable.
    CatalogBeforeBlocks,
    /// A backup writes to space of the backup that it is to replace.
    BackupOverwritten,
    /// A finished backup without its catalog is taken for one that was never finished.
    LostCatalogIgnored,
    /// Space that a backup has still to copy may be reused meanwhile.
    BackupNotPinned,
    /// A restored store is there before its data is durable.
    RestoredBeforeData,
    /// A store opened for reading is recovered as usual: memtables are flushed.
    WrittenReadOnly,
    /// A new keyspace's name is compared with every other's, one after the other.
    NamesSearchedOneByOne,
    /// Memtables over their limit have all keyspaces looked at for every operation of the log.
    MemoryLookedAtEachTime,
    /// The remains of a store without its superblock are taken for the beginning of a new one.
    RemainsAreNew,
    /// The region of the manifest's next file has the same length, regardless of the free space.
    RegionNotMadeSmaller,
    /// Printing a handle prints what its store holds.
    HandlesPrintEntries,
    /// `check` counts the records of the log, and not the operations in them.
    RecordsCounted,
    /// The data that a backup keeps of the last one begins and ends with a unit, within blocks.
    PiecesCutAtUnits,
    /// Values take the space that is reserved for deletes and merges.
    ReserveTaken,
    /// Values are admitted that cannot be written out of the memtable.
    OwedNotKept,
    /// The reserve is returned to the device with the rest of the free space.
    ReserveDiscarded,
    /// The free space of an opened store that was allocated earlier stays allocated.
    UnknownNotDiscarded,
    /// A merge that lacks space is not recorded early.
    ShortMergeNotRecorded,
    /// Readers see what a merge has written when a block has just begun: the rest of its unit stays
    /// empty.
    UnitsLeftEmpty,
    /// A search takes the last fence before a missing chunk for the one that it looks for.
    MissingChunkPassed,
    /// Slices take the reserve permanently while nothing makes room.
    ReserveMerged,
    /// Levels are filled no better than elsewhere while a caller makes room on a full device.
    FullLevelsNotPacked,
    /// Merges take the space that is kept for the manifest's next file.
    ManifestRoomTaken,
    /// Nothing is kept for what range tombstones without a record add to that file.
    TombstonesNotKept,
    /// The state of a stopped flush replaces the state of a merge.
    StallOverwritten,
    /// Values take the last log segment.
    LastSegmentTaken,
    /// Merges drop the versions that a keyspace with history keeps.
    HistoryDropped,
    /// Range tombstones of a keyspace with history are retired, and their keys get none.
    RetiredWithoutKeys,
    /// A batch is as many versions of a keyspace with history as it has operations.
    BatchOfVersions,
    /// The same of a batch that is replayed.
    ReplayedAsVersions,
    /// Readers as of numbers before a split under way search its result.
    SplitReadsNewSide,
    /// They search its inputs through fences of which it has given up some.
    SplitReadsTrimmed,
    /// A split frees what it has copied from.
    SplitFreesInputs,
    /// The deletions of ranges before a split are not kept with the past index.
    PastWithoutRemovals,
    /// A split resets the numbers of what it copies.
    SplitResetsNumbers,
    /// Past indexes are dropped although somebody reads them.
    DroppedUnderPin,
    /// Two threads may drop the same past indexes.
    DroppedTwice,
    /// Dropping a past index frees none of the blobs that it had for itself.
    PastValuesKept,
    /// Versions with names are not pinned when the store is opened.
    NamesNotPinned,
    /// The changes between two versions are looked for in the index of now alone.
    ChangesOfNow,
    /// A split leaves what has expired by now, and not by the version that it begins with.
    SplitExpiresNow,
    /// Erased keys stay in past indexes.
    ErasedStays,
    /// The merge of a scan compares only the first bytes of keys.
    HeadsCompared,
    /// The merge of a scan keeps the rank of a source that has moved.
    RankNotRenewed,
}

impl Bug {
    /// Those that full devices find.
    pub const OF_FULL_DEVICES: [Self; 2] = [Self::ReserveTaken, Self::OwedNotKept];

    /// Those that crashes, damage and failing operations find.
    pub const ALL: [Self; 33] = [
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
        Self::KeptFreed,
        Self::ExpiredForSnapshots,
        Self::ExpiredHideNothing,
        Self::RemovalsNotRecorded,
        Self::RetiredForSnapshots,
        Self::RetiredByHalf,
        Self::ResetUnderRangeTombstone,
        Self::OperandsAnswer,
        Self::MergedForSnapshots,
        Self::BlockWithoutChecksum,
        Self::ValueForgotten,
        Self::ValueFreedEarly,
        Self::ValueNotSynced,
        Self::ValueNotVerified,
        Self::ValueNotClaimed,
        Self::ValueWithoutChecksum,
        Self::GenerationsNotReserved,
    ];

    /// Those of keyspaces with history.
    pub const OF_HISTORY: [Self; 6] = [
        Self::HistoryDropped,
        Self::RetiredWithoutKeys,
        Self::BatchOfVersions,
        Self::ReplayedAsVersions,
        Self::SplitFreesInputs,
        Self::PastWithoutRemovals,
    ];

    /// Those of backups.
    pub const OF_BACKUPS: [Self; 6] = [
        Self::CatalogBeforeBlocks,
        Self::BackupOverwritten,
        Self::LostCatalogIgnored,
        Self::BackupNotPinned,
        Self::RestoredBeforeData,
        Self::PiecesCutAtUnits,
    ];

    /// Those of merges by slices, which an LSM index may have; the first three it alone.
    pub const IN_SLICES: [Self; 14] = [
        Self::GoneNotRecorded,
        Self::StaysAmongOthers,
        Self::RepeatsAmongOthers,
        Self::ReclaimBeforeCommit,
        Self::CommitBeforeBlocks,
        Self::CommitBeforeLog,
        Self::SnapshotBlocksReused,
        Self::ExpiredForSnapshots,
        Self::ExpiredHideNothing,
        Self::RemovalsNotRecorded,
        Self::RetiredForSnapshots,
        Self::OperandsAnswer,
        Self::MergedForSnapshots,
        Self::ValueForgotten,
    ];

    /// Those that are looked for at every step of merges: by `check`, and by scans from every key.
    pub const BESIDE_MERGES: [Self; 2] = [Self::ValueOwnedTwice, Self::FloorIgnored];

    /// Those of the merge of scans.
    pub const IN_SCANS: [Self; 3] =
        [Self::HeadsCompared, Self::RankNotRenewed, Self::JumpsOverNewer];

    /// Those that only several threads find.
    pub const CONCURRENT: [Self; 2] = [Self::QuarantineIgnored, Self::NumberBeforeView];
}

/// A concurrency bug, beyond [`Bug::CONCURRENT`]: one thread alone cannot trigger it. It is
/// searched for in the schedules of several threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Race {
    /// Space is freed as soon as a merge has read all entries of a block, although keys between its
    /// last one and the next block's first one are still searched for there.
    ReclaimWhenRead,
    /// The wavefront is published as the key of the group that comes next.
    WavefrontTooFar,
    /// A view is published before the blocks are written that it leads to.
    ViewBeforeBlocks,
    /// The entries that a merge has moved are taken from the frozen memtable of all views, not of
    /// new ones.
    FrozenDrainedInPlace,
    /// The sorted runs that a merge consumes are searched before its frozen memtable.
    RunsBeforeFrozen,
    /// A scan of a merge's new side continues past the wavefront.
    ScanPastWavefront,
    /// Fences that are in no block yet are not searched.
    TailIgnored,
    /// A memtable is frozen while a writer is inside.
    FreezeWithoutBarrier,
    /// Space that the last view of a merge refers to may be reused as soon as older views are
    /// dropped.
    TaggedTooEarly,
    /// What was put before puts are noted is looked up before they are, not after.
    WatchedTooLate,
    /// Writers that wait for memory are not notified when there is some.
    MissedNotify,
    /// A writer looks for memory first and notes after that from which moment on it waits.
    TicksReadLate,
    /// What a flush of another thread has frozen counts as written out.
    FrozenForgotten,
    /// Numbers are made visible before their operations are in the memtables.
    VisibleBeforeInserted,
    /// A transaction begins while a write is under way that leaves nothing for it.
    BegunBesideWrite,
    /// A transaction is committed although a key was written within a range that it had scanned.
    RangesUnchecked,
    /// A transaction is committed although a range that it had read was deleted.
    RemovalsUnchecked,
}

impl Race {
    /// Those of one index.
    pub const IN_INDEX: [Self; 10] = [
        Self::ReclaimWhenRead,
        Self::WavefrontTooFar,
        Self::ViewBeforeBlocks,
        Self::FrozenDrainedInPlace,
        Self::RunsBeforeFrozen,
        Self::ScanPastWavefront,
        Self::TailIgnored,
        Self::FreezeWithoutBarrier,
        Self::TaggedTooEarly,
        Self::WatchedTooLate,
    ];

    /// Those of a store.
    pub const IN_STORE: [Self; 6] = [
        Self::MissedNotify,
        Self::TicksReadLate,
        Self::FrozenForgotten,
        Self::VisibleBeforeInserted,
        Self::BegunBesideWrite,
        Self::RangesUnchecked,
    ];
}

/// All bugs that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// Found by crashes, damage, failing operations; or by schedules.
    Bug(Bug),
    /// Found by schedules alone.
    Race(Race),
}

impl From<Bug> for Mistake {
    fn from(bug: Bug) -> Self {
        Self::Bug(bug)
    }
}

impl From<Race> for Mistake {
    fn from(race: Race) -> Self {
        Self::Race(race)
    }
}

esker_device::planting!(super::Mistake, "_planted");
