//! One run of the RL script in one mode: twice in the same file, which does not grow any more the
//! second time. That one counts; what the first one wrote is reported apart.

use std::thread;
use std::time::Instant;

use esker_lab_measure::background::joined;
use esker_lab_measure::latency::Latencies;
use esker_lab_result::Metrics;
use esker_workload::rl::{STEPS, Script};
use rusqlite::Connection;

use super::counters::Counters;
use super::mode::Place;
use super::readers;
use super::shared::{Phase, Shared};
use super::{Plan, failed};
use crate::Result;
use crate::progress::Watch;

/// The step after which the tables are looked at, from 0 on: the last but one.
const LAST_WITH_ROWS: usize = STEPS.len() - 2;

/// Makes the run; the database has no tables but the one whose row is looked at.
pub fn run(plan: &Plan, place: &Place, watch: &mut Watch<'_>) -> Result<Metrics> {
    let shared = Shared::default();
    let mut connection = place.open()?;
    let waits =
        shared.wait_for_locks(&mut connection).map_err(failed(place.mode, "wait for locks"))?;
    shared.enter(Phase::Measuring);
    let mut metrics = Metrics::new();
    thread::scope(|scope| -> Result<()> {
        let status = scope.spawn(|| readers::status(place, plan.readers, &shared));
        let mut first = Metrics::new();
        let done = script(plan, place, &connection, &mut first, watch)
            .and_then(|()| script(plan, place, &connection, &mut metrics, watch));
        for name in ["bytes_written", "seconds"] {
            metrics.extend(first.get(name).map(|value| (format!("first_{name}"), *value)));
        }
        shared.enter(Phase::Ending);
        joined(status)?.tell(&mut metrics);
        done
    })?;
    metrics.insert("writer_busy".to_owned(), 0.0);
    metrics.insert("writer_waits".to_owned(), waits.count() as f64);
    super::whole(place, &connection)?;
    Ok(metrics)
}

fn script(
    plan: &Plan,
    place: &Place,
    connection: &Connection,
    metrics: &mut Metrics,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let what = || failed(place.mode, "do a step of the script");
    let mut script = Script::new(plan.seed, plan.rl_sizes());
    let mut commits = Latencies::default();
    let (mut seconds, mut peak) = (0.0, 0);
    let before = Counters::now(place, connection, &[]);
    for number in 0..STEPS.len() {
        watch.progress(number as f64 / STEPS.len() as f64)?;
        let begun = Instant::now();
        let mut commit = |on: &Connection| {
            let begun = Instant::now();
            on.execute_batch("COMMIT")?;
            commits.record(begun.elapsed());
            Ok(())
        };
        script.step(number, connection, &mut commit).map_err(what())?;
        let taken = begun.elapsed().as_secs_f64();
        seconds += taken;
        peak = peak.max(place.allocated_bytes());
        metrics.insert(format!("step_{:02}_seconds", number + 1), taken);
        if number == LAST_WITH_ROWS {
            let rows = "SELECT (SELECT count(*) + sum(b) FROM t1) * 31
                        + (SELECT count(*) + sum(b) FROM t2) * 7 + (SELECT count(*) FROM t3)";
            let print = connection.query_row(rows, [], |row| row.get::<_, f64>(0));
            metrics.insert("fingerprint".to_owned(), print.map_err(what())?);
        }
    }
    let after = Counters::now(place, connection, &[]);
    let summary = commits.summary();
    after.tell(&before, summary.count, metrics);
    let mut tell = |name: &str, value: f64| metrics.insert(name.to_owned(), value);
    tell("seconds", seconds);
    tell("commits", summary.count as f64);
    tell("commits_per_second", summary.count as f64 / seconds);
    tell("commit_p50_micros", summary.p50_micros);
    tell("commit_p99_micros", summary.p99_micros);
    tell("commit_max_micros", summary.max_micros);
    tell("file_peak_bytes", peak as f64);
    tell("file_end_bytes", place.allocated_bytes() as f64);
    Ok(())
}
