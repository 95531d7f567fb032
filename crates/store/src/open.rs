//! Creating a store, and recovering one.
//!
//! The commit point of creation is the superblock's rename into place: before it there is no store,
//! and leftovers are recognised by their names and removed by the next creation; after it there is
//! an empty store. The data file is made before.
//!
//! Recovery reads the manifest, rebuilds the free map from the extents that it names and, where
//! there are large values, from what the log refers to (it is read once more for that), and replays
//! what the log holds beyond each keyspace's `flushed_seq` into the memtables. When these fill up
//! they are flushed as in normal operation: that is safe in the middle of the replay because the
//! visible number follows it batch by batch (the newest version of every key is kept), because no
//! memtable is frozen within a batch that fits the memory, because the log is synced before an
//! index is committed (a batch that the last run left in the page cache cannot come to be half
//! durable), and because replaying again after a crash skips, keyspace by keyspace, what the
//! committed index already holds. A batch that does not fit the memory is flushed in parts.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use esker_device::count::CountingDevice;
use esker_device::file::FileDevice;
use esker_device::process::Process;
use esker_device::readonly::ReadOnlyDevice;
use esker_device::{Device, DeviceError, DeviceLock};
use esker_format::ids::{Generation, KeyspaceId, Seq, StoreId};
use esker_index::Env;
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::{Budget, Part};
use esker_substrate::clock::Clock;
use esker_substrate::fault::FaultPoints;
use esker_substrate::log::{Beneath, Log, LogOptions};
use esker_substrate::manifest::{self, KeyspaceState, Manifest, ManifestOptions, Presence};
use esker_substrate::planted::{self, Bug};
use esker_substrate::poison::Poison;
use esker_substrate::runtime::Runtime;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync::{Mutex, RwLock};

use crate::background;
use crate::conflict_window::Recent;
use crate::error::{Error, Result};
use crate::follow;
use crate::follower::Follower;
use crate::large;
use crate::limits::Limits;
use crate::looked::Looked;
use crate::maintenance;
use crate::memory_pressure;
use crate::named::Named;
use crate::options::Settings;
use crate::replay::{HistoryBatch, unknown_keyspace};
use crate::shared::{Core, IndexOptions, Phase, Shared};
use crate::slot::Slot;
use crate::stall_stats::Waits;
use crate::trees::{must_be_sound, open_times, open_trees, require_codecs};
use crate::work_queue::{Mode, WorkQueue};
use crate::writer_lock::Turns;

/// The folder `path` as a device; made if it is missing and `create` is set.
pub(crate) fn folder(path: &Path, create: bool) -> Result<Arc<dyn Device>> {
    match FileDevice::open(path) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) if error.source.kind() == ErrorKind::NotFound && create => {
            Ok(Arc::new(FileDevice::create(path)?))
        }
        Err(error) => Err(no_folder(path, error)),
    }
}

/// The folder `path` as a device that is only read.
pub(crate) fn read_only_folder(path: &Path) -> Result<Arc<dyn Device>> {
    let device = FileDevice::open_read_only(path).map_err(|error| no_folder(path, error))?;
    Ok(Arc::new(ReadOnlyDevice::new(Arc::new(device))))
}

fn no_folder(path: &Path, error: DeviceError) -> Error {
    let location = path.display().to_string();
    match error.source.kind() {
        ErrorKind::NotFound => Error::NoStore { location },
        ErrorKind::NotADirectory => {
            Error::NotAStore { location, what: "it is not a folder".into() }
        }
        _ => error.into(),
    }
}

/// Opens the store on `device`, or creates it.
pub(crate) fn open(
    device: Arc<dyn Device>,
    settings: &Settings,
    runtime: &Arc<dyn Runtime>,
) -> Result<Arc<Shared>> {
    let _span = tracing::debug_span!("open", store = device.location()).entered();
    let counting = Arc::new(CountingDevice::new(device));
    let device: Arc<dyn Device> = Arc::clone(&counting) as _;
    // Looked at before it is locked, because locking makes a file and a foreign folder is not
    // touched; and once more after, because another process may have been creating.
    require_store(&device, settings)?;
    let lock = lock(&device, settings)?;
    let base = Base::new(device, settings);
    let presence = require_store(&base.device, settings)?;
    let clock = Clock::new(Arc::clone(runtime));
    let shared = match lock {
        Some(lock) => base.open_locked(counting, lock, (presence, clock), settings)?,
        None => base.open_following(counting, clock, settings)?,
    };
    *shared.gate.write() = Phase::Open;
    background::start(&shared).map_err(no_threads)?;
    follow::start(&shared, settings.refresh_every).map_err(no_threads)?;
    Ok(Arc::new(Shared::new(shared)))
}

fn no_threads(error: std::io::Error) -> Error {
    Error::invalid(format!("no threads: {error}"))
}

fn require_store(device: &Arc<dyn Device>, settings: &Settings) -> Result<Presence> {
    let presence = manifest::probe(device.as_ref())?;
    match presence {
        Presence::Empty | Presence::Unfinished(_) if !settings.create => {
            Err(Error::NoStore { location: device.location() })
        }
        Presence::Empty | Presence::Unfinished(_) if settings.read_only => {
            Err(Error::NoStore { location: device.location() })
        }
        presence => Ok(presence),
    }
}

/// The lock of the store; `None` where a writer is to be followed.
fn lock(device: &Arc<dyn Device>, settings: &Settings) -> Result<Option<DeviceLock>> {
    if settings.follow {
        return Ok(None);
    }
    match device.try_lock()? {
        None if !settings.read_only => Err(Error::Locked { location: device.location() }),
        lock => Ok(lock),
    }
}

/// The device and the shared state from which the parts of a store are made.
struct Base {
    device: Arc<dyn Device>,
    poison: Arc<Poison>,
    faults: Arc<FaultPoints>,
    budget: Arc<Budget>,
}

impl Base {
    fn new(device: Arc<dyn Device>, settings: &Settings) -> Self {
        Self {
            device,
            poison: Arc::new(Poison::new(settings.read_only)),
            faults: Arc::default(),
            budget: Arc::new(Budget::new(settings.memory_budget_bytes)),
        }
    }

    fn cache_bytes(&self) -> u64 {
        self.budget.share_bytes(Part::Cache)
    }

    fn remove(&self, files: &[String]) -> Result<()> {
        files.iter().try_for_each(|file| self.device.remove(file))?;
        Ok(self.device.sync_dir()?)
    }

    fn create(&self, runtime: &dyn Runtime) -> Result<(Arc<Manifest>, BlockStore)> {
        let store = StoreId(runtime.random());
        let blocks = BlockStore::create(&self.device, store, self.cache_bytes())?;
        let options = ManifestOptions::default();
        let manifest = Manifest::create(&self.device, store, options, &self.poison, &self.faults)?;
        blocks.reserve_generations_in(&manifest);
        Ok((manifest, blocks))
    }

    fn open(&self) -> Result<(Arc<Manifest>, BlockStore)> {
        let options = ManifestOptions::default();
        let (manifest, problems) =
            Manifest::open(&self.device, options, &self.poison, &self.faults)?;
        for problem in problems {
            tracing::warn!(problem.file, problem.offset, problem.what, "survivable damage");
        }
        let state = manifest.state();
        require_codecs(&state)?;
        let allocated = state.keyspaces.values().flat_map(KeyspaceState::extents);
        let floor: Generation = state.next_generation;
        let store = manifest.store();
        let blocks = BlockStore::open(&self.device, store, self.cache_bytes(), allocated, floor)?;
        blocks.reserve_generations_in(&manifest);
        Ok((manifest, blocks))
    }

    /// Opens or creates the store of a device that is locked.
    fn open_locked(
        self,
        device: Arc<CountingDevice>,
        lock: DeviceLock,
        (presence, clock): (Presence, Clock),
        settings: &Settings,
    ) -> Result<Arc<Core>> {
        let (manifest, blocks) = match presence {
            Presence::Store => self.open()?,
            Presence::Empty => self.create(clock.runtime().as_ref())?,
            Presence::Unfinished(files) => {
                self.remove(&files)?;
                self.create(clock.runtime().as_ref())?
            }
        };
        let shared = self.assemble(device, Some(lock), (manifest, blocks, clock), settings)?;
        let shared = Arc::new(shared);
        if !settings.read_only {
            // First, because the replay flushes.
            follow::admit(&shared);
        }
        replay(&shared)?;
        open_times(&shared);
        maintenance::resume(&shared);
        Ok(shared)
    }

    /// Opens a store that another process may have open for writing.
    fn open_following(
        self,
        device: Arc<CountingDevice>,
        clock: Clock,
        settings: &Settings,
    ) -> Result<Arc<Core>> {
        let (manifest, blocks) = follow::patiently(|| self.open_unlocked())?;
        let shared = self.assemble(device, None, (manifest, blocks, clock), settings)?;
        let shared = Arc::new(shared);
        follow::begin(&shared)?;
        Ok(shared)
    }

    /// The manifest as it is now, and the data file. What is free there is the writer's concern.
    fn open_unlocked(&self) -> Result<(Arc<Manifest>, BlockStore)> {
        let options = ManifestOptions::default();
        let (manifest, _) = Manifest::open(&self.device, options, &self.poison, &self.faults)?;
        let (store, floor) = (manifest.store(), manifest.state().next_generation);
        let blocks = BlockStore::open(&self.device, store, self.cache_bytes(), [], floor)?;
        Ok((manifest, blocks))
    }

    /// The log, to be followed where the store is not locked.
    fn log(
        &self,
        is_locked: bool,
        manifest: &Arc<Manifest>,
        beneath: Arc<dyn Beneath>,
        options: LogOptions,
    ) -> Result<Log> {
        let (device, poison, faults) = (&self.device, &self.poison, &self.faults);
        Ok(match is_locked {
            true => Log::open(device, manifest, beneath, options, poison, faults)?,
            false => Log::following(device, manifest, beneath, poison, faults),
        })
    }

    fn assemble(
        self,
        device: Arc<CountingDevice>,
        lock: Option<DeviceLock>,
        (manifest, blocks, clock): (Arc<Manifest>, BlockStore, Clock),
        settings: &Settings,
    ) -> Result<Core> {
        let limits = Limits::new(settings.memory_budget_bytes, settings.log_segment_bytes);
        let options =
            LogOptions { segment_bytes: settings.log_segment_bytes, spares_max: limits.log_spares };
        blocks.keep(limits.reserve);
        blocks.keep_for_manifest(manifest.next_bytes());
        let blocks = Arc::new(blocks);
        let beneath = Arc::clone(&blocks) as _;
        let log = self.log(lock.is_some(), &manifest, beneath, options)?;
        let follower = lock.is_none().then(Follower::default);
        let budget = Arc::clone(&self.budget);
        let waits = Waits::new(Arc::clone(clock.runtime()));
        let env = Arc::new(Env {
            blocks,
            snapshots: Arc::new(Snapshots::new(clock)),
            faults: self.faults,
            budget: self.budget,
            poison: Arc::clone(&self.poison),
        });
        let options = IndexOptions {
            scheme: settings.scheme,
            sizes: settings.sizes,
            compaction: settings.compaction.for_index(),
        };
        let slots = match follower {
            None => open_trees(&env, &manifest.state(), &limits, options),
            Some(_) => BTreeMap::new(),
        };
        // Before the replay of the log, which may give versions up.
        let named = Named::open(&manifest.state().pinned, &slots);
        // A store that is only read needs no threads.
        let mode = if settings.read_only { Mode::Inline(1) } else { settings.mode };
        Ok(Core {
            process: Process::current(),
            device,
            poison: self.poison,
            env,
            manifest,
            log,
            named,
            keyspaces: RwLock::new(slots),
            times: OnceLock::new(),
            write: Mutex::new(()),
            recent: Recent::new(budget, limits.recent_bytes),
            logged_values_are_claimed: false.into(),
            making_room: Mutex::new(()),
            looked: Looked::default(),
            turns: Turns::default(),
            waits,
            limits,
            background: WorkQueue::new(mode),
            options,
            follower,
            durability: settings.durability,
            user_bytes_written: 0.into(),
            gate: RwLock::new(Phase::Opening),
            device_lock: Mutex::new(lock),
        })
    }
}

/// Brings the memtables to where the log ends.
fn replay(shared: &Core) -> Result<()> {
    let slots: BTreeMap<KeyspaceId, Arc<Slot>> =
        shared.slots().into_iter().map(|slot| (slot.id, slot)).collect();
    large::claim_logged(shared)?;
    let next_keyspace = shared.manifest.state().next_keyspace;
    let mut written: Vec<&Arc<Slot>> = Vec::new();
    let mut history = HistoryBatch::default();
    shared.log.replay(&mut |place, id, action| {
        match slots.get(&id) {
            Some(slot) => {
                if let Ok(tree) = slot.tree() {
                    history.replay(&tree, id, place, action);
                }
                if written.last().is_none_or(|last| last.id != id) {
                    written.push(slot);
                }
            }
            None if id < next_keyspace => {}
            None => return Err(unknown_keyspace(place.seq, id)),
        }
        if place.is_last() {
            history.end(place.last, &|id, visit| {
                let tree = slots.get(&id).and_then(|slot| slot.tree().ok());
                tree.into_iter().for_each(|tree| visit(&tree));
            });
            do_due(shared, &mut written, place.seq)?;
        } else if !history.has_writes && is_short_of_memory(shared) {
            do_due(shared, &mut written, place.seq)?;
        }
        Ok(())
    })?;
    // A device that cannot be written to is reported now rather than at the first write.
    must_be_sound(shared)?;
    shared.snapshots().publish(shared.log.last_seq());
    shared.snapshots().replayed(shared.log.last_seq());
    Ok(())
}

/// Whether the memtables hold more than they may: a batch may be larger than the memory of the
/// store that opens it.
fn is_short_of_memory(shared: &Core) -> bool {
    shared.memtables_bytes() > shared.limits.memtables_bytes
}

/// Everything up to `last` has been replayed, since the last time into these keyspaces, perhaps in
/// turns: it becomes visible, and what is due is done.
fn do_due(shared: &Core, written: &mut Vec<&Arc<Slot>>, last: Seq) -> esker_substrate::Result<()> {
    shared.snapshots().publish(last);
    if !shared.poison.is_read_only() || planted::is(Bug::WrittenReadOnly) {
        written.iter().for_each(|slot| maintenance::run_due(shared, slot));
        memory_pressure::relieve_memory_at_once(shared);
    }
    written.clear();
    must_be_sound(shared)
}
