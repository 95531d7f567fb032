//! A store that several processes have open: one writes, the others follow its log.
//!
//! This is not offered to users yet: how processes tell each other where the log ends and which
//! versions they read is the caller's, and so is who writes.

use std::sync::Arc;

use esker_device::DeviceFile;

use crate::error::Result;
use crate::log::opening;
use crate::log::shared::LogEnd;
use crate::options::Options;
use crate::store::PageStore;

impl PageStore {
    /// Opens the store in `file`, or creates one, as the process that writes it while others
    /// follow.
    ///
    /// # Errors
    /// As [`PageStore::open`]; [`crate::Error::InvalidArgument`] with segment allocation.
    #[doc(hidden)]
    pub fn open_leader(file: Arc<dyn DeviceFile>, options: Options) -> Result<Self> {
        Ok(Self::over(opening::open_shared(file, options)?))
    }

    /// Opens the store in `file` to follow the log up to `end`; `None` when it has no such log any
    /// more. Every operation that would change the store returns [`crate::Error::ReadOnly`].
    ///
    /// # Errors
    /// As [`PageStore::open_read_only`]; [`crate::Error::InvalidArgument`] with segment allocation.
    #[doc(hidden)]
    pub fn open_follower(
        file: Arc<dyn DeviceFile>,
        options: Options,
        end: LogEnd,
    ) -> Result<Option<Self>> {
        Ok(opening::open_follower(file, options, end)?.map(Self::over))
    }

    /// The end of the log of a store that this process writes.
    #[doc(hidden)]
    #[must_use]
    pub fn log_end(&self) -> LogEnd {
        let core = self.engine().core.lock();
        LogEnd { epoch: core.log.epoch, number: core.log.number }
    }

    /// Applies what the writing process has committed up to `end`. Returns `false` when the file
    /// has no such log any more.
    ///
    /// # Errors
    /// The device failed; [`crate::Error::Corrupt`] when the log does not follow from what was read
    /// before: every read fails from then on.
    #[doc(hidden)]
    pub fn catch_up(&self, end: LogEnd) -> Result<bool> {
        self.engine().catch_up(end)
    }
}
