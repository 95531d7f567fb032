//! The queue of writers among the connections of this process.
//!
//! SQLite asks again for a lock that it was refused, after a sleep that grows to 100 ms. By then
//! its snapshot may be older than another connection's commit, so that it is refused once more.
//! With many writers the order is random, and a writer may wait for seconds without success. So a
//! refused connection waits in a queue instead of sleeping ([`crate::waiting`]), **before** its
//! next snapshot is taken. When its turn comes no writer is active and the snapshot is new. The
//! order is that of the first refusals.
//!
//! A connection that writes repeatedly has the pages in its cache that the next one would read
//! again. So a writer keeps precedence for 10 ms, unless it does something else.
//!
//! Waits are short: a place in the queue is dropped after 50 ms, or when the sleep would have
//! ended, and a turn that is not taken after 5 ms. Only a recently refused connection waits at all,
//! and none waits for a transaction of its own thread.
//!
//! Invariant: every connection in `waiting` is in [`Queue::wait`] at that moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The time that a refused connection waits for its turn, if SQLite would not sleep for longer.
const PATIENCE: Duration = Duration::from_millis(50);
/// The time that a connection writes one transaction after the other before it yields.
const REIGN: Duration = Duration::from_millis(10);
/// The time after its last transaction during which a writing connection keeps precedence.
const PAUSE: Duration = Duration::from_micros(200);
/// The time that a turn is kept for a connection that does not begin to write.
const TURN: Duration = Duration::from_millis(5);
/// The time that a connection counts as refused: somewhat more than SQLite's longest sleep.
const LATELY: Duration = Duration::from_millis(250);

/// The identity of a connection, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u64);

impl Id {
    /// An id that no other connection has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The refusal of a connection that will try again.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    first: Instant,
    last: Instant,
}

impl Refused {
    /// A refusal now, after `earlier` ones.
    pub fn now(earlier: Option<Self>) -> Self {
        let last = Instant::now();
        let first = earlier.filter(Self::is_recent).map_or(last, |earlier| earlier.first);
        Self { first, last }
    }

    fn is_recent(&self) -> bool {
        self.last.elapsed() < LATELY
    }
}

#[derive(Debug)]
struct Waiter {
    id: Id,
    refused: Instant,
    wake: Arc<Condvar>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of their first refusals.
    waiting: VecDeque<Waiter>,
    /// The connection whose turn it is, and until when.
    turn: Option<(Id, Instant)>,
    /// The writing connection, and its thread.
    writer: Option<(Id, ThreadId)>,
    reign: Option<Reign>,
}

/// Successive transactions of one connection.
#[derive(Clone, Copy, Debug)]
struct Reign {
    id: Id,
    begun: Instant,
    /// The end of its last transaction.
    ended: Instant,
}

impl Reign {
    fn lasts(&self, now: Instant) -> bool {
        now < self.begun + REIGN && now < self.ended + PAUSE
    }
}

impl State {
    /// Whether `id` may begin to write now.
    fn may_begin(&self, id: Id, now: Instant) -> bool {
        if let Some((writer, _)) = self.writer {
            return writer == id;
        }
        match self.turn {
            Some((whose, until)) if until > now => whose == id,
            _ => self.waiting.is_empty() || self.reigns(now).is_some_and(|reign| reign.id == id),
        }
    }

    /// The connection that has precedence now.
    fn reigns(&self, now: Instant) -> Option<Reign> {
        self.reign.filter(|reign| reign.lasts(now))
    }

    /// Whether it is now the turn of `id`, which waits.
    fn comes(&self, id: Id, now: Instant) -> bool {
        let is_free = self.turn.is_none_or(|(_, until)| until <= now);
        let is_first = self.waiting.front().is_some_and(|first| first.id == id);
        self.writer.is_none() && is_free && is_first && self.reigns(now).is_none()
    }

    /// Until when nothing changes for a waiting connection, unless a transaction ends in the
    /// meantime.
    fn quiet_until(&self, now: Instant, end: Instant) -> Instant {
        let turn = self.turn.map(|(_, until)| until);
        let pause = self.reigns(now).filter(|_| self.writer.is_none());
        let until = turn.into_iter().chain(pause.map(|reign| reign.ended + PAUSE));
        until.filter(|until| *until > now).chain([end]).min().unwrap_or(end)
    }

    fn begin(&mut self, id: Id, now: Instant) {
        let goes_on = self.reign.filter(|reign| reign.id == id && reign.lasts(now));
        self.reign = Some(goes_on.unwrap_or(Reign { id, begun: now, ended: now }));
        self.turn = None;
        self.writer = Some((id, thread::current().id()));
    }

    fn enter(&mut self, waiter: Waiter) {
        let at = self.waiting.partition_point(|other| other.refused <= waiter.refused);
        self.waiting.insert(at, waiter);
    }

    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.wake.notify_one();
        }
    }
}

/// The queue of one store.
#[derive(Debug, Default)]
pub struct Queue(Mutex<State>);

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a refused connection; stops after 50 ms, or after the time `asked`
    /// for if that is longer. Returns false, without waiting, if the refusal is not recent or the
    /// writer is on this thread.
    pub fn wait(&self, id: Id, refused: Refused, asked: Duration) -> bool {
        if !refused.is_recent() {
            return false;
        }
        let mut state = self.lock();
        if state.writer.is_some_and(|(_, thread)| thread == thread::current().id()) {
            return false;
        }
        let end = Instant::now() + PATIENCE.max(asked);
        let wake = Arc::new(Condvar::new());
        state.enter(Waiter { id, refused: refused.first, wake: Arc::clone(&wake) });
        loop {
            let now = Instant::now();
            if state.comes(id, now) {
                state.turn = Some((id, now + TURN));
                break;
            }
            if now >= end {
                break;
            }
            let left = state.quiet_until(now, end).saturating_duration_since(now);
            state = wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiting.retain(|other| other.id != id);
        state.wake_first();
        true
    }

    /// Begins to write by `begin`, unless it is another connection's turn: then `None`.
    pub fn begin<T, E>(
        &self,
        id: Id,
        begin: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let mut state = self.lock();
        let now = Instant::now();
        if !state.may_begin(id, now) {
            return None;
        }
        let begun = begin();
        if begun.is_ok() {
            state.begin(id, now);
        }
        Some(begun)
    }

    /// Whether a connection writes, or holds the write lock.
    pub fn has_writer(&self) -> bool {
        self.lock().writer.is_some()
    }

    /// Called when a connection has stopped writing and wants no turn.
    pub fn end(&self, id: Id) {
        let mut state = self.lock();
        let now = Instant::now();
        if state.writer.is_some_and(|(writer, _)| writer == id) {
            state.writer = None;
            if let Some(reign) = &mut state.reign {
                reign.ended = now;
            }
        }
        if state.turn.is_some_and(|(whose, _)| whose == id) {
            state.turn = None;
        }
        state.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn waiter(id: Id, refused: Instant) -> Waiter {
        Waiter { id, refused, wake: Arc::default() }
    }

    #[test]
    fn who_was_refused_first_comes_first() {
        let [first, second, other] = [Id::unique(), Id::unique(), Id::unique()];
        let now = Instant::now();
        let mut state = State::default();
        state.enter(waiter(second, now + TURN));
        state.enter(waiter(first, now));
        assert!(state.comes(first, now) && !state.comes(second, now));
        assert!(!state.may_begin(other, now));
        state.waiting.pop_front();
        state.turn = Some((first, now + TURN));
        assert!(state.may_begin(first, now) && !state.may_begin(other, now));
        assert!(!state.comes(second, now) && state.comes(second, now + TURN));
    }

    #[test]
    fn who_writes_goes_on_for_a_while() {
        let [writer, other] = [Id::unique(), Id::unique()];
        let begun = Instant::now();
        let mut state = State::default();
        state.begin(writer, begun);
        state.enter(waiter(other, begun));
        let mut end = |ended: Instant| {
            state.writer = None;
            state.reign.as_mut().unwrap().ended = ended;
            let soon = ended + PAUSE / 2;
            let (goes_on, comes) = (state.may_begin(writer, soon), state.comes(other, soon));
            assert!(!state.may_begin(writer, ended + PAUSE) && state.comes(other, ended + PAUSE));
            state.begin(writer, soon);
            (goes_on, comes)
        };
        assert_eq!(end(begun + REIGN / 2), (true, false));
        assert_eq!(end(begun + REIGN), (false, true));
    }

    #[test]
    fn all_of_many_writers_come() {
        const WRITERS: usize = 8;
        let queue = Queue::default();
        let busy = AtomicBool::new(false);
        let write = || {
            let id = Id::unique();
            let mut refused: Option<Refused> = None;
            loop {
                if let Some(refused) = refused {
                    queue.wait(id, refused, Duration::ZERO);
                }
                let begin = || if busy.swap(true, Ordering::AcqRel) { Err(()) } else { Ok(()) };
                if matches!(queue.begin(id, begin), Some(Ok(()))) {
                    thread::sleep(Duration::from_millis(1));
                    busy.store(false, Ordering::Release);
                    queue.end(id);
                    return;
                }
                refused = Some(Refused::now(refused));
            }
        };
        thread::scope(|scope| {
            (0..WRITERS).for_each(|_| drop(scope.spawn(|| (0..20).for_each(|_| write()))));
        });
        assert!(queue.lock().waiting.is_empty());
    }

    #[test]
    fn a_turn_that_is_not_taken_passes() {
        let queue = Queue::default();
        let (idle, other) = (Id::unique(), Id::unique());
        assert!(queue.wait(idle, Refused::now(None), Duration::ZERO));
        assert!(queue.begin(other, || Ok::<_, ()>(())).is_none());
        thread::sleep(TURN * 2);
        assert!(queue.begin(other, || Ok::<_, ()>(())).is_some());
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let queue = Queue::default();
        let (writer, reader) = (Id::unique(), Id::unique());
        assert!(queue.begin(writer, || Ok::<_, ()>(())).is_some());
        let asked = Instant::now();
        assert!(!queue.wait(reader, Refused::now(None), PATIENCE));
        assert!(asked.elapsed() < PATIENCE);
    }
}
