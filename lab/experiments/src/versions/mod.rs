//! `esker bench history`: what it costs to keep every version, in several ways.
//!
//! Each system inserts the same keys, overwrites them in the same order and then reads the present
//! and the past: [`load`], [`reads`]. All answers are compared: with the workload, from which they
//! follow ([`workload`], [`check`]), and between the systems.
//!
//! The systems run one after the other in this process, each in a folder of its own. What is said
//! of bytes is what the kernel counts for the process; Esker's counters are in the metrics too.

pub mod check;
pub mod load;
pub mod reads;
pub mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use esker_lab_measure::cgroup::{self, Cgroup};
use esker_lab_measure::process::machine;
use esker_lab_result::{Findings, Metrics};
use esker_peers::rocksdb_version;
use esker_peers::versions::{self, Way};

use self::workload::Workload;
use crate::progress::{Event, Watch};
use crate::stores::bench::forget_pages;
use crate::{Error, Result};

/// The systems and the work that are compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The systems, in their turns.
    pub systems: Vec<Way>,
    /// Keys of 16 bytes, with values of 100.
    pub keys: u64,
    /// How often each key is overwritten on average, a part of the comparison each.
    pub overwrites: Vec<u64>,
    /// Puts of a commit.
    pub batch: u64,
    /// The memory budget of every store.
    pub budget_bytes: u64,
    /// The limit of memory around the process, page cache included.
    pub limit_bytes: Option<u64>,
    /// The `history_share` of [`Way::Esker`].
    pub share: Option<f64>,
    /// Rounds of turns.
    pub rounds: u32,
    /// The seed of everything random.
    pub seed: u64,
    /// An empty folder.
    pub folder: PathBuf,
}

/// The least number of commits, so that moments and ages differ.
const COMMITS_MIN: u64 = 1_000;

/// Measures; `tell` hears what happens, and says whether to go on. Each number of overwrites is a
/// part. A run that fails, or whose answers are wrong, is in what is found; the others go on.
///
/// # Errors
/// [`Error::Interrupted`]; [`Error::Input`] for a plan of too few commits; [`Error::Store`] where
/// RocksDB is to be measured and its library is not one that fits.
pub fn run(plan: &Plan, tell: &mut dyn FnMut(Event<'_>) -> bool) -> Result<Findings> {
    let of = |overwrites: &u64| Workload {
        keys: plan.keys,
        overwrites: *overwrites,
        batch: plan.batch,
        seed: plan.seed,
    };
    let works: Vec<Workload> = plan.overwrites.iter().map(of).collect();
    if works.iter().any(|work| work.overwrites == 0 || work.commits() < COMMITS_MIN) {
        let text = format!("each key is overwritten, in {COMMITS_MIN} commits or more");
        return Err(Error::Input(text));
    }
    let mut watch = Watch::new("", tell);
    let mut found = describe(plan)?;
    let _group = enter_group(plan, &mut found);
    for work in &works {
        let part = work.name();
        for round in 1..=plan.rounds {
            for way in &plan.systems {
                watch.what = format!("{way}, {part}");
                if plan.rounds > 1 {
                    watch.what.push_str(&format!(", round {round} of {}", plan.rounds));
                }
                watch.progress(0.0)?;
                match one(plan, *way, work, &mut watch) {
                    Err(Error::Interrupted) => return Err(Error::Interrupted),
                    Err(error) => found.add_failure(Some(&part), way.as_str(), error.to_string()),
                    Ok(metrics) => {
                        watch.done(&line(&watch.what.clone(), &metrics))?;
                        found.add(Some(&part), way.as_str(), None, metrics);
                    }
                }
            }
        }
        compare(&mut found, &part);
    }
    Ok(found)
}

/// Findings without runs.
fn describe(plan: &Plan) -> Result<Findings> {
    let mut found = Findings::of("history", "ways of keeping every version of a map");
    found.machine = machine();
    found.set("keys", plan.keys);
    found.set("puts_per_commit", plan.batch);
    found.set("budget_bytes", plan.budget_bytes);
    found.set("memory_limit_bytes", plan.limit_bytes);
    found.set("history_share", plan.share);
    found.set("rounds", plan.rounds);
    found.set("seed", plan.seed);
    found.set("sqlite", rusqlite::version());
    if plan.systems.contains(&Way::Rocksdb) {
        let note = "rocksdb: keys with an inverted version behind them and a prefix filter, not \
                    its user-defined timestamps";
        found.notes.push(note.to_owned());
        if let Some(version) = rocksdb(&plan.folder.join("empty"))? {
            found.set("rocksdb_version", version.as_str());
            found.notes.push(format!("the library is RocksDB {version}"));
        }
    }
    Ok(found)
}

/// The version of RocksDB, where it is built in, by a store in `folder` that is removed again.
fn rocksdb(folder: &Path) -> Result<Option<String>> {
    let version = rocksdb_version(folder)?;
    if version.is_some() {
        fs::remove_dir_all(folder)
            .map_err(Error::system(format!("remove {}", folder.display())))?;
    }
    Ok(version)
}

/// A group that this process is in.
struct Entered {
    _group: Cgroup,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // A process that cannot leave stays limited, and its group is left to the system.
        let _ = cgroup::leave();
    }
}

fn enter_group(plan: &Plan, found: &mut Findings) -> Option<Entered> {
    let limit = plan.limit_bytes?;
    let name = format!("esker-bench-history-{}", std::process::id());
    let entered = Cgroup::create(&name, limit).and_then(|group| {
        cgroup::enter(group.folder()).map_err(|error| error.to_string())?;
        Ok(Entered { _group: group })
    });
    let noted = entered.map_err(|why| {
        found.notes.push(format!("no limit of memory around the runs: {why}"));
        found.set("memory_limit_bytes", serde_json::Value::Null);
    });
    noted.ok()
}

/// Loads a store, reopens it with nothing of it in memory, reads, and removes it.
fn one(plan: &Plan, way: Way, work: &Workload, watch: &mut Watch<'_>) -> Result<Metrics> {
    let folder = plan.folder.join(way.as_str());
    let metrics = load_and_read(plan, way, work, &folder, watch);
    let removed = fs::remove_dir_all(&folder);
    let metrics = metrics?;
    removed.map_err(Error::system(format!("remove {}", folder.display())))?;
    Ok(metrics)
}

fn load_and_read(
    plan: &Plan,
    way: Way,
    work: &Workload,
    folder: &Path,
    watch: &mut Watch<'_>,
) -> Result<Metrics> {
    let store = versions::open(way, folder, plan.budget_bytes, plan.share)?;
    let mut loaded = load::load(work, store.as_ref(), folder, watch)?;
    store.close()?;
    forget_pages(folder)?;
    let store = versions::open(way, folder, plan.budget_bytes, plan.share)?;
    let read = reads::read(work, way, store.as_ref(), &loaded.written, watch)?;
    check::check(work, way, store.as_ref(), &loaded.written)?;
    store.close()?;
    loaded.metrics.extend(read);
    Ok(loaded.metrics)
}

/// Sums of answers, which must be equal.
const ANSWERS: [&str; 2] = [load::ANSWERS, reads::ANSWERS];

/// Adds a failure where a system's answers differ from those of the first.
fn compare(found: &mut Findings, part: &str) {
    let mut wrong = Vec::new();
    for metric in ANSWERS.iter().chain([&reads::PAST_ANSWERS]) {
        let measured = found.part(part).measured().map(|of| of.system.as_str());
        let values = measured.flat_map(|system| {
            let values = found.part(part).values(system, metric);
            values.into_iter().map(move |value| (system, value))
        });
        let values: Vec<(&str, f64)> = values.collect();
        let Some((first, expected)) = values.first() else { continue };
        let other = values.iter().find(|(_, value)| value != expected);
        let why = other.map(|(system, _)| {
            (system.to_string(), format!("{metric}: its answers are not those of {first}"))
        });
        wrong.extend(why);
    }
    for (system, why) in wrong {
        found.add_failure(Some(part), &system, why);
    }
}

fn line(what: &str, metrics: &Metrics) -> String {
    let metric = |name: &str| metrics.get(name).copied().unwrap_or(0.0);
    let (rate, written) = (metric("rate"), metric("written_per_byte"));
    format!("{what}: {rate:.0} puts/s, {written:.2} bytes written per user byte")
}

#[cfg(test)]
mod tests;
