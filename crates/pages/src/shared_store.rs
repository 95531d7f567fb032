//! A store that several processes have open: one writes, the others follow its log.
//!
//! The constructors here leave it to the caller who writes; `crate::store_file` opens a store at a
//! path whose processes take turns. What is missing is in `docs/design/processes.md`.

use std::sync::Arc;

use esker_device::DeviceFile;
use esker_device::shared::Shared;

use crate::error::Result;
use crate::log::joining;
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::store::PageStore;

impl PageStore {
    /// Opens the store in `file`, or creates one, as the process that writes it while others
    /// follow. All of them give the same `shared`, of 64 KiB, each through an opening of its own:
    /// the locks of one opening do not keep two stores apart.
    ///
    /// # Errors
    /// As [`PageStore::open`]; [`crate::Error::Locked`] while another process writes, or reads what
    /// one wrote that is gone; [`crate::Error::InvalidArgument`] with segment allocation.
    #[doc(hidden)]
    pub fn open_leader(
        file: Arc<dyn DeviceFile>,
        options: Options,
        shared: Arc<dyn Shared>,
    ) -> Result<Self> {
        Ok(Self::over(joining::open_leader(file, options, shared, None)?))
    }

    /// Opens the store in `file` to follow the process that writes it. Every operation that would
    /// change the store returns [`crate::Error::ReadOnly`].
    ///
    /// # Errors
    /// As [`PageStore::open_read_only`]; [`crate::Error::Locked`] when no process has written it in
    /// this way.
    #[doc(hidden)]
    pub fn open_follower(
        file: Arc<dyn DeviceFile>,
        options: Options,
        shared: Arc<dyn Shared>,
    ) -> Result<Self> {
        Ok(Self::over(joining::open_follower(file, options, shared, None)?))
    }

    /// Becomes the process that writes, through `file`, the same file opened for writing. `false`
    /// while another process writes, or while this one does not know yet which slots are free.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`]; [`crate::Error::Locked`] when the store must be opened anew;
    /// [`crate::Error::Poisoned`] after a log that did not fit to what was read before.
    #[doc(hidden)]
    pub fn try_lead(&self, file: Arc<dyn DeviceFile>) -> Result<bool> {
        self.engine().try_lead(file)
    }

    /// Stops to write, so that another process may. `false` while a transaction is open, or a
    /// checkpoint in progress. A sync where something is not durable.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`].
    #[doc(hidden)]
    pub fn step_down(&self) -> Result<bool> {
        self.engine().step_down()
    }

    /// Holds the newest version that any process has committed. No I/O without news.
    ///
    /// # Errors
    /// The device failed; [`crate::Error::Locked`] when the process that writes died while it said
    /// how far its log goes; [`crate::Error::Busy`] after many checkpoints while this began, or
    /// where a process died while it opened the store for writing;
    /// [`crate::Error::Corrupt`] for a log that does not fit to what was read before, and
    /// [`crate::Error::Poisoned`] from then on.
    #[doc(hidden)]
    pub fn begin_read(&self) -> Result<Snapshot> {
        self.engine().check_process()?;
        Snapshot::begin(self.engine())
    }
}

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;
