//! One run of TPC-C in one mode: workers without think time, and concurrent readers.

use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::background::joined;
use esker_lab_measure::background::{Control, Stop, StopOnDrop};
use esker_lab_result::Metrics;
use esker_workload::Random;
use esker_workload::tpcc::{Kind, consistency};
use rusqlite::Connection;

use super::counters::Counters;
use super::mode::Place;
use super::processes::{Done, Processes};
use super::shared::{PATIENCE, Phase, Shared};
use super::terminals::work;
use super::{Plan, bars, ending, failed, readers};
use crate::progress::Watch;
use crate::{Error, Result};

/// The query of the held reader: every New-Order changes its answer.
const ORDERS: &str = "SELECT sum(d_next_o_id) FROM district";

/// The longest time between two processes that are killed.
const KILL_MICROS_MAX: u64 = 200_000;

/// Makes the run; the database is there.
pub fn run(plan: &Plan, place: &Place, watch: &mut Watch<'_>) -> Result<Metrics> {
    let shared = Shared::default();
    let (stop, control) = (Stop::default(), Control::default());
    let own = place.open()?;
    let mut metrics = Metrics::new();
    let others = Processes::start(plan, place);
    thread::scope(|scope| -> Result<()> {
        let stopping = StopOnDrop(&stop);
        scope.spawn(|| control.run(&stop));
        let worker = |number| {
            let shared = &shared;
            scope.spawn(move || ending(shared, || work(plan, place, number, shared)))
        };
        let workers = if plan.processes == 0 { plan.workers } else { 0 };
        let workers: Vec<_> = (0..workers).map(worker).collect();
        let status =
            scope.spawn(|| ending(&shared, || readers::status(place, plan.readers, &shared)));
        let held = plan
            .held_reader
            .then(|| scope.spawn(|| ending(&shared, || readers::held(place, ORDERS, &shared))));
        let measured = others
            .and_then(|others| measure(plan, place, &own, others, (&shared, &control), watch));
        drop(stopping);
        shared.enter(Phase::Ending);
        let mut done = Done::default();
        for worker in workers {
            done.tally.add(&joined(worker)?);
        }
        done.met = joined(status)?;
        held.map_or(Ok(()), joined)?;
        let mut measured = measured?;
        done.add(&measured.others);
        done.tally.tell(measured.seconds, &mut metrics);
        done.met.tell(&mut metrics);
        let commits = done.tally.committed(Kind::writes);
        measured.after.add_syncs(done.syncs);
        measured.after.tell(&measured.before, commits, &mut metrics);
        metrics.insert("file_peak_bytes".to_owned(), measured.peak as f64);
        metrics.insert(bars::CONTROL.to_owned(), measured.control_micros);
        metrics.insert("file_end_bytes".to_owned(), place.allocated_bytes() as f64);
        Ok(())
    })?;
    check(place, &own)?;
    Ok(metrics)
}

/// The values that were measured concurrently.
struct Measured {
    seconds: f64,
    before: Counters,
    after: Counters,
    peak: u64,
    control_micros: f64,
    /// What other processes did.
    others: Done,
}

/// Lets the others run, first without and then with counting.
fn measure(
    plan: &Plan,
    place: &Place,
    connection: &Connection,
    mut others: Processes,
    (shared, control): (&Shared, &Control),
    watch: &mut Watch<'_>,
) -> Result<Measured> {
    let ids = others.ids();
    let all = plan.warmup + plan.duration;
    let begun = Instant::now();
    let mut peak = 0;
    let mut until = |end: Duration, watch: &mut Watch<'_>| -> Result<()> {
        peak = peak.max(place.allocated_bytes());
        while begun.elapsed() < end && !shared.is_ending() {
            peak = peak.max(place.allocated_bytes());
            watch.progress(begun.elapsed().as_secs_f64() / all.as_secs_f64())?;
            let left = end.saturating_sub(begun.elapsed());
            thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    };
    until(plan.warmup, watch)?;
    let before = Counters::now(place, connection, &ids);
    let counted = Instant::now();
    control.reset();
    shared.enter(Phase::Measuring);
    others.measure()?;
    kill(plan, place, connection, &mut others, watch)?;
    until(all, watch)?;
    let ids = others.ids();
    let (seconds, control_micros) = (counted.elapsed().as_secs_f64(), control.longest_micros());
    shared.enter(Phase::Ending);
    let after = Counters::now(place, connection, &ids);
    Ok(Measured { seconds, before, after, peak, control_micros, others: others.end()? })
}

/// Kills processes, one after the other, at random; after each the database must be what
/// transactions make of it.
fn kill(
    plan: &Plan,
    place: &Place,
    connection: &Connection,
    others: &mut Processes,
    watch: &mut Watch<'_>,
) -> Result<()> {
    connection.busy_timeout(PATIENCE).map_err(failed(place.mode, "set a timeout"))?;
    let mut random = Random::new(plan.seed);
    for killed in 0..plan.kills {
        watch.progress(f64::from(killed) / f64::from(plan.kills))?;
        thread::sleep(Duration::from_micros(random.below(KILL_MICROS_MAX)));
        others.replace(random.below(others.len() as u64) as usize)?;
        conditions(place, connection)?;
    }
    Ok(())
}

/// Whether the database is what the transactions make of it.
fn check(place: &Place, connection: &Connection) -> Result<()> {
    conditions(place, connection)?;
    super::whole(place, connection)
}

/// Whether the conditions of TPC-C hold, in one snapshot.
fn conditions(place: &Place, connection: &Connection) -> Result<()> {
    let mode = place.mode.as_str();
    let what = || failed(place.mode, "check the database");
    let snapshot = connection.unchecked_transaction().map_err(what())?;
    if let Some(broken) = consistency::check(connection).map_err(what())?.first() {
        let (condition, places) = (broken.condition, broken.places);
        return Err(Error::Invalid(format!(
            "{mode}: condition {condition} of TPC-C does not hold in {places} places"
        )));
    }
    snapshot.commit().map_err(what())
}
