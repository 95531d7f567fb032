//! Opening after a power cut: the newest page of each slot, unless a newer trim page unmaps it.

use super::{Layout, PageMapped, Trims};
use crate::error::Result;
use crate::ftl::HostCounters;
use crate::ftl::map::Map;
use crate::ftl::options::Options;
use crate::ftl::pool::Pool;
use crate::ftl::scan::{bind, newest_of};
use crate::nand::{Cause, Nand};
use crate::planted::{self, Bug};

pub(super) fn recover<N: Nand>(mut nand: N, options: &Options) -> Result<PageMapped<N>> {
    let geometry = *nand.geometry();
    let layout = Layout::new(&geometry, options)?;
    let mut map = Map::new(layout.logical, layout.trim_pages, geometry.pages());
    let (mut newest, mut found) = newest_of(&mut nand, &map)?;
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
    let seq = bind(&geometry, &mut map, &newest, &mut found);
    let pool = Pool::recovered(&nand, options, layout.streams, &[], &found);
    let (last_stream, host) = (layout.last_stream(), HostCounters::default());
    Ok(PageMapped { nand, pool, map, trims, last_stream, seq, host })
}
