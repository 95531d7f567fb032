//! The queue of processes that wait to write.
//!
//! A process that waits has the time at which it began in its cell. It tries the lock of the
//! writing only when no other process has waited for longer; the process that writes gives it up
//! between two transactions when one waits. So the writing is had in the order of these times, and
//! a process that has given it up waits behind those that waited. It wakes all that sleep.
//!
//! A time is a hint: the lock alone decides who writes. One that a dead process left is passed
//! over, because its cell's lock is free; one that makes no sense is not looked at.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use esker_device::Result;

use crate::meeting::layout::{CELLS, STOPPED, cell_lock, wait};
use crate::meeting::member::Member;

/// For how long a time in a cell is believed, in microseconds: no process waits for longer without
/// a new one.
const BELIEVED_MICROS: u64 = 10_000_000;
/// For how long a process that gave up keeps its place, in microseconds: SQLite asks again after a
/// sleep of 100 ms at most.
const KEPT_MICROS: u64 = 250_000;

/// The threads of this process that wait, and since when.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    threads: u64,
    since: u64,
    /// Since when it waited before it gave up, and when it did.
    before: Option<(u64, u64)>,
}

/// A thread that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter<'a>(&'a Member);

/// Microseconds since the machine was started: the same for all of its processes.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1000);
    u64::try_from(micros).unwrap_or(0).max(1)
}

/// Whether a process that has this in its cell waits.
fn is_wait(since: u64, now: u64) -> bool {
    since != 0 && since <= now && now - since < BELIEVED_MICROS
}

impl Member {
    /// Begins to wait, if no other thread of this process does; in its place of before, if it has
    /// given up a moment ago.
    pub(crate) fn wait_to_write(&self) -> Waiter<'_> {
        let mut waiting = self.waiting.lock();
        waiting.threads += 1;
        if waiting.threads == 1 {
            let now = now();
            let before = waiting.before.take().filter(|(_, end)| now - end.min(&now) < KEPT_MICROS);
            self.say_since(&mut waiting, before.map_or(now, |(since, _)| since));
        }
        Waiter(self)
    }

    /// Lets all others that wait go first.
    pub(crate) fn wait_anew(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.threads > 0 {
            self.say_since(&mut waiting, now());
        }
    }

    /// Has this process seen where it has waited for so long that others soon believe no more that
    /// it does.
    pub(crate) fn wait_on(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.threads > 0 && now().saturating_sub(waiting.since) > BELIEVED_MICROS / 2 {
            // Those that came later have waited for half of that at most.
            let since = now() - BELIEVED_MICROS / 2;
            self.say_since(&mut waiting, since);
        }
    }

    fn say_since(&self, waiting: &mut Waiting, since: u64) {
        waiting.since = since;
        self.shared().store(wait(self.cell()), since);
    }

    /// What [`Member::sleep_until_stopped`] wants, from before the writing was asked for.
    pub(crate) fn stops(&self) -> u64 {
        self.shared().load(STOPPED)
    }

    /// Sleeps until another process has stopped to write since `stops` was loaded, for `time` at
    /// most.
    pub(crate) fn sleep_until_stopped(&self, stops: u64, time: Duration) {
        self.shared().wait(STOPPED, stops, time);
    }

    /// Wakes those that wait: this process has stopped to write.
    pub(super) fn say_stopped(&self) {
        // Two that stop at once may say the same: those that sleep wake up after a while.
        self.shared().store(STOPPED, self.stops().wrapping_add(1));
        self.shared().wake(STOPPED);
    }

    /// Whether no other process has waited for longer than this one.
    ///
    /// # Errors
    /// The locks failed.
    pub(crate) fn is_first(&self) -> Result<bool> {
        let now = now();
        let ours = match self.waiting.lock().since {
            0 => u64::MAX,
            since => since,
        };
        for cell in (0..CELLS).filter(|cell| *cell != self.cell()) {
            let since = self.shared().load(wait(cell));
            let is_earlier = (since, cell) < (ours, self.cell());
            if is_wait(since, now) && is_earlier && self.shared().is_locked(cell_lock(cell))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether another process seems to wait. No call of the system but for the time.
    pub(crate) fn is_waited_for(&self) -> bool {
        let now = now();
        let others = (0..CELLS).filter(|cell| *cell != self.cell());
        others.into_iter().any(|cell| is_wait(self.shared().load(wait(cell)), now))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        waiting.threads -= 1;
        if waiting.threads == 0 {
            waiting.before = (!self.0.leads()).then(|| (waiting.since, now()));
            self.0.say_since(&mut waiting, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use esker_device::process::Process;
    use esker_device::sim::SimShared;
    use esker_format::ids::StoreId;

    use super::*;
    use crate::meeting::layout::{MEETING_BYTES, make};

    const STORE: StoreId = StoreId(7);

    fn members(count: usize) -> Vec<(Member, Arc<SimShared>)> {
        let shared = SimShared::new(MEETING_BYTES / 8);
        make(&shared, STORE);
        let take = |_| {
            let process = Arc::new(shared.another());
            let member = Member::take(Arc::clone(&process) as _, STORE, Process::current(), false);
            (member.unwrap().unwrap(), process)
        };
        (0..count).map(take).collect()
    }

    #[test]
    fn who_has_waited_for_longest_is_first() {
        let members = members(3);
        let [one, two, three] = [0, 1, 2].map(|at| &members[at].0);
        assert!(one.is_first().unwrap() && !one.is_waited_for());
        let second = two.wait_to_write();
        std::thread::sleep(Duration::from_millis(2));
        let third = three.wait_to_write();
        let again = two.wait_to_write();
        assert!(two.is_first().unwrap() && two.is_waited_for());
        assert!(!three.is_first().unwrap() && !one.is_first().unwrap());
        drop(second);
        assert!(!three.is_first().unwrap(), "another thread waits still");
        std::thread::sleep(Duration::from_millis(2));
        two.wait_anew();
        assert!(three.is_first().unwrap() && !two.is_first().unwrap());
        drop((third, again));
        assert!(one.is_first().unwrap() && !one.is_waited_for());
        let before = two.wait_to_write();
        std::thread::sleep(Duration::from_millis(2));
        let third = one.wait_to_write();
        drop(before);
        assert!(one.is_first().unwrap());
        let _again = two.wait_to_write();
        assert!(two.is_first().unwrap(), "who asks again soon has its place");
        drop(third);
    }

    #[test]
    fn who_has_died_or_makes_no_sense_is_passed_over() {
        let members = members(2);
        let (ours, other) = (&members[1].0, &members[0]);
        let waits = other.0.wait_to_write();
        assert!(!ours.is_first().unwrap());
        other.1.die_after(0);
        assert!(ours.is_first().unwrap());
        drop(waits);
        for noise in [1, u64::MAX, now() + BELIEVED_MICROS, 1 << 60] {
            ours.shared().store(wait(0), noise);
            assert!(ours.is_first().unwrap() || now() < BELIEVED_MICROS, "{noise}");
        }
    }
}
