//! The child's round: the workers, and concurrently checks, backups and a device that is full.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use esker::{Backup, Db, Error};
use esker_device::file::FileDevice;
use esker_device::wrap::Wrapped;
use parking_lot::{Mutex, RwLock};

use super::filling::{Filled, Filling};
use super::plan::{self, Plan, WORKERS};
use super::worker::{self, Part, Worker, broken};
use super::{OPENED, harness};
use crate::random::Random;
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Longest pause between two things that are done concurrently with the workers, in milliseconds.
const PAUSE_MILLIS: u64 = 40;
/// Longest time for which the device is full, in milliseconds.
const FULL_MILLIS: u64 = 120;

/// The state that the workers of a round share.
pub(super) struct Stage<'a> {
    pub db: &'a Db,
    /// A worker holds it for an operation and the note of it.
    pub pause: RwLock<()>,
    /// A promise is broken: nothing more is to be done.
    is_broken: AtomicBool,
    /// Workers that have more to do.
    left: AtomicUsize,
    refused: AtomicU64,
    conflicts: AtomicU64,
}

impl Stage<'_> {
    /// Whether the workers should end.
    pub fn is_over(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    pub fn note_refusal(&self, error: &Error) {
        let count = if error.is_conflict() { &self.conflicts } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Does what may be done twice, as often as it takes where the device is full.
    pub fn retrying(&self, operation: impl FnMut(&Db) -> esker::Result<()>) -> Verdict {
        worker::retrying(self.db, operation)
    }

    /// Does what a full device may refuse.
    pub fn unless_full(&self, operation: impl FnOnce(&Db) -> esker::Result<()>) -> Verdict {
        match operation(self.db) {
            Err(Error::Full { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(broken(error)),
        }
    }
}

/// Runs the round of `plan`; returns what was done in addition to its operations.
pub(super) fn run(plan: &Plan) -> Verdict<Vec<(&'static str, u64)>> {
    let filled = Arc::new(Filled::default());
    let (inner, shared) = (plan.file_device()?, Arc::clone(&filled));
    let db = plan.open(Arc::new(Wrapped::around(inner, Filling(shared)))).map_err(broken)?;
    for name in plan::shared_names() {
        db.keyspace(&name, plan::options(&name)).map_err(broken)?;
    }
    let parts: Vec<_> =
        (0..WORKERS).map(|worker| Mutex::new(Part::replayed(plan, worker, 0))).collect();
    let mut pipe = std::io::stdout();
    writeln!(pipe, "{OPENED}").and_then(|()| pipe.flush()).map_err(harness)?;
    let stage = Stage {
        db: &db,
        pause: RwLock::default(),
        is_broken: AtomicBool::new(false),
        left: AtomicUsize::new(WORKERS),
        refused: AtomicU64::new(0),
        conflicts: AtomicU64::new(0),
    };
    let mut during = During { plan, stage: &stage, parts: &parts, filled: &filled, counts: [0; 3] };
    let verdict = std::thread::scope(|scope| {
        let start = |(number, part)| {
            let stage = &stage;
            scope.spawn(move || {
                let verdict = Worker::new(plan, stage, part, number).run();
                stage.is_broken.fetch_or(verdict.is_err(), Ordering::Relaxed);
                stage.left.fetch_sub(1, Ordering::Relaxed);
                verdict
            })
        };
        let workers: Vec<_> = parts.iter().enumerate().map(start).collect();
        let watched = during.go_on();
        stage.is_broken.fetch_or(watched.is_err(), Ordering::Relaxed);
        filled.is_full.store(false, Ordering::Relaxed);
        let panicked = |_| Violation::new(Oracle::NoPanic, "a worker panicked");
        let all = workers.into_iter().map(|worker| worker.join().map_err(panicked)?);
        all.fold(watched, Verdict::and)
    });
    verdict?;
    verify::check(&db)?;
    parts.iter().try_for_each(|part| part.lock().compare(&db))?;
    let [checks, backups, fills] = during.counts;
    let refused = stage.refused.load(Ordering::Relaxed);
    let conflicts = stage.conflicts.load(Ordering::Relaxed);
    db.close().map_err(broken)?;
    Ok(vec![
        ("checks during writes", checks),
        ("backups restored", backups),
        ("times full", fills),
        ("commits refused by a full device", refused),
        ("conflicts", conflicts),
    ])
}

/// The work concurrent with the workers.
struct During<'a> {
    plan: &'a Plan,
    stage: &'a Stage<'a>,
    parts: &'a [Mutex<Part>],
    filled: &'a Filled,
    /// Checks, backups, times full.
    counts: [u64; 3],
}

impl During<'_> {
    /// Until the workers are done.
    fn go_on(&mut self) -> Verdict {
        let random = Random::new(self.plan.round_seed() ^ 0xbe51de);
        while self.stage.left.load(Ordering::Relaxed) > 0 && !self.stage.is_over() {
            std::thread::sleep(Duration::from_millis(random.below(PAUSE_MILLIS)));
            match random.below(8) {
                0..=2 => self.check()?,
                3..=4 => self.back_up()?,
                5..=6 => self.fill(random.below(FULL_MILLIS)),
                _ => {}
            }
        }
        Ok(())
    }

    fn check(&mut self) -> Verdict {
        let [checks, ..] = &mut self.counts;
        *checks += 1;
        verify::check(self.stage.db).map(drop)
    }

    fn fill(&mut self, millis: u64) {
        let [.., fills] = &mut self.counts;
        *fills += 1;
        self.filled.is_full.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(millis));
        self.filled.is_full.store(false, Ordering::Relaxed);
    }

    /// Makes a backup of the moment at which no worker does anything, and compares what is restored
    /// with what was there then.
    fn back_up(&mut self) -> Verdict {
        let path = self.plan.sibling("backup");
        let mut still = Some(self.stage.pause.write());
        let held: Vec<Part> = self.parts.iter().map(|part| part.lock().clone()).collect();
        let made = self.stage.db.backup_with(&path, &mut |_| {
            drop(still.take());
            ControlFlow::Continue(())
        });
        drop(still);
        made.map_err(broken).map_err(|violation| violation.at("a backup"))?;
        let restored = self.plan.sibling("restored");
        let judged = self.judge_backup(&path, &restored, &held);
        let _gone = std::fs::remove_dir_all(&restored);
        let [_, backups, _] = &mut self.counts;
        *backups += 1;
        judged.map_err(|violation| violation.at("a backup"))
    }

    fn judge_backup(
        &self,
        path: &std::path::Path,
        restored: &std::path::Path,
        held: &[Part],
    ) -> Verdict {
        let _left_by_a_kill = std::fs::remove_dir_all(restored);
        let backup = Backup::open(path).map_err(broken)?;
        let report = backup.check().map_err(broken)?;
        ensure(report.is_ok(), Oracle::CheckIsClean, || format!("{:?}", report.problems))?;
        backup.restore(restored).map_err(broken)?;
        let device = FileDevice::open(restored).map_err(harness)?;
        let db = self.plan.open(Arc::new(device)).map_err(broken)?;
        verify::check(&db)?;
        held.iter().try_for_each(|part| part.compare(&db))?;
        db.close().map_err(broken)
    }
}
