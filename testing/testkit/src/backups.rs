//! Backups: what a restored store holds, against the model; and a backup's own crashes, failing
//! operations and damage.
//!
//! [`Source`] is a store with a history, of which backups are made while the history goes on;
//! [`lives`] ends the store uncleanly between backups, [`compaction`] makes one at every step of
//! merges; [`crash`] cuts the power while a backup or a restoring is written, [`faults`] fails each
//! of their operations, [`flips`] damages each of their bytes, [`losses`] deletes or
//! cuts their files.

pub mod compaction;
pub mod crash;
pub mod faults;
pub mod flips;
pub mod lives;
pub mod losses;

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{Backup, BackupReport, Error, IndexKind, Scheme};
use esker_device::Device;
use esker_device::memory::MemoryDevice;

use crate::config::Config;
use crate::counts::{Counts, budget};
use crate::history::{Op, generate};
use crate::model::Model;
use crate::recovery::{Depth, Expectation, Point, judge};
use crate::scenario::{mixed_profile, random};
use crate::session::{Outcome, Session};
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Backups of one store.
const ROUNDS: u64 = 5;

/// A store with a history.
#[derive(Debug)]
pub struct Source {
    /// The options with which it is opened.
    pub config: Config,
    session: Session,
}

/// The contents that a backup must have.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The data that was written, at least up to then.
    pub model: Model,
    /// The state that was known when it was made.
    pub point: Point,
}

impl Source {
    /// An empty store.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(config: &Config) -> Verdict<Self> {
        Self::on(config, Arc::new(MemoryDevice::new()))
    }

    /// An empty store on `device`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn on(config: &Config, device: Arc<dyn Device>) -> Verdict<Self> {
        Self::with(config, device, Model::default())
    }

    /// The store on `device`, which holds what `model` says.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn with(config: &Config, device: Arc<dyn Device>, model: Model) -> Verdict<Self> {
        let session = Session::open(config, device, model);
        let session = session.map_err(|error| harness(&error))?;
        Ok(Self { config: config.clone(), session })
    }

    /// Goes on with its history.
    ///
    /// # Errors
    /// A broken promise, and an operation that failed.
    pub fn apply(&mut self, ops: &[Op]) -> Verdict {
        for op in ops {
            if let Outcome::Failed(error) = self.session.apply(op)? {
                let detail = format!("{op:?} failed: {error}");
                return Err(Violation::new(Oracle::WorksOn, detail));
            }
        }
        Ok(())
    }

    /// Makes a backup on `device`, while `ops` go on.
    ///
    /// # Errors
    /// A broken promise of the operations. What the backup answers is in the answer.
    pub fn backup(
        &mut self,
        device: &Arc<dyn Device>,
        ops: &[Op],
    ) -> Verdict<(Held, Result<BackupReport, Error>)> {
        let point = self.session.point();
        let Some(db) = self.session.db().cloned() else {
            return Err(Violation::new(Oracle::Harness, "the store is closed"));
        };
        let mut during = ops.iter();
        let mut broken = Ok(());
        let made = db.backup_on(Arc::clone(device), &mut |_| {
            for op in during.by_ref().take(3) {
                let applied = self.apply(std::slice::from_ref(op));
                if applied.is_err() {
                    broken = applied;
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        broken.map_err(|violation| violation.at("during a backup"))?;
        Ok((Held { model: self.session.model().clone(), point }, made))
    }

    /// [`Source::backup`], which must succeed.
    ///
    /// # Errors
    /// When it does not, and a broken promise.
    pub fn must_backup(
        &mut self,
        device: &Arc<dyn Device>,
        ops: &[Op],
    ) -> Verdict<(Held, BackupReport)> {
        let (held, made) = self.backup(device, ops)?;
        let report = made.map_err(|error| {
            Violation::new(Oracle::WorksOn, format!("the backup failed: {error}"))
        })?;
        ensure(report.seq == held.point.visible, Oracle::CommitsAreWhole, || {
            format!("the backup is of {}, {} was visible", report.seq, held.point.visible)
        })?;
        Ok((held, report))
    }

    /// The contents that a backup made now must have.
    #[must_use]
    pub fn held(&self) -> Held {
        Held { model: self.session.model().clone(), point: self.session.point() }
    }

    /// Compares the store with its model, whole.
    ///
    /// # Errors
    /// The first difference.
    pub fn is_unharmed(&self) -> Verdict {
        self.session.compare()?;
        self.session.db().map_or(Ok(()), |db| verify::check(db).map(drop))
    }
}

fn harness(error: &Error) -> Violation {
    Violation::new(Oracle::Harness, error.to_string())
}

/// Opens the backup on `device`, checks it, restores it, and compares what is there with `held`.
///
/// # Errors
/// The first difference.
pub fn judge_backup(
    config: &Config,
    device: &Arc<dyn Device>,
    held: &Held,
    depth: Depth,
) -> Verdict {
    let broken = |error: Error| Violation::new(Oracle::Opens, error.to_string());
    let backup = Backup::open_on(Arc::clone(device)).map_err(|e| broken(e).at("the backup"))?;
    ensure(backup.seq() == held.point.visible, Oracle::AcknowledgedIsThere, || {
        format!("the backup is of {}, and not of {}", backup.seq(), held.point.visible)
    })?;
    let report = backup.check().map_err(|error| broken(error).at("checking the backup"))?;
    ensure(report.is_ok(), Oracle::CheckIsClean, || format!("{:?}", report.problems))?;
    let restored: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let made = backup.restore_on(Arc::clone(&restored), &mut |_| ControlFlow::Continue(()));
    made.map_err(|error| broken(error).at("restoring"))?;
    judge_restored(config, &restored, held, depth)
}

/// Opens the restored store on `device` and compares it with `held`.
///
/// # Errors
/// The first difference.
pub fn judge_restored(
    config: &Config,
    device: &Arc<dyn Device>,
    held: &Held,
    depth: Depth,
) -> Verdict {
    let now = Point { durable: held.point.visible, ..held.point.clone() };
    let expectation = Expectation { model: &held.model, now: &now, next: None, doubt: None };
    judge(config, device, &expectation, depth).map(drop).map_err(|v| v.at("restored"))
}

/// [`rounds`] of some histories.
///
/// # Errors
/// The first difference.
pub fn histories(counts: &mut Counts) -> Verdict {
    (1_000..1_000 + 30 * budget()).try_for_each(|seed| rounds(seed, counts))
}

/// Operations that may run during a backup: closing ends it.
fn during_backup(ops: Vec<Op>) -> Vec<Op> {
    ops.into_iter().filter(|op| !matches!(op, Op::Reopen | Op::Abandon)).collect()
}

/// A random history, with several backups into one folder, each during a part of it. Every one of
/// them, restored, is the store as it was.
///
/// # Errors
/// The first difference.
pub fn rounds(seed: u64, counts: &mut Counts) -> Verdict {
    let mut scenario = random(seed);
    scenario.config.index = if seed % 3 == 2 { IndexKind::Lsm } else { IndexKind::FdTree };
    if !scenario.config.scheme.tightens() {
        // Checking a backup asks for what an FD-tree does not keep.
        scenario.config.scheme = Scheme::default();
    }
    let mut source = Source::new(&scenario.config)?;
    source.apply(&scenario.prepare)?;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let part = scenario.ops.len() / ROUNDS as usize + 1;
    for (round, ops) in scenario.ops.chunks(part).enumerate() {
        let place = format!("seed {seed}, backup {round}");
        let (before, during) = ops.split_at(ops.len() / 2);
        source.apply(before).map_err(|v| v.at(&place))?;
        let during = during_backup(during.to_vec());
        let (held, report) = source.must_backup(&device, &during).map_err(|v| v.at(&place))?;
        counts.add("backups", 1);
        counts.add("bytes written", report.bytes_written);
        counts.add("bytes reused", report.bytes_reused);
        judge_backup(&source.config, &device, &held, Depth::Thorough).map_err(|v| v.at(&place))?;
        source.is_unharmed().map_err(|v| v.at(&place))?;
    }
    Ok(())
}

/// A store of some hundred entries, and its first backup, on `device`.
fn with_one_backup(device: &Arc<dyn Device>) -> Verdict<(Source, Held)> {
    let mut source = Source::new(&Config::default())?;
    source.apply(&during_backup(generate(&mixed_profile(160), 41)))?;
    let (held, _) = source.must_backup(device, &[])?;
    Ok((source, held))
}
