//! Changes of the model, made to a store.

use std::collections::BTreeMap;
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
        (Write::Delete, Some(durability)) => keyspace.remove_with(key, durability),
        (Write::Delete, None) => keyspace.remove(key),
    }
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
            Write::Delete => batch.remove(keyspace, &change.key),
        }
    }
    match durability {
        Some(durability) => batch.commit_with(durability),
        None => batch.commit(),
    }
}
