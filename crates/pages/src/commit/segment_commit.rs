//! A commit with segment allocation: the record and the pages behind it, one write and one sync.

use std::sync::Arc;

use esker_device::Purpose;

use crate::alloc::segments::append::PageBytes;
use crate::alloc::space::open_segment::Heat;
use crate::commit::plan::Plan;
use crate::engine::Core;
use crate::error::Result;
use crate::log::record::{Change, Changes};
use crate::place::{Class, Sector};
use crate::planted::{self, Bug};
use crate::version::map::Entry;
use crate::writer::Writer;

impl Writer {
    /// Writes the pages and the record. Where it fails before anything of the record is written the
    /// places are given back; after that the store is poisoned.
    pub(crate) fn write_together(
        &self,
        core: &mut Core,
        plan: Vec<(u32, Plan<'_>)>,
        prepare: Option<Arc<[u8]>>,
    ) -> Result<Changes> {
        let engine = &self.engine;
        let class = self.class()?;
        let (pages, items) = split(plan);
        let mut changes = self.changes(items);
        // How long it is does not depend on the places.
        let record_bytes = changes.record(prepare.clone()).len() as u64;
        let page_bytes = pages.len() as u64 * class.bytes();
        // What is prepared must find room for its decision, whatever became of the device.
        let more = if planted::is(Bug::DecisionFindsNoRoom) { 0 } else { prepare.is_some().into() };
        engine.reserve_in_order(core, class, pages.len() as u64, self.grows(), more)?;
        engine.ensure_log_in_order(core, record_bytes + u64::from(more * engine.segment_bytes))?;
        let is_separate = pages.is_empty() || changes.are_pages_durable;
        let start = core.log.place_for_pages(record_bytes, page_bytes);
        let start = start.filter(|_| !is_separate && core.log.unit == class.bytes());
        if let Some(start) = start {
            let places = (0..pages.len() as u64).map(|n| Sector::at(start + n * class.bytes()));
            put(&mut changes, &pages, places);
            engine.append_with_pages(core, &changes.record(prepare), &pages, class)?;
        } else {
            self.write_to_row(core, class, &pages, &mut changes)?;
            engine.append(core, &changes.record(prepare))?;
        }
        self.count_pages(core, class, pages.len(), changes.items.len());
        Ok(changes)
    }

    /// Writes pages to a row of their own. The pages of a transaction that spilled are durable
    /// before its record is written.
    fn write_to_row(
        &self,
        core: &mut Core,
        class: Class,
        pages: &[PageBytes<'_>],
        changes: &mut Changes,
    ) -> Result<()> {
        let engine = &self.engine;
        let numbers: Vec<u32> = pages.iter().map(|(page, _)| *page).collect();
        let places = engine.append_places(core, Heat::Hot, class, &numbers)?;
        put(changes, pages, places.iter().copied());
        let contents = pages.iter().map(|(_, bytes)| *bytes);
        let mut writes: Vec<_> = places.iter().copied().zip(contents).collect();
        let written = engine.write_places(&mut writes, Purpose::User, true);
        let synced = written.and_then(|()| {
            let is_due = changes.are_pages_durable && !planted::is(Bug::SpilledNotSynced);
            if is_due { engine.sync_core(core) } else { Ok(()) }
        });
        synced.inspect_err(|_| {
            places.iter().for_each(|place| core.space.free(*place));
            core.space.close_rows();
        })
    }
}

/// The pages that need a place, and all changes, in which the places are missing.
fn split<'a>(plan: Vec<(u32, Plan<'a>)>) -> (Vec<PageBytes<'a>>, Vec<(u32, Change)>) {
    let mut pages = Vec::new();
    let items = plan.into_iter().map(|(page, planned)| match planned {
        Plan::Done(change) => (page, change),
        Plan::Whole(bytes) => {
            pages.push((page, bytes));
            (page, Change::Whole(Entry { slot: Sector::NONE, crc: crc32c::crc32c(bytes) }))
        }
    });
    let items = items.collect();
    (pages, items)
}

/// Says where the pages are.
fn put(changes: &mut Changes, pages: &[PageBytes<'_>], places: impl Iterator<Item = Sector>) {
    let mut placed = pages.iter().map(|(page, _)| *page).zip(places).peekable();
    for (page, change) in &mut changes.items {
        let Some((_, place)) = placed.next_if(|(number, _)| number == page) else { continue };
        if let Change::Whole(entry) = change {
            entry.slot = place;
        }
    }
}
