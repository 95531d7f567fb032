//! Allocation: adjacent units for a block, or for several.

use esker_device::Purpose;
use esker_format::ptr::Extent;

use super::room::Pot;
use super::{BlockStore, full};
use crate::error::{Error, Result};
use crate::space::Space;

/// An extent may be shorter by this factor where the free space is fragmented.
pub const PIECES: u64 = 8;
/// Units of the shortest gap that blocks are written to which have their units to themselves:
/// merges of such blocks leave many short ones.
const GAP_UNITS: u64 = 8;

/// A number of units, half of it, and so on, to one.
fn halves(units: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(units), |units| Some(units / 2)).take_while(|units| *units > 0)
}

impl BlockStore {
    /// Takes `units` adjacent units. It takes fewer, but at least `least`, if otherwise the file
    /// would grow while there is free space in smaller pieces, or concurrent writers would find
    /// none. Space owed to memtables is left to them; `pot` is the caller's part of it.
    ///
    /// # Errors
    /// [`Error::Full`] when the device is full; nothing has changed in this case.
    pub fn allocate(
        &self,
        units: u64,
        least: u64,
        purpose: Purpose,
        pot: Option<&Pot>,
    ) -> Result<Extent> {
        let least = least.max(1);
        let take = |space: &mut Space, spare: u64, shortest: u64| {
            let longer = halves(units).take_while(|units| *units > least && *units >= shortest);
            let last = (shortest <= least).then_some(least);
            let most = self.room.most(spare, least, purpose);
            longer
                .chain(last)
                .filter(|units| *units <= most)
                .find_map(|units| space.allocate(units))
        };
        self.take_extent(units, least.max(units / PIECES), least, (purpose, pot), take)
    }

    /// Takes `units` units behind `last`, or fewer, but at least `least`, so that blocks may be on
    /// both sides of its end. `None` where these are not free, and where [`BlockStore::allocate`]
    /// would find a long extent at a lower place or a longer one.
    pub fn allocate_behind(
        &self,
        last: Extent,
        units: u64,
        least: u64,
        purpose: Purpose,
        pot: Option<&Pot>,
    ) -> Option<Extent> {
        let mut space = self.held();
        let spare = space.backed_units().saturating_sub(self.kept_from(&space, purpose, pot));
        let most = self.room.most(spare, least, purpose).min(units);
        let shortest = least.max(units / PIECES);
        let mut good = halves(units).filter(|half| *half >= shortest && *half <= most);
        let place = good.find_map(|half| Some((half, space.lowest(half)?)));
        let most = match place {
            Some((_, start)) if start != last.end() => return None,
            Some((half, _)) => half,
            None => most,
        };
        let extent =
            if most < least { None } else { space.allocate_at(last.end(), &(least..=most)) };
        if let (Some(extent), Some(pot)) = (extent, pot) {
            pot.take(extent.units);
        }
        extent
    }

    /// Takes as many adjacent units as the first gap has, at most the number that is asked for.
    /// Space owed to memtables is left to them; `pot` is the caller's part of it.
    ///
    /// # Errors
    /// Those of [`BlockStore::allocate`].
    pub fn allocate_gap(
        &self,
        units: u64,
        least: u64,
        purpose: Purpose,
        pot: Option<&Pot>,
    ) -> Result<Extent> {
        let least = least.max(1);
        let take = |space: &mut Space, spare: u64, shortest: u64| {
            let most = self.room.most(spare, least, purpose).min(units);
            if most < shortest { None } else { space.allocate_gap(&(shortest..=most)) }
        };
        self.take_extent(units, least.max(GAP_UNITS.min(units)), least, (purpose, pot), take)
    }

    /// Takes an extent with `take`: of at least `good` units of the spare space, or of `least`
    /// where the file cannot grow.
    fn take_extent(
        &self,
        units: u64,
        good: u64,
        least: u64,
        (purpose, pot): (Purpose, Option<&Pot>),
        take: impl Fn(&mut Space, u64, u64) -> Option<Extent>,
    ) -> Result<Extent> {
        let mut space = self.held();
        let kept = self.kept_from(&space, purpose, pot);
        let take = |space: &mut Space, shortest| {
            let spare = space.backed_units().saturating_sub(kept);
            take(space, spare, shortest)
        };
        let found = match take(&mut space, good) {
            Some(extent) => Ok(extent),
            None => self.make_gap(&mut space, (kept, units), purpose, |space| take(space, good)),
        };
        let extent = match found {
            Err(Error::Full { .. }) => {
                self.take_least(&mut space, (kept, least), purpose, |space| take(space, least))?
            }
            found => found?,
        };
        pot.into_iter().for_each(|pot| pot.take(extent.units));
        Ok(extent)
    }

    /// Takes space of the device for `units` in addition to the kept space, until `take` finds an
    /// extent.
    fn make_gap(
        &self,
        space: &mut Space,
        (kept, units): (u64, u64),
        purpose: Purpose,
        take: impl Fn(&mut Space) -> Option<Extent>,
    ) -> Result<Extent> {
        let missing = kept.saturating_add(units).saturating_sub(space.backed_units());
        if missing > 0 {
            self.fill_or_grow(space, missing, purpose)?;
            if let Some(extent) = take(space) {
                return Ok(extent);
            }
        }
        // There is enough, in pieces that are too small.
        self.grow_by_some(space, units, purpose)?;
        take(space).ok_or_else(|| full(units))
    }

    /// Takes the shortest extent that is long enough, `least` units. Where the device has no more
    /// space and the free units are not adjacent, they are made so.
    fn take_least(
        &self,
        space: &mut Space,
        (kept, least): (u64, u64),
        purpose: Purpose,
        take: impl Fn(&mut Space) -> Option<Extent>,
    ) -> Result<Extent> {
        if let Some(extent) = take(space) {
            return Ok(extent);
        }
        match self.make_gap(space, (kept, least), purpose, &take) {
            Err(Error::Full { .. }) if space.backed_units() >= kept.saturating_add(least) => {
                self.join_free(space, least, purpose)?;
                take(space).ok_or_else(|| full(least))
            }
            made => made,
        }
    }

    /// Free units that the given purpose may not use.
    fn kept_from(&self, space: &Space, purpose: Purpose, pot: Option<&Pot>) -> u64 {
        let owed = self.room.owed_to_others(pot);
        match purpose {
            Purpose::Flush => owed,
            Purpose::Merge => owed.saturating_add(self.room.kept_from_merges()),
            _ => owed.saturating_add(self.room.reserve(space)),
        }
    }
}
