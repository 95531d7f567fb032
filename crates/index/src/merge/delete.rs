//! m-delete: frees the space of the old levels that the wavefront has passed.
//!
//! A block of an old level is unreachable when the first key of the block behind it is at or before
//! the wavefront; the last block of a level when the merge is done. The blocks of a level are in
//! its extents in the order in which they were written, which is key order: everything in front of
//! the first block still needed can be freed. The space is reusable when two more conditions hold:
//! every older view has been dropped, and a durable record of the merge no longer names it.

use esker_format::ptr::{Extent, UNIT_BYTES};

/// Splits a level's extents at the first block still needed, at `needed_from` bytes of the data
/// file: what goes, and what stays. An offset in none of them keeps them all.
#[must_use]
pub fn split(extents: &[Extent], needed_from: u64) -> (Vec<Extent>, Vec<Extent>) {
    let unit = needed_from / UNIT_BYTES;
    let holds = |extent: &Extent| (extent.start..extent.end()).contains(&unit);
    let Some(index) = extents.iter().position(holds) else {
        return (Vec::new(), extents.to_vec());
    };
    let (mut passed, mut rest) = (extents.to_vec(), Vec::new());
    rest.extend(passed.drain(index..));
    if let Some(first) = rest.first_mut() {
        let units = unit - first.start;
        if units > 0 {
            passed.push(Extent { start: first.start, units });
            *first = Extent { start: unit, units: first.units - units };
        }
    }
    (passed, rest)
}

/// The parts of `extents` that are not in `kept`, in the order of `extents`: space that a merge
/// takes over as it is ([`preserve`](crate::build::preserve)) is not freed with the rest.
#[must_use]
pub fn without(extents: &[Extent], kept: &[Extent]) -> Vec<Extent> {
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    let mut rest = Vec::new();
    for extent in extents {
        let mut from = extent.start;
        let first = kept.partition_point(|kept| kept.end() <= extent.start);
        let meets = |kept: &&Extent| kept.start < extent.end();
        for kept in kept.iter().skip(first).take_while(meets) {
            if from < kept.start {
                rest.push(Extent { start: from, units: kept.start - from });
            }
            from = from.max(kept.end());
        }
        if from < extent.end() {
            rest.push(Extent { start: from, units: extent.end() - from });
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn units(extents: &[Extent]) -> Vec<u64> {
        extents.iter().flat_map(|extent| extent.start..extent.end()).collect()
    }

    proptest! {
        #[test]
        fn without_is_the_difference_of_units(
            lengths in proptest::collection::vec((1u64..6, 0u64..4, 0u64..6, any::<bool>()), 0..20),
        ) {
            let (mut start, mut all, mut kept) = (0, Vec::new(), Vec::new());
            for (units, gap, cut, is_first) in lengths {
                all.push(extent(start, units));
                let cut = cut.min(units);
                let place = if is_first { start } else { start + units - cut };
                if cut > 0 {
                    kept.push(extent(place, cut));
                }
                start += units + gap;
            }
            all.reverse();
            let gone: BTreeSet<_> = units(&kept).into_iter().collect();
            let mut expected = units(&all);
            expected.retain(|unit| !gone.contains(unit));
            prop_assert_eq!(units(&without(&all, &kept)), expected);
        }
    }

    fn extent(start: u64, units: u64) -> Extent {
        Extent { start, units }
    }

    #[test]
    fn what_lies_before_the_first_needed_block_goes() {
        let extents = [extent(10, 4), extent(2, 3), extent(30, 1)];
        let at = |unit: u64| split(&extents, unit * UNIT_BYTES + 512);
        assert_eq!(at(10), (vec![], extents.to_vec()));
        assert_eq!(at(12), (vec![extent(10, 2)], vec![extent(12, 2), extent(2, 3), extent(30, 1)]));
        assert_eq!(at(2), (vec![extent(10, 4)], vec![extent(2, 3), extent(30, 1)]));
        assert_eq!(at(30), (vec![extent(10, 4), extent(2, 3)], vec![extent(30, 1)]));
        assert_eq!(at(99), (vec![], extents.to_vec()));
    }
}
