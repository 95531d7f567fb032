//! The runs of a comparison, their order, and their processes.
//!
//! Every run has a process and a folder of its own. Rows that begin with a loaded store get a
//! copy of one that was loaded once, out of the page cache. Within a row, systems take turns:
//! what the machine does meanwhile hits all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use esker::{CompactionPolicy, IndexKind};
use esker_lab_measure::cgroup::Cgroup;
use esker_lab_measure::process::machine;
use esker_lab_result::{Findings, Metrics};
use esker_peers::{Arrangement, Name, rocksdb_version};
use serde_json::Value;

use crate::stores::bars;
use crate::stores::media::Media;
use crate::stores::rows::Row;
use crate::stores::sizes::{self, Scale, Sizes};
use crate::stores::task::Task;
use crate::{Error, Result};

mod spawn;

/// The share of the sustained rate at which writes come during a full merge.
const RATE_SHARE: f64 = 0.7;

/// The command that starts a run: this program with these arguments and then the task.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// The arguments before the task.
    pub arguments: Vec<String>,
}

/// The rows and the systems to be compared.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The scale, from which the sizes follow.
    pub scale: Scale,
    /// Which rows.
    pub rows: Vec<Row>,
    /// Which systems; they alternate.
    pub systems: Vec<Name>,
    /// The kind of index and the policy of Esker's keyspaces.
    pub arrangement: Arrangement,
    /// The simulated SSD on which Esker's files are, if any. Then nothing is judged.
    pub media: Option<Media>,
    /// The folder in which the stores are made; what is made there is removed.
    pub folder: PathBuf,
    /// Writes a second during a full merge; by default a share of RocksDB's rate of loading, in
    /// its faster leveled setting.
    pub rate: Option<f64>,
    /// Runs of each row and system; by default those of the scale.
    pub repeats: Option<u32>,
    /// The command that starts a run.
    pub program: Program,
}

/// The name of one run, for the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunName {
    /// The row.
    pub row: Row,
    /// The system.
    pub system: Name,
    /// Which of how many, from 1; 0 for a load that only serves other rows.
    pub number: u32,
    /// The number of runs that there will be.
    pub of: u32,
}

/// The observer of a comparison. All calls come from the thread that runs it.
pub trait Watch {
    /// A run begins.
    fn begins(&mut self, run: RunName);
    /// `done` of `total` requests are done.
    fn progress(&mut self, done: u64, total: u64);
    /// The run has ended.
    fn ends(&mut self, run: RunName, outcome: &Result<Metrics>);
    /// Whether a stop was requested.
    fn is_interrupted(&self) -> bool;
}

/// Makes the comparison. A run that fails is in what is found; the others go on.
///
/// # Errors
/// [`Error::Interrupted`]; [`Error::System`] where folders cannot be made or copied;
/// [`Error::Store`] where RocksDB is to be measured and its library is not one that fits.
pub fn bench(plan: &Plan, watch: &mut dyn Watch) -> Result<Findings> {
    let found = Findings::of("bench", "Esker and other stores, row by row");
    let mut bench = Bench { plan, watch, found, loaded: Vec::new() };
    bench.describe();
    bench.find_versions()?;
    for row in Row::ALL.into_iter().filter(|row| plan.rows.contains(row)) {
        bench.row(row)?;
    }
    bench.remove(&plan.folder.join(LOADED))?;
    if plan.media.is_none() {
        bench.found.verdicts = bars::judge(&bench.found, plan.arrangement);
    }
    Ok(bench.found)
}

const LOADED: &str = "loaded";
const RUN: &str = "run";
const EMPTY: &str = "empty";

struct Bench<'a> {
    plan: &'a Plan,
    watch: &'a mut dyn Watch,
    found: Findings,
    /// Systems whose loaded store is there, with the rate of its load.
    loaded: Vec<(Name, f64)>,
}

impl Bench<'_> {
    fn describe(&mut self) {
        let (plan, sizes) = (self.plan, Sizes::at(self.plan.scale));
        let found = &mut self.found;
        found.machine = machine();
        found.set("scale", plan.scale.as_str());
        let Arrangement { index, policy } = plan.arrangement;
        found.set("index", index.name());
        if index == IndexKind::Lsm {
            found.set("policy", policy.name());
        }
        found.set("entries", sizes.entries);
        found.set("budget_bytes", sizes.budget_bytes);
        found.set("memory_limit_bytes", sizes.memory_limit_bytes);
        let group = sizes.memory_limit_bytes.map(|limit| Cgroup::create(&group_name(), limit));
        if let Some(Err(why)) = group {
            found.notes.push(format!("no limit of memory around the runs: {why}"));
            found.set("memory_limit_bytes", Value::Null);
        }
        if index != IndexKind::default() {
            let note = format!("esker's keyspaces have an index of kind {index}");
            self.found.notes.push(note);
        }
        if policy != CompactionPolicy::default() {
            let note = format!("they are merged by the policy {policy}");
            self.found.notes.push(note);
        }
        if let Some(media) = &plan.media {
            self.found.set("media", media.to_json());
            let note = "esker's files are on a simulated SSD: bytes, erases and wear are those of \
                        the device; rates and latencies include the simulation, and no bar is \
                        judged";
            self.found.notes.push(note.to_owned());
        } else if plan.scale != Scale::Full {
            let note = "the bars are made for the full scale";
            self.found.notes.push(note.to_owned());
        }
    }

    /// Records the version of a library that is not a part of this program.
    fn find_versions(&mut self) -> Result<()> {
        if !self.plan.systems.iter().any(|system| system.is_rocksdb()) {
            return Ok(());
        }
        let folder = self.plan.folder.join(EMPTY);
        let version = rocksdb_version(&folder)?;
        self.found.set("rocksdb_version", version);
        self.remove(&folder)
    }

    fn row(&mut self, row: Row) -> Result<()> {
        let takes = |system: &Name| row.takes(*system);
        let systems: Vec<Name> = self.plan.systems.iter().copied().filter(takes).collect();
        let needs_loaded = !row.begins_empty();
        if needs_loaded {
            for system in &systems {
                self.load(*system)?;
            }
        }
        let rate = if row == Row::Merge { self.rate() } else { 0.0 };
        let scale = self.plan.scale;
        let repeats =
            |system: Name| self.plan.repeats.unwrap_or(sizes::repeats(scale, row, system)).max(1);
        let turns: Vec<(Name, u32)> = systems.iter().map(|of| (*of, repeats(*of))).collect();
        for number in 1..=turns.iter().map(|(_, repeats)| *repeats).max().unwrap_or(0) {
            for (system, repeats) in turns.iter().filter(|(_, repeats)| number <= *repeats) {
                if needs_loaded && self.load_rate(*system).is_none() {
                    self.found.add_failure(
                        Some(row.as_str()),
                        system.as_str(),
                        "it could not be loaded".to_owned(),
                    );
                    continue;
                }
                let run = RunName { row, system: *system, number, of: *repeats };
                let outcome = self.run(run, rate)?;
                match outcome {
                    Ok(metrics) => {
                        self.found.add(Some(row.as_str()), system.as_str(), None, metrics)
                    }
                    Err(error) => self.found.add_failure(
                        Some(row.as_str()),
                        system.as_str(),
                        error.to_string(),
                    ),
                }
            }
        }
        Ok(())
    }

    fn load_rate(&self, system: Name) -> Option<f64> {
        self.loaded.iter().find(|(of, _)| *of == system).map(|(_, rate)| *rate)
    }

    /// The median of the row of loads; without that row, the rate of the load for other rows.
    fn measured_load_rate(&self, system: Name) -> Option<f64> {
        let median = self.found.part(Row::Load.as_str()).median(system.as_str(), "rate");
        median.or_else(|| self.load_rate(system))
    }

    /// Loads a store for rows that need one, if the row of loads has not left one.
    fn load(&mut self, system: Name) -> Result<()> {
        if self.load_rate(system).is_none() {
            self.run(RunName { row: Row::Load, system, number: 0, of: 0 }, 0.0)?.ok();
        }
        Ok(())
    }

    /// The rate of writes during a full merge: a share of the load rate of RocksDB, leveled, in
    /// the setting that loads faster.
    fn rate(&mut self) -> f64 {
        if let Some(rate) = self.plan.rate {
            return rate;
        }
        let peer = Name::ROCKSDB_LEVELED.into_iter().filter_map(|of| self.measured_load_rate(of));
        let peer = peer.max_by(f64::total_cmp);
        let of = peer.or_else(|| self.measured_load_rate(Name::Esker));
        let rate = RATE_SHARE * of.unwrap_or(1000.0);
        self.found.set("merge_put_rate", rate);
        if peer.is_none() {
            let note = "writes during the full merge come at 70 % of Esker's own rate of loading: \
                        RocksDB's was not measured";
            self.found.notes.push(note.to_owned());
        }
        rate
    }

    /// One run in its own process. The outer error ends the comparison.
    fn run(&mut self, run: RunName, rate: f64) -> Result<Result<Metrics>> {
        self.watch.begins(run);
        let folder = self.plan.folder.join(RUN);
        self.remove(&folder)?;
        let loaded = self.plan.folder.join(LOADED).join(run.system.as_str());
        if !run.row.begins_empty() {
            copy_store(&loaded, &folder)?;
        }
        let outcome = self.run_in(run, &folder, rate);
        self.watch.ends(run, &outcome);
        if self.watch.is_interrupted() {
            return Err(Error::Interrupted);
        }
        match &outcome {
            Ok(metrics) if run.row == Row::Load && self.load_rate(run.system).is_none() => {
                self.loaded.push((run.system, metrics.get("rate").copied().unwrap_or(0.0)));
                move_store(&folder, &loaded)?;
            }
            _ => self.remove(&folder)?,
        }
        Ok(outcome)
    }

    fn run_in(&mut self, run: RunName, folder: &Path, rate: f64) -> Result<Metrics> {
        let sizes = Sizes::at(self.plan.scale);
        let limit = sizes.memory_limit_bytes;
        let group = limit.and_then(|limit| Cgroup::create(&group_name(), limit).ok());
        let task = Task {
            row: run.row,
            system: run.system,
            arrangement: self.plan.arrangement,
            media: self.plan.media.clone(),
            scale: self.plan.scale,
            folder: folder.to_owned(),
            seed: u64::from(run.number) + 1,
            rate,
            group: group.as_ref().map(|group| group.folder().to_owned()),
            crash: false,
        };
        if run.row == Row::Reopen {
            let crash = Task { crash: true, ..task.clone() };
            let half_bytes = sizes.crash_entries * esker_workload::entry::ENTRY_BYTES / 2;
            spawn::run_and_kill(&self.plan.program, &crash, half_bytes, self.watch)?;
            forget_pages(folder)?;
        }
        spawn::run(&self.plan.program, &task, self.watch)
    }

    fn remove(&self, folder: &Path) -> Result<()> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::system(format!("remove {}", folder.display()))(error))
            }
            _ => Ok(()),
        }
    }
}

/// A name that no other comparison on this machine has.
fn group_name() -> String {
    format!("esker-bench-{}", std::process::id())
}

fn move_store(from: &Path, to: &Path) -> Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(Error::system(format!("make {}", parent.display())))?;
    }
    fs::rename(from, to).map_err(Error::system(format!("move {}", from.display())))
}

/// Copies a store with its holes, and lets the page cache forget the copy.
fn copy_store(from: &Path, to: &Path) -> Result<()> {
    let what = || format!("copy {}", from.display());
    let status = Command::new("cp")
        .args(["-a", "--sparse=auto", "--"])
        .args([from, to])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(Error::system(what()))?;
    if !status.success() {
        let source = std::io::Error::other(format!("cp ended with {status}"));
        return Err(Error::system(what())(source));
    }
    forget_pages(to)
}

/// Makes the files below `folder` durable and drops them from the page cache, so that a run
/// begins with nothing of its store in memory.
pub(crate) fn forget_pages(folder: &Path) -> Result<()> {
    let what = || format!("read {}", folder.display());
    for entry in fs::read_dir(folder).map_err(Error::system(what()))? {
        let path = entry.map_err(Error::system(what()))?.path();
        if path.is_dir() {
            forget_pages(&path)?;
            continue;
        }
        let forget = || -> std::io::Result<()> {
            let file = fs::File::open(&path)?;
            file.sync_all()?;
            Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
        };
        forget().map_err(Error::system(format!("sync {}", path.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_the_same_files_and_keeps_holes() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::write(from.join("sub/a"), b"bytes").unwrap();
        fs::File::create(from.join("hole")).unwrap().set_len(1 << 30).unwrap();
        copy_store(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("sub/a")).unwrap(), b"bytes");
        assert!(esker_lab_measure::space::occupied_bytes(&to) < 1 << 20);
        assert!(copy_store(&folder.path().join("absent"), &to.join("x")).is_err());
    }
}
