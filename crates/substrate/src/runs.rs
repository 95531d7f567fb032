//! Sets of units, as disjoint runs that are never adjacent: the space of blobs.
//!
//! Nothing is taken twice and nothing is freed that was not taken: such a call returns an error,
//! and leaves the set as it was.

use std::collections::BTreeMap;

use esker_format::ptr::Extent;

/// Units, joined where they are adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunSet {
    /// Start of a run → its length, in units.
    runs: BTreeMap<u64, u64>,
    units: u64,
}

/// Units that are taken twice, or freed without being taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit(pub Extent);

impl RunSet {
    /// The run that ends behind `unit` or later and begins at or before it.
    fn around(&self, unit: u64) -> Option<(u64, u64)> {
        let (start, length) = self.runs.range(..=unit).next_back()?;
        (start + length > unit).then_some((*start, *length))
    }

    /// Whether all of `extent` is in the set.
    #[must_use]
    pub fn contains(&self, extent: &Extent) -> bool {
        self.around(extent.start).is_some_and(|(start, length)| start + length >= extent.end())
    }

    /// Whether none of `extent` is in the set.
    #[must_use]
    pub fn is_disjoint(&self, extent: &Extent) -> bool {
        let before = self.runs.range(..extent.end()).next_back();
        before.is_none_or(|(start, length)| start + length <= extent.start)
    }

    /// The run that has a unit.
    #[must_use]
    pub fn run_at(&self, unit: u64) -> Option<Extent> {
        self.around(unit).map(|(start, units)| Extent { start, units })
    }

    /// Takes an extent in.
    ///
    /// # Errors
    /// When part of it is in the set already; nothing is changed then.
    pub fn insert(&mut self, extent: Extent) -> Result<(), Misfit> {
        if !self.is_disjoint(&extent) {
            return Err(Misfit(extent));
        }
        let Extent { mut start, mut units } = extent;
        if let Some((left, length)) = start.checked_sub(1).and_then(|unit| self.around(unit)) {
            self.runs.remove(&left);
            start = left;
            units += length;
        }
        units += self.runs.remove(&extent.end()).unwrap_or(0);
        self.runs.insert(start, units);
        self.units += extent.units;
        Ok(())
    }

    /// Takes what is not in the set yet of an extent in.
    pub fn include(&mut self, extent: Extent) {
        let mut from = extent.start;
        while from < extent.end() {
            if let Some((start, length)) = self.around(from) {
                from = start + length;
                continue;
            }
            let next = self.runs.range(from..extent.end()).next();
            let until = next.map_or(extent.end(), |(start, _)| *start);
            let _disjoint = self.insert(Extent { start: from, units: until - from });
            from = until;
        }
    }

    /// Takes an extent out.
    ///
    /// # Errors
    /// When part of it is not in the set; nothing is changed then.
    pub fn remove(&mut self, extent: Extent) -> Result<(), Misfit> {
        let Some((start, length)) = self.around(extent.start) else { return Err(Misfit(extent)) };
        let end = start + length;
        if end < extent.end() {
            return Err(Misfit(extent));
        }
        self.runs.remove(&start);
        if start < extent.start {
            self.runs.insert(start, extent.start - start);
        }
        if extent.end() < end {
            self.runs.insert(extent.end(), end - extent.end());
        }
        self.units -= extent.units;
        Ok(())
    }

    /// The runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = Extent> {
        self.runs.iter().map(|(start, units)| Extent { start: *start, units: *units })
    }

    /// The number of units in the set.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.units == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_units(
            ops in proptest::collection::vec((any::<bool>(), 0u64..40, 1u64..9), 0..200),
        ) {
            let (mut set, mut model) = (RunSet::default(), BTreeSet::new());
            for (takes, start, units) in ops {
                let extent = Extent { start, units };
                let all: Vec<u64> = (start..start + units).collect();
                let before = set.clone();
                let apart = all.iter().all(|unit| !model.contains(unit));
                let within = all.iter().all(|unit| model.contains(unit));
                prop_assert_eq!(set.is_disjoint(&extent), apart);
                prop_assert_eq!(set.contains(&extent), within);
                let done = if takes { set.insert(extent) } else { set.remove(extent) };
                if takes && apart {
                    model.extend(all);
                } else if !takes && within {
                    all.iter().for_each(|unit| { model.remove(unit); });
                } else {
                    prop_assert_eq!(done, Err(Misfit(extent)));
                    prop_assert_eq!(&set, &before);
                    continue;
                }
                prop_assert_eq!(done, Ok(()));
                let runs: Vec<Extent> = set.runs().collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].start));
                let found: BTreeSet<u64> =
                    runs.iter().flat_map(|run| run.start..run.end()).collect();
                prop_assert_eq!(&found, &model);
                prop_assert_eq!(set.units(), model.len() as u64);
            }
        }

        #[test]
        fn what_is_there_may_be_included_again(
            extents in proptest::collection::vec((0u64..40, 1u64..9), 0..20),
        ) {
            let (mut set, mut model) = (RunSet::default(), BTreeSet::new());
            for (start, units) in extents {
                set.include(Extent { start, units });
                model.extend(start..start + units);
            }
            let found: Vec<u64> = set.runs().flat_map(|run| run.start..run.end()).collect();
            prop_assert!(found.iter().eq(&model));
            prop_assert_eq!(set.units(), model.len() as u64);
        }
    }
}
