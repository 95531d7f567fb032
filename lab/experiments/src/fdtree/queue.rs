//! A queue of requests with a fixed number of slots: a thread that brings one to a full queue
//! waits.
//!
//! Thread safety: any number of threads bring and take.

use std::collections::VecDeque;
use std::time::Instant;

use esker_workload::Request;
use parking_lot::{Condvar, Mutex};

/// A request and when it came.
pub type Queued = (Request, Instant);

/// Q_r or Q_w of the paper.
#[derive(Debug)]
pub struct Queue {
    slots: usize,
    state: Mutex<State>,
    taken: Condvar,
    brought: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Queued>,
    closed: bool,
}

impl Queue {
    /// An empty queue; at least one slot.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let slots = slots.max(1);
        Self { slots, state: Mutex::default(), taken: Condvar::new(), brought: Condvar::new() }
    }

    /// Waits for a slot; false when the queue is closed. The request came at `since`, or now.
    pub fn bring(&self, request: Request, since: Option<Instant>) -> bool {
        let mut state = self.state.lock();
        while state.requests.len() >= self.slots && !state.closed {
            self.taken.wait(&mut state);
        }
        if state.closed {
            return false;
        }
        state.requests.push_back((request, since.unwrap_or_else(Instant::now)));
        drop(state);
        self.brought.notify_one();
        true
    }

    /// Waits for a request; `None` when the queue is closed and empty.
    pub fn take(&self) -> Option<Queued> {
        let mut state = self.state.lock();
        loop {
            if let Some(queued) = state.requests.pop_front() {
                drop(state);
                self.taken.notify_one();
                return Some(queued);
            }
            if state.closed {
                return None;
            }
            self.brought.wait(&mut state);
        }
    }

    /// No more will come.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.taken.notify_all();
        self.brought.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn what_is_brought_is_taken_once_and_in_order() {
        let queue = Queue::new(3);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!((0..1000).all(|number| queue.bring(Request::lookup(number), None)));
                queue.close();
            });
            let taken: Vec<_> =
                std::iter::from_fn(|| queue.take()).map(|(r, _)| r.number).collect();
            assert_eq!(taken, (0..1000).collect::<Vec<_>>());
        });
        assert!(!queue.bring(Request::lookup(1), None));
        assert!(queue.take().is_none());
    }

    #[test]
    fn closing_ends_the_wait_for_a_slot() {
        let queue = Queue::new(1);
        assert!(queue.bring(Request::lookup(1), None));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.bring(Request::lookup(2), None));
            queue.close();
            assert!(!waiting.join().unwrap());
        });
        assert!(queue.take().is_some() && queue.take().is_none());
    }
}
