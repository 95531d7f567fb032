//! Changes of the model, made to a store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use esker::{Db, Durability, Keyspace};

use crate::model::{Change, Write};

/// Makes one change by itself.
pub(crate) fn single(
    db: &Db,
    handles: &BTreeMap<String, Keyspace>,
    change: &Change,
    durability: Option<Durability>,
) -> esker::Result<()> {
    let Some(keyspace) = handles.get(&change.keyspace) else { return Ok(()) };
    let key = &change.key;
    match (&change.write, durability) {
        (Write::Put(value), Some(durability)) => keyspace.insert_with(key, value, durability),
        (Write::Put(value), None) => keyspace.insert(key, value),
        (Write::PutFor(value, millis), None) => {
            keyspace.insert_with_ttl(key, value, Duration::from_millis(*millis))
        }
        (Write::PutFor(..), Some(_)) => {
            batch(db, handles, std::slice::from_ref(change), durability).map(drop)
        }
        (Write::Append(operand), Some(durability)) => keyspace.merge_with(key, operand, durability),
        (Write::Append(operand), None) => keyspace.merge(key, operand),
        (Write::Delete, Some(durability)) => keyspace.remove_with(key, durability),
        (Write::Delete, None) => keyspace.remove(key),
        (Write::DeleteUpTo(end), Some(durability)) => {
            keyspace.remove_range_with(bounds(key, end), durability)
        }
        (Write::DeleteUpTo(end), None) => keyspace.remove_range(bounds(key, end)),
    }
}

/// The keys of a range that is deleted.
pub(crate) fn bounds(begin: &[u8], end: &Option<Vec<u8>>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    (Bound::Included(begin.to_vec()), end.clone().map_or(Bound::Unbounded, Bound::Excluded))
}

/// Makes changes together.
pub(crate) fn batch(
    db: &Db,
    handles: &BTreeMap<String, Keyspace>,
    changes: &[Change],
    durability: Option<Durability>,
) -> esker::Result<u64> {
    let mut batch = db.batch();
    for change in changes {
        let Some(keyspace) = handles.get(&change.keyspace) else { continue };
        match &change.write {
            Write::Put(value) => batch.insert(keyspace, &change.key, value),
            Write::PutFor(value, millis) => {
                let ttl = Duration::from_millis(*millis);
                batch.insert_with_ttl(keyspace, &change.key, value, ttl);
            }
            Write::Append(operand) => batch.merge(keyspace, &change.key, operand),
            Write::Delete => batch.remove(keyspace, &change.key),
            Write::DeleteUpTo(end) => batch.remove_range(keyspace, bounds(&change.key, end)),
        }
    }
    match durability {
        Some(durability) => batch.commit_with(durability),
        None => batch.commit(),
    }
}
