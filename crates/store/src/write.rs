//! The write path: encode → order → log and memtables → visible → wait → maintenance.
//!
//! One mutex gives all writes of the store their order. Under it nothing waits for a merge: the
//! log and the memtables take what they are given, and freezing a memtable, which happens under
//! the same mutex, is an exchange of pointers. Whoever must wait for memory does so before it, and
//! what a write makes due is begun after it.
//!
//! A write becomes visible when it is ordered, before it is durable: a reader may see what a
//! power cut then takes back, as with every store that acknowledges before syncing. Whoever
//! needs to know waits for [`Durability::Synced`] or calls `persist`.

use esker_substrate::sync::atomic::Ordering;
use std::sync::Arc;

use esker_format::VALUE_BYTES_MAX;
use esker_format::ids::Seq;
use esker_format::log_record::{BatchBuilder, EncodedBatch};
use esker_index::fdtree::FdTree;
use esker_substrate::log::Ticket;
use esker_substrate::planted::{self, Race};

use crate::error::{Error, Result};
use crate::maintenance;
use crate::options::Durability;
use crate::read::validate_key;
use crate::shared::{Core, Slot};

/// One write: a put, or a delete where there is no value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    pub slot: &'a Arc<Slot>,
    pub key: &'a [u8],
    pub value: Option<&'a [u8]>,
}

/// The writes to one keyspace, and the tree that takes them.
struct Group<'a> {
    tree: &'a FdTree,
    writes: &'a [Write<'a>],
}

impl Group<'_> {
    /// Fails when the keyspace has been dropped.
    fn check(&self) -> Result<()> {
        self.writes.first().map_or(Ok(()), |write| write.slot.tree().map(drop))
    }
}

/// Fails for a key or value that no store can hold.
pub(crate) fn validate(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    validate_key(key)?;
    let len = value.map_or(0, <[u8]>::len);
    if len <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!("a value is at most {VALUE_BYTES_MAX} bytes long, and not {len}")))
}

/// Applies `writes`, which are valid, ascend by keyspace id and key, and repeat no key. Answers
/// the number of the last one.
pub(crate) fn commit(shared: &Core, writes: &[Write<'_>], durability: Durability) -> Result<Seq> {
    let _open = shared.enter()?;
    if writes.is_empty() {
        return Ok(shared.snapshots().visible());
    }
    maintenance::admit(shared, writes)?;
    let batch = encode(writes)?;
    let (ticket, due) = apply(shared, writes, &batch)?;
    match durability {
        Durability::Buffered => shared.log.wait_written(ticket)?,
        Durability::Synced => shared.log.wait_synced(ticket)?,
    }
    maintenance::after_write(shared, &due);
    Ok(ticket.last_seq)
}

fn encode(writes: &[Write<'_>]) -> Result<EncodedBatch> {
    let mut batch = BatchBuilder::default();
    for write in writes {
        match write.value {
            Some(value) => batch.put(write.slot.id, write.key, value),
            None => batch.delete(write.slot.id, write.key),
        }
    }
    batch.finish().map_err(|error| Error::invalid(format!("the batch cannot be logged: {error}")))
}

/// Logs and inserts the writes and makes them visible. Answers where to wait, and the keyspaces
/// whose maintenance is due.
fn apply<'a>(
    shared: &Core,
    writes: &'a [Write<'a>],
    batch: &EncodedBatch,
) -> Result<(Ticket, Vec<&'a Arc<Slot>>)> {
    let groups = groups(writes)?;
    let ticket = {
        let _order = shared.write.lock();
        shared.poison.check()?;
        // Whoever drops a keyspace takes the same mutex: what is too late for it is not logged.
        groups.iter().try_for_each(Group::check)?;
        let (first, ticket) = shared.log.append(batch)?;
        if planted::is(Race::VisibleBeforeInserted) {
            shared.snapshots().publish(ticket.last_seq);
        }
        let mut seq = first;
        for group in &groups {
            for write in group.writes {
                group.tree.insert(write.key, seq, write.value);
                seq = seq.next();
            }
        }
        shared.snapshots().publish(ticket.last_seq);
        ticket
    };
    shared.user_bytes_written.fetch_add(user_bytes(writes), Ordering::Relaxed);
    let due = groups.iter().filter(|group| group.tree.due().is_some());
    let due = due.filter_map(|group| group.writes.first()).map(|write| write.slot).collect();
    Ok((ticket, due))
}

fn groups<'a>(writes: &'a [Write<'a>]) -> Result<Vec<Group<'a>>> {
    let group = |writes: &'a [Write<'a>]| {
        let tree = writes.first().map(|write| write.slot.tree()).transpose()?;
        Ok(tree.map(|tree| Group { tree, writes }))
    };
    writes
        .chunk_by(|a, b| a.slot.id == b.slot.id)
        .filter_map(|writes| group(writes).transpose())
        .collect()
}

fn user_bytes(writes: &[Write<'_>]) -> u64 {
    let bytes = |write: &Write<'_>| write.key.len() + write.value.map_or(0, <[u8]>::len);
    writes.iter().map(|write| bytes(write) as u64).sum()
}
