//! `put`, `get` and `del`: one key.

use std::os::unix::ffi::OsStrExt;

use esker::Durability;

use super::{keyspace, open, open_or_create};
use crate::args::{Del, Get, Put};
use crate::exit::Failure;
use crate::output::Output;
use crate::text::Format;

pub(super) fn put(args: &Put) -> Result<(), Failure> {
    let (db, keyspace) =
        open_or_create(&args.store.path, &args.keyspace.name, args.kind.options())?;
    keyspace.insert_with(args.key.as_bytes(), args.value.as_bytes(), Durability::Synced)?;
    Ok(db.close()?)
}

pub(super) fn get(args: &Get) -> Result<(), Failure> {
    let db = open(&args.store.path)?;
    let key = args.key.as_bytes();
    let value = keyspace(&db, &args.keyspace.name)?.get(key)?.ok_or(Failure::Absent)?;
    let mut output = Output::new();
    if args.json {
        let mut line = Vec::new();
        Format::Jsonl.encode(key, &value, &mut line);
        output.bytes(&line)?;
    } else {
        output.bytes(&value)?;
        output.bytes(b"\n")?;
    }
    output.flush()
}

pub(super) fn del(args: &Del) -> Result<(), Failure> {
    let db = open(&args.store.path)?;
    keyspace(&db, &args.keyspace.name)?.remove_with(args.key.as_bytes(), Durability::Synced)?;
    Ok(db.close()?)
}
