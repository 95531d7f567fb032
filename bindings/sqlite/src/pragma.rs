//! Pragmas with another meaning over a versioned store, and the pragmas of this VFS.
//!
//! A pragma of a VFS answers with one text: pragmas that show something answer with JSON.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use esker_pages::{Durability, Error, PageStore, Report, Stats, Version};
use serde_json::{Map, Value};

use crate::code::Code;
use crate::connection::Connection;
use crate::planted::{self, Bug};

/// For how long `PRAGMA esker_compact` waits until no other process has the store open.
const ALONE_WAIT: Duration = Duration::from_secs(5);

/// The answer to a pragma.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// SQLite handles the pragma itself.
    GoOn,
    /// The single row of the result.
    Row(String),
}

/// An error comes with a message.
type Outcome<T> = Result<T, (Code, String)>;

/// Answers a pragma, or leaves it to SQLite.
pub fn pragma(connection: &mut Connection, name: &str, value: Option<&str>) -> Outcome<Answer> {
    let lower = value.map(str::to_ascii_lowercase);
    match (name.to_ascii_lowercase().as_str(), lower.as_deref()) {
        ("synchronous", Some(value)) => {
            // Within a transaction SQLite refuses it.
            let is_accepted = connection.database.is_some_and(|it| it.is_autocommit());
            if is_accepted || planted::is(Bug::RefusedCounts) {
                connection.durability.is_relaxed = is_relaxed(value);
            }
            Ok(Answer::GoOn)
        }
        ("journal_mode", value) => journal_mode(connection, value),
        // The pager moves the counter of changes once only, and caches of other connections
        // would go stale.
        ("locking_mode", Some("exclusive")) => Ok(Answer::Row("normal".to_owned())),
        ("esker_durability", value) => durability(connection, value),
        ("esker_stats", None) => with_store(connection, |store| Ok(pretty(&stats(&store.stats())))),
        ("esker_stats", Some(name)) => with_store(connection, |store| one(&store.stats(), name)),
        ("esker_versions", _) => with_store(connection, |store| Ok(pretty(&versions(store)))),
        ("esker_check", _) => with_store(connection, check),
        ("esker_compact", _) => with_store(connection, compact),
        ("esker_pin", _) => match value {
            Some(name) => named(connection, |store| store.pin_named(name)),
            None => Err((Code::ERROR, "PRAGMA esker_pin=NAME: a name is missing".to_owned())),
        },
        ("esker_unpin", _) => match value {
            Some(name) => named(connection, |store| store.unpin_named(name).map(|()| 0)),
            None => Err((Code::ERROR, "PRAGMA esker_unpin=NAME: a name is missing".to_owned())),
        },
        _ => Ok(Answer::GoOn),
    }
}

/// Whether commits may wait, for a value of `PRAGMA synchronous` as SQLite reads it.
fn is_relaxed(value: &str) -> bool {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let number = value.get(..digits).unwrap_or_default();
    let level = match value {
        _ if digits > 0 => number.parse::<i32>().unwrap_or(0) & 7,
        "off" | "no" | "false" => 0,
        "full" => 2,
        "extra" => 3,
        // "normal" among them.
        _ => 1,
    };
    // There is no eighth.
    matches!(level, 0 | 1 | 7)
}

/// A journal mode, as SQLite numbers and names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalMode {
    /// The initial mode of a database.
    #[default]
    Delete,
    /// `persist`
    Persist,
    /// `off`
    Off,
    /// `truncate`
    Truncate,
    /// `memory`
    Memory,
    /// `wal`
    Wal,
}

impl JournalMode {
    const ALL: [(Self, &str); 6] = [
        (Self::Delete, "delete"),
        (Self::Persist, "persist"),
        (Self::Off, "off"),
        (Self::Truncate, "truncate"),
        (Self::Memory, "memory"),
        (Self::Wal, "wal"),
    ];

    /// The first mode whose name begins with `value`; SQLite compares no more than the length of
    /// the value.
    fn of(value: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|(_, name)| name.starts_with(value));
        found.map(|(mode, _)| mode)
    }

    fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(mode, _)| *mode == self).map_or("delete", |(_, name)| name)
    }
}

/// `wal` is accepted without a log of SQLite's own: its benefits are there already, and the answer
/// is `wal`. Without a journal a statement that fails would leave its first rows: `off` is answered
/// with the mode that stays.
///
/// Within a transaction SQLite changes neither into WAL mode nor out of it, and between the other
/// modes only as long as nothing is written: a request in a transaction does not count.
fn journal_mode(connection: &mut Connection, value: Option<&str>) -> Outcome<Answer> {
    let lower = value.map(str::to_ascii_lowercase);
    let is_between =
        connection.database.is_none_or(|it| it.is_autocommit()) || planted::is(Bug::RefusedCounts);
    let now = connection.journal_mode;
    match lower.as_deref().and_then(JournalMode::of) {
        Some(JournalMode::Off) => return Ok(Answer::Row(now.name().to_owned())),
        Some(mode) if is_between => connection.journal_mode = mode,
        Some(mode) if mode != now && [mode, now].contains(&JournalMode::Wal) => {
            let way = if mode == JournalMode::Wal { "into" } else { "out of" };
            let message = format!("cannot change {way} wal mode from within a transaction");
            return Err((Code::ERROR, message));
        }
        Some(_) | None => {}
    }
    let in_force = connection.journal_mode;
    if planted::is(Bug::ModeNotKept) {
        connection.journal_mode = now;
    }
    Ok(match in_force {
        JournalMode::Wal => Answer::Row(JournalMode::Wal.name().to_owned()),
        _ => Answer::GoOn,
    })
}

fn durability(connection: &mut Connection, value: Option<&str>) -> Outcome<Answer> {
    let choice = &mut connection.durability;
    match value {
        None => {}
        Some("full") => choice.forced = Some(Durability::Full),
        Some("relaxed") => choice.forced = Some(Durability::Relaxed),
        Some("default") => choice.forced = None,
        Some(other) => {
            let message = format!("PRAGMA esker_durability={other}: full, relaxed or default");
            return Err((Code::ERROR, message));
        }
    }
    let row = match choice.forced {
        Some(Durability::Full) => "full",
        Some(Durability::Relaxed) => "relaxed",
        None => "default",
    };
    Ok(Answer::Row(row.to_owned()))
}

fn open_store(connection: &Connection) -> Outcome<&PageStore> {
    connection.store().map_err(|code| (code, "the store is closed".to_owned()))
}

fn with_store(
    connection: &Connection,
    tell: impl FnOnce(&PageStore) -> Outcome<String>,
) -> Outcome<Answer> {
    tell(open_store(connection)?).map(Answer::Row)
}

/// Indented JSON, readable by people too.
fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

fn object<const N: usize>(fields: [(&str, u64); N]) -> Map<String, Value> {
    fields.map(|(name, number)| (name.to_owned(), number.into())).into_iter().collect()
}

fn stats(stats: &Stats) -> Value {
    let mut all = object(stats.fields());
    all.insert("allocation".to_owned(), stats.allocation.name().into());
    all.insert("written".to_owned(), object(stats.written.fields()).into());
    all.into()
}

/// One of the statistics.
fn one(stats: &Stats, name: &str) -> Outcome<String> {
    if name == "allocation" {
        return Ok(stats.allocation.name().to_owned());
    }
    let found = stats.fields().into_iter().find(|(field, _)| *field == name);
    let message =
        || format!("PRAGMA esker_stats={name}: no such number; PRAGMA esker_stats has all");
    found.map(|(_, number)| number.to_string()).ok_or_else(|| (Code::ERROR, message()))
}

fn versions(store: &PageStore) -> Value {
    let version = |version: &Version| {
        let mut all = object(version.fields());
        all.insert("names".to_owned(), version.names.clone().into());
        Value::from(all)
    };
    store.versions().iter().map(version).collect()
}

fn check(store: &PageStore) -> Outcome<String> {
    let report = store.check().map_err(|error| (Code::of_read(&error), error.to_string()))?;
    let mut all = Map::from_iter([("ok".to_owned(), true.into())]);
    all.extend(object(report.fields()));
    let Report { accounted, .. } = report;
    all.insert("accounted".to_owned(), accounted.into());
    Ok(pretty(&all.into()))
}

/// Waits for other processes that have the store open, which is not to be theirs meanwhile.
fn compact(store: &PageStore) -> Outcome<String> {
    let until = Instant::now() + ALONE_WAIT;
    let compacted = loop {
        match store.compact(&mut |_, _| ControlFlow::Continue(())) {
            Err(Error::Locked { .. } | Error::Busy) if Instant::now() < until => {}
            compacted => break compacted,
        }
    };
    let compacted = compacted.map_err(|error| match error {
        Error::Locked { .. } | Error::Busy => (Code::BUSY, error.to_string()),
        error => (Code::of_write(&error), error.to_string()),
    })?;
    Ok(pretty(&object(compacted.fields()).into()))
}

fn named(
    connection: &Connection,
    act: impl FnOnce(&PageStore) -> esker_pages::Result<u64>,
) -> Outcome<Answer> {
    let refused = |code| (code, "attempt to write a readonly database".to_owned());
    let done = act(connection.store_to_change().map_err(refused)?)
        .map_err(|error| (Code::of_write(&error), error.to_string()))?;
    Ok(Answer::Row(done.to_string()))
}
