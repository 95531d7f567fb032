//! A commit with segment allocation: the record and the pages behind it, one write and one sync.

use esker_device::Purpose;

use crate::alloc::allocation::{Allocation, Commit};
use crate::alloc::segments::Segments;
use crate::alloc::space::open_segment::Heat;
use crate::engine::{Core, Engine};
use crate::error::Result;
use crate::log::record::Changes;
use crate::place::Sector;
use crate::planted::{self, Bug};

impl Segments {
    /// Writes the pages and the record. Where it fails before anything of the record is written the
    /// places are given back; after that the store is poisoned.
    pub(super) fn write_together(
        &self,
        engine: &Engine,
        core: &mut Core,
        mut commit: Commit<'_>,
    ) -> Result<Changes> {
        let (class, count) = (commit.class, commit.pages.len() as u64);
        let record_bytes = commit.record().len() as u64;
        let page_bytes = count * class.bytes();
        // What is prepared must find room for its decision, whatever became of the device.
        let is_prepared = commit.prepare.is_some();
        let more = if planted::is(Bug::DecisionFindsNoRoom) { 0 } else { is_prepared.into() };
        engine.reserve_in_order(core, class, count, commit.grows, more)?;
        engine.ensure_log_in_order(core, record_bytes + u64::from(more * engine.segment_bytes))?;
        let is_separate = count == 0 || commit.changes.are_pages_durable;
        let start = core.log.place_for_pages(record_bytes, page_bytes);
        let start = start.filter(|_| !is_separate && core.log.unit == class.bytes());
        if let Some(start) = start {
            commit.put((0..count).map(|n| Sector::at(start + n * class.bytes())));
            engine.append_with_pages(core, &commit.record(), &commit.pages, class)?;
        } else {
            self.write_to_row(engine, core, &mut commit)?;
            engine.append(core, &commit.record())?;
        }
        Ok(commit.changes)
    }

    /// Writes pages to a row of their own. The pages of a transaction that spilled are durable
    /// before its record is written.
    fn write_to_row(
        &self,
        engine: &Engine,
        core: &mut Core,
        commit: &mut Commit<'_>,
    ) -> Result<()> {
        let numbers: Vec<u32> = commit.pages.iter().map(|(page, _)| *page).collect();
        let places = engine.append_places(core, Heat::Hot, commit.class, &numbers)?;
        commit.put(places.iter().copied());
        let contents = commit.pages.iter().map(|(_, bytes)| *bytes);
        let mut writes: Vec<_> = places.iter().copied().zip(contents).collect();
        let written = self.write(engine, &mut writes, Purpose::User);
        let synced = written.and_then(|()| {
            let are_durable = commit.changes.are_pages_durable;
            let is_due = are_durable && !planted::is(Bug::SpilledNotSynced);
            if is_due { engine.sync_core(core) } else { Ok(()) }
        });
        synced.inspect_err(|_| {
            places.iter().for_each(|place| core.space.free(*place));
            core.space.close_rows();
        })
    }
}
