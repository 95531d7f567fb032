//! The visible number and the registry of live snapshots, which decide which versions may be seen.
//!
//! Thread safety: everything may be called from any thread.
//! Invariant: a live snapshot's number was visible when it was taken, and stays in the registry
//! until the last guard is dropped.
//! Invariant: the moment of a snapshot was the clock's when it was taken. Numbers and moments are
//! taken under one lock and neither goes back, so that the oldest number comes with the earliest
//! moment.
//! Invariant: `live()` is read under the lock that registers, so a merge that has read it misses
//! only snapshots taken later, whose numbers are at least the visible number it read.
//!
//! Followers, which read the store in other processes, count as snapshots of a writer. In a
//! follower itself, the visible number and those of live snapshots are kept in its cell. Invariant:
//! in a follower, a number in `certain` is kept by the writer's merges until it is taken out of the
//! cell.
//!
//! In a child process after `fork` the registry is its parent's, and perhaps locked for ever: a
//! guard does nothing there.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use crate::sync::Mutex;
use esker_device::process::Process;
use esker_format::ids::{Moment, Seq};

use crate::clock::Clock;
use crate::followers::{Cell, Followers};
use crate::planted::{self, Bug};

/// The registry.
#[derive(Debug, Default)]
pub struct Snapshots {
    visible: AtomicU64,
    live: Mutex<BTreeMap<(Seq, Moment), usize>>,
    clock: Clock,
    /// In a writer: its followers, and whether any had a number when they were last looked at.
    followers: OnceLock<Arc<Followers>>,
    is_followed: AtomicBool,
    /// In a follower.
    following: Mutex<Option<Arc<Following>>>,
}

/// What a follower has told its writer.
#[derive(Debug)]
struct Following {
    cell: Cell,
    /// Numbers that are certain to be kept.
    certain: Mutex<BTreeSet<Seq>>,
    /// The moment since which the visible number is.
    since: AtomicU64,
}

/// The sequence number and moment of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// The newest number.
    pub seq: Seq,
    /// Values that had expired by this moment are not there.
    pub now: Moment,
}

/// The points that must stay readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Points {
    /// Every live snapshot's number and the visible one, newest first, without repeats.
    pub numbers: Vec<Seq>,
    /// Everybody reads as of this moment or later.
    pub horizon: Moment,
}

/// A registered number; its versions are kept until this is dropped.
#[derive(Debug)]
pub struct SnapshotGuard {
    registry: Arc<Snapshots>,
    at: At,
    process: Process,
}

impl Snapshots {
    /// An empty registry, whose snapshots use `clock` for expiry.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// The clock's moment. A reader without a snapshot calls this after it has loaded what it
    /// reads.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The newest number that readers may see.
    pub fn visible(&self) -> Seq {
        Seq(self.visible.load(Ordering::Acquire))
    }

    /// Makes everything up to `seq` visible. Callers publish in order.
    pub fn publish(&self, seq: Seq) {
        self.visible.fetch_max(seq.0, Ordering::Release);
    }

    /// From now on the numbers of followers count.
    pub fn count_followers(&self, followers: &Arc<Followers>) {
        let _once = self.followers.set(Arc::clone(followers));
    }

    /// From now on the writer is told what is read here.
    pub fn tell_writer(&self, cell: Cell) {
        let (certain, since) = (Mutex::default(), self.now().0.into());
        *self.following.lock() = Some(Arc::new(Following { cell, certain, since }));
    }

    /// In a follower whose cell no writer finds any more, because the file was removed or replaced:
    /// from now on no number is certain. To be called after the manifest was read: who has written
    /// it and did not find the cell had another file. Whether it was so.
    pub fn leave_lost_cell(&self) -> bool {
        let is_lost = self.following().is_some_and(|following| !following.cell.is_in_place());
        if is_lost {
            *self.following.lock() = None;
        }
        is_lost
    }

    fn following(&self) -> Option<Arc<Following>> {
        self.following.lock().clone()
    }

    /// In a writer: the log has been replayed, and ends with `last`.
    pub fn replayed(&self, last: Seq) {
        self.followers.get().into_iter().for_each(|followers| followers.replayed(last));
    }

    /// In a follower: the last number that the writer has passed on, as far as that is known.
    pub fn passed(&self) -> Option<Seq> {
        self.following().map(|following| following.cell.passed())
    }

    /// In a follower, before `seq` becomes visible: has the writer keep it, together with the
    /// numbers that are read here. Whether that is certain: else a newer number may be had.
    pub fn keep_next(&self, seq: Seq) -> bool {
        let Some(following) = self.following() else { return false };
        let live = self.live.lock();
        let visible = self.visible();
        let wanted = live.keys().map(|(number, _)| *number).chain([visible, seq]).collect();
        following.keep(&live, &wanted);
        following.is_certain(seq)
    }

    /// Whether all versions that a reader as of `seq` needs are kept, in every later state of the
    /// store. Always so without a writer in another process.
    pub fn is_certain(&self, seq: Seq) -> bool {
        let following = self.following();
        following.is_some_and(|following| following.certain.lock().contains(&seq))
    }

    /// In a follower: takes numbers out of its cell that have no reader any more. `since` is a
    /// moment from before the visible number became so.
    pub fn forget_older(&self, since: Moment) {
        let Some(following) = self.following() else { return };
        let live = self.live.lock();
        following.since.store(since.0, Ordering::Relaxed);
        let wanted = live.keys().map(|(number, _)| *number).chain([self.visible()]).collect();
        following.keep(&live, &wanted);
    }

    /// Registers the visible number.
    pub fn register(self: &Arc<Self>) -> SnapshotGuard {
        let mut live = self.live.lock();
        let at = At { seq: self.visible(), now: self.now() };
        *live.entry((at.seq, at.now)).or_insert(0) += 1;
        SnapshotGuard { registry: Arc::clone(self), at, process: Process::current() }
    }

    /// The points that must survive a merge that begins now: those of every live snapshot and of
    /// the visible number.
    pub fn live(&self) -> Points {
        let live = self.live.lock();
        let visible = self.visible();
        let mut numbers = vec![visible];
        numbers.extend(live.keys().rev().map(|(seq, _)| *seq));
        let mut earliest = live.keys().next().map(|(_, moment)| *moment);
        if let Some(followers) = self.followers.get() {
            let kept = followers.kept(visible);
            self.is_followed.store(!kept.numbers.is_empty(), Ordering::Relaxed);
            if !kept.numbers.is_empty() {
                numbers.extend(kept.numbers.iter().filter(|number| **number < visible));
                numbers.sort_unstable_by(|a, b| b.cmp(a));
                earliest = earliest.into_iter().chain(kept.earliest).min();
            }
        }
        numbers.dedup();
        let earliest = earliest.filter(|_| !planted::is(Bug::ExpiredForSnapshots));
        Points { numbers, horizon: earliest.unwrap_or_else(|| self.now()) }
    }

    /// The oldest live snapshot, those of followers included.
    pub fn oldest(&self) -> Option<Seq> {
        let own = self.oldest_at().map(|at| at.seq);
        let followers = self.followers.get().map(|followers| followers.kept(self.visible()));
        let theirs = followers.and_then(|kept| kept.numbers.first().copied());
        own.into_iter().chain(theirs).min()
    }

    /// The point of the oldest live snapshot of this process.
    pub fn oldest_at(&self) -> Option<At> {
        self.live.lock().keys().next().map(|(seq, now)| At { seq: *seq, now: *now })
    }

    /// The number of registered snapshots of this process.
    pub fn count(&self) -> usize {
        self.live.lock().values().sum()
    }

    /// Whether no reader is as of an older number than the visible one, as far as is known: of
    /// followers that have come since a merge has last asked, nothing is.
    pub fn is_unused(&self) -> bool {
        self.count() == 0 && !self.is_followed.load(Ordering::Relaxed)
    }
}

impl Following {
    /// Keeps the numbers that are wanted, and notes which of them are certain.
    fn keep(&self, live: &BTreeMap<(Seq, Moment), usize>, wanted: &BTreeSet<Seq>) {
        let since = Moment(self.since.load(Ordering::Relaxed));
        let earliest = live.keys().next().map_or(since, |(_, moment)| since.min(*moment));
        let mut certain = self.certain.lock();
        let left = self.cell.keep(wanted, earliest);
        let asked = self.cell.asked();
        let is_new = |number: &Seq| *number >= asked || planted::is(Bug::AskedNotCompared);
        let is_kept = |number: &Seq| !left.contains(number);
        *certain = wanted
            .iter()
            .filter(|number| is_kept(number) && (certain.contains(number) || is_new(number)))
            .copied()
            .collect();
    }

    fn is_certain(&self, seq: Seq) -> bool {
        self.certain.lock().contains(&seq)
    }
}

impl SnapshotGuard {
    /// The registered number.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.at.seq
    }

    /// The snapshot's point: the registered number, as of the moment at which it was registered.
    #[must_use]
    pub const fn at(&self) -> At {
        self.at
    }
}

impl Clone for SnapshotGuard {
    fn clone(&self) -> Self {
        let (at, process) = (self.at, self.process);
        if process.is_current() {
            *self.registry.live.lock().entry((at.seq, at.now)).or_insert(0) += 1;
        }
        Self { registry: Arc::clone(&self.registry), at, process }
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        let mut live = self.registry.live.lock();
        let key = (self.at.seq, self.at.now);
        if let Some(count) = live.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                live.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime::SimRuntime;

    #[test]
    fn live_numbers_are_newest_first_and_leave_with_their_guards() {
        let registry = Arc::new(Snapshots::default());
        registry.publish(Seq(3));
        let three = registry.register();
        registry.publish(Seq(7));
        let seven = registry.register();
        let again = three.clone();
        registry.publish(Seq(9));
        assert_eq!(registry.live().numbers, [Seq(9), Seq(7), Seq(3)]);
        drop(three);
        assert_eq!(registry.oldest(), Some(Seq(3)));
        drop(again);
        drop(seven);
        assert_eq!(registry.live().numbers, [Seq(9)]);
        assert_eq!(registry.count(), 0);
    }

    #[test]
    fn the_horizon_is_the_earliest_moment_that_anybody_reads_at() {
        let runtime = Arc::new(SimRuntime::new(0));
        let tick = || runtime.advance(Duration::from_millis(5));
        let registry = Arc::new(Snapshots::new(Clock::new(Arc::clone(&runtime) as _)));
        let start = registry.now().0;
        let first = registry.register();
        tick();
        let second = registry.register();
        assert_eq!((first.at().now, second.at().now), (Moment(start), Moment(start + 5)));
        tick();
        assert_eq!(registry.live().horizon, Moment(start));
        assert_eq!(registry.live().numbers, [Seq(0)], "one number at two moments");
        drop(first);
        assert_eq!(registry.live().horizon, Moment(start + 5));
        drop(second);
        assert_eq!(registry.live().horizon, Moment(start + 10));
    }
}
