//! Giving up past indexes that nobody has to read any more, and pins, which keep them.
//!
//! The owner decides what has to stay readable. Past indexes are given up from the oldest on, by
//! one record and without reading anything: each is on blocks of its own, and the blobs that no
//! other index refers to are known.
//!
//! Invariant: no past index is given up that a pinned version or a live snapshot reads.
//! Invariant: one thread gives past indexes up at a time, and none while the index is paused: what
//! is chosen is still there when the record is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, PastIndex};
use esker_format::ptr::Extent;
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Bug};

use crate::kind::context::KindContext;
use crate::record::Change;
use crate::upkeep::values::Moved;
use crate::{Commit, Index};

/// The versions that somebody reads.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// With the number of readers of each.
    all: BTreeMap<Seq, usize>,
    /// Versions below are about to be given up.
    dropping_until: Seq,
}

/// The past indexes that are given up.
struct Dropped {
    until: Seq,
    indexes: Vec<Arc<PastIndex>>,
    values: Moved,
}

impl Change for Dropped {
    fn apply(&mut self, durable: &IndexMeta) -> (IndexMeta, Vec<Extent>) {
        let freed = self.indexes.iter().flat_map(|past| past.extents()).copied();
        (durable.clone(), freed.collect())
    }

    fn dropped_until(&self) -> Option<Seq> {
        Some(self.until)
    }

    fn values(&mut self) -> &mut Moved {
        &mut self.values
    }

    fn publish(&mut self, context: KindContext<'_>, _meta: &IndexMeta) {
        context.publish(|view| view.without_past(self.until));
    }
}

impl Index {
    /// Keeps a version readable until [`Index::unpin_version`] is called with it. Whether it is
    /// readable: it may have been given up.
    pub fn pin_version(&self, version: Seq) -> bool {
        let mut pins = self.pins.lock();
        if self.oldest_version().is_none_or(|oldest| version < oldest.max(pins.dropping_until)) {
            return false;
        }
        *pins.all.entry(version).or_insert(0) += 1;
        true
    }

    /// Keeps the oldest readable version as [`Index::pin_version`] does; `None` without history.
    pub fn pin_oldest(&self) -> Option<Seq> {
        let mut pins = self.pins.lock();
        let oldest = self.oldest_version()?.max(pins.dropping_until);
        *pins.all.entry(oldest).or_insert(0) += 1;
        Some(oldest)
    }

    /// Takes back what [`Index::pin_version`] did.
    pub fn unpin_version(&self, version: Seq) {
        let mut pins = self.pins.lock();
        if let Some(count) = pins.all.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                pins.all.remove(&version);
            }
        }
    }

    /// The version at which the last of those past indexes ends that only answer versions below
    /// `floor`, which nobody reads; `None` where there are none.
    fn droppable(&self, pins: &Pins, floor: Seq) -> Option<Seq> {
        let pinned = pins.all.keys().next().filter(|_| !planted::is(Bug::DroppedUnderPin));
        let readers = pinned.copied().into_iter().chain(self.env.snapshots.oldest());
        let floor = readers.fold(floor, Seq::min);
        let past = self.past();
        past.all().iter().map(|past| past.until).take_while(|until| *until <= floor).last()
    }

    /// Gives up the past indexes that only answer versions below `floor`, but for those that
    /// somebody reads. `values` returns the space of blobs that the past indexes up to a version
    /// have for themselves. Whether there were any.
    ///
    /// Cost: one record, and no read.
    ///
    /// # Errors
    /// Those of a record.
    pub fn drop_past(
        &self,
        floor: Seq,
        values: impl FnOnce(Seq) -> Vec<Extent>,
        commit: &mut Commit<'_>,
    ) -> Result<bool> {
        let is_alone = !planted::is(Bug::DroppedTwice);
        let none_is_rewritten = self.history.rewriting.try_lock();
        if is_alone && none_is_rewritten.is_none() {
            // What is not given up now is given up when the next flush or merge is done.
            return Ok(false);
        }
        let _alone = is_alone.then(|| (none_is_rewritten, self.starting.lock()));
        let until = {
            let mut pins = self.pins.lock();
            let Some(until) = self.droppable(&pins, floor) else { return Ok(false) };
            pins.dropping_until = until;
            until
        };
        let mut indexes = self.past_indexes();
        indexes.retain(|past| past.until <= until);
        let values = if planted::is(Bug::PastValuesKept) { Vec::new() } else { values(until) };
        let mut dropped = Dropped { until, indexes, values: Moved::of_dropped(&values) };
        let done = self.record(&mut dropped, commit);
        self.pins.lock().dropping_until = Seq(0);
        done.map(|()| true)
    }
}
