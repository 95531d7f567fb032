//! Catching up, and how far behind a follower is.

use crate::db::Db;
use crate::error::Result;
use crate::follow;
use crate::follower::Lag;

impl Db {
    /// Catches up with the process that has the store open for writing: everything that it had
    /// passed on to the operating system before is visible afterwards. Returns the newest sequence
    /// number that reads see then. Of a store that no other process writes, it does nothing.
    ///
    /// Costs some ten small reads where nothing is new; else in proportion to what is new: the
    /// operations are applied in memory, and the keyspaces that the writer has flushed or compacted
    /// are opened again.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) when what the writer has not flushed yet does not fit in
    /// the [`memory_budget`](crate::DbBuilder::memory_budget);
    /// [`Damaged`](crate::Error::Damaged), [`Io`](crate::Error::Io),
    /// [`TooNew`](crate::Error::TooNew), [`Closed`](crate::Error::Closed). Reads see what they saw
    /// before, then.
    pub fn refresh(&self) -> Result<u64> {
        let _open = self.shared.enter()?;
        follow::refresh(&self.shared)?;
        Ok(self.shared.snapshots().visible().0)
    }

    /// How far this process is behind the one that writes the store; `None` for a store that is not
    /// followed. No I/O.
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed).
    pub fn lag(&self) -> Result<Option<Lag>> {
        let _open = self.shared.enter()?;
        Ok(follow::lag(&self.shared))
    }
}
