//! Moves of pages while commits continue: a copy, then the new place in the maps of all versions.
//!
//! A move has no record of its own. The old places are unchanged until a later checkpoint, which
//! has the new places, is durable: until then recovery finds the older checkpoint, its log, and
//! everything that these refer to. The old places are also kept while a reader holds a root that is
//! older than the move.
//!
//! Garbage collection ([`crate::alloc::segments`]) moves pages, and so does making the
//! file shorter ([`crate::alloc::compact`]).

use esker_device::Purpose;
use parking_lot::MutexGuard;

use crate::alloc::mover::Retired;
use crate::engine::{Core, Engine};
use crate::error::Result;
use crate::place::{Class, Sector};
use crate::planted::{self, Bug};
use crate::version::relocate::Move;

/// Live pages on their way.
pub(crate) struct Load {
    /// The row that holds the pages, if they are all of it.
    pub(crate) row: Option<u32>,
    pub(crate) class: Class,
    pub(crate) moves: Vec<Move>,
}

impl Core {
    /// The number of old places that wait for a checkpoint with the new ones.
    pub(crate) fn retired_count(&self) -> usize {
        self.retired.iter().map(|retired| retired.places.len()).sum()
    }
}

impl Engine {
    /// The core, when neither garbage is collected nor a checkpoint on its way.
    pub(crate) fn idle(&self) -> MutexGuard<'_, Core> {
        let mut core = self.core.lock();
        while core.mover.is_any() || core.is_saving {
            self.wake.wait(&mut core);
        }
        core
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
    pub(crate) fn copy(&self, load: &Load) -> Result<Vec<bool>> {
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
        self.allocation.write(self, &mut writes, Purpose::Gc)?;
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
}
