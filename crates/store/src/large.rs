//! Blobs: values that are stored outside blocks, written before the log refers to them, and read in
//! pieces.
//!
//! Reading order: this module (separating the values of a write from their keys), `reader` and
//! `writer` (streams). The index then keeps track of the references to a blob
//! (`esker_index::upkeep::values`).
//!
//! Invariant: a value is written before a record that refers to it is appended to the log, and
//! durable before that record counts as durable. A crash may leave the record and not the value:
//! recovery reads the values of records that may not have been durable, and the log ends before the
//! first that is not whole. What is left out is discarded durably before another value is written:
//! the same bytes in the same place would restore it.
//! Invariant: a value that is read is pinned by a registered snapshot number that sees the entry
//! which refers to it: no merge drops the entry, so its space is not reused.

mod reader;
mod writer;

use std::sync::Arc;

use esker_device::{Operation, Purpose};
use esker_format::action::WriteOp;
use esker_format::data::{Data, Value};
use esker_format::ids::Moment;
use esker_format::superblock::FEATURE_LARGE_VALUES;
use esker_format::value_ref::ValueRef;
use esker_substrate::Error as Inner;
use esker_substrate::blocks::Claim;
use esker_substrate::planted::{self, Bug};
use esker_substrate::snapshots::At;
use esker_substrate::sync::atomic::Ordering;
use esker_substrate::values::{self, ReadAhead, Sequel, UncommittedRuns};

pub use reader::ValueReader;
pub use writer::ValueWriter;

use crate::error::{Error, Result};
use crate::follow;
use crate::operands;
use crate::options::Durability;
use crate::read_point::ReadPoint;
use crate::room;
use crate::shared::Core;
use crate::slot::Slot;
use crate::write_request::Write;

/// The number of bytes of values that may be written and not be known to be durable before a
/// buffered write waits for them: a recovery reads at most this number of bytes, and those of that
/// write, to check whether the values are whole.
const UNSYNCED_BYTES_MAX: u64 = 64 << 20;

/// The blobs of some writes.
#[derive(Debug, Default)]
pub(crate) struct Blobs {
    /// The reference for each write that has one.
    contents: Vec<Option<Vec<u8>>>,
}

/// Space of values that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct Unlogged(Vec<UncommittedRuns>);

impl Unlogged {
    /// The log refers to them.
    pub fn keep(self) {
        self.0.into_iter().for_each(UncommittedRuns::keep);
    }
}

impl Blobs {
    /// The writes with references in the places of their values.
    pub fn writes<'a>(&'a self, writes: &[Write<'a>]) -> Vec<Write<'a>> {
        let replaced = |(write, content): (&Write<'a>, &'a Option<Vec<u8>>)| match content {
            Some(content) => {
                let key = write.action.key().unwrap_or_default();
                Write { action: WriteOp::Point(key, Data::Reference(content)), ..*write }
            }
            None => *write,
        };
        writes.iter().zip(&self.contents).map(replaced).collect()
    }
}

/// The value that a write gives its key, if it is to be stored as a blob.
fn large<'a>(write: &Write<'a>) -> Option<Data<'a>> {
    let bytes_max = write.slot.inline_bytes_max.load(Ordering::Relaxed);
    let is_value = |data: &Data<'_>| data.reference().is_none() && !data.is_operand();
    let is_large = |data: &Data<'_>| is_value(data) && data.value_bytes() > bytes_max;
    write.action.data().filter(is_large)
}

/// Writes the large values among `writes` to the data file; `None` where there are none.
pub(crate) fn write_blobs(
    shared: &Core,
    writes: &[Write<'_>],
) -> Result<Option<(Blobs, Unlogged)>> {
    if !writes.iter().any(|write| large(write).is_some()) {
        return Ok(None);
    }
    prepare(shared)?;
    let (mut blobs, mut unlogged) = (Blobs::default(), Unlogged::default());
    for write in writes {
        let value = large(write).and_then(|data| Some((data.value()?, data.until())));
        if planted::is(Bug::ValueOwnedTwice)
            && let Some(content) = earlier_of(writes, &blobs, value)
        {
            blobs.contents.push(Some(content));
            continue;
        }
        let stored = value.map(|(value, until)| store(shared, value, until)).transpose()?;
        blobs.contents.push(stored.map(|(content, runs)| {
            unlogged.0.push(runs);
            content
        }));
    }
    Ok(Some((blobs, unlogged)))
}

/// The reference of an earlier write of the same value: for a planted bug.
fn earlier_of(
    writes: &[Write<'_>],
    blobs: &Blobs,
    value: Option<(&[u8], Option<Moment>)>,
) -> Option<Vec<u8>> {
    let mut earlier = writes.iter().zip(&blobs.contents);
    earlier.find_map(|(write, content)| {
        let same = large(write).and_then(|data| Some((data.value()?, data.until()))) == value;
        content.clone().filter(|_| same)
    })
}

/// To be called before a value is written.
fn prepare(shared: &Core) -> Result<()> {
    shared.poison.check()?;
    if !shared.manifest.requires(FEATURE_LARGE_VALUES) {
        shared.require(FEATURE_LARGE_VALUES)?;
    }
    if !shared.logged_values_are_claimed.load(Ordering::Acquire) {
        shared.log.prepare()?;
        shared.logged_values_are_claimed.store(true, Ordering::Release);
    }
    Ok(())
}

fn store(shared: &Core, value: &[u8], until: Option<Moment>) -> Result<(Vec<u8>, UncommittedRuns)> {
    let (reference, runs) = room::with_room(shared, Claim::Values, || {
        let written = values::ValueWriter::new(&shared.env.blocks, Some(value.len() as u64))
            .and_then(|mut writer| writer.append(value).and_then(|()| writer.finish(until)));
        written.map_err(|error| failed(shared, error))
    })?;
    Ok((encoded(&reference), runs))
}

fn encoded(reference: &ValueRef) -> Vec<u8> {
    let mut content = Vec::new();
    reference.encode(&mut content);
    content
}

/// A failed write leaves the device in an unknown state; lack of space does not.
fn failed(shared: &Core, error: Inner) -> Error {
    match error {
        Inner::Device(device) if device.is_full() => Error::Full { what: device.file.clone() },
        Inner::Device(ref device) if device.operation == Operation::Write => {
            shared.poison.set(error).into()
        }
        error => error.into(),
    }
}

/// The durability that a write with `durability` gets: a buffered write waits for the device if a
/// recovery would have to verify too much.
pub(crate) fn durability(shared: &Core, durability: Durability) -> Durability {
    match shared.env.blocks.unsynced_value_bytes() {
        0..=UNSYNCED_BYTES_MAX => durability,
        _ => Durability::Synced,
    }
}

/// All of the value of `key`, which a registered number pins.
pub(crate) fn fetch(shared: &Core, slot: &Slot, key: &[u8], value: Value) -> Result<Vec<u8>> {
    match value {
        Value::Inline(value) => Ok(value),
        Value::Blob(content) => fetch_blob(shared, slot, &content),
        Value::Operand(onto) => {
            let older = fetch_blob(shared, slot, &onto.content)?;
            operands::merged(slot, key, Some(&older), &onto.operand)
        }
    }
}

/// The same as of a moment; `None` where the key has been erased since the value was looked up.
pub(crate) fn fetch_at(
    shared: &Core,
    slot: &Slot,
    key: &[u8],
    value: Value,
    at: At,
) -> Result<Option<Vec<u8>>> {
    match fetch(shared, slot, key, value) {
        // Its space may have been given back to the device.
        Err(error @ (Error::Damaged { .. } | Error::Io(_))) => {
            let is_there =
                slot.read_at(shared.snapshots(), at.seq, |tree| tree.get_at(key, at))??.is_some();
            if is_there { Err(error) } else { Ok(None) }
        }
        fetched => fetched.map(Some),
    }
}

fn fetch_blob(shared: &Core, slot: &Slot, content: &[u8]) -> Result<Vec<u8>> {
    let value = decode(content)?;
    let (mut bytes, mut piece) = (Vec::new(), Vec::new());
    let (mut ahead, mut sequel) = (ReadAhead::default(), Sequel::default());
    for number in 0..value.pieces() {
        ahead.go_on(&shared.env.blocks, &value, number);
        let data = read_piece(shared, slot, &value, (number, &mut sequel), &mut piece)?;
        if number == 0 {
            // What could be read is there: a reference alone is no reason for a large allocation.
            bytes.reserve_exact(value.bytes as usize);
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes)
}

fn read_piece<'p>(
    shared: &Core,
    slot: &Slot,
    value: &ValueRef,
    number: (u64, &mut Sequel),
    piece: &'p mut Vec<u8>,
) -> Result<&'p [u8]> {
    let read = values::read_piece(&shared.env.blocks, value, number, piece, Purpose::User);
    // A drop that comes in between has freed the space.
    slot.tree()?;
    Ok(read?)
}

fn decode(content: &[u8]) -> Result<ValueRef> {
    ValueRef::decode(content).map_err(|error| Error::Damaged {
        file: esker_substrate::blocks::DATA_FILE.into(),
        offset: 0,
        what: format!("invalid blob reference: {}", error.what),
    })
}

/// Takes the space of values that the log alone refers to, and the generations of all that it
/// refers to, before anything else takes them.
pub(crate) fn claim_logged(shared: &Core) -> Result<()> {
    if !shared.manifest.requires(FEATURE_LARGE_VALUES) || planted::is(Bug::ValueNotClaimed) {
        return Ok(());
    }
    let state = shared.manifest.state();
    shared.log.scan(&mut |place, id, action| {
        let WriteOp::Point(key, Data::Reference(content)) = action else { return Ok(()) };
        let Ok(value) = ValueRef::decode(content) else { return Ok(()) };
        shared.env.blocks.generation_found(value.generation);
        let Some(keyspace) = state.keyspaces.get(&id) else { return Ok(()) };
        match esker_index::upkeep::values::is_in_log_alone(&keyspace.index, key, place.seq) {
            true => shared.env.blocks.claim(&value.runs),
            false => Ok(()),
        }
    })?;
    Ok(())
}

/// A reader of the value of `key` at a moment whose versions stay.
pub(crate) fn reader(
    shared: &Arc<crate::shared::Shared>,
    slot: &Arc<Slot>,
    key: &[u8],
    point: ReadPoint,
) -> Result<Option<ValueReader>> {
    crate::limits::validate_key(key)?;
    let found = {
        let _open = shared.enter()?;
        follow::reading(shared, || {
            let at = point.at(shared.times.get())?;
            match slot.read_at(shared.snapshots(), at.seq, |tree| tree.get_at(key, at))?? {
                Some(value @ Value::Operand(_)) => {
                    Ok(Some(Value::Inline(fetch(shared, slot, key, value)?)))
                }
                found => Ok(found),
            }
        })?
    };
    let reader = |value| ValueReader::new(Arc::clone(shared), Arc::clone(slot), point, value);
    found.map(reader).transpose()
}
