//! Bugs on purpose, so that the tests can prove that they would find them.
//!
//! Without the feature `testing` the question [`is`] is a constant `false` and the compiler removes
//! every planted branch. With it, a bug is active inside `with` on that thread only.

/// A bug that the VFS must not have. Each is planted where the real code would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A transaction is committed when the pager syncs, which it does also before the last cut
    /// and when it rolls back.
    CommittedAtSync,
    /// A transaction over several files is not prepared: each file commits by itself.
    NotPrepared,
    /// A transaction that was prepared took place, whatever became of its super-journal.
    DecidedBlindly,
    /// A rollback takes the super-journal away that a prepared transaction waits for.
    SuperJournalRemoved,
    /// A transaction that is abandoned is committed as far as it came.
    AbandonedCommitted,
    /// A commit that fails says so with a code that leaves the pager its cache.
    CacheKept,
    /// A prepared transaction refuses a truncation, and is dropped where SQLite then does not
    /// continue, although its super-journal has been removed.
    CutRefused,
    /// A super-journal of which it is not known whether it was removed is taken to be there.
    DoubtForgotten,
    /// `PRAGMA synchronous` counts where SQLite refuses it.
    RefusedCounts,
    /// A journal mode is answered and does not read back.
    ModeNotKept,
    /// A write to a file that was renamed or deleted is acknowledged.
    MovedUnnoticed,
    /// A database that was copied from one with a WAL asks for a WAL.
    WalKept,
    /// The counter of changes stays while a lock is kept.
    CounterKept,
    /// A transaction that has met an error stays until a lock is lowered, which may be never.
    FailedKept,
    /// A prepared transaction is not rolled back before a lock is lowered.
    PreparedKept,
    /// The journal of a file that is yet to be rolled back does not count as one that names a
    /// super-journal.
    SuperJournalMissed,
    /// A preparation that a failing device may have or not needs no super-journal.
    PreparationForgotten,
    /// The transaction stays where the pager keeps its lock and forgets its cache.
    ForgottenKept,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::CommittedAtSync,
        Self::NotPrepared,
        Self::DecidedBlindly,
        Self::SuperJournalRemoved,
        Self::AbandonedCommitted,
        Self::CacheKept,
        Self::CutRefused,
        Self::DoubtForgotten,
        Self::RefusedCounts,
        Self::ModeNotKept,
        Self::MovedUnnoticed,
        Self::WalKept,
        Self::CounterKept,
        Self::FailedKept,
        Self::PreparedKept,
        Self::SuperJournalMissed,
        Self::PreparationForgotten,
        Self::ForgottenKept,
    ];
}

esker_pages::planting!(super::Bug, "testing");
