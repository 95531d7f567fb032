//! Readers of the status: transactions on a table of one row, which last for 50 ms of thinking.
//!
//! A reader asks N times a second. One connection can do so 20 times; from there on two take turns.

use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, ErrorCode};

use super::{PATIENCE, failed};
use crate::machine::{Machine, turns};
use crate::{Error, Result};

/// The table.
pub const STATUS: &str = "CREATE TABLE status(value INTEGER); INSERT INTO status VALUES (1)";

/// What is seen in a transaction must not change: the row, and how many tables there are.
const LOOK: &str = "SELECT value, (SELECT count(*) FROM sqlite_schema) FROM status";

/// The time of thinking, in which the transaction stays open.
const THINKING_NS: u64 = 50_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// The time between two tries to get a lock. SQLite's own handler waits up to 100 ms, so that a
/// reader beside a busy writer would not read as often as it is to.
const RETRY_NS: u64 = 1_000_000;

/// What readers met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Transactions.
    pub reads: u64,
    /// Those that were refused, although they waited.
    pub busy: u64,
}

/// The number of connections that take turns for `rate` reads a second.
#[must_use]
pub const fn connections(rate: u32) -> u32 {
    (rate as u64 * THINKING_NS).div_ceil(SECOND_NS) as u32
}

/// Whether an error says that another connection is in the way.
#[must_use]
pub fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Reads as the reader `number` of those for this rate, until the end.
///
/// # Errors
/// Those of SQLite; [`Error::Invalid`] where a version changed while it was read.
pub fn read(machine: &Machine, rate: u32, number: u32, is_over: &AtomicBool) -> Result<Met> {
    let mut met = Met::default();
    let begun = turns::now();
    let mut connection = machine.open(PATIENCE).map_err(failed("open the database to read"))?;
    let most = i32::try_from(PATIENCE.as_millis()).unwrap_or(i32::MAX);
    let retry = move |tries: i32| {
        turns::wait(RETRY_NS);
        tries < most
    };
    connection.busy_handler(Some(retry)).map_err(failed("wait for locks"))?;
    let turns_of = u64::from(connections(rate).max(1));
    let mut tick = u64::from(number);
    while !is_over.load(Ordering::Relaxed) {
        turns::wait_until(begun + tick * SECOND_NS / u64::from(rate.max(1)));
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        match once(&connection) {
            Ok((before, after)) if before == after => met.reads += 1,
            Ok(_) => return Err(Error::Invalid("what a reader saw has changed".to_owned())),
            Err(error) if is_busy(&error) => {
                met.busy += 1;
                if !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK").map_err(failed("end a read"))?;
                }
            }
            Err(error) => return Err(failed("read the status")(error)),
        }
        tick += turns_of;
    }
    Ok(met)
}

type Seen = (i64, i64);

fn once(connection: &Connection) -> rusqlite::Result<(Seen, Seen)> {
    let look = || {
        let mut query = connection.prepare_cached(LOOK)?;
        query.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    connection.execute_batch("BEGIN")?;
    let before = look()?;
    turns::wait(THINKING_NS);
    let after = look()?;
    connection.execute_batch("COMMIT")?;
    Ok((before, after))
}
