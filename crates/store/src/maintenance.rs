//! When memtables are written out and merges run, and what happens when one cannot.
//!
//! A merge runs in the thread whose write made it due, holding its keyspace exclusively until it
//! is complete: the scheme FD+XM of the paper. Nothing runs in the background, so a store does
//! the same things in the same order every time.
//!
//! A merge that stops (an unreadable block, no room) fails no write: what was acknowledged is in
//! the log and in the memtable. The keyspace is then *stalled*. It goes on taking writes until
//! its memtable is twice its maximum, or the log is twice its limit because this keyspace pins
//! it; then puts are refused *before* they are logged, with the error that stopped the merge.
//! Deletes go on to twice that, so that a full store can be emptied. A failed *write* is another
//! matter: it poisons the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_format::ids::{KeyspaceId, Seq};
use esker_format::manifest_edit::Edit;
use esker_format::meta::IndexMeta;
use esker_index::fdtree::{FdTree, Work};
use esker_substrate::planted::{self, Bug};

use crate::error::{Error, Result};
use crate::shared::{Shared, Slot, Stall};
use crate::write::Write;

/// What a write to a stalled keyspace may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// There is room for it.
    Accept,
    /// There is none: only if maintenance succeeds now.
    Retry,
    /// There is none, and trying again would meet the same damage.
    Refuse,
}

/// How full a stalled keyspace is.
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

/// Most works done in one go. A flush that makes a merge due needs two; the bound keeps a wrong
/// answer to "what is due?" from becoming a hang.
const WORKS_MAX: usize = 4;

/// A keyspace that could be written out to make room.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: KeyspaceId,
    memtable_bytes: u64,
    stalled: bool,
}

/// The keyspace to write out when the memtables together are over `limit_bytes`: the largest
/// that is not stalled, unless it is so small that writing it out would gain next to nothing
/// (what stalled keyspaces hold cannot be had back by writing others out in crumbs).
fn largest(candidates: &[Candidate], limit_bytes: u64) -> Option<KeyspaceId> {
    let crumb = limit_bytes / (4 * candidates.len().max(1) as u64);
    let able = candidates.iter().filter(|candidate| !candidate.stalled);
    let largest = able.max_by_key(|candidate| candidate.memtable_bytes)?;
    (largest.memtable_bytes > crumb).then_some(largest.id)
}

/// Fails when a write to a stalled keyspace, or one behind a log that a stalled keyspace pins,
/// finds no room. Costs next to nothing when nothing is stalled.
pub(crate) fn admit(shared: &Shared, writes: &[Write<'_>]) -> Result<()> {
    let deletes_only = writes.iter().all(|write| write.value.is_none());
    for group in writes.chunk_by(|a, b| a.slot.id == b.slot.id) {
        if let Some(write) = group.first() {
            admit_to(shared, write.slot, deletes_only)?;
        }
    }
    if shared.log.live_bytes() <= shared.limits.log_bytes.saturating_mul(2) {
        return Ok(());
    }
    match pinning_slot(shared, true) {
        Some(slot) => admit_to(shared, &slot, deletes_only),
        None => Ok(()),
    }
}

fn admit_to(shared: &Shared, slot: &Slot, deletes_only: bool) -> Result<()> {
    let Some(stall) = slot.stall() else { return Ok(()) };
    let full = Fullness {
        memtable_bytes: slot.read()?.memtable_memory_bytes(),
        memtable_bytes_max: slot.memtable_bytes_max.load(Ordering::Relaxed),
        log_bytes: shared.log.live_bytes(),
        log_bytes_max: shared.limits.log_bytes,
    };
    match admission(full, deletes_only, stall.error.may_pass()) {
        Admission::Accept => Ok(()),
        Admission::Retry => flush(shared, slot),
        Admission::Refuse => Err(stall.error),
    }
}

/// Runs what a write made due, then what the store's limits ask for. Errors are kept in the
/// keyspaces, or have poisoned the store; the write itself has succeeded.
pub(crate) fn after_write(shared: &Shared, due: &[&Arc<Slot>]) {
    for slot in due {
        run_due(shared, slot);
    }
    relieve_memory(shared);
    relieve_log(shared);
}

/// Runs what is due in one keyspace.
pub(crate) fn run_due(shared: &Shared, slot: &Slot) {
    let bytes = slot.read().map_or(0, |tree| tree.memtable_memory_bytes());
    let bytes_max = slot.memtable_bytes_max.load(Ordering::Relaxed);
    let stalled_at = slot.stall().map(|stall| stall.memtable_bytes);
    if stalled_at.is_none_or(|at| worth_another_try(at, bytes, bytes_max)) {
        note(slot, maintain(shared, slot, FdTree::due));
    }
}

/// Writes keyspaces out, the largest first, while the memtables together are over their limit.
pub(crate) fn relieve_memory(shared: &Shared) {
    let limit = shared.limits.memtables_bytes;
    relieve(shared, || {
        if shared.memtables_bytes.load(Ordering::Relaxed) <= limit {
            return None;
        }
        let slots = shared.slots();
        let candidates: Vec<_> = slots.iter().filter_map(candidate).collect();
        let id = largest(&candidates, limit)?;
        slots.into_iter().find(|slot| slot.id == id)
    });
}

/// Writes out the keyspaces that pin the oldest log segments, while the log is over its limit.
fn relieve_log(shared: &Shared) {
    relieve(shared, || {
        let over = shared.log.live_bytes() > shared.limits.log_bytes;
        if over { pinning_slot(shared, false) } else { None }
    });
}

fn relieve(shared: &Shared, next: impl Fn() -> Option<Arc<Slot>>) {
    let mut tried = Vec::new();
    while let Some(slot) = next() {
        // The same keyspace twice means that writing it out did not help.
        if tried.contains(&slot.id) || slot.stall().is_some() {
            return;
        }
        tried.push(slot.id);
        note(&slot, flush(shared, &slot));
    }
}

fn candidate(slot: &Arc<Slot>) -> Option<Candidate> {
    let memtable_bytes = slot.read().ok()?.memtable_memory_bytes();
    Some(Candidate { id: slot.id, memtable_bytes, stalled: slot.stall().is_some() })
}

/// The keyspace that pins the oldest log segment, among the stalled ones or among the others.
fn pinning_slot(shared: &Shared, stalled: bool) -> Option<Arc<Slot>> {
    let state = shared.manifest.state();
    let slots = shared.slots();
    let asked = |id| slots.iter().find(|slot| slot.id == id && slot.stall().is_some() == stalled);
    let flushed = |id| {
        // Who is not asked for pins nothing.
        let _slot = asked(id)?;
        state.keyspaces.get(&id).map(|keyspace| keyspace.index.flushed_seq)
    };
    shared.log.oldest_pin(&flushed).and_then(asked).cloned()
}

fn note(slot: &Slot, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(keyspace = slot.name, %error, "maintenance stopped");
    }
}

/// Writes a keyspace's memtable out, and does what is due then.
pub(crate) fn flush(shared: &Shared, slot: &Slot) -> Result<()> {
    maintain(shared, slot, |tree| {
        tree.due().or_else(|| (tree.memtable_entries() > 0).then(|| tree.flush_work()))
    })
}

/// Merges a keyspace into one level.
pub(crate) fn compact(shared: &Shared, slot: &Slot) -> Result<()> {
    let mut first = Some(Work::MergeFull);
    maintain(shared, slot, move |tree| first.take().or_else(|| tree.due()))
}

/// Runs what `next` asks for until it asks for nothing, and keeps why it stopped.
fn maintain(
    shared: &Shared,
    slot: &Slot,
    mut next: impl FnMut(&FdTree) -> Option<Work>,
) -> Result<()> {
    let mut tree = slot.exclusive()?;
    let memtable_bytes = tree.memtable_memory_bytes();
    let mut run = || -> Result<()> {
        shared.poison.check()?;
        shared.manifest.settle()?;
        for _ in 0..WORKS_MAX {
            let Some(work) = next(&tree) else { break };
            tree.run(work, &mut |meta| commit_index(shared, slot.id, meta))?;
        }
        Ok(())
    };
    let result = run();
    shared.uncount_memtable(memtable_bytes, tree.memtable_memory_bytes());
    slot.set_stall(match &result {
        Ok(()) | Err(Error::Poisoned { .. }) => None,
        Err(error) => {
            let memtable_bytes = tree.memtable_memory_bytes();
            Some(Stall { error: error.clone(), memtable_bytes })
        }
    });
    result
}

/// Makes an index durable and lets go of the log that it replaces.
///
/// The log goes first: `flushed_seq` promises that everything up to it is in the index, and a
/// batch of which only one keyspace's part had survived would have been torn.
fn commit_index(shared: &Shared, id: KeyspaceId, meta: &IndexMeta) -> esker_substrate::Result<()> {
    if !planted::is(Bug::CommitBeforeLog) {
        shared.log.sync_to(meta.flushed_seq)?;
    }
    let index = Edit::Index { id, index: Arc::new(meta.clone()) };
    commit_and_recycle(shared, index, id, Some(meta.flushed_seq))
}

/// Commits an edit that changes how far `id` is flushed (`None`: it is dropped), and with it the
/// removal of log segments that nobody needs then.
fn commit_and_recycle(
    shared: &Shared,
    edit: Edit,
    id: KeyspaceId,
    flushed_seq: Option<Seq>,
) -> esker_substrate::Result<()> {
    let state = shared.manifest.state();
    let flushed = |other| match state.keyspaces.get(&other) {
        _ if other == id => flushed_seq,
        Some(keyspace) => Some(keyspace.index.flushed_seq),
        // Ids are never reused: this one was given out since the state was read, and its keyspace
        // needs all of its log.
        None if other >= state.next_keyspace => Some(Seq(0)),
        None => None,
    };
    let retired = shared.log.retire(&flushed);
    let mut edits = vec![edit];
    edits.extend_from_slice(retired.edits());
    let mut committed = shared.commit_edits(&edits);
    if matches!(committed, Err(esker_substrate::Error::Full { .. })) {
        // What the data file does not use may be just the room that the manifest lacks, and the
        // way out of a full device (merging, dropping a keyspace) leads through here.
        shared.env.blocks.discard_free()?;
        committed = shared.commit_edits(&edits);
    }
    committed?;
    // The commit stands whatever becomes of the old files; a failure here must not make the
    // index believe that it does not.
    if let Err(error) = shared.log.recycle(retired) {
        tracing::warn!(%error, "log segments could not be recycled");
    }
    Ok(())
}

/// Drops a keyspace: first from the manifest, then its space.
pub(crate) fn drop_tree(shared: &Shared, slot: &Slot) -> Result<()> {
    let mut owner = slot.ownership();
    let Some(tree) = owner.as_mut() else {
        return Err(Error::NoKeyspace { name: slot.name.clone() });
    };
    shared.poison.check()?;
    // What was written before the drop must not be lost when the drop is not.
    shared.log.sync_to(shared.log.last_seq())?;
    commit_and_recycle(shared, Edit::KeyspaceDrop { id: slot.id }, slot.id, None)?;
    shared.uncount_memtable(tree.memtable_memory_bytes(), 0);
    let released = tree.release();
    *owner = None;
    Ok(released?)
}

/// Gives free space of the data file back to the file system.
pub(crate) fn discard_free_space(shared: &Shared) -> Result<()> {
    // What is free by a manifest that is not sure to be durable is not free.
    shared.manifest.settle()?;
    Ok(shared.env.blocks.discard_free()?)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_stalled_merge_is_tried_again_after_a_quarter_more() {
        assert!(!worth_another_try(100, 124, 100));
        assert!(worth_another_try(100, 125, 100));
    }

    #[test]
    fn the_largest_able_keyspace_makes_room() {
        let candidate =
            |id, memtable_bytes, stalled| Candidate { id: KeyspaceId(id), memtable_bytes, stalled };
        let three = [candidate(1, 50, false), candidate(2, 70, false), candidate(3, 90, true)];
        assert_eq!(largest(&three, 120), Some(KeyspaceId(2)));
        let crumbs = [candidate(1, 5, false), candidate(3, 900, true)];
        assert_eq!(largest(&crumbs, 120), None);
        assert_eq!(largest(&[], 120), None);
    }
}
