//! One run: an index, its requests, and what passed between memory and the device.

use esker_lab_measure::scale::Scale;
use esker_lab_result::Metrics;
use esker_workload::Random;
use serde_json::{Value, json};

use super::bulk::{Bulk, Options};
use super::keyspace::Kept;
use super::mvbt::Mvbt;
use super::node::Layout;
use super::pages::Counters;
use super::tmvbt::Tmvbt;
use super::tree::Tree;
use super::workload::{Mix, Request, Requests, Shape};
use super::{Multiversion, Version};
use crate::Result;
use crate::experiment::{Watch, go_on, metric};

/// Pages written, the log's not; a page that stays in memory is written once, at the end.
pub const WRITES: &str = "writes_per_op";
/// Pages written, if every transaction writes what it changed when it commits, each page once,
/// however many those are.
pub const FORCED: &str = "forced_per_op";
/// The share of pages written right behind the page written before.
pub const SEQUENTIAL: &str = "sequential_percent";
/// Pages read.
pub const READS: &str = "reads_per_op";
/// Pages of the log, of which every commit writes one at least.
pub const LOGGED: &str = "log_pages_per_op";
/// Pages that the index takes at the end.
pub const SPACE: &str = "pages_per_thousand_ops";
/// Pages read by a lookup of a key that is there.
pub const LOOKUP: &str = "reads_per_lookup";
/// The same in the version in the middle of the history, of a key that is there at its end.
pub const PAST: &str = "reads_per_past_lookup";
/// Sequential version splits; of the other trees, pages that were copied by version splits.
pub const SPLITS: &str = "version_splits";
/// Entries in the levels of the current root, over keys that are there.
pub const CARRIED: &str = "carried_per_live";

/// The columns of the tables.
pub const COLUMNS: &[&str] = &[WRITES, FORCED, SEQUENTIAL, READS, SPACE, LOOKUP, PAST, SPLITS];

/// Lookups after a run, in each version.
const LOOKUPS: u64 = 1000;
/// The seed of all runs.
const SEED: u64 = 1;

/// An index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum System {
    /// One item a version.
    Mvbt,
    /// A transaction a version.
    Tmvbt,
    /// The bulk-split tree, with these options.
    Bulk(Options),
    /// A keyspace with history, whose pages are counted but not ordered.
    Keyspace,
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// On which index.
    pub system: System,
    /// Operations.
    pub operations: u64,
    /// How they are divided among transactions.
    pub shape: Shape,
    /// What they are.
    pub mix: Mix,
    /// Pages in memory. The bulk-split tree has its head in them.
    pub memory_pages: usize,
}

/// An index that counts.
trait Counted: Multiversion {
    fn counters(&self) -> Result<Counters>;
    /// Pages that forced commits write; `None` if order and force are not known.
    fn forced(&self) -> Option<u64>;
    fn log_pages(&self) -> Result<u64>;
    fn finish(&mut self) -> Result<()>;
    fn pages(&mut self) -> Result<u64>;
    fn splits(&self) -> Result<u64>;
    fn carried(&self) -> Result<u64>;
}

/// Makes a run.
///
/// # Errors
/// Those of the index; when a stop was requested.
pub fn measure(plan: &Plan, watch: &mut dyn Watch) -> Result<Metrics> {
    match plan.system {
        System::Mvbt => run(&mut Mvbt::new(Layout::WIDE, plan.memory_pages)?, plan, watch),
        System::Tmvbt => run(&mut Tmvbt::new(Layout::WIDE, plan.memory_pages)?, plan, watch),
        System::Bulk(options) => {
            let pool_pages = plan.memory_pages.saturating_sub(options.head_leaves);
            run(&mut Bulk::new(Options { pool_pages, ..options })?, plan, watch)
        }
        System::Keyspace => run(&mut Kept::new(plan.memory_pages)?, plan, watch),
    }
}

fn run<T: Counted>(index: &mut T, plan: &Plan, watch: &mut dyn Watch) -> Result<Metrics> {
    let mut requests = Requests::new(SEED, plan.mix, plan.operations);
    let size = plan.shape.transaction(plan.operations);
    let mut versions = Vec::new();
    let mut value = 0;
    loop {
        go_on(watch)?;
        let transaction: Vec<Request> = requests.by_ref().take(size as usize).collect();
        if transaction.is_empty() {
            break;
        }
        index.begin()?;
        for request in transaction {
            value += 1;
            match request {
                Request::Insert(key) => index.insert(key, value)?,
                Request::Delete(key) => index.delete(key)?,
            }
        }
        versions.push(index.commit()?);
    }
    index.finish()?;
    let mut metrics = written(index, plan.operations as f64)?;
    let live = requests.live.len().max(1) as f64;
    metric(&mut metrics, CARRIED, index.carried()? as f64 / live);
    for (name, at) in [(LOOKUP, versions.len().saturating_sub(1)), (PAST, versions.len() / 2)] {
        let version = versions.get(at).copied().unwrap_or_default();
        metric(&mut metrics, name, looked_up(index, &requests, version)?);
    }
    Ok(metrics)
}

fn written<T: Counted>(index: &mut T, operations: f64) -> Result<Metrics> {
    let counters = index.counters()?;
    let mut metrics = Metrics::new();
    let writes = counters.writes as f64;
    for (name, value) in [
        (WRITES, writes / operations),
        (READS, counters.reads as f64 / operations),
        (LOGGED, index.log_pages()? as f64 / operations),
        (SPACE, 1000.0 * index.pages()? as f64 / operations),
        (SPLITS, index.splits()? as f64),
    ] {
        metric(&mut metrics, name, value);
    }
    if let Some(forced) = index.forced() {
        metric(&mut metrics, FORCED, forced as f64 / operations);
        metric(&mut metrics, SEQUENTIAL, 100.0 * counters.sequential as f64 / writes.max(1.0));
    }
    Ok(metrics)
}

fn looked_up<T: Counted>(index: &mut T, requests: &Requests, version: Version) -> Result<f64> {
    let before = index.counters()?.reads;
    let mut random = Random::new(SEED + 1);
    for _ in 0..LOOKUPS {
        if let Some(key) = requests.live.any(&mut random) {
            index.get(key, version)?;
        }
    }
    Ok((index.counters()?.reads - before) as f64 / LOOKUPS as f64)
}

/// The settings that all runs of a scale have in common.
#[must_use]
pub fn settings(scale: Scale, options: &Options, memory_pages: &str) -> Value {
    json!({
        "memory_pages": memory_pages,
        "page_bytes": options.page_bytes,
        "head_leaves": options.head_leaves,
        "ratio": options.ratio,
        "dead_share": options.dead_share,
        "lookups": LOOKUPS,
        "seed": SEED,
        "sizes": sizes(scale),
    })
}

/// The numbers of operations beyond those of the paper.
#[must_use]
pub const fn sizes(scale: Scale) -> &'static [u64] {
    match scale {
        Scale::Tiny => &[20_000],
        Scale::Small => &[100_000, 1_000_000],
        Scale::Full => &[100_000, 1_000_000, 10_000_000],
    }
}

macro_rules! counted {
    ($name:ident) => {
        impl Counted for $name {
            fn counters(&self) -> Result<Counters> {
                Ok(Tree::counters(&self.0))
            }

            fn forced(&self) -> Option<u64> {
                Some(self.0.forced())
            }

            fn log_pages(&self) -> Result<u64> {
                Ok(self.0.log().pages())
            }

            fn finish(&mut self) -> Result<()> {
                self.0.flush()
            }

            fn pages(&mut self) -> Result<u64> {
                self.0.survey().map(|survey| survey.pages)
            }

            fn splits(&self) -> Result<u64> {
                Ok(self.0.changes().version_splits)
            }

            fn carried(&self) -> Result<u64> {
                Ok(0)
            }
        }
    };
}

counted!(Mvbt);
counted!(Tmvbt);

impl Counted for Bulk {
    fn counters(&self) -> Result<Counters> {
        Ok(Self::counters(self))
    }

    fn forced(&self) -> Option<u64> {
        Some(Self::forced(self))
    }

    fn log_pages(&self) -> Result<u64> {
        Ok(self.log().pages())
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()
    }

    fn pages(&mut self) -> Result<u64> {
        Ok(Self::pages(self))
    }

    fn splits(&self) -> Result<u64> {
        Ok(self.work().splits)
    }

    fn carried(&self) -> Result<u64> {
        Ok(Self::carried(self))
    }
}

impl Counted for Kept {
    fn counters(&self) -> Result<Counters> {
        Self::counters(self)
    }

    fn forced(&self) -> Option<u64> {
        None
    }

    fn log_pages(&self) -> Result<u64> {
        Self::log_pages(self)
    }

    fn finish(&mut self) -> Result<()> {
        self.flush()
    }

    fn pages(&mut self) -> Result<u64> {
        Self::pages(self)
    }

    fn splits(&self) -> Result<u64> {
        Ok(self.indexes()?.0)
    }

    fn carried(&self) -> Result<u64> {
        Ok(self.indexes()?.1)
    }
}
