//! `esker bench sqlite`: SQLite over the page store next to SQLite's own ways, the same SQLite on
//! both sides.
//!
//! Modes take turns, each with a database of its own that was copied, page by page, from one that
//! was filled once. What is said of bytes is in [`counters`], of bars in [`bars`], of the disk in
//! [`probe`]. [`tpcc`] and [`rl`] make one run; [`terminals`] and [`readers`] run concurrently, in
//! threads of this process or in [`processes`] of their own; [`tally`] is what terminals did.

pub mod bars;
pub mod counters;
pub mod mode;
pub mod probe;
pub mod processes;
pub mod readers;
pub mod rl;
pub mod shared;
pub mod tally;
pub mod terminals;
pub mod tpcc;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use esker_lab_measure::process::machine;
use esker_lab_result::{Findings, Metrics};
use esker_workload::tpcc::{Sizes, load};
use rusqlite::Connection;

use self::mode::{Mode, Place};
use self::shared::{Phase, Shared};
use crate::progress::{Event, Watch};
use crate::stores::bench::Program;
use crate::{Error, Result};

/// The work that a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// TPC-C, without think time.
    Tpcc,
    /// The thirteen steps of SQLite's speed test.
    Rl,
}

/// The modes and the work that are measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The modes, in their turns.
    pub modes: Vec<Mode>,
    /// The work that each run does.
    pub workload: Workload,
    /// Whether it is a fraction that only shows that everything runs.
    pub is_small: bool,
    /// Warehouses of TPC-C.
    pub warehouses: u32,
    /// Threads that do transactions of TPC-C, each with a connection; of each process.
    pub workers: u32,
    /// Processes with these threads; 0: this process.
    pub processes: u32,
    /// Processes that read the status, as often as `readers` says.
    pub reader_processes: u32,
    /// How often one of these processes is killed in TPC-C, and another one started: the run lasts
    /// until then, if that is longer.
    pub kills: u32,
    /// The command that starts these processes.
    pub program: Option<Program>,
    /// Reads of the status, each second.
    pub readers: u32,
    /// Whether one more connection holds the snapshot of the beginning, in TPC-C.
    pub held_reader: bool,
    /// The time for which TPC-C runs before anything counts.
    pub warmup: Duration,
    /// The time for which it counts.
    pub duration: Duration,
    /// Rounds of turns.
    pub rounds: u32,
    /// MiB that each connection caches.
    pub cache_mib: u32,
    /// The seed of everything random.
    pub seed: u64,
    /// An empty folder; two databases fit there.
    pub folder: PathBuf,
}

impl Plan {
    /// Rows of TPC-C.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let warehouses = i64::from(self.warehouses);
        if self.is_small { Sizes::small(warehouses) } else { Sizes::full(warehouses) }
    }

    /// Rows of the RL script.
    #[must_use]
    pub const fn rl_sizes(&self) -> esker_workload::rl::Sizes {
        if self.is_small {
            esker_workload::rl::Sizes::small()
        } else {
            esker_workload::rl::Sizes::full()
        }
    }
}

/// Measures; `tell` hears what happens, and says whether to go on. Each mode is a system.
///
/// # Errors
/// Those of SQLite and of the system; [`Error::Invalid`] where a database is not what the
/// transactions make of it.
pub fn run(plan: &Plan, tell: &mut dyn FnMut(Event<'_>) -> bool) -> Result<Findings> {
    mode::link()?;
    let mut watch = Watch::new("what a sync costs", tell);
    watch.progress(0.0)?;
    let probe = probe::probe(&plan.folder)?;
    let filled = plan.folder.join("filled.db");
    fill(plan, &filled, &mut watch)?;
    let mut found = describe(plan);
    probe.record(&mut found);
    for round in 1..=plan.rounds {
        for mode in &plan.modes {
            let name = mode.as_str();
            watch.what = if plan.rounds == 1 {
                name.to_owned()
            } else {
                format!("{name}, round {round} of {}", plan.rounds)
            };
            let metrics = one(plan, *mode, &filled, &mut watch)?;
            let line = line(plan, &watch.what, &metrics);
            watch.done(&line)?;
            found.add(None, name, None, metrics);
        }
    }
    fs::remove_file(&filled).map_err(Error::system("remove the filled database"))?;
    same_rows(&found)?;
    found.verdicts = bars::bars(&found, plan.workload);
    Ok(found)
}

/// Findings without runs.
fn describe(plan: &Plan) -> Findings {
    let mut found = Findings::of("sqlite", "SQLite over the page store and with its own journals");
    found.machine = machine();
    found.set("sqlite", rusqlite::version());
    found.set("workload", if plan.workload == Workload::Tpcc { "tpcc" } else { "rl" });
    found.set("scale", if plan.is_small { "small" } else { "full" });
    found.set("warehouses", plan.warehouses);
    found.set("workers", plan.workers);
    found.set("processes", plan.processes);
    found.set("reader_processes", plan.reader_processes);
    found.set("kills", plan.kills);
    found.set("readers_per_second", plan.readers);
    found.set("held_reader", plan.held_reader);
    found.set("warmup_seconds", plan.warmup.as_secs_f64());
    found.set("seconds", plan.duration.as_secs_f64());
    found.set("rounds", plan.rounds);
    found.set("cache_mib", plan.cache_mib);
    found.set("seed", plan.seed);
    found
}

/// Turns an answer of SQLite into an error that says what was tried.
pub(crate) fn failed(mode: Mode, what: &'static str) -> impl FnOnce(rusqlite::Error) -> Error {
    move |error| Error::Run(format!("{}: cannot {what}: {error}", mode.as_str()))
}

/// Makes the database that runs begin from.
fn fill(plan: &Plan, path: &Path, watch: &mut Watch<'_>) -> Result<()> {
    watch.what = "filling a database".to_owned();
    let mut go_on =
        |done: i64| watch.progress(done as f64 / f64::from(plan.warehouses.max(1))).is_ok();
    let is_going_on = go_on(0);
    let mut fill = || {
        let connection = Connection::open(path)?;
        connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")?;
        connection.execute_batch(readers::STATUS)?;
        if plan.workload == Workload::Tpcc {
            load::load(&connection, plan.sizes(), plan.seed, &mut go_on)?;
        }
        Ok(())
    };
    if !is_going_on {
        return Err(Error::Interrupted);
    }
    fill().map_err(|error: rusqlite::Error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::OperationInterrupted) => Error::Interrupted,
        _ => Error::Run(format!("cannot fill {}: {error}", path.display())),
    })
}

/// Copies the filled database to a folder of its own, makes one run, and removes the folder.
fn one(plan: &Plan, mode: Mode, filled: &Path, watch: &mut Watch<'_>) -> Result<Metrics> {
    let folder = plan.folder.join(mode.as_str());
    fs::create_dir(&folder).map_err(Error::system(format!("make {}", folder.display())))?;
    let place = Place { mode, folder, cache_mib: plan.cache_mib };
    let run = copy(&place, filled).and_then(|()| match plan.workload {
        Workload::Tpcc => tpcc::run(plan, &place, watch),
        Workload::Rl => rl::run(plan, &place, watch),
    });
    let removed = fs::remove_dir_all(&place.folder);
    let metrics = run?;
    removed.map_err(Error::system("remove the database"))?;
    Ok(metrics)
}

fn copy(place: &Place, filled: &Path) -> Result<()> {
    let copy = || {
        let connection = Connection::open(filled)?;
        connection.execute("VACUUM INTO ?1", [place.uri()]).map(drop)
    };
    copy().map_err(failed(place.mode, "copy the filled database"))?;
    // What the copy left to the system to write is not the run's.
    let made = place.folder.join("app.db");
    File::open(&made)
        .and_then(|file| file.sync_all())
        .map_err(Error::system(format!("sync {}", made.display())))
}

/// Runs `body`; a failure ends the run.
fn ending<T>(shared: &Shared, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let done = body();
    if done.is_err() {
        shared.enter(Phase::Ending);
    }
    done
}

/// Whether SQLite finds the database whole.
fn whole(place: &Place, connection: &Connection) -> Result<()> {
    let answer = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0));
    let answer: String = answer.map_err(failed(place.mode, "check the database"))?;
    if answer == "ok" {
        return Ok(());
    }
    Err(Error::Invalid(format!("{}: integrity_check says: {answer}", place.mode.as_str())))
}

/// All runs of the script must leave the same rows.
fn same_rows(found: &Findings) -> Result<()> {
    let runs = found.whole().measured().flat_map(|mode| &mode.runs);
    let mut prints = runs.filter_map(|run| run.get("fingerprint"));
    let first = prints.next();
    if prints.all(|print| Some(print) == first) {
        return Ok(());
    }
    Err(Error::Invalid("the modes do not leave the same rows".to_owned()))
}

fn line(plan: &Plan, what: &str, metrics: &Metrics) -> String {
    let metric = |name: &str| metrics.get(name).copied().unwrap_or(0.0);
    match plan.workload {
        Workload::Tpcc => format!("{what}: {:.0} NOTPM", metric("notpm")),
        Workload::Rl => format!("{what}: {:.2} s", metric("seconds")),
    }
}

#[cfg(test)]
mod tests;
