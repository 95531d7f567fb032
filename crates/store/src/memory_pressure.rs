//! The choice of keyspaces to flush when others need room: in memory, and in the log.
//!
//! Looking for room in memory costs a step for each keyspace, so it is not done again for every
//! write while the memtables are over their limit: they must have grown meanwhile
//! ([`Looked`](crate::looked::Looked)). And recovery, during which no thread flushes, makes room
//! for many operations at once.

use std::cmp::Reverse;
use std::sync::Arc;

use esker_format::ids::KeyspaceId;
use esker_index::Work;
use esker_substrate::planted::{self, Bug};

use crate::maintenance::{begin, begin_and_complete, go_on, is_stuck};
use crate::shared::Core;
use crate::slot::Slot;
use crate::work_queue::Mode;

/// A keyspace that could be flushed to make room.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: KeyspaceId,
    memtable_bytes: u64,
    stalled: bool,
}

/// The extent to which the chosen keyspaces are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Their flushes are begun.
    Begun,
    /// Their flushes are completed.
    Done,
}

/// The keyspaces to flush when the memtables together are over `limit_bytes`: the largest first,
/// without those that are stalled, and without those that are so small that a flush would free next
/// to nothing (many small flushes of other keyspaces cannot free what stalled keyspaces hold).
fn largest_first(mut candidates: Vec<Candidate>, limit_bytes: u64) -> Vec<KeyspaceId> {
    let crumb = limit_bytes / (4 * candidates.len().max(1) as u64);
    candidates.retain(|candidate| !candidate.stalled && candidate.memtable_bytes > crumb);
    candidates.sort_by_key(|candidate| (Reverse(candidate.memtable_bytes), candidate.id));
    candidates.iter().map(|candidate| candidate.id).collect()
}

/// Flushes keyspaces, the largest first, while the memtables together are over their limit.
pub(crate) fn relieve_memory(shared: &Core) {
    relieve_memory_to(shared, |limit_bytes| limit_bytes, How::Begun);
}

/// Flushes keyspaces, the largest first, when the memtables together are over their limit: for
/// recovery.
pub(crate) fn relieve_memory_at_once(shared: &Core) {
    match planted::is(Bug::MemoryLookedAtEachTime) {
        true => relieve_memory(shared),
        false => relieve_memory_to(shared, |limit_bytes| limit_bytes / 2, How::Done),
    }
}

fn relieve_memory_to(shared: &Core, enough_bytes: impl Fn(u64) -> u64, how: How) {
    // A frozen memtable frees its memory as it is flushed: until then the rest is needed.
    let limit = shared.limits.memtables_bytes / 8 * 7;
    if !shared.looked.is_due(shared.memtables_bytes(), limit) {
        return;
    }
    let slots = shared.slots();
    for id in largest_first(slots.iter().filter_map(candidate).collect(), limit) {
        if shared.memtables_bytes() <= enough_bytes(limit) {
            return;
        }
        let found = slots.binary_search_by_key(&id, |slot| slot.id).ok();
        let Some(slot) = found.and_then(|at| slots.get(at)) else { return };
        // A memtable that cannot be flushed at this moment is, or will be, flushed by other
        // threads; in recovery there are none yet.
        if !write_out(shared, slot, how) && !is_stuck(slot) && how == How::Begun {
            return;
        }
    }
}

/// Flushes the keyspaces that pin the oldest log segments, while the log is over its limit.
pub(crate) fn relieve_log(shared: &Core) {
    let mut tried = Vec::new();
    while shared.log.live_bytes() > shared.limits.log_bytes {
        let Some(slot) = pinning_slot(shared, false) else { return };
        // The same keyspace twice means that its flush did not help, or not yet.
        if tried.contains(&slot.id) || is_stuck(&slot) {
            return;
        }
        tried.push(slot.id);
        let _has_begun = write_out(shared, &slot, How::Begun);
    }
}

/// Writes a keyspace's memtable out, or begins to; whether it has begun.
fn write_out(shared: &Core, slot: &Arc<Slot>, how: How) -> bool {
    let tree = slot.tree().ok().filter(|tree| tree.memtable_entries() > 0);
    let Some(work) = tree.and_then(|tree| tree.flush_work()) else { return false };
    // Errors are kept as the keyspace's stall.
    match (shared.background.mode, how, work) {
        (Mode::Threads, How::Done, _) => begin_and_complete(shared, slot, |_| Some(work)),
        // A merge that takes the memtable in is begun by a thread; a flush will do.
        (Mode::Threads, How::Begun, _) => begin(shared, slot, Work::Flush).unwrap_or(false),
        (Mode::Inline(_), ..) => {
            let begun = begin(shared, slot, work);
            go_on(shared, slot, 0);
            begun.unwrap_or(false)
        }
    }
}

fn candidate(slot: &Arc<Slot>) -> Option<Candidate> {
    let memtable_bytes = slot.tree().ok()?.active_memory_bytes();
    Some(Candidate { id: slot.id, memtable_bytes, stalled: is_stuck(slot) })
}

/// The keyspace that pins the oldest log segment, among those that are stuck or among the others.
pub(crate) fn pinning_slot(shared: &Core, stuck: bool) -> Option<Arc<Slot>> {
    pinning(shared, |slot| is_stuck(slot) == stuck)
}

/// The keyspace that pins the oldest log segment.
pub(crate) fn oldest_pin(shared: &Core) -> Option<Arc<Slot>> {
    pinning(shared, |_| true)
}

fn pinning(shared: &Core, asks: impl Fn(&Slot) -> bool) -> Option<Arc<Slot>> {
    let state = shared.manifest.state();
    let registry = shared.keyspaces.read();
    let asked = |id| {
        let slot = registry.get(&state.keyspaces.get(&id)?.name)?;
        (slot.id == id && asks(slot)).then_some(slot)
    };
    let flushed = |id| {
        // A keyspace that is not asked for pins nothing.
        let _slot = asked(id)?;
        state.keyspaces.get(&id).map(|keyspace| keyspace.index.log_unneeded_seq())
    };
    shared.log.oldest_pin(&flushed).and_then(asked).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_able_keyspaces_make_room() {
        let candidate =
            |id, memtable_bytes, stalled| Candidate { id: KeyspaceId(id), memtable_bytes, stalled };
        let three = vec![candidate(1, 50, false), candidate(2, 70, false), candidate(3, 90, true)];
        assert_eq!(largest_first(three, 120), [KeyspaceId(2), KeyspaceId(1)]);
        let crumbs = vec![candidate(1, 5, false), candidate(3, 900, true)];
        assert_eq!(largest_first(crumbs, 120), []);
        let alike = vec![candidate(2, 50, false), candidate(1, 50, false), candidate(3, 5, false)];
        assert_eq!(largest_first(alike, 120), [KeyspaceId(1), KeyspaceId(2)]);
        assert_eq!(largest_first(Vec::new(), 120), []);
    }
}
