//! Keyspaces with history: what is kept, and the changes of a key.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use esker::{Change, Db, History as Kept};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use serde_json::{Map, Value};

use super::version::Version;
use super::{keyspace, open_to_read, time};
use crate::args::{Keys, Space, Store};
use crate::text;

/// The description of `history`.
pub(crate) const HELP: &str = r#"Print the changes of KEY, newest first

Exits with 1 if there are none. With --at or --at-time, the changes up to then.

One line per change: version, TAB, time, TAB, and `put`, TAB, value, or `removed`. Values have the
escapes of `scan`.
With --json, JSON lines: {"version":…,"time":"…","v":"…"}, with "v64" in base64 for bytes that are
not UTF-8, and "removed":true in the place of a value."#;

/// The history that an argument asks for.
pub(crate) fn kept(text: &str) -> Result<Kept, String> {
    if text == "all" {
        return Ok(Kept::All);
    }
    let number = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let seconds = match text.strip_prefix(number) {
        Some("") => None,
        Some("s") => Some(1),
        Some("m") => Some(60),
        Some("h") => Some(3600),
        Some("d") => Some(86_400),
        _ => return Err(no_history()),
    };
    let number: u64 = number.parse().map_err(|_| no_history())?;
    let Some(seconds) = seconds else { return Ok(Kept::Newest(number)) };
    let seconds = number.checked_mul(seconds).ok_or_else(no_history)?;
    Ok(Kept::For(Duration::from_secs(seconds)))
}

fn no_history() -> String {
    "it is all, a time such as 90s, 15m, 12h or 30d, or a number of versions".into()
}

/// The arguments of `history`.
#[derive(Debug, Args)]
pub(crate) struct History {
    #[command(flatten)]
    store: Store,
    /// Key
    key: OsString,
    #[command(flatten)]
    keys: Keys,
    #[command(flatten)]
    keyspace: Space,
    #[command(flatten)]
    version: Version,
    /// Print at most this many changes
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// Prints the changes of a key. What was read before an error is printed too.
pub(super) fn history(args: &History) -> Result<(), Failure> {
    let key = args.keys.bytes(&args.key)?;
    let db = open_to_read(&args.store.path)?;
    let keyspace = args.version.of(&db, keyspace(&db, &args.keyspace.name)?)?;
    let mut changes = keyspace.history(&key)?.peekable();
    if changes.peek().is_none() {
        return Err(Failure::Absent);
    }
    let mut output = Output::new();
    let printed = print(&db, changes, args, &mut output);
    output.flush()?;
    printed
}

fn print(
    db: &Db,
    mut changes: impl Iterator<Item = esker::Result<Change>>,
    args: &History,
    output: &mut Output,
) -> Result<(), Failure> {
    for _ in 0..args.limit.unwrap_or(u64::MAX) {
        let Some(change) = changes.next().transpose()? else { break };
        let time = db.time_of(change.version)?.map(time::text);
        if args.json {
            output.json(&as_json(&change, time))?;
        } else {
            output.bytes(&as_line(&change, time))?;
        }
    }
    Ok(())
}

fn as_json(change: &Change, time: Option<String>) -> Value {
    let mut object = Map::new();
    insert(&mut object, (change.version, time), change.value.as_deref());
    object.into()
}

/// Adds what a version made of a key.
pub(super) fn insert(
    object: &mut Map<String, Value>,
    (version, time): (u64, Option<String>),
    value: Option<&[u8]>,
) {
    object.insert("version".to_owned(), version.into());
    object.insert("time".to_owned(), time.into());
    match value {
        Some(value) => text::insert_json(object, ("v", "v64"), value),
        None => _ = object.insert("removed".to_owned(), true.into()),
    }
}

fn as_line(change: &Change, time: Option<String>) -> Vec<u8> {
    let mut line = Vec::new();
    append(&mut line, (change.version, time), change.value.as_deref());
    line
}

/// Appends what a version made of a key, and a line feed.
pub(super) fn append(
    line: &mut Vec<u8>,
    (version, time): (u64, Option<String>),
    value: Option<&[u8]>,
) {
    let time = time.unwrap_or_else(|| "-".to_owned());
    line.extend_from_slice(format!("{version}\t{time}\t").as_bytes());
    match value {
        Some(value) => {
            line.extend_from_slice(b"put\t");
            text::escape(value, line);
        }
        None => line.extend_from_slice(b"removed"),
    }
    line.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_history_is_read_from_text() {
        let seconds = |count| Ok(Kept::For(Duration::from_secs(count)));
        assert_eq!(kept("all"), Ok(Kept::All));
        assert_eq!(kept("1000"), Ok(Kept::Newest(1000)));
        assert_eq!([kept("90s"), kept("15m")], [seconds(90), seconds(900)]);
        assert_eq!([kept("12h"), kept("30d")], [seconds(43_200), seconds(2_592_000)]);
        for wrong in ["", "s", "1w", "1ss", "-1", "1.5h", "all ", "99999999999999999999d"] {
            assert_eq!(kept(wrong), Err(no_history()), "{wrong}");
        }
    }
}
