//! BFTL: changes of nodes, packed together in sectors (Wu, Chang, Kuo, RTCSA 2003; TECS 2007).
//!
//! A change becomes an *index unit* of 32 bytes and waits in the *reservation buffer*. When that is
//! full, its units are packed into sectors, those of a node together, the largest groups first
//! into the first sector with room. The *node translation table* has, for each node, the list of
//! sectors with units of it. To read a node is to read all of them. A list that becomes longer
//! than C is compacted: the node's entries are written to sectors of its own. A sector that no
//! list names is free.
//!
//! By the letter ([`Settings::published`]) the buffer has 60 units, lists at most 4 sectors, and no
//! node is cached but those on the way of an operation. [`Settings::of_budget`] gives an eighth of
//! the memory to the buffer, and caches nodes in what the table leaves. BFTL is a layer over an
//! ordinary translation layer, in the device: its table is not counted, the node translation
//! table is.
//!
//! Not in the paper: a split is one unit for the old node, which cuts it, and one unit for each
//! entry of the new one; nodes have at most 7/5 of a sector's units, so that a compacted node has
//! two sectors.

use esker_flash::{Ftl, Nand};

use crate::bplus::{Backing, FRAMES_MIN};
use crate::cache::{Cache, Frame};
use crate::error::{Result, broken};
use crate::lists::Lists;
use crate::page::{Change, Layout, Page};
use crate::space::Pages;
use crate::units::{self, Unit, units_of_page};

/// Bytes of an index unit.
pub const INDEX_UNIT_BYTES: usize = 32;

/// What the paper leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Units of the reservation buffer, 1 or more.
    pub buffer_units: usize,
    /// C: sectors of a list, 2 or more.
    pub list_max: usize,
    /// The most nodes that are cached.
    pub frames_max: usize,
}

impl Settings {
    /// As it was published.
    #[must_use]
    pub const fn published() -> Self {
        Self { buffer_units: 60, list_max: 4, frames_max: FRAMES_MIN }
    }

    /// With a memory of `bytes`.
    #[must_use]
    pub const fn of_budget(bytes: usize) -> Self {
        let buffer_units = bytes / 8 / INDEX_UNIT_BYTES;
        Self { buffer_units, list_max: 4, frames_max: usize::MAX }
    }
}

/// Nodes as lists of sectors.
#[derive(Debug)]
pub struct Bftl<F> {
    pages: Pages<F>,
    layout: Layout,
    settings: Settings,
    lists: Lists,
    buffer: Vec<Unit>,
    unused: Vec<u32>,
    next: u32,
    sector: Vec<u8>,
    /// Nodes that were compacted.
    compactions: u64,
}

impl<F: Ftl> Bftl<F> {
    /// Nodes over the pages of a translation layer.
    pub fn new(pages: Pages<F>, settings: Settings) -> Self {
        let page_bytes = pages.page_bytes();
        let entries_max = units_of_page(page_bytes, INDEX_UNIT_BYTES) * 7 / 5;
        let layout = Layout { entries_max, ..Layout::of_page(page_bytes) };
        let buffer_units = settings.buffer_units.max(1);
        let settings = Settings { buffer_units, list_max: settings.list_max.max(2), ..settings };
        let nodes_of_page = units_of_page(page_bytes, INDEX_UNIT_BYTES);
        Self {
            lists: Lists::new(pages.number_bytes(), nodes_of_page),
            pages,
            layout,
            settings,
            buffer: Vec::with_capacity(buffer_units),
            unused: Vec::new(),
            next: 0,
            sector: vec![0; page_bytes],
            compactions: 0,
        }
    }

    /// Nodes that were compacted so far.
    pub const fn compactions(&self) -> u64 {
        self.compactions
    }

    fn units_of_sector(&self) -> usize {
        units_of_page(self.layout.page_bytes, INDEX_UNIT_BYTES)
    }

    fn add(&mut self, unit: Unit, cache: &Cache) -> Result<()> {
        self.buffer.push(unit);
        if self.buffer.len() < self.settings.buffer_units {
            return Ok(());
        }
        self.commit(cache)
    }

    /// Writes the units of the buffer, and compacts the nodes whose lists became too long.
    fn commit(&mut self, cache: &Cache) -> Result<()> {
        let mut all = std::mem::take(&mut self.buffer);
        all.sort_by_key(|unit| unit.node);
        for sector in pack(&all, self.units_of_sector()) {
            let units = sector.into_iter().flatten();
            units::encode(units.clone(), INDEX_UNIT_BYTES, &mut self.sector);
            let page = self.pages.allocate()?;
            self.pages.write(page, &self.sector)?;
            units.for_each(|unit| self.lists.push(unit.node, page));
        }
        all.dedup_by_key(|unit| unit.node);
        for Unit { node, .. } in &all {
            if self.lists.of(*node).len() > self.settings.list_max {
                self.compact(*node, cache)?;
            }
        }
        all.clear();
        self.buffer = all;
        Ok(())
    }

    /// Writes the entries of a node, none of whose units is in the buffer, to sectors of its own.
    fn compact(&mut self, node: u32, cache: &Cache) -> Result<()> {
        let put = |(key, value)| Unit { node, change: Change::Put { key, value } };
        let live: Vec<Unit> = match cache.peek(node) {
            Some(frame) => frame.page.entries().map(put).collect(),
            None => {
                // Entries of both kinds of nodes fit in a page of leaf entries.
                let mut page = Page::new(self.layout, node, 0);
                self.replay(node, &mut page)?;
                page.entries().map(put).collect()
            }
        };
        self.compactions += 1;
        self.lists.clear(node).into_iter().for_each(|page| self.pages.release(page));
        for units in live.chunks(self.units_of_sector()) {
            units::encode(units.iter(), INDEX_UNIT_BYTES, &mut self.sector);
            let page = self.pages.allocate()?;
            self.pages.write(page, &self.sector)?;
            self.lists.push(node, page);
        }
        Ok(())
    }

    fn replay(&mut self, node: u32, page: &mut Page) -> Result<()> {
        for at in self.lists.of(node) {
            self.pages.read(*at, &mut self.sector)?;
            units::decode(&self.sector, INDEX_UNIT_BYTES, node, |change| page.apply(change))?;
        }
        self.buffer
            .iter()
            .filter(|unit| unit.node == node)
            .try_for_each(|unit| page.apply(&unit.change))
    }
}

/// Which units go into which sector of `room` units. `units` are sorted by node. Groups that are
/// larger than a sector fill sectors first; what is left of each goes, the largest first, to the
/// first sector that has room for all of it. So units of a node are in sectors in their order.
fn pack(units: &[Unit], room: usize) -> Vec<Vec<&[Unit]>> {
    let (mut sectors, mut rest) = (Vec::new(), Vec::new());
    for group in units.chunk_by(|one, next| one.node == next.node) {
        let full = group.chunks_exact(room);
        rest.push(full.remainder());
        sectors.extend(full.map(|part| vec![part]));
    }
    rest.retain(|group| !group.is_empty());
    rest.sort_by_key(|group| std::cmp::Reverse(group.len()));
    let mut open: Vec<(usize, Vec<&[Unit]>)> = Vec::new();
    for group in rest {
        match open.iter_mut().find(|(left, _)| *left >= group.len()) {
            Some((left, groups)) => {
                *left -= group.len();
                groups.push(group);
            }
            None => open.push((room - group.len(), vec![group])),
        }
    }
    sectors.extend(open.into_iter().map(|(_, groups)| groups));
    sectors
}

impl<F: Ftl> Backing for Bftl<F> {
    fn name(&self) -> &'static str {
        "bftl"
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn frames_max(&self) -> usize {
        self.settings.frames_max
    }

    fn admit(&self, nodes: usize) -> Result<()> {
        // A commit writes at most two sectors for each full one, and then compacts: the sectors of
        // a node are taken before those of the next one are, and may all be shared. Removals may
        // use what is kept from puts, of which each operation can take that much.
        let (sector, buffer) = (self.units_of_sector(), self.settings.buffer_units);
        let commit = 2 * buffer.div_ceil(sector) + 2;
        let compactions = 2 * buffer.min(self.next as usize + 1);
        let kept = if nodes > 0 { commit + compactions } else { 0 };
        self.pages.require(commit + compactions + kept)
    }

    fn allocate(&mut self) -> Result<u32> {
        Ok(self.unused.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }))
    }

    fn fetch(&mut self, node: u32, _level: u8, page: &mut Page) -> Result<()> {
        self.replay(node, page)
    }

    fn created(&mut self, node: u32, cache: &mut Cache) -> Result<()> {
        let Some(frame) = cache.peek(node) else { return broken("a new node is not cached") };
        let entries: Vec<_> = frame.page.entries().collect();
        for (key, value) in entries {
            self.add(Unit { node, change: Change::Put { key, value } }, cache)?;
        }
        Ok(())
    }

    fn changed(&mut self, node: u32, change: &Change, cache: &mut Cache) -> Result<()> {
        self.add(Unit { node, change: *change }, cache)
    }

    fn evict(&mut self, _frame: &mut Frame, _cache: &mut Cache) -> Result<()> {
        Ok(())
    }

    fn free(&mut self, node: u32) -> Result<()> {
        self.buffer.retain(|unit| unit.node != node);
        self.lists.clear(node).into_iter().for_each(|page| self.pages.release(page));
        self.unused.push(node);
        Ok(())
    }

    fn flush(&mut self, cache: &mut Cache) -> Result<()> {
        self.commit(cache)
    }

    fn table_bytes(&self) -> usize {
        let buffer = self.settings.buffer_units * INDEX_UNIT_BYTES;
        self.pages.table_bytes() + self.lists.bytes() + buffer
    }

    fn nand(&self) -> &dyn Nand {
        self.pages.nand()
    }

    fn check(&self, nodes: usize) -> Result<()> {
        let found = self.next as usize - self.unused.len();
        if found != nodes {
            return broken(format!("{found} nodes are taken and {nodes} are in the tree"));
        }
        self.lists.check()?;
        self.pages.check(self.lists.pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_packed_first_fit_and_the_largest_first() {
        let group =
            |node: u32, count: usize| vec![Unit { node, change: Change::Remove { key: 0 } }; count];
        let all = [group(1, 3), group(2, 10), group(3, 34), group(4, 5)].concat();
        let packed = pack(&all, 15);
        // Node 3 fills two sectors; what is left of it shares the last one.
        let shape = |sector: &Vec<&[Unit]>| -> Vec<(u32, usize)> {
            sector.iter().map(|group| (group[0].node, group.len())).collect()
        };
        let shapes: Vec<_> = packed.iter().map(shape).collect();
        let expected = [vec![(3, 15)], vec![(3, 15)], vec![(2, 10), (4, 5)], vec![(3, 4), (1, 3)]];
        assert_eq!(shapes, expected);
    }
}
