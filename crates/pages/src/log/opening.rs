//! Opening a store, or making a new one where there is nothing.
//!
//! Opening decides once what a crash left: if it found a record in the log, it takes a checkpoint
//! before anything is read, so that no later opening decides otherwise. An opening that finds none
//! writes nothing until the first commit, and an opening for reading never writes
//! ([`crate::log::read_only`]).

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use esker_device::process::Process;
use esker_device::runtime::{Runtime, SystemRuntime};
use esker_device::{DeviceFile, Purpose};
use esker_format::ids::StoreId;
use parking_lot::{Condvar, Mutex};

use crate::alloc::allocation::Allocation;
use crate::alloc::segments::Segments;
use crate::alloc::slots::Slots;
use crate::alloc::space::Space;
use crate::counters::Counters;
use crate::engine::{Core, Engine, Gated};
use crate::error::{Error, Result};
use crate::log::creation::{NEW_SEGMENTS, check_new, find_in, put_zeros};
use crate::log::frames::Log;
use crate::log::recovery::{Recovered, recover};
use crate::log::superblock::{Found, Superblock};
use crate::media::gate::Gate;
use crate::media::{FileMedia, Media};
use crate::options::{Allocation as Kind, Options};
use crate::planted::{self, Bug};
use crate::version::map::Root;
use crate::version::tree::{NodeRef, Releases};
use crate::version::versions::Versions;

/// The media of a file for code that fills segments in order, given the bytes of a segment.
type MakeMedia = fn(&Arc<dyn DeviceFile>, u32) -> Arc<dyn Media>;

/// Opens what is in `file`, or makes a new store where there is nothing.
pub(crate) fn open(file: Arc<dyn DeviceFile>, options: Options) -> Result<Arc<Engine>> {
    open_on(file, options, file_media)
}

pub(super) fn file_media(file: &Arc<dyn DeviceFile>, segment_bytes: u32) -> Arc<dyn Media> {
    Arc::new(FileMedia::new(Arc::clone(file), segment_bytes))
}

/// As [`open`], with another idea of the file's blocks.
pub(crate) fn open_on(
    file: Arc<dyn DeviceFile>,
    options: Options,
    media: MakeMedia,
) -> Result<Arc<Engine>> {
    let engine = open_alone(file, options, media)?;
    end_sharing(&engine)?;
    Ok(Arc::new(engine))
}

/// Several processes had the store open and the last one has died: leaves no superblock that older
/// versions of the code refuse. Two checkpoints, for the two pairs of superblocks.
fn end_sharing(engine: &Engine) -> Result<()> {
    if std::mem::take(&mut engine.core.lock().is_for_many) {
        decide_once(engine)?;
        decide_once(engine)?;
    }
    Ok(())
}

/// As [`open_on`], for what is not shared by threads yet.
pub(super) fn open_alone(
    file: Arc<dyn DeviceFile>,
    options: Options,
    media: MakeMedia,
) -> Result<Engine> {
    options.check()?;
    let unknown = media(&file, options.segment_bytes);
    let Found::Superblock(block) = find_in(&*unknown)? else {
        check_new(&*unknown, &options)?;
        return create(unknown, options);
    };
    let disk = Disk { media: media(&file, block.segment_bytes), gated: None };
    let (engine, found) = load(disk, options, &block)?;
    if planted::is(Bug::LogWrittenOn) {
        engine.core.lock().is_log_ours = true;
    } else if found {
        decide_once(&engine)?;
    }
    Ok(engine)
}

/// Opens what is in `file` and writes nothing: what a crash left to be done is done in memory, and
/// where there is nothing, it is an empty database.
pub(crate) fn open_to_read(file: Arc<dyn DeviceFile>, options: Options) -> Result<Arc<Engine>> {
    options.check()?;
    let unknown = FileMedia::new(Arc::clone(&file), options.segment_bytes);
    let found = find_in(&unknown)?;
    if found == Found::Nothing {
        check_new(&unknown, &options)?;
    }
    let gate = Arc::new(Gate::new(file));
    let disk = |bytes| {
        let media = Arc::new(FileMedia::new(Arc::clone(&gate) as _, bytes));
        Disk { media, gated: Some(Gated { gate, found }) }
    };
    match found {
        Found::Superblock(block) => {
            load(disk(block.segment_bytes), options, &block).map(|(engine, _)| Arc::new(engine))
        }
        _ => Ok(Arc::new(empty(disk(options.segment_bytes), options))),
    }
}

/// The way to allocate that a store was created with.
pub(super) fn allocation(kind: Kind) -> &'static dyn Allocation {
    match kind {
        Kind::Slot => &Slots,
        Kind::Segment => &Segments,
    }
}

/// The file of a store.
pub(super) struct Disk {
    pub(super) media: Arc<dyn Media>,
    pub(super) gated: Option<Gated>,
}

/// The engine of a store that was loaded from `disk`.
pub(super) fn engine(
    disk: Disk,
    options: Options,
    block: &Superblock,
    recovered: Recovered,
) -> Engine {
    let Recovered { mut versions, releases, core } = recovered;
    let allocation = allocation(block.allocation);
    if allocation.moves_pages() {
        versions.get_mut().let_pages_move();
    }
    Engine {
        process: Process::current(),
        media: disk.media,
        gated: disk.gated,
        allocation,
        options,
        store: block.store,
        segment_bytes: block.segment_bytes,
        versions,
        core: Mutex::new(core),
        has_writer: AtomicBool::new(false),
        spare: Mutex::default(),
        poison: OnceLock::new(),
        releases,
        counters: Counters::default(),
        member: None,
        turns: None,
        is_unsaid: AtomicBool::new(false),
        wake: Condvar::new(),
    }
}

/// Makes a new store: zeros, then a checkpoint of nothing.
fn create(media: Arc<dyn Media>, options: Options) -> Result<Engine> {
    put_zeros(&*media, options.segment_bytes)?;
    let engine = empty(Disk { media, gated: None }, options);
    engine.checkpoint_core(&mut engine.core.lock())?;
    Ok(engine)
}

/// A new store before its first checkpoint.
fn empty(disk: Disk, options: Options) -> Engine {
    let segment_bytes = options.segment_bytes;
    let block = Superblock {
        store: StoreId(SystemRuntime::default().random()),
        epoch: 0,
        number: 1,
        segment_bytes,
        log: [0, 0],
        roots: NodeRef::default(),
        allocation: options.allocation,
        log_unit: 512,
        is_shared: false,
    };
    let versions = Versions::new(0, Arc::new(Root::empty(options.page_size)));
    let mut log = Log::new(&block);
    log.segments.clear();
    let core = Core::new(Space::new(segment_bytes, NEW_SEGMENTS), log, 1);
    let releases = Releases::default();
    engine(disk, options, &block, Recovered { versions: Mutex::new(versions), releases, core })
}

/// Loads a store. Says whether there was anything in its log.
fn load(disk: Disk, options: Options, block: &Superblock) -> Result<(Engine, bool)> {
    let (recovered, found) =
        recover(&*disk.media, block, allocation(block.allocation), disk.gated.is_some())?;
    Ok((engine(disk, options, block, recovered), found))
}

/// Makes what was found in the log durable. Without room for a checkpoint a sync does it.
fn decide_once(engine: &Engine) -> Result<()> {
    match engine.checkpoint_core(&mut engine.core.lock()) {
        Err(Error::Full { .. }) => engine.media.flush(Purpose::Recovery).map_err(Error::from),
        outcome => outcome,
    }
}
