//! Pragmas that mean something else over a store of versions, and those of its own.

use esker_flash::Durability;
use serde_json::json;

use crate::code::{Code, Result};
use crate::connection::Connection;

/// What becomes of a pragma.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// SQLite goes on as it would.
    GoOn,
    /// This is the one row of the result.
    Row(String),
}

/// Answers a pragma, or has SQLite do so. An error comes with a message.
pub fn pragma(
    connection: &mut Connection,
    name: &str,
    value: Option<&str>,
) -> std::result::Result<Answer, (Code, String)> {
    let lower = value.map(str::to_ascii_lowercase);
    match (name.to_ascii_lowercase().as_str(), lower.as_deref()) {
        ("synchronous", Some(value)) => {
            if let Some(is_relaxed) = is_relaxed(value) {
                connection.durability.is_relaxed = is_relaxed;
            }
            Ok(Answer::GoOn)
        }
        // A log of SQLite's own is not needed; who asks for one gets what they want it for.
        ("journal_mode", Some("wal")) => Ok(Answer::Row("wal".to_owned())),
        // Without a journal a statement that fails would leave its first rows.
        ("journal_mode", Some("off")) => Ok(Answer::Row("delete".to_owned())),
        // The pager moves the counter of changes once only, and caches of other connections
        // would go stale.
        ("locking_mode", Some("exclusive")) => Ok(Answer::Row("normal".to_owned())),
        ("esker_durability", value) => durability(connection, value),
        ("esker_stats", _) => told(stats(connection)),
        ("esker_versions", _) => told(versions(connection)),
        ("esker_check", _) => check(connection),
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

/// Of the values of `PRAGMA synchronous`, whether commits may wait.
fn is_relaxed(value: &str) -> Option<bool> {
    match value {
        "0" | "off" | "no" | "false" | "1" | "normal" | "on" | "yes" | "true" => Some(true),
        "2" | "full" | "3" | "extra" => Some(false),
        _ => None,
    }
}

fn durability(
    connection: &mut Connection,
    value: Option<&str>,
) -> std::result::Result<Answer, (Code, String)> {
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

fn told(row: Result<String>) -> std::result::Result<Answer, (Code, String)> {
    row.map(Answer::Row).map_err(|code| (code, "the store is closed".to_owned()))
}

fn stats(connection: &Connection) -> Result<String> {
    Ok(format!("{:?}", connection.store()?.stats()))
}

fn versions(connection: &Connection) -> Result<String> {
    let versions = connection.store()?.versions();
    let told: Vec<String> = versions.iter().map(|version| format!("{version:?}")).collect();
    Ok(json!(told).to_string())
}

fn check(connection: &Connection) -> std::result::Result<Answer, (Code, String)> {
    let store = connection.store().map_err(|code| (code, "the store is closed".to_owned()))?;
    let report = store.check().map_err(|error| (Code::of_read(&error), error.to_string()))?;
    Ok(Answer::Row(format!("{report:?}")))
}

fn named(
    connection: &Connection,
    act: impl FnOnce(&esker_flash::PageStore) -> esker_flash::Result<u64>,
) -> std::result::Result<Answer, (Code, String)> {
    let store = connection.store().map_err(|code| (code, "the store is closed".to_owned()))?;
    let done = act(store).map_err(|error| (Code::of_write(&error), error.to_string()))?;
    Ok(Answer::Row(done.to_string()))
}
