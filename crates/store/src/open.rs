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
use esker_format::action::WriteOp;
use esker_format::ids::{Generation, KeyspaceId, Seq, StoreId};
use esker_index::read::operands::Operator;
use esker_index::{Env, Index, Options};
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::{Budget, Part};
use esker_substrate::clock::Clock;
use esker_substrate::fault::FaultPoints;
use esker_substrate::log::{Log, LogOptions, Place};
use esker_substrate::manifest::{
    self, KeyspaceState, Manifest, ManifestOptions, ManifestState, Presence,
};
use esker_substrate::planted::{self, Bug};
use esker_substrate::poison::Poison;
use esker_substrate::runtime::Runtime;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync::{Mutex, RwLock};

use crate::background;
use crate::conflict_window::Recent;
use crate::error::{Error, Result};
use crate::history::kept;
use crate::large;
use crate::limits::Limits;
use crate::looked::Looked;
use crate::maintenance;
use crate::memory_pressure;
use crate::named::Named;
use crate::operators::Merge;
use crate::options::{Settings, require_codec};
use crate::shared::{Core, IndexOptions, Phase, Shared};
use crate::slot::Slot;
use crate::stall_stats::Waits;
use crate::times::{self, Times};
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
    let lock = lock(&device)?;
    let base = Base::new(device, settings);
    let (manifest, blocks) = match require_store(&base.device, settings)? {
        Presence::Store => base.open()?,
        Presence::Empty => base.create(runtime.as_ref())?,
        Presence::Unfinished(files) => {
            base.remove(&files)?;
            base.create(runtime.as_ref())?
        }
    };
    let clock = Clock::new(Arc::clone(runtime));
    let shared = base.assemble(counting, lock, (manifest, blocks, clock), settings)?;
    let shared = Arc::new(shared);
    replay(&shared)?;
    open_times(&shared);
    maintenance::resume(&shared);
    *shared.gate.write() = Phase::Open;
    background::start(&shared).map_err(|error| Error::invalid(format!("no threads: {error}")))?;
    Ok(Arc::new(Shared::new(shared)))
}

/// Finds the times of versions, where a keyspace keeps history.
fn open_times(shared: &Core) {
    let slot = shared.keyspaces.read().get(times::NAME).cloned();
    if let Some(slot) = slot {
        let times = Times::open(slot, shared.snapshots().visible());
        // The keyspace of times itself has no use for them, and would hold itself.
        let slots = shared.slots();
        times::users(&slots)
            .filter_map(|slot| slot.tree().ok())
            .for_each(|tree| times.connect(tree));
        let _set = shared.times.set(times);
    }
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

fn lock(device: &Arc<dyn Device>) -> Result<DeviceLock> {
    device.try_lock()?.ok_or_else(|| Error::Locked { location: device.location() })
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

    fn assemble(
        self,
        device: Arc<CountingDevice>,
        lock: DeviceLock,
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
        let log = Log::open(&self.device, &manifest, beneath, options, &self.poison, &self.faults)?;
        let budget = Arc::clone(&self.budget);
        let waits = Waits::new(Arc::clone(clock.runtime()));
        let env = Arc::new(Env {
            blocks,
            snapshots: Arc::new(Snapshots::new(clock)),
            faults: self.faults,
            budget: self.budget,
            poison: Arc::clone(&self.poison),
        });
        let slots = open_trees(&env, &manifest.state(), &limits, settings);
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
            options: IndexOptions {
                scheme: settings.scheme,
                sizes: settings.sizes,
                compaction: settings.compaction.for_index(),
            },
            durability: settings.durability,
            user_bytes_written: 0.into(),
            gate: RwLock::new(Phase::Opening),
            device_lock: Mutex::new(Some(lock)),
        })
    }
}

/// Refuses a store with a keyspace whose blocks this build cannot read.
fn require_codecs(state: &ManifestState) -> Result<()> {
    state.keyspaces.values().try_for_each(|keyspace| {
        require_codec(keyspace.codec, format_args!("keyspace {}", keyspace.name))
    })
}

fn open_trees(
    env: &Arc<Env>,
    state: &ManifestState,
    limits: &Limits,
    settings: &Settings,
) -> BTreeMap<String, Arc<Slot>> {
    let slot = |(&id, keyspace): (&KeyspaceId, &KeyspaceState)| {
        let options = Options {
            memtable_bytes_max: keyspace.memtable_bytes.unwrap_or(limits.memtables_bytes),
            scheme: settings.scheme,
            sizes: settings.sizes,
            codec: keyspace.codec,
            compaction: settings.compaction.for_index(),
            history: keyspace.history.as_ref().map(kept),
        };
        let meta = keyspace.index.as_ref().clone();
        let tree = Index::open(Arc::clone(env), id, meta, options)
            .with_past(keyspace.past_indexes())
            .with_values(keyspace.values.as_ref().clone());
        let name = keyspace.name.clone();
        if let Some(operator) = &keyspace.operator {
            tree.set_operator(Operator {
                name: Some(operator.as_str().into()),
                keyspace: name.as_str().into(),
                function: Merge::stored(operator),
            });
        }
        (name.clone(), Arc::new(Slot::new(id, name, tree, keyspace.history)))
    };
    state.keyspaces.iter().map(slot).collect()
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
                replay_one(slot, place, action, &mut history);
                if written.last().is_none_or(|last| last.id != id) {
                    written.push(slot);
                }
            }
            None if id < next_keyspace => {}
            None => return Err(unknown_keyspace(place.seq, id)),
        }
        if place.is_last() {
            history.end(place.last);
            do_due(shared, &mut written, place.seq)?;
        } else if !history.has_writes && is_short_of_memory(shared) {
            do_due(shared, &mut written, place.seq)?;
        }
        Ok(())
    })?;
    // A device that cannot be written to is reported now rather than at the first write.
    must_be_sound(shared)?;
    shared.snapshots().publish(shared.log.last_seq());
    Ok(())
}

fn unknown_keyspace(seq: Seq, id: KeyspaceId) -> esker_substrate::Error {
    esker_substrate::Error::Corrupt {
        file: "log".into(),
        offset: 0,
        what: format!("operation {seq} is for keyspace {id}, which was never created"),
    }
}

/// The batch that is replayed, as far as keyspaces with history are concerned: all of it has one
/// number there, so that no memtable may be frozen within it.
#[derive(Default)]
struct HistoryBatch {
    has_writes: bool,
    /// The removed ranges, each by its first key.
    removed: Vec<(Arc<Slot>, Vec<u8>)>,
}

impl HistoryBatch {
    fn end(&mut self, last: Seq) {
        for (slot, begin) in self.removed.drain(..) {
            if let Ok(tree) = slot.tree() {
                tree.replay_mark(&begin, last);
            }
        }
        self.has_writes = false;
    }
}

fn replay_one(slot: &Arc<Slot>, place: Place, action: WriteOp<'_>, history: &mut HistoryBatch) {
    let Ok(tree) = slot.tree() else { return };
    let keeps_history = tree.keeps_history();
    history.has_writes |= keeps_history;
    let is_one_version = keeps_history && !planted::is(Bug::ReplayedAsVersions);
    let seq = if is_one_version { place.last } else { place.seq };
    match action {
        WriteOp::Point(key, data) => tree.replay(key, seq, data),
        WriteOp::DeleteRange(keys) => {
            tree.replay_removal(keys, seq);
            if keeps_history {
                history.removed.push((Arc::clone(slot), keys.begin.to_vec()));
            }
        }
    }
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

/// Fails if the replay cannot continue: a flush that was due did not happen; or, where nothing may
/// be written, there is no memory left.
fn must_be_sound(shared: &Core) -> esker_substrate::Result<()> {
    if !shared.poison.is_read_only() {
        return shared.poison.check();
    }
    let (used, budget) = (shared.memtables_bytes(), shared.env.budget.total_bytes());
    if used <= budget {
        return Ok(());
    }
    Err(esker_substrate::Error::Invalid {
        what: format!(
            "the log of {} does not fit in the memory budget of {budget} bytes, and nothing may be \
             written: open it with a larger memory budget, or for writing",
            shared.device.location()
        ),
    })
}
