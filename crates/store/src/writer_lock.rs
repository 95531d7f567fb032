//! The writer lock: one transaction at a time holds it, in the order of the requests. Holding it is
//! a turn.
//!
//! Thread safety: everything may be called from any thread.
//!
//! Invariant: `served` is the number of the turn that is held, or of the one that is given out
//! next; every waiting thread has a number above it, and each number is held once.
//! Invariant: every waiting thread is woken when a turn ends, and when the store closes.

use esker_substrate::sync::{Condvar, Mutex, ThreadId, thread_id};

use crate::error::{Error, Result};
use crate::stall_stats::{Waits, Why};

/// The current turn, and the waiting threads.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: u64,
    served: u64,
    /// The thread that was given the turn, while it is held.
    holder: Option<ThreadId>,
    closed: bool,
}

/// The result of a request for the turn.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is given.
    Given,
    /// Another transaction holds it.
    Taken,
    /// This very thread was given it, and would wait for itself.
    TakenHere,
}

impl Turns {
    /// Waiting threads, and later requests, get the error that the store is closed.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.ended.notify_all();
    }

    /// Asks for the turn, and waits for it if `wait`.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn ask(&self, waits: &Waits, wait: bool) -> Result<Asked> {
        let mut state = self.state.lock();
        if state.holder == Some(thread_id()) {
            return Ok(Asked::TakenHere);
        }
        if !wait && state.asked != state.served {
            return Ok(Asked::Taken);
        }
        let number = state.asked;
        state.asked += 1;
        let mut wait = None;
        while state.served != number && !state.closed {
            wait.get_or_insert_with(|| waits.begin(Why::Turn));
            self.ended.wait(&mut state);
        }
        drop(wait);
        if state.closed {
            return Err(Error::Closed);
        }
        state.holder = Some(thread_id());
        Ok(Asked::Given)
    }

    /// Ends the turn that is held.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.holder = None;
        state.served += 1;
        drop(state);
        self.ended.notify_all();
    }
}
