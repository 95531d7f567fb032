//! Appending records to the log, and making them durable.

use esker_device::Purpose;

use crate::engine::{Core, Engine};
use crate::error::{Result, damaged};
use crate::log::record::Record;
use crate::planted::{self, Bug};

impl Engine {
    /// Makes sure that a record of this length can be appended.
    pub(crate) fn reserve_log(&self, core: &mut Core, record_bytes: u64) -> Result<()> {
        self.allocation.reserve_log(self, core, record_bytes)
    }

    /// Appends a record. An error poisons the store: the record may be there or not.
    pub(crate) fn append(&self, core: &mut Core, record: &[u8]) -> Result<()> {
        let mut log = core.log.clone();
        let space = &mut core.space;
        let writes = log.append(record, core.durable, || space.take_log());
        let writes =
            writes.map_err(|error| self.poisoned(damaged(self.media.name(), 0, &error)))?;
        for (offset, frame) in writes {
            self.allocation
                .write_frame(self, core, offset, &frame, log.unit)
                .map_err(|error| self.poisoned(error))?;
            self.counters.records.add(frame.len() as u64);
            core.unsynced_bytes += frame.len() as u64;
        }
        core.log = log;
        core.note_record(record, self.options.checkpoint_bytes / 2);
        Ok(())
    }

    /// Makes all that was written durable.
    pub(crate) fn sync_core(&self, core: &mut Core) -> Result<()> {
        self.media.flush(Purpose::Log).map_err(|error| self.poisoned(error))?;
        self.counters.syncs.add(1);
        core.durable = core.log.number - 1;
        core.unsynced_bytes = 0;
        Ok(())
    }

    /// Appends a record that changes no page, and makes it durable.
    pub(crate) fn note(&self, core: &mut Core, record: &Record) -> Result<()> {
        self.check_poison()?;
        self.own_log(core)?;
        let record = record.encode();
        self.reserve_log(core, record.len() as u64)?;
        self.append(core, &record)?;
        if !planted::is(Bug::DecisionNotSynced) {
            self.sync_core(core)?;
        }
        self.announce(core);
        Ok(())
    }

    /// Begins an epoch before the first record of this opening.
    pub(crate) fn own_log(&self, core: &mut Core) -> Result<()> {
        if core.is_log_ours { Ok(()) } else { self.checkpoint_core(core) }
    }
}
