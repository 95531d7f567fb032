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
use serde_json::{Map, Value, json};

use crate::bar::Bar;
use crate::measure::Metrics;
use crate::measure::process::machine;
use crate::measure::summary::median;
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

    fn bars(self, found: &Found) -> Vec<Bar> {
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

/// The results of one case.
#[derive(Clone, Debug)]
pub struct Found {
    /// The case.
    pub case: Case,
    /// The ways, and the metrics of each in every round.
    pub ways: Vec<(String, Vec<Metrics>)>,
}

impl Found {
    fn values(&self, way: &str, metric: &str) -> Vec<f64> {
        let of_way = self.ways.iter().filter(|(name, _)| name == way);
        of_way.flat_map(|(_, rounds)| rounds).filter_map(|all| all.get(metric).copied()).collect()
    }

    /// The median of a way over the rounds.
    #[must_use]
    pub fn median(&self, way: &str, metric: &str) -> Option<f64> {
        median(self.values(way, metric))
    }

    /// The median over the rounds of the ratio of the one way's value to the other's: what
    /// disturbs the machine for a while then disturbs both.
    #[must_use]
    pub fn ratio(&self, way: &str, other: &str, metric: &str) -> Option<f64> {
        let pairs = self.values(way, metric).into_iter().zip(self.values(other, metric));
        median(pairs.filter(|(_, other)| *other > 0.0).map(|(way, other)| way / other).collect())
    }

    /// The bars that must hold.
    #[must_use]
    pub fn bars(&self) -> Vec<Bar> {
        self.case.bars(self)
    }

    /// Everything, for machines.
    #[must_use]
    pub fn json(&self) -> Value {
        let ways: Map<String, Value> =
            self.ways.iter().map(|(name, rounds)| (name.clone(), json!(rounds))).collect();
        let bars: Vec<Value> = self.bars().iter().map(Bar::json).collect();
        json!({ "case": self.case.as_str(), "machine": machine(), "ways": ways, "bars": bars })
    }
}

/// Measures; `tell` hears what is done, and says whether to go on.
///
/// # Errors
/// Those of the store and of the system; [`Error::Interrupted`].
pub fn run(plan: &Plan, tell: &mut dyn FnMut(&str) -> bool) -> Result<Vec<Found>> {
    plan.cases.iter().map(|case| measure(plan, *case, tell)).collect()
}

fn measure(plan: &Plan, case: Case, tell: &mut dyn FnMut(&str) -> bool) -> Result<Found> {
    let mut found = Found { case, ways: Vec::new() };
    for number in 1..=plan.rounds {
        let what = format!("{}, round {number} of {}", case.as_str(), plan.rounds);
        if !tell(&what) {
            return Err(Error::Interrupted);
        }
        for (way, metrics) in case.round(&Bench { plan }, number)? {
            match found.ways.iter_mut().find(|(name, _)| *name == way) {
                Some((_, rounds)) => rounds.push(metrics),
                None => found.ways.push((way, vec![metrics])),
            }
        }
    }
    Ok(found)
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
        assert_eq!(found.len(), Case::ALL.len());
        for found in &found {
            assert_eq!(found.bars().is_empty(), found.case == Case::Queue);
            assert!(found.bars().iter().all(|bar| bar.value.is_some()), "{:?}", found.bars());
            assert!(found.ways.iter().all(|(_, rounds)| rounds.len() == 2));
            assert_eq!(Case::parse(found.json()["case"].as_str().unwrap()), Some(found.case));
        }
        assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "stores are left");
        let interrupted = run(&plan, &mut |_| false);
        assert!(matches!(interrupted, Err(Error::Interrupted)));
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let rounds = |values: [f64; 3]| values.map(|value| metrics([("x", value)])).to_vec();
        let ways = vec![
            ("slow".to_owned(), rounds([2.0, 40.0, 6.0])),
            ("fast".to_owned(), rounds([1.0, 10.0, 2.0])),
        ];
        let found = Found { case: Case::Backup, ways };
        assert_eq!(found.ratio("slow", "fast", "x"), Some(3.0));
        assert_eq!(found.median("slow", "x"), Some(6.0));
        assert_eq!(found.ratio("slow", "absent", "x"), None);
    }
}
