//! Making room for a write that finds the device full.
//!
//! First memtables are flushed, for which space is reserved: that frees log segments. For deletes,
//! for which puts always leave room, keyspaces that have something to drop are then merged. The
//! writing thread does this itself, one thread at a time, so that no thread waits for room that may
//! not come. A write that still finds no room is refused with [`Error::Full`] and has no effect.

use std::sync::Arc;

use esker_format::action::WriteOp;
use esker_index::upkeep::owed;
use esker_index::{BackgroundJob, Step, Work};
use esker_substrate::blocks::{Claim, Reserve};
use esker_substrate::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::maintenance;
use crate::shared::Core;
use crate::slot::Slot;
use crate::times::is_of_times;
use crate::write_request::Write;

/// To make room for puts, no memtable is flushed that holds less than this share of the room for
/// deletes: a little more would fit then, and then a little less. Nor is such a memtable flushed to
/// make room for deletes where a keyspace has many range tombstones, because each flush records all
/// of them.
const CRUMB_SHARE: u64 = 4;
/// The number of range tombstones from which on they are many.
const MANY_REMOVALS: usize = 64;

/// A way to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effort {
    /// Memtables that hold at least this many bytes are flushed.
    WriteOut { least_bytes: u64 },
    /// Keyspaces that have something to drop are merged completely.
    Merge,
}

/// The ways that are used for a write, in this order.
fn efforts(claim: Claim, reserve: &Reserve) -> Vec<Effort> {
    match claim {
        Claim::Values => vec![Effort::WriteOut { least_bytes: crumb_bytes(reserve) }],
        Claim::Deletes => vec![Effort::WriteOut { least_bytes: 1 }, Effort::Merge],
    }
}

const fn crumb_bytes(reserve: &Reserve) -> u64 {
    reserve.delete_bytes / CRUMB_SHARE
}

/// The kind of writes, for a full device, and the room that they take when they are flushed from
/// the memtables, in bytes.
///
/// # Errors
/// [`Error::NoKeyspace`] for a range of a keyspace that is gone.
pub(crate) fn claim_of(writes: &[Write<'_>]) -> Result<(Claim, u64)> {
    // A removal notes its time, which takes no more space than it does.
    let is_small = |write: &Write<'_>| write.action.only_deletes() || is_of_times(write.slot);
    let deletes = writes.iter().all(is_small);
    let mut bytes = 0_u64;
    for write in writes {
        bytes = bytes.saturating_add(match write.action {
            WriteOp::Point(key, data) => owed::entry_bytes(key, data),
            WriteOp::DeleteRange(keys) => write.slot.tree()?.removal_bytes(keys),
        });
    }
    Ok((if deletes { Claim::Deletes } else { Claim::Values }, bytes))
}

/// Tries an operation that changes nothing if there is no room, and makes room if there is none.
///
/// # Errors
/// Those of `attempt`; the error of a merge, except lack of room.
pub(crate) fn with_room<T>(
    shared: &Core,
    claim: Claim,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut result = attempt();
    if !matches!(result, Err(Error::Full { .. })) {
        return result;
    }
    for effort in efforts(claim, &shared.limits.reserve) {
        if !matches!(result, Err(Error::Full { .. })) {
            return result;
        }
        let _one_at_a_time = shared.making_room.lock();
        // Another thread may have made room meanwhile.
        result = attempt();
        if matches!(result, Err(Error::Full { .. })) {
            make(shared, effort)?;
            result = attempt();
        }
    }
    result
}

fn make(shared: &Core, effort: Effort) -> Result<()> {
    tracing::debug!(?effort, "makes room");
    for slot in shared.slots() {
        let done = match effort {
            Effort::WriteOut { least_bytes } => write_out(shared, &slot, least_bytes),
            Effort::Merge => merge(shared, &slot),
        };
        match done {
            // A dropped keyspace makes room too, and another keyspace may make some.
            Ok(()) | Err(Error::Full { .. } | Error::NoKeyspace { .. }) => {}
            // Damage in one keyspace is no reason to refuse writes to another.
            Err(Error::Damaged { .. } | Error::Operator { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if shared.log.has_spares() {
        shared.log.remove_spares()?;
    }
    // What the data file does not use, and is not kept, may be what the log lacks.
    shared.env.blocks.discard_free()?;
    shared.make_manifest_room()
}

/// Flushes a keyspace's memtable, if that is worth it, and its frozen memtable.
fn write_out(shared: &Core, slot: &Arc<Slot>, least_bytes: u64) -> Result<()> {
    let flush = |slot: &Arc<Slot>| -> Result<()> {
        while maintenance::step(shared, slot, BackgroundJob::Flush)? == Step::More {}
        Ok(())
    };
    flush(slot)?;
    let tree = slot.tree()?;
    let has_many = tree.removals() >= MANY_REMOVALS;
    let crumb_bytes = if has_many { crumb_bytes(&shared.limits.reserve) } else { 1 };
    if tree.owed_bytes() < least_bytes.max(crumb_bytes) {
        return Ok(());
    }
    // A merge may be waiting for room: a sorted run is written concurrently.
    if maintenance::begin(shared, slot, Work::Flush)? {
        flush(slot)
    } else {
        maintenance::flush(shared, slot)
    }
}

/// Merges all of a keyspace that has something to drop, or may have: what was written since the
/// last time may replace something.
fn merge(shared: &Core, slot: &Arc<Slot>) -> Result<()> {
    let tree = slot.tree()?;
    let newest = tree.newest_seq().0;
    let is_new = slot.merged_for_room.swap(newest, Ordering::Relaxed) != newest;
    if is_new || tree.is_merging() || tree.has_garbage() {
        maintenance::compact(shared, slot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_worth_a_merge() {
        let reserve = Reserve { merge_bytes: 0, delete_bytes: 400 };
        assert_eq!(efforts(Claim::Values, &reserve), [Effort::WriteOut { least_bytes: 100 }]);
        let all = [Effort::WriteOut { least_bytes: 1 }, Effort::Merge];
        assert_eq!(efforts(Claim::Deletes, &reserve), all);
    }
}
