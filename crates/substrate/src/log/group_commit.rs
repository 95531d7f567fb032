//! Group commit: one write, and one sync, for all waiting threads.
//!
//! Appending copies a batch into the pending buffer. A waiting thread that finds no other at the
//! device becomes the leader: it takes the whole buffer, releases the lock, writes the buffer,
//! syncs if it waits for a sync, and wakes the others, whose batches are then written or durable
//! too.
//!
//! The first thread to arrive after a sync would have the next sync for itself alone, and all
//! others that the last one woke would share the one after it: two syncs instead of one. So a
//! leader that syncs yields a few times until as many threads wait for it as waited for the last
//! one.
//!
//! A write without a sync is short, and to sleep until it ends and to be woken takes longer: a
//! thread that does not wait for a sync yields a few times first.
//!
//! Invariant: `busy` is set by one thread at a time, and only that thread touches the current
//! segment's file or replaces the current segment.
//! Invariant: `durable <= written <= last`; the records between `written` and `last` are exactly
//! the pending buffer; a sync makes durable what was written before it began.
//! Invariant: the thread that clears `busy` wakes all, also when it failed; and every wait checks
//! the poison before it sleeps. So no wait outlasts the leader's device call.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use esker_device::{DeviceFile, Purpose};
use esker_format::ids::Seq;

use super::segment::{Segment, are_zeros_worth};
use super::{Log, Ticket};
use crate::error::Result;
use crate::fault;
use crate::planted::{self, Bug};
use crate::sync::atomic::Ordering;
use crate::sync::{self, MutexGuard};

/// The bytes that may be pending before an append writes them itself. One batch may be longer.
pub(super) const PENDING_BYTES_MAX: usize = 1 << 20;
/// The number of times that a leader yields to the threads that the last sync woke: some ten
/// microseconds in all, much less than a sync takes.
const GIVE_WAY_MAX: u32 = 32;
/// The number of times that a thread yields before it sleeps until another one's write without a
/// sync ends: such a write takes a few microseconds, and to sleep and be woken takes more.
const YIELDS_MAX: u32 = 32;
/// The bytes that are copied in one step when a tail is rewritten.
const SETTLE_CHUNK_BYTES: u64 = 64 * 1024;

/// The part of the log that changes with every append.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The segment that is appended to; `None` before the first append to a new store.
    pub current: Option<Segment>,
    /// Frames that are not written yet.
    pub pending: Vec<u8>,
    /// Their offset in the current segment's file.
    pub pending_at: u64,
    /// The last number handed out.
    pub last: Seq,
    /// The last number handed to the device.
    pub written: Seq,
    /// The last number known to be durable.
    pub durable: Seq,
    /// A thread is at the device.
    pub busy: bool,
    /// It syncs or replaces the current segment, which takes longer than a write.
    pub is_long: bool,
    /// Waits for a sync that came since the last sync began.
    pub sync_waits: u64,
    /// Those that the last sync was for.
    pub sync_waits_before: u64,
    /// The repairs that recovery left to do before the device may be written.
    pub tail_repair: Option<TailRepair>,
    /// The offset in the current segment at which work ahead is due next.
    pub ahead_at: u64,
    /// The number of times that the current segment was synced for waiting threads.
    pub syncs: u64,
    /// A buffer to swap with `pending`.
    pub spare: Vec<u8>,
}

/// The tail that recovery found at the end of the log, to be repaired before the first write.
#[derive(Clone, Debug)]
pub(super) struct TailRepair {
    /// Records that may be in the page cache only: to be written again.
    pub doubtful: Range<u64>,
    /// Records, or parts of them, that must never become part of the log: to be overwritten.
    pub stale: Range<u64>,
}

/// The work of a leader at the device, without the lock.
struct Flush {
    file: Option<Arc<dyn DeviceFile>>,
    bytes: Vec<u8>,
    at: u64,
    sync: bool,
    tail_repair: Option<TailRepair>,
}

impl Log {
    /// Waits until the batch is written to the device: it then survives the end of this process,
    /// but not that of the machine.
    ///
    /// Cost: one write for all waiting threads.
    ///
    /// # Errors
    /// When the store is poisoned.
    pub fn wait_written(&self, ticket: Ticket) -> Result<()> {
        self.wait(false, |queue| queue.written >= ticket.last_seq)
    }

    /// Waits until the batch is durable.
    ///
    /// Cost: one write and one sync for all waiting threads.
    ///
    /// # Errors
    /// When the store is poisoned.
    pub fn wait_synced(&self, ticket: Ticket) -> Result<()> {
        if planted::is(Bug::AcknowledgedBeforeSync) {
            return self.wait_written(ticket);
        }
        self.wait(true, |queue| queue.durable >= ticket.last_seq)
    }

    fn wait(&self, sync: bool, done: impl Fn(&Queue) -> bool) -> Result<()> {
        let mut queue = self.queue.lock();
        queue.sync_waits += u64::from(sync);
        let mut yields = if sync { 0 } else { YIELDS_MAX };
        while !done(&queue) {
            self.poison.check()?;
            if queue.busy && !queue.is_long && yields > 0 {
                yields -= 1;
                MutexGuard::unlocked(&mut queue, sync::yield_now);
            } else if queue.busy {
                self.changed.wait(&mut queue);
            } else {
                queue.busy = true;
                queue.is_long = sync;
                if sync {
                    gather(&mut queue);
                    self.count_sync(&mut queue);
                }
                let flushed = self.flush(&mut queue, sync);
                self.end_lead(&mut queue);
                flushed?;
            }
        }
        Ok(())
    }

    /// Notes a sync that has waiting threads.
    fn count_sync(&self, queue: &mut Queue) {
        queue.syncs = queue.syncs.saturating_add(1);
        let bytes = queue.current.as_ref().map(|segment| segment.reference.bytes);
        if bytes.is_some_and(|bytes| are_zeros_worth(bytes, queue.syncs)) {
            self.syncs_are_many.store(true, Ordering::Relaxed);
        }
    }

    /// Becomes the leader, after waiting for the one before.
    pub(super) fn begin_lead(&self, queue: &mut MutexGuard<'_, Queue>) -> Result<()> {
        while queue.busy {
            self.changed.wait(queue);
        }
        self.poison.check()?;
        queue.busy = true;
        queue.is_long = true;
        Ok(())
    }

    pub(super) fn end_lead(&self, queue: &mut MutexGuard<'_, Queue>) {
        queue.busy = false;
        self.changed.notify_all();
    }

    /// As the leader: writes the pending batches and syncs if requested. A failure poisons the
    /// store.
    pub(super) fn flush(&self, queue: &mut MutexGuard<'_, Queue>, sync: bool) -> Result<()> {
        let target = queue.last;
        let spare = mem::take(&mut queue.spare);
        let mut flush = Flush {
            file: queue.current.as_ref().map(|segment| Arc::clone(&segment.file)),
            bytes: mem::replace(&mut queue.pending, spare),
            at: queue.pending_at,
            sync,
            tail_repair: queue.tail_repair.take(),
        };
        queue.pending_at += flush.bytes.len() as u64;
        if sync {
            queue.sync_waits_before = mem::take(&mut queue.sync_waits);
        }
        let result = MutexGuard::unlocked(queue, || self.flush_unlocked(&flush));
        self.poison.on_error(result)?;
        queue.written = queue.written.max(target);
        if let Some(followers) = self.followers.get() {
            followers.passed_on(queue.written);
        }
        if sync {
            queue.durable = queue.durable.max(target);
        }
        // A buffer that one large batch has grown is not kept.
        if flush.bytes.capacity() <= 2 * PENDING_BYTES_MAX {
            flush.bytes.clear();
            queue.spare = flush.bytes;
        }
        Ok(())
    }

    fn flush_unlocked(&self, flush: &Flush) -> Result<()> {
        if let Some(tail_repair) = &flush.tail_repair {
            self.manifest.retry_last_record()?;
            if let Some(file) = &flush.file {
                repair_tail(file.as_ref(), tail_repair)?;
            }
        }
        let Some(file) = &flush.file else { return Ok(()) };
        if !flush.bytes.is_empty() {
            self.faults.hit(fault::LOG_WRITE)?;
            file.write_at(flush.at, &flush.bytes, Purpose::Log)?;
        }
        if flush.sync {
            self.beneath.sync()?;
            self.faults.hit(fault::LOG_SYNC)?;
            file.sync(Purpose::Log)?;
        }
        Ok(())
    }
}

/// As the leader: waits a little for the threads that waited for the last sync.
fn gather(queue: &mut MutexGuard<'_, Queue>) {
    for _ in 0..GIVE_WAY_MAX {
        if queue.sync_waits >= queue.sync_waits_before {
            return;
        }
        MutexGuard::unlocked(queue, sync::yield_now);
    }
}

/// Repairs the tail. The stale records are erased durably before anything is appended; the doubtful
/// records become durable with the next sync, because they are written again.
fn repair_tail(file: &dyn DeviceFile, tail_repair: &TailRepair) -> Result<()> {
    let TailRepair { doubtful, stale } = tail_repair;
    if !stale.is_empty() && !planted::is(Bug::StaleLogTailAccepted) {
        in_chunks(stale, |at, chunk| {
            chunk.fill(0);
            Ok(file.write_at(at, chunk, Purpose::Log)?)
        })?;
        file.sync(Purpose::Log)?;
    }
    in_chunks(doubtful, |at, chunk| {
        file.read_at(at, chunk, Purpose::Log)?;
        Ok(file.write_at(at, chunk, Purpose::Log)?)
    })
}

fn in_chunks(
    range: &Range<u64>,
    mut visit: impl FnMut(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut chunk = Vec::new();
    let mut at = range.start;
    while at < range.end {
        chunk.resize((range.end - at).min(SETTLE_CHUNK_BYTES) as usize, 0);
        visit(at, &mut chunk)?;
        at += chunk.len() as u64;
    }
    Ok(())
}
