//! `esker bench operations`: what the store's operations beyond put, get and scan cost.
//!
//! A [`Case`] compares ways of doing the same thing, which take turns, and is a file of its own
//! here. Every way gives a few metrics, and the ratios that matter have bars.

pub mod backup;
pub mod compression;
pub mod counter;
pub mod large;
pub mod queue;
pub mod transaction;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use esker::{Db, IndexKind, Keyspace, KeyspaceOptions};
use esker_lab_measure::process::machine;
use esker_lab_result::{Findings, Metrics, Part, Verdict};

use crate::{Error, Result};

/// A case of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// See [`transaction`].
    Transaction,
    /// See [`compression`].
    Compression,
    /// See [`backup`].
    Backup,
    /// See [`queue`].
    Queue,
    /// See [`large`].
    Large,
    /// See [`counter`].
    Counter,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Transaction,
        Self::Compression,
        Self::Backup,
        Self::Queue,
        Self::Large,
        Self::Counter,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transaction => "transaction",
            Self::Compression => "compression",
            Self::Backup => "backup",
            Self::Queue => "queue",
            Self::Large => "large",
            Self::Counter => "counter",
        }
    }

    /// The case of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|case| case.as_str() == name)
    }

    /// A short description of it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Transaction => "ten puts at once",
            Self::Compression => "random load, then lookups",
            Self::Backup => "backups into one folder, each after a change",
            Self::Queue => "entries that come at the end and go from the front",
            Self::Large => "values of 1 MiB, compared with the disk",
            Self::Counter => "counters that are counted up",
        }
    }

    fn round(self, bench: &Bench<'_>, number: u32) -> Result<Vec<(String, Metrics)>> {
        match self {
            Self::Transaction => transaction::round(bench, number),
            Self::Compression => compression::round(bench),
            Self::Backup => backup::round(bench),
            Self::Queue => queue::round(bench),
            Self::Large => large::round(bench),
            Self::Counter => counter::round(bench),
        }
    }

    fn bars(self, found: Part<'_>) -> Vec<Verdict> {
        match self {
            Self::Transaction => transaction::bars(found),
            Self::Compression => compression::bars(found),
            Self::Backup => backup::bars(found),
            Self::Queue => queue::bars(found),
            Self::Large => large::bars(found),
            Self::Counter => counter::bars(found),
        }
    }
}

/// The cases that are measured, and their sizes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cases.
    pub cases: Vec<Case>,
    /// Entries of 16 + 100 bytes that a store is loaded with.
    pub entries: u64,
    /// The memory budget of every store.
    pub budget_bytes: u64,
    /// The kind of index of every keyspace.
    pub index: IndexKind,
    /// Rounds in which the ways take turns.
    pub rounds: u32,
    /// An empty folder.
    pub folder: PathBuf,
}

/// Measures; `tell` hears what is done, and says whether to go on. Each case is a part of what is
/// found, and each way a system.
///
/// # Errors
/// Those of the store and of the system; [`Error::Interrupted`].
pub fn run(plan: &Plan, tell: &mut dyn FnMut(&str) -> bool) -> Result<Findings> {
    let mut found = Findings::of("operations", "operations beyond put, get and scan");
    found.machine = machine();
    found.set("entries", plan.entries);
    found.set("budget_bytes", plan.budget_bytes);
    found.set("index", plan.index.name());
    found.set("rounds", plan.rounds);
    for case in &plan.cases {
        measure(plan, *case, &mut found, tell)?;
        let part = |bar| Verdict { part: Some(case.as_str().to_owned()), ..bar };
        let bars = case.bars(found.part(case.as_str()));
        found.verdicts.extend(bars.into_iter().map(part));
    }
    Ok(found)
}

fn measure(
    plan: &Plan,
    case: Case,
    found: &mut Findings,
    tell: &mut dyn FnMut(&str) -> bool,
) -> Result<()> {
    for number in 1..=plan.rounds {
        let what = format!("{}, round {number} of {}", case.as_str(), plan.rounds);
        if !tell(&what) {
            return Err(Error::Interrupted);
        }
        for (way, metrics) in case.round(&Bench { plan }, number)? {
            found.add(Some(case.as_str()), &way, None, metrics);
        }
    }
    Ok(())
}

/// The maker of a round's stores.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    plan: &'a Plan,
}

impl Bench<'_> {
    fn folder(&self, name: &str) -> PathBuf {
        self.plan.folder.join(name)
    }

    /// A new store in the folder's `name`.
    fn store(&self, name: &str, options: KeyspaceOptions) -> Result<(Db, Keyspace)> {
        let db = Db::builder(self.folder(name)).memory_budget(self.plan.budget_bytes).open()?;
        let keyspace = db.keyspace("default", options.index(self.plan.index))?;
        Ok((db, keyspace))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.folder(name);
        fs::remove_dir_all(&path).map_err(Error::system(format!("remove {}", path.display())))
    }
}

/// Waits until nothing is written out and nothing merged any more.
fn wait_idle(db: &Db) -> Result<()> {
    db.flush()?;
    loop {
        let stats = db.stats()?;
        let is_busy = |of: &esker::KeyspaceStats| of.merge.is_some() || of.flushing;
        if !stats.keyspaces.iter().any(is_busy) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Seconds that `what` takes, and what it gives.
fn timed<T>(what: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let started = Instant::now();
    let done = what()?;
    Ok((started.elapsed().as_secs_f64().max(1e-9), done))
}

fn metrics<const N: usize>(values: [(&str, f64); N]) -> Metrics {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_and_says_what_it_found() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            cases: Case::ALL.to_vec(),
            entries: 6_000,
            budget_bytes: 4 << 20,
            index: IndexKind::FdTree,
            rounds: 2,
            folder: folder.path().to_owned(),
        };
        let found = run(&plan, &mut |_| true).unwrap();
        for case in Case::ALL {
            let bars =
                || found.verdicts.iter().filter(|bar| bar.part.as_deref() == Some(case.as_str()));
            assert_eq!(bars().count() == 0, case == Case::Queue);
            assert!(bars().all(|bar| bar.value.is_some()), "{:?}", found.verdicts);
            let part = found.part(case.as_str());
            assert!(part.is_there() && part.measured().all(|way| way.runs.len() == 2));
            assert_eq!(Case::parse(case.as_str()), Some(case));
        }
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "stores are left");
        let interrupted = run(&plan, &mut |_| false);
        assert!(matches!(interrupted, Err(Error::Interrupted)));
    }
}
