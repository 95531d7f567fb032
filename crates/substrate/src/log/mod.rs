//! The write-ahead log of a store.
//!
//! Reading order: `segment` (files), `beneath` (what records refer to), `replay` (where the log
//! ends and what is in it), `group_commit` (pending batches, writing, syncing), `switch` (taking
//! the next segment into use), `ahead` (what is done before that), `retire` (giving old ones up),
//! `hold` and `passing` (keeping them for a copy, and checking that), `follow` (reading on behind a
//! writer), then this module: opening, replaying, appending.
//!
//! Batches go to the newest segment, one frame each. When one does not fit, the segment is synced,
//! a spare or new file becomes the next segment, and the manifest records both facts. Segments that
//! no keyspace needs are freed in any order: the manifest holds the live list.
//!
//! Thread safety: everything may be called from any thread. A caller that needs the numbers in the
//! order of another sequence calls [`Log::append`] under its own lock.
//! Invariant: numbers are consecutive within a segment and over consecutive segments.
//! Invariant (one open segment): all segments but the newest are durable as a whole, and the
//! manifest knows their last numbers. So only the newest has a tail.
//! Invariant (named before written): nothing is written to a segment before the manifest durably
//! names it, and its file is not reused before the manifest durably does not.
//! Invariant: a record's mark is durable before the record is written.
//! Invariant: what a record refers to is written before the record is appended, and durable before
//! the record counts as durable.

mod ahead;
mod beneath;
mod follow;
mod group_commit;
mod hold;
mod passing;
mod replay;
mod retire;
mod segment;
mod switch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard};
use esker_device::{Device, Purpose};
use esker_format::action::WriteOp;
use esker_format::ids::{KeyspaceId, SegmentId, Seq};
use esker_format::log_record::{EncodedBatch, LogOp};
use esker_format::ptr::UNIT_BYTES;

use crate::blocks::Claim;
use crate::error::{Error, Result};
use crate::fault::FaultPoints;
use crate::followers::Followers;
use crate::manifest::Manifest;
use crate::planted::{self, Bug};
use crate::poison::Poison;
use group_commit::{PENDING_BYTES_MAX, Queue, TailRepair};
use segment::{Segment, Spares, open_live};

pub use beneath::{Beneath, Nothing};
pub use follow::Followed;
pub use hold::SegmentPart;
pub use passing::PartCheck;
pub use retire::{Retired, Verified};
pub use segment::segment_name;
pub(crate) use segment::segment_number;

/// Options of the layout of the log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Length of a segment in bytes, rounded up to 4 KiB and kept between 16 KiB and 1 GiB.
    /// Default 4 MiB. A longer batch gets a segment of its own length.
    pub segment_bytes: u64,
    /// The number of files of retired segments that are kept for reuse. Default 2.
    pub spares_max: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 4 << 20, spares_max: 2 }
    }
}

/// A place in the log to wait for: everything up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The last number of the batch.
    pub last_seq: Seq,
}

/// The place of an operation in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub seq: Seq,
    /// The number of the last operation of its batch: what a batch does becomes visible, and is
    /// frozen with a memtable, whole or not at all.
    pub last: Seq,
}

impl Place {
    /// Whether it is the last one of its batch.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.seq == self.last
    }
}

/// Takes one operation: its place, its keyspace, and the operation itself.
pub type Apply<'a> = dyn FnMut(Place, KeyspaceId, WriteOp<'_>) -> Result<()> + 'a;

/// The log of an open store.
#[derive(Debug)]
pub struct Log {
    device: Arc<dyn Device>,
    manifest: Arc<Manifest>,
    beneath: Arc<dyn Beneath>,
    poison: Arc<Poison>,
    faults: Arc<FaultPoints>,
    spares_max: usize,
    /// The followers of the store, where there can be any.
    followers: OnceLock<Arc<Followers>>,
    /// Held while appending; locked before everything else.
    appending: Mutex<()>,
    /// Locked before `closed` and `spares` where several are needed.
    queue: Mutex<Queue>,
    /// Notified when something in `queue` has changed that a thread may wait for.
    changed: Condvar,
    /// Appends have reached the point at which work ahead is due.
    ahead_is_due: AtomicBool,
    /// New files are to be written through: the current segment or the one before was synced
    /// often, or nothing is known yet.
    syncs_are_many: AtomicBool,
    closed: Mutex<BTreeMap<SegmentId, Segment>>,
    /// Locked before `spares`.
    held: Mutex<hold::Held>,
    spares: Mutex<Spares>,
}

impl Log {
    /// Finds the end of the log and writes nothing. A new store's log is opened in the same way
    /// and gets its first segment with the first append.
    ///
    /// Cost: one read for each live segment, and all of the newest one with what its records refer
    /// to that may not be durable.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when operations that were durable are missing from the newest segment,
    /// or a segment is missing.
    pub fn open(
        device: &Arc<dyn Device>,
        manifest: &Arc<Manifest>,
        beneath: Arc<dyn Beneath>,
        options: LogOptions,
        poison: &Arc<Poison>,
        faults: &Arc<FaultPoints>,
    ) -> Result<Self> {
        let state = manifest.state();
        let must_reach = state.log_must_reach();
        let mut queue = Queue {
            last: must_reach,
            written: must_reach,
            durable: must_reach,
            tail_repair: Some(TailRepair { doubtful: 0..0, stale: 0..0 }),
            ..Queue::default()
        };
        let mut closed = BTreeMap::new();
        for reference in state.segments.values() {
            let mut segment = open_live(device.as_ref(), manifest.store(), *reference)?;
            if reference.end_seq.is_some() {
                closed.insert(reference.id, segment);
                continue;
            }
            // The space that a dropped keyspace referred to may have been reused.
            let has = |op: &LogOp<'_>| match state.keyspaces.contains_key(&op.keyspace) {
                true => beneath.has(&op.action),
                false => Ok(true),
            };
            let tail = replay::find_tail(&segment, must_reach, &has)?;
            segment.end = tail.end;
            queue.current = Some(segment);
            queue.pending_at = tail.end;
            (queue.last, queue.written) = (tail.last_seq, tail.last_seq);
            queue.durable = tail.durable_seq;
            queue.tail_repair = Some(TailRepair { doubtful: tail.doubtful, stale: tail.stale });
        }
        if planted::is(Bug::SequenceReusedAfterRecovery) {
            queue.last = Seq(queue.last.0.saturating_sub(1));
        }
        let names = device.list()?;
        let numbers: BTreeSet<_> = names.iter().filter_map(|name| segment_number(name)).collect();
        let strays =
            numbers.iter().copied().filter(|file| !state.has_segment_file(*file)).collect();
        let segment_bytes =
            options.segment_bytes.clamp(16 << 10, 1 << 30).next_multiple_of(UNIT_BYTES);
        let spares = Spares { files: Vec::new(), strays, numbers, segment_bytes };
        let log = Self::following(device, manifest, beneath, poison, faults);
        Ok(Self {
            spares_max: options.spares_max,
            queue: Mutex::new(queue),
            closed: Mutex::new(closed),
            spares: Mutex::new(spares),
            ..log
        })
    }

    /// The log of a store that another process writes, of which nothing has been read yet: see
    /// [`Log::follow`]. No I/O.
    #[must_use]
    pub fn following(
        device: &Arc<dyn Device>,
        manifest: &Arc<Manifest>,
        beneath: Arc<dyn Beneath>,
        poison: &Arc<Poison>,
        faults: &Arc<FaultPoints>,
    ) -> Self {
        Self {
            device: Arc::clone(device),
            manifest: Arc::clone(manifest),
            beneath,
            poison: Arc::clone(poison),
            faults: Arc::clone(faults),
            spares_max: 0,
            followers: OnceLock::new(),
            appending: Mutex::new(()),
            queue: Mutex::default(),
            changed: Condvar::new(),
            ahead_is_due: AtomicBool::new(false),
            syncs_are_many: AtomicBool::new(true),
            closed: Mutex::default(),
            held: Mutex::default(),
            spares: Mutex::default(),
        }
    }

    /// From now on followers are told how far the log has been passed on.
    pub fn tell(&self, followers: &Arc<Followers>) {
        let _once = self.followers.set(Arc::clone(followers));
    }

    /// Passes every operation in the log on, in order, those that are flushed long since too. To
    /// be called once, before the first append. `apply` may use the log and the manifest; segments
    /// that are not replayed to their end are not retired meanwhile.
    ///
    /// Cost: reads every live segment once, with one window or the largest batch in memory.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged record, and what `apply` fails with.
    pub fn replay(&self, apply: &mut Apply<'_>) -> Result<()> {
        let ids: Vec<_> = self.closed.lock().keys().copied().collect();
        for id in ids {
            let Some(segment) = self.closed.lock().get(&id).cloned() else { continue };
            let last_seq = segment.reference.end_seq.unwrap_or_default();
            let replayed = replay_segment(segment, last_seq, apply)?;
            if let Some(segment) = self.closed.lock().get_mut(&id) {
                *segment = replayed;
            }
        }
        let (current, last_seq) = {
            let queue = self.queue.lock();
            (queue.current.clone(), queue.written)
        };
        let Some(current) = current else { return Ok(()) };
        let replayed = replay_segment(current, last_seq, apply)?;
        if let Some(current) = &mut self.queue.lock().current {
            for (keyspace, highest) in replayed.highest {
                current.note(keyspace, highest);
            }
            current.replayed = true;
        }
        Ok(())
    }

    /// Passes on what [`Log::replay`] will, and changes nothing.
    ///
    /// Cost: as that.
    ///
    /// # Errors
    /// Those of [`Log::replay`].
    pub fn scan(&self, visit: &mut Apply<'_>) -> Result<()> {
        let closed: Vec<_> = self.closed.lock().values().cloned().collect();
        for segment in closed {
            let last_seq = segment.reference.end_seq.unwrap_or_default();
            replay_segment(segment, last_seq, visit)?;
        }
        let (current, last_seq) = {
            let queue = self.queue.lock();
            (queue.current.clone(), queue.written)
        };
        if let Some(current) = current {
            replay_segment(current, last_seq, visit)?;
        }
        Ok(())
    }

    /// Makes the log ready to be appended to, which otherwise the first append does: what
    /// recovery found is made durable, and a new store gets its first segment.
    ///
    /// # Errors
    /// Those of [`Log::append`].
    pub fn prepare(&self) -> Result<()> {
        let _one_at_a_time = self.appending.lock();
        let mut queue = self.queue.lock();
        self.begin_lead(&mut queue)?;
        let result = if queue.current.is_none() {
            self.next_segment(&mut queue, 0)
        } else if queue.tail_repair.is_some() {
            self.flush(&mut queue, true)
        } else {
            Ok(())
        };
        self.end_lead(&mut queue);
        result
    }

    /// Assigns the batch its numbers and queues it. It is neither written nor durable before
    /// [`Log::wait_written`] or [`Log::wait_synced`] returns. Returns the number of its first
    /// operation; the others follow.
    ///
    /// Cost: none; but when the segment is full, three syncs and a manifest commit, and where no
    /// spare is left and syncs are many also the writing of a whole segment.
    ///
    /// # Errors
    /// On any error the batch has no numbers and never will be in the log. [`Error::Full`] when
    /// there is no space for another segment: the store continues, and recycling frees space. The
    /// last segment is for [`Claim::Deletes`]. Every other failure poisons the store.
    pub fn append(&self, batch: &EncodedBatch, claim: Claim) -> Result<(Seq, Ticket)> {
        let _one_at_a_time = self.appending.lock();
        let mut queue = self.queue.lock();
        let frame_bytes = batch.frame_bytes();
        if !fits(&queue, frame_bytes) || queue.pending.len() >= PENDING_BYTES_MAX {
            self.begin_lead(&mut queue)?;
            let made_room = self.make_room(&mut queue, frame_bytes, claim);
            self.end_lead(&mut queue);
            made_room?;
        }
        self.poison.check()?;
        let (first, durable) = (queue.last.next(), queue.durable);
        let last_seq = first.0.checked_add(u64::from(batch.ops()) - 1).map(Seq);
        let last_seq = last_seq.filter(|last| *last < Seq::MAX).ok_or_else(|| Error::Invalid {
            what: "the sequence numbers are used up".to_string(),
        })?;
        let Queue { current, pending, last, ahead_at, .. } = &mut *queue;
        let Some(segment) = current else {
            return Err(Error::Invalid { what: "the log has no segment".to_string() });
        };
        batch.write_frame(pending, segment.seal, first, durable);
        segment.end += frame_bytes;
        for op in batch.last_ops() {
            segment.note(op.keyspace, Seq(first.0.saturating_add(op.index.into())));
        }
        if segment.end >= *ahead_at {
            *ahead_at = ahead::next_step(segment);
            self.ahead_is_due.store(true, Ordering::Relaxed);
        }
        *last = last_seq;
        Ok((first, Ticket { last_seq }))
    }

    fn make_room(
        &self,
        queue: &mut MutexGuard<'_, Queue>,
        frame_bytes: u64,
        claim: Claim,
    ) -> Result<()> {
        if fits(queue, frame_bytes) {
            return self.flush(queue, false);
        }
        // A log of one segment has no deletes before it that could need another.
        if claim == Claim::Values && queue.current.is_some() {
            self.keep_a_spare(frame_bytes)?;
        }
        self.next_segment(queue, frame_bytes)
    }

    /// Makes everything up to `seq` durable, as far as it was appended.
    ///
    /// Cost: at most one write and one sync; nothing when it is durable.
    ///
    /// # Errors
    /// When the store is poisoned.
    pub fn sync_to(&self, seq: Seq) -> Result<()> {
        let last_seq = self.last_seq().min(seq);
        self.wait_synced(Ticket { last_seq })
    }

    /// The number up to which the log is known to be durable.
    #[must_use]
    pub fn durable_seq(&self) -> Seq {
        self.queue.lock().durable
    }

    /// The last number handed out; after opening, the last one in the log.
    #[must_use]
    pub fn last_seq(&self) -> Seq {
        self.queue.lock().last
    }
}

fn replay_segment(mut segment: Segment, last_seq: Seq, apply: &mut Apply<'_>) -> Result<Segment> {
    let mut highest = BTreeMap::new();
    let mut visit = |place: Place, op: LogOp<'_>| {
        highest.insert(op.keyspace, place.seq);
        apply(place, op.keyspace, op.action)
    };
    let name = segment.file.name();
    segment.end =
        replay::read_all(&segment, segment.end, last_seq, Purpose::Recovery, &mut |record| {
            record.for_each(name, &mut visit)
        })?;
    segment.highest = highest;
    segment.replayed = true;
    Ok(segment)
}

/// Whether a frame of `frame_bytes` fits the current segment.
fn fits(queue: &Queue, frame_bytes: u64) -> bool {
    queue
        .current
        .as_ref()
        .is_some_and(|segment| segment.reference.bytes.saturating_sub(segment.end) >= frame_bytes)
}

#[cfg(test)]
mod tests;
