//! The start of flushes and merges, and the handling of those that cannot continue.
//!
//! A write that fills the memtable freezes it, which costs nothing, and leaves the rest to the
//! threads of [`background`](crate::background). Writers continue in the memory that is left and
//! that the flush or merge frees as it proceeds; they stall only when there is none.
//!
//! A merge that stops (an unreadable block, no room) fails no write: what was acknowledged is in
//! the log and in the memtable. The keyspace is then *stalled*. It accepts writes until its
//! memtable is twice its maximum, or the log is twice its limit because this keyspace pins it; then
//! puts are refused *before* they are logged, with the error that stopped the merge. Deletes are
//! accepted up to twice that, so that a full store can be emptied. A failed *write* is different:
//! it poisons the store.

use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::superblock::{FEATURE_EXPIRY, FEATURE_OPERANDS};
use esker_index::{BackgroundJob, Index, Step, Work};
use esker_substrate::planted::{self, Race};

use crate::error::{Error, Result};
use crate::index_commit::commit_index;
use crate::memory_pressure;
use crate::reclaim;
use crate::retention;
use crate::shared::Core;
use crate::slot::{Slot, Stall};
use crate::stall_stats::Why;
use crate::work_queue::Mode;
use crate::write_request::Write;

/// The decision about a write to a stalled keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// There is room for it.
    Accept,
    /// There is no room for it: it is accepted only if maintenance succeeds now.
    Retry,
    /// There is no room for it, and trying again would meet the same damage.
    Refuse,
}

/// The sizes of a stalled keyspace's memtable and of the log, and the limits of both.
#[derive(Clone, Copy, Debug)]
struct Fullness {
    memtable_bytes: u64,
    memtable_bytes_max: u64,
    log_bytes: u64,
    log_bytes_max: u64,
}

fn admission(full: Fullness, deletes_only: bool, error_may_pass: bool) -> Admission {
    let factor = if deletes_only { 4 } else { 2 };
    let memtable_fits = full.memtable_bytes < full.memtable_bytes_max.saturating_mul(factor);
    let log_fits = full.log_bytes < full.log_bytes_max.saturating_mul(factor);
    match (memtable_fits && log_fits, error_may_pass) {
        (true, _) => Admission::Accept,
        (false, true) => Admission::Retry,
        (false, false) => Admission::Refuse,
    }
}

/// Whether a stalled keyspace's maintenance is tried again after a write: not each time, because
/// each try may read much before it fails.
fn worth_another_try(stalled_at_bytes: u64, memtable_bytes: u64, memtable_bytes_max: u64) -> bool {
    memtable_bytes >= stalled_at_bytes.saturating_add(memtable_bytes_max / 4)
}

/// Most works that a flush does. One that makes a merge due needs two or three; the bound keeps a
/// wrong answer to "what is due?" from becoming a hang.
const WORKS_MAX: usize = 16;

/// Waits until there is memory for the writes, and refuses them where there is no hope of any.
///
/// # Errors
/// The error that stopped a keyspace's flush or merge, if its memtable or the log is too full for
/// the writes.
pub(crate) fn admit(shared: &Core, writes: &[Write<'_>]) -> Result<()> {
    let deletes_only = writes.iter().all(|write| write.action.only_deletes());
    for group in writes.chunk_by(|a, b| a.slot.id == b.slot.id) {
        if let Some(write) = group.first() {
            wait_for_room(shared, write.slot)?;
            admit_to(shared, write.slot, deletes_only)?;
        }
    }
    if shared.log.live_bytes() <= shared.limits.log_bytes.saturating_mul(2) {
        return Ok(());
    }
    match memory_pressure::pinning_slot(shared, true) {
        Some(slot) => admit_to(shared, &slot, deletes_only),
        None => Ok(()),
    }
}

fn admit_to(shared: &Core, slot: &Arc<Slot>, deletes_only: bool) -> Result<()> {
    let Some(stall) = slot.stall() else { return Ok(()) };
    let tree = slot.tree()?;
    let full = Fullness {
        memtable_bytes: tree.memtable_memory_bytes(),
        memtable_bytes_max: tree.memtable_bytes_max(),
        log_bytes: shared.log.live_bytes(),
        log_bytes_max: shared.limits.log_bytes,
    };
    match admission(full, deletes_only, stall.error.may_pass()) {
        Admission::Accept => Ok(()),
        Admission::Retry => {
            let _may_use_the_reserve = deletes_only.then(|| tree.allow_reserve());
            flush(shared, slot)
        }
        Admission::Refuse => Err(stall.error),
    }
}

/// Waits while the keyspace's memory is used up and a flush or merge is freeing some, or while
/// writers are too far ahead of its merge (back-pressure).
fn wait_for_room(shared: &Core, slot: &Arc<Slot>) -> Result<()> {
    let mut wait = None;
    loop {
        let mut seen = shared.background.ticks();
        let tree = slot.tree()?;
        shared.poison.check()?;
        // A merge that has stopped will not free memory: waiting for it is useless.
        let is_ahead = tree.is_ahead() && slot.stall().is_none();
        let is_full = tree.memtable_memory_bytes() >= tree.memtable_bytes_max();
        let waits = is_ahead || is_full || (tree.refers_to_too_much() && tree.is_flushing());
        if !waits || is_stuck(slot) {
            return Ok(());
        }
        begin_due(shared, slot);
        if slot.has_stopped(BackgroundJob::Merge) && !tree.is_flushing() && tree.due().is_none() {
            // Only the merge would free memory, and it has stopped: the memtable is flushed,
            // however little it holds. Where that cannot be, admission has its own bounds, and a
            // delete makes room.
            if !matches!(begin(shared, slot, Work::Flush), Ok(true)) {
                return Ok(());
            }
        }
        if !tree.is_flushing() && !tree.is_merging() {
            // Nothing would free memory: exceeding the limit is better than no progress.
            return Ok(());
        }
        let why = if is_ahead { Why::Merge } else { Why::Memory };
        wait.get_or_insert_with(|| shared.waits.begin(why));
        if planted::is(Race::TicksReadLate) {
            seen = shared.background.ticks();
        }
        match shared.background.mode {
            Mode::Threads if !shared.background.wait(seen) => return Err(Error::Closed),
            Mode::Threads => {}
            Mode::Inline(_) => {
                let which =
                    if tree.is_flushing() { BackgroundJob::Flush } else { BackgroundJob::Merge };
                let _kept_as_stall = step(shared, slot, which);
            }
        }
    }
}

/// Begins what a write made due, then what the store's limits ask for. Errors are kept in the
/// keyspaces, or have poisoned the store; the write itself has succeeded.
pub(crate) fn after_write(shared: &Core, due: &[&Arc<Slot>]) {
    for slot in due {
        if is_worth_a_try(slot) {
            begin_due(shared, slot);
        }
    }
    memory_pressure::relieve_memory(shared);
    memory_pressure::relieve_log(shared);
    if shared.log.wants_work_ahead() {
        match shared.background.mode {
            Mode::Threads => shared.background.ask_for_log(),
            Mode::Inline(_) => prepare_log(shared),
        }
    }
    if let Mode::Inline(steps) = shared.background.mode {
        shared.slots().iter().for_each(|slot| go_on(shared, slot, steps));
    }
}

/// Makes the log's next switch short. What fails has poisoned the store, or the switch finds it.
pub(crate) fn prepare_log(shared: &Core) {
    if let Err(error) = shared.log.work_ahead() {
        tracing::debug!(%error, "the next log segment is not prepared");
    }
}

/// Whether a stalled keyspace should be tried again; one that is not stalled always.
fn is_worth_a_try(slot: &Slot) -> bool {
    let Ok(tree) = slot.tree() else { return false };
    let (bytes, bytes_max) = (tree.memtable_memory_bytes(), tree.memtable_bytes_max());
    slot.stall().is_none_or(|stall| worth_another_try(stall.memtable_bytes, bytes, bytes_max))
}

/// Begins what is due in one keyspace, or has a thread begin it; what has stopped continues.
pub(crate) fn begin_due(shared: &Core, slot: &Arc<Slot>) {
    let Ok(tree) = slot.tree() else { return };
    if slot.stall().is_some() {
        let under_way =
            [(BackgroundJob::Flush, tree.is_flushing()), (BackgroundJob::Merge, tree.is_merging())];
        let stopped = |(which, is): &(BackgroundJob, bool)| *is && slot.has_stopped(*which);
        for (which, _) in under_way.into_iter().filter(stopped) {
            match shared.background.mode {
                Mode::Threads => shared.background.ask(which, slot),
                Mode::Inline(_) => {
                    let _kept_as_stall = step(shared, slot, which);
                }
            }
        }
    }
    match tree.due() {
        None => {}
        // Beginning a merge may read and grow the file: not in a thread that writes.
        Some(Work::Merge { .. }) if shared.background.mode == Mode::Threads => {
            shared.background.ask(BackgroundJob::Merge, slot);
        }
        Some(work) => {
            let _kept_as_stall = begin(shared, slot, work);
        }
    }
}

/// Has what scans have paid for merged, where threads merge.
pub(crate) fn after_scan(shared: &Core, slot: &Arc<Slot>) {
    if shared.background.mode == Mode::Threads {
        shared.background.ask(BackgroundJob::Merge, slot);
    }
}

/// Begins `work`, and has it run if threads do that.
pub(crate) fn begin(shared: &Core, slot: &Arc<Slot>, work: Work) -> Result<bool> {
    let begun = begin_quietly(shared, slot, work);
    if matches!(begun, Ok(true)) && shared.background.mode == Mode::Threads {
        shared.background.ask(which_of(work), slot);
    }
    begun
}

const fn which_of(work: Work) -> BackgroundJob {
    match work {
        Work::Flush => BackgroundJob::Flush,
        Work::Merge { .. } => BackgroundJob::Merge,
    }
}

fn begin_quietly(shared: &Core, slot: &Arc<Slot>, work: Work) -> Result<bool> {
    let tree = slot.tree()?;
    let gate = |body: &mut dyn FnMut()| {
        let _order = shared.write.lock();
        body();
    };
    let begun = reclaim::retry_with_room(shared, || {
        let recorded = shared.manifest.retry_last_record();
        recorded.and_then(|()| tree.begin(work, &gate)).map_err(Error::from)
    });
    if matches!(begun, Ok(true)) {
        tracing::debug!(keyspace = slot.name, ?work, "begins");
    }
    if matches!(begun, Ok(false)) { begun } else { note(slot, which_of(work), begun) }
}

/// Does one step.
pub(crate) fn step(shared: &Core, slot: &Slot, which: BackgroundJob) -> Result<Step> {
    let tree = slot.tree()?;
    let stepped = reclaim::retry_with_room(shared, || {
        let stepped =
            tree.step(which, &mut |meta, edits| commit_index(shared, slot.id, meta, edits));
        stepped.map_err(Error::from)
    });
    // That there was nothing to do says nothing about what stopped before.
    let idle = matches!(stepped, Ok(Step::Idle));
    let result = if idle { stepped } else { note(slot, which, stepped) };
    if matches!(result, Ok(Step::Done)) {
        tracing::debug!(keyspace = slot.name, ?which, "done");
        retention::drop_past(shared, slot);
        if which == BackgroundJob::Merge {
            reclaim::truncate_spare(shared);
        }
    }
    shared.background.tick();
    result
}

/// Records the reason why a flush or merge stopped, or that it continues.
fn note<T>(slot: &Slot, which: BackgroundJob, result: Result<T>) -> Result<T> {
    match &result {
        Ok(_) if !slot.has_stopped(which) => {}
        Ok(_) => slot.set_stall(which, None),
        Err(Error::Poisoned { .. } | Error::Closed | Error::NoKeyspace { .. }) => {
            slot.set_stall(which, None);
        }
        Err(error) => {
            tracing::warn!(keyspace = slot.name, %error, "maintenance stopped");
            let memtable_bytes = slot.tree().map_or(0, |tree| tree.memtable_memory_bytes());
            let stall = Stall { which, error: error.clone(), memtable_bytes };
            slot.set_stall(which, Some(stall));
        }
    }
    result
}

/// Whether something has stopped in the keyspace, and nothing else can write its memtable out.
pub(crate) fn is_stuck(slot: &Slot) -> bool {
    let Some(stall) = slot.stall() else { return false };
    let Ok(tree) = slot.tree() else { return true };
    stall.which == BackgroundJob::Flush
        || (!tree.is_flushing() && tree.flush_work() != Some(Work::Flush))
}

/// The work of a background thread on a keyspace: runs its flush or merge to the end, and those
/// that are due then.
pub(crate) fn run_in_background(shared: &Core, slot: &Arc<Slot>, which: BackgroundJob) {
    let _span = tracing::debug_span!("maintenance", keyspace = slot.name, ?which).entered();
    loop {
        // Between two steps the store may close.
        let Ok(_open) = shared.enter() else { return };
        match step(shared, slot, which) {
            Ok(Step::More) => {}
            Ok(Step::Done) => begin_due(shared, slot),
            Ok(Step::Idle) if which == BackgroundJob::Flush => return begin_due(shared, slot),
            Ok(Step::Idle) => {
                let due = slot.tree().ok().and_then(|tree| tree.due());
                let begun = due.map(|work| begin(shared, slot, work));
                // Only a merge is for this thread to go on with.
                if !matches!((due, begun), (Some(Work::Merge { .. }), Some(Ok(true)))) {
                    return;
                }
            }
            Err(_kept_as_stall) => return,
        }
    }
}

/// Does up to `steps` steps of what is under way in a keyspace and of what becomes due; with 0,
/// all there is.
pub(crate) fn go_on(shared: &Core, slot: &Arc<Slot>, steps: u32) {
    let mut left = steps;
    loop {
        let Ok(tree) = slot.tree() else { return };
        let runs = |which, under_way: bool| under_way && !slot.has_stopped(which);
        let which = if shared.poison.reason().is_some() {
            return;
        } else if runs(BackgroundJob::Flush, tree.is_flushing()) {
            BackgroundJob::Flush
        } else if runs(BackgroundJob::Merge, tree.is_merging()) {
            BackgroundJob::Merge
        } else {
            let Some(work) = tree.due().filter(|work| !slot.has_stopped(which_of(*work))) else {
                return;
            };
            match begin(shared, slot, work) {
                Ok(true) => continue,
                _ => return,
            }
        };
        if step(shared, slot, which).is_err() {
            return;
        }
        left = left.wrapping_sub(1);
        if left == 0 {
            return;
        }
    }
}

/// Goes on with what an opened store has under way: the steps that do not fit into an operation
/// are left to the threads.
pub(crate) fn resume(shared: &Core) {
    for slot in shared.slots() {
        let Ok(tree) = slot.tree() else { continue };
        let resumed = tree.resume().map_err(Error::from);
        if note(&slot, BackgroundJob::Merge, resumed).is_ok()
            && shared.background.mode == Mode::Threads
        {
            shared.background.ask(BackgroundJob::Merge, &slot);
        }
    }
}

/// Does the flushes that are due during recovery, immediately.
pub(crate) fn run_due(shared: &Core, slot: &Arc<Slot>) {
    if is_worth_a_try(slot) && slot.tree().is_ok_and(|tree| tree.is_full()) {
        let _has_begun = begin_and_complete(shared, slot, Index::flush_work);
    }
}

/// Begins `work` and does all of it, in this thread; whether there was any.
pub(crate) fn begin_and_complete(
    shared: &Core,
    slot: &Arc<Slot>,
    work: impl Fn(&Index) -> Option<Work>,
) -> bool {
    let Some(work) = slot.tree().ok().and_then(|tree| work(&tree)) else { return false };
    let has_begun = matches!(begin_quietly(shared, slot, work), Ok(true));
    if has_begun {
        while matches!(step(shared, slot, which_of(work)), Ok(Step::More)) {}
    }
    has_begun
}

/// Flushes the entries that a keyspace had when this was called, and does what is due then.
///
/// # Errors
/// [`Error::Full`] when the entries are not flushed: a merge that is due waits for space.
pub(crate) fn flush(shared: &Core, slot: &Arc<Slot>) -> Result<()> {
    let _span = tracing::debug_span!("flush", keyspace = slot.name).entered();
    let target = slot.tree()?.newest_seq();
    match flush_to(shared, slot, target) {
        Err(Error::Full { .. }) if slot.tree()?.is_flushed(target) => Ok(()),
        flushed => flushed,
    }
}

fn flush_to(shared: &Core, slot: &Arc<Slot>, target: Seq) -> Result<()> {
    for _ in 0..WORKS_MAX {
        let tree = slot.tree()?;
        shared.poison.check()?;
        complete(shared, slot)?;
        let flushed = is_flushed(&tree, target);
        let work = if flushed { tree.due() } else { tree.flush_work() };
        let Some(work) = work else {
            if flushed {
                return Ok(());
            }
            // Another thread has begun something in between.
            continue;
        };
        match begin(shared, slot, work) {
            // Space for a sorted run is reserved.
            Err(error @ Error::Full { .. }) if !flushed && work != Work::Flush => {
                if !begin(shared, slot, Work::Flush)? {
                    return Err(error);
                }
            }
            begun => {
                begun?;
            }
        }
    }
    complete(shared, slot)
}

/// Completes the flush and the merge under way in a keyspace, in this thread or concurrently with
/// the thread that runs them.
fn complete(shared: &Core, slot: &Slot) -> Result<()> {
    for which in [BackgroundJob::Flush, BackgroundJob::Merge] {
        while step(shared, slot, which)? == Step::More {}
    }
    Ok(())
}

/// Merges a keyspace into one level.
pub(crate) fn compact(shared: &Core, slot: &Arc<Slot>) -> Result<()> {
    let _span = tracing::debug_span!("compact", keyspace = slot.name).entered();
    let own = slot.own_tree()?;
    let _may_use_the_reserve = own.allow_reserve();
    let target = own.newest_seq();
    loop {
        let tree = slot.tree()?;
        shared.poison.check()?;
        match complete(shared, slot) {
            // A merge that found no space has ended: the full one drops more.
            Err(Error::Full { .. }) if !tree.is_merging() && !tree.is_flushing() => {}
            completed => completed?,
        }
        // Entries with an expiry, and values with operands, may be in levels that a merge would
        // still change.
        let features = [FEATURE_EXPIRY, FEATURE_OPERANDS];
        let may_change = features.iter().any(|bit| shared.manifest.requires(*bit));
        if tree.is_fully_compacted(may_change) {
            return Ok(());
        }
        // What is newer than the target takes part, too: without it there may be nothing to merge.
        let has_new = tree.memtable_entries() > 0;
        if has_new && tree.flushes_first() && begin(shared, slot, Work::Flush)? {
            while step(shared, slot, BackgroundJob::Flush)? == Step::More {}
        }
        let flushed = is_flushed(&tree, target);
        if !flushed && tree.is_flushing() {
            // Another thread writes it out.
            continue;
        }
        let with_memtable = has_new && !tree.flushes_first();
        // A split that was due already takes no run that has come since.
        let was_due = tree.splits_next();
        // Another thread may have begun something in between: then once more.
        if begin(shared, slot, Work::Merge { full: true, with_memtable })? {
            while step(shared, slot, BackgroundJob::Merge)? == Step::More {}
            // A merge that may take the memtable does not begin beside a flush.
            let has_all = flushed || with_memtable;
            if has_all && !was_due && !slot.tree()?.splits_next() {
                return Ok(());
            }
        }
    }
}

/// Whether what the keyspace had up to `target` is on the device.
fn is_flushed(tree: &Index, target: Seq) -> bool {
    let forgets_frozen = planted::is(Race::FrozenForgotten) && tree.memtable_entries() == 0;
    tree.is_flushed(target) || !tree.is_busy() || forgets_frozen
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_substrate::planted::Bug;

    fn full(memtable_bytes: u64, log_bytes: u64) -> Fullness {
        Fullness { memtable_bytes, memtable_bytes_max: 100, log_bytes, log_bytes_max: 1000 }
    }

    #[test]
    fn a_stalled_keyspace_takes_puts_to_twice_and_deletes_to_four_times_its_maximum() {
        assert_eq!(admission(full(199, 0), false, true), Admission::Accept);
        assert_eq!(admission(full(200, 0), false, true), Admission::Retry);
        assert_eq!(admission(full(200, 0), false, false), Admission::Refuse);
        assert_eq!(admission(full(200, 0), true, false), Admission::Accept);
        assert_eq!(admission(full(400, 0), true, false), Admission::Refuse);
        assert_eq!(admission(full(0, 2000), false, false), Admission::Refuse);
        assert_eq!(admission(full(0, 2000), true, false), Admission::Accept);
    }

    /// A merge that has stopped and is forgotten is run by no thread, and writers wait for it.
    fn a_stopped_merge_is_known_during_flushes() {
        let device = Arc::new(esker_device::memory::MemoryDevice::new());
        let db = crate::Db::builder_on(device).open().unwrap();
        let keyspace = db.keyspace("one", crate::KeyspaceOptions::default()).unwrap();
        let slot = keyspace.slot;
        let full = || Err::<(), _>(Error::Full { what: "a test".into() });
        let stopped = |which| slot.has_stopped(which);
        assert!(note(&slot, BackgroundJob::Merge, full()).is_err());
        assert!(note(&slot, BackgroundJob::Flush, full()).is_err());
        assert!(
            is_stuck(&slot)
                && slot.stall().is_some_and(|stall| stall.which == BackgroundJob::Flush)
        );
        note(&slot, BackgroundJob::Flush, Ok(())).unwrap();
        assert!(stopped(BackgroundJob::Merge) && !stopped(BackgroundJob::Flush));
        assert!(slot.stall().is_some_and(|stall| stall.which == BackgroundJob::Merge));
        note(&slot, BackgroundJob::Merge, Ok(())).unwrap();
        assert!(slot.stall().is_none());
    }

    #[test]
    fn a_stopped_merge_stays_known() {
        a_stopped_merge_is_known_during_flushes();
        let forgets =
            || planted::with(Bug::StallOverwritten, a_stopped_merge_is_known_during_flushes);
        assert!(std::panic::catch_unwind(forgets).is_err());
    }

    #[test]
    fn a_stalled_merge_is_tried_again_after_a_quarter_more() {
        assert!(!worth_another_try(100, 124, 100));
        assert!(worth_another_try(100, 125, 100));
    }
}
