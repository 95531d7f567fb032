//! The queues of flushes and merges, and how writers wait for what is done.
//!
//! Invariant: a keyspace is in a queue at most once.
//! Invariant: every operation that changes what a writer may wait for (a step, an error, the end)
//! ticks after the change; a writer reads the ticks before it looks. So no wake-up is lost.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use esker_format::ids::KeyspaceId;
use esker_index::BackgroundJob;
use esker_substrate::planted::{self, Race};
use esker_substrate::sync::{Condvar, Mutex};

use crate::slot::Slot;

/// The threads that run flushes and merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Threads of the store's own.
    Threads,
    /// The writing thread: this number of steps after each write; with 0, to the end.
    Inline(u32),
}

/// The queues of work.
#[derive(Debug)]
pub(crate) struct WorkQueue {
    pub mode: Mode,
    state: Mutex<State>,
    /// There is work, or no more will come.
    work: Condvar,
    /// Something has been done.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    flushes: Queue,
    merges: Queue,
    /// The log has work to do before its next switch.
    log: bool,
    ticks: u64,
    stopped: bool,
}

/// Keyspaces in the order of asking.
#[derive(Debug, Default)]
struct Queue {
    slots: VecDeque<Arc<Slot>>,
    /// Those of `slots`.
    ids: BTreeSet<KeyspaceId>,
}

impl Queue {
    /// Returns whether it was not in the queue before.
    fn push(&mut self, slot: &Arc<Slot>) -> bool {
        let is_new = self.ids.insert(slot.id);
        if is_new {
            self.slots.push_back(Arc::clone(slot));
        }
        is_new
    }

    fn pop(&mut self) -> Option<Arc<Slot>> {
        let slot = self.slots.pop_front()?;
        self.ids.remove(&slot.id);
        Some(slot)
    }
}

impl State {
    fn queue(&mut self, which: BackgroundJob) -> &mut Queue {
        match which {
            BackgroundJob::Flush => &mut self.flushes,
            BackgroundJob::Merge => &mut self.merges,
        }
    }
}

impl WorkQueue {
    pub fn new(mode: Mode) -> Self {
        Self { mode, state: Mutex::default(), work: Condvar::new(), done: Condvar::new() }
    }

    /// Asks for a keyspace's flush or merge to be run.
    pub fn ask(&self, which: BackgroundJob, slot: &Arc<Slot>) {
        let mut state = self.state.lock();
        if state.queue(which).push(slot) {
            drop(state);
            self.work.notify_all();
        }
    }

    /// Asks for the log's work ahead to be done.
    pub fn ask_for_log(&self) {
        self.state.lock().log = true;
        self.work.notify_all();
    }

    /// The number of calls of [`tick`](Self::tick).
    pub fn ticks(&self) -> u64 {
        self.state.lock().ticks
    }

    /// Notes that something has been done, and wakes the threads that wait for it.
    pub fn tick(&self) {
        self.state.lock().ticks += 1;
        if !planted::is(Race::MissedNotify) {
            self.done.notify_all();
        }
    }

    /// Waits until something has been done since the ticks were `seen`; false when nothing will
    /// be done any more.
    pub fn wait(&self, seen: u64) -> bool {
        let mut state = self.state.lock();
        while state.ticks == seen && !state.stopped {
            self.done.wait(&mut state);
        }
        !state.stopped
    }

    /// Ends the threads and all waits.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.flushes = Queue::default();
        state.merges = Queue::default();
        drop(state);
        self.work.notify_all();
        self.done.notify_all();
    }

    pub fn next(&self, which: BackgroundJob) -> Option<Arc<Slot>> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(slot) = state.queue(which).pop() {
                return Some(slot);
            }
            self.work.wait(&mut state);
        }
    }

    /// Waits until the log has something to do; false when nothing more will be done.
    pub fn log_is_due(&self) -> bool {
        let mut state = self.state.lock();
        while !state.log && !state.stopped {
            self.work.wait(&mut state);
        }
        state.log = false;
        !state.stopped
    }
}
