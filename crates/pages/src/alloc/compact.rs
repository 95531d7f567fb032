//! Making the file shorter.
//!
//! Free space is used again, but a file does not become shorter by itself. Compaction moves the
//! live pages at the end of the file to free places in front, and cuts the end off:
//!
//! ```text
//!  before   │ super │ log │ ab.. │ ..c. │ d... │ .... │ ...e │ f..g │
//!                                   ▲▲ ▲    ▲ place for all of it    │
//!  moved    │ super │ log │ abef │ g.c. │ d... │ .... │ ...e │ f..g │   the old places stay
//!  checkpoint with the new places, durable                           │
//!  cut      │ super │ log │ abef │ g.c. │ d... │
//! ```
//!
//! A pass chooses the shortest file that holds everything in use, and closes the segments behind
//! that length: no space is allocated there. It also closes segments in front that their size of
//! slots does not need, to make room for the pages that the next pass moves. The pages of all
//! closed segments are moved in steps, the last ones first, as in garbage collection (`collect`): a
//! copy, then the new place in the maps of all versions. The checkpoint rewrites the log and the
//! map nodes in closed segments. Commits continue between the steps; where they lack room they take
//! it from closed segments. Passes are repeated until one does nothing.
//!
//! Crash safety: no record describes a move, and no step before the checkpoint overwrites anything.
//! The old places become free only when the checkpoint with the new places is durable, and only
//! then is the file cut, behind the last segment in use. The length of the file is not stored in
//! it: an opening takes it from the file system.
//!
//! What stays: pages of a transaction that is not committed or not decided, and with single slots
//! the pages that a reader from before the move has, until it ends. The file is cut behind them.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::alloc::mover::{Mover, Retired};
use crate::alloc::moves::Load;
use crate::alloc::space::open_segment::Heat;
use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::place::{Class, Sector};
use crate::planted::{self, Bug};
use crate::stats::named;
use crate::store::PageStore;
use crate::version::map::Root;

/// Bytes of pages that are moved in one step.
const STEP_BYTES: u64 = 1 << 20;
/// The maximum number of passes: commits may make new work for ever.
const PASSES_MAX: u32 = 8;

/// The result of [`PageStore::compact`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Bytes of the file before.
    pub before_bytes: u64,
    /// Bytes of the file after.
    pub after_bytes: u64,
    /// Pages that were moved to the front.
    pub moved_pages: u64,
}

impl Compacted {
    /// Each by name.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, u64); 3] {
        named!(self, Compacted { before_bytes, after_bytes, moved_pages })
    }
}

/// Segments that are to be empty.
#[derive(Debug)]
struct Closed {
    segments: BTreeSet<u32>,
    segment_bytes: u64,
}

impl Closed {
    fn contains(&self, place: Sector) -> bool {
        let segment = place.offset() / self.segment_bytes;
        u32::try_from(segment).is_ok_and(|segment| self.segments.contains(&segment))
    }
}

/// A page that is where none is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Evicted {
    from: Sector,
    page: u32,
    class: Class,
}

/// A pass in progress. Dropping it abandons it: moved pages stay moved.
pub struct Squeeze {
    engine: Arc<Engine>,
    /// The number of segments that the file is to have.
    count: u32,
    closed: Closed,
    /// The pages that are yet to be moved, the last place last.
    evicted: Vec<Evicted>,
    moved: u64,
}

impl Squeeze {
    /// Takes a checkpoint, and chooses how short the file may become. Waits for a garbage
    /// collection in progress.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`].
    pub fn begin(store: &PageStore) -> Result<Self> {
        let engine = Arc::clone(store.engine());
        let mut core = engine.idle();
        engine.checkpoint_core(&mut core)?;
        core.mover = Mover::Squeeze;
        let count = core.space.fitting();
        let segments = core.space.surplus(count);
        core.space.close_all(&segments);
        let closed = Closed { segments, segment_bytes: core.space.segment_bytes() };
        let roots = engine.versions.lock().roots();
        drop(core);
        let evicted = evicted(&roots, &closed);
        Ok(Self { engine, count, closed, evicted, moved: 0 })
    }

    /// The number of pages that are yet to be moved.
    #[must_use]
    pub fn pages_left(&self) -> u64 {
        self.evicted.len() as u64
    }

    /// Moves some pages; returns `false` after the last step.
    ///
    /// # Errors
    /// The device failed; those pages are where they were.
    pub fn step(&mut self) -> Result<bool> {
        let engine = Arc::clone(&self.engine);
        engine.check_poison()?;
        let mut core = engine.core.lock();
        let Some(last) = self.evicted.last() else { return Ok(false) };
        if core.is_closed || !core.space.has_closed() {
            return Ok(false);
        }
        let class = last.class;
        let room = core.space.room_for(class, Heat::Cold).min(STEP_BYTES / class.bytes());
        let alike = self.evicted.iter().rev().take_while(|evicted| evicted.class == class);
        let some = alike.count().min(room as usize);
        if some == 0 {
            return Ok(false);
        }
        let mut some = self.evicted.split_off(self.evicted.len() - some);
        // Pages that are adjacent in the database are adjacent in the file.
        some.sort_unstable_by_key(|evicted| (evicted.page, evicted.from));
        let some = some.into_iter().map(|evicted| (evicted.from, evicted.page));
        let mut load = engine.live_of(class, some);
        engine.take_for(&mut core, &mut load)?;
        let is_in_order = core.space.is_in_order();
        drop(core);
        let copied = engine.copy(&load, is_in_order);
        self.moved += load.moves.len() as u64;
        engine.finish_load(&mut engine.core.lock(), load, &copied);
        copied.map(|_| !self.evicted.is_empty())
    }

    /// Takes a checkpoint with all new places, and cuts off the free end of the file. Returns how
    /// many pages were moved.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`]; the file is as long as before.
    pub fn finish(self) -> Result<u64> {
        let engine = Arc::clone(&self.engine);
        let mut core = engine.core.lock();
        engine.evict_nodes(&mut core, &self.closed);
        if planted::is(Bug::CutBeforeCheckpoint) {
            engine.media.truncate(core.space.segment_offset(self.count))?;
        }
        match engine.checkpoint_core(&mut core) {
            // What was closed is open now.
            Err(Error::Full { .. }) => engine.checkpoint_core(&mut core)?,
            outcome => outcome?,
        }
        core.space.open_all();
        engine.cut(&mut core)?;
        drop(core);
        Ok(self.moved)
    }
}

impl Drop for Squeeze {
    fn drop(&mut self) {
        let mut core = self.engine.core.lock();
        core.space.open_all();
        core.mover = Mover::Nobody;
        self.engine.wake.notify_all();
    }
}

impl fmt::Debug for Squeeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Squeeze");
        out.field("count", &self.count).field("evicted", &self.evicted.len()).finish()
    }
}

/// The pages that any version has in closed segments, each place once, in the order of places.
fn evicted(roots: &[Arc<Root>], closed: &Closed) -> Vec<Evicted> {
    let mut evicted = Vec::new();
    let mut newer = crate::version::map::Map::default();
    for root in roots.iter().rev() {
        let Some(class) = Class::holding(root.page_size as usize) else { continue };
        let mut visit = |page, from| -> std::result::Result<(), std::convert::Infallible> {
            if closed.contains(from) {
                evicted.push(Evicted { from, page, class });
            }
            Ok(())
        };
        match root.map.for_each_lost(&newer, &mut visit) {
            Ok(()) => newer = root.map.clone(),
        }
    }
    evicted.sort_unstable();
    evicted.dedup();
    evicted
}

impl Engine {
    /// The core, when neither garbage is collected nor a checkpoint on its way.
    fn idle(&self) -> MutexGuard<'_, Core> {
        let mut core = self.core.lock();
        while core.mover.is_any() || core.is_saving {
            self.wake.wait(&mut core);
        }
        core
    }

    /// Takes new places for pages. There is room.
    fn take_for(&self, core: &mut Core, load: &mut Load) -> Result<()> {
        let pages: Vec<u32> = load.moves.iter().map(|step| step.page).collect();
        let taken = if core.space.is_in_order() {
            self.append_places(core, Heat::Cold, load.class, &pages)?
        } else {
            self.take_slots(core, load.class, pages.len(), 0)?
        };
        for (step, to) in load.moves.iter_mut().zip(taken) {
            step.to = to;
        }
        Ok(())
    }

    /// Sees to it that the next checkpoint leaves no node of a map in closed segments.
    fn evict_nodes(&self, core: &mut Core, closed: &Closed) {
        let is_evicted = |at| closed.contains(at);
        let moved = self.versions.lock().relocate(&[], Some(&is_evicted));
        core.retired.push(Retired { places: Vec::new(), roots: moved.old_roots });
    }

    /// Cuts off the free segments at the end of the file. No checkpoint that an opening may find
    /// refers to them, and no reader uses them.
    fn cut(&self, core: &mut Core) -> Result<()> {
        let count = core.space.count_without_end();
        let bytes = core.space.segment_offset(count);
        if count == 0 || self.media.bytes()? <= bytes {
            return Ok(());
        }
        self.media.truncate(bytes)?;
        core.space.cut_to(count);
        Ok(())
    }

    fn file_segments(&self) -> u32 {
        self.core.lock().space.segment_count()
    }
}

impl PageStore {
    /// Makes the file as short as its live contents allow, and returns the rest to the file system.
    /// It does not wait for readers; commits continue, and wait for one step at most. After each
    /// step `going` is called with the number of pages moved and the number left, and may end the
    /// compaction: the finished steps are kept.
    ///
    /// Cost: one read and one write for each page that moves (those behind the new end, and those
    /// in front that leave segments half empty), in steps of 1 MiB; two checkpoints for each of at
    /// most eight passes, usually two or three; with [`crate::Allocation::Segment`] also a read and
    /// a write for each page in a segment of which more than a sixteenth is dead. Memory: 12 bytes
    /// for each page that is moved.
    ///
    /// Afterwards the file has its live contents (the database, named versions, maps with their
    /// deltas), the log and a few segments that are not full; the next commit lets it grow by what
    /// a checkpoint needs. Two kinds of pages stay where they are, and the file ends behind them:
    /// with [`crate::Allocation::Slot`] the pages that live snapshots have from before, and the
    /// pages of a transaction that is not over.
    ///
    /// # Errors
    /// As [`PageStore::checkpoint`]. The store is unchanged, except for pages that were moved.
    pub fn compact(&self, going: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Compacted> {
        let engine = self.engine();
        let bytes = |count: u32| u64::from(count) * u64::from(engine.segment_bytes);
        let mut count = engine.file_segments();
        let mut done = Compacted { before_bytes: bytes(count), ..Compacted::default() };
        for _ in 0..PASSES_MAX {
            self.collect_all()?;
            let mut pass = Squeeze::begin(self)?;
            let (mut is_over, mut goes_on) = (false, true);
            while goes_on && !is_over {
                goes_on = pass.step()?;
                is_over = going(done.moved_pages + pass.moved, pass.pages_left()).is_break();
            }
            let moved = pass.finish()?;
            done.moved_pages += moved;
            let before = std::mem::replace(&mut count, engine.file_segments());
            // One that needed room for its checkpoint leaves the rest to the next.
            if is_over || (count >= before && moved == 0) {
                break;
            }
        }
        done.after_bytes = bytes(count);
        Ok(done)
    }

    /// With segments that are filled in order: moves together what lives in them, for as long as
    /// that empties some.
    fn collect_all(&self) -> Result<()> {
        let engine = self.engine();
        let mut free = 0;
        loop {
            {
                // Somewhere to begin. On a full device there is what was set aside.
                let mut core = engine.idle();
                if !core.space.is_in_order() {
                    return Ok(());
                }
                let wanted = engine.kept_free(&core);
                match engine.ensure_segments(&mut core, wanted) {
                    Ok(()) | Err(Error::Full { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if engine.collect_dense()? == 0 {
                return Ok(());
            }
            let mut core = engine.core.lock();
            engine.checkpoint_core(&mut core)?;
            let before = std::mem::replace(&mut free, core.space.free_segments());
            if free <= before {
                return Ok(());
            }
        }
    }
}
