//! Allocation by segments that are filled in order, and emptied before they are used again.
//!
//! Reading order: [`append`] (room, and writes in order), [`commit`] (a record and its pages in one
//! write), [`collect`] (garbage collection).

use esker_device::Purpose;

use crate::alloc::allocation::{Allocation, Burden, Commit};
use crate::alloc::segments::append::{claim_frame, in_use};
use crate::alloc::space::Space;
use crate::alloc::space::open_segment::Heat;
use crate::engine::{Core, Engine};
use crate::error::Result;
use crate::log::record::Changes;
use crate::options::Allocation as Kind;
use crate::place::{Class, Sector};
use crate::version::versions::Versions;

mod append;
mod collect;
mod commit;

/// Dead bytes start no checkpoint while they are fewer than the bytes of this many segments.
const FLOOR_SEGMENTS: u64 = 4;

/// A checkpoint is due when dead pages are this part of the spare space: the rest of it is for
/// garbage that gathers, which makes collecting cheap.
const GARBAGE_SHARE: u32 = 8;

/// Segments that are filled in order.
#[derive(Debug)]
pub(crate) struct Segments;

impl Allocation for Segments {
    fn kind(&self) -> Kind {
        Kind::Segment
    }

    fn moves_pages(&self) -> bool {
        true
    }

    fn grows_ahead(&self) -> bool {
        false
    }

    /// A page: pages follow the records in the log.
    fn log_unit(&self, engine: &Engine) -> u32 {
        engine.versions.lock().newest().1.page_size
    }

    fn reserve(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        count: u64,
        grows: bool,
    ) -> Result<()> {
        engine.reserve_in_order(core, class, count, grows, 0)
    }

    fn reserve_log(&self, engine: &Engine, core: &mut Core, record_bytes: u64) -> Result<()> {
        engine.ensure_log_in_order(core, record_bytes)
    }

    fn take(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        pages: &[u32],
        grows: bool,
    ) -> Result<Vec<Sector>> {
        engine.reserve_in_order(core, class, pages.len() as u64, grows, 0)?;
        engine.append_places(core, Heat::Hot, class, pages)
    }

    fn room_to_move(&self, space: &Space, class: Class) -> u64 {
        let whole = u64::from(space.free_segments()) * u64::from(space.row_slots(class));
        u64::from(space.row_room(Heat::Cold, class)) + whole
    }

    fn take_to_move(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        pages: &[u32],
    ) -> Result<Vec<Sector>> {
        engine.append_places(core, Heat::Cold, class, pages)
    }

    fn write(
        &self,
        engine: &Engine,
        places: &mut [(Sector, &[u8])],
        purpose: Purpose,
    ) -> Result<()> {
        engine.write_runs(places, |at, bytes| engine.program(at, bytes, purpose))
    }

    fn write_frame(
        &self,
        engine: &Engine,
        core: &mut Core,
        at: u64,
        frame: &[u8],
        unit: u64,
    ) -> Result<()> {
        if !claim_frame(&mut core.space, at, frame.len() as u64, unit) {
            return Err(in_use(engine, at));
        }
        engine.program(at, frame, Purpose::Log)
    }

    fn write_commit(
        &self,
        engine: &Engine,
        core: &mut Core,
        commit: Commit<'_>,
    ) -> Result<Changes> {
        self.write_together(engine, core, commit)
    }

    /// The log and the dead slots since the last checkpoint. Every record also makes a slot dead.
    fn burden(&self, engine: &Engine, core: &Core, versions: &Versions) -> Burden {
        let page_size = u64::from(versions.newest().1.page_size);
        let dead = (core.dead.len() + versions.dead_count() + core.retired_count()) as u64;
        Burden {
            log_bytes: core.log.bytes,
            log_limit: engine.options.checkpoint_bytes,
            dead_bytes: dead * page_size + core.log.bytes,
            live_bytes: core.live_slots.max(0) as u64 * page_size,
            floor_bytes: FLOOR_SEGMENTS * u64::from(engine.segment_bytes),
            dead_percent: (engine.options.spare_percent / GARBAGE_SHARE).max(1).into(),
        }
    }

    fn claim(&self, space: &mut Space, place: Sector, class: Class, page: u32) -> bool {
        space.claim_in_row(place, class, page)
    }

    fn claim_frame(&self, space: &mut Space, at: u64, bytes: u64, unit: u64) -> bool {
        claim_frame(space, at, bytes, unit)
    }

    fn collect(&self, engine: &Engine, core: &mut Core, needed: u32) -> Result<u32> {
        engine.collect_core(core, needed)
    }

    fn collect_in_background(&self, engine: &Engine) -> Result<()> {
        engine.collect_sparse()
    }

    fn collect_all(&self, engine: &Engine) -> Result<u32> {
        let mut core = engine.core.lock();
        engine.checkpoint_core(&mut core)?;
        let emptied = engine.collect_core(&mut core, u32::MAX)?;
        engine.checkpoint_core(&mut core)?;
        Ok(emptied)
    }

    fn collect_dense(&self, engine: &Engine) -> Result<()> {
        engine.gather()
    }
}
