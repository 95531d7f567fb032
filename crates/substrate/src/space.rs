//! Space in the data file: which units are free, and which must not be reused yet.
//!
//! Every unit of the file is in exactly one of four states: *used* (named by a tree, by a merge in
//! progress, or by the manifest as a blob's), *uncommitted* (of a blob that is being
//! written, or that only the log refers to), *in quarantine* (`retired`: freed, but the durable
//! manifest may still name it), *free*. Free space is either allocated by the device or a *hole*: a
//! hole has to be allocated before it is used.
//!
//! Thread safety: callers hold the owner's lock; the structure itself is plain data.
//! Invariant (disjoint runs): free runs are disjoint, not empty, end at or before `end`, and are
//! never adjacent, except for a hole next to one that is not a hole.
//! Invariant: extents in quarantine and uncommitted extents are disjoint from free runs and from
//! each other.
//! Invariant: an extent in quarantine becomes free only through [`Space::release`], which is called
//! when a manifest that does not name it is durable.

mod place;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use esker_format::ptr::Extent;

use crate::runs::RunSet;

/// Free and retired space of one data file.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Start of a free run that the device has space for → its length, in units.
    free: BTreeMap<u64, u64>,
    free_units: u64,
    /// Free units that the device may have no space for.
    holes: RunSet,
    /// The device may have space for holes: what an earlier run gave back to it is not known.
    holes_unknown: bool,
    /// Start of an extent in quarantine → its length, in units.
    retired: BTreeMap<u64, u64>,
    /// Start of an uncommitted extent → its length, in units.
    uncommitted: BTreeMap<u64, u64>,
    /// Free units that are kept for merges under way.
    reserved_units: u64,
    /// Units of the file.
    end: u64,
}

/// Two owners claim the same units, or units are freed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap(pub Extent);

impl Space {
    /// The space of a file of `end` units of which `used` extents are taken.
    ///
    /// # Errors
    /// When two extents overlap or one reaches past the file.
    pub fn of(end: u64, used: impl IntoIterator<Item = Extent>) -> Result<Self, Overlap> {
        let mut used: Vec<Extent> = used.into_iter().collect();
        used.sort_unstable();
        let mut space = Self { end, ..Self::default() };
        let mut next = 0;
        for extent in used {
            if extent.start < next || extent.end() > end {
                return Err(Overlap(extent));
            }
            space.insert_free(next, extent.start - next);
            next = extent.end();
        }
        space.insert_free(next, end - next);
        Ok(space)
    }

    fn insert_free(&mut self, start: u64, units: u64) {
        if units > 0 {
            self.free.insert(start, units);
            self.free_units += units;
        }
    }

    /// Takes `units` adjacent units at the lowest possible place, so that the file's end can become
    /// free. `None` when the file must grow.
    pub fn allocate(&mut self, units: u64) -> Option<Extent> {
        self.allocate_gap(&(units..=units))
    }

    /// Takes the lowest place with space for the least of `units`, and then up to the most of
    /// `units`, as far as they are free there. `None` when the file must grow.
    pub fn allocate_gap(&mut self, units: &RangeInclusive<u64>) -> Option<Extent> {
        self.allocate_at(self.lowest(*units.start())?, units)
    }

    /// The lowest place with space for `units` units. `None` when the file must grow.
    #[must_use]
    pub fn lowest(&self, units: u64) -> Option<u64> {
        self.free.iter().find(|(_, length)| **length >= units).map(|(start, _)| *start)
    }

    /// Takes the beginning of the free run at `start`: the most of `units`, as far as they are
    /// free. `None` when no free run begins there that has the least of `units`.
    pub fn allocate_at(&mut self, start: u64, units: &RangeInclusive<u64>) -> Option<Extent> {
        let length = *self.free.get(&start).filter(|length| **length >= *units.start())?;
        self.free.remove(&start);
        self.free_units -= length;
        let taken = length.min(*units.end());
        self.insert_free(start + taken, length - taken);
        Some(Extent { start, units: taken })
    }

    /// Adds `units` free units at the end of the file.
    pub fn grow(&mut self, units: u64) {
        let start = self.end;
        self.end += units;
        // Growth cannot overlap: nothing is behind the end.
        let _joined = self.give_back(Extent { start, units });
    }

    /// Returns an extent that no durable manifest names.
    ///
    /// # Errors
    /// When part of it is free already; nothing is changed then.
    pub fn give_back(&mut self, extent: Extent) -> Result<(), Overlap> {
        let before = self.free.range(..extent.end()).next_back().map(|(s, l)| (*s, *l));
        if before.is_some_and(|(start, length)| start + length > extent.start)
            || extent.end() > self.end
            || !self.holes.is_disjoint(&extent)
        {
            return Err(Overlap(extent));
        }
        let mut start = extent.start;
        let mut units = extent.units;
        if let Some((left, length)) = before
            && left + length == extent.start
        {
            self.free.remove(&left);
            self.free_units -= length;
            start = left;
            units += length;
        }
        if let Some(length) = self.free.remove(&extent.end()) {
            self.free_units -= length;
            units += length;
        }
        self.insert_free(start, units);
        Ok(())
    }

    /// Notes that an extent which was allocated is a value's that no durable record names.
    pub fn mark_uncommitted(&mut self, extent: Extent) {
        self.uncommitted.insert(extent.start, extent.units);
    }

    /// Commits an extent: it belongs to a record from now on, or to the owner that the caller gives
    /// it to.
    ///
    /// # Errors
    /// When it was not uncommitted.
    pub fn commit(&mut self, extent: Extent) -> Result<(), Overlap> {
        if self.uncommitted.get(&extent.start) != Some(&extent.units) {
            return Err(Overlap(extent));
        }
        self.uncommitted.remove(&extent.start);
        Ok(())
    }

    /// Takes an extent out of the free space as uncommitted: recovery has found it.
    ///
    /// # Errors
    /// When part of it is not free.
    pub fn claim(&mut self, extent: Extent) -> Result<(), Overlap> {
        // It has been written, regardless of what is known of the space around it.
        if self.holes.remove(extent).is_err() {
            self.cut_free(extent)?;
        }
        self.mark_uncommitted(extent);
        Ok(())
    }

    /// Takes an extent out of one free run.
    fn cut_free(&mut self, extent: Extent) -> Result<(), Overlap> {
        let around = self.free.range(..=extent.start).next_back().map(|(s, l)| (*s, *l));
        let Some((start, length)) = around.filter(|(start, length)| start + length >= extent.end())
        else {
            return Err(Overlap(extent));
        };
        self.free.remove(&start);
        self.free_units -= length;
        self.insert_free(start, extent.start - start);
        self.insert_free(extent.end(), start + length - extent.end());
        Ok(())
    }

    /// Notes that the device has no space for a part of a free run any more.
    ///
    /// # Errors
    /// When not all of it is free, or part of it is a hole already; nothing is changed then.
    pub fn dig(&mut self, extent: Extent) -> Result<(), Overlap> {
        self.cut_free(extent)?;
        self.holes.insert(extent).map_err(|_| Overlap(extent))
    }

    /// Turns all free space into holes: whether the device has allocated it is not known until
    /// [`Space::note_discarded`].
    pub fn dig_all(&mut self) {
        self.holes_unknown = true;
        for (start, units) in std::mem::take(&mut self.free) {
            // Free runs are disjoint.
            let _known = self.holes.insert(Extent { start, units });
        }
        self.free_units = 0;
    }

    /// The holes that the device may have space for.
    pub fn unknown_holes(&self) -> impl Iterator<Item = Extent> {
        self.holes.runs().filter(|_| self.holes_unknown)
    }

    /// Notes that the device has no space for any hole.
    pub const fn note_discarded(&mut self) {
        self.holes_unknown = false;
    }

    /// Notes that the device has space for a part of a hole.
    ///
    /// # Errors
    /// When it is none; nothing is changed then.
    pub fn fill(&mut self, extent: Extent) -> Result<(), Overlap> {
        self.holes.remove(extent).map_err(|_| Overlap(extent))?;
        self.give_back(extent)
    }

    /// The first hole, or `units` units of it; `None` when there is none.
    #[must_use]
    pub fn hole(&self, units: u64) -> Option<Extent> {
        let hole = self.holes.runs().next()?;
        Some(Extent { units: hole.units.min(units), ..hole })
    }

    /// Uncommitted extents, in order.
    pub fn uncommitted(&self) -> impl Iterator<Item = Extent> {
        self.uncommitted.iter().map(|(start, units)| Extent { start: *start, units: *units })
    }

    /// Puts an extent into quarantine.
    ///
    /// # Errors
    /// When it is there already.
    pub fn retire(&mut self, extent: Extent) -> Result<(), Overlap> {
        match self.retired.insert(extent.start, extent.units) {
            None => Ok(()),
            Some(_) => Err(Overlap(extent)),
        }
    }

    /// Frees an extent in quarantine: no durable manifest names it and it has no readers.
    ///
    /// # Errors
    /// When it is not in quarantine, or already free.
    pub fn release(&mut self, extent: Extent) -> Result<(), Overlap> {
        if self.retired.remove(&extent.start) != Some(extent.units) {
            return Err(Overlap(extent));
        }
        self.give_back(extent)
    }

    /// Reserves this many free units, as far as there are any.
    pub const fn reserve(&mut self, units: u64) {
        self.reserved_units = self.reserved_units.saturating_add(units);
    }

    /// Gives a reservation up.
    pub const fn unreserve(&mut self, units: u64) {
        self.reserved_units = self.reserved_units.saturating_sub(units);
    }

    /// Free units that are reserved.
    #[must_use]
    pub const fn reserved_units(&self) -> u64 {
        self.reserved_units
    }

    /// The free units at the end of the file, and how many of them are no holes.
    #[must_use]
    pub fn tail(&self) -> (u64, u64) {
        let (mut from, mut backed) = (self.end, 0);
        while let Some((run, is_hole)) = self.free_before(from) {
            from = run.start;
            backed += if is_hole { 0 } else { run.units };
        }
        (self.end - from, backed)
    }

    /// The free run that ends at a unit, and whether it is a hole.
    fn free_before(&self, end: u64) -> Option<(Extent, bool)> {
        let run = self.free.range(..end).next_back().map(|(start, units)| (*start, *units));
        let run = run.filter(|(start, units)| start + units == end);
        if let Some((start, units)) = run {
            return Some((Extent { start, units }, false));
        }
        let unit = end.checked_sub(1)?;
        let hole = self.holes.run_at(unit).filter(|hole| hole.end() == end)?;
        Some((hole, true))
    }

    /// Cuts free units off the end of the file: all of them, or `units` if that is less.
    pub fn trim_end(&mut self, units: u64) {
        let mut left = units;
        while left > 0
            && let Some((run, is_hole)) = self.free_before(self.end)
        {
            let cut = run.units.min(left);
            let gone = Extent { start: run.end() - cut, units: cut };
            // It was just found.
            let _found = if is_hole {
                self.holes.remove(gone).map_err(|_| Overlap(gone))
            } else {
                self.cut_free(gone)
            };
            self.end -= cut;
            left -= cut;
        }
    }

    /// Free runs, the holes behind the others.
    pub fn free_runs(&self) -> impl Iterator<Item = Extent> {
        self.backed_runs().chain(self.holes.runs())
    }

    /// The last free run that the device has space for.
    #[must_use]
    pub fn last_backed_run(&self) -> Option<Extent> {
        self.free.last_key_value().map(|(start, units)| Extent { start: *start, units: *units })
    }

    /// Free runs that the device has space for, in order.
    pub fn backed_runs(&self) -> impl Iterator<Item = Extent> {
        self.free.iter().map(|(start, units)| Extent { start: *start, units: *units })
    }

    /// Units in quarantine.
    #[must_use]
    pub fn retired_units(&self) -> u64 {
        self.retired.values().sum()
    }

    /// Extents in quarantine, in order.
    pub fn retired(&self) -> impl Iterator<Item = Extent> {
        self.retired.iter().map(|(start, units)| Extent { start: *start, units: *units })
    }

    /// Free units.
    #[must_use]
    pub const fn free_units(&self) -> u64 {
        self.free_units + self.holes.units()
    }

    /// Free units that the device has space for.
    #[must_use]
    pub const fn backed_units(&self) -> u64 {
        self.free_units
    }

    /// Units of the file.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The state of each unit of the file, as a simple model.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Unit {
        Free,
        Hole,
        Used,
        Retired,
    }

    const fn is_free(unit: Unit) -> bool {
        matches!(unit, Unit::Free | Unit::Hole)
    }

    proptest! {
        #[test]
        fn agrees_with_a_map_of_units(ops in proptest::collection::vec((0u8..8, 1u64..9), 1..200)) {
            let mut space = Space::default();
            let mut units: Vec<Unit> = Vec::new();
            let mut used: Vec<Extent> = Vec::new();
            for (op, size) in ops {
                match op {
                    0 | 1 => match space.allocate_gap(&(size.div_ceil(u64::from(op) + 1)..=size)) {
                        Some(extent) => {
                            let least = size.div_ceil(u64::from(op) + 1);
                            prop_assert!((least..=size).contains(&extent.units));
                            for unit in extent.start..extent.end() {
                                prop_assert_eq!(units[unit as usize], Unit::Free);
                                units[unit as usize] = Unit::Used;
                            }
                            used.push(extent);
                        }
                        None => {
                            space.grow(size);
                            units.extend((0..size).map(|_| Unit::Free));
                        }
                    },
                    7 => {
                        let behind = |space: &Space, extent: &Extent| {
                            space.clone().allocate_at(extent.end(), &(1..=size))
                        };
                        let found = used.iter().find_map(|last| behind(&space, last));
                        let runs: Vec<Extent> = space.backed_runs().collect();
                        let begins = |last: &Extent| runs.iter().any(|run| run.start == last.end());
                        prop_assert_eq!(found.is_some(), used.iter().any(begins));
                        if let Some(found) = found {
                            let extent = space.allocate_at(found.start, &(1..=size)).unwrap();
                            let taken = extent.start as usize..extent.end() as usize;
                            prop_assert!(units[taken.clone()].iter().all(|u| *u == Unit::Free));
                            prop_assert!(
                                extent.units == size || units.get(taken.end) != Some(&Unit::Free)
                            );
                            units[taken].fill(Unit::Used);
                            used.push(extent);
                        }
                    }
                    2 if !used.is_empty() => {
                        let extent = used.swap_remove(size as usize % used.len());
                        space.give_back(extent).unwrap();
                        prop_assert_eq!(space.clone().give_back(extent), Err(Overlap(extent)));
                        units[extent.start as usize..extent.end() as usize].fill(Unit::Free);
                    }
                    3 if !used.is_empty() => {
                        let extent = used.swap_remove(size as usize % used.len());
                        space.retire(extent).unwrap();
                        prop_assert!(space.clone().retire(extent).is_err());
                        units[extent.start as usize..extent.end() as usize].fill(Unit::Retired);
                    }
                    4 => {
                        let retired: Vec<_> = space.retired().collect();
                        for extent in retired {
                            space.release(extent).unwrap();
                            prop_assert!(space.clone().release(extent).is_err());
                        }
                        let retired = units.iter_mut().filter(|unit| **unit == Unit::Retired);
                        retired.for_each(|unit| *unit = Unit::Free);
                        let is_used = |unit: &Unit| !is_free(*unit);
                        let used = units.iter().rposition(is_used).map_or(0, |at| at + 1);
                        let tail = units.len() - used;
                        let backed = units[used..].iter().filter(|unit| **unit == Unit::Free);
                        prop_assert_eq!(space.tail(), (tail as u64, backed.count() as u64));
                        space.trim_end(size);
                        units.truncate(units.len() - tail.min(size as usize));
                    }
                    5 => if let Some(run) = space.last_backed_run() {
                        let hole = Extent { start: run.end() - size.min(run.units), ..run };
                        let hole = Extent { units: run.end() - hole.start, ..hole };
                        space.dig(hole).unwrap();
                        prop_assert!(space.clone().dig(hole).is_err());
                        prop_assert!(space.clone().give_back(hole).is_err());
                        units[hole.start as usize..hole.end() as usize].fill(Unit::Hole);
                    },
                    6 => if let Some(hole) = space.hole(size) {
                        space.fill(hole).unwrap();
                        prop_assert!(space.clone().fill(hole).is_err());
                        units[hole.start as usize..hole.end() as usize].fill(Unit::Free);
                    },
                    _ => {}
                }
                let count = |of: Unit| units.iter().filter(|unit| **unit == of).count() as u64;
                prop_assert_eq!(space.free_units(), count(Unit::Free) + count(Unit::Hole));
                prop_assert_eq!(space.backed_units(), count(Unit::Free));
                prop_assert_eq!(space.end(), units.len() as u64);
                let runs: Vec<Extent> = space.backed_runs().collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].start));
                for run in space.free_runs() {
                    let free = &units[run.start as usize..run.end() as usize];
                    prop_assert!(free.iter().all(|unit| is_free(*unit)));
                }
            }
        }
    }

    #[test]
    fn a_gap_is_the_first_with_room_for_the_least() {
        let extent = |start, units| Extent { start, units };
        let mut space = Space::of(40, [extent(3, 1), extent(9, 1), extent(30, 10)]).unwrap();
        assert_eq!(space.allocate_gap(&(4..=10)), Some(extent(4, 5)), "behind one of three units");
        assert_eq!(space.allocate_gap(&(4..=10)), Some(extent(10, 10)), "no more than asked for");
        assert_eq!(space.allocate_gap(&(11..=20)), None);
        assert_eq!(space.free_runs().collect::<Vec<_>>(), [extent(0, 3), extent(20, 10)]);
    }

    #[test]
    fn what_recovery_finds_is_claimed_once() {
        let extent = |start, units| Extent { start, units };
        let mut space = Space::of(20, [extent(0, 4)]).unwrap();
        space.claim(extent(6, 3)).unwrap();
        for bad in [extent(6, 3), extent(8, 2), extent(2, 4), extent(18, 3), extent(0, 1)] {
            assert_eq!(space.claim(bad), Err(Overlap(bad)));
        }
        assert_eq!(space.free_runs().collect::<Vec<_>>(), [extent(4, 2), extent(9, 11)]);
        assert_eq!((space.free_units(), space.uncommitted().count()), (13, 1));
        assert!(space.commit(extent(6, 2)).is_err() && space.commit(extent(4, 2)).is_err());
        space.commit(extent(6, 3)).unwrap();
        assert!(space.commit(extent(6, 3)).is_err());
        space.give_back(extent(6, 3)).unwrap();
        assert_eq!(space.free_units(), 16);
    }

    #[test]
    fn overlapping_owners_are_refused() {
        let extent = |start, units| Extent { start, units };
        assert!(Space::of(10, [extent(0, 4), extent(3, 2)]).is_err());
        assert!(Space::of(10, [extent(8, 4)]).is_err());
        let space = Space::of(10, [extent(6, 2), extent(0, 4)]).unwrap();
        assert_eq!(space.free_runs().collect::<Vec<_>>(), [extent(4, 2), extent(8, 2)]);
    }
}
