//! A store that is used as hard as can be, by several threads, in a process that is killed.
//!
//! A *campaign* is one folder and several *rounds*. In a round a child process opens the store and
//! runs a history for each of its workers ([`plan`]), all at once: writes, batches and transactions
//! over keyspaces of both kinds that they share, and over their own, which come and go; snapshots
//! and scans both ways, against a model (`worker`). Concurrently another thread checks the store,
//! makes incremental backups and compares what is restored, and lets the device be full for a while
//! (`maintenance`, `filling`). Most rounds end with the process killed. The parent then opens
//! the store and compares it with what was acknowledged.
//!
//! The operations of a worker follow from the seed; how threads meet, when the device is full and
//! where the kill falls do not. A worker writes only keys that begin with its own letter, so that
//! what must be there follows from its own history. Time passes between rounds, and only there.

mod filling;
mod maintenance;
pub mod plan;
mod worker;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use esker::Db;

use crate::counts::Counts;
use crate::random::Random;
use crate::violation::{Oracle, Verdict, Violation, ensure};
use plan::{Plan, WORKERS};
use worker::Part;

/// Names a child's plan to the child.
pub const CHILD_PLAN: &str = "ESKER_SOAK_CHILD";

/// Rounds of a campaign: each replays those before it.
const ROUNDS: u64 = 4;

/// A round that ends by itself takes no longer.
const ROUND_SECONDS_MAX: u64 = 300;

/// The line of a child that has opened the store; below, those when all is done, when a promise is
/// broken, and of a count.
const OPENED: &str = "SOAK OPENED";
const CLOSED: &str = "SOAK CLOSED";
const BROKEN: &str = "SOAK BROKEN ";
const COUNTED: &str = "SOAK COUNTED ";

fn harness(error: impl std::fmt::Display) -> Violation {
    Violation::new(Oracle::Harness, error.to_string())
}

/// Starts a child with a plan.
pub type Spawn<'a> = dyn FnMut(&str) -> std::io::Result<Child> + 'a;

/// Runs a campaign of `seed` in `folder`, which is empty.
///
/// # Errors
/// The first broken promise, with the seed and the round.
pub fn campaign(seed: u64, folder: &Path, spawn: &mut Spawn<'_>, counts: &mut Counts) -> Verdict {
    let mut plan = Plan::new(seed, folder);
    for round in 0..ROUNDS {
        println!("soak: seed {seed}, round {round}");
        run_round(&mut plan, spawn, counts)
            .map_err(|violation| violation.at(format!("seed {seed}, round {round}")))?;
        counts.add("rounds", 1);
    }
    Ok(())
}

/// One round, and what it has left.
fn run_round(plan: &mut Plan, spawn: &mut Spawn<'_>, counts: &mut Counts) -> Verdict {
    let random = Random::new(plan.round_seed());
    plan.clear_acknowledged().map_err(harness)?;
    let mut child = spawn(&plan.encode()).map_err(harness)?;
    let is_killed = random.percent(75);
    let wait = Duration::from_millis(random.below(1_500));
    let outcome = watch(&mut child, is_killed.then_some(wait), counts);
    // In every case, no process is left behind.
    let _killed = child.kill();
    child.wait().map_err(harness)?;
    outcome?;
    counts.add("kills", u64::from(is_killed));
    let done = examine(plan, counts)?;
    plan.next_round(done);
    Ok(())
}

/// Listens to a child until it is done, or kills it so long after it has opened the store.
fn watch(child: &mut Child, kill_after: Option<Duration>, counts: &mut Counts) -> Verdict {
    let pipe = child.stdout.take().ok_or_else(|| harness("the child has no pipe"))?;
    let (sender, lines) = mpsc::channel();
    let listener = std::thread::spawn(move || {
        let said = BufReader::new(pipe).lines().map_while(Result::ok);
        said.filter(|line| line.starts_with("SOAK ")).try_for_each(|line| sender.send(line)).is_ok()
    });
    let limit = Duration::from_secs(ROUND_SECONDS_MAX);
    let silent = |_| Violation::new(Oracle::WorksOn, "the child says nothing, or has died");
    let first = lines.recv_timeout(limit).map_err(silent)?;
    note(&first, counts)?;
    let mut is_closed = false;
    if let Some(wait) = kill_after {
        std::thread::sleep(wait);
        child.kill().map_err(harness)?;
    }
    while let Ok(line) = lines.recv_timeout(limit) {
        is_closed |= line == CLOSED;
        note(&line, counts)?;
    }
    ensure(is_closed || kill_after.is_some(), Oracle::WorksOn, || {
        "the child ended, or hangs, before its histories did".into()
    })?;
    if kill_after.is_some() {
        let _said_all = listener.join();
    }
    Ok(())
}

/// Adds the count that a line of the child reports; a broken promise is an error.
fn note(line: &str, counts: &mut Counts) -> Verdict {
    if let Some(detail) = line.strip_prefix(BROKEN) {
        return Err(Violation::new(Oracle::ContentMatches, detail).at("the child"));
    }
    let counted = line.strip_prefix(COUNTED).and_then(|text| text.rsplit_once(' '));
    if let Some((name, number)) = counted {
        counts.add(name, number.parse().unwrap_or(0));
    }
    Ok(())
}

/// Opens the store as the child has left it; answers how many operations of each worker are in it.
fn examine(plan: &Plan, counts: &mut Counts) -> Verdict<Vec<usize>> {
    let acknowledged = plan.acknowledged().map_err(harness)?;
    let opens = |error: esker::Error| Violation::new(Oracle::Opens, error.to_string());
    let db = plan.open(plan.file_device()?).map_err(opens)?;
    crate::verify::check(&db)?;
    let mut done = Vec::new();
    for (worker, count) in (0..WORKERS).zip(acknowledged) {
        done.push(examine_part(plan, &db, worker, count)?);
        counts.add("operations acknowledged", count as u64);
    }
    crate::verify::check(&db)?;
    db.close().map_err(opens)?;
    Ok(done)
}

/// Compares a worker's part of the store with what was acknowledged to it: of the operation that
/// was under way when the process ended there is all or nothing.
fn examine_part(plan: &Plan, db: &Db, worker: usize, count: usize) -> Verdict<usize> {
    let mut part = Part::replayed(plan, worker, count);
    let outcome = part.compare(db);
    let ops = plan.ops(worker);
    let Some(next) = ops.get(count) else { return outcome.map(|()| count) };
    let Err(violation) = outcome else { return Ok(count) };
    part.note(next);
    let is_whole = part.compare(db).map(|()| count + 1);
    is_whole.map_err(|other| {
        let detail = format!("{}; nor with {next:?}: {}", violation.detail, other.detail);
        Violation::new(Oracle::AcknowledgedIsThere, detail)
            .at(format!("worker {worker} after operation {count}: {}", violation.place))
    })
}

/// The child: opens the store and runs its round, until it is done or killed.
///
/// # Errors
/// When the plan cannot be read.
pub fn child(plan: &str) -> Result<(), Box<dyn std::error::Error>> {
    let plan = Arc::new(Plan::decode(plan).ok_or("the plan cannot be read")?);
    // The test harness may have begun a line of its own.
    println!();
    match maintenance::run(&plan) {
        Ok(counts) => {
            counts.into_iter().for_each(|(name, count)| println!("{COUNTED}{name} {count}"));
            println!("{CLOSED}");
        }
        Err(violation) => {
            let text = violation.to_string().replace(['\n', '\r'], " ");
            println!("{BROKEN}{text}");
        }
    }
    Ok(())
}
