//! Retiring segments, and the records that pin them.
//!
//! A segment is obsolete when each keyspace with a record in it is flushed beyond that record or
//! dropped. Segments become obsolete in any order. One leaves in three steps: it is found
//! obsolete, the manifest commits its removal, its file becomes a spare.

use esker_device::Purpose;
use esker_format::ids::{KeyspaceId, SegmentId, Seq, StoreId};
use esker_format::manifest_edit::Edit;

use super::segment::{SPARES_KEPT, Segment, check_header, segment_name};
use super::{Log, replay};
use crate::error::Result;
use crate::fault;
use crate::manifest::Problem;
use crate::planted::{self, Bug};

/// Segments that are no longer needed once [`Retired::edits`] are committed.
#[derive(Clone, Debug, Default)]
#[must_use = "the files are reused only by Log::recycle"]
pub struct Retired {
    segments: Vec<SegmentId>,
    edits: Vec<Edit>,
}

/// The result of a check of the log: what was read, and the problems.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Operations in segments that are sound.
    pub operations: u64,
    /// Bytes of those segments up to the last record.
    pub bytes: u64,
    /// Everything that is wrong.
    pub problems: Vec<Problem>,
}

impl Retired {
    /// To be committed in the same manifest record as the index edit that made them obsolete.
    #[must_use]
    pub fn edits(&self) -> &[Edit] {
        &self.edits
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

impl Log {
    /// The segments that are not needed when each keyspace is flushed up to the number that
    /// `flushed` gives (`None`: it is dropped). The newest segment is never among them. Nothing has
    /// changed yet: commit the edits, then call [`Log::recycle`].
    pub fn retire(&self, flushed: &dyn Fn(KeyspaceId) -> Option<Seq>) -> Retired {
        let mut closed = self.closed.lock();
        let mut retired = Retired::default();
        for segment in closed.values_mut() {
            if !segment.is_obsolete(flushed) && !planted::is(Bug::LogTruncatedBeforeMerge) {
                continue;
            }
            let id = segment.reference.id;
            retired.segments.push(id);
            retired.edits.push(Edit::SegmentRemove { id });
            if planted::is(Bug::SegmentUnlinkedEarly) {
                let _planted = self.device.remove(segment.file.name());
            }
        }
        retired
    }

    /// Makes the files of retired segments spares, or removes them. Call this only after the edits
    /// have been committed.
    ///
    /// # Errors
    /// When a file cannot be removed. The log is not affected.
    pub fn recycle(&self, retired: Retired) -> Result<()> {
        if retired.is_empty() {
            return Ok(());
        }
        let mut result = self.faults.hit(fault::LOG_RECYCLE);
        for id in &retired.segments {
            let segment = self.closed.lock().remove(id);
            let segment = segment.and_then(|segment| self.unless_held(segment));
            result = result.and(segment.map_or(Ok(()), |segment| self.retire_file(&segment)));
        }
        result
    }

    /// Keeps the file of a segment that has left the manifest as a spare, or removes it when there
    /// are enough spares, or when its length is not that of an ordinary segment.
    pub(super) fn retire_file(&self, segment: &Segment) -> Result<()> {
        let mut spares = self.spares.lock();
        let ordinary = segment.reference.bytes == spares.segment_bytes;
        if ordinary && spares.files.len() < self.spares_max.max(1 + SPARES_KEPT) {
            spares.files.push(segment.reference.file);
            return Ok(());
        }
        self.device.remove(segment.file.name())?;
        spares.numbers.remove(&segment.reference.file);
        Ok(())
    }

    /// Whether files are kept for reuse in addition to the last one.
    #[must_use]
    pub fn has_spares(&self) -> bool {
        self.spares.lock().files.len() > SPARES_KEPT
    }

    /// Removes the files that are kept for reuse, except the last one. The next segments are new
    /// files, which take longer to come into use.
    ///
    /// # Errors
    /// When a file cannot be removed. The log is not affected.
    pub fn remove_spares(&self) -> Result<()> {
        let mut spares = self.spares.lock();
        while spares.files.len() > SPARES_KEPT
            && let Some(number) = spares.files.last().copied()
        {
            self.device.remove(&segment_name(number))?;
            spares.files.pop();
            spares.numbers.remove(&number);
        }
        Ok(())
    }

    /// Bytes that live segments use: what a limit on the log is compared with. The unused rest
    /// of the newest segment does not count, because flushing does not make it smaller.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        let current = self.queue.lock().current.as_ref().map_or(0, |segment| segment.end);
        let closed = self.closed.lock();
        closed.values().fold(current, |sum, segment| sum.saturating_add(segment.end))
    }

    /// Bytes that all segment files take on the device, spares included.
    #[must_use]
    pub fn space_bytes(&self) -> u64 {
        let current = self.queue.lock().current.as_ref().map_or(0, |s| s.reference.bytes);
        let closed: u64 = self.closed.lock().values().map(|s| s.reference.bytes).sum();
        let spares = self.spares.lock();
        let spare_bytes = spares.segment_bytes.saturating_mul(spares.files.len() as u64);
        current.saturating_add(closed).saturating_add(spare_bytes)
    }

    /// A keyspace that keeps the oldest segment which is not obsolete: flushing it lets the log
    /// become shorter. `None` when no flush would do so. `flushed` is as for [`Log::retire`].
    pub fn oldest_pin(&self, flushed: &dyn Fn(KeyspaceId) -> Option<Seq>) -> Option<KeyspaceId> {
        self.closed.lock().values_mut().find_map(|segment| segment.pin(flushed))
    }

    /// Reads all live segments again and checks header, checksums and numbers.
    ///
    /// Cost: reads the live log; appends and flushes continue meanwhile.
    #[must_use]
    pub fn verify(&self) -> Vec<Problem> {
        self.verify_counted().problems
    }

    /// [`verify`](Self::verify), with the amount that was read.
    #[must_use]
    pub fn verify_counted(&self) -> Verified {
        let mut segments: Vec<Segment> = self.closed.lock().values().cloned().collect();
        let (current, written, written_end) = {
            let queue = self.queue.lock();
            (queue.current.clone(), queue.written, queue.pending_at)
        };
        segments.extend(current.map(|segment| Segment { end: written_end, ..segment }));
        let mut verified = Verified::default();
        for segment in segments {
            let last_seq = segment.reference.end_seq.unwrap_or(written);
            match verify_segment(self.manifest.store(), &segment, last_seq) {
                Ok((operations, end)) => {
                    verified.operations += operations;
                    verified.bytes += end;
                }
                // The file of a segment that was freed meanwhile may have any contents.
                Err(error) if self.is_live(segment.reference.id) => {
                    verified.problems.push(Problem::of(segment.file.name(), &error));
                }
                Err(_) => {}
            }
        }
        verified
    }

    fn is_live(&self, id: SegmentId) -> bool {
        let queue = self.queue.lock();
        let is_current = queue.current.as_ref().is_some_and(|s| s.reference.id == id);
        is_current || self.closed.lock().contains_key(&id)
    }
}

/// The operations of a segment, and where its records end.
fn verify_segment(store: StoreId, segment: &Segment, last_seq: Seq) -> Result<(u64, u64)> {
    check_header(segment.file.as_ref(), store, &segment.reference, Purpose::Check)?;
    let name = segment.file.name();
    let mut operations = 0;
    let end = replay::read_all(segment, segment.end, last_seq, Purpose::Check, &mut |record| {
        let before = operations;
        record.for_each(name, &mut |_, _| {
            operations += 1;
            Ok(())
        })?;
        if planted::is(Bug::RecordsCounted) {
            operations = before + 1;
        }
        Ok(())
    })?;
    Ok((operations, end))
}
