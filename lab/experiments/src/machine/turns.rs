//! Virtual time: actors run on threads, one at a time, in the order of their times.
//!
//! **Rules.** T1: at any moment one actor runs, the one with the least time; ties go to the lower
//! number. T2: an actor's time never goes back, and moves only when the actor waits
//! ([`wait_until`]); what it does between two waits takes no time. T3: an actor that has ended is
//! at no time. So the order of everything that actors do through shared state follows from what
//! they do alone: threads add nothing to it, and no thread sleeps.
//!
//! Thread safety: the state has a mutex, under which nothing is called. An actor waits for its turn
//! without holding it.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The time of an actor that has ended.
const ENDED: u64 = u64::MAX;

/// The actors of a run, and whose turn it is.
#[derive(Debug)]
struct Turns {
    state: Mutex<State>,
    /// One for each actor.
    begins: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    /// The time of each actor.
    times: Vec<u64>,
    /// The actor whose turn it is.
    running: usize,
    /// The greatest time that an actor has reached.
    latest: u64,
}

#[derive(Debug, Clone)]
struct Actor {
    turns: Arc<Turns>,
    number: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Actor>> = const { RefCell::new(None) };
}

/// The work of an actor.
pub type Work<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// Runs actors, numbered in their order, from a time on; what they answer, and the greatest time
/// that one has reached. The answer of an actor that panicked is missing.
pub fn run<'a, T: Send>(from_ns: u64, actors: Vec<Work<'a, T>>) -> (Vec<Option<T>>, u64) {
    let count = actors.len();
    let turns = Arc::new(Turns {
        state: Mutex::new(State { times: vec![from_ns; count], running: 0, latest: from_ns }),
        begins: (0..count).map(|_| Condvar::new()).collect(),
    });
    let answers = thread::scope(|scope| {
        let start = |(number, work): (usize, Work<'a, T>)| {
            let actor = Actor { turns: Arc::clone(&turns), number };
            scope.spawn(move || {
                let entered = Entered::enter(actor);
                let answer = work();
                drop(entered);
                answer
            })
        };
        let threads: Vec<_> = actors.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().ok()).collect()
    });
    let latest = turns.lock().latest;
    (answers, latest)
}

/// The time of the calling actor in nanoseconds; 0 outside of a run.
#[must_use]
pub fn now() -> u64 {
    let at = |actor: &Actor| actor.turns.lock().times.get(actor.number).copied().unwrap_or(0);
    CURRENT.with_borrow(|current| current.as_ref().map_or(0, at))
}

/// Waits until a time. Outside of a run nothing happens.
pub fn wait_until(ns: u64) {
    let actor = CURRENT.with_borrow(Clone::clone);
    if let Some(actor) = actor {
        actor.turns.advance(actor.number, ns.min(ENDED - 1));
    }
}

/// Waits for some time.
pub fn wait(ns: u64) {
    wait_until(now().saturating_add(ns));
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the first turn.
    fn begin(&self, number: usize) {
        self.await_turn(self.lock(), number);
    }

    fn await_turn(&self, mut state: MutexGuard<'_, State>, number: usize) {
        let Some(begins) = self.begins.get(number) else { return };
        while state.running != number {
            state = begins.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Moves the running actor to a later time, and returns when it is its turn again; at once if
    /// it has ended.
    fn advance(&self, number: usize, to: u64) {
        let mut state = self.lock();
        if let Some(time) = state.times.get_mut(number) {
            *time = to.max(*time);
        }
        if to != ENDED {
            state.latest = state.latest.max(to);
        }
        let times = state.times.iter().enumerate();
        let Some((next, time)) = times.min_by_key(|(at, time)| (**time, *at)) else { return };
        if next == number || *time == ENDED {
            return;
        }
        state.running = next;
        if let Some(begins) = self.begins.get(next) {
            begins.notify_one();
        }
        if to != ENDED {
            self.await_turn(state, number);
        }
    }
}

/// An actor on its thread; the turn is handed on when it ends, by a panic too.
struct Entered(Actor);

impl Entered {
    fn enter(actor: Actor) -> Self {
        actor.turns.begin(actor.number);
        CURRENT.set(Some(actor.clone()));
        Self(actor)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
        self.0.turns.advance(self.0.number, ENDED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which three actors act, that wait for times of their own.
    fn order() -> (Vec<(usize, u64)>, u64) {
        let seen = Mutex::new(Vec::new());
        let actor = |number: usize, step: u64| -> Work<'_, ()> {
            let seen = &seen;
            Box::new(move || {
                for _ in 0..4 {
                    seen.lock().unwrap().push((number, now()));
                    wait(step);
                }
            })
        };
        let actors = vec![actor(0, 30), actor(1, 20), actor(2, 50)];
        let (answers, latest) = run(100, actors);
        assert_eq!(answers.len(), 3);
        (seen.into_inner().unwrap(), latest)
    }

    #[test]
    fn the_least_time_runs_and_ties_go_to_the_lower_number() {
        let wanted = [
            (0, 100),
            (1, 100),
            (2, 100),
            (1, 120),
            (0, 130),
            (1, 140),
            (2, 150),
            (0, 160),
            (1, 160),
            (0, 190),
            (2, 200),
            (2, 250),
        ];
        for _ in 0..20 {
            assert_eq!(order(), (wanted.to_vec(), 300));
        }
    }

    #[test]
    fn an_actor_that_panics_hands_on() {
        let fails: Work<'_, u32> = Box::new(|| panic!("planned"));
        let goes_on: Work<'_, u32> = Box::new(|| {
            wait(5);
            7
        });
        let (answers, latest) = run(0, vec![fails, goes_on]);
        assert_eq!((answers, latest), (vec![None, Some(7)], 5));
    }

    #[test]
    fn outside_of_a_run_there_is_no_time() {
        wait(5);
        assert_eq!(now(), 0);
        let none: Vec<Work<'_, ()>> = Vec::new();
        assert_eq!(run(3, none).1, 3);
    }
}
