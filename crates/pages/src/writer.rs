//! An open transaction: changed pages in memory, over the version that it began from.
//!
//! Invariants: pages from `kept_pages` on are zeros unless they are in `dirty`; a page in `dirty`
//! is below `pages`; `memory_bytes` counts the pages of `dirty` that are in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::Engine;
use crate::error::{Error, Result, invalid};
use crate::options::check_page_size;
use crate::snapshot::{Snapshot, check_range};
use crate::version::map::Root;
use crate::version::mapping::{Entry, Mapping};

/// Bytes of pages' memory that one transaction leaves to the next.
const SPARE_BYTES: usize = 1 << 20;

/// A changed page.
#[derive(Clone, Debug)]
pub(crate) enum Dirty {
    InMemory(Vec<u8>),
    /// Written early, to a slot of its own.
    Spilled(Entry),
}

/// The one write transaction. Nothing of it is visible before [`Writer::commit`]; dropping it
/// aborts it, unless it is prepared: then it stays undecided, as after [`Writer::leave_undecided`].
/// It keeps at most [`crate::Options::spill_bytes`] of pages in memory and writes the rest out
/// early.
pub struct Writer {
    pub(crate) engine: Arc<Engine>,
    pub(crate) base: Snapshot,
    pub(crate) dirty: BTreeMap<u32, Dirty>,
    /// Memory of pages that are not dirty any more.
    spare: Vec<Vec<u8>>,
    pub(crate) memory_bytes: u64,
    pub(crate) kept_pages: u32,
    pub(crate) pages: u32,
    pub(crate) page_size: u32,
    pub(crate) is_new_map: bool,
    /// Whether a prepare record is durable: then nothing can change any more, except by truncation.
    pub(crate) is_prepared: bool,
    pub(crate) is_over: bool,
}

impl Writer {
    /// Begins on the newest version.
    pub(crate) fn begin(engine: &Arc<Engine>, base: &Snapshot) -> Result<Self> {
        engine.check_poison()?;
        if !Arc::ptr_eq(engine, &base.engine) {
            return invalid("the snapshot is of another store");
        }
        if engine.has_writer.swap(true, Ordering::AcqRel) {
            return Err(Error::Busy);
        }
        let newest = engine.versions.lock().newest().0;
        // A process that shares the store stops to write only while there is no writer.
        let refused = if let Err(error) = engine.check_poison() {
            Some(error)
        } else if newest != base.version() {
            Some(Error::Stale { base: base.version(), newest })
        } else if engine.core.lock().prepared.is_some() {
            Some(Error::Busy)
        } else {
            None
        };
        if let Some(error) = refused {
            engine.release_writer();
            return Err(error);
        }
        Ok(Self {
            engine: Arc::clone(engine),
            base: base.clone(),
            dirty: BTreeMap::new(),
            spare: std::mem::take(&mut *engine.spare.lock()),
            memory_bytes: 0,
            kept_pages: base.pages(),
            pages: base.pages(),
            page_size: base.page_size(),
            is_new_map: false,
            is_prepared: false,
            is_over: false,
        })
    }

    /// Pages of the database as this transaction sees it.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Starts an empty database with this page size; earlier writes of this transaction are
    /// dropped. Does nothing when the page size is already this one.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an invalid page size, or one larger than a segment of the
    /// store.
    pub fn set_page_size(&mut self, bytes: u32) -> Result<()> {
        self.check_open()?;
        check_page_size(bytes)?;
        if bytes > self.engine.segment_bytes {
            let most = self.engine.segment_bytes;
            return invalid(format!("pages of this store have at most {most} bytes"));
        }
        if bytes == self.page_size {
            return Ok(());
        }
        self.truncate(0)?;
        (self.page_size, self.is_new_map) = (bytes, true);
        Ok(())
    }

    /// Fills `buf` from `offset` of a page as this transaction sees it. At most one device read.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub fn read(&self, page: u32, offset: u32, buf: &mut [u8]) -> Result<()> {
        check_range(self.page_size, offset, buf.len())?;
        if page >= self.pages {
            return invalid(format!("page {page} is past the last of {}", self.pages));
        }
        match self.dirty.get(&page) {
            Some(Dirty::InMemory(bytes)) => {
                let part = bytes.get(offset as usize..).and_then(|rest| rest.get(..buf.len()));
                buf.copy_from_slice(part.unwrap_or_default());
                Ok(())
            }
            Some(Dirty::Spilled(entry)) => {
                let mapping = Mapping { entry: *entry, delta: None };
                self.engine.read_part(&mapping, self.page_size, offset, buf)
            }
            None => {
                let root = self.base.root();
                let mapping = self.mapping_in(&root, page);
                self.engine.read_part(&mapping, self.page_size, offset, buf)
            }
        }
    }

    /// The mapping of a page that this transaction has not written; `root` is its base's.
    pub(crate) fn mapping_in(&self, root: &Root, page: u32) -> Mapping {
        if page < self.kept_pages { root.map.get(page) } else { Mapping::default() }
    }

    /// Changes a part of a page; the page is read first unless all of it is overwritten. A write
    /// past the end extends the database, with zeros in a gap.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a range that is not within a page, or after
    /// [`Writer::prepare`]; an error of the device, after which the page is unchanged.
    pub fn write(&mut self, page: u32, offset: u32, bytes: &[u8]) -> Result<()> {
        self.check_open()?;
        check_range(self.page_size, offset, bytes.len())?;
        let Some(end) = page.checked_add(1) else {
            return invalid("a database has at most 2^32 - 1 pages");
        };
        if !matches!(self.dirty.get(&page), Some(Dirty::InMemory(_))) {
            self.make_room()?;
            let held = self.load(page, offset, bytes)?;
            self.forget(page);
            self.memory_bytes += u64::from(self.page_size);
            self.dirty.insert(page, Dirty::InMemory(held));
        } else if let Some(Dirty::InMemory(held)) = self.dirty.get_mut(&page) {
            put(held, offset, bytes);
        }
        self.pages = self.pages.max(end);
        Ok(())
    }

    /// The contents of a page with a part of it changed.
    fn load(&mut self, page: u32, offset: u32, bytes: &[u8]) -> Result<Vec<u8>> {
        let page_bytes = self.page_size as usize;
        let mut held = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(page_bytes));
        held.clear();
        if bytes.len() == page_bytes {
            held.extend_from_slice(bytes);
            return Ok(held);
        }
        held.resize(page_bytes, 0);
        if page < self.pages {
            self.read(page, 0, &mut held)?;
        }
        put(&mut held, offset, bytes);
        Ok(held)
    }

    /// Puts a page that was in memory into another place.
    pub(crate) fn replace(&mut self, page: u32, by: Dirty) {
        if let Some(Dirty::InMemory(held)) = self.dirty.insert(page, by) {
            self.spare.push(held);
        }
    }

    /// Takes a page out of `dirty`.
    fn forget(&mut self, page: u32) {
        match self.dirty.remove(&page) {
            Some(Dirty::InMemory(held)) => {
                self.memory_bytes -= u64::from(self.page_size);
                self.spare.push(held);
            }
            // No record names the slot.
            Some(Dirty::Spilled(entry)) => self.engine.core.lock().space.free(entry.slot),
            None => {}
        }
    }

    /// Sets the length of the database in pages. Pages that are cut off read as zeros if it grows
    /// again.
    ///
    /// After [`Writer::prepare`] it can only become shorter. The truncation belongs to the commit
    /// and not to the decision: a crash between the decision and the commit leaves the pages past
    /// the new end.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] where a prepared transaction would become longer.
    pub fn truncate(&mut self, pages: u32) -> Result<()> {
        if self.is_prepared {
            if pages > self.pages {
                return invalid("a prepared transaction cannot become longer: commit or abort it");
            }
            self.pages = pages;
            return Ok(());
        }
        let cut: Vec<u32> = self.dirty.range(pages..).map(|(page, _)| *page).collect();
        for page in cut {
            self.forget(page);
        }
        self.pages = pages;
        self.kept_pages = self.kept_pages.min(pages);
        Ok(())
    }

    /// Whether the database becomes larger.
    pub(crate) fn grows(&self) -> bool {
        self.pages > self.base.pages() || self.is_new_map
    }

    /// Whether [`Writer::prepare`] has made it durable.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.is_prepared
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_prepared {
            return invalid("the transaction is prepared: commit it or abort it");
        }
        Ok(())
    }

    /// Drops the transaction. Nothing of it was ever visible. For a prepared transaction the abort
    /// is made durable; where it cannot be written the store is poisoned, and the next opening asks
    /// for the decision again.
    pub fn abort(mut self) {
        self.end(true);
    }

    /// Ends a prepared transaction whose decision is unknown: nothing of it is visible, the store
    /// is poisoned, and the next opening asks for the decision ([`crate::PageStore::prepared`]). A
    /// transaction that is not prepared is aborted.
    pub fn leave_undecided(mut self) {
        self.end(false);
    }

    /// Leaves some memory to the next transaction.
    fn give_memory_back(&mut self) {
        let dirty = std::mem::take(&mut self.dirty).into_values();
        self.spare.extend(dirty.filter_map(|dirty| match dirty {
            Dirty::InMemory(held) => Some(held),
            Dirty::Spilled(_) => None,
        }));
        self.spare.truncate(SPARE_BYTES / self.page_size as usize);
        *self.engine.spare.lock() = std::mem::take(&mut self.spare);
    }

    /// Releases the resources of the transaction. A prepared one has not taken place, if
    /// `is_decided`.
    fn end(&mut self, is_decided: bool) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        if self.is_prepared && is_decided {
            // Where it cannot be written, a later opening asks for the decision again.
            if let Err(error) = self.engine.decide(false) {
                self.engine.poisoned(error);
            }
        } else if self.is_prepared {
            let why = "it is not known whether a prepared transaction took place";
            self.engine.poisoned(Error::InvalidArgument(why.to_owned()));
        } else {
            let mut core = self.engine.core.lock();
            for dirty in self.dirty.values() {
                if let Dirty::Spilled(entry) = dirty {
                    core.space.free(entry.slot);
                }
            }
        }
        self.engine.counters.aborts.add(1);
        self.engine.release_writer();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.engine.process.is_current() {
            return;
        }
        self.end(false);
        self.give_memory_back();
        self.engine.pass_on();
    }
}

/// Changes a part of a page.
fn put(page: &mut [u8], offset: u32, bytes: &[u8]) {
    let part = page.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..bytes.len()));
    if let Some(part) = part {
        part.copy_from_slice(bytes);
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Writer");
        out.field("base", &self.base.version()).field("changed", &self.dirty.len());
        out.field("pages", &self.pages).finish()
    }
}
