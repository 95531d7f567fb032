//! The way in which a store allocates places for changed pages, chosen when it is opened.

use std::fmt::Debug;
use std::sync::Arc;

use esker_device::Purpose;

use crate::alloc::space::Space;
use crate::engine::{Core, Engine};
use crate::error::Result;
use crate::log::record::{Change, Changes};
use crate::options::Allocation as Kind;
use crate::place::{Class, Sector};
use crate::version::versions::Versions;

/// A page of a database and what it holds.
pub(crate) type PageBytes<'a> = (u32, &'a [u8]);

/// The pages of a transaction and its changes, before they are written.
pub(crate) struct Commit<'a> {
    pub(crate) class: Class,
    /// The pages that are written whole, ascending.
    pub(crate) pages: Vec<PageBytes<'a>>,
    /// All changes; the places of `pages` are missing in them.
    pub(crate) changes: Changes,
    /// The name of the transaction if it is prepared.
    pub(crate) prepare: Option<Arc<[u8]>>,
    /// Whether the database becomes larger.
    pub(crate) grows: bool,
}

impl Commit<'_> {
    /// The record. Its length does not depend on the places.
    pub(crate) fn record(&self) -> Vec<u8> {
        self.changes.record(self.prepare.clone())
    }

    /// Enters the places of the pages, in their order.
    pub(crate) fn put(&mut self, places: impl Iterator<Item = Sector>) {
        let mut placed = self.pages.iter().map(|(page, _)| *page).zip(places).peekable();
        for (page, change) in &mut self.changes.items {
            let Some((_, place)) = placed.next_if(|(number, _)| number == page) else { continue };
            if let Change::Whole(entry) = change {
                entry.slot = place;
            }
        }
    }
}

/// The log and the dead bytes since the last checkpoint, and the limits of both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burden {
    pub(crate) log_bytes: u64,
    pub(crate) log_limit: u64,
    pub(crate) dead_bytes: u64,
    pub(crate) live_bytes: u64,
    pub(crate) floor_bytes: u64,
    /// The limit of the dead bytes, in percent of the live ones.
    pub(crate) dead_percent: u64,
}

impl Burden {
    /// Half of it: what is due then has been due for as long again.
    pub(crate) fn halved(self) -> Self {
        Self { log_bytes: self.log_bytes / 2, dead_bytes: self.dead_bytes / 2, ..self }
    }
}

/// A way to allocate. The methods that reserve or take places grow the file, take a checkpoint or
/// collect garbage where there is too little room, and fail with [`crate::Error::Full`] where that
/// is not enough. Places are given back with [`Space::free`].
pub(crate) trait Allocation: Send + Sync + Debug {
    /// The way as the superblock names it.
    fn kind(&self) -> Kind;

    /// Whether pages that a version has may get another place at any time.
    fn moves_pages(&self) -> bool;

    /// Whether a file that must grow gets more segments than are needed at once.
    fn grows_ahead(&self) -> bool;

    /// The unit of the next log's frames, in bytes.
    fn log_unit(&self, engine: &Engine) -> u32;

    /// Makes sure that [`Allocation::take`] finds places for `count` pages, and the log finds room
    /// for their record. What makes the database grow (`grows`) leaves some room to what does not.
    fn reserve(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        count: u64,
        grows: bool,
    ) -> Result<()>;

    /// Makes sure that a record of this many bytes can be appended.
    fn reserve_log(&self, engine: &Engine, core: &mut Core, record_bytes: u64) -> Result<()>;

    /// Takes places for pages, which will be written in this order. All of them, or none.
    fn take(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        pages: &[u32],
        grows: bool,
    ) -> Result<Vec<Sector>>;

    /// The number of pages for which [`Allocation::take_to_move`] has places without growing.
    fn room_to_move(&self, space: &Space, class: Class) -> u64;

    /// Takes places for pages that are moved. All of them, or none.
    fn take_to_move(
        &self,
        engine: &Engine,
        core: &mut Core,
        class: Class,
        pages: &[u32],
    ) -> Result<Vec<Sector>>;

    /// Writes pages to the places taken for them.
    fn write(
        &self,
        engine: &Engine,
        places: &mut [(Sector, &[u8])],
        purpose: Purpose,
    ) -> Result<()>;

    /// Writes a frame of the log, whose length is a multiple of `unit`.
    fn write_frame(
        &self,
        engine: &Engine,
        core: &mut Core,
        at: u64,
        frame: &[u8],
        unit: u64,
    ) -> Result<()>;

    /// Writes the pages of a transaction and its record, and returns the changes with all places.
    /// Where it fails before anything of the record is written the places are given back; after
    /// that the store is poisoned.
    fn write_commit(&self, engine: &Engine, core: &mut Core, commit: Commit<'_>)
    -> Result<Changes>;

    /// The burden that decides whether a checkpoint is due.
    fn burden(&self, engine: &Engine, core: &Core, versions: &Versions) -> Burden;

    /// Takes this very place for a page, as a map or a record names it. `false` when it cannot be
    /// one: past the end, not aligned, in use, or among slots of another size.
    fn claim(&self, space: &mut Space, place: Sector, class: Class, page: u32) -> bool;

    /// Takes the bytes of a log's frame, whose segment is the log's. `false` when something else is
    /// there.
    fn claim_frame(&self, space: &mut Space, at: u64, bytes: u64, unit: u64) -> bool;

    /// Collects garbage until `needed` segments are free or will be after the next checkpoint, as
    /// far as possible; with 0, until enough are. Returns the number of emptied segments.
    fn collect(&self, engine: &Engine, core: &mut Core, needed: u32) -> Result<u32>;

    /// Collects garbage while commits continue, until enough segments are free.
    fn collect_in_background(&self, engine: &Engine) -> Result<()>;

    /// Collects all garbage, between two checkpoints. Returns the number of emptied segments.
    fn collect_all(&self, engine: &Engine) -> Result<u32>;

    /// Moves what lives in segments with garbage together, for as long as that empties some.
    fn collect_dense(&self, engine: &Engine) -> Result<()>;
}
