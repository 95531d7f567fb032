//! `put`, `get` and `del`: one key.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use esker::{Durability, Keyspace};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;

use super::{keyspace, open, open_or_create, open_to_read};
use crate::args::{Del, Get, Put};
use crate::text::Format;

/// The number of bytes of a value that are read in one call.
const PIECE_BYTES: usize = 256 << 10;

pub(super) fn put(args: &Put) -> Result<(), Failure> {
    let key = args.keys.bytes(&args.key)?;
    // First, so that a mistake makes no store.
    let source = args.file.as_deref().map(Source::open).transpose()?;
    let (db, keyspace) = open_or_create(&args.store.path, &args.keyspace.name, args.new.options())?;
    match source {
        Some(source) => source.store(&keyspace, &key)?,
        None => {
            let value = args.value.as_deref().unwrap_or_default().as_bytes();
            keyspace.insert_with(key, value, Durability::Synced)?;
        }
    }
    Ok(db.close()?)
}

/// The file or the stream from which a value is read.
struct Source {
    name: String,
    stream: Box<dyn Read>,
}

impl Source {
    fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self { name: "stdin".to_owned(), stream: Box::new(io::stdin()) });
        }
        let name = path.display().to_string();
        let file = File::open(path)
            .map_err(|error| Failure::Input(format!("cannot open {name}: {error}")))?;
        Ok(Self { name, stream: Box::new(file) })
    }

    /// Makes it the value of `key`, piece by piece.
    fn store(mut self, keyspace: &Keyspace, key: &[u8]) -> Result<(), Failure> {
        let mut writer = keyspace.writer(key)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(Failure::Read { name: self.name, source }),
            };
            // The writer keeps its first failure, and finishing answers it.
            if writer.write_all(&piece[..read]).is_err() {
                break;
            }
        }
        Ok(writer.finish_with(Durability::Synced)?)
    }
}

pub(super) fn get(args: &Get) -> Result<(), Failure> {
    let key = args.keys.bytes(&args.key)?;
    let db = open_to_read(&args.store.path)?;
    let keyspace = args.version.of(&db, keyspace(&db, &args.keyspace.name)?)?;
    let value = keyspace.get(&key)?.ok_or(Failure::Absent)?;
    print_value(&key, &value, args.raw, args.json)
}

/// Prints a value and a line feed, its bytes alone, or the entry as JSON.
pub(super) fn print_value(key: &[u8], value: &[u8], raw: bool, json: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    if json {
        let mut line = Vec::new();
        Format::Jsonl.encode(key, value, &mut line);
        output.bytes(&line)?;
    } else {
        output.bytes(value)?;
        if !raw {
            output.bytes(b"\n")?;
        }
    }
    output.flush()
}

pub(super) fn del(args: &Del) -> Result<(), Failure> {
    let key = args.keys.bytes(&args.key)?;
    let db = open(&args.store.path)?;
    keyspace(&db, &args.keyspace.name)?.remove_with(key, Durability::Synced)?;
    Ok(db.close()?)
}
