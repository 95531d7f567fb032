//! A store that is opened for reading, and may be written later.
//!
//! Opening for reading is recovery that stops before its first write: the log is applied in memory,
//! a prepared transaction is decided in memory, and the checkpoint that would make all of it
//! durable is not taken. The file is behind a gate ([`crate::media::gate`]), which refuses writes.
//!
//! Opening for writing later, in the same process, continues the same recovery. The gate is opened
//! and the checkpoint is taken; the versions and all snapshots belong to the same engine, so
//! readers continue and see later commits.
//!
//! This is correct only if no other process has written in the meantime. Every opening holds a lock
//! that keeps writers out, but changing a shared lock into an exclusive one is not atomic.
//! Therefore the first bytes of the file are compared: nothing in a store changes before an epoch
//! is begun, which changes these bytes. If they have changed, the state in memory describes a file
//! that no longer exists, and every read fails.

use std::sync::Arc;

use esker_device::DeviceFile;

use crate::engine::{Core, Engine, Gated};
use crate::error::{Error, Result};
use crate::log::creation::{check_new, find_in, put_zeros};
use crate::log::superblock::Found;
use crate::media::FileMedia;

impl Engine {
    /// Continues recovery where the store was opened for reading.
    pub(crate) fn make_writable(&self, file: Arc<dyn DeviceFile>) -> Result<()> {
        if self.member.is_some() {
            return self.check_poison();
        }
        // Others look whether the gate is open while they hold this.
        let mut core = self.core.lock();
        let shut = self.gated.as_ref().filter(|gated| !gated.gate.is_open());
        let Some(Gated { gate, found }) = shut else { return Ok(()) };
        self.check_unchanged()?;
        gate.open(file);
        core.is_for_many = false;
        let finished = self.finish_recovery(&mut core, *found);
        if finished.is_err() {
            gate.shut();
        }
        finished
    }

    /// Makes durable what recovery found.
    fn finish_recovery(&self, core: &mut Core, found: Found) -> Result<()> {
        if found == Found::Nothing {
            check_new(&*self.media, &self.options)?;
            put_zeros(&*self.media, self.segment_bytes)?;
        } else if core.log.bytes == 0 {
            return Ok(());
        }
        self.checkpoint_core(core)
    }

    /// Fails where the file is not the one any more that was opened to be read.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let Some(gated) = &self.gated else { return Ok(()) };
        let file = FileMedia::new(Arc::clone(gated.gate.file()), self.segment_bytes);
        match find_in(&file) {
            Ok(found) if found == gated.found => Ok(()),
            Ok(_) | Err(Error::Corrupt { .. } | Error::Foreign { .. } | Error::TooNew { .. }) => {
                Err(self.lose())
            }
            Err(error) => Err(error),
        }
    }

    /// Discards the state in memory: another process may have written.
    pub(crate) fn lose(&self) -> Error {
        if let Some(gated) = &self.gated {
            gated.gate.lose();
        }
        let how = "written by another process since it was opened here to be read: close it and \
                   open it again";
        Error::Locked { file: self.media.name().to_owned(), how }
    }
}
