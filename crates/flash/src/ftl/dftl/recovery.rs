//! Opening after a power cut: the newest page of each slot, unless its translation page is newer
//! and says that it is not mapped. Then translation pages that are behind are written.

use super::{Dftl, Layout, STREAMS, Tables};
use crate::error::Result;
use crate::ftl::map::Map;
use crate::ftl::options::Options;
use crate::ftl::pool::Pool;
use crate::ftl::scan::{bind, newest_of};
use crate::nand::{Cause, Nand};
use crate::planted::{self, Bug};

pub(super) fn recover<N: Nand>(
    mut nand: N,
    options: &Options,
    cache_permille: u32,
) -> Result<Dftl<N>> {
    let geometry = *nand.geometry();
    let layout = Layout::new(&geometry, options, cache_permille)?;
    let map = Map::new(layout.logical, layout.translation_pages, geometry.pages());
    let (mut newest, mut found) = newest_of(&mut nand, &map)?;
    let mut tables = Tables::new(map, &geometry, layout.cached, layout.buffered);
    // What each translation page says, of entries where that is not what was found.
    let mut data = vec![0; geometry.page_size() as usize];
    let mut behind = Vec::new();
    for index in 0..layout.translation_pages {
        let version = newest.get(tables.map.map_slot(index));
        match version {
            Some(version) => _ = nand.read(version.page, &mut data, Cause::Recovery)?,
            None => data.fill(0xff),
        }
        for (lpn, place) in tables.entries(index, &data) {
            if place.is_none()
                && let Some(version) = version
                && !planted::is(Bug::TrimKept)
            {
                newest.drop_older(lpn, version.seq);
            }
            if place != newest.get(lpn).map(|version| version.page) {
                behind.push(lpn);
            }
        }
    }
    let seq = bind(&geometry, &mut tables.map, &newest, &mut found);
    behind.into_iter().for_each(|lpn| tables.changed(lpn));
    let pool = Pool::recovered(&nand, options, STREAMS, &[], &found);
    let mut layer = Dftl::of(nand, pool, tables, seq);
    while let Some(index) = layer.tables.first_behind() {
        layer.write_back(index)?;
    }
    Ok(layer)
}
