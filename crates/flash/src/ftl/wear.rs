//! Wear levelling.
//!
//! Dynamic: host writes go to the least erased free block, and what garbage collection moves, which
//! is colder, to the most erased one ([`Pool::take`]). Static: when a block was erased `spread`
//! times more often than another of its die, the content of the least erased one, which is cold, is
//! moved, so that it comes to rest in a worn block and the other one is used.

use super::pool::{Place, Pool};
use crate::ftl::Wear;
use crate::nand::{BlockId, Nand};

/// After the erase of `erased`: the full block whose content must be moved, if any.
///
/// Cost: O(1), and a pass over the domain when the bound of the least erased block is out of date.
pub(super) fn due<N: Nand>(
    nand: &N,
    pool: &mut Pool,
    domain: u32,
    erased: BlockId,
) -> Option<BlockId> {
    let limit = pool.wear_spread();
    let erases = nand.erase_count(erased);
    if erases.saturating_sub(*pool.least_erases(domain)) <= limit {
        return None;
    }
    let in_pool = pool.blocks_of(domain).filter(|id| pool.place(*id) != Place::Meta);
    let coldest =
        in_pool.min_by_key(|id| (nand.erase_count(*id), pool.place(*id) != Place::Full))?;
    let least = nand.erase_count(coldest);
    *pool.least_erases(domain) = least;
    let is_due = erases - least > limit && pool.place(coldest) == Place::Full;
    is_due.then_some(coldest)
}

/// The erase counts of all blocks; the spread is the greatest within one of `domains` domains of
/// garbage collection, all as large.
pub(super) fn summary<N: Nand>(nand: &N, domains: u32) -> Wear {
    let blocks = nand.geometry().blocks();
    let of_domain = (blocks / domains.max(1)).max(1);
    let mut wear = Wear { min: u32::MAX, ..Wear::default() };
    let mut sum = 0.0;
    for first in (0..blocks).step_by(of_domain as usize) {
        let counts = (first..first + of_domain).map(|block| nand.erase_count(BlockId(block)));
        let (mut least, mut most) = (u32::MAX, 0);
        for count in counts {
            (least, most) = (least.min(count), most.max(count));
            sum += f64::from(count);
        }
        wear.min = wear.min.min(least);
        wear.max = wear.max.max(most);
        wear.spread = wear.spread.max(most - least);
    }
    wear.mean = sum / f64::from(blocks);
    wear
}
