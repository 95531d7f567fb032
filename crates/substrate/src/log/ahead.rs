//! Preparation of the switch to the next segment, by a thread that no writer waits for: it provides
//! a spare file, and writes most of the current segment to the device.
//!
//! Nothing here counts as durable. The leader still syncs the whole segment, through its own
//! handle; here the file is opened again, because the system reports a failed write once to each
//! handle, and a failure that only this thread had seen would be hidden from the leader.

use esker_device::{Caching, Open, Purpose};

use super::Log;
use super::segment::{SPARES_KEPT, Segment, segment_name};
use super::switch::file_bytes;
use crate::error::Result;
use crate::planted::{self, Bug};
use crate::sync::atomic::Ordering;

/// The least number of bytes appended between two calls: for fewer a sync costs more than it saves.
const STEP_BYTES_LEAST: u64 = 256 << 10;
/// The share of a segment between two calls.
const STEP_SHARE: u64 = 4;

/// The offset in a segment at which work ahead is due next, when its records have reached `end`.
pub(super) fn next_step(segment: &Segment) -> u64 {
    let step = (segment.reference.bytes / STEP_SHARE).max(STEP_BYTES_LEAST);
    segment.end.saturating_add(step)
}

impl Log {
    /// Whether [`Log::work_ahead`] should be called. Returns true once for each quarter of a
    /// segment, to the first caller.
    #[must_use]
    pub fn wants_work_ahead(&self) -> bool {
        self.ahead_is_due.load(Ordering::Relaxed)
            && self.ahead_is_due.swap(false, Ordering::Relaxed)
    }

    /// Makes a spare file in addition to the last one where there is none, and has the device write
    /// the part of the current segment that is in the page cache. May be called at any time from
    /// any thread; appends continue meanwhile.
    ///
    /// Cost: one sync; where there is no spare and syncs are many also the writing of a whole
    /// segment.
    ///
    /// # Errors
    /// [`crate::error::Error::Full`] without space for a spare, which changes nothing: the next
    /// switch will try. Every other failure poisons the store.
    pub fn work_ahead(&self) -> Result<()> {
        self.poison.check()?;
        let made = self.make_spares(1 + SPARES_KEPT);
        self.sync_ahead()?;
        made
    }

    /// Makes sure that a spare is left when the next segment, in which a frame of `frame_bytes`
    /// fits, is in use: the space for it is taken before anything else is.
    pub(super) fn keep_a_spare(&self, frame_bytes: u64) -> Result<()> {
        if planted::is(Bug::LastSegmentTaken) {
            return Ok(());
        }
        let segment_bytes = self.spares.lock().segment_bytes;
        let is_long = file_bytes(segment_bytes, frame_bytes)? > segment_bytes;
        self.make_spares(if is_long { SPARES_KEPT } else { 1 + SPARES_KEPT })
    }

    fn make_spares(&self, count: usize) -> Result<()> {
        loop {
            let (number, bytes) = {
                let mut spares = self.spares.lock();
                if spares.files.len() >= count {
                    return Ok(());
                }
                spares.remove_strays(self.device.as_ref());
                (spares.new_number(), spares.segment_bytes)
            };
            let made = self.write_spare(number, bytes);
            self.spares.lock().put_back(number, made.is_ok());
            made.map_err(|error| self.not_begun(error))?;
        }
    }

    /// A file whose contents, length and name are durable.
    fn write_spare(&self, number: u32, bytes: u64) -> Result<()> {
        let file = self.create(number, bytes)?;
        file.sync(Purpose::Log)?;
        Ok(self.device.sync_dir()?)
    }

    fn sync_ahead(&self) -> Result<()> {
        let current = self.queue.lock().current.as_ref().map(|segment| segment.reference);
        let Some(current) = current.filter(|current| current.bytes > STEP_BYTES_LEAST) else {
            return Ok(());
        };
        // It may have been freed since; there is nothing to prepare then.
        let name = segment_name(current.file);
        let Ok(file) = self.device.open(&name, Open::Existing, Caching::Buffered) else {
            return Ok(());
        };
        self.poison.on_error(file.sync(Purpose::Log).map_err(Into::into))
    }
}
