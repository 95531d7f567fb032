//! Reading on in the log of a store that another process writes.
//!
//! The records of the live segments are read in order, from where the last call has ended up to
//! the first that is not valid: the writer has passed on what is before it. What is only in the
//! writer's buffer is not seen. Each record is sealed with its segment, so that a file that the
//! writer uses again meanwhile ends the reading and is never taken for the segment.
//!
//! Invariant: between two calls `queue.last` is the last number that was passed on, and the current
//! segment ends behind it.
//! Invariant: no record that a keyspace may need is left out. Where the numbers of the live
//! segments have a gap behind the last one read, segments were retired that were not read to their
//! end: then nothing is passed on, and the caller begins anew with what the manifest has now.

use esker_device::Purpose;
use esker_format::ids::Seq;
use esker_format::manifest_edit::SegmentRef;

use super::replay::Records;
use super::segment::{RECORDS_OFFSET, Segment, corrupt, open_live};
use super::{Apply, Log};
use crate::error::Result;
use crate::manifest::ManifestState;
use crate::planted::{self, Bug};

/// Operations that a call reads of the current segment, if there are as many.
const MORE: u64 = 1 << 14;

/// How far a call of [`Log::follow`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// To `until`, or to where the log ends.
    Far,
    /// Nowhere: segments are gone that were not read to their end, or the log is not the one that
    /// was read. Begin anew: [`Log::rewind`].
    Gap,
}

impl Log {
    /// The next call of [`Log::follow`] begins with the oldest live segment.
    pub fn rewind(&self) {
        let mut queue = self.queue.lock();
        queue.current = None;
        (queue.last, queue.written, queue.durable) = (Seq(0), Seq(0), Seq(0));
        self.closed.lock().clear();
    }

    /// Passes on what another process has written since the last call, in order and in whole
    /// batches, as far as `state` names it. Ends at the first error of `apply`, which has
    /// had the operations of a batch in part then. Where more than `until` is there, it may end
    /// behind that: the other process may write as fast as this one reads.
    ///
    /// Cost: one read of at most 64 KiB where nothing is new, else one for each 64 KiB; the opening
    /// of each new segment.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) when a record is missing that `state` knows to be
    /// there. It may also be that the writer has moved on: then the manifest has too.
    pub fn follow(
        &self,
        state: &ManifestState,
        until: Seq,
        apply: &mut Apply<'_>,
    ) -> Result<Followed> {
        let until = until.max(state.log_must_reach());
        let (mut current, mut last) = {
            let queue = self.queue.lock();
            (queue.current.clone(), queue.last)
        };
        let is_first = current.is_none() && last == Seq(0);
        for reference in state.segments.values() {
            if reference.end_seq.is_some_and(|end| end <= last) {
                self.close(current.as_ref(), *reference);
                continue;
            }
            let begun = current.take().filter(|segment| segment.reference.id == reference.id);
            let mut segment = match begun {
                Some(segment) => Segment { reference: *reference, ..segment },
                None => {
                    if !is_first && reference.first_seq != last.next() {
                        return Ok(Followed::Gap);
                    }
                    last = last.max(Seq(reference.first_seq.0.saturating_sub(1)));
                    let segment =
                        open_live(self.device.as_ref(), self.manifest.store(), *reference)?;
                    Segment { end: RECORDS_OFFSET, ..segment }
                }
            };
            if !is_unchanged(&segment, last)? {
                return Ok(Followed::Gap);
            }
            let read = self.read_on(&mut segment, (&mut last, until), apply);
            current = Some(segment.clone());
            self.note(segment, last);
            read?;
            must_reach(current.as_ref(), reference, last)?;
        }
        let reach = state.log_must_reach();
        if state.segments.is_empty() {
            last = last.max(reach);
        }
        let mut queue = self.queue.lock();
        (queue.last, queue.written) = (last, last);
        queue.durable = state.durable_seq.min(last);
        drop(queue);
        self.closed.lock().retain(|id, _| state.segments.contains_key(id));
        if last < reach {
            let name = current.map_or_else(|| "log".to_string(), |at| at.file.name().to_string());
            let what = format!("the log was durable up to {reach}, but is readable up to {last}");
            return Err(corrupt(&name, 0, &what));
        }
        Ok(Followed::Far)
    }

    /// Passes the records of a segment behind its `end` on, and moves `end` and `last`: all of a
    /// complete segment, of the current one those up to `until` and some more.
    fn read_on(
        &self,
        segment: &mut Segment,
        (last, until): (&mut Seq, Seq),
        apply: &mut Apply<'_>,
    ) -> Result<()> {
        let from = segment.clone();
        let enough = Seq(last.0.saturating_add(MORE)).max(until);
        let mut records = Records::new(&from, from.reference.bytes, Purpose::Recovery);
        records.begin_at(from.end, last.next());
        if planted::is(Bug::FollowerSkipsSegment) && from.reference.end_seq.is_some() {
            *last = from.reference.end_seq.unwrap_or_default();
            return Ok(());
        }
        let end = from.reference.end_seq.unwrap_or(enough);
        while *last < end {
            let Some(record) = records.next()? else { break };
            record.for_each(from.file.name(), &mut |place, op| {
                segment.note(op.keyspace, place.seq);
                apply(place, op.keyspace, op.action)
            })?;
            let (at, record_last) = (record.at, record.last_seq());
            segment.last_record = Some((at, record.header));
            *last = record_last;
            segment.end = records.offset();
        }
        Ok(())
    }

    /// A segment that was read to its end is complete, and may be the current one no more.
    fn close(&self, current: Option<&Segment>, reference: SegmentRef) {
        if let Some(segment) = current.filter(|segment| segment.reference.id == reference.id) {
            let segment = Segment { reference, ..segment.clone() };
            self.closed.lock().insert(reference.id, segment);
        }
    }

    /// Keeps how far a segment was read.
    fn note(&self, segment: Segment, last: Seq) {
        let mut queue = self.queue.lock();
        (queue.last, queue.written) = (last, last);
        match segment.reference.end_seq {
            Some(end) if end <= last => {
                self.closed.lock().insert(segment.reference.id, segment.clone());
            }
            _ => {}
        }
        queue.pending_at = segment.end;
        queue.current = Some(segment);
    }
}

/// Whether the record that was read last is still where it was: a writer that was opened after a
/// power cut may have found less, and written something else there.
fn is_unchanged(segment: &Segment, last: Seq) -> Result<bool> {
    let Some((at, header)) = &segment.last_record else { return Ok(true) };
    let mut records = Records::new(segment, segment.reference.bytes, Purpose::Recovery);
    records.begin_at(*at, Seq(header.number));
    let same = records.next()?.is_some_and(|record| record.header == *header);
    Ok(same && records.next_seq() == last.next())
}

/// A segment that is complete must have been read to its end.
fn must_reach(segment: Option<&Segment>, reference: &SegmentRef, last: Seq) -> Result<()> {
    match (segment, reference.end_seq) {
        (Some(segment), Some(end)) if last < end => Err(corrupt(
            segment.file.name(),
            segment.end,
            &format!("the log record of operation {} is damaged; this segment ends at {end}", {
                last.next()
            }),
        )),
        _ => Ok(()),
    }
}
