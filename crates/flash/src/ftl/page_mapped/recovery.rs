//! Opening after a power cut: the newest page of each slot, unless a newer trim page unmaps it.

use super::{Layout, PageMapped, STREAMS, Trims};
use crate::error::{Error, Result};
use crate::ftl::HostCounters;
use crate::ftl::map::Map;
use crate::ftl::options::Options;
use crate::ftl::pool::Pool;
use crate::ftl::scan::{Newest, scan};
use crate::nand::{Cause, Nand};
use crate::planted::{self, Bug};

pub(super) fn recover<N: Nand>(mut nand: N, options: &Options) -> Result<PageMapped<N>> {
    let geometry = *nand.geometry();
    let layout = Layout::new(&geometry, options)?;
    let mut map = Map::new(layout.logical, layout.trim_pages, geometry.pages());
    let mut newest = Newest::new(map.slots());
    let mut found = scan(
        &mut nand,
        |_| true,
        |page, spare, rank| {
            let slot = map.slot_of(&spare).ok_or_else(|| Error::Foreign {
                page,
                what: format!("{:?} {} of another layer or size", spare.kind, spare.lpn),
            })?;
            newest.offer(slot, page, spare.seq, rank);
            Ok(())
        },
    )?;
    let trims = Trims::new(&geometry);
    let mut data = vec![0; geometry.page_size() as usize];
    for index in 0..layout.trim_pages {
        let Some(version) = newest.get(map.map_slot(index)) else { continue };
        nand.read(version.page, &mut data, Cause::Recovery)?;
        for lpn in trims.unmapped(index, &data).filter(|lpn| *lpn < layout.logical) {
            if !planted::is(Bug::TrimKept) {
                newest.drop_older(lpn, version.seq);
            }
        }
    }
    for (slot, version) in newest.iter() {
        map.bind(slot, version.page);
        if let Some(block) = found.get_mut(geometry.block_of(version.page).0 as usize) {
            block.valid += 1;
        }
    }
    let seq = found.iter().map(|block| block.newest).max().unwrap_or(0) + 1;
    let pool = Pool::recovered(&nand, options, STREAMS, &[], &found);
    Ok(PageMapped { nand, pool, map, trims, seq, host: HostCounters::default() })
}
