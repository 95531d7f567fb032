//! The places for adjacent units on a full device: free units that the device has space for and
//! holes can be neighbours, and space of the device can be moved to the holes from elsewhere.

use esker_format::ptr::Extent;

use super::Space;

impl Space {
    /// The lowest `units` adjacent units that are free, holes included. If there are none, units at
    /// the end of the file, some of them behind it.
    #[must_use]
    pub fn place(&self, units: u64) -> Extent {
        let mut runs: Vec<Extent> = self.free_runs().collect();
        runs.sort_unstable();
        let mut joined = Extent { start: 0, units: 0 };
        for run in runs {
            if run.start != joined.end() {
                joined = Extent { units: 0, ..run };
            }
            joined.units += run.units;
            if joined.units >= units {
                return Extent { units, ..joined };
            }
        }
        let start = if joined.end() == self.end { joined.start } else { self.end };
        Extent { start, units }
    }

    /// The holes within an extent, in order.
    #[must_use]
    pub fn holes_in(&self, extent: Extent) -> Vec<Extent> {
        let within = |hole: Extent| {
            let (start, end) = (hole.start.max(extent.start), hole.end().min(extent.end()));
            (start < end).then(|| Extent { start, units: end - start })
        };
        self.holes.runs().filter_map(within).collect()
    }

    /// The last free run that the device has space for, without the part of it in a
    /// [place](Space::place). No such run begins before the place and ends in it.
    #[must_use]
    pub fn last_backed_outside(&self, place: Extent) -> Option<Extent> {
        let outside = |(start, units): (&u64, &u64)| {
            let end = start + units;
            let start = if *start < place.start { *start } else { place.end().max(*start) };
            (start < end).then(|| Extent { start, units: end - start })
        };
        self.free.iter().rev().find_map(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn extent(start: u64, units: u64) -> Extent {
        Extent { start, units }
    }

    /// A file of 30 units with these in use, and these holes.
    fn space(used: &[Extent], holes: &[Extent]) -> Space {
        let mut space = Space::of(30, used.iter().copied()).unwrap();
        holes.iter().for_each(|hole| space.dig(*hole).unwrap());
        space
    }

    #[test]
    fn a_place_joins_holes_and_free_runs() {
        let space = space(&[extent(3, 1), extent(10, 20)], &[extent(4, 2), extent(8, 1)]);
        assert_eq!(space.place(4), extent(4, 4));
        assert_eq!(space.holes_in(extent(4, 5)), [extent(4, 2), extent(8, 1)]);
        assert_eq!(space.holes_in(extent(5, 1)), [extent(5, 1)]);
        assert_eq!(space.last_backed_outside(extent(4, 4)), Some(extent(9, 1)));
        assert_eq!(space.last_backed_outside(extent(4, 6)), Some(extent(0, 3)));
        assert_eq!(space.last_backed_outside(extent(0, 2)), Some(extent(9, 1)));
    }

    #[test]
    fn a_place_is_at_the_end_where_there_is_no_other() {
        let used = [extent(2, 25)];
        assert_eq!(space(&used, &[extent(28, 2)]).place(4), extent(27, 4));
        assert_eq!(space(&[extent(2, 28)], &[]).place(4), extent(30, 4));
        assert_eq!(Space::default().place(4), extent(0, 4));
        let all_free = space(&[], &[]);
        assert_eq!(all_free.place(40), extent(0, 40));
        assert_eq!(all_free.last_backed_outside(extent(0, 40)), None);
    }
}
