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
use esker_device::shared::Shared;
use esker_device::{DeviceFile, Purpose};
use esker_format::ids::StoreId;
use parking_lot::{Condvar, Mutex};

use crate::alloc::allocation::Allocation;
use crate::alloc::segments::Segments;
use crate::alloc::slots::Slots;
use crate::alloc::space::Space;
use crate::counters::Counters;
use crate::engine::{Core, Engine, Gated};
use crate::error::{Error, Result, invalid};
use crate::log::creation::{NEW_SEGMENTS, check_new, find_in, of_epoch, put_zeros};
use crate::log::follow::load_to;
use crate::log::frames::Log;
use crate::log::recovery::{Recovered, recover};
use crate::log::shared::LogEnd;
use crate::log::superblock::{Found, Superblock};
use crate::media::gate::Gate;
use crate::media::{FileMedia, Media};
use crate::meeting::cells::Quiet;
use crate::meeting::layout::{MEETING_BYTES, WRITE_LOCK, is_of, make};
use crate::meeting::seat::Seat;
use crate::meeting::state::heard;
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

fn file_media(file: &Arc<dyn DeviceFile>, segment_bytes: u32) -> Arc<dyn Media> {
    Arc::new(FileMedia::new(Arc::clone(file), segment_bytes))
}

/// As [`open`], with another idea of the file's blocks.
pub(crate) fn open_on(
    file: Arc<dyn DeviceFile>,
    options: Options,
    media: MakeMedia,
) -> Result<Arc<Engine>> {
    open_alone(file, options, media).map(Arc::new)
}

fn open_alone(file: Arc<dyn DeviceFile>, options: Options, media: MakeMedia) -> Result<Engine> {
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

/// How often a process that begins to follow hears anew how far the log goes.
const TRIES: u32 = 1000;

/// Opens what is in `file`, or makes a new store, as the process that writes it while others follow
/// its log. Fails, and changes nothing, while another writes it, or while others still read
/// versions of one that died: which pages those have is not known from the file alone.
pub(crate) fn open_leader(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: Arc<dyn Shared>,
) -> Result<Arc<Engine>> {
    let name = file.name().to_owned();
    let locked = |how| Error::Locked { file: name.clone(), how };
    check_meeting(&*shared)?;
    if !shared.try_lock(WRITE_LOCK)? {
        return Err(locked("open for writing in another process: use that, or close it"));
    }
    let opened = lead(file, options, &shared, locked);
    if opened.is_err() {
        shared.unlock(WRITE_LOCK)?;
    }
    opened.map(Arc::new)
}

fn lead(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: &Arc<dyn Shared>,
    locked: impl Fn(&'static str) -> Error,
) -> Result<Engine> {
    let unknown = file_media(&file, options.segment_bytes);
    let known = match find_in(&*unknown)? {
        Found::Superblock(block) if is_of(&**shared, block.store) => Some(block.store),
        _ => None,
    };
    let quiet = Quiet::begin(&**shared, known)?;
    let Some(quiet) = quiet else {
        return Err(locked(
            "read by other processes still, and the one that wrote it is gone: \
                           close it there and try again",
        ));
    };
    let mut engine = open_alone(file, options, file_media)?;
    if known != Some(engine.store) {
        make(&**shared, engine.store);
    }
    let seat = Seat::take(Arc::clone(shared), engine.store, engine.process, true)?;
    engine.seat = Some(Arc::new(seat.ok_or_else(|| locked("open in 120 processes: close one"))?));
    engine.share()?;
    engine.announce(&engine.core.lock());
    quiet.end(engine.store, engine.versions.lock().newest().0);
    Ok(engine)
}

/// Opens what is in `file` as a process that follows the log of another. Writes nothing to it.
pub(crate) fn open_follower(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: Arc<dyn Shared>,
) -> Result<Arc<Engine>> {
    options.check()?;
    check_meeting(&*shared)?;
    let unknown = FileMedia::new(Arc::clone(&file), options.segment_bytes);
    let locked = |how| Err(Error::Locked { file: file.name().to_owned(), how });
    let store = match find_in(&unknown)? {
        Found::Superblock(block) if is_of(&*shared, block.store) => block.store,
        _ => return locked("open in no process that shares it: open it for writing first"),
    };
    let process = Process::current();
    let Some(seat) = Seat::take(Arc::clone(&shared), store, process, false)? else {
        return locked("open in 120 processes: close one");
    };
    let seat = Arc::new(seat);
    for _ in 0..TRIES {
        let Some(state) = heard(&*shared, store) else {
            return locked(
                "written by no process that says how far its log goes: open it for \
                           writing first",
            );
        };
        let opened = follow_from(&file, &options, state.end)?;
        if let Some(engine) = opened {
            return Ok(Arc::new(Engine { seat: Some(seat), ..engine }));
        }
    }
    Err(Error::Busy)
}

/// Opens a store up to this end of its log; `None` when it has no such log any more.
fn follow_from(
    file: &Arc<dyn DeviceFile>,
    options: &Options,
    end: LogEnd,
) -> Result<Option<Engine>> {
    let unknown = FileMedia::new(Arc::clone(file), options.segment_bytes);
    let Some(block) = of_epoch(&unknown, end.epoch)? else { return Ok(None) };
    check_sharing(block.allocation)?;
    let gate = Arc::new(Gate::new(Arc::clone(file)));
    let media = Arc::new(FileMedia::new(Arc::clone(&gate) as _, block.segment_bytes));
    let found = Found::Superblock(block);
    let releases = Releases::default();
    let loaded = load_to(&*media, allocation(block.allocation), end, &releases)?;
    let disk = Disk { media, gated: Some(Gated { gate, found }) };
    Ok(loaded.map(|recovered| engine(disk, options.clone(), &block, recovered)))
}

fn check_meeting(shared: &dyn Shared) -> Result<()> {
    if shared.words() * 8 < MEETING_BYTES {
        return invalid("what processes share is too short: use 64 KiB");
    }
    Ok(())
}

/// Fails for a store that only one process may have open.
pub(super) fn check_sharing(kind: Kind) -> Result<()> {
    match kind {
        Kind::Slot => Ok(()),
        Kind::Segment => {
            invalid("with segment allocation one process has a store open: pages move")
        }
    }
}

/// The way to allocate that a store was created with.
fn allocation(kind: Kind) -> &'static dyn Allocation {
    match kind {
        Kind::Slot => &Slots,
        Kind::Segment => &Segments,
    }
}

/// The file of a store.
struct Disk {
    media: Arc<dyn Media>,
    gated: Option<Gated>,
}

fn engine(disk: Disk, options: Options, block: &Superblock, recovered: Recovered) -> Engine {
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
        seat: None,
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
