//! Garbage collection: rows with few live pages are emptied, so that they can be filled again.
//!
//! The choice is greedy: the row with the fewest live pages comes first. A page is live while any
//! kept version has it. A row is emptied in three steps. Its live pages get places in a row for
//! moved pages; they are copied while commits continue; then all maps that have a page at its old
//! place get the new place, in one step. A page that died in the meantime is left.
//!
//! A move has no record of its own. The old places are unchanged until a later checkpoint, which
//! has the new places, is durable: until then recovery finds the older checkpoint, its log, and
//! everything that these refer to. The old places are also kept while a reader holds a root that is
//! older than the move.
//!
//! Pages are moved the same way to make the file shorter ([`crate::compact`]), also with single
//! slots.

use std::sync::Weak;

use esker_device::Purpose;

use crate::engine::{Core, Engine};
use crate::error::Result;
use crate::map::Root;
use crate::open_segment::{Heat, RECORD};
use crate::planted::{self, Bug};
use crate::relocate::Move;
use crate::space::{Candidate, Class, Sector};
use crate::store::PageStore;

/// The task that moves pages while commits continue; one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    Nobody,
    /// Garbage collection, which copies what lives in this row just now.
    Collector(Option<u32>),
    /// The file is being made shorter.
    Squeeze,
}

impl Mover {
    pub(crate) fn is_any(self) -> bool {
        self != Self::Nobody
    }

    /// The row that is being emptied.
    fn row(self) -> Option<u32> {
        if let Self::Collector(row) = self { row } else { None }
    }
}

/// Places that pages were moved from.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) places: Vec<Sector>,
    /// The roots that led to them.
    pub(crate) roots: Vec<Weak<Root>>,
}

impl Retired {
    /// Whether a reader may still use the old places.
    fn is_held(&self) -> bool {
        self.roots.iter().any(|root| root.strong_count() > 0)
    }
}

/// In a row that counts as full, at most one part in this many is free.
const DENSE: u64 = 16;

/// The end of a turn of collecting.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// The number of segments that should be free now or after the next checkpoint.
    free: u32,
    /// Rows with more live bytes than this are left alone.
    live_bytes_max: u64,
}

/// One turn of collecting.
struct Pass {
    goal: Goal,
    /// The rows that may be emptied, the one with the fewest live pages first.
    candidates: std::vec::IntoIter<Candidate>,
    emptied: u32,
}

/// Live pages on their way.
pub(crate) struct Load {
    /// The row that holds the pages, if they are all of it.
    pub(crate) row: Option<u32>,
    pub(crate) class: Class,
    pub(crate) moves: Vec<Move>,
}

impl Engine {
    /// The number of live bytes: those in use, without those that a checkpoint will free.
    fn live_bytes(&self, core: &Core) -> u64 {
        let versions = self.versions.lock();
        let waiting = core.dead.len() + versions.dead_count() + retired_count(core);
        let page_size = u64::from(versions.newest().1.page_size);
        core.space.used_bytes().saturating_sub(waiting as u64 * page_size)
    }

    /// The number of segments that the file may grow by before garbage is collected.
    pub(crate) fn growth_allowed(&self, core: &Core) -> u32 {
        let spare = u64::from(self.options.spare_percent);
        let bytes = self.live_bytes(core) / 100 * (100 + spare);
        let rows = bytes / core.space.segment_bytes();
        let open = 4 + self.kept_free(core) + self.interval(core);
        let allowed = u32::try_from(rows).unwrap_or(u32::MAX).saturating_add(open);
        allowed.saturating_sub(core.space.row_segments())
    }

    /// The approximate number of segments that are filled between two checkpoints.
    fn interval(&self, core: &Core) -> u32 {
        let due = self.live_bytes(core) / 100 * u64::from(self.options.spare_percent);
        4 + (due / u64::from(GARBAGE_SHARE) / core.space.segment_bytes()) as u32
    }

    fn begin_pass(&self, core: &Core, needed: u32) -> Pass {
        let usual = self.kept_free(core) + 2 * self.interval(core);
        let spare = u64::from(self.options.spare_percent);
        let sparse = core.space.segment_bytes() * 100 / (100 + spare);
        let live_bytes_max = if needed > 0 { u64::MAX } else { sparse };
        let goal = Goal { free: usual.max(needed), live_bytes_max };
        Pass { goal, candidates: core.space.candidates().into_iter(), emptied: 0 }
    }

    /// Chooses a row and takes places for what lives in it; `None` when enough is free, or will be.
    fn next_load(&self, core: &mut Core, pass: &mut Pass) -> Option<Load> {
        let free = core.space.free_segments();
        let growth =
            if pass.goal.live_bytes_max == u64::MAX { 0 } else { self.growth_allowed(core) };
        if free.saturating_add(pass.emptied).saturating_add(growth) >= pass.goal.free {
            return None;
        }
        loop {
            let next = pass.candidates.next()?;
            if next.live_bytes > pass.goal.live_bytes_max {
                return None;
            }
            // Others may have emptied it since, or filled it again.
            let is_busy = core.mover.row() == Some(next.segment);
            let Some(next) = core.space.candidate(next.segment).filter(|_| !is_busy) else {
                continue;
            };
            let load = self.load_of(core, next.segment)?;
            let is_all = load.moves.len() as u64 * load.class.bytes() == next.live_bytes;
            pass.emptied += u32::from(is_all);
            if !load.moves.is_empty() {
                return Some(load);
            }
        }
    }

    fn load_of(&self, core: &mut Core, segment: u32) -> Option<Load> {
        let (class, places) = core.space.row(segment)?;
        let pages = places.into_iter().filter(|(_, page)| *page != RECORD);
        let mut load = Load { row: Some(segment), ..self.live_of(class, pages) };
        let count = load.moves.len() as u64;
        let room = u64::from(core.space.row_room(Heat::Cold, class));
        let per_row = u64::from(core.space.row_slots(class)).max(1);
        let rows = count.saturating_sub(room).div_ceil(per_row);
        let keep = self.set_aside(core);
        if rows + u64::from(keep) > u64::from(core.space.free_segments()) && rows > 0 {
            return None;
        }
        let pages: Vec<u32> = load.moves.iter().map(|step| step.page).collect();
        let taken = self.append_places(core, Heat::Cold, class, &pages).ok()?;
        for (step, to) in load.moves.iter_mut().zip(taken) {
            step.to = to;
        }
        Some(load)
    }

    /// Of pages and their places, those that a version has there; others are dead, or of a
    /// transaction that is not committed.
    pub(crate) fn live_of(&self, class: Class, pages: impl Iterator<Item = (Sector, u32)>) -> Load {
        let versions = self.versions.lock();
        let moves = pages.filter_map(|(from, page)| {
            let crc = versions.entry_at(page, from)?.crc;
            Some(Move { page, from, to: Sector::NONE, crc })
        });
        Load { row: None, class, moves: moves.collect() }
    }

    /// Copies pages and returns for each whether it was copied. A page that cannot be read stays
    /// where it is: it is dead by now, or its next reader gets the error.
    pub(crate) fn copy(&self, load: &Load, is_in_order: bool) -> Result<Vec<bool>> {
        let bytes = load.class.bytes() as usize;
        let mut pages: Vec<(Sector, Vec<u8>)> = Vec::with_capacity(load.moves.len());
        let mut copied = Vec::with_capacity(load.moves.len());
        for step in &load.moves {
            let mut page = vec![0; bytes];
            copied.push(self.read_slot(step.from, step.crc, &mut page, Purpose::Gc).is_ok());
            // Its place is programmed even so: what comes behind it must not be the first.
            pages.push((step.to, page));
        }
        let mut writes: Vec<_> = pages.iter().map(|(to, page)| (*to, page.as_slice())).collect();
        self.write_places(&mut writes, Purpose::Gc, is_in_order)?;
        self.counters.moved.add(pages.len() as u64 * load.class.bytes());
        Ok(copied)
    }

    /// Makes the new places known to all versions.
    pub(crate) fn finish_load(&self, core: &mut Core, load: Load, outcome: &Result<Vec<bool>>) {
        let nothing = Vec::new();
        let copied = outcome.as_ref().unwrap_or(&nothing);
        let is_copied = |at: usize| copied.get(at).copied().unwrap_or(false);
        let (mut moves, mut unused) = (Vec::new(), Vec::new());
        for (at, step) in load.moves.iter().enumerate() {
            if is_copied(at) { moves.push(*step) } else { unused.push(step.to) }
        }
        moves.sort_unstable();
        let relocated = self.versions.lock().relocate(&moves, None);
        let mut places = Vec::new();
        for (step, is_needed) in moves.iter().zip(&relocated.is_needed) {
            if *is_needed { places.push(step.from) } else { unused.push(step.to) }
        }
        // No map refers to these places.
        unused.into_iter().for_each(|place| core.space.free(place));
        if outcome.is_err() {
            core.space.close_rows();
        }
        self.counters.moved_pages.add(places.len() as u64);
        if planted::is(Bug::MovedFromTooEarly) {
            return places.into_iter().for_each(|place| core.space.free(place));
        }
        core.retired.push(Retired { places, roots: relocated.old_roots });
    }

    /// After a checkpoint: frees the old places of the first `count` moves, which are in the
    /// checkpoint's maps, up to the first move for which a reader may still hold an older root.
    /// That root also leads to the old places of all later moves.
    pub(crate) fn free_retired(&self, core: &mut Core, count: usize) {
        let moves = core.retired.iter().take(count);
        let free = moves.take_while(|retired| !retired.is_held()).count();
        for retired in core.retired.drain(..free) {
            retired.places.into_iter().for_each(|place| core.space.free(place));
        }
    }

    /// Empties rows without releasing `core`. Leaves alone the row that is being emptied
    /// concurrently, and the row that receives its pages, because a row is written in order. Does
    /// nothing while the file is being made shorter.
    pub(crate) fn collect_core(&self, core: &mut Core, needed: u32) -> Result<u32> {
        if !core.space.is_in_order() || core.mover == Mover::Squeeze {
            return Ok(0);
        }
        if core.mover.row().is_some() {
            core.space.close_rows_of(Heat::Cold);
        }
        let mut pass = self.begin_pass(core, needed);
        let mut outcome = Ok(());
        while outcome.is_ok()
            && let Some(load) = self.next_load(core, &mut pass)
        {
            let copied = self.copy(&load, true);
            self.finish_load(core, load, &copied);
            outcome = self.emptied(copied);
        }
        outcome.map(|()| pass.emptied)
    }

    /// Frees segments now: those that are dead, and those that can be emptied. It does not wait for
    /// a concurrent collection in progress, because the file would grow until that one ends.
    pub(crate) fn collect_now(&self, core: &mut Core, needed: u32) -> Result<()> {
        if core.mover == Mover::Squeeze {
            return Ok(());
        }
        self.checkpoint_core(core)?;
        if core.space.free_segments() < needed && self.collect_core(core, needed)? > 0 {
            self.checkpoint_core(core)?;
        }
        Ok(())
    }

    /// Empties rows while commits continue; they wait only for its first and its last step.
    pub(crate) fn collect_in_background(&self) -> Result<()> {
        let pass = {
            let mut core = self.core.lock();
            if !core.space.is_in_order() || core.mover.is_any() {
                return Ok(());
            }
            core.mover = Mover::Collector(None);
            self.begin_pass(&core, 0)
        };
        self.collect_by(pass).map(drop)
    }

    /// Empties all rows that have enough free space, while commits continue and as far as there is
    /// room, and returns how many.
    pub(crate) fn collect_dense(&self) -> Result<u32> {
        let pass = {
            let mut core = self.core.lock();
            if !core.space.is_in_order() || core.mover.is_any() {
                return Ok(0);
            }
            core.mover = Mover::Collector(None);
            let dense = core.space.segment_bytes() / DENSE * (DENSE - 1);
            let goal = Goal { free: u32::MAX, live_bytes_max: dense };
            Pass { goal, candidates: core.space.candidates().into_iter(), emptied: 0 }
        };
        self.collect_by(pass)
    }

    /// Empties rows in steps; `mover` says so already.
    fn collect_by(&self, mut pass: Pass) -> Result<u32> {
        let mut outcome = Ok(());
        loop {
            let mut core = self.core.lock();
            if core.is_closed || outcome.is_err() {
                break;
            }
            let Some(load) = self.next_load(&mut core, &mut pass) else { break };
            core.mover = Mover::Collector(load.row);
            drop(core);
            let copied = self.copy(&load, true);
            let mut core = self.core.lock();
            core.mover = Mover::Collector(None);
            self.finish_load(&mut core, load, &copied);
            outcome = self.emptied(copied);
        }
        self.core.lock().mover = Mover::Nobody;
        self.wake.notify_all();
        outcome.map(|()| pass.emptied)
    }

    /// A row has been emptied, or not.
    fn emptied(&self, copied: Result<Vec<bool>>) -> Result<()> {
        self.counters.emptied_segments.add(u64::from(copied.is_ok()));
        copied.map(|_| ())
    }
}

/// The number of old places that wait for a checkpoint with the new ones.
pub(crate) fn retired_count(core: &Core) -> usize {
    core.retired.iter().map(|retired| retired.places.len()).sum()
}

/// A checkpoint is due when dead pages are this part of the spare space: the rest of it is for
/// garbage that gathers, which makes collecting cheap.
pub(crate) const GARBAGE_SHARE: u32 = 8;

impl PageStore {
    /// With [`crate::Allocation::Segment`]: moves what lives out of all segments that hold garbage,
    /// as far as there is room, and says how many became free. The store does the part of this that
    /// it needs by itself. Takes two checkpoints. With [`crate::Allocation::Slot`] nothing is to
    /// do.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`].
    pub fn collect(&self) -> Result<u32> {
        let engine = self.engine();
        let mut core = engine.core.lock();
        if !core.space.is_in_order() {
            return Ok(0);
        }
        engine.checkpoint_core(&mut core)?;
        let emptied = engine.collect_core(&mut core, u32::MAX)?;
        engine.checkpoint_core(&mut core)?;
        Ok(emptied)
    }
}

#[cfg(test)]
mod tests;
