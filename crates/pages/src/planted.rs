//! Bugs on purpose, so that the tests can prove that they would find them.
//!
//! Without the feature `_planted` the question [`is`] is a constant `false` and the compiler
//! removes every planted branch. With it, a bug is active inside `with` on that thread only.

/// A bug that a page store must not have. Each is planted where the real code would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A commit is acknowledged when it is only written.
    AcknowledgedBeforeSync,
    /// A slot is used again although the checkpoint, or a record since, names it.
    ReusedBeforeCheckpoint,
    /// A record counts as a commit although its pages are not there.
    PagesNotVerified,
    /// The superblock is written before the nodes that it leads to are durable.
    SuperblockBeforeNodes,
    /// The log is written on where a crash left it.
    LogWrittenOn,
    /// Nodes of the last durable checkpoint are given back before the next one is.
    NodesFreedEarly,
    /// Spilled pages are reported as durable and are not.
    SpilledNotSynced,
    /// The decision of a prepared transaction is not made durable.
    DecisionNotSynced,
    /// A checkpoint forgets the prepared transaction.
    PreparedNotCarried,
    /// A version is purged as if no reader had an older one.
    OlderReadersIgnored,
    /// Pages that were cut off are forgotten, and keep their slots.
    CutNotFreed,
    /// A concurrent checkpoint loses what was committed in the meantime.
    SinceNotCarried,
    /// A concurrent checkpoint frees the slots that died in the meantime.
    FreedWithNewerDead,
    /// An opening begins an epoch whose log a crash may have left behind.
    EpochUsedTwice,
    /// A place that a page was moved from is used again before the move is durable.
    MovedFromTooEarly,
    /// Pages are moved in the newest version only.
    VersionForgotten,
    /// An opening for reading uses the checkpoint alone.
    LogNotRead,
    /// The file is cut before a checkpoint that does not lead behind its new end is durable.
    CutBeforeCheckpoint,
    /// A file that begins with zeros is a new store, whatever follows.
    HeadIsEnough,
    /// The cut of a prepared transaction's database is not written with the decision.
    CutNotWritten,
    /// The removal of a super-journal decides before the removal is durable.
    RemovalNotSynced,
    /// A transaction is prepared where its decision finds no room.
    DecisionFindsNoRoom,
    /// The record of held versions has those of its own process only.
    HeldForgotten,
    /// A process that follows a log applies the records that a new log repeats.
    CarriedAppliedTwice,
    /// A process that follows a log forgets where a checkpoint has put the nodes.
    NodesNotAdopted,
    /// A process that follows a log frees the slots that died since a checkpoint began.
    FollowerFreesNewerDead,
    /// A reader does not say in the meeting file which version it reads.
    PinNotSeen,
    /// A reader that has said it does not look whether it was asked before.
    AskedNotReread,
    /// The process that frees says that it asks only after it has looked who reads.
    AskedStoredLate,
    /// A state that is being written is taken for a state.
    TornStateBelieved,
    /// A process goes on with what it has in memory when another one has recovered the store.
    LaggardNotReloaded,
    /// The log is written on where a process has died.
    DeadWritersLogWrittenOn,
    /// A process asks for the decision of a prepared transaction while its owner lives.
    PreparedDecidedByOther,
    /// A process whose sync has failed lets others write, although commits that they have seen may
    /// not be durable.
    DoubtIgnored,
    /// A process takes slots for free in segments where it does not know all that are in use.
    UnlistedReused,
    /// Other processes are let in while a reader uses places that pages were moved from.
    AloneTooShort,
    /// A process does not say a checkpoint that one has left which died, and none looks for it.
    UnsaidNotSaid,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 37] = [
        Self::AcknowledgedBeforeSync,
        Self::ReusedBeforeCheckpoint,
        Self::PagesNotVerified,
        Self::SuperblockBeforeNodes,
        Self::LogWrittenOn,
        Self::NodesFreedEarly,
        Self::SpilledNotSynced,
        Self::DecisionNotSynced,
        Self::PreparedNotCarried,
        Self::OlderReadersIgnored,
        Self::CutNotFreed,
        Self::SinceNotCarried,
        Self::FreedWithNewerDead,
        Self::EpochUsedTwice,
        Self::MovedFromTooEarly,
        Self::VersionForgotten,
        Self::LogNotRead,
        Self::CutBeforeCheckpoint,
        Self::HeadIsEnough,
        Self::CutNotWritten,
        Self::RemovalNotSynced,
        Self::DecisionFindsNoRoom,
        Self::HeldForgotten,
        Self::CarriedAppliedTwice,
        Self::NodesNotAdopted,
        Self::FollowerFreesNewerDead,
        Self::PinNotSeen,
        Self::AskedNotReread,
        Self::AskedStoredLate,
        Self::TornStateBelieved,
        Self::LaggardNotReloaded,
        Self::DeadWritersLogWrittenOn,
        Self::PreparedDecidedByOther,
        Self::DoubtIgnored,
        Self::UnlistedReused,
        Self::AloneTooShort,
        Self::UnsaidNotSaid,
    ];
}

esker_device::planting!(super::Bug, "_planted");
