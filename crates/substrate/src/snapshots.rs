//! Which versions may be seen: the visible number and the numbers of live snapshots.
//!
//! Thread safety: everything may be called from any thread.
//! Invariant S1: a live snapshot's number was visible when it was taken, and stays in the
//! registry until the last guard is dropped.
//! Invariant S2: `live()` is read under the lock that registers, so a merge that has read it
//! misses only snapshots taken later, whose numbers are at least the visible number it read.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Mutex;
use esker_format::ids::Seq;

/// The registry.
#[derive(Debug, Default)]
pub struct Snapshots {
    visible: AtomicU64,
    live: Mutex<BTreeMap<Seq, usize>>,
}

/// A registered number; its versions are kept until this is dropped.
#[derive(Debug)]
pub struct SnapshotGuard {
    registry: Arc<Snapshots>,
    seq: Seq,
}

impl Snapshots {
    /// The newest number that readers may see.
    pub fn visible(&self) -> Seq {
        Seq(self.visible.load(Ordering::Acquire))
    }

    /// Makes everything up to `seq` visible. Callers publish in order.
    pub fn publish(&self, seq: Seq) {
        self.visible.fetch_max(seq.0, Ordering::Release);
    }

    /// Registers the visible number.
    pub fn register(self: &Arc<Self>) -> SnapshotGuard {
        let mut live = self.live.lock();
        let seq = self.visible();
        *live.entry(seq).or_insert(0) += 1;
        SnapshotGuard { registry: Arc::clone(self), seq }
    }

    /// The numbers whose views must survive a merge that begins now: every live snapshot and the
    /// visible number, newest first, without repeats.
    pub fn live(&self) -> Vec<Seq> {
        let live = self.live.lock();
        let visible = self.visible();
        let mut numbers = vec![visible];
        numbers.extend(live.keys().rev().copied().filter(|seq| *seq != visible));
        numbers
    }

    /// The oldest live snapshot.
    pub fn oldest(&self) -> Option<Seq> {
        self.live.lock().keys().next().copied()
    }

    /// How many snapshots are registered.
    pub fn count(&self) -> usize {
        self.live.lock().values().sum()
    }
}

impl SnapshotGuard {
    /// The registered number.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }
}

impl Clone for SnapshotGuard {
    fn clone(&self) -> Self {
        *self.registry.live.lock().entry(self.seq).or_insert(0) += 1;
        Self { registry: Arc::clone(&self.registry), seq: self.seq }
    }
}

impl Drop for SnapshotGuard {
    fn drop(&mut self) {
        let mut live = self.registry.live.lock();
        if let Some(count) = live.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.seq);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_numbers_are_newest_first_and_leave_with_their_guards() {
        let registry = Arc::new(Snapshots::default());
        registry.publish(Seq(3));
        let three = registry.register();
        registry.publish(Seq(7));
        let seven = registry.register();
        let again = three.clone();
        registry.publish(Seq(9));
        assert_eq!(registry.live(), [Seq(9), Seq(7), Seq(3)]);
        drop(three);
        assert_eq!(registry.oldest(), Some(Seq(3)));
        drop(again);
        drop(seven);
        assert_eq!(registry.live(), [Seq(9)]);
        assert_eq!(registry.count(), 0);
    }
}
