//! Allocation by single slots, for devices with a translation layer of their own.
//!
//! A page goes to any free slot. A commit writes its pages and then its record, in no particular
//! order; slots that follow each other are written in one go. Nothing is moved, so there is no
//! garbage to collect: a dead slot is free after the next checkpoint.

use esker_device::Purpose;

use crate::alloc::allocation::{Allocation, Burden, Commit};
use crate::alloc::growth::{aside_for_pages, slack};
use crate::alloc::space::Space;
use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::log::record::{Changes, ITEM_BYTES};
use crate::options::Allocation as Kind;
use crate::place::{Class, SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};
use crate::version::versions::Versions;

/// Slots at any place.
#[derive(Debug)]
pub(crate) struct Slots;

impl Slots {
    /// Takes slots for `count` pages. When the device is full, a checkpoint, whose room is
    /// reserved, may free some.
    fn take_slots(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        count: usize,
        grows: bool,
    ) -> Result<Vec<Sector>> {
        self.reserve(engine, core, class, count as u64, grows)?;
        engine.take_slots(core, class, count, 0)
    }

    /// Writes the pages of a commit to the slots taken for them, and makes the record.
    fn write_pages(
        engine: &Engine,
        core: &mut Core,
        commit: &mut Commit<'_>,
        taken: &[Sector],
    ) -> Result<Vec<u8>> {
        commit.put(taken.iter().copied());
        let record = commit.record();
        engine.reserve_log(core, record.len() as u64)?;
        let contents = commit.pages.iter().map(|(_, bytes)| *bytes);
        let mut slots: Vec<_> = taken.iter().copied().zip(contents).collect();
        engine.write_slots(&mut slots, Purpose::User)?;
        if commit.changes.are_pages_durable && !planted::is(Bug::SpilledNotSynced) {
            engine.sync_core(core)?;
        }
        Ok(record)
    }
}

impl Engine {
    /// Makes sure of room. When the device is full, a checkpoint may free some; where processes
    /// share the store, the log before that is free one checkpoint later.
    fn ensure_or_free(
        &self,
        core: &mut Core,
        ensure: impl Fn(&mut Core) -> Result<()>,
    ) -> Result<()> {
        let checkpoints = if core.shared.is_some() { 2 } else { 1 };
        for _ in 0..checkpoints {
            match ensure(core) {
                Err(Error::Full { .. }) => self.checkpoint_core(core)?,
                outcome => return outcome,
            }
        }
        ensure(core)
    }
}

impl Allocation for Slots {
    fn kind(&self) -> Kind {
        Kind::Slot
    }

    fn moves_pages(&self) -> bool {
        false
    }

    fn grows_ahead(&self) -> bool {
        true
    }

    fn log_unit(&self, _engine: &Engine) -> u32 {
        SECTOR_BYTES as u32
    }

    fn reserve(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        count: u64,
        grows: bool,
    ) -> Result<()> {
        let record = core.log.segments_for(count * ITEM_BYTES);
        let keep = aside_for_pages(core, &engine.options, engine.segment_bytes) + record;
        // What grows must not fill the last slots of segments while there are no others.
        let spare = if grows { keep + slack(core) } else { 0 };
        let ensure = |core: &mut Core| {
            engine.ensure_segments(core, spare)?;
            engine.ensure_slots(core, class, count, keep.max(spare))
        };
        engine.ensure_or_free(core, ensure)
    }

    fn reserve_log(&self, engine: &Engine, core: &mut Core, record_bytes: u64) -> Result<()> {
        let keep = engine.set_aside(core);
        engine.ensure_or_free(core, |core| {
            engine.ensure_segments(core, core.log.segments_for(record_bytes) + keep)
        })
    }

    fn take(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        pages: &[u32],
        grows: bool,
    ) -> Result<Vec<Sector>> {
        self.take_slots(engine, core, class, pages.len(), grows)
    }

    fn room_to_move(&self, space: &Space, class: Class) -> u64 {
        space.available(class, 0)
    }

    fn take_to_move(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        pages: &[u32],
    ) -> Result<Vec<Sector>> {
        engine.take_slots(core, class, pages.len(), 0)
    }

    fn write(
        &self,
        engine: &Engine,
        places: &mut [(Sector, &[u8])],
        purpose: Purpose,
    ) -> Result<()> {
        engine.write_slots(places, purpose)
    }

    fn write_frame(
        &self,
        engine: &Engine,
        _core: &mut Core,
        at: u64,
        frame: &[u8],
        _unit: u64,
    ) -> Result<()> {
        Ok(engine.media.write(at, frame, Purpose::Log)?)
    }

    fn write_commit(
        &self,
        engine: &Engine,
        core: &mut Core,
        mut commit: Commit<'_>,
    ) -> Result<Changes> {
        let taken =
            self.take_slots(engine, core, commit.class, commit.pages.len(), commit.grows)?;
        let record = Self::write_pages(engine, core, &mut commit, &taken);
        let record = record.inspect_err(|_| {
            for sector in &taken {
                core.space.free(*sector);
            }
        })?;
        engine.append(core, &record)?;
        Ok(commit.changes)
    }

    fn burden(&self, engine: &Engine, core: &Core, versions: &Versions) -> Burden {
        let page_size = u64::from(versions.newest().1.page_size);
        let dead = (core.dead.len() + versions.dead_count_at_most()) as u64;
        Burden {
            log_bytes: core.log.bytes,
            log_limit: engine.options.checkpoint_bytes,
            dead_bytes: dead * page_size,
            live_bytes: core.live_slots.max(0) as u64 * page_size,
            floor_bytes: engine.segment_bytes.into(),
            dead_percent: 25,
        }
    }

    fn claim(&self, space: &mut Space, place: Sector, class: Class, _page: u32) -> bool {
        space.claim(place, class)
    }

    /// A segment of the log holds nothing else.
    fn claim_frame(&self, _space: &mut Space, _at: u64, _bytes: u64, _unit: u64) -> bool {
        true
    }

    fn collect(&self, _engine: &Engine, _core: &mut Core, _needed: u32) -> Result<u32> {
        Ok(0)
    }

    fn collect_in_background(&self, _engine: &Engine) -> Result<()> {
        Ok(())
    }

    fn collect_all(&self, _engine: &Engine) -> Result<u32> {
        Ok(0)
    }

    fn collect_dense(&self, _engine: &Engine) -> Result<()> {
        Ok(())
    }
}
