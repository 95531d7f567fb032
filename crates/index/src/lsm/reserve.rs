//! Which slices may use the reserve of a full device.
//!
//! A slice writes its new blocks before old space becomes free, so any slice may use the reserve
//! for that time. If the new blocks take more space than becomes free, which they do where they are
//! emptier than those of the runs, the difference is taken permanently. Values must not take the
//! reserve in this way: deletes would find none of it. So such a slice is refused, unless somebody
//! makes room.

use esker_format::ptr::Extent;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Bug};

use super::LsmIndex;
use super::choose::Slice;
use super::slice::Outcome;
use super::state::State;

impl LsmIndex<'_> {
    /// Refuses a slice that has been merged and would take the reserve permanently.
    ///
    /// # Errors
    /// `Full` in this case; nothing has changed.
    pub(super) fn refuse_growth(
        &self,
        state: &State,
        slice: &Slice,
        outcome: &Outcome,
    ) -> Result<()> {
        if slice.is_full() || self.may_use_reserve() || planted::is(Bug::ReserveMerged) {
            return Ok(());
        }
        if self.env.blocks.keeps_reserve(freed_units(state, outcome)) {
            return Ok(());
        }
        Err(Error::Full { what: "more values (the rest is kept for deletes)".into() })
    }
}

/// The units that become free when a slice is recorded, as soon as no reader needs them.
fn freed_units(state: &State, outcome: &Outcome) -> u64 {
    let of_levels = outcome.given_up().map(|extent| extent.units).sum::<u64>();
    let runs = state.durable.sorted_runs.iter().rev().zip(outcome.runs.iter().rev());
    let of_runs = runs.map(|(meta, spent)| {
        let units = |extents: &[Extent]| extents.iter().map(|extent| extent.units).sum::<u64>();
        if spent.run.gone.is_everything() {
            let all: u64 = meta.extents().map(|extent| extent.units).sum();
            all.saturating_sub(units(&spent.moved))
        } else {
            units(&spent.freed)
        }
    });
    of_levels + of_runs.sum::<u64>()
}
