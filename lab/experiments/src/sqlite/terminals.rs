//! A terminal of TPC-C: one connection that does transactions without think time.

use std::time::{Duration, Instant};

use esker_workload::tpcc::perform::{End, STATEMENTS, perform};
use esker_workload::tpcc::{Input, Terminal};
use rusqlite::Connection;

use super::mode::Place;
use super::shared::{Phase, Shared, is_busy};
use super::tally::Tally;
use super::{Plan, failed};
use crate::Result;

/// Does transactions until the end, as the terminal of a number.
pub fn work(plan: &Plan, place: &Place, number: u32, shared: &Shared) -> Result<Tally> {
    let what = || failed(place.mode, "do a transaction");
    let mut connection = place.open()?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let waits = shared.wait_for_locks(&mut connection).map_err(what())?;
    let mut tally = Tally::default();
    for input in Terminal::new(plan.seed, number, plan.sizes()) {
        if shared.is_ending() {
            break;
        }
        let counts = shared.phase() == Phase::Measuring;
        let begun = Instant::now();
        match one(&connection, &input) {
            Ok(done) if counts => {
                tally.transactions.record(begun.elapsed());
                match done {
                    Some(commit) => {
                        tally.kinds[input.kind() as usize] += 1;
                        if input.kind().writes() {
                            tally.commits.record(commit);
                        }
                    }
                    None => tally.rollbacks += 1,
                }
            }
            Ok(_) => {}
            Err(error) if is_busy(&error) => {
                if !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK").map_err(what())?;
                }
                tally.busy += u64::from(counts && !shared.is_ending());
            }
            Err(error) => return Err(what()(error)),
        }
    }
    tally.waits = waits.count();
    Ok(tally)
}

/// Does one transaction; how long its commit took, unless it was rolled back.
fn one(connection: &Connection, input: &Input) -> rusqlite::Result<Option<Duration>> {
    let say = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    say(if input.kind().writes() { "BEGIN IMMEDIATE" } else { "BEGIN" })?;
    match perform(connection, input)? {
        End::Rollback => say("ROLLBACK").map(|()| None),
        End::Commit => {
            let begun = Instant::now();
            say("COMMIT")?;
            Ok(Some(begun.elapsed()))
        }
    }
}
