//! Commit: pages to free slots, one record, one sync.
//!
//! A commit writes, in no particular order: the pages that changed much, with one write for slots
//! that follow each other; and a record with the place and checksum of each of these pages, and
//! with the changed bytes of the other pages. One sync makes all of it durable; a record whose
//! pages are missing does not count. Only a transaction that spilled syncs its pages first, so that
//! opening need not read gigabytes to verify its record.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_device::Purpose;

use crate::delta;
use crate::engine::{Core, Engine, ITEM_BYTES, Prepared};
use crate::error::{Error, Result, invalid};
use crate::map::{Entry, LEAF};
use crate::options::Durability;
use crate::planted::{self, Bug};
use crate::record::{Change, Changes, PREPARE_BYTES_MAX, Record};
use crate::snapshot::Snapshot;
use crate::space::{Class, Sector};
use crate::writer::{Dirty, Writer};

/// Most bytes of deltas that one leaf of the map keeps: it is written whole by checkpoints.
const LEAF_DELTA_BYTES: i64 = 56 * 1024;
/// Bytes of a record without its pages.
const RECORD_BYTES: u64 = 64;

/// The way in which a commit stores a changed page.
#[derive(Debug)]
pub(crate) enum Plan<'a> {
    /// Written whole to a slot that is yet to be found.
    Whole(&'a [u8]),
    /// Known already.
    Done(Change),
}

/// The number of bytes that deltas may still grow by.
struct Room {
    leaf_bytes: i64,
    total: i64,
    leaves: HashMap<u32, i64>,
}

impl Room {
    fn new(writer: &Writer, delta_bytes: i64) -> Self {
        let options = &writer.engine.options;
        let limit = i64::try_from(options.delta_bytes).unwrap_or(i64::MAX);
        let leaf_bytes = LEAF_DELTA_BYTES.min(i64::from(writer.engine.segment_bytes) / 4);
        Self { leaf_bytes, total: limit.saturating_sub(delta_bytes), leaves: HashMap::new() }
    }

    /// The number of bytes that a new delta of a page may have, where its present one has `old`
    /// bytes.
    fn of(&mut self, writer: &Writer, page: u32, old: i64) -> usize {
        let leaf = self.leaves.entry(page / LEAF as u32).or_insert_with(|| {
            let root = writer.base.root();
            let leaf = root.map.leaf(page).filter(|_| !writer.is_new_map);
            leaf.map_or(0, |leaf| leaf.delta_bytes() as i64)
        });
        usize::try_from((self.leaf_bytes - *leaf).min(self.total) + old).unwrap_or(0)
    }

    fn take(&mut self, page: u32, more: i64) {
        *self.leaves.entry(page / LEAF as u32).or_default() += more;
        self.total -= more;
    }
}

/// Memory that planning uses again for each page.
struct Scratch {
    base: Vec<u8>,
    delta: Vec<u8>,
}

impl Writer {
    /// The plan for each changed page. Pages with unchanged contents are left out.
    fn plan(&self) -> Result<Vec<(u32, Plan<'_>)>> {
        let mut room = Room::new(self, self.engine.core.lock().delta_bytes);
        let mut plan = Vec::with_capacity(self.dirty.len());
        let mut scratch = Scratch { base: vec![0; self.page_size as usize], delta: Vec::new() };
        for (page, dirty) in &self.dirty {
            match dirty {
                Dirty::Spilled(entry) => plan.push((*page, Plan::Done(Change::Whole(*entry)))),
                Dirty::InMemory(new) => {
                    let planned = self.plan_page(*page, new, &mut scratch, &mut room);
                    plan.extend(planned.map(|planned| (*page, planned)));
                }
            }
        }
        Ok(plan)
    }

    /// Decides between a delta, the whole page, and nothing at all.
    fn plan_page<'a>(
        &self,
        page: u32,
        new: &'a [u8],
        scratch: &mut Scratch,
        room: &mut Room,
    ) -> Option<Plan<'a>> {
        let Scratch { base, delta } = scratch;
        let root = self.base.root();
        let mapping = self.mapping_in(&root, page);
        let known = match mapping.entry {
            Entry { slot: Sector::NONE, .. } => {
                base.fill(0);
                true
            }
            // A page that cannot be read any more is written whole.
            Entry { slot, crc } => self.engine.read_slot(slot, crc, base, Purpose::User).is_ok(),
        };
        let old = mapping.delta.as_ref().map_or(0, |delta| delta.len() as i64);
        let spent = mapping.delta.as_ref().map_or(0, |delta| delta.spent());
        // Deltas that grow by *g* bytes each cost least, with the page that ends them, where they
        // stop after as many bytes as the page has: at a length of sqrt(2 g page).
        let worth = new.len().saturating_sub(spent);
        let limit = room.of(self, page, old).min(new.len() / 2).min(worth);
        delta.clear();
        if known && delta::encode(base, new, limit, delta) {
            if mapping.delta.as_deref().unwrap_or_default() == delta.as_slice() {
                return None;
            }
            room.take(page, delta.len() as i64 - old);
            return Some(Plan::Done(Change::Delta(delta.as_slice().into())));
        }
        room.take(page, -old);
        let is_zeros = new.iter().all(|byte| *byte == 0);
        let hole = Plan::Done(Change::Whole(Entry::default()));
        Some(if is_zeros { hole } else { Plan::Whole(new) })
    }

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
            engine.reserve_pages(&mut core, class, slots, self.grows())?;
        }
        engine.ensure_log(&mut core, record)
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

    /// Makes the transaction durable without deciding it. After a crash
    /// [`crate::PageStore::prepared`] gives `name` back, which says where the decision is found.
    /// One sync.
    ///
    /// # Errors
    /// As [`Writer::commit`].
    pub fn prepare(&mut self, name: &[u8]) -> Result<()> {
        self.check_open()?;
        if name.len() > PREPARE_BYTES_MAX {
            return invalid("the name of a prepared transaction is longer than 64 KiB");
        }
        let plan = self.plan()?;
        if self.is_empty(&plan) {
            return Ok(());
        }
        let name: Arc<[u8]> = name.into();
        let mut core = self.engine.core.lock();
        let changes = self.write_record(&mut core, plan, Some(Arc::clone(&name)))?;
        self.engine.sync_core(&mut core)?;
        core.prepared = Some(Prepared { name, changes });
        drop(core);
        self.is_prepared = true;
        Ok(())
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
        if core.space.is_in_order() {
            return self.write_together(core, plan, prepare);
        }
        let wholes = plan.iter().filter(|(_, plan)| matches!(plan, Plan::Whole(_))).count();
        let class = self.class()?;
        let taken = engine.take_page_slots(core, class, wholes, self.grows())?;
        let written = self.write_pages(core, &taken, plan, prepare);
        let (changes, record) = written.inspect_err(|_| {
            for sector in &taken {
                core.space.free(*sector);
            }
        })?;
        engine.append(core, &record)?;
        self.count_pages(core, class, wholes, changes.items.len());
        Ok(changes)
    }

    /// The size of slot that a page takes.
    pub(crate) fn class(&self) -> Result<Class> {
        let no_class = || Error::InvalidArgument("the page size is out of bounds".to_owned());
        Class::holding(self.page_size as usize).ok_or_else(no_class)
    }

    /// Counts the changed pages, of which `wholes` were written whole.
    pub(crate) fn count_pages(&self, core: &mut Core, class: Class, wholes: usize, all: usize) {
        let bytes = wholes as u64 * class.bytes();
        core.unsynced_bytes += bytes;
        self.engine.counters.pages.add(bytes);
        self.engine.counters.whole_pages.add(wholes as u64);
        self.engine.counters.delta_pages.add((all - wholes) as u64);
    }

    /// All changes of the transaction, of which `items` are the pages. Spilled pages must be
    /// durable before the record.
    pub(crate) fn changes(&self, items: Vec<(u32, Change)>) -> Changes {
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

    /// Writes the pages, and makes the record.
    fn write_pages(
        &self,
        core: &mut Core,
        taken: &[Sector],
        plan: Vec<(u32, Plan<'_>)>,
        prepare: Option<Arc<[u8]>>,
    ) -> Result<(Changes, Vec<u8>)> {
        let mut slots: Vec<(Sector, &[u8])> = Vec::with_capacity(taken.len());
        let mut items = Vec::with_capacity(plan.len());
        let mut free = taken.iter();
        for (page, planned) in plan {
            let change = match planned {
                Plan::Done(change) => change,
                Plan::Whole(bytes) => {
                    let slot = free.next().copied().unwrap_or_default();
                    slots.push((slot, bytes));
                    Change::Whole(Entry { slot, crc: crc32c::crc32c(bytes) })
                }
            };
            items.push((page, change));
        }
        let changes = self.changes(items);
        let record = changes.record(prepare);
        self.engine.ensure_log(core, record.len() as u64)?;
        self.engine.write_slots(&mut slots, Purpose::User)?;
        if changes.are_pages_durable && !planted::is(Bug::SpilledNotSynced) {
            self.engine.sync_core(core)?;
        }
        Ok((changes, record))
    }
}

/// The changes that cut the database to `pages` after `prepared`; `None` where it is no longer than
/// that.
fn cut_after(prepared: &Changes, pages: u32) -> Option<Changes> {
    (pages < prepared.pages).then(|| Changes {
        version: prepared.version + 1,
        page_size: prepared.page_size,
        pages,
        kept_pages: pages,
        is_new_map: false,
        are_pages_durable: false,
        items: Vec::new(),
    })
}

impl Engine {
    /// Commits the prepared transaction of the live writer, and cuts the database to `pages`.
    /// Others have committed their parts of it, so it has taken place even where that cannot be
    /// written.
    fn commit_prepared(&self, pages: u32) {
        let mut core = self.core.lock();
        let Some(prepared) = core.prepared.clone() else { return };
        let mut cut = cut_after(&prepared.changes, pages);
        match self.note_decision(&mut core, cut.as_ref()) {
            Ok(is_cut) => cut = cut.filter(|_| is_cut),
            // Later records would build on a decision that is not there.
            Err(error) => drop(self.poisoned(error)),
        }
        core.prepared = None;
        for changes in [Some(prepared.changes), cut].into_iter().flatten() {
            let base = Arc::clone(self.versions.lock().newest().1);
            self.publish(&mut core, &changes, &base);
        }
        self.checkpoint_if_due(&mut core);
    }

    /// Writes that the prepared transaction took place, and the cut after it where there is room;
    /// whether there was. One sync.
    fn note_decision(&self, core: &mut Core, cut: Option<&Changes>) -> Result<bool> {
        self.check_poison()?;
        self.own_log(core)?;
        let decision = Record::Decide(true).encode();
        let cut = cut.map(|cut| cut.record(None));
        // Making room may take a checkpoint, which must not come between the records.
        let frames = 2 * (core.log.unit + RECORD_BYTES);
        let bytes = |cut: &Vec<u8>| frames + (decision.len() + cut.len()) as u64;
        let both = cut.filter(|cut| self.ensure_log(core, bytes(cut)).is_ok());
        if both.is_none() {
            self.check_poison()?;
            self.ensure_log(core, decision.len() as u64)?;
        }
        self.append(core, &decision)?;
        if let Some(cut) = both.as_ref().filter(|_| !planted::is(Bug::CutNotWritten)) {
            self.append(core, cut)?;
        }
        if !planted::is(Bug::DecisionNotSynced) {
            self.sync_core(core)?;
        }
        Ok(both.is_some())
    }

    /// Decides the prepared transaction, durably. A read-only store decides in memory alone: the
    /// next opening for writing consults the same file.
    pub(crate) fn decide(&self, commit: bool) -> Result<()> {
        let mut core = self.core.lock();
        let Some(prepared) = core.prepared.clone() else {
            return invalid("no transaction is prepared");
        };
        // It stays where a checkpoint finds it until the decision is durable.
        if !self.is_read_only() {
            self.note(&mut core, &Record::Decide(commit))?;
        }
        core.prepared = None;
        if commit {
            let base = Arc::clone(self.versions.lock().newest().1);
            self.publish(&mut core, &prepared.changes, &base);
            self.checkpoint_if_due(&mut core);
        } else {
            core.dead.extend(prepared.changes.slots().map(|entry| entry.slot));
        }
        Ok(())
    }

    /// Whether a prepared transaction was found that no live writer made.
    pub(crate) fn undecided(&self) -> Option<Vec<u8>> {
        if self.has_writer.load(Ordering::Acquire) {
            return None;
        }
        self.core.lock().prepared.as_ref().map(|prepared| prepared.name.to_vec())
    }
}
