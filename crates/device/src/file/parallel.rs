//! Several reads in flight, by threads that start when they are first needed.
//!
//! A batch of reads is a list and a cursor. The caller and up to fifteen helpers take the next
//! request until none is left, so that a batch never waits for a thread that is not there: with
//! no helper, the caller makes all reads. Helpers read into memory of their own, which the caller
//! copies: lending them the caller's memory would need unsafe code to save a copy that is a
//! hundredth of a device's read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::handle::Handle;
use crate::{AlignedBuf, Purpose, ReadRequest, Result};

/// The number of reads of one batch that are made at the same time, the caller's included. Enough
/// to keep an SSD's channels busy; more helps little (the curve of reads a second against depth is
/// flat there).
const DEPTH: usize = 16;

/// The time that a helper waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// The result that one helper hands back.
type Answer = (usize, Result<AlignedBuf>);

/// Reads to be made of one file, taken one by one.
#[derive(Debug)]
struct Batch {
    handle: Arc<Handle>,
    purpose: Purpose,
    /// Index in the caller's list, offset, length.
    reads: Vec<(usize, u64, usize)>,
    next: AtomicUsize,
}

impl Batch {
    /// Takes one read; each is taken once.
    fn take(&self) -> Option<(usize, u64, usize)> {
        self.reads.get(self.next.fetch_add(1, Ordering::Relaxed)).copied()
    }
}

/// An invitation to help with a batch.
struct Ticket {
    batch: Arc<Batch>,
    answers: Sender<Answer>,
}

/// Invariants: `idle` helpers wait for `wake`; `helpers` counts all of them, and is at most
/// [`DEPTH`] - 1.
#[derive(Default)]
struct State {
    tickets: VecDeque<Ticket>,
    helpers: usize,
    idle: usize,
}

/// The reading threads of one device.
#[derive(Default)]
pub(super) struct Readers {
    state: Mutex<State>,
    wake: Condvar,
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Readers({} threads)", self.state.lock().helpers)
    }
}

impl Readers {
    /// Makes all the reads; one result for each, in order.
    pub(super) fn read_many(
        self: &Arc<Self>,
        handle: &Arc<Handle>,
        requests: &mut [ReadRequest<'_>],
        purpose: Purpose,
    ) -> Vec<Result<()>> {
        let mut outcomes: Vec<Option<Result<()>>> = requests.iter().map(|_| None).collect();
        let mut reads = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter_mut().enumerate() {
            // What the page cache holds is copied sooner than a thread wakes.
            if !handle.is_direct_for(purpose) && handle.read_cached(request.offset, request.buf) {
                outcomes[index] = Some(Ok(()));
            } else {
                reads.push((index, request.offset, request.buf.len()));
            }
        }
        let batch = Batch { handle: Arc::clone(handle), purpose, reads, next: AtomicUsize::new(0) };
        let answers = self.share(batch, |index| {
            let request = &mut requests[index];
            outcomes[index] = Some(handle.read_at(request.offset, request.buf, purpose));
        });
        while outcomes.iter().any(Option::is_none) {
            // Ends early only when a helper has ended during a read that it had taken.
            let Ok((index, answer)) = answers.recv() else { break };
            outcomes[index] = Some(answer.map(|bytes| requests[index].buf.copy_from_slice(&bytes)));
        }
        let finish = |(outcome, request): (Option<Result<()>>, &mut ReadRequest<'_>)| {
            outcome.unwrap_or_else(|| handle.read_at(request.offset, request.buf, purpose))
        };
        outcomes.into_iter().zip(requests).map(finish).collect()
    }

    /// Makes reads together with helpers: `read_here` makes one on this thread. What helpers made
    /// or are making comes by the receiver.
    fn share(self: &Arc<Self>, batch: Batch, mut read_here: impl FnMut(usize)) -> Receiver<Answer> {
        let helpers = batch.reads.len().saturating_sub(1).min(DEPTH - 1);
        let batch = Arc::new(batch);
        let (sender, receiver) = channel();
        if helpers > 0 {
            self.invite(&batch, &sender, helpers);
        }
        while let Some((index, ..)) = batch.take() {
            read_here(index);
        }
        receiver
    }

    fn invite(self: &Arc<Self>, batch: &Arc<Batch>, answers: &Sender<Answer>, helpers: usize) {
        let mut state = self.state.lock();
        for _ in 0..helpers {
            let ticket = Ticket { batch: Arc::clone(batch), answers: answers.clone() };
            state.tickets.push_back(ticket);
        }
        let missing = state.tickets.len().saturating_sub(state.idle);
        for _ in 0..missing.min(DEPTH - 1 - state.helpers) {
            let readers = Arc::downgrade(self);
            let named = thread::Builder::new().name("esker-read".to_owned());
            // Without a thread the caller reads alone.
            if named.spawn(move || help(&readers)).is_ok() {
                state.helpers += 1;
            }
        }
        if state.helpers == 0 {
            // No helper will come: remaining tickets would keep files open.
            state.tickets.clear();
        }
        drop(state);
        self.wake.notify_all();
    }

    /// Waits for an invitation; `None` when none comes.
    fn next_ticket(&self) -> Option<Ticket> {
        let mut state = self.state.lock();
        loop {
            if let Some(ticket) = state.tickets.pop_front() {
                return Some(ticket);
            }
            state.idle += 1;
            let waited = self.wake.wait_for(&mut state, IDLE);
            state.idle -= 1;
            if waited.timed_out() && state.tickets.is_empty() {
                return None;
            }
        }
    }
}

/// Gives a helper's place back however it ends.
struct Place<'a>(&'a Weak<Readers>);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(readers) = self.0.upgrade() {
            readers.state.lock().helpers -= 1;
        }
    }
}

/// The life of a helper.
fn help(readers: &Weak<Readers>) {
    let _place = Place(readers);
    // The device is kept while a helper waits, but no longer than `IDLE`.
    while let Some(ticket) = readers.upgrade().and_then(|readers| readers.next_ticket()) {
        while let Some((index, offset, len)) = ticket.batch.take() {
            let mut bytes = AlignedBuf::zeroed(len);
            let Batch { handle, purpose, .. } = &*ticket.batch;
            let answer = handle.read_at(offset, &mut bytes, *purpose).map(|()| bytes);
            // A caller that has left does not want the answer.
            let _ = ticket.answers.send((index, answer));
        }
    }
}
