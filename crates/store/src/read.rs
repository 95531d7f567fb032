//! Point reads.
//!
//! A read of one key loads its view first and the visible number second: a merge in between
//! could drop the version that an older number needs. A read of several keys registers a number
//! first, so that no merge drops what it may still need, and loads its views after. A moment passed
//! here is one whose versions stay: its number is registered, or the keyspace keeps history.

use esker_format::data::Value;
use esker_substrate::snapshots::At;

use crate::error::Result;
use crate::follow;
use crate::large;
use crate::limits::validate_key;
use crate::shared::Core;
use crate::slot::Slot;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// The value of `key` as of `at`, or as of now.
pub(crate) fn get(
    shared: &Core,
    slot: &Slot,
    key: &[u8],
    at: Option<At>,
) -> Result<Option<Vec<u8>>> {
    validate_key(key)?;
    let _open = shared.enter()?;
    follow::reading(shared, || get_entered(shared, slot, key, at))
}

fn get_entered(shared: &Core, slot: &Slot, key: &[u8], at: Option<At>) -> Result<Option<Vec<u8>>> {
    let visible = || shared.snapshots().visible();
    match at {
        Some(at) => get_at(shared, slot, key, at),
        None => match slot.read(|tree| tree.get(key, visible))?? {
            None => Ok(None),
            Some(Value::Inline(value)) => Ok(Some(value)),
            // A blob is kept for readers whose number is registered.
            Some(Value::Blob(_) | Value::Operand(_)) => {
                let snapshot = shared.snapshots().register();
                get_at(shared, slot, key, snapshot.at())
            }
        },
    }
}

fn get_at(shared: &Core, slot: &Slot, key: &[u8], at: At) -> Result<Option<Vec<u8>>> {
    let found = slot.read_at(shared.snapshots(), at.seq, |tree| tree.get_at(key, at))??;
    found.map_or(Ok(None), |value| large::fetch_at(shared, slot, key, value, at))
}

/// Whether `key` has a value as of `at`, or as of now. A blob is not read, and nothing is
/// merged.
pub(crate) fn contains(shared: &Core, slot: &Slot, key: &[u8], at: Option<At>) -> Result<bool> {
    validate_key(key)?;
    let _open = shared.enter()?;
    let visible = || shared.snapshots().visible();
    follow::reading(shared, || {
        Ok(match at {
            Some(at) => {
                slot.read_at(shared.snapshots(), at.seq, |tree| tree.contains_at(key, at))??
            }
            None => slot.read(|tree| tree.contains(key, visible))??,
        })
    })
}

/// The values of `keys` as of `at`.
pub(crate) fn multi_get<K: AsRef<[u8]>>(
    shared: &Core,
    slot: &Slot,
    keys: impl IntoIterator<Item = K>,
    at: At,
) -> Result<Vec<Option<Vec<u8>>>> {
    // Collected before anything is locked: the caller's iterator may itself use the store.
    let keys: Vec<K> = keys.into_iter().collect();
    let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
    keys.iter().try_for_each(|key| validate_key(key))?;
    let _open = shared.enter()?;
    follow::reading(shared, || multi_get_entered(shared, slot, &keys, at))
}

fn multi_get_entered(
    shared: &Core,
    slot: &Slot,
    keys: &[&[u8]],
    at: At,
) -> Result<Vec<Option<Vec<u8>>>> {
    let values = slot.read_at(shared.snapshots(), at.seq, |tree| tree.multi_get(keys, at))?;
    let fetch = |(key, value): (&&[u8], esker_substrate::Result<Option<Value>>)| {
        value?.map_or(Ok(None), |value| large::fetch_at(shared, slot, key, value, at))
    };
    keys.iter().zip(values).map(fetch).collect()
}
