//! m-delete: which space of the old levels the wavefront has passed.
//!
//! A block of an old level is unreachable when the first key of the block behind it is at or
//! before the wavefront; the last block of a level when the merge is done. A level's blocks lie in
//! its extents in the order of writing, which is the order of their keys: so everything in front
//! of the first block still needed can go. It is reusable when two things have happened besides:
//! every older view is gone, and a durable record of the merge does without it.

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

#[cfg(test)]
mod tests {
    use super::*;

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
