//! The write path: write blobs → encode → order → log and memtables → visible → wait → maintenance.
//! Batches and single writes take it unconditionally, transactions on a [`Condition`].
//!
//! One mutex gives all writes of the store their order. Under it nothing waits for a merge: the log
//! and the memtables take what they are given, and freezing a memtable, which happens under the
//! same mutex, is an exchange of pointers. A writer that must wait for memory does so before it
//! takes the mutex; maintenance that a write makes due begins after the mutex is released.
//!
//! A write becomes visible when it is ordered, before it is durable: a reader may see a write that
//! a power failure then undoes, as with every store that acknowledges before syncing. A caller that
//! needs durability waits for [`Durability::Synced`] or calls `persist`.

use esker_substrate::sync::atomic::Ordering;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use esker_format::action::WriteOp;
use esker_format::data::Data;
use esker_format::ids::{Moment, Seq};
use esker_format::log_record::{BatchBuilder, EncodedBatch};
use esker_format::superblock::{FEATURE_EXPIRY, FEATURE_OPERANDS, FEATURE_REMOVED_RANGES};
use esker_format::value_ref::LARGE_VALUE_BYTES_MAX;
use esker_index::Index;
use esker_substrate::blocks::Claim;
use esker_substrate::log::Ticket;
use esker_substrate::planted::{self, Bug, Race};

use crate::error::{Error, Result};
use crate::large;
use crate::limits::validate_key;
use crate::maintenance;
use crate::operands::{self, Deep};
use crate::options::Durability;
use crate::record_history::allow_expiry;
use crate::removal;
use crate::room;
use crate::shared::Core;
use crate::slot::Slot;
use crate::times::{Stamp, Writing};
use crate::write_request::{Always, Condition, Write};

/// Bytes of an operation in the log in addition to its key and value, and of a batch, at most with
/// short keyspace ids, keys and values.
const LOGGED_OP_BYTES: u64 = 8;
const LOGGED_BYTES_RESERVED: u64 = 1 << 20;

/// The writes to one keyspace, and the tree that takes them.
struct Group<'a> {
    tree: &'a Index,
    writes: &'a [Write<'a>],
}

impl<'a> Group<'a> {
    /// Fails when the keyspace has been dropped.
    fn check(&self) -> Result<()> {
        self.writes.first().map_or(Ok(()), |write| write.slot.tree().map(drop))
    }

    /// Gives the writes their numbers, from `seq` on, and the tree the writes. Where history is
    /// kept, a batch is one version, whose number is `last`, that of its last write. Returns the
    /// number after the last one; notes in `deep` the keys with many operands.
    fn insert(&self, mut seq: Seq, last: Seq, deep: &mut Vec<Deep<'a>>) -> Seq {
        let mut removals = Vec::new();
        let keeps_history = self.tree.keeps_history() && !planted::is(Bug::BatchOfVersions);
        for write in self.writes {
            let number = if keeps_history { last } else { seq };
            match write.action {
                WriteOp::Point(key, data) => {
                    deep.extend(Deep::of(write, self.tree.insert(key, number, data)));
                }
                WriteOp::DeleteRange(keys) => removals.push((keys, number)),
            }
            seq = seq.next();
        }
        if !removals.is_empty() {
            self.tree.remove_ranges(&removals);
        }
        seq
    }
}

/// Fails for a key or value that the keyspace cannot hold. The first value with an expiry in a
/// keyspace with history is announced by a record.
pub(crate) fn validate(shared: &Core, slot: &Slot, action: &WriteOp<'_>) -> Result<()> {
    // Bounds of ranges were made to fit.
    let WriteOp::Point(key, data) = action else { return Ok(()) };
    validate_key(key)?;
    if data.until().is_some() && slot.tree()?.history().is_some_and(|history| !history.expires) {
        allow_expiry(shared, slot)?;
    }
    if let Data::Operand(operand) = data {
        return operands::validate(slot, operand);
    }
    let (len, most) = (data.value_bytes(), LARGE_VALUE_BYTES_MAX);
    if len <= most {
        return Ok(());
    }
    Err(Error::invalid(format!("a value is at most {most} bytes long, and not {len}")))
}

/// The moment at which what is written now with this time to live expires.
pub(crate) fn expiry(shared: &Core, ttl: Duration) -> Result<Moment> {
    shared.check_process()?;
    if ttl.is_zero() {
        return Err(Error::invalid("a time to live must be positive"));
    }
    // The entry is kept for at least the time asked for.
    let millis = ttl.as_nanos().div_ceil(1_000_000);
    let until = u64::try_from(millis).ok().and_then(|millis| {
        let now: Moment = shared.snapshots().now();
        now.0.checked_add(millis)
    });
    until.map(Moment).ok_or_else(|| {
        Error::invalid("a time to live must end before the clock does, in 584 million years")
    })
}

/// Writes the present moment, unless one as late has been written.
pub(crate) fn commit_moment(shared: &Core) -> Result<()> {
    let due = shared.times.get().and_then(|times| times.due_now(shared.snapshots()));
    let Some((stamp, writing)) = due else { return Ok(()) };
    order(shared, &stamp.with(&[]), &Always)?;
    writing.end();
    Ok(())
}

/// Applies `writes`, which are valid and ascend by keyspace id: for each keyspace first range
/// tombstones, which share no key, then writes of keys, which ascend; if a key repeats, all but the
/// first are operands. Returns the number of the last one.
pub(crate) fn commit(shared: &Core, writes: &[Write<'_>], durability: Durability) -> Result<Seq> {
    let _open = shared.enter()?;
    if writes.is_empty() {
        return Ok(shared.snapshots().visible());
    }
    let (stamp, writing) = due_moment(shared, writes).unzip();
    let writes = &*with_moment(stamp.as_ref(), writes);
    let Some((blobs, unlogged)) = large::write_blobs(shared, writes)? else {
        let ordered = order(shared, writes, &Always)?;
        writing.into_iter().for_each(Writing::end);
        return wait_durable(shared, &ordered, durability);
    };
    let writes = blobs.writes(writes);
    let ordered = order(shared, &writes, &Always)?;
    writing.into_iter().for_each(Writing::end);
    unlogged.keep();
    wait_durable(shared, &ordered, durability)
}

/// The moment that a commit of `writes` has to write, if it does.
pub(crate) fn due_moment<'a>(
    shared: &'a Core,
    writes: &[Write<'_>],
) -> Option<(Stamp<'a>, Writing<'a>)> {
    shared.times.get()?.due(shared.snapshots(), writes)
}

/// The writes, with the moment of their commit where it is due.
pub(crate) fn with_moment<'a>(
    stamp: Option<&'a Stamp<'_>>,
    writes: &'a [Write<'a>],
) -> Cow<'a, [Write<'a>]> {
    stamp.map_or(Cow::Borrowed(writes), |stamp| stamp.with(writes))
}

/// Writes that are visible and whose durability has not been waited for.
pub(crate) struct Ordered<'a> {
    ticket: Ticket,
    /// The keyspaces whose maintenance is due.
    due: Vec<&'a Arc<Slot>>,
    /// Keys with many operands.
    deep: Vec<Deep<'a>>,
}

/// Gives `writes` their place in the order of all writes and makes them visible, if `condition`
/// holds there. There is at least one; else as for [`commit`].
pub(crate) fn order<'a>(
    shared: &Core,
    writes: &'a [Write<'a>],
    condition: &impl Condition,
) -> Result<Ordered<'a>> {
    maintenance::admit(shared, writes)?;
    removal::admit(shared, writes)?;
    require_features(shared, writes)?;
    let batch = encode(writes)?;
    let (claim, bytes) = room::claim_of(writes)?;
    room::with_room(shared, claim, || {
        let _kept = shared.env.blocks.claim_room(bytes, claim)?;
        apply(shared, writes, (&batch, claim), condition)
    })
}

/// Waits until the writes are as safe as asked for. Answers the number of the last one.
pub(crate) fn wait_durable(
    shared: &Core,
    ordered: &Ordered<'_>,
    durability: Durability,
) -> Result<Seq> {
    match large::durability(shared, durability) {
        Durability::Buffered => shared.log.wait_written(ordered.ticket)?,
        Durability::Synced => shared.log.wait_synced(ordered.ticket)?,
    }
    // Before the memtable that contains them is frozen.
    operands::fold_operands(shared, &ordered.deep);
    maintenance::after_write(shared, &ordered.due);
    Ok(ordered.ticket.last_seq)
}

/// Ensures that versions which do not support what is written refuse the store.
fn require_features(shared: &Core, writes: &[Write<'_>]) -> Result<()> {
    let feature = |write: &Write<'_>| match write.action {
        WriteOp::DeleteRange(_) => FEATURE_REMOVED_RANGES,
        WriteOp::Point(_, data) if data.until().is_some() => FEATURE_EXPIRY,
        WriteOp::Point(_, Data::Operand(_)) => FEATURE_OPERANDS,
        WriteOp::Point(..) => 0,
    };
    let features = writes.iter().map(feature).fold(0, |all, feature| all | feature);
    if shared.manifest.requires(features) { Ok(()) } else { shared.require(features) }
}

fn encode(writes: &[Write<'_>]) -> Result<EncodedBatch> {
    let mut batch = BatchBuilder::with_capacity(logged_bytes(writes));
    for write in writes {
        batch.push(write.slot.id, &write.action);
    }
    batch.finish().map_err(|error| Error::invalid(format!("the batch cannot be logged: {error}")))
}

/// The bytes that writes take in the log, about, and in most cases at most. What a batch takes
/// beyond a megabyte is requested when it is there.
fn logged_bytes(writes: &[Write<'_>]) -> usize {
    let bytes = user_bytes(writes).saturating_add(LOGGED_OP_BYTES * (1 + writes.len() as u64));
    bytes.min(LOGGED_BYTES_RESERVED) as usize
}

/// Logs and inserts the writes and makes them visible.
fn apply<'a, C: Condition>(
    shared: &Core,
    writes: &'a [Write<'a>],
    (batch, claim): (&EncodedBatch, Claim),
    condition: &C,
) -> Result<Ordered<'a>> {
    let groups = groups(writes)?;
    let checked = condition.check_ahead()?;
    let mut deep = Vec::new();
    let ticket = {
        let _order = shared.write.lock();
        shared.poison.check()?;
        // Dropping a keyspace takes the same mutex: a write that comes after the drop is not
        // logged.
        groups.iter().try_for_each(Group::check)?;
        condition.check(checked)?;
        let (first, ticket) = shared.log.append(batch, claim)?;
        if C::AFFECTS_READS {
            let noted = writes.iter().map(|write| (write.slot.id, write.action));
            shared.recent.note(shared.snapshots(), first, C::IS_TRANSACTION, noted);
        }
        if planted::is(Race::VisibleBeforeInserted) {
            shared.snapshots().publish(ticket.last_seq);
        }
        let mut seq = first;
        for group in &groups {
            seq = group.insert(seq, ticket.last_seq, &mut deep);
        }
        shared.snapshots().publish(ticket.last_seq);
        ticket
    };
    shared.user_bytes_written.fetch_add(user_bytes(writes), Ordering::Relaxed);
    let due = groups.iter().filter(|group| group.tree.due().is_some());
    let due = due.filter_map(|group| group.writes.first()).map(|write| write.slot).collect();
    Ok(Ordered { ticket, due, deep })
}

fn groups<'a>(writes: &'a [Write<'a>]) -> Result<Vec<Group<'a>>> {
    let group = |writes: &'a [Write<'a>]| {
        let tree = writes.first().map(|write| write.slot.own_tree()).transpose()?;
        Ok(tree.map(|tree| Group { tree, writes }))
    };
    writes
        .chunk_by(|a, b| a.slot.id == b.slot.id)
        .filter_map(|writes| group(writes).transpose())
        .collect()
}

fn user_bytes(writes: &[Write<'_>]) -> u64 {
    writes.iter().map(|write| write.action.user_bytes()).sum()
}
