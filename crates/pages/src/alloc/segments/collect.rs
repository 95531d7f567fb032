//! Garbage collection: rows with few live pages are emptied, so that they can be filled again.
//!
//! The choice is greedy: the row with the fewest live pages comes first. A page is live while any
//! kept version has it. A row is emptied in three steps. Its live pages get places in a row for
//! moved pages; they are copied while commits continue; then all maps that have a page at its old
//! place get the new place, in one step. A page that died in the meantime is left.

use crate::alloc::mover::Mover;
use crate::alloc::moves::Load;
use crate::alloc::segments::GARBAGE_SHARE;
use crate::alloc::space::Candidate;
use crate::alloc::space::open_segment::{Heat, RECORD};
use crate::engine::{Core, Engine};
use crate::error::{Error, Result};

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

impl Engine {
    /// The number of live bytes: those in use, without those that a checkpoint will free.
    fn live_bytes(&self, core: &Core) -> u64 {
        let versions = self.versions.lock();
        let waiting = core.dead.len() + versions.dead_count() + core.retired_count();
        let page_size = u64::from(versions.newest().1.page_size);
        core.space.used_bytes().saturating_sub(waiting as u64 * page_size)
    }

    /// The number of segments that the file may grow by before garbage is collected.
    pub(super) fn growth_allowed(&self, core: &Core) -> u32 {
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

    /// Empties rows without releasing `core`. Leaves alone the row that is being emptied
    /// concurrently, and the row that receives its pages, because a row is written in order. Does
    /// nothing while the file is being made shorter.
    pub(super) fn collect_core(&self, core: &mut Core, needed: u32) -> Result<u32> {
        if core.mover == Mover::Squeeze {
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
            let copied = self.copy(&load);
            self.finish_load(core, load, &copied);
            outcome = self.emptied(copied);
        }
        outcome.map(|()| pass.emptied)
    }

    /// Frees segments now: those that are dead, and those that can be emptied. It does not wait for
    /// a concurrent collection in progress, because the file would grow until that one ends.
    pub(super) fn collect_now(&self, core: &mut Core, needed: u32) -> Result<()> {
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
    pub(super) fn collect_sparse(&self) -> Result<()> {
        let pass = {
            let mut core = self.core.lock();
            if core.mover.is_any() {
                return Ok(());
            }
            core.mover = Mover::Collector(None);
            self.begin_pass(&core, 0)
        };
        self.collect_by(pass).map(drop)
    }

    /// Empties all rows that have enough free space, while commits continue and as far as there is
    /// room, and returns how many.
    fn collect_dense(&self) -> Result<u32> {
        let pass = {
            let mut core = self.core.lock();
            if core.mover.is_any() {
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
            let copied = self.copy(&load);
            let mut core = self.core.lock();
            core.mover = Mover::Collector(None);
            self.finish_load(&mut core, load, &copied);
            outcome = self.emptied(copied);
        }
        self.core.lock().mover = Mover::None;
        self.wake.notify_all();
        outcome.map(|()| pass.emptied)
    }

    /// Moves what lives in segments together, for as long as that empties some.
    pub(super) fn gather(&self) -> Result<()> {
        let mut free = 0;
        loop {
            {
                // Somewhere to begin. On a full device there is what was set aside.
                let mut core = self.idle();
                let wanted = self.kept_free(&core);
                match self.ensure_segments(&mut core, wanted) {
                    Ok(()) | Err(Error::Full { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if self.collect_dense()? == 0 {
                return Ok(());
            }
            let mut core = self.core.lock();
            self.checkpoint_core(&mut core)?;
            let before = std::mem::replace(&mut free, core.space.free_segments());
            if free <= before {
                return Ok(());
            }
        }
    }

    /// A row has been emptied, or not.
    fn emptied(&self, copied: Result<Vec<bool>>) -> Result<()> {
        self.counters.emptied_segments.add(u64::from(copied.is_ok()));
        copied.map(|_| ())
    }
}

#[cfg(test)]
mod tests;
