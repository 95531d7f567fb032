//! The slices that may use the reserve of a full device.
//!
//! A slice writes its new blocks before old space becomes free, so any slice may use the reserve
//! for that time. If the new blocks take more space than becomes free, which they do where they are
//! emptier than those of the runs, the difference is taken permanently. Values must not take the
//! reserve in this way: deletes would find none of it. So such a slice is refused, unless a caller
//! makes room.

use esker_format::ptr::Extent;
use esker_substrate::error::Error;
use esker_substrate::planted::{self, Bug};

use super::LsmIndex;
use super::slice::Outcome;
use super::state::State;
use crate::build::level_writer::OwnUnits;
use crate::lsm::choose::slice::Slice;

impl LsmIndex<'_> {
    /// How well a slice fills its blocks. While a caller makes room on a full device, a level must
    /// not take more space than the runs that are merged into it.
    pub(super) fn own_units(&self) -> OwnUnits {
        if !self.may_use_reserve() || planted::is(Bug::FullLevelsNotPacked) {
            return OwnUnits::Level;
        }
        if self.blocks().keeps_reserve(0) { OwnUnits::Level } else { OwnUnits::FullDevice }
    }

    /// Whether a slice that has been merged is refused, because it would take the reserve
    /// permanently.
    pub(super) fn is_refused(&self, state: &State, slice: &Slice, outcome: &Outcome) -> bool {
        if slice.is_full() || self.may_use_reserve() || planted::is(Bug::ReserveMerged) {
            return false;
        }
        let freed = freed_units(state, outcome);
        freed < units(outcome.taken()) && !self.blocks().keeps_reserve(freed)
    }
}

/// The error with which a refused slice stops a job.
pub(super) fn refusal() -> Error {
    Error::Full { what: "more values (the rest is kept for deletes)".into() }
}

/// The units that become free when a slice is recorded, as soon as no reader needs them.
fn freed_units(state: &State, outcome: &Outcome) -> u64 {
    let runs = state.durable.sorted_runs.iter().rev().zip(outcome.runs.iter().rev());
    let of_runs = runs.map(|(meta, spent)| {
        if spent.run.consumed.is_everything() {
            let all = units(meta.extents().copied());
            all.saturating_sub(units(spent.moved.iter().copied()))
        } else {
            units(spent.freed.iter().copied())
        }
    });
    units(outcome.freed().copied()) + units(outcome.dropped_blobs()) + of_runs.sum::<u64>()
}

fn units(extents: impl IntoIterator<Item = Extent>) -> u64 {
    extents.into_iter().map(|extent| extent.units).sum()
}
