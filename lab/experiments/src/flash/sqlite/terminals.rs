//! One run of TPC-C in one mode: workers without thinking time, and readers of the status.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use esker_lab_result::Metrics;
use esker_workload::tpcc::perform::{End, STATEMENTS, perform};
use esker_workload::tpcc::{Input, Kind, Sizes, Terminal, consistency, load};
use rusqlite::Connection;

use super::{NOTPM, PATIENCE, SECONDS, SEED, Sizing, counted, failed, status};
use crate::experiment::metric;
use crate::machine::disk::PAGE_BYTES;
use crate::machine::mode::System;
use crate::machine::turns::{self, Work};
use crate::machine::{Counts, Machine};
use crate::{Error, Result};

const SECOND_NS: u64 = 1_000_000_000;

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many virtual seconds, a sixth of which does not count.
    Seconds(u64),
    /// After so many transactions of one worker.
    Transactions(u64),
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The mode, and the device.
    pub system: System,
    /// The sizes.
    pub sizing: Sizing,
    /// The database that it begins with: see [`fill`].
    pub filled: &'a [u8],
    /// The number of workers.
    pub workers: u32,
    /// Reads of the status, each second.
    pub rate: u32,
    /// When it ends.
    pub until: Until,
}

/// What a worker has done while it counted.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    new_orders: u64,
    writes: u64,
    reads: u64,
    busy: u64,
}

enum Answer {
    Worker(Tally),
    Reader(status::Met),
}

/// The bytes of a database of SQLite with the first rows of TPC-C, and the status.
///
/// # Errors
/// Those of SQLite and of the system.
pub fn fill(sizes: Sizes) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().map_err(Error::system("make a folder"))?;
    let path = folder.path().join("filled.db");
    let fill = || {
        let connection = Connection::open(&path)?;
        connection.execute_batch(&format!(
            "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF"
        ))?;
        connection.execute_batch(status::STATUS)?;
        load::load(&connection, sizes, SEED, &mut |_| true)
    };
    fill().map_err(failed("fill a database"))?;
    std::fs::read(&path).map_err(Error::system("read the filled database"))
}

/// Makes the run; the metrics, and a fingerprint of the rows that are left.
///
/// # Errors
/// Those of SQLite and of the machine; [`Error::Invalid`] where the database is not what the
/// transactions make of it.
pub fn run(plan: Run<'_>) -> Result<(Metrics, f64)> {
    let machine = Machine::new(plan.system, plan.sizing.mib_per_die, SEED)?;
    let metrics = run_on(&machine, plan, |_| {})?;
    let fingerprint = machine.alone(|| look(&machine))?;
    Ok((metrics, fingerprint))
}

/// The run alone, on an empty machine; `ready` is called when the work begins.
///
/// # Errors
/// Those of SQLite and of the machine.
pub fn run_on(machine: &Machine, plan: Run<'_>, ready: impl FnOnce(&Machine)) -> Result<Metrics> {
    machine.install(plan.filled)?;
    machine.alone(|| machine.open(PATIENCE).map(drop).map_err(failed("open the database")))?;
    ready(machine);
    let before = machine.counts();
    let (is_over, working) = (AtomicBool::new(false), AtomicU64::new(plan.workers.into()));
    let (machine_ref, is_over_ref, working_ref) = (machine, &is_over, &working);
    let worker = |number| -> Work<'_, Result<Answer>> {
        Box::new(move || {
            let done = work(machine_ref, plan, number);
            let is_last = working_ref.fetch_sub(1, Ordering::Relaxed) == 1;
            is_over_ref.fetch_or(is_last || done.is_err(), Ordering::Relaxed);
            done.map(Answer::Worker)
        })
    };
    let reader = |number| -> Work<'_, Result<Answer>> {
        Box::new(move || {
            status::read(machine_ref, plan.rate, number, is_over_ref).map(Answer::Reader)
        })
    };
    let workers = (0..plan.workers).map(worker);
    let readers = (0..status::connections(plan.rate)).map(reader);
    let answers = machine.run(workers.chain(readers).collect())?;
    machine.check()?;
    Ok(found(machine, plan, &before, &answers))
}

fn found(machine: &Machine, plan: Run<'_>, before: &Counts, answers: &[Answer]) -> Metrics {
    let mut metrics = Metrics::new();
    let (mut all, mut met) = (Tally::default(), status::Met::default());
    for answer in answers {
        match answer {
            Answer::Worker(tally) => {
                all.new_orders += tally.new_orders;
                all.writes += tally.writes;
                all.reads += tally.reads;
                all.busy += tally.busy;
            }
            Answer::Reader(found) => {
                met.reads += found.reads;
                met.busy += found.busy;
            }
        }
    }
    if let Until::Seconds(seconds) = plan.until {
        let counted = (seconds - seconds / 6) as f64;
        metric(&mut metrics, SECONDS, counted);
        metric(&mut metrics, NOTPM, all.new_orders as f64 * 60.0 / counted);
    }
    metric(&mut metrics, "new_orders", all.new_orders as f64);
    metric(&mut metrics, "read_transactions", all.reads as f64);
    metric(&mut metrics, "worker_busy", all.busy as f64);
    metric(&mut metrics, "reads", met.reads as f64);
    metric(&mut metrics, "reader_busy", met.busy as f64);
    // Pages of a run by the clock are those of the time that does not count, too.
    if matches!(plan.until, Until::Transactions(_)) {
        counted(machine, before, all.writes, &mut metrics);
    }
    metrics
}

fn work(machine: &Machine, plan: Run<'_>, number: u32) -> Result<Tally> {
    let what = || failed("do a transaction");
    let connection = machine.open(PATIENCE).map_err(what())?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let begun = turns::now();
    let mut tally = Tally::default();
    for (input, count) in Terminal::new(SEED, number, plan.sizing.tpcc).zip(0..) {
        let counts = match plan.until {
            Until::Seconds(seconds) => {
                let passed = turns::now() - begun;
                if passed >= seconds * SECOND_NS {
                    break;
                }
                passed >= seconds / 6 * SECOND_NS
            }
            Until::Transactions(most) if count >= most => break,
            Until::Transactions(_) => true,
        };
        match one(&connection, &input) {
            Ok(true) if counts => {
                tally.new_orders += u64::from(input.kind() == Kind::NewOrder);
                tally.writes += u64::from(input.kind().writes());
                tally.reads += u64::from(!input.kind().writes());
            }
            Ok(_) => {}
            Err(error) if status::is_busy(&error) => {
                if !connection.is_autocommit() {
                    connection.execute_batch("ROLLBACK").map_err(what())?;
                }
                tally.busy += u64::from(counts);
            }
            Err(error) => return Err(what()(error)),
        }
    }
    Ok(tally)
}

/// Does one transaction; whether it was committed.
fn one(connection: &Connection, input: &Input) -> rusqlite::Result<bool> {
    let say = |sql: &str| connection.prepare_cached(sql)?.execute([]).map(drop);
    say(if input.kind().writes() { "BEGIN IMMEDIATE" } else { "BEGIN" })?;
    match perform(connection, input)? {
        End::Rollback => say("ROLLBACK").map(|()| false),
        End::Commit => say("COMMIT").map(|()| true),
    }
}

/// Checks the conditions of TPC-C; a fingerprint of what changes.
fn look(machine: &Machine) -> Result<f64> {
    let connection = machine.open(PATIENCE).map_err(failed("open the database"))?;
    let broken = consistency::check(&connection).map_err(failed("check the database"))?;
    if let Some(first) = broken.first() {
        return Err(Error::Invalid(format!(
            "condition {} of TPC-C does not hold in {} places",
            first.condition, first.places
        )));
    }
    let rows = "SELECT (SELECT sum(d_ytd) + 7 * sum(d_next_o_id) FROM district)
                + (SELECT sum(s_quantity * s_i_id) + 31 * sum(s_ytd) FROM stock)
                + (SELECT sum(c_balance) + 13 * sum(c_payment_cnt) FROM customer)
                + (SELECT count(*) FROM order_line) + (SELECT sum(h_amount) FROM history)";
    let print: i64 =
        connection.query_row(rows, [], |row| row.get(0)).map_err(failed("look at the rows"))?;
    Ok(print as f64)
}
