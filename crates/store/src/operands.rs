//! Merge operands: which may be written, and how many operands of one key are replaced by its
//! value.
//!
//! The index reads and merges operands (`esker_index::read::operands`).
//!
//! Invariant: operands are written only while the keyspace's operator is available: a caller that
//! writes them can read them.
//! Invariant: folding a key's operands writes the value that the key has anyway, and only if the
//! key has not been written since it was read. Whether this succeeds changes no result, and refuses
//! no transaction.

use std::sync::Arc;

use esker_format::VALUE_BYTES_MAX;
use esker_format::action::WriteOp;
use esker_format::data::Data;
use esker_format::ids::Seq;

use crate::error::{Error, Result};
use crate::large::{self, Unlogged};
use crate::options::Durability;
use crate::shared::Core;
use crate::slot::Slot;
use crate::write;
use crate::write_request::{Condition, Write};

/// The number of operands of one key in the memtable at which they are folded into a value.
pub(crate) const CHAIN_MAX: u16 = 64;
/// A value is written if it takes at most this many times the bytes of its operands: each byte of
/// an operand is written that often once more at most, and reading the operands costs no more than
/// reading the value.
const VALUE_SHARE: u64 = 4;
/// The number of times that a writer tries to replace a key's operands while others write the key.
/// After the first time only the operands written in between are merged.
const ATTEMPTS: u32 = 8;

/// Fails for an invalid operand, and if the keyspace has no operator here that could read it.
pub(crate) fn validate(slot: &Slot, operand: &[u8]) -> Result<()> {
    if operand.len() > VALUE_BYTES_MAX {
        let (len, most) = (operand.len(), VALUE_BYTES_MAX);
        return Err(Error::invalid(format!(
            "a merge operand is at most {most} bytes long, and not {len}"
        )));
    }
    let operator = slot.tree()?.operator();
    match (&operator.name, &operator.function) {
        (_, Some(_)) => Ok(()),
        (Some(name), None) => Err(Error::invalid(format!(
            "keyspace {} has the merge operator {name}: open it with that to merge",
            slot.name
        ))),
        (None, None) => Err(Error::invalid(format!(
            "keyspace {} has no merge operator: open it with one to merge",
            slot.name
        ))),
    }
}

/// A key with many operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deep<'a> {
    pub slot: &'a Arc<Slot>,
    pub key: &'a [u8],
    /// The bytes that these operands take, estimated from the last one.
    pub chain_bytes: u64,
}

impl<'a> Deep<'a> {
    /// The key of a write after which the key has `depth` successive operands, if they are to be
    /// folded.
    pub fn of(write: &Write<'a>, depth: u16) -> Option<Self> {
        let (key, data) = match write.action {
            WriteOp::Point(key, data) if depth > 0 && depth.is_multiple_of(CHAIN_MAX) => {
                (key, data)
            }
            _ => return None,
        };
        let overhead = esker_format::entry::PUT_OVERHEAD_BYTES as u64;
        let operand_bytes = (key.len() as u64 + overhead).saturating_add(data.value_bytes());
        let chain_bytes = operand_bytes.saturating_mul(depth.into());
        Some(Self { slot: write.slot, key, chain_bytes })
    }

    fn is_worth(&self, value: &[u8]) -> bool {
        value.len() as u64 <= self.chain_bytes.saturating_mul(VALUE_SHARE)
    }
}

/// The condition that the key has not been written since it was read.
struct Unwritten<'a> {
    slot: &'a Slot,
    key: &'a [u8],
    newest: Seq,
}

impl Condition for Unwritten<'_> {
    const IS_TRANSACTION: bool = false;
    const AFFECTS_READS: bool = false;

    fn check_ahead(&self) -> Result<Seq> {
        Ok(Seq::MAX)
    }

    fn check(&self, _checked: Seq) -> Result<()> {
        // Freezing takes the same mutex: what is not in the memtable now is on its way to a merge.
        if self.slot.tree()?.newest_in_memtable(self.key) == Some(self.newest) {
            return Ok(());
        }
        Err(Error::Conflict { what: format!("a key of {} was written", self.slot.name) })
    }
}

/// Replaces the operands of keys by their values, where that is worth it. A failure is no error:
/// the operands are kept and mean the same.
pub(crate) fn fold_operands(shared: &Core, deep: &[Deep<'_>]) {
    for key in deep {
        if let Err(error) = fold_key(shared, key) {
            tracing::debug!(%error, keyspace = key.slot.name, "operands of a key stay");
        }
    }
}

fn fold_key(shared: &Core, deep: &Deep<'_>) -> Result<()> {
    let Deep { slot, key, .. } = *deep;
    let (mut newest, mut value) = {
        let snapshot = shared.snapshots().register();
        let Some(folded) = slot.read(|tree| tree.fold_operands(key, snapshot.at()))?? else {
            return Ok(());
        };
        (folded.newest, large::fetch(shared, slot, key, folded.value)?)
    };
    for _ in 0..ATTEMPTS {
        if !deep.is_worth(&value) {
            return Ok(());
        }
        let written = write_value(shared, &Unwritten { slot, key, newest }, slot, &value);
        if !written.as_ref().is_err_and(Error::is_conflict) {
            return written;
        }
        let visible = shared.snapshots().visible();
        let more = slot.read(|tree| tree.operands_above(key, newest, visible))??;
        let Some((number, operand)) = more else { return Ok(()) };
        value = slot.tree()?.operator().join(key, &value, &operand)?;
        newest = number;
    }
    Ok(())
}

fn write_value(
    shared: &Core,
    condition: &Unwritten<'_>,
    slot: &Arc<Slot>,
    value: &[u8],
) -> Result<()> {
    let writes = [Write { slot, action: WriteOp::Point(condition.key, Data::Put(value)) }];
    let (blobs, unlogged) = large::write_blobs(shared, &writes)?.unzip();
    let replaced = blobs.as_ref().map(|blobs| blobs.writes(&writes));
    let writes = replaced.as_deref().unwrap_or(&writes);
    let ordered = write::order(shared, writes, condition)?;
    unlogged.into_iter().for_each(Unlogged::keep);
    write::wait_durable(shared, &ordered, Durability::Buffered).map(drop)
}

/// The result of merging `newer` onto `older`, or `newer` itself if there is nothing older.
pub(crate) fn merged(
    slot: &Slot,
    key: &[u8],
    older: Option<&[u8]>,
    newer: &[u8],
) -> Result<Vec<u8>> {
    match older {
        Some(older) => Ok(slot.tree()?.operator().join(key, older, newer)?),
        None => Ok(newer.to_vec()),
    }
}
