//! Space in the data file: which units are free, and which must not be reused yet.
//!
//! Every unit of the file is in exactly one of four states: *used* (named by a tree, by a merge in
//! progress, or by the manifest as a value's), *loose* (of a value that is being written, or that
//! the
//! log alone refers to), *retired* (given up, but the durable manifest may still name it), *free*.
//!
//! Thread safety: callers hold the owner's lock; the structure itself is plain data.
//! Invariant P1: free runs are disjoint, not empty, never adjacent, and end at or before `end`.
//! Invariant P2: retired and loose extents are disjoint from free runs and from each other.
//! Invariant P3: a retired extent becomes free only through [`Space::release`], which is
//! called when a manifest that does not name it is durable.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use esker_format::ptr::Extent;

/// Free and retired space of one data file.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Start of a free run → its length, in units.
    free: BTreeMap<u64, u64>,
    free_units: u64,
    /// Start of an extent in quarantine → its length, in units.
    retired: BTreeMap<u64, u64>,
    /// Start of a loose extent → its length, in units.
    loose: BTreeMap<u64, u64>,
    /// Free units that are kept for merges under way.
    reserved_units: u64,
    /// Units of the file.
    end: u64,
}

/// Two owners claim the same units, or units are given back twice.
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

    /// Takes `units` adjacent units: the lowest place that has room, so that the file's end can
    /// fall free. `None` when the file must grow.
    pub fn allocate(&mut self, units: u64) -> Option<Extent> {
        self.allocate_gap(&(units..=units))
    }

    /// Takes the lowest place that has room for the least of `units`, and as many as it has of
    /// them. `None` when the file must grow.
    pub fn allocate_gap(&mut self, units: &RangeInclusive<u64>) -> Option<Extent> {
        let (&start, &length) = self.free.iter().find(|(_, length)| **length >= *units.start())?;
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
        // Growth cannot overlap: nothing lies behind the end.
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
    pub fn loosen(&mut self, extent: Extent) {
        self.loose.insert(extent.start, extent.units);
    }

    /// The extent is a record's from now on, or whoever's the caller gives it to.
    ///
    /// # Errors
    /// When it was not loose.
    pub fn fasten(&mut self, extent: Extent) -> Result<(), Overlap> {
        if self.loose.get(&extent.start) != Some(&extent.units) {
            return Err(Overlap(extent));
        }
        self.loose.remove(&extent.start);
        Ok(())
    }

    /// Takes a loose extent out of the free space: recovery has found it.
    ///
    /// # Errors
    /// When part of it is not free.
    pub fn claim(&mut self, extent: Extent) -> Result<(), Overlap> {
        let around = self.free.range(..=extent.start).next_back().map(|(s, l)| (*s, *l));
        let Some((start, length)) = around.filter(|(start, length)| start + length >= extent.end())
        else {
            return Err(Overlap(extent));
        };
        self.free.remove(&start);
        self.free_units -= length;
        self.insert_free(start, extent.start - start);
        self.insert_free(extent.end(), start + length - extent.end());
        self.loosen(extent);
        Ok(())
    }

    /// Loose extents, in order.
    pub fn loose(&self) -> impl Iterator<Item = Extent> {
        self.loose.iter().map(|(start, units)| Extent { start: *start, units: *units })
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

    /// Frees an extent in quarantine: no durable manifest names it and nobody reads it.
    ///
    /// # Errors
    /// When it is not in quarantine, or free already.
    pub fn release(&mut self, extent: Extent) -> Result<(), Overlap> {
        if self.retired.remove(&extent.start) != Some(extent.units) {
            return Err(Overlap(extent));
        }
        self.give_back(extent)
    }

    /// Keeps so many free units for whoever reserves them, as far as there are any.
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

    /// The free units at the end of the file.
    #[must_use]
    pub fn tail_units(&self) -> u64 {
        let last = self.free.last_key_value();
        last.filter(|(start, length)| **start + **length == self.end).map_or(0, |last| *last.1)
    }

    /// Cuts free units off the end of the file, as many as there are or `units` if that is less.
    pub fn trim_end(&mut self, units: u64) {
        let (tail, cut) = (self.tail_units(), units.min(self.tail_units()));
        if cut > 0 {
            self.free.remove(&(self.end - tail));
            self.free_units -= tail;
            self.insert_free(self.end - tail, tail - cut);
            self.end -= cut;
        }
    }

    /// Free runs in order.
    pub fn free_runs(&self) -> impl Iterator<Item = Extent> {
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

    /// What each unit of the file is, the slow and obvious way.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Unit {
        Free,
        Used,
        Retired,
    }

    proptest! {
        #[test]
        fn agrees_with_a_map_of_units(ops in proptest::collection::vec((0u8..5, 1u64..9), 1..200)) {
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
                        let is_used = |unit: &Unit| *unit != Unit::Free;
                        let used = units.iter().rposition(is_used).map_or(0, |at| at + 1);
                        let tail = units.len() - used;
                        prop_assert_eq!(space.tail_units(), tail as u64);
                        space.trim_end(size);
                        units.truncate(units.len() - tail.min(size as usize));
                    }
                    _ => {}
                }
                let free = units.iter().filter(|unit| **unit == Unit::Free).count() as u64;
                prop_assert_eq!(space.free_units(), free);
                prop_assert_eq!(space.end(), units.len() as u64);
                let runs: Vec<Extent> = space.free_runs().collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].start));
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
        assert_eq!((space.free_units(), space.loose().count()), (13, 1));
        assert!(space.fasten(extent(6, 2)).is_err() && space.fasten(extent(4, 2)).is_err());
        space.fasten(extent(6, 3)).unwrap();
        assert!(space.fasten(extent(6, 3)).is_err());
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
