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

use crate::alloc::mover::{Mover, Retired};
use crate::alloc::moves::Load;
use crate::counters::named;
use crate::engine::{Core, Engine};
use crate::error::{Error, Result, invalid};
use crate::place::{Class, Sector};
use crate::planted::{self, Bug};
use crate::version::map::Root;

/// Bytes of pages that are moved in one step.
const STEP_BYTES: u64 = 1 << 20;
/// The maximum number of passes: commits may make new work for ever.
const PASSES_MAX: u32 = 8;

/// The result of [`crate::PageStore::compact`].
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
    /// As [`crate::PageStore::checkpoint`].
    pub(crate) fn begin(engine: &Arc<Engine>) -> Result<Self> {
        let engine = Arc::clone(engine);
        let mut core = engine.idle();
        if core.shared.is_some() && !core.is_alone() {
            // Moves are in no record: other processes would not know of them.
            return invalid("a store that other processes may have open is not made shorter");
        }
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
        let room = engine.allocation.room_to_move(&core.space, class);
        let room = room.min(STEP_BYTES / class.bytes());
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
        drop(core);
        let copied = engine.copy(&load);
        self.moved += load.moves.len() as u64;
        engine.finish_load(&mut engine.core.lock(), load, &copied);
        copied.map(|_| !self.evicted.is_empty())
    }

    /// Takes a checkpoint with all new places, and cuts off the free end of the file. Returns how
    /// many pages were moved.
    ///
    /// # Errors
    /// As [`crate::PageStore::checkpoint`]; the file is as long as before.
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
        if core.is_alone() {
            // The log before is kept for one checkpoint more where processes share the store.
            engine.checkpoint_core(&mut core)?;
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
        core.mover = Mover::None;
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
    /// Takes new places for pages. There is room.
    fn take_for(&self, core: &mut Core, load: &mut Load) -> Result<()> {
        let pages: Vec<u32> = load.moves.iter().map(|step| step.page).collect();
        let taken = self.allocation.take_to_move(self, core, load.class, &pages)?;
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

/// Makes the file as short as its live contents allow ([`crate::PageStore::compact`]).
pub(crate) fn run(
    engine: &Arc<Engine>,
    going: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Compacted> {
    engine.begin_alone(engine.options.busy_timeout)?;
    let done = run_passes(engine, going);
    engine.end_alone()?;
    done
}

fn run_passes(
    engine: &Arc<Engine>,
    going: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Compacted> {
    let bytes = |count: u32| u64::from(count) * u64::from(engine.segment_bytes);
    let mut count = engine.file_segments();
    let mut done = Compacted { before_bytes: bytes(count), ..Compacted::default() };
    for _ in 0..PASSES_MAX {
        engine.allocation.collect_dense(engine)?;
        let mut pass = Squeeze::begin(engine)?;
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
