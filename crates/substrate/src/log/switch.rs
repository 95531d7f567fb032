//! Taking the next segment into use.
//!
//! Only the newest segment is open, and it is named before it is written: sync the old segment;
//! make the next one's file and header durable, and its name if it is new; commit both facts; only
//! then append to it. Up to the commit nothing has changed, so when there is no space the store
//! simply continues.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use esker_device::{Caching, DeviceFile, Open, Purpose};
use esker_format::ids::{Generation, KeyspaceId, SegmentId, Seq};
use esker_format::log_record::SegmentHeader;
use esker_format::manifest_edit::{Edit, SEGMENT_BYTES_MAX, SegmentRef};
use esker_format::ptr::UNIT_BYTES;

use super::Log;
use super::group_commit::Queue;
use super::segment::{RECORDS_OFFSET, Segment, Taken, are_zeros_worth, seal, segment_name};
use crate::error::{Error, Result};
use crate::fault;
use crate::manifest::{full_or, write_zeros};
use crate::planted::{self, Bug};

/// The length of the file of a segment that has room for a frame of `frame_bytes`.
pub(super) fn file_bytes(segment_bytes: u64, frame_bytes: u64) -> Result<u64> {
    let needed = RECORDS_OFFSET.saturating_add(frame_bytes).checked_next_multiple_of(UNIT_BYTES);
    needed
        .map(|needed| needed.max(segment_bytes))
        .filter(|bytes| *bytes <= SEGMENT_BYTES_MAX)
        .ok_or_else(|| Error::Invalid { what: "the batch is too long for the log".to_string() })
}

/// The edit for a segment whose last number is `last_seq`: one without a record is removed.
fn closing_edit(segment: &SegmentRef, last_seq: Seq) -> Edit {
    if segment.first_seq <= last_seq {
        Edit::SegmentClose { id: segment.id, end_seq: last_seq }
    } else {
        Edit::SegmentRemove { id: segment.id }
    }
}

impl Log {
    /// As the leader: closes the current segment and takes the next one into use, in which a
    /// frame of `frame_bytes` fits.
    pub(super) fn next_segment(
        &self,
        queue: &mut MutexGuard<'_, Queue>,
        frame_bytes: u64,
    ) -> Result<()> {
        self.flush(queue, true)?;
        let old = queue.current.as_ref().map(|segment| segment.reference);
        let (first_seq, durable) = (queue.last.next(), queue.durable);
        let syncs = mem::take(&mut queue.syncs);
        if let Some(old) = old {
            let many = are_zeros_worth(old.bytes, syncs);
            self.syncs_are_many.store(many, Ordering::Relaxed);
        }
        let next = MutexGuard::unlocked(queue, || {
            self.begin_segment(old, first_seq, durable, frame_bytes)
        })?;
        queue.pending_at = RECORDS_OFFSET;
        queue.ahead_at = RECORDS_OFFSET;
        let Some(mut old) = queue.current.replace(next) else { return Ok(()) };
        if old.reference.first_seq <= durable {
            old.reference.end_seq = Some(durable);
            self.closed.lock().insert(old.reference.id, old);
        } else {
            // It has left the manifest; a file that cannot be removed does no harm.
            let _stays_behind = self.retire_file(&old);
        }
        Ok(())
    }

    /// Prepares a file and commits it as the next segment. Until the commit nothing has changed.
    fn begin_segment(
        &self,
        old: Option<SegmentRef>,
        first_seq: Seq,
        durable: Seq,
        frame_bytes: u64,
    ) -> Result<Segment> {
        let id = SegmentId(old.map_or(1, |old| old.id.0.saturating_add(1)));
        let bytes = file_bytes(self.spares.lock().segment_bytes, frame_bytes)?;
        let taken = self.take_file(bytes).map_err(|error| self.not_begun(error))?;
        let reference = SegmentRef { id, file: taken.number, first_seq, bytes, end_seq: None };
        let begun = self.write_header(&taken, &reference).map_err(|error| self.not_begun(error));
        let committed = begun.and_then(|()| {
            let mut edits = Vec::new();
            edits.extend(old.map(|old| closing_edit(&old, durable)));
            edits.push(Edit::SegmentAdd(reference));
            self.manifest.commit(&edits, durable, Generation(0))
        });
        if let Err(error) = committed {
            self.spares.lock().put_back(taken.number, !taken.is_new);
            return Err(error);
        }
        Ok(Segment {
            reference,
            file: taken.file,
            seal: seal(self.manifest.store(), id),
            end: RECORDS_OFFSET,
            highest: BTreeMap::new(),
            replayed: true,
            last_record: None,
            last_pin: KeyspaceId(0),
        })
    }

    /// Takes a spare file or makes a new one, whose contents, length and name the caller makes
    /// durable.
    fn take_file(&self, bytes: u64) -> Result<Taken> {
        let mut spares = self.spares.lock();
        spares.remove_strays(self.device.as_ref());
        if bytes == spares.segment_bytes
            && let Some(number) = spares.files.first().copied()
        {
            let name = segment_name(number);
            let file = self.device.open(&name, Open::Existing, Caching::Buffered)?;
            spares.files.remove(0);
            return Ok(Taken { number, file, is_new: false });
        }
        let number = spares.new_number();
        drop(spares);
        match self.create(number, bytes) {
            Ok(file) => Ok(Taken { number, file, is_new: true }),
            Err(error) => {
                self.spares.lock().put_back(number, false);
                Err(error)
            }
        }
    }

    /// Makes a segment's file, which has all its space then, and writes it through where syncs are
    /// many. What has come of one that fails is a stray.
    pub(super) fn create(&self, number: u32, bytes: u64) -> Result<Arc<dyn DeviceFile>> {
        self.faults.hit(fault::LOG_CREATE)?;
        let name = segment_name(number);
        let file = self.device.open(&name, Open::CreateNew, Caching::Buffered)?;
        let made = if self.syncs_are_many.load(Ordering::Relaxed) {
            write_zeros(file.as_ref(), bytes, Purpose::Log)
        } else {
            file.preallocate(bytes, Purpose::Log).map_err(Error::from)
        };
        if let Err(error) = made {
            // At once, because the failure may be for lack of space; else it is tried again later.
            let _stays_behind = self.device.remove(&name);
            return Err(error);
        }
        Ok(file)
    }

    fn write_header(&self, taken: &Taken, reference: &SegmentRef) -> Result<()> {
        let (store, id, first_seq) = (self.manifest.store(), reference.id, reference.first_seq);
        self.faults.hit(fault::LOG_SWITCH)?;
        let header = SegmentHeader { store, id, first_seq }.encode();
        taken.file.write_at(0, &header, Purpose::Log)?;
        if !planted::is(Bug::LengthNotSynced) {
            taken.file.sync(Purpose::Log)?;
        }
        if taken.is_new && !planted::is(Bug::NoDirectorySync) {
            self.device.sync_dir()?;
        }
        Ok(())
    }

    /// Without space nothing has changed, and the store can continue; any other failure poisons it.
    pub(super) fn not_begun(&self, error: Error) -> Error {
        match full_or(error, "the log") {
            full @ Error::Full { .. } => full,
            error => self.poison.set(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_batch_gets_a_long_segment() {
        assert_eq!(file_bytes(16384, 40).unwrap(), 16384);
        assert_eq!(file_bytes(16384, 12288).unwrap(), 16384);
        assert_eq!(file_bytes(16384, 12289).unwrap(), 20480);
        assert!(file_bytes(16384, (1 << 30) + 32).is_ok());
        assert!(file_bytes(16384, u64::MAX).is_err());
    }
}
