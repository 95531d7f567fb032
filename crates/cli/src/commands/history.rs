//! Keyspaces with history: reads at a version, the changes of a key, the versions of a store.

use std::ffi::OsString;
use std::ops::Bound;
use std::time::{Duration, SystemTime};

use clap::Args;
use esker::{Change, Db, History as Kept, Keyspace, KeyspaceStats, Past, Range};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::table::Table;
use indicatif::HumanBytes;
use serde_json::{Map, Value, json};

use super::{keyspace, open_to_read, time};
use crate::args::{Keys, Space, Store};
use crate::text;

/// The description of `history`.
pub(crate) const HELP: &str = r#"Print the changes of KEY, newest first

Exits with 1 if there are none.

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

/// The version at which a keyspace is read.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Read a keyspace with history as it was at this version
    #[arg(long, value_name = "VERSION", conflicts_with = "at_time")]
    at: Option<u64>,
    /// Read a keyspace with history as it was at this time, such as 2026-11-26T10:00:00Z or
    /// 2026-11-26
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    at_time: Option<SystemTime>,
}

impl Version {
    /// The keyspace at this version, or as it is now where none is given.
    pub(super) fn of(&self, keyspace: Keyspace) -> Result<View, Failure> {
        Ok(match (self.at, self.at_time) {
            (Some(version), _) => View::Past(keyspace.at(version)?),
            (None, Some(time)) => View::Past(keyspace.at_time(time)?),
            (None, None) => View::Now(keyspace),
        })
    }
}

/// A keyspace as it is, or as it was.
pub(super) enum View {
    Now(Keyspace),
    Past(Past),
}

impl View {
    pub(super) fn get(&self, key: &[u8]) -> esker::Result<Option<Vec<u8>>> {
        match self {
            Self::Now(keyspace) => keyspace.get(key),
            Self::Past(past) => past.get(key),
        }
    }

    pub(super) fn range(&self, bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)) -> esker::Result<Range> {
        match self {
            Self::Now(keyspace) => keyspace.range(bounds),
            Self::Past(past) => past.range(bounds),
        }
    }
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
    let mut changes = keyspace(&db, &args.keyspace.name)?.history(key)?.peekable();
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
    object.insert("version".to_owned(), change.version.into());
    object.insert("time".to_owned(), time.into());
    match &change.value {
        Some(value) => text::insert_json(&mut object, ("v", "v64"), value),
        None => _ = object.insert("removed".to_owned(), true.into()),
    }
    object.into()
}

fn as_line(change: &Change, time: Option<String>) -> Vec<u8> {
    let time = time.unwrap_or_else(|| "-".to_owned());
    let mut line = format!("{}\t{time}\t", change.version).into_bytes();
    match &change.value {
        Some(value) => {
            line.extend_from_slice(b"put\t");
            text::escape(value, &mut line);
        }
        None => line.extend_from_slice(b"removed"),
    }
    line.push(b'\n');
    line
}

/// The arguments of `versions`.
#[derive(Debug, Args)]
pub(crate) struct Versions {
    #[command(flatten)]
    store: Store,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the versions that can be read.
pub(super) fn versions(args: &Versions) -> Result<(), Failure> {
    let db = open_to_read(&args.store.path)?;
    let version = db.version();
    let time = db.time_of(version)?.map(time::text);
    // Without the keyspaces that are Esker's own.
    let names = db.keyspaces()?;
    let stats = db.stats()?.keyspaces;
    let stats = stats.iter().filter(|keyspace| names.contains(&keyspace.name));
    let kept: Vec<(&KeyspaceStats, u64)> =
        stats.filter_map(|of| Some((of, of.history_from?))).collect();
    let mut output = Output::new();
    if args.json {
        let keyspaces: Vec<_> = kept.iter().map(|(of, from)| json_of(of, *from)).collect();
        output.json(&json!({ "newest": version, "time": time, "keyspaces": keyspaces }))?;
        return output.flush();
    }
    let at = time.map(|time| format!(", {time}")).unwrap_or_default();
    output.line(&format!("newest version: {version}{at}"))?;
    let mut table = Table::new(&["keyspace with history", "versions", "entries", "stored"]);
    for (of, from) in kept {
        let mut first = from;
        for past in &of.past_indexes {
            let versions = format!("{} to {}", past.from, past.until.saturating_sub(1));
            let (entries, bytes) =
                (past.entries.to_string(), HumanBytes(past.stored_bytes).to_string());
            table.row([of.name.clone(), versions, entries, bytes]);
            first = past.until;
        }
        let (versions, bytes) =
            (format!("{first} and later"), HumanBytes(of.stored_bytes).to_string());
        table.row([of.name.clone(), versions, of.entries_estimate.to_string(), bytes]);
    }
    if !table.is_empty() {
        output.line(&format!("\n{table}"))?;
    }
    output.flush()
}

fn json_of(keyspace: &KeyspaceStats, oldest: u64) -> Value {
    let past = past_indexes(keyspace);
    json!({ "name": keyspace.name, "oldest": oldest, "past_indexes": past })
}

/// The past indexes of a keyspace, as JSON.
pub(super) fn past_indexes(keyspace: &KeyspaceStats) -> Vec<Value> {
    let past = keyspace.past_indexes.iter().map(|past| {
        json!({
            "from": past.from,
            "until": past.until,
            "entries": past.entries,
            "stored_bytes": past.stored_bytes,
        })
    });
    past.collect()
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
