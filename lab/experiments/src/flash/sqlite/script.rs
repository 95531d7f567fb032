//! One run of the RL script in one mode, with readers of the status.

use std::sync::atomic::{AtomicBool, Ordering};

use esker_lab_result::Metrics;
use esker_workload::rl::{STEPS, Script};
use rusqlite::Connection;

use super::{FAILED, PATIENCE, SECONDS, SEED, Sizing, counted, failed, status};
use crate::Result;
use crate::experiment::metric;
use crate::machine::mode::System;
use crate::machine::turns::{self, Work};
use crate::machine::{Counts, Machine};

/// The step after which the tables are looked at, from 0 on: the last but one.
const LAST_WITH_ROWS: usize = STEPS.len() - 2;
const ROWS: &str = "SELECT (SELECT count(*) + sum(b) FROM t1) * 31
                    + (SELECT count(*) + sum(b) FROM t2) * 7 + (SELECT count(*) FROM t3)";

/// What the script has done.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    ns: u64,
    transactions: u64,
    /// Of the rows at the end; none where the script gave up.
    fingerprint: Option<f64>,
}

enum Answer {
    Script(Done),
    Reader(status::Met),
}

/// Runs the script with `rate` reads a second; the metrics, and the fingerprint of the rows, unless
/// the script gave up waiting for a lock.
///
/// # Errors
/// Those of SQLite and of the machine.
pub fn run(system: System, sizing: Sizing, rate: u32) -> Result<(Metrics, Option<f64>)> {
    run_on(&Machine::new(system, sizing.mib_per_die, SEED)?, sizing, rate, |_| {})
}

/// The same on an empty machine; `ready` is called when the work begins.
///
/// # Errors
/// Those of SQLite and of the machine.
pub fn run_on(
    machine: &Machine,
    sizing: Sizing,
    rate: u32,
    ready: impl FnOnce(&Machine),
) -> Result<(Metrics, Option<f64>)> {
    machine.alone(|| {
        let connection = machine.open(PATIENCE).map_err(failed("make the database"))?;
        connection.execute_batch(status::STATUS).map_err(failed("make the database"))
    })?;
    ready(machine);
    let before = machine.counts();
    let is_over = AtomicBool::new(false);
    let (machine_ref, is_over_ref) = (machine, &is_over);
    let writer: Work<'_, Result<Answer>> = Box::new(move || {
        let done = script(machine_ref, sizing);
        is_over_ref.store(true, Ordering::Relaxed);
        done.map(Answer::Script)
    });
    let reader = |number| -> Work<'_, Result<Answer>> {
        Box::new(move || status::read(machine_ref, rate, number, is_over_ref).map(Answer::Reader))
    };
    let readers = (0..status::connections(rate)).map(reader);
    let answers = machine.run(std::iter::once(writer).chain(readers).collect())?;
    machine.check()?;
    Ok(found(machine, &before, &answers))
}

fn found(machine: &Machine, before: &Counts, answers: &[Answer]) -> (Metrics, Option<f64>) {
    let mut metrics = Metrics::new();
    let (mut done, mut met) = (Done::default(), status::Met::default());
    for answer in answers {
        match answer {
            Answer::Script(found) => done = *found,
            Answer::Reader(found) => {
                met.reads += found.reads;
                met.busy += found.busy;
            }
        }
    }
    metric(&mut metrics, SECONDS, done.ns as f64 / 1e9);
    metric(&mut metrics, FAILED, f64::from(u8::from(done.fingerprint.is_none())));
    metric(&mut metrics, "reads", met.reads as f64);
    metric(&mut metrics, "reader_busy", met.busy as f64);
    counted(machine, before, done.transactions, &mut metrics);
    (metrics, done.fingerprint)
}

fn script(machine: &Machine, sizing: Sizing) -> Result<Done> {
    let connection = machine.open(PATIENCE).map_err(failed("open the database"))?;
    let begun = turns::now();
    let mut done = Done::default();
    let mut script = Script::new(SEED, sizing.rl);
    let mut fingerprint = None;
    for number in 0..STEPS.len() {
        let mut commit = |on: &Connection| {
            on.execute_batch("COMMIT")?;
            done.transactions += 1;
            Ok(())
        };
        match script.step(number, &connection, &mut commit) {
            Ok(()) => {}
            Err(error) if status::is_busy(&error) => {
                done.ns = turns::now() - begun;
                return Ok(done);
            }
            Err(error) => return Err(failed("do a step of the script")(error)),
        }
        if number == LAST_WITH_ROWS {
            let print = connection.query_row(ROWS, [], |row| row.get(0));
            fingerprint = Some(print.map_err(failed("look at the rows"))?);
        }
    }
    Ok(Done { ns: turns::now() - begun, fingerprint, ..done })
}
