//! Freezing a memtable, for a flush or a merge.
//!
//! Freezing is a boundary in sequence numbers: under the lock that assigns sequence numbers, the
//! current memtable becomes an input and an empty one takes its place. So every operation is
//! entirely on one side of the boundary, and the frozen memtable never grows.

use std::sync::Arc;

use esker_format::ids::Seq;
use esker_substrate::blocks::Pot;
use esker_substrate::memtable::Leaves;
use esker_substrate::planted::{self, Race};
use esker_substrate::sync::atomic::Ordering;

use crate::read::source::Part;
use crate::{Gate, Index};

/// A memtable that no longer takes writes.
pub(crate) struct Frozen {
    pub leaves: Arc<Leaves>,
    /// The numbers that it holds: after the first, up to the second.
    pub numbers: (Seq, Seq),
    /// The space that is owed for it.
    pub pot: Arc<Pot>,
}

impl Index {
    /// Puts an empty memtable in the place of the current one, which `change` gives its place
    /// among the parts. `None`, and nothing done, if more than `data_bytes_max` are in it by then.
    pub(crate) fn freeze(
        &self,
        gate: &Gate<'_>,
        data_bytes_max: u64,
        change: &mut dyn FnMut(&Arc<Leaves>, &mut Vec<Part>),
    ) -> Option<Frozen> {
        let mut frozen = None;
        let no_barrier: &Gate<'_> = &|body| body();
        let gate = if planted::is(Race::FreezeWithoutBarrier) { no_barrier } else { gate };
        gate(&mut || {
            if self.active_data_bytes() > data_bytes_max {
                return;
            }
            let newest = self.newest_seq();
            self.referred_bytes.store(0, Ordering::Relaxed);
            let from = self.frozen_until.swap(newest.0, Ordering::Relaxed);
            let numbers = (Seq(from), newest.max(Seq(from)));
            let pot = self.pot();
            self.views.publish(|view| {
                let leaves = view.memtable.leaves_arc();
                let mut parts = view.parts.clone();
                change(&leaves, &mut parts);
                frozen = Some(Frozen { leaves, numbers, pot: Arc::clone(&pot) });
                view.with_parts(Arc::default(), parts)
            });
        });
        frozen
    }

    /// Payload of the memtable that is written to.
    pub(crate) fn active_data_bytes(&self) -> u64 {
        self.views.load().memtable.counts().data_bytes()
    }
}
