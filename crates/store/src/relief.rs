//! Which keyspaces are written out to make room for others: in memory, and in the log.

use std::sync::Arc;

use esker_format::ids::KeyspaceId;
use esker_index::{Index, Work};

use crate::background::Mode;
use crate::maintenance::{begin, go_on, is_stuck};
use crate::shared::{Core, Slot};

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

/// Has keyspaces written out, the largest first, while the memtables together are over their
/// limit.
pub(crate) fn relieve_memory(shared: &Core) {
    // What is frozen gives its memory back as it is written: until then the rest is needed.
    let limit = shared.limits.memtables_bytes / 8 * 7;
    relieve(shared, || {
        if shared.memtables_bytes() <= limit {
            return None;
        }
        let slots = shared.slots();
        let candidates: Vec<_> = slots.iter().filter_map(candidate).collect();
        let id = largest(&candidates, limit)?;
        slots.into_iter().find(|slot| slot.id == id)
    });
}

/// Has the keyspaces written out that pin the oldest log segments, while the log is over its
/// limit.
pub(crate) fn relieve_log(shared: &Core) {
    relieve(shared, || {
        let over = shared.log.live_bytes() > shared.limits.log_bytes;
        if over { pinning_slot(shared, false) } else { None }
    });
}

fn relieve(shared: &Core, next: impl Fn() -> Option<Arc<Slot>>) {
    let mut tried = Vec::new();
    while let Some(slot) = next() {
        // The same keyspace twice means that writing it out did not help, or not yet.
        if tried.contains(&slot.id) || is_stuck(&slot) {
            return;
        }
        tried.push(slot.id);
        let work = slot.tree().ok().filter(|tree| tree.memtable_entries() > 0);
        match work.and_then(Index::flush_work) {
            Some(Work::Merge { .. }) | None if shared.background.mode == Mode::Threads => {
                // A merge that takes the memtable in is begun by a thread; a spill will do.
                let _kept_as_stall = work.map(|_| begin(shared, &slot, Work::Spill));
            }
            Some(work) => {
                let _kept_as_stall = begin(shared, &slot, work);
                if shared.background.mode != Mode::Threads {
                    go_on(shared, &slot, 0);
                }
            }
            None => {}
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
        // Who is not asked for pins nothing.
        let _slot = asked(id)?;
        state.keyspaces.get(&id).map(|keyspace| keyspace.index.log_unneeded_seq())
    };
    shared.log.oldest_pin(&flushed).and_then(asked).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
