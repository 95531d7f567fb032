//! Versions: those that arguments choose, and the list of those that can be read.

use std::convert::Infallible;
use std::str::FromStr;
use std::time::SystemTime;

use clap::Args;
use esker::{Changes, Db, Keyspace, KeyspaceStats, NamedVersion, Past, Range};
use esker_terminal::exit::Failure;
use esker_terminal::output::Output;
use esker_terminal::table::Table;
use indicatif::HumanBytes;
use serde_json::{Value, json};

use super::bounds::KeyBounds;
use super::{open_to_read, time};
use crate::args::Store;

/// A version as an argument: its number or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    Number(u64),
    Name(String),
}

impl FromStr for Point {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.parse().map_or_else(|_| Self::Name(text.to_owned()), Self::Number))
    }
}

impl Point {
    /// The number of the version.
    pub(super) fn number(&self, db: &Db) -> Result<u64, Failure> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::Name(name) => name,
        };
        let named = db.named_versions()?.into_iter().find(|named| named.name == *name);
        named.map(|named| named.version).ok_or_else(|| {
            Failure::Input(format!(
                "{name:?} is neither the number nor the name of a version: `esker versions` lists \
                 the names"
            ))
        })
    }
}

/// The version at which a keyspace is read.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Read a keyspace with history as it was at this version: its number or its name
    #[arg(long, value_name = "VERSION", conflicts_with = "at_time")]
    at: Option<Point>,
    /// Read a keyspace with history as it was at this time, such as 2026-11-26T10:00:00Z or
    /// 2026-11-26
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    at_time: Option<SystemTime>,
}

impl Version {
    /// The keyspace at this version, or as it is now where none is given.
    pub(super) fn of(&self, db: &Db, keyspace: Keyspace) -> Result<View, Failure> {
        Ok(match (&self.at, self.at_time) {
            (Some(version), _) => View::Past(keyspace.at(version.number(db)?)?),
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

    pub(super) fn range(&self, bounds: KeyBounds) -> esker::Result<Range> {
        match self {
            Self::Now(keyspace) => keyspace.range(bounds),
            Self::Past(past) => past.range(bounds),
        }
    }

    pub(super) fn history(&self, key: &[u8]) -> esker::Result<Changes> {
        match self {
            Self::Now(keyspace) => keyspace.history(key),
            Self::Past(past) => past.history(key),
        }
    }
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
    let named = named(&db)?;
    // Without the keyspaces that are Esker's own.
    let names = db.keyspaces()?;
    let stats = db.stats()?.keyspaces;
    let stats = stats.iter().filter(|keyspace| names.contains(&keyspace.name));
    let kept: Vec<(&KeyspaceStats, u64)> =
        stats.filter_map(|of| Some((of, of.history_from?))).collect();
    let mut output = Output::new();
    if args.json {
        let keyspaces: Vec<_> = kept.iter().map(|(of, from)| json_of(of, *from)).collect();
        let named: Vec<_> = named
            .iter()
            .map(|(of, time)| json!({ "name": of.name, "version": of.version, "time": time }))
            .collect();
        output.json(&json!({
            "newest": version,
            "time": time,
            "named": named,
            "keyspaces": keyspaces,
        }))?;
        return output.flush();
    }
    let at = time.map(|time| format!(", {time}")).unwrap_or_default();
    output.line(&format!("newest version: {version}{at}"))?;
    for table in [table_of_names(&named), table_of_keyspaces(&kept)] {
        if !table.is_empty() {
            output.line(&format!("\n{table}"))?;
        }
    }
    output.flush()
}

/// The versions with names, and their times.
fn named(db: &Db) -> Result<Vec<(NamedVersion, Option<String>)>, Failure> {
    let timed = |named: NamedVersion| {
        let time = db.time_of(named.version)?.map(time::text);
        Ok((named, time))
    };
    db.named_versions()?.into_iter().map(timed).collect()
}

fn table_of_names(named: &[(NamedVersion, Option<String>)]) -> Table {
    let mut table = Table::new(&["name", "version", "time"]);
    for (of, time) in named {
        let time = time.clone().unwrap_or_else(|| "-".to_owned());
        table.row([of.name.clone(), of.version.to_string(), time]);
    }
    table
}

fn table_of_keyspaces(kept: &[(&KeyspaceStats, u64)]) -> Table {
    let mut table = Table::new(&["keyspace with history", "versions", "entries", "stored"]);
    for (of, from) in kept {
        let mut first = *from;
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
    table
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
    fn a_version_is_a_number_or_a_name() {
        let name = |text: &str| Ok(Point::Name(text.to_owned()));
        assert_eq!("0".parse(), Ok(Point::Number(0)));
        assert_eq!("18446744073709551615".parse(), Ok(Point::Number(u64::MAX)));
        for text in ["", "audit", "18446744073709551616", "-1", "1.0", " 1"] {
            assert_eq!(text.parse(), name(text));
        }
    }
}
