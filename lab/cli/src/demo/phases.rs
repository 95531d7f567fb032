//! The work of the demo, phase by phase, each answer held against the truth. On a terminal, a live
//! view shows the store until it is closed.

use std::io;
use std::sync::Arc;

use esker::{CheckReport, Db, Keyspace, KeyspaceOptions};
use esker_terminal::exit::{Failure, one_line};
use esker_terminal::signals::Interrupt;
use indicatif::HumanCount;

use super::files::{Files, State, scattered};
use super::report::Narrator;
use super::timing::Timing;
use crate::live::{self, Board, Meter, Ruler, Screen, Watched};

/// A key and its value.
type Entry = (Vec<u8>, Vec<u8>);

const KEYSPACE: &str = "files";
/// Enough folders for a stable 99.9th percentile.
const FOLDERS_SCANNED: usize = 2000;
const OVERWRITE_ONE_IN: usize = 3;
const DELETE_ONE_IN: usize = 10;
/// Paths to say where a merge is among all of them.
const PATHS_SAMPLED: usize = 1000;

/// The state that goes from phase to phase.
pub(super) struct Phases {
    pub(super) files: Files,
    pub(super) timings: Vec<Timing>,
    pub(super) answers_checked: u64,
    pub(super) counted_bytes_peak: u64,
    meter: Arc<Meter>,
    interrupt: Interrupt,
    narrator: Narrator,
}

impl Phases {
    pub(super) fn new(files: Files, interrupt: Interrupt, narrator: Narrator) -> Self {
        Self {
            files,
            timings: Vec::new(),
            answers_checked: 0,
            counted_bytes_peak: 0,
            meter: Arc::default(),
            interrupt,
            narrator,
        }
    }

    /// From an empty store to one that was written, read, overwritten and deleted from.
    pub(super) fn store_and_read(
        &mut self,
        open: impl Fn() -> esker::Result<Db>,
        options: KeyspaceOptions,
    ) -> Result<Db, Failure> {
        let db = open()?;
        let keyspace = db.keyspace(KEYSPACE, options)?;
        if !self.narrator.is_silent() && live::is_possible() && live::is_roomy() {
            self.watch(&db, &keyspace)?;
        } else {
            self.work(&db, &keyspace)?;
        }
        Ok(db)
    }

    /// The work, with a live view on the terminal while it runs.
    fn watch(&mut self, db: &Db, keyspace: &Keyspace) -> Result<(), Failure> {
        let refused = |source: io::Error| Failure::System { what: "draw on the terminal", source };
        let screen = Screen::open(&self.interrupt).map_err(refused)?;
        let board = Arc::new(Board::default());
        board.set_title(format!("{} files, path to metadata", HumanCount(self.count())));
        self.narrator.tell(Arc::clone(&board));
        let (meter, interrupt) = (Arc::clone(&self.meter), self.interrupt.clone());
        let (ruler, names) = (self.ruler(), ["writes", "reads"]);
        let watched = Watched { db, meter: &meter, board: &board, interrupt: &interrupt, names };
        let worked = live::watch(screen, &watched, ruler, || self.work(db, keyspace));
        self.narrator.print_lines()?;
        worked
    }

    fn work(&mut self, db: &Db, keyspace: &Keyspace) -> Result<(), Failure> {
        self.insert(keyspace)?;
        self.sample_memory(db)?;
        self.look_up("look up", keyspace)?;
        self.sample_memory(db)?;
        self.look_up_absent(keyspace)?;
        self.scan_folders(keyspace)?;
        self.sample_memory(db)?;
        self.overwrite(keyspace)?;
        self.sample_memory(db)?;
        self.delete(keyspace)
    }

    const fn count(&self) -> u64 {
        self.files.list.len() as u64
    }

    fn ruler(&self) -> Ruler {
        let step = self.files.list.len().div_ceil(PATHS_SAMPLED).max(1);
        let sampled = self.files.list.iter().step_by(step).map(|file| file.path.clone());
        Ruler::Sampled(sampled.collect())
    }

    pub(super) fn reopen(
        &mut self,
        db: Db,
        open: impl Fn() -> esker::Result<Db>,
    ) -> Result<Db, Failure> {
        self.phase("close", 1, |_, timing, _| Ok(timing.time(|| db.close())?))?;
        self.phase("open again", 1, |_, timing, _| Ok(timing.time(&open)?))
    }

    /// Compares everything, both ways of reading, and lets the store check itself.
    pub(super) fn verify(&mut self, db: &Db) -> Result<CheckReport, Failure> {
        let keyspace = db.open_keyspace(KEYSPACE)?.ok_or_else(|| wrong(KEYSPACE.as_bytes()))?;
        self.scan_everything(&keyspace)?;
        self.look_up("look up again", &keyspace)?;
        self.sample_memory(db)?;
        let report = self.phase("check", 1, |_, timing, _| Ok(timing.time(|| db.check())?))?;
        match report.problems.first() {
            None => Ok(report),
            Some(problem) => Err(Failure::Damaged(format!(
                "check found {} problems; the first: {}@{}: {}",
                report.problems.len(),
                problem.file,
                problem.offset,
                problem.what
            ))),
        }
    }

    /// Remembers the most memory that the store counted for itself.
    fn sample_memory(&mut self, db: &Db) -> Result<(), Failure> {
        let memory = db.stats()?.memory;
        let counted_bytes = memory.memtable_bytes + memory.fence_bytes + memory.cache_bytes;
        self.counted_bytes_peak = self.counted_bytes_peak.max(counted_bytes);
        Ok(())
    }

    fn insert(&mut self, keyspace: &Keyspace) -> Result<(), Failure> {
        let count = self.files.list.len();
        self.phase("store", count, |this, timing, tick| {
            timing.show_on(&this.meter.writes);
            for number in scattered(count) {
                tick(this)?;
                let file = &this.files.list[number];
                if let Some(record) = file.record() {
                    this.meter.grew(file.path.len() + record.len());
                    timing.time(|| keyspace.insert(&file.path, record))?;
                }
            }
            Ok(())
        })
    }

    fn look_up(&mut self, name: &'static str, keyspace: &Keyspace) -> Result<(), Failure> {
        let count = self.files.list.len();
        self.phase(name, count, |this, timing, tick| {
            timing.show_on(&this.meter.reads);
            for number in scattered(count) {
                tick(this)?;
                let file = &this.files.list[number];
                let answer = timing.time(|| keyspace.get(&file.path))?;
                if answer != file.record() {
                    return Err(wrong(&file.path));
                }
                this.answers_checked += 1;
            }
            Ok(())
        })
    }

    fn look_up_absent(&mut self, keyspace: &Keyspace) -> Result<(), Failure> {
        let count = self.files.list.len();
        self.phase("look up absent", count, |this, timing, tick| {
            timing.show_on(&this.meter.reads);
            for number in scattered(count) {
                tick(this)?;
                // No path holds a zero byte, so this sorts among the present and is none of them.
                let mut path = this.files.list[number].path.clone();
                path.push(0);
                if timing.time(|| keyspace.get(&path))?.is_some() {
                    return Err(wrong(&path));
                }
                this.answers_checked += 1;
            }
            Ok(())
        })
    }

    fn scan_folders(&mut self, keyspace: &Keyspace) -> Result<(), Failure> {
        let folders = self.files.folders();
        let step = folders.len().div_ceil(FOLDERS_SCANNED).max(1);
        let chosen: Vec<Vec<u8>> = folders.into_iter().step_by(step).map(<[u8]>::to_vec).collect();
        self.phase("scan a folder", chosen.len(), |this, timing, tick| {
            timing.show_on(&this.meter.reads);
            for number in scattered(chosen.len()) {
                tick(this)?;
                this.answers_checked += this.compare(keyspace, &chosen[number], timing)?;
            }
            Ok(())
        })
    }

    fn overwrite(&mut self, keyspace: &Keyspace) -> Result<(), Failure> {
        let count = self.files.list.len();
        self.phase("overwrite", count / OVERWRITE_ONE_IN, |this, timing, tick| {
            timing.show_on(&this.meter.writes);
            for number in scattered(count).step_by(OVERWRITE_ONE_IN) {
                tick(this)?;
                let file = &mut this.files.list[number];
                file.state = State::Overwritten;
                if let Some(record) = file.record() {
                    timing.time(|| keyspace.insert(&file.path, record))?;
                }
            }
            Ok(())
        })
    }

    fn delete(&mut self, keyspace: &Keyspace) -> Result<(), Failure> {
        let count = self.files.list.len();
        self.phase("delete", count / DELETE_ONE_IN, |this, timing, tick| {
            timing.show_on(&this.meter.writes);
            for number in scattered(count).skip(1).step_by(DELETE_ONE_IN) {
                tick(this)?;
                let file = &mut this.files.list[number];
                let record_bytes = file.record().map_or(0, |record| record.len());
                this.meter.shrank(file.path.len() + record_bytes);
                file.state = State::Deleted;
                timing.time(|| keyspace.remove(&file.path))?;
            }
            Ok(())
        })
    }

    fn scan_everything(&mut self, keyspace: &Keyspace) -> Result<(), Failure> {
        let count = self.files.list.len();
        self.phase("scan everything", count, |this, timing, tick| {
            let mut range = keyspace.iter()?;
            for (path, record) in this.files.with_prefix(b"") {
                tick(this)?;
                let found = timing.time(|| range.next()).transpose()?;
                if !is_entry(found.as_ref(), path, &record) {
                    return Err(wrong(path));
                }
            }
            if let Some((path, _)) = range.next().transpose()? {
                return Err(wrong(&path));
            }
            this.answers_checked += timing.operations();
            Ok(())
        })
    }

    /// Scans a prefix and compares it entry by entry; answers how many there were.
    fn compare(
        &self,
        keyspace: &Keyspace,
        prefix: &[u8],
        timing: &mut Timing,
    ) -> Result<u64, Failure> {
        let found = timing.time(|| keyspace.prefix(prefix)?.collect::<esker::Result<Vec<_>>>())?;
        let mut entries = found.iter();
        for (path, record) in self.files.with_prefix(prefix) {
            if !is_entry(entries.next(), path, &record) {
                return Err(wrong(path));
            }
        }
        match entries.next() {
            None => Ok(found.len() as u64),
            Some((path, _)) => Err(wrong(path)),
        }
    }

    /// Runs a phase of about `length` operations with a bar and a row of figures of its own.
    fn phase<T>(
        &mut self,
        name: &'static str,
        length: usize,
        work: impl FnOnce(
            &mut Self,
            &mut Timing,
            &dyn Fn(&Self) -> Result<(), Failure>,
        ) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut timing = Timing::new(name)?;
        let bar = self.narrator.bar(name, length as u64);
        let tick = |this: &Self| {
            bar.inc(1);
            this.interrupt.check()
        };
        let answer = work(self, &mut timing, &tick);
        bar.finish_and_clear();
        let answer = answer?;
        self.narrator.finished(&timing)?;
        self.timings.push(timing);
        Ok(answer)
    }
}

fn is_entry(found: Option<&Entry>, path: &[u8], record: &[u8]) -> bool {
    found.is_some_and(|(key, value)| key == path && value == record)
}

fn wrong(path: &[u8]) -> Failure {
    let path = one_line(&String::from_utf8_lossy(path));
    Failure::Damaged(format!("the store's answer for {path} is wrong"))
}
