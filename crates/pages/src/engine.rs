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

use crate::alloc::allocation::Allocation;
use crate::alloc::mover::{Mover, Retired};
use crate::alloc::space::Space;
use crate::counters::Counters;
use crate::error::{Error, Result, corrupt, damaged};
use crate::log::frames::Log;
use crate::log::notes::CheckpointNotes;
use crate::log::record::Changes;
use crate::log::shared::SharedCore;
use crate::log::superblock::Found;
use crate::media::Media;
use crate::media::gate::Gate;
use crate::meeting::member::Member;
use crate::options::Options;
use crate::place::Sector;
use crate::version::delta;
use crate::version::map::Root;
use crate::version::mapping::Mapping;
use crate::version::tree::{NodeRef, Releases};
use crate::version::versions::Versions;

/// An open store.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The process that opened it: a child by `fork` writes nothing and releases nothing.
    pub(crate) process: Process,
    /// All that is read and written.
    pub(crate) media: Arc<dyn Media>,
    /// The gate that it is behind if the store was opened for reading.
    pub(crate) gated: Option<Gated>,
    /// The way in which places for pages are found, chosen at opening.
    pub(crate) allocation: &'static dyn Allocation,
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
    /// The part of this process in the meeting of those that have the store open, if more than one
    /// may.
    pub(crate) member: Option<Arc<Member>>,
    /// How it takes turns with others at writing, if it does.
    pub(crate) turns: Option<Turns>,
    /// Whether no process of the meeting was known to have written the store.
    pub(crate) is_unsaid: AtomicBool,
    /// Signalled when there is something to sync, or when the store is closed.
    pub(crate) wake: Condvar,
}

/// How a process that has a store open with others takes turns at writing.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The file opened to be written; none where it may only be read.
    file: OnceLock<Arc<dyn DeviceFile>>,
}

impl Turns {
    pub(crate) fn new(file: Option<Arc<dyn DeviceFile>>) -> Self {
        Self { file: file.map_or_else(OnceLock::new, OnceLock::from) }
    }

    /// Where it could only be read: from now on it may be written through `file`.
    pub(crate) fn let_write(&self, file: Arc<dyn DeviceFile>) {
        let _first = self.file.set(file);
    }

    pub(crate) fn file(&self) -> Option<&Arc<dyn DeviceFile>> {
        self.file.get()
    }

    pub(crate) fn may_write(&self) -> bool {
        self.file.get().is_some()
    }
}

/// The gate of a store that was opened for reading.
#[derive(Debug)]
pub(crate) struct Gated {
    pub(crate) gate: Arc<Gate>,
    /// The meaning of the file's first bytes when it was opened.
    pub(crate) found: Found,
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
    /// Whether checkpoints say that several processes may have the store open.
    pub(crate) is_for_many: bool,
    /// What is kept in addition where several processes have the store open.
    pub(crate) shared: Option<SharedCore>,
}

/// A transaction whose record is durable and which waits for its decision.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) name: Arc<[u8]>,
    pub(crate) changes: Changes,
}

impl Core {
    /// The state of an opening that has written nothing.
    pub(crate) fn new(space: Space, log: Log, next_epoch: u64) -> Self {
        Self {
            space,
            log,
            is_log_ours: false,
            next_epoch,
            durable: 0,
            unsynced_bytes: 0,
            dead: Vec::new(),
            retired: Vec::new(),
            mover: Mover::None,
            roots: Vec::new(),
            roots_at: NodeRef::default(),
            named: Default::default(),
            prepared: None,
            delta_bytes: 0,
            live_slots: 0,
            is_flush_wanted: false,
            is_checkpoint_wanted: false,
            is_growth_wanted: false,
            is_growth_in_vain: false,
            has_thread: false,
            checkpoint_notes: None,
            is_saving: false,
            is_closed: false,
            is_for_many: false,
            shared: None,
        }
    }

    /// A record has been appended. Where they become too many for a log to begin with, the
    /// concurrent checkpoint in progress is abandoned.
    pub(crate) fn note_record(&mut self, record: &[u8], bytes_max: u64) {
        let unit = self.log.unit;
        let fits = |notes: &mut CheckpointNotes| notes.add(record, unit, bytes_max);
        if self.checkpoint_notes.as_mut().is_some_and(|notes| !fits(notes)) {
            self.checkpoint_notes = None;
        }
    }
}

impl Engine {
    /// Fails in a child by `fork`.
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(Error::Forked { file: self.media.name().to_owned() })
    }

    /// Whether the store was opened to be read, and has not been made writable; or another process
    /// may write it.
    pub(crate) fn is_read_only(&self) -> bool {
        match &self.member {
            Some(member) => !member.leads(),
            None => self.gated.as_ref().is_some_and(|gated| !gated.gate.is_open()),
        }
    }

    /// Fails where nothing is written any more, or not yet, or not by this process.
    pub(crate) fn check_poison(&self) -> Result<()> {
        self.check_process()?;
        if self.is_read_only() {
            return Err(Error::ReadOnly { file: self.media.name().to_owned() });
        }
        if self.poison.get().is_some() { Err(Error::Poisoned) } else { Ok(()) }
    }

    /// Keeps the first failure after which the contents of the device are unknown.
    pub(crate) fn poisoned(&self, error: impl Into<Error>) -> Error {
        let error = error.into();
        let _first = self.poison.set(error.to_string());
        error
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
        Err(corrupt(self.media.name(), sector.offset(), what))
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
            Some(delta) => delta::apply(delta, page)
                .map_err(|error| damaged(self.media.name(), mapping.entry.slot.offset(), &error)),
            None => Ok(()),
        }
    }

    /// Lets the next writer in.
    pub(crate) fn release_writer(&self) {
        self.has_writer.store(false, Ordering::Release);
    }
}
