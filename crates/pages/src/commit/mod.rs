//! Commit: pages to free slots, one record, one sync.
//!
//! A commit writes, in no particular order: the pages that changed much, with one write for slots
//! that follow each other; and a record with the place and checksum of each of these pages, and
//! with the changed bytes of the other pages. One sync makes all of it durable; a record whose
//! pages are missing does not count. Only a transaction that spilled syncs its pages first, so that
//! opening need not read gigabytes to verify its record.

use std::sync::Arc;

use crate::alloc::allocation::{Commit, PageBytes};
use crate::commit::plan::Plan;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::log::record::{Change, Changes, ITEM_BYTES};
use crate::options::Durability;
use crate::place::{Class, Sector};
use crate::planted::{self, Bug};
use crate::snapshot::Snapshot;
use crate::version::mapping::Entry;
use crate::writer::{Dirty, Writer};

mod plan;
mod prepare;
mod spill;

/// Bytes of a record without its pages.
const RECORD_BYTES: u64 = 64;

impl Writer {
    /// Whether a commit would change nothing.
    fn is_empty(&self, plan: &[(u32, Plan<'_>)]) -> bool {
        let base = self.base.pages();
        plan.is_empty() && !self.is_new_map && self.pages == base && self.kept_pages == base
    }

    /// Makes sure that a commit finds room: [`Error::Full`] comes now and not then, unless the
    /// device breaks its word or the store is checkpointed in between.
    ///
    /// # Errors
    /// [`Error::Full`]; the transaction continues.
    pub fn reserve(&mut self) -> Result<()> {
        self.check_open()?;
        let engine = &self.engine;
        engine.check_poison()?;
        let mut core = engine.core.lock();
        engine.own_log(&mut core)?;
        let in_memory = self.dirty.values().filter(|dirty| matches!(dirty, Dirty::InMemory(_)));
        let in_memory = in_memory.count() as u64;
        // A page takes a slot, or at most half of its length in the record.
        let deltas = in_memory * u64::from(self.page_size / 2);
        let record = RECORD_BYTES + self.dirty.len() as u64 * ITEM_BYTES + deltas;
        if let Some(class) = Class::holding(self.page_size as usize) {
            let per_segment = u64::from(engine.segment_bytes) / class.bytes();
            let segments = core.log.segments_for(record);
            let slots = in_memory + u64::from(segments) * per_segment;
            engine.allocation.reserve(engine, &mut core, class, slots, self.grows())?;
        }
        engine.reserve_log(&mut core, record)
    }

    /// Makes the transaction visible to later snapshots, and durable as asked. A transaction that
    /// changed nothing writes nothing. A prepared transaction is already durable, and its decision
    /// is recorded where its name says, so its commit does not fail. It becomes visible even when a
    /// write fails; where its commit cannot be written, the store is poisoned and the next opening
    /// asks for the decision again. A truncation after the preparation is committed after it, by
    /// the same sync.
    ///
    /// Cost: one write for each run of slots, one for the record, and with [`Durability::Full`] one
    /// sync; two syncs where pages were spilled; occasionally also a checkpoint.
    ///
    /// # Errors
    /// Nothing of the transaction is visible then. Where the contents of the device are unknown,
    /// the store is poisoned: it accepts no more commits until it is opened again, which decides
    /// whether this commit happened.
    pub fn commit(mut self, durability: Durability) -> Result<Snapshot> {
        let engine = Arc::clone(&self.engine);
        engine.check_process()?;
        if self.is_prepared {
            engine.commit_prepared(self.pages);
            self.is_over = true;
            engine.release_writer();
            return Ok(Snapshot::newest(&engine));
        }
        let plan = self.plan()?;
        if self.is_empty(&plan) {
            engine.counters.empty_commits.add(1);
            self.is_over = true;
            engine.release_writer();
            return Ok(Snapshot::newest(&engine));
        }
        let mut core = engine.core.lock();
        let changes = self.write_record(&mut core, plan, None)?;
        if durability == Durability::Full && !planted::is(Bug::AcknowledgedBeforeSync) {
            engine.sync_core(&mut core)?;
        }
        // As the newest version is now: its pages may have moved since the transaction began.
        let base = Arc::clone(engine.versions.lock().newest().1);
        engine.publish(&mut core, &changes, &base);
        let snapshot = Snapshot::newest(&engine);
        self.is_over = true;
        engine.release_writer();
        engine.checkpoint_if_due(&mut core);
        engine.grow_soon(&mut core);
        if durability == Durability::Relaxed {
            engine.sync_soon(&mut core);
        }
        Ok(snapshot)
    }

    /// Writes the pages and the record. Where it fails before the record the slots are free again;
    /// after that the store is poisoned.
    fn write_record(
        &self,
        core: &mut Core,
        plan: Vec<(u32, Plan<'_>)>,
        prepare: Option<Arc<[u8]>>,
    ) -> Result<Changes> {
        let engine = &self.engine;
        engine.check_poison()?;
        engine.own_log(core)?;
        let class = self.class()?;
        let (pages, items) = split(plan);
        let (count, all) = (pages.len(), items.len());
        let (changes, grows) = (self.changes(items), self.grows());
        let commit = Commit { class, pages, changes, prepare, grows };
        let changes = engine.allocation.write_commit(engine, core, commit)?;
        self.count_pages(core, class, count, all);
        Ok(changes)
    }

    /// The size of slot that a page takes.
    fn class(&self) -> Result<Class> {
        let no_class = || Error::InvalidArgument("the page size is out of bounds".to_owned());
        Class::holding(self.page_size as usize).ok_or_else(no_class)
    }

    /// Counts the changed pages, of which `wholes` were written whole.
    fn count_pages(&self, core: &mut Core, class: Class, wholes: usize, all: usize) {
        let bytes = wholes as u64 * class.bytes();
        core.unsynced_bytes += bytes;
        self.engine.counters.pages.add(bytes);
        self.engine.counters.whole_pages.add(wholes as u64);
        self.engine.counters.delta_pages.add((all - wholes) as u64);
    }

    /// All changes of the transaction, of which `items` are the pages. Spilled pages must be
    /// durable before the record.
    fn changes(&self, items: Vec<(u32, Change)>) -> Changes {
        let has_spilled = self.dirty.values().any(|dirty| matches!(dirty, Dirty::Spilled(_)));
        Changes {
            version: self.base.version() + 1,
            page_size: self.page_size,
            pages: self.pages,
            kept_pages: self.kept_pages,
            is_new_map: self.is_new_map,
            are_pages_durable: has_spilled,
            items,
        }
    }
}

/// The pages that need a place, and all changes, in which the places are missing.
fn split<'a>(plan: Vec<(u32, Plan<'a>)>) -> (Vec<PageBytes<'a>>, Vec<(u32, Change)>) {
    let mut pages = Vec::new();
    let items = plan.into_iter().map(|(page, planned)| match planned {
        Plan::Done(change) => (page, change),
        Plan::Whole(bytes) => {
            pages.push((page, bytes));
            (page, Change::Whole(Entry { slot: Sector::NONE, crc: crc32c::crc32c(bytes) }))
        }
    });
    let items = items.collect();
    (pages, items)
}
