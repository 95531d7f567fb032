//! Static wear levelling: what is done with a block that was erased less often than others.
//!
//! A data block is collected. An erased block that waits for pages of the map changes places with
//! the most worn erased data block. One with pages of the map, or with records, is emptied first;
//! then it waits as well. So every block takes part, whatever it is used for, and the erase counts
//! of a device differ by `wear_spread` and little more.
//!
//! The pages of a cold block go where the host writes: into an open block, and when that is full,
//! into the reserve. A cut before they are in a record leaves the reserve without valid pages, and
//! a later one the cold block.
//!
//! A layer looks for such a block between operations, and never while a block is collected, since
//! no page of the map may be written then.

use super::map_store::{MapStore, Newest};
use super::ring::Ring;
use super::store::Store;
use crate::error::Result;
use crate::nand::Nand;

/// What a layer must do for the block that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing: no block is behind.
    Nothing,
    /// Nothing more.
    Done,
    /// To make all records obsolete that are before the present block, and to erase them.
    TurnLog,
    /// To collect the block that [`Store::collect`] takes next.
    Collect,
}

/// Acts on the block that is behind, if there is one, and answers what is left to do.
pub(crate) fn level<N: Nand>(
    store: &mut Store<N>,
    ring: &mut Ring,
    map: &mut MapStore,
    newest: &impl Newest,
) -> Result<Due> {
    // All collections write records: the log goes round.
    let Some(block) = store.lagging(|block| ring.is_waiting(block)) else {
        return Ok(Due::Nothing);
    };
    if ring.has_records(block) {
        return Ok(Due::TurnLog);
    }
    if map.has_pages(block) {
        map.move_out(store, block, newest)?;
        return Ok(Due::Done);
    }
    let place = map.erased_mut().iter_mut().find(|waiting| **waiting == block);
    let erases = store.nand.erase_count(block);
    match place {
        Some(place) => {
            if let Some(worn) = store.space.exchange_for_worn(block, erases) {
                *place = worn;
            }
        }
        None => {
            store.space.collect_next(block);
            return Ok(Due::Collect);
        }
    }
    Ok(Due::Done)
}
