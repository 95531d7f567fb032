//! One run of TPC-C in one mode: workers without think time, and concurrent readers.

use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::background::joined;
use esker_lab_measure::background::{Control, Stop, StopOnDrop};
use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_workload::tpcc::perform::{End, STATEMENTS, perform};
use esker_workload::tpcc::{Input, Kind, Terminal, consistency};
use rusqlite::Connection;

use super::counters::Counters;
use super::mode::Place;
use super::shared::{Phase, Shared, is_busy};
use super::{Plan, bars, failed, readers};
use crate::progress::Watch;
use crate::{Error, Result};

/// The transactions of a worker while it counted.
#[derive(Debug, Default)]
struct Tally {
    /// Of transactions that wrote: only `COMMIT`.
    commits: Latencies,
    /// Of all transactions, from before `BEGIN`.
    transactions: Latencies,
    /// By kind, those committed.
    kinds: [u64; Kind::ALL.len()],
    rollbacks: u64,
    /// Transactions that were refused because of another connection, though they waited.
    busy: u64,
    waits: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.commits.add(&other.commits);
        self.transactions.add(&other.transactions);
        for (ours, theirs) in self.kinds.iter_mut().zip(other.kinds) {
            *ours += theirs;
        }
        self.rollbacks += other.rollbacks;
        self.busy += other.busy;
        self.waits += other.waits;
    }

    fn committed(&self, which: impl Fn(Kind) -> bool) -> u64 {
        let kinds = Kind::ALL.into_iter().zip(self.kinds);
        kinds.filter(|(kind, _)| which(*kind)).map(|(_, count)| count).sum()
    }

    fn tell(&self, seconds: f64, metrics: &mut Metrics) {
        let mut tell = |name: &str, value: f64| metrics.insert(name.to_owned(), value);
        let new_orders = self.committed(|kind| kind == Kind::NewOrder) as f64;
        tell("seconds", seconds);
        tell("new_orders", new_orders);
        tell("notpm", new_orders * 60.0 / seconds);
        tell("transactions", self.committed(|_| true) as f64);
        tell("rollbacks", self.rollbacks as f64);
        tell("writer_busy", self.busy as f64);
        tell("writer_waits", self.waits as f64);
        let commits = self.commits.summary();
        tell("commits", commits.count as f64);
        tell("commits_per_second", commits.count as f64 / seconds);
        tell("commit_p50_micros", commits.p50_micros);
        tell("commit_p99_micros", commits.p99_micros);
        tell("commit_max_micros", commits.max_micros);
        let whole = self.transactions.summary();
        tell("transaction_p50_micros", whole.p50_micros);
        tell("transaction_p99_micros", whole.p99_micros);
        tell("transaction_max_micros", whole.max_micros);
    }
}

/// The query of the held reader: every New-Order changes its answer.
const ORDERS: &str = "SELECT sum(d_next_o_id) FROM district";

/// Makes the run; the database is there.
pub fn run(plan: &Plan, place: &Place, watch: &mut Watch<'_>) -> Result<Metrics> {
    let shared = Shared::default();
    let (stop, control) = (Stop::default(), Control::default());
    let own = place.open()?;
    let mut metrics = Metrics::new();
    thread::scope(|scope| -> Result<()> {
        let stopping = StopOnDrop(&stop);
        scope.spawn(|| control.run(&stop));
        let worker = |number| {
            let shared = &shared;
            scope.spawn(move || ending(shared, || work(plan, place, number, shared)))
        };
        let workers: Vec<_> = (0..plan.workers).map(worker).collect();
        let status =
            scope.spawn(|| ending(&shared, || readers::status(place, plan.readers, &shared)));
        let held = plan
            .held_reader
            .then(|| scope.spawn(|| ending(&shared, || readers::held(place, ORDERS, &shared))));
        let measured = measure(plan, place, &own, (&shared, &control), watch);
        drop(stopping);
        shared.enter(Phase::Ending);
        let mut tally = Tally::default();
        for worker in workers {
            tally.add(&joined(worker)?);
        }
        let met = joined(status)?;
        held.map_or(Ok(()), joined)?;
        let measured = measured?;
        tally.tell(measured.seconds, &mut metrics);
        met.tell(&mut metrics);
        let commits = tally.committed(Kind::writes);
        measured.after.tell(&measured.before, commits, &mut metrics);
        metrics.insert("file_peak_bytes".to_owned(), measured.peak as f64);
        metrics.insert(bars::CONTROL.to_owned(), measured.control_micros);
        metrics.insert("file_end_bytes".to_owned(), place.allocated_bytes() as f64);
        Ok(())
    })?;
    check(place, &own)?;
    Ok(metrics)
}

/// Runs `body`; a failure ends the run.
fn ending<T>(shared: &Shared, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = body();
    if done.is_err() {
        shared.enter(Phase::Ending);
    }
    done
}

/// The values that were measured concurrently.
struct Measured {
    seconds: f64,
    before: Counters,
    after: Counters,
    peak: u64,
    control_micros: f64,
}

/// Lets the others run, first without and then with counting.
fn measure(
    plan: &Plan,
    place: &Place,
    connection: &Connection,
    (shared, control): (&Shared, &Control),
    watch: &mut Watch<'_>,
) -> Result<Measured> {
    let all = plan.warmup + plan.duration;
    let begun = Instant::now();
    let mut peak = 0;
    let mut until = |end: Duration| -> Result<()> {
        while begun.elapsed() < end && !shared.is_ending() {
            peak = peak.max(place.allocated_bytes());
            watch.progress(begun.elapsed().as_secs_f64() / all.as_secs_f64())?;
            let left = end.saturating_sub(begun.elapsed());
            thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    };
    until(plan.warmup)?;
    let before = Counters::now(place, connection);
    let counted = Instant::now();
    control.reset();
    shared.enter(Phase::Measuring);
    until(all)?;
    let (seconds, control_micros) = (counted.elapsed().as_secs_f64(), control.longest_micros());
    shared.enter(Phase::Ending);
    let after = Counters::now(place, connection);
    Ok(Measured { seconds, before, after, peak, control_micros })
}

fn work(plan: &Plan, place: &Place, number: u32, shared: &Shared) -> Result<Tally> {
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

/// Whether the database is what the transactions make of it.
fn check(place: &Place, connection: &Connection) -> Result<()> {
    let mode = place.mode.as_str();
    let what = || failed(place.mode, "check the database");
    if let Some(broken) = consistency::check(connection).map_err(what())?.first() {
        let (condition, places) = (broken.condition, broken.places);
        return Err(Error::Invalid(format!(
            "{mode}: condition {condition} of TPC-C does not hold in {places} places"
        )));
    }
    super::whole(place, connection)
}
