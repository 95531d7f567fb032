//! Reading a store that another process writes: a follower.
//!
//! Reading order: this module (what a follower is, and catching up), `news` (what is new on the
//! device, as indexes), `reading` (reads that meet space which was used again), `thread` (catching
//! up from time to time).
//!
//! A follower has no lock and writes no file but its cell of the words that it shares with the
//! writer. It reads the manifest and then the log, as a recovery does, up to where the writer has
//! passed them on to the operating system. Then it has what a recovery at that moment would have.
//!
//! Thread safety: everything may be called from any thread; one thread at a time catches up.
//! Invariant (one moment): indexes are replaced, and a number becomes visible, under the exclusive
//! lock of [`Steady`](crate::slot::Steady); each read of an index has it shared. So no read
//! combines an older index with a newer number, or the reverse.
//! Invariant (manifest before log): the log is read after the state of the manifest that goes with
//! it, and must reach what the state says is durable.
//! Invariant (each block is checked): every block and piece of a value is known by checksum and
//! generation. What the writer has used again is noticed; a record that freed it is in the manifest
//! then, and the read is repeated after catching up. If the manifest has not changed, it is damage.
//! Invariant (old numbers): a number that is read as of, other than the newest, is certain to be
//! kept by the writer ([`Snapshots`](esker_substrate::snapshots::Snapshots)), or no record has
//! changed the keyspace since, or the read is refused.

mod news;
mod reading;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use esker_device::Device;
use esker_format::ids::Seq;
use esker_substrate::followers::{Cell, Followers};
use esker_substrate::log::SegmentPart;
use esker_substrate::manifest::ManifestState;
use esker_substrate::snapshots::Snapshots;
use esker_substrate::sync;
use esker_substrate::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::follower::{Follower, Lag, Progress};
use crate::shared::Core;
use crate::trees;

use news::{News, Retired, Take, Wanted};
pub(crate) use reading::{reading, too_old};
pub(crate) use thread::start;

/// The number of times that catching up begins again, because the writer went on meanwhile.
const TRIES_MAX: u32 = 64;
/// The number of those that are made for a number which is certain to be kept.
const CERTAIN_TRIES_MAX: u32 = 32;
/// What a writer says that it has passed on before it knows.
const UNKNOWN: Seq = Seq(u64::MAX);
/// The number of times in a row for which nothing has changed, after which an error is one.
const UNMOVED_MAX: u32 = 3;

/// From now on followers can tell this writer what they read. Without the file they read all the
/// same.
pub(crate) fn admit(shared: &Core) {
    let snapshots = shared.snapshots();
    let device: Arc<dyn Device> = Arc::clone(&shared.device) as _;
    match Followers::open(&device).or_else(|_| Followers::make_anew(&device)) {
        Ok(None) => {}
        Ok(Some(followers)) => {
            let followers = Arc::new(followers);
            snapshots.count_followers(&followers);
            shared.log.tell(&followers);
        }
        Err(error) => tracing::warn!(%error, "followers cannot say what they read"),
    }
}

/// The first state of a follower.
pub(crate) fn begin(shared: &Core) -> Result<()> {
    join(shared);
    refresh(shared)
}

/// Takes a cell, where the writer has made the file since it was last looked for, or another one.
fn join(shared: &Core) {
    if shared.snapshots().passed().is_none()
        && let Some(cell) = Cell::join(&*shared.device)
    {
        shared.snapshots().tell_writer(cell);
    }
}

/// Catches up with the writer. Everything that it had passed on before is visible afterwards.
pub(crate) fn refresh(shared: &Core) -> Result<()> {
    let Some(follower) = &shared.follower else { return Ok(()) };
    let mut progress = follower.progress.lock();
    let (mut unmoved, mut tries) = (0, 0);
    loop {
        tries += 1;
        let at_all = tries >= CERTAIN_TRIES_MAX;
        let mut turn = Turn {
            shared,
            follower,
            progress: &mut progress,
            at_all,
            moved: false,
            older_bytes: 0,
        };
        let taken = turn.take_in();
        let moved = turn.moved;
        match taken {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) if !error.may_be_reuse() => return Err(error),
            Err(_) if tries >= TRIES_MAX => return Err(overtaken(shared)),
            Err(error) => {
                unmoved = if moved { 0 } else { unmoved + 1 };
                if unmoved >= UNMOVED_MAX {
                    return Err(error);
                }
            }
        }
        sync::yield_now();
    }
    let now = shared.waits.now();
    follower.refreshed_micros.store(now.as_micros() as u64, Ordering::Relaxed);
    drop(progress);
    trees::open_times(shared);
    Ok(())
}

/// One try to catch up.
struct Turn<'a> {
    shared: &'a Core,
    follower: &'a Follower,
    progress: &'a mut Progress,
    /// Also with a number that is not certain to be kept: its readers are refused later.
    at_all: bool,
    /// The manifest had another state than before.
    moved: bool,
    /// Memory of memtables that are given back at its end.
    older_bytes: u64,
}

impl Turn<'_> {
    /// Takes everything in; false where no number is certain to be kept. Where indexes are
    /// replaced, which takes as long as copying a memtable, the log is taken in before and after.
    fn take_in(&mut self) -> Result<bool> {
        if self.step(Take::Log)?.is_none() {
            return Ok(false);
        }
        let newest = self.shared.manifest.state();
        if self.progress.state.as_ref().is_some_and(|state| Arc::ptr_eq(state, &newest)) {
            return Ok(true);
        }
        let Some(retired) = self.step(Take::All)? else { return Ok(false) };
        self.older_bytes = retired.memtables_bytes();
        let _sooner = self.step(Take::Log)?;
        drop(retired);
        Ok(true)
    }

    /// Takes in what there is now; `None` if it has not.
    fn step(&mut self, take: Take) -> Result<Option<Retired>> {
        let (shared, snapshots) = (self.shared, self.shared.snapshots());
        let since = snapshots.now();
        join(shared);
        // Before the manifest is read, whose segments have the number then.
        let kept = keep_passed(snapshots);
        self.moved |= shared.manifest.follow()?;
        let is_lost = snapshots.leave_lost_cell();
        let kept = kept.filter(|_| !is_lost);
        let may_be_kept = is_lost || snapshots.passed().is_some();
        if kept.is_none() && may_be_kept && !self.at_all {
            return Ok(None);
        }
        let wanted = Wanted { take, kept, older_bytes: self.older_bytes };
        let news = News::find(shared, self.follower, self.progress, wanted)?;
        if kept != Some(news.seq) {
            let _perhaps = snapshots.keep_next(news.seq);
        }
        let is_changed = news.is_changed;
        let state = Arc::clone(&news.state);
        let retired = news.take_in(shared, self.follower);
        if is_changed {
            shared.named.replace(&state.pinned);
            self.follower.states.fetch_add(1, Ordering::AcqRel);
        }
        self.progress.state = Some(state);
        snapshots.forget_older(since);
        Ok(Some(retired))
    }
}

/// Has the writer keep the last number that it has passed on, before the log is read up to it: the
/// number stays certain however far the writer goes on meanwhile. `None` where no writer says it,
/// and where a merge has just asked for a newer number, which the writer will pass on next.
fn keep_passed(snapshots: &Snapshots) -> Option<Seq> {
    let passed = snapshots.passed().filter(|passed| *passed != UNKNOWN)?;
    let seq = passed.max(snapshots.visible());
    snapshots.keep_next(seq).then_some(seq)
}

/// The newest state of the manifest, and the log that goes with it, with its last number.
pub(crate) fn newest(shared: &Core) -> Result<(ManifestState, Seq, Vec<SegmentPart>)> {
    for _ in 0..TRIES_MAX {
        refresh(shared)?;
        let _progress = shared.follower.as_ref().map(|follower| follower.progress.lock());
        let state = shared.manifest.state();
        let (seq, mut log) = shared.log.parts();
        // The last segment may be complete.
        log.dedup_by_key(|part| part.reference.id);
        let is_all = log.iter().map(|part| part.reference).eq(state.segments.values().copied());
        if is_all && seq >= state.log_must_reach() {
            return Ok((ManifestState::clone(&state), seq, log));
        }
    }
    Err(overtaken(shared))
}

/// How far the follower is behind.
pub(crate) fn lag(shared: &Core) -> Option<Lag> {
    let follower = shared.follower.as_ref()?;
    let snapshots = shared.snapshots();
    let behind = |passed: Seq| passed.0.saturating_sub(snapshots.visible().0);
    let passed = snapshots.passed().filter(|passed| *passed != UNKNOWN);
    let refreshed = Duration::from_micros(follower.refreshed_micros.load(Ordering::Relaxed));
    let since_refresh = shared.waits.now().saturating_sub(refreshed);
    Some(Lag { operations: passed.map(behind), since_refresh })
}

/// Repeats `open` while it fails in a way that a writer which goes on can cause.
pub(crate) fn patiently<T>(mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let mut last: Option<String> = None;
    let mut same = 0;
    for _ in 1..TRIES_MAX {
        match open() {
            Err(error) if error.may_be_reuse() => {
                let text = error.to_string();
                same = if last.as_ref() == Some(&text) { same + 1 } else { 0 };
                if same >= UNMOVED_MAX {
                    return Err(error);
                }
                last = Some(text);
            }
            opened => return opened,
        }
        sync::yield_now();
    }
    open()
}

/// A read met space that was used again, as often as it was repeated.
pub(crate) fn overtaken(shared: &Core) -> Error {
    Error::Overtaken { location: shared.device.location() }
}
