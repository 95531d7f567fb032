//! One run of TPC-C in one mode: workers without think time, and concurrent readers.

use std::thread;
use std::time::{Duration, Instant};

use esker_lab_measure::background::joined;
use esker_lab_measure::background::{Control, Stop, StopOnDrop};
use esker_lab_result::Metrics;
use esker_workload::tpcc::{Kind, consistency};
use rusqlite::Connection;

use super::counters::Counters;
use super::mode::Place;
use super::processes::{Done, Processes};
use super::shared::{Phase, Shared};
use super::terminals::work;
use super::{Plan, bars, ending, failed, readers};
use crate::progress::Watch;
use crate::{Error, Result};

/// The query of the held reader: every New-Order changes its answer.
const ORDERS: &str = "SELECT sum(d_next_o_id) FROM district";

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
    let before = Counters::now(place, connection, &ids);
    let counted = Instant::now();
    control.reset();
    shared.enter(Phase::Measuring);
    others.measure()?;
    until(all)?;
    let (seconds, control_micros) = (counted.elapsed().as_secs_f64(), control.longest_micros());
    shared.enter(Phase::Ending);
    let after = Counters::now(place, connection, &ids);
    Ok(Measured { seconds, before, after, peak, control_micros, others: others.end()? })
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
