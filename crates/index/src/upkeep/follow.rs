//! Taking over what an older opening of the same index has in memory.
//!
//! A follower opens an index anew when its record has changed, and does not read the log again:
//! what the record does not have yet is in the memtables of the opening before. Each version goes
//! where the replay of the log would put it.

use std::sync::Arc;

use esker_format::action::KeyRange;
use esker_format::ids::Seq;
use esker_format::meta::IndexMeta;
use esker_substrate::memtable::{Leaves, Memtable};
use esker_substrate::planted::{self, Bug};
use esker_substrate::sync::atomic::Ordering;

use crate::Index;
use crate::read::range_tombstones::RangeTombstones;
use crate::read::view::View;

/// Whether two records leave the same versions to the memtable.
fn leave_the_same(one: &IndexMeta, other: &IndexMeta) -> bool {
    one.flushed_seq == other.flushed_seq && frozen(one) == frozen(other)
}

/// The versions of the memtable that a merge under way had: those above the first number, up to the
/// second one.
fn frozen(meta: &IndexMeta) -> (Seq, Seq) {
    meta.merge.as_ref().map_or((Seq(0), Seq(0)), |merge| merge.frozen)
}

impl Index {
    /// Takes over the versions and range tombstones of `older` that this index's record does not
    /// have, as if they were replayed from the log, and the merge operator. To be called once,
    /// before anything is read or inserted here, by the one thread that inserts into `older`. Both
    /// may be read afterwards; inserts go to this one.
    ///
    /// Cost: nothing where the record leaves the same versions to the memtable; else a copy of
    /// those that it does not have.
    pub fn take_over(&self, older: &Self) {
        let operator = older.operator();
        if operator.function.is_some() {
            self.set_operator(operator.as_ref().clone());
        }
        self.set_memtable_bytes_max(older.memtable_bytes_max());
        let (meta, view) = (self.meta(), older.views.load());
        self.take_removals(&view.removed);
        let recovered = older.recovered.lock().as_ref().map(Memtable::leaves_arc);
        recovered.into_iter().for_each(|leaves| self.replay_all(&leaves));
        if leave_the_same(&meta, &older.meta()) {
            self.share_memtable((&view, older.newest_seq()));
        } else {
            self.replay_all(&view.memtable.leaves_arc());
        }
        self.count_memory();
    }

    /// Takes the range tombstones that the record does not have, the oldest first.
    fn take_removals(&self, older: &RangeTombstones) {
        let left = older.above(self.meta().log_unneeded_seq());
        let ranges = left.ranges();
        let mut all: Vec<(Seq, KeyRange<'_>)> =
            ranges.flat_map(|range| range.seqs.iter().map(|seq| (*seq, range.keys()))).collect();
        if all.is_empty() {
            return;
        }
        all.sort_unstable_by(|a, b| (a.0, a.1.begin).cmp(&(b.0, b.1.begin)));
        let points = self.env.snapshots.live().numbers;
        let needs = (points.as_slice(), self.history_from());
        self.views.publish(|view| {
            let removed = RangeTombstones::clone(&view.removed);
            let with = |removed: RangeTombstones, (seq, keys): &(Seq, KeyRange<'_>)| {
                removed.with(*keys, *seq, needs)
            };
            view.with_removed(all.iter().fold(removed, with))
        });
    }

    /// Replays the versions that the record does not have, those of a key from the oldest on.
    fn replay_all(&self, leaves: &Leaves) {
        let meta = self.meta();
        let (from, to) = frozen(&meta);
        let is_left = |seq: Seq| seq > meta.flushed_seq || (from < seq && seq <= to);
        let mut place = leaves.last();
        while let Some(here) = place {
            if is_left(here.seq()) {
                self.replay(here.key(), here.seq(), here.data());
            }
            place = here.prev();
        }
    }

    fn share_memtable(&self, (older, newest): (&View, Seq)) {
        let memtable = Arc::clone(&older.memtable);
        self.views.publish(|view| view.with_parts(memtable, view.parts.clone()));
        if !planted::is(Bug::SharedNotCounted) {
            self.newest_seq.fetch_max(newest.0, Ordering::SeqCst);
        }
    }
}
