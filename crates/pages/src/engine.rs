//! The state that all handles of an open store share, and the few ways in which it accesses the
//! file.
//!
//! Thread safety: a thread that writes to the file holds `core` for the whole write. A thread holds
//! `versions` only for steps in memory, and never while it waits for `core`. A reader takes
//! `versions` to pin and to unpin, and takes no lock to read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use esker_device::process::Process;
use esker_device::{DeviceFile, Purpose};
use esker_format::ids::StoreId;
use parking_lot::{Condvar, Mutex};

use crate::checkpoint::{NODE_BYTES_MAX, NODE_BYTES_MIN};
use crate::collect::{Mover, Retired};
use crate::concurrent_checkpoint::CheckpointNotes;
use crate::error::{Error, Result, corrupt, damaged};
use crate::log::Log;
use crate::map::{LEAF, Mapping, NodeRef, Releases, Root};
use crate::media::Media;
use crate::options::{Options, SEGMENT_BYTES_MAX};
use crate::planted::{self, Bug};
use crate::read_only::Gate;
use crate::record::{Changes, Record};
use crate::space::{Class, Sector, Space};
use crate::stats::Counters;
use crate::versions::Versions;

/// Longest single write, in bytes, where slots are written that follow each other.
const RUN_BYTES: usize = 1 << 20;

/// The most bytes that a page written whole takes in a record.
pub(crate) const ITEM_BYTES: u64 = 20;

/// An open store.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The process that opened it: a child by `fork` writes nothing and releases nothing.
    pub(crate) process: Process,
    pub(crate) file: Arc<dyn DeviceFile>,
    /// The same, as what is filled in order sees it; pages are read through it.
    pub(crate) media: Arc<dyn Media>,
    /// The gate that both are behind if the store was opened for reading.
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) options: Options,
    pub(crate) store: StoreId,
    pub(crate) segment_bytes: u32,
    pub(crate) versions: Mutex<Versions>,
    pub(crate) core: Mutex<Core>,
    pub(crate) has_writer: AtomicBool,
    /// Memory for the pages of the next writer.
    pub(crate) spare: Mutex<Vec<Vec<u8>>>,
    pub(crate) poison: OnceLock<String>,
    pub(crate) releases: Releases,
    pub(crate) counters: Counters,
    /// Signalled when there is something to sync, or when the store is closed.
    pub(crate) wake: Condvar,
}

/// The state that writers, checkpoints and syncs change.
///
/// Invariants:
/// - a slot is taken in `space` while a version of the list, the last durable checkpoint, a
///   record since then, a prepared transaction or the live writer needs it.
/// - `dead` are slots that no version needs, but the last durable checkpoint or a record since
///   then may name; they are free once a later checkpoint is durable.
/// - `roots` are the versions of the last durable checkpoint; they keep its nodes from being
///   given back.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) space: Space,
    pub(crate) log: Log,
    /// Whether the log's epoch was begun by this opening. A log is never written on after a crash.
    pub(crate) is_log_ours: bool,
    /// The epoch that the next checkpoint begins.
    pub(crate) next_epoch: u64,
    /// The last frame known to be durable.
    pub(crate) durable: u64,
    /// Bytes written and not synced since.
    pub(crate) unsynced_bytes: u64,
    pub(crate) dead: Vec<Sector>,
    /// Places that pages were moved from.
    pub(crate) retired: Vec<Retired>,
    /// The task that moves pages while commits continue.
    pub(crate) mover: Mover,
    pub(crate) roots: Vec<Arc<Root>>,
    pub(crate) roots_at: NodeRef,
    pub(crate) named: BTreeMap<Arc<str>, u64>,
    pub(crate) prepared: Option<Prepared>,
    /// Bytes of all deltas of the newest version.
    pub(crate) delta_bytes: i64,
    /// Slots of the newest version.
    pub(crate) live_slots: i64,
    /// Whether the thread has been asked to sync.
    pub(crate) is_flush_wanted: bool,
    /// Whether the thread has been asked for a checkpoint.
    pub(crate) is_checkpoint_wanted: bool,
    /// Whether the thread has been asked for segments.
    pub(crate) is_growth_wanted: bool,
    /// Whether the device had no room for them; no further attempt is made before the next
    /// checkpoint.
    pub(crate) is_growth_in_vain: bool,
    /// Whether there is a thread to ask.
    pub(crate) has_thread: bool,
    /// The notes of a concurrent checkpoint in progress.
    pub(crate) checkpoint_notes: Option<CheckpointNotes>,
    /// Whether such a checkpoint has slots that only it refers to.
    pub(crate) is_saving: bool,
    pub(crate) is_closed: bool,
}

/// A transaction whose record is durable and which waits for its decision.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) name: Arc<[u8]>,
    pub(crate) changes: Changes,
}

impl Engine {
    /// Fails in a child by `fork`.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(Error::Forked { file: self.file.name().to_owned() })
    }

    /// Fails where nothing is written any more, or not yet, or not by this process.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.check_process()?;
        if self.is_read_only() {
            return Err(Error::ReadOnly { file: self.file.name().to_owned() });
        }
        if self.poison.get().is_some() { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Keeps the first failure after which the contents of the device are unknown.
    pub(crate) fn poisoned(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        let _first = self.poison.set(error.to_string());
        error
    }

    /// Takes `count` slots; the file grows where there are not enough in addition to `keep`
    /// segments.
    pub(crate) fn take_slots(
        &self,
        core: &mut Core,
        class: Class,
        count: usize,
        keep: u32,
    ) -> Result<Vec<Sector>> {
        self.ensure_slots(core, class, count as u64, keep)?;
        let mut slots = Vec::with_capacity(count);
        for _ in 0..count {
            let slot = core.space.take(class);
            slots.push(slot.ok_or_else(|| Error::Full { reason: "no slot is free".to_owned() })?);
        }
        Ok(slots)
    }

    /// Makes sure that `count` slots can be taken, and `keep` segments are left.
    pub(crate) fn ensure_slots(
        &self,
        core: &mut Core,
        class: Class,
        count: u64,
        keep: u32,
    ) -> Result<()> {
        let missing = count.saturating_sub(core.space.available(class, keep));
        let per_segment = core.space.segment_bytes() / class.bytes();
        self.grow(core, missing.div_ceil(per_segment.max(1)))
    }

    /// Makes sure that `count` whole segments are free.
    pub(crate) fn ensure_segments(&self, core: &mut Core, count: u32) -> Result<()> {
        self.grow(core, count.saturating_sub(core.space.free_segments()).into())
    }

    /// Allocates slots for pages. When the device is full, a checkpoint, whose room is reserved,
    /// may free some.
    pub(crate) fn take_page_slots(
        &self,
        core: &mut Core,
        class: Class,
        count: usize,
        grows: bool,
    ) -> Result<Vec<Sector>> {
        self.reserve_pages(core, class, count as u64, grows)?;
        self.take_slots(core, class, count, 0)
    }

    /// Makes sure that [`Engine::take_page_slots`] finds this many. What makes a database grow
    /// leaves some room to what does not: a full device takes updates and deletions.
    pub(crate) fn reserve_pages(
        &self,
        core: &mut Core,
        class: Class,
        count: u64,
        grows: bool,
    ) -> Result<()> {
        if core.space.is_in_order() {
            return self.reserve_in_order(core, class, count, grows, 0);
        }
        let record = core.log.segments_for(count * ITEM_BYTES);
        let keep = aside_for_pages(core, &self.options, self.segment_bytes) + record;
        // What grows must not fill the last slots of segments while there are no others.
        let spare = if grows { keep + slack(core) } else { 0 };
        let ensure = |core: &mut Core| {
            self.ensure_segments(core, spare)?;
            self.ensure_slots(core, class, count, keep.max(spare))
        };
        match ensure(core) {
            Err(Error::Full { .. }) => {
                self.checkpoint_core(core)?;
                ensure(core)
            }
            outcome => outcome,
        }
    }

    /// The number of segments that commits leave free for a checkpoint of the present contents.
    pub(crate) fn set_aside(&self, core: &Core) -> u32 {
        aside(core.live_slots, core.delta_bytes, self.segment_bytes)
    }

    /// Adds `count` segments, filled with zeros: what is rewritten later costs a fraction of what
    /// grows a file. Without a thread that sees to room, a large file gets some more.
    pub(crate) fn grow(&self, core: &mut Core, count: u64) -> Result<()> {
        // Before the file grows, what is to be cut off serves as well.
        let opened = core.space.open_some(u32::try_from(count).unwrap_or(u32::MAX));
        let count = count - u64::from(opened);
        if count == 0 {
            return Ok(());
        }
        let most = core.space.growable().into();
        if count > most {
            return Err(Error::Full { reason: "the file would pass 2 TiB".to_owned() });
        }
        let is_exact = core.has_thread || core.space.is_in_order() || core.mover.is_any();
        let ahead = if is_exact { 0 } else { self.spare_segments(core) };
        for added in 0..count.max(ahead).min(most) {
            match self.add_segment(core) {
                Err(_) if added >= count => break,
                Err(error) => {
                    // A file that cannot grow is not made shorter at the price of a commit.
                    core.space.open_all();
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Adds a segment of zeros.
    fn add_segment(&self, core: &mut Core) -> Result<()> {
        let zeros = vec![0; core.space.segment_bytes() as usize];
        let start = core.space.segment_offset(core.space.segment_count());
        self.file.write_at(start, &zeros, Purpose::Gc)?;
        core.space.add_segments(1);
        self.counters.filled.add(zeros.len() as u64);
        Ok(())
    }

    /// The number of segments that the thread keeps free, so that commits need not wait for growth.
    fn spare_segments(&self, core: &Core) -> u64 {
        growth_ahead(core.space.segment_count(), self.segment_bytes.into())
    }

    /// Room for pages, in segments.
    fn room(&self, core: &Core) -> u64 {
        let page_size = self.versions.lock().newest().1.page_size;
        let Some(class) = Class::holding(page_size as usize) else { return 0 };
        core.space.available(class, 0) * class.bytes() / core.space.segment_bytes()
    }

    /// Asks the thread for room where little is left.
    pub(crate) fn grow_soon(&self, core: &mut Core) {
        let is_little = self.room(core) < self.spare_segments(core) / 2;
        let is_asked = core.is_growth_wanted || core.is_growth_in_vain;
        let is_for_it = core.has_thread && !core.space.is_in_order() && !core.mover.is_any();
        if is_for_it && is_little && !is_asked {
            core.is_growth_wanted = true;
            self.wake.notify_all();
        }
    }

    /// Grows the file while commits continue, by one segment at a time.
    pub(crate) fn grow_in_background(&self) -> Result<()> {
        loop {
            {
                let mut core = self.core.lock();
                let is_enough = self.room(&core) >= self.spare_segments(&core);
                if is_enough || core.mover.is_any() || core.is_closed {
                    return Ok(());
                }
                self.add_segment(&mut core)?;
            }
            // So that no commit's sync has more than one of them to write.
            self.sync_file()?;
        }
    }

    /// Writes slots, those that follow each other in one go.
    pub(crate) fn write_slots(
        &self,
        slots: &mut [(Sector, &[u8])],
        purpose: Purpose,
    ) -> Result<()> {
        self.write_runs(slots, |at, bytes| Ok(self.file.write_at(at, bytes, purpose)?))
    }

    /// As [`Engine::write_slots`], by `write`.
    pub(crate) fn write_runs(
        &self,
        slots: &mut [(Sector, &[u8])],
        write: impl Fn(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        slots.sort_unstable_by_key(|(sector, _)| *sector);
        let mut rest: &[(Sector, &[u8])] = slots;
        while let Some((first, bytes)) = rest.first() {
            let start = first.offset();
            let mut end = start + bytes.len() as u64;
            let mut run = 1;
            while let Some((next, more)) = rest.get(run) {
                let is_long = (end - start) as usize + more.len() > RUN_BYTES;
                if next.offset() != end || is_long {
                    break;
                }
                end += more.len() as u64;
                run += 1;
            }
            let (now, later) = rest.split_at(run);
            if run == 1 {
                write(start, bytes)?;
            } else {
                let joined = now.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
                write(start, &joined)?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Makes sure that a record of this length can be appended.
    pub(crate) fn ensure_log(&self, core: &mut Core, record_bytes: u64) -> Result<()> {
        if core.space.is_in_order() {
            return self.ensure_log_in_order(core, record_bytes);
        }
        let keep = self.set_aside(core);
        match self.ensure_segments(core, core.log.segments_for(record_bytes) + keep) {
            Err(Error::Full { .. }) => {
                self.checkpoint_core(core)?;
                self.ensure_segments(core, core.log.segments_for(record_bytes) + keep)
            }
            outcome => outcome,
        }
    }

    /// Appends a record. An error poisons the store: the record may be there or not.
    pub(crate) fn append(&self, core: &mut Core, record: &[u8]) -> Result<()> {
        let mut log = core.log.clone();
        let space = &mut core.space;
        let writes = log.append(record, core.durable, || space.take_log());
        let writes = writes.map_err(|error| self.poisoned(damaged(self.file.name(), 0, &error)))?;
        for (offset, frame) in writes {
            self.write_frame(core, offset, &frame, log.unit)
                .map_err(|error| self.poisoned(error))?;
            self.counters.records.add(frame.len() as u64);
            core.unsynced_bytes += frame.len() as u64;
        }
        core.log = log;
        core.note_record(record, self.options.checkpoint_bytes / 2);
        Ok(())
    }

    /// Makes all that was written durable.
    pub(crate) fn sync_core(&self, core: &mut Core) -> Result<()> {
        self.media.flush(Purpose::Log).map_err(|error| self.poisoned(error))?;
        self.counters.syncs.add(1);
        core.durable = core.log.number - 1;
        core.unsynced_bytes = 0;
        Ok(())
    }

    /// Appends a record that changes no page, and makes it durable.
    pub(crate) fn note(&self, core: &mut Core, record: &Record) -> Result<()> {
        self.check_poison()?;
        self.own_log(core)?;
        let record = record.encode();
        self.ensure_log(core, record.len() as u64)?;
        self.append(core, &record)?;
        if planted::is(Bug::DecisionNotSynced) { Ok(()) } else { self.sync_core(core) }
    }

    /// Begins an epoch before the first record of this opening.
    pub(crate) fn own_log(&self, core: &mut Core) -> Result<()> {
        if core.is_log_ours { Ok(()) } else { self.checkpoint_core(core) }
    }

    /// Makes changes visible after their record has been written.
    pub(crate) fn publish(&self, core: &mut Core, changes: &Changes, base: &Root) {
        let applied = changes.apply(base);
        core.delta_bytes += applied.delta_bytes;
        core.live_slots += applied.slots;
        let root = Arc::new(applied.root);
        self.versions.lock().publish(changes.version, root, applied.replaced);
        if planted::is(Bug::ReusedBeforeCheckpoint) {
            let dead = self.versions.lock().take_dead();
            dead.into_iter().for_each(|sector| core.space.free(sector));
        }
        self.counters.commits.add(1);
    }

    /// Takes a checkpoint where one is due, or has the thread take it unless that has fallen far
    /// behind. That the commit before it succeeded does not depend on it; where it fails for want
    /// of room, the next commit tries again.
    pub(crate) fn checkpoint_if_due(&self, core: &mut Core) {
        if self.is_read_only() {
            return;
        }
        let burden = self.burden(core);
        if core.has_thread && !is_checkpoint_due(burden.halved()) {
            if !core.is_checkpoint_wanted && is_checkpoint_due(burden) {
                core.is_checkpoint_wanted = true;
                self.wake.notify_all();
            }
        } else if is_checkpoint_due(burden) && self.checkpoint_and_collect(core).is_err() {
            self.counters.checkpoints_failed.add(1);
        }
    }

    fn burden(&self, core: &Core) -> Burden {
        let versions = self.versions.lock();
        let dead = (core.dead.len() + versions.dead_count()) as u64;
        if core.space.is_in_order() {
            return self.burden_in_order(core, &versions);
        }
        let page_size = u64::from(versions.newest().1.page_size);
        Burden {
            log_bytes: core.log.bytes,
            log_limit: self.options.checkpoint_bytes,
            dead_bytes: dead * page_size,
            live_bytes: core.live_slots.max(0) as u64 * page_size,
            floor_bytes: self.segment_bytes.into(),
            dead_percent: 25,
        }
    }

    /// Reads a slot's contents and compares them with their checksum.
    pub(crate) fn read_slot(
        &self,
        sector: Sector,
        crc: u32,
        page: &mut [u8],
        purpose: Purpose,
    ) -> Result<()> {
        self.media.read(sector.offset(), page, purpose)?;
        if crc32c::crc32c(page) == crc {
            return Ok(());
        }
        let what = "a page does not match its checksum";
        Err(corrupt(self.file.name(), sector.offset(), what))
    }

    /// Reads a whole page as a version has it: at most one device read.
    pub(crate) fn read_mapping(
        &self,
        mapping: &Mapping,
        page: &mut [u8],
        purpose: Purpose,
    ) -> Result<()> {
        if mapping.entry.slot == Sector::NONE {
            page.fill(0);
        } else {
            self.read_slot(mapping.entry.slot, mapping.entry.crc, page, purpose)?;
        }
        match &mapping.delta {
            Some(delta) => crate::delta::apply(delta, page)
                .map_err(|error| damaged(self.file.name(), mapping.entry.slot.offset(), &error)),
            None => Ok(()),
        }
    }

    /// Lets the next writer in.
    pub(crate) fn release_writer(&self) {
        self.has_writer.store(false, Ordering::Release);
    }
}

/// The number of segments that are kept free for a checkpoint, from the number of live slots and
/// the bytes of deltas: for its log, for all nodes of the map, and for the first node of each
/// possible size.
fn aside(live_slots: i64, delta_bytes: i64, segment_bytes: u32) -> u32 {
    let bytes = 2 * (nodes(live_slots) * NODE_BYTES_MIN as i64 + delta_bytes.max(0));
    let sizes = segment_bytes.min(NODE_BYTES_MAX as u32) / NODE_BYTES_MIN as u32;
    let larger = if delta_bytes > 0 { sizes.max(1).ilog2() } else { 0 };
    let larger = larger.min(u32::try_from(nodes(live_slots)).unwrap_or(u32::MAX));
    3 + larger + (bytes / i64::from(segment_bytes)) as u32
}

/// The number of segments that pages leave free, so that there is room for a checkpoint on a full
/// device however the deltas grow: the nodes that live then are larger by the number of bytes that
/// is set aside for them, and their checkpoint needs the same number of bytes again.
fn aside_for_pages(core: &Core, options: &Options, segment_bytes: u32) -> u32 {
    let most = nodes(core.live_slots) * NODE_BYTES_MAX as i64;
    let deltas = i64::try_from(options.delta_bytes).unwrap_or(i64::MAX).min(most);
    let of = |deltas| aside(core.live_slots, deltas, segment_bytes);
    2 * of(deltas) - of(0)
}

/// The number of free segments that are reserved for operations that do not make the database grow.
pub(crate) fn slack(core: &Core) -> u32 {
    2 + core.space.segment_count() / 32
}

/// The number of leaves in a map of this many slots.
fn nodes(live_slots: i64) -> i64 {
    live_slots.max(0) / LEAF as i64 + 1
}

/// The number of segments that a file of `count` segments grows by where it must: a thirty-second
/// of it, up to 4 MiB, because the cost of one growth in the file system equals that of several
/// commits.
fn growth_ahead(count: u32, segment_bytes: u64) -> u64 {
    let most = u64::from(SEGMENT_BYTES_MAX) / segment_bytes;
    u64::from(count / 32).min(most)
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
    fn halved(self) -> Self {
        Self { log_bytes: self.log_bytes / 2, dead_bytes: self.dead_bytes / 2, ..self }
    }
}

/// Whether a checkpoint is due: after enough records, which bounds recovery, or when the dead bytes
/// are at least `floor_bytes` and `dead_percent` of the live bytes, which bounds the file.
pub(crate) fn is_checkpoint_due(burden: Burden) -> bool {
    let is_long = burden.log_bytes >= burden.log_limit;
    let is_dead = burden.dead_bytes >= burden.floor_bytes
        && burden.dead_bytes.saturating_mul(100)
            >= burden.live_bytes.saturating_mul(burden.dead_percent);
    is_long || is_dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_when_records_or_dead_pages_gather() {
        let due = |log_bytes, dead_bytes, live_bytes| {
            let (log_limit, floor_bytes, dead_percent) = (100, 10, 25);
            is_checkpoint_due(Burden {
                log_bytes,
                log_limit,
                dead_bytes,
                live_bytes,
                floor_bytes,
                dead_percent,
            })
        };
        assert!(due(100, 0, 0) && !due(99, 0, 0));
        assert!(due(0, 10, 40) && !due(0, 10, 41) && !due(0, 9, 0));
    }
}
