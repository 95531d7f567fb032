//! Opening a store that several processes have open: as the one that writes, or to follow it.

use std::sync::Arc;
use std::time::Duration;

use esker_device::DeviceFile;
use esker_device::process::Process;
use esker_device::shared::Shared;

use crate::engine::{Engine, Gated, Turns};
use crate::error::{Error, Result, invalid};
use crate::log::creation::{find_in, of_epoch};
use crate::log::follow::load_to;
use crate::log::handover::end_on_device;
use crate::log::hold::check_sharing;
use crate::log::opening::{Disk, allocation, engine, file_media, open_alone};
use crate::log::shared::LogEnd;
use crate::log::superblock::Found;
use crate::media::FileMedia;
use crate::media::gate::Gate;
use crate::meeting::cells::Quiet;
use crate::meeting::layout::{MEETING_BYTES, WRITE_LOCK, is_of, make};
use crate::meeting::member::Member;
use crate::meeting::state::{State, heard};
use crate::options::Options;
use crate::planted::{self, Bug};
use crate::version::tree::Releases;

/// How often a process that begins to follow hears anew how far the log goes.
const TRIES: u32 = 200;
/// The first and the longest time between two of these.
const PAUSES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(5)];

/// Opens what is in `file`, or makes a new store, as the process that writes it while others follow
/// its log. Fails, and changes nothing, while another writes it, or while others still read
/// versions of one that died: which pages those have is not known from the file alone.
pub(crate) fn open_leader(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: Arc<dyn Shared>,
    turns: Option<Turns>,
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
    opened.map(|engine| Arc::new(Engine { turns, ..engine }))
}

fn lead(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: &Arc<dyn Shared>,
    locked: impl Fn(&'static str) -> Error,
) -> Result<Engine> {
    let unknown = file_media(&file, options.segment_bytes);
    let found = find_in(&*unknown)?;
    let known = match found {
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
    // A gate, as other processes have it that write in turn: shut while another one does.
    let gate = Arc::new(Gate::new(Arc::clone(&file)));
    gate.open(file);
    let mut engine = open_alone(Arc::clone(&gate) as _, options, file_media)?;
    engine.gated = Some(Gated { gate, found });
    // It ends before the lock of who writes is given back, also where the rest fails.
    let quiet = quiet;
    if known != Some(engine.store) {
        make(&**shared, engine.store);
    }
    let member = Member::take(Arc::clone(shared), engine.store, engine.process, true)?;
    engine.member =
        Some(Arc::new(member.ok_or_else(|| locked("open in 120 processes: close one"))?));
    engine.share()?;
    engine.announce(&engine.core.lock());
    quiet.end(engine.store, engine.versions.lock().newest().0);
    Ok(engine)
}

/// Opens what is in `file`, or makes a new store, as the first of processes that take turns at
/// writing. It has let go of the writing when this returns.
pub(crate) fn open_first(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: Arc<dyn Shared>,
    turns: Turns,
) -> Result<Arc<Engine>> {
    let engine = open_leader(file, options, shared, Some(turns))?;
    engine.step_down()?;
    Ok(engine)
}

/// Opens what is in `file`, which other processes have open that take turns at writing.
pub(crate) fn open_next(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: Arc<dyn Shared>,
    turns: Turns,
) -> Result<Arc<Engine>> {
    open_follower(file, options, shared, Some(turns))
}

/// Opens what is in `file` as a process that follows the log of another. Writes nothing to it.
pub(crate) fn open_follower(
    file: Arc<dyn DeviceFile>,
    options: Options,
    shared: Arc<dyn Shared>,
    turns: Option<Turns>,
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
    let Some(member) = Member::take(Arc::clone(&shared), store, process, false)? else {
        return locked("open in 120 processes: close one");
    };
    let member = Arc::new(member);
    let unwritten = || {
        let how = "written by no process that says how far its log goes: open it for writing first";
        locked(how)
    };
    let [mut pause, longest] = PAUSES;
    for _ in 0..TRIES {
        let Some(state) = heard(&*shared, store) else { return unwritten() };
        let (found, is_said) = match follow_from(&file, &options, state.end) {
            Ok(None) => (follow_unsaid(&file, &options, &*shared, state)?, false),
            // After a power cut the state may be of commits that are lost.
            Err(Error::Corrupt { .. }) if !shared.is_locked(WRITE_LOCK)? => return unwritten(),
            found => (found?, true),
        };
        if let Some(engine) = found {
            let engine = Arc::new(Engine { member: Some(member), turns, ..engine });
            if !is_said && engine.may_write() {
                engine.follow_dead_writer()?;
            }
            return Ok(engine);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
    if shared.is_locked(WRITE_LOCK)? { Err(Error::Busy) } else { unwritten() }
}

/// Opens the newest checkpoint where the process that took it has died before it said so; `None`
/// where a process writes, or has written since `said`.
fn follow_unsaid(
    file: &Arc<dyn DeviceFile>,
    options: &Options,
    shared: &dyn Shared,
    said: State,
) -> Result<Option<Engine>> {
    let unknown = FileMedia::new(Arc::clone(file), options.segment_bytes);
    let Found::Superblock(newest) = find_in(&unknown)? else { return Ok(None) };
    let is_written = shared.is_locked(WRITE_LOCK)? || heard(shared, newest.store) != Some(said);
    if is_written || newest.epoch <= said.end.epoch || planted::is(Bug::UnsaidNotSaid) {
        return Ok(None);
    }
    let media = FileMedia::new(Arc::clone(file), newest.segment_bytes);
    let (end, _) = end_on_device(&media, &newest)?;
    follow_from(file, options, end)
}

/// Opens a store up to this end of its log; `None` when it has no such log any more.
pub(super) fn follow_from(
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

pub(super) fn check_meeting(shared: &dyn Shared) -> Result<()> {
    if shared.words() * 8 < MEETING_BYTES {
        return invalid("what processes share is too short: use 64 KiB");
    }
    Ok(())
}
