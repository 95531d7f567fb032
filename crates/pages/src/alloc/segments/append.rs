//! Segment allocation: pages and records are appended to segments, which are filled in order.
//!
//! A commit's pages follow its record when both fit in the rest of the log's segment; the commit is
//! then one write. Otherwise the pages go to a row of their own, and the record follows. When
//! segments run short, the file grows as far as [`crate::Options::spare_percent`] allows; after
//! that, garbage is collected.

use esker_device::Purpose;

use crate::alloc::allocation::PageBytes;
use crate::alloc::growth::slack;
use crate::alloc::space::Space;
use crate::alloc::space::open_segment::Heat;
use crate::engine::{Core, Engine};
use crate::error::{Error, Result, corrupt, damaged};
use crate::log::record::ITEM_BYTES;
use crate::place::{Class, Sector};

/// Segments that are left free so that there is always somewhere to move pages to.
const MOVE_SEGMENTS: u32 = 2;

impl Engine {
    /// Segments that commits leave free, for a checkpoint and for moving pages.
    pub(super) fn kept_free(&self, core: &Core) -> u32 {
        self.set_aside(core) + MOVE_SEGMENTS
    }

    /// Makes sure that this many pages and their record can be appended, with `more` segments left.
    pub(super) fn reserve_in_order(
        &self,
        core: &mut Core,
        class: Class,
        count: u64,
        grows: bool,
        more: u32,
    ) -> Result<()> {
        let slack = if grows { slack(core) } else { 0 };
        let room = u64::from(core.space.row_room(Heat::Hot, class));
        let per_row = u64::from(core.space.row_slots(class)).max(1);
        let rows = count.saturating_sub(room).div_ceil(per_row);
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let record = core.log.segments_for(count * ITEM_BYTES);
        let needed = rows.saturating_add(record + slack + more + self.kept_free(core));
        self.ensure_free(core, needed)
    }

    /// Makes sure that a record of this length can be appended.
    pub(super) fn ensure_log_in_order(&self, core: &mut Core, record_bytes: u64) -> Result<()> {
        let needed = core.log.segments_for(record_bytes) + self.kept_free(core);
        self.ensure_free(core, needed)
    }

    /// Makes sure that this many segments are free: by growing where the spare space allows it, by
    /// collecting garbage, and by growing where that is not enough.
    fn ensure_free(&self, core: &mut Core, needed: u32) -> Result<()> {
        let missing = |core: &Core| needed.saturating_sub(core.space.free_segments());
        let first = missing(core);
        if first == 0 {
            return Ok(());
        }
        if self.growth_allowed(core) >= first {
            match self.grow(core, first.into()) {
                Err(Error::Full { .. }) => {}
                outcome => return outcome,
            }
        }
        self.collect_now(core, needed)?;
        self.grow(core, missing(core).into())
    }

    /// Takes the next places of a row, and of the rows after it. All of them, or none.
    pub(super) fn append_places(
        &self,
        core: &mut Core,
        heat: Heat,
        class: Class,
        pages: &[u32],
    ) -> Result<Vec<Sector>> {
        let mut places = Vec::with_capacity(pages.len());
        for page in pages {
            let Some(place) = core.space.append(heat, class, *page) else {
                places.into_iter().for_each(|place| core.space.free(place));
                return Err(Error::Full { reason: "no segment is free".to_owned() });
            };
            places.push(place);
        }
        Ok(places)
    }

    /// Programs bytes that cover one or more blocks; a block that begins in the range is erased
    /// first.
    pub(super) fn program(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let block_bytes = u64::from(self.segment_bytes);
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let left = (block_bytes - at % block_bytes) as usize;
            let (now, later) = rest.split_at(left.min(rest.len()));
            if at.is_multiple_of(block_bytes) {
                self.media.erase((at / block_bytes) as u32)?;
            }
            self.media.program(at, now, purpose)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Appends a record and the pages behind it in one write, after
    /// [`crate::log::frames::Log::place_for_pages`] has found room for both. An error poisons
    /// the store.
    pub(super) fn append_with_pages(
        &self,
        core: &mut Core,
        record: &[u8],
        pages: &[PageBytes<'_>],
        class: Class,
    ) -> Result<()> {
        let mut log = core.log.clone();
        let page_bytes = pages.len() as u64 * class.bytes();
        let space = &mut core.space;
        let durable = core.durable;
        let writes = log.append_with_pages(record, page_bytes as u32, durable, || space.take_log());
        let writes =
            writes.map_err(|error| self.poisoned(damaged(self.media.name(), 0, &error)))?;
        for (at, mut bytes) in writes {
            let frame = bytes.len() as u64;
            if !claim_frame(&mut core.space, at, frame, log.unit) {
                return Err(self.poisoned(in_use(self, at)));
            }
            let mut next = at + frame;
            for (page, contents) in pages {
                core.space.claim_in_row(Sector::at(next), class, *page);
                bytes.extend_from_slice(contents);
                next += class.bytes();
            }
            self.program(at, &bytes, Purpose::Log).map_err(|error| self.poisoned(error))?;
            self.counters.records.add(frame);
            core.unsynced_bytes += frame;
        }
        core.log = log;
        core.note_record(record, self.options.checkpoint_bytes / 2);
        Ok(())
    }
}

/// Takes the bytes of a frame of the log; `false` when something else is there.
pub(super) fn claim_frame(space: &mut Space, at: u64, bytes: u64, unit: u64) -> bool {
    let unit = Class::holding(unit as usize);
    unit.is_some_and(|unit| space.claim_record(at, bytes, unit))
}

/// The error where the log comes to a place that it cannot have.
pub(super) fn in_use(engine: &Engine, at: u64) -> Error {
    corrupt(engine.media.name(), at, "the log has come to a place that is in use")
}
