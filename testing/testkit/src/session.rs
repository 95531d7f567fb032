//! Runs operations on a store and on its model side by side.
//!
//! Invariants while no operation has failed:
//! * The model's last commit is the store's visible number.
//! * `durable` never exceeds it, and everything up to `durable` has been promised to survive a
//!   power cut: by a synced commit, by `persist`, or by the store's own durable number.
//! * After a failed operation that poisoned the store, `doubt` holds what may or may not have
//!   happened; nothing else is in doubt.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use esker::{Db, Durability, Error, Keyspace, Snapshot};
use esker_device::Device;
use esker_substrate::runtime::SimRuntime;

use crate::config::Config;
use crate::history::{By, Op};
use crate::model::{Change, Model, Write};
use crate::recovery::Point;
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};
use crate::writing::{batch, bounds, single};

/// Earlier versions of a keyspace that a comparison reads.
const PAST_VERSIONS: usize = 8;

/// The result of an operation.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It succeeded, and the model has it.
    Done,
    /// It made no sense here: its keyspace does not exist, or there was no snapshot to close.
    Skipped,
    /// The store refused it or failed.
    Failed(Error),
}

/// The change that a poisoned store may or may not hold beyond the model.
#[derive(Clone, Debug)]
pub enum Doubt {
    /// These changes, all or none.
    Commit(Vec<Change>),
    /// A new keyspace.
    Create(String),
    /// A dropped keyspace.
    Drop(String),
}

/// A store, its model, and what has been promised.
#[derive(Debug)]
pub struct Session {
    config: Config,
    device: Arc<dyn Device>,
    db: Option<Db>,
    handles: BTreeMap<String, Keyspace>,
    /// With the times at which they were taken.
    snapshots: VecDeque<(Snapshot, u64)>,
    runtime: Arc<SimRuntime>,
    model: Model,
    durable: u64,
    doubt: Option<Doubt>,
}

impl Session {
    /// Opens the store on `device`, which holds what `model` says.
    ///
    /// # Errors
    /// The store's error.
    pub fn open(config: &Config, device: Arc<dyn Device>, model: Model) -> esker::Result<Self> {
        let runtime = config.runtime(model.now());
        let db = config.builder_with(&device, &runtime).open()?;
        let mut session = Self {
            runtime,
            config: config.clone(),
            device,
            db: Some(db),
            handles: BTreeMap::new(),
            snapshots: VecDeque::new(),
            durable: 0,
            doubt: None,
            model,
        };
        session.attach()?;
        Ok(session)
    }

    /// The model so far.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// The highest number that was promised to survive a power cut.
    #[must_use]
    pub const fn durable(&self) -> u64 {
        self.durable
    }

    /// The change that may or may not have happened beyond the model.
    #[must_use]
    pub const fn doubt(&self) -> Option<&Doubt> {
        self.doubt.as_ref()
    }

    /// The state that is known now.
    #[must_use]
    pub fn point(&self) -> Point {
        let visible = self.model.last_commit();
        Point { durable: self.durable, visible, alive: self.model.alive(), exists: true }
    }

    /// The open store.
    #[must_use]
    pub const fn db(&self) -> Option<&Db> {
        self.db.as_ref()
    }

    /// Whether the store refuses writes because one failed.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        let stats = self.db.as_ref().map(Db::stats);
        matches!(stats, Some(Ok(stats)) if stats.poisoned.is_some())
    }

    /// Closes the store, if it is open.
    ///
    /// # Errors
    /// The store's error; it is closed all the same.
    pub fn close(&mut self) -> esker::Result<()> {
        self.snapshots.clear();
        self.handles.clear();
        let Some(db) = self.db.take() else { return Ok(()) };
        db.close()?;
        self.durable = self.model.last_commit();
        Ok(())
    }

    /// Ends without closing the store.
    #[must_use]
    pub fn into_model(self) -> Model {
        self.model
    }

    /// Runs one operation.
    ///
    /// # Errors
    /// A broken promise. A failure of the store is an [`Outcome`].
    pub fn apply(&mut self, op: &Op) -> Verdict<Outcome> {
        let outcome = self.dispatch(op)?;
        if let Outcome::Failed(error) = &outcome {
            self.resolve_failure(op, error)?;
        } else if let Some(db) = &self.db {
            self.durable = self.durable.max(db.durable_seq());
            let (visible, expected) = (db.visible_seq(), self.model.last_commit());
            ensure(visible == expected || self.doubt.is_some(), Oracle::CommitsAreWhole, || {
                format!("{visible} is visible after {op:?}, {expected} was committed")
            })?;
            ensure(self.durable <= visible, Oracle::NothingFromNowhere, || {
                format!("{} is said to be durable, {visible} is visible", self.durable)
            })?;
        }
        Ok(outcome)
    }

    fn dispatch(&mut self, op: &Op) -> Verdict<Outcome> {
        let reads_now =
            matches!(op, Op::Read { .. } | Op::Compare | Op::OpenSnapshot | Op::Pass(_));
        if reads_now && self.doubt.is_some() {
            // What is in doubt may be seen or not; `recovery::examine` knows how to judge that.
            return Ok(Outcome::Skipped);
        }
        Ok(match op {
            Op::Commit { changes, durability, by } => {
                return self.commit(changes, *durability, *by);
            }
            Op::Persist => self.durably(Db::persist),
            Op::Flush => self.durably(Db::flush),
            Op::Compact => self.durably(Db::compact),
            Op::CompactKeyspace(name) => match self.handles.get(name) {
                Some(keyspace) => outcome(keyspace.compact()),
                None => Outcome::Skipped,
            },
            Op::OpenSnapshot => self.open_snapshot(),
            Op::CloseSnapshot => return self.close_snapshot(),
            Op::Create(name) => self.create(name),
            Op::Drop(name) => self.drop_keyspace(name),
            Op::Reopen => self.reopen(true),
            Op::Abandon => self.reopen(false),
            Op::Read { keyspace, keys } => return self.read(keyspace, keys),
            Op::Compare => return self.compare().map(|()| Outcome::Done),
            Op::Pass(millis) => {
                self.runtime.advance(Duration::from_millis(*millis));
                self.model.pass(*millis);
                Outcome::Done
            }
        })
    }

    /// Compares every keyspace with the model, whole, both ways, and some keys one by one.
    ///
    /// # Errors
    /// The first difference.
    pub fn compare(&self) -> Verdict {
        self.runs_on()?;
        let at = self.model.last();
        for (name, keyspace) in &self.handles {
            if let Some((_, life)) = self.model.living(name) {
                verify::content(keyspace, life, at)?;
                verify::content_backwards(keyspace, life, at)?;
                if let Some(history) = self.config.kept_history() {
                    let upto = (at.seq, history);
                    verify::past(keyspace, life, &self.model, upto, PAST_VERSIONS)?;
                }
                let step = (life.len() / 32).max(1);
                verify::points(keyspace, life, at, life.keys().step_by(step))?.map_err(
                    |error| Violation::new(Oracle::ContentMatches, format!("{name}: {error}")),
                )?;
            }
        }
        Ok(())
    }

    /// Fails when merges have stopped somewhere, which no call says while there is room.
    ///
    /// # Errors
    /// The reason for which they stopped.
    pub fn runs_on(&self) -> Verdict {
        let stats = self.db.as_ref().and_then(|db| db.stats().ok()).unwrap_or_default();
        for keyspace in &stats.keyspaces {
            ensure(keyspace.stalled.is_none(), Oracle::WorksOn, || {
                let why = keyspace.stalled.as_deref().unwrap_or_default();
                format!("merges of {} have stopped: {why}", keyspace.name)
            })?;
        }
        Ok(())
    }

    fn commit(
        &mut self,
        changes: &[Change],
        durability: Option<Durability>,
        by: By,
    ) -> Verdict<Outcome> {
        let Some(db) = &self.db else { return Ok(Outcome::Skipped) };
        if changes.iter().any(|change| !self.handles.contains_key(&change.keyspace)) {
            return Ok(Outcome::Skipped);
        }
        let result = match (changes, by) {
            ([one], By::Single) => {
                single(db, &self.handles, one, durability).map(|()| db.visible_seq())
            }
            (many, By::Single | By::Batch) => batch(db, &self.handles, many, durability),
            (many, By::Transaction) => self.transaction(db, many, durability)?,
        };
        Ok(match result {
            Ok(_) if changes.is_empty() => Outcome::Done,
            Ok(seq) => {
                self.model.commit(seq, changes);
                self.model.fold_operands(db.visible_seq(), changes);
                if durability == Some(Durability::Synced) {
                    self.durable = self.durable.max(seq);
                }
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        })
    }

    /// Commits the changes by a transaction, and then another one that must be refused.
    fn transaction(
        &self,
        db: &Db,
        changes: &[Change],
        durability: Option<Durability>,
    ) -> Verdict<esker::Result<u64>> {
        let mut rival = match self.reading(db, changes)? {
            Ok(rival) => rival,
            Err(error) => return Ok(Err(error)),
        };
        let mut tx = match self.reading(db, changes)? {
            Ok(tx) => tx,
            Err(error) => return Ok(Err(error)),
        };
        let mut write = || {
            for Change { keyspace, key, write } in changes {
                let Some(keyspace) = self.handles.get(keyspace) else { continue };
                match write {
                    Write::Put(value) => tx.insert(keyspace, key, value)?,
                    Write::PutFor(value, millis) => {
                        let ttl = Duration::from_millis(*millis);
                        tx.insert_with_ttl(keyspace, key, value, ttl)?;
                    }
                    Write::Append(operand) => tx.merge(keyspace, key, operand)?,
                    Write::Delete => tx.remove(keyspace, key)?,
                    Write::DeleteUpTo(end) => tx.remove_range(keyspace, bounds(key, end))?,
                }
                rival.insert(keyspace, b"never there", b"")?;
            }
            Ok(())
        };
        let written = write();
        let committed = written.and_then(|()| match durability {
            Some(durability) => tx.commit_with(durability),
            None => tx.commit(),
        });
        if committed.is_ok() && !changes.is_empty() {
            let late = rival.commit();
            ensure(late.is_err(), Oracle::Serializable, || {
                "a transaction was committed over what it had read".into()
            })?;
        }
        Ok(committed)
    }

    /// A transaction that has read what is there before the changes.
    fn reading(&self, db: &Db, changes: &[Change]) -> Verdict<esker::Result<esker::Transaction>> {
        let tx = match db.transaction() {
            Ok(tx) => tx,
            Err(error) => return Ok(Err(error)),
        };
        let at = self.model.last();
        for Change { keyspace: name, key, .. } in changes {
            let Some(keyspace) = self.handles.get(name) else { continue };
            let found = match tx.get(keyspace, key) {
                Ok(found) => found,
                Err(error) => return Ok(Err(error)),
            };
            let expected = self.model.living(name).and_then(|(_, life)| life.get(key, at));
            let same = found.as_deref() == expected.map(|value| &**value);
            ensure(same || self.doubt.is_some(), Oracle::ContentMatches, || {
                format!("a transaction reads something else in {name}")
            })?;
        }
        Ok(Ok(tx))
    }

    fn durably(&mut self, operation: fn(&Db) -> esker::Result<()>) -> Outcome {
        let Some(db) = &self.db else { return Outcome::Skipped };
        let result = operation(db);
        if result.is_ok() {
            self.durable = self.durable.max(self.model.last_commit());
        }
        outcome(result)
    }

    fn open_snapshot(&mut self) -> Outcome {
        match self.db.as_ref().map(Db::snapshot) {
            Some(Ok(snapshot)) => {
                self.snapshots.push_back((snapshot, self.model.now()));
                Outcome::Done
            }
            Some(Err(error)) => Outcome::Failed(error),
            None => Outcome::Skipped,
        }
    }

    fn close_snapshot(&mut self) -> Verdict<Outcome> {
        let Some((snapshot, now)) = self.snapshots.pop_front() else {
            return Ok(Outcome::Skipped);
        };
        for (name, keyspace) in &self.handles {
            if let Some((_, life)) = self.model.living(name) {
                match verify::snapshot(&snapshot, keyspace, life, now)? {
                    Ok(()) => {}
                    Err(error) => return Ok(Outcome::Failed(error)),
                }
            }
        }
        Ok(Outcome::Done)
    }

    fn create(&mut self, name: &str) -> Outcome {
        let Some(db) = &self.db else { return Outcome::Skipped };
        match db.keyspace(name, self.config.keyspace_options()) {
            Ok(keyspace) => {
                self.handles.insert(name.to_owned(), keyspace);
                self.model.create(name);
                Outcome::Done
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    fn drop_keyspace(&mut self, name: &str) -> Outcome {
        let Some(db) = &self.db else { return Outcome::Skipped };
        match db.drop_keyspace(name) {
            Ok(true) => {
                self.handles.remove(name);
                self.model.drop_keyspace(name);
                Outcome::Done
            }
            Ok(false) => Outcome::Skipped,
            Err(error) => Outcome::Failed(error),
        }
    }

    fn read(&self, name: &str, keys: &[Vec<u8>]) -> Verdict<Outcome> {
        let living = self.handles.get(name).zip(self.model.living(name));
        let Some((keyspace, (_, life))) = living else { return Ok(Outcome::Skipped) };
        let keys = keys.iter().map(Vec::as_slice);
        let result = verify::points(keyspace, life, self.model.last(), keys)?;
        Ok(result.map_or_else(Outcome::Failed, |()| Outcome::Done))
    }

    fn reopen(&mut self, cleanly: bool) -> Outcome {
        if cleanly {
            if let Err(error) = self.close() {
                return Outcome::Failed(error);
            }
        } else {
            self.snapshots.clear();
            self.handles.clear();
            self.db = None;
        }
        self.config = self.config.another();
        match self.config.builder_with(&self.device, &self.runtime).open() {
            Ok(db) => {
                self.db = Some(db);
                outcome(self.attach())
            }
            Err(error) => Outcome::Failed(error),
        }
    }

    /// Takes a handle of every keyspace there is.
    fn attach(&mut self) -> esker::Result<()> {
        let Some(db) = &self.db else { return Ok(()) };
        for name in db.keyspaces()? {
            let keyspace = db.keyspace(&name, self.config.keyspace_options())?;
            self.handles.insert(name, keyspace);
        }
        Ok(())
    }

    /// Finds out what a failed operation did. On a poisoned store it stays in doubt.
    fn resolve_failure(&mut self, op: &Op, error: &Error) -> Verdict {
        if self.doubt.is_some() {
            return Ok(());
        }
        if self.is_poisoned() || self.db.is_none() {
            self.doubt = match op {
                Op::Commit { changes, .. } => Some(Doubt::Commit(changes.clone())),
                Op::Create(name) => Some(Doubt::Create(name.clone())),
                Op::Drop(name) => Some(Doubt::Drop(name.clone())),
                _ => None,
            };
            return Ok(());
        }
        let Some(db) = &self.db else { return Ok(()) };
        match op {
            Op::Commit { changes, .. } if db.visible_seq() > self.model.last_commit() => {
                self.model.commit(db.visible_seq(), changes);
            }
            Op::Create(name) | Op::Drop(name) => {
                let found = db.open_keyspace(name).map_err(|second| {
                    let detail = format!("{second} on a keyspace that met {error}");
                    Violation::new(Oracle::WorksOn, detail)
                })?;
                match found {
                    Some(keyspace) => {
                        self.model.create(name);
                        self.handles.insert(name.clone(), keyspace);
                    }
                    None => {
                        self.model.drop_keyspace(name);
                        self.handles.remove(name);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn outcome(result: esker::Result<()>) -> Outcome {
    result.map_or_else(Outcome::Failed, |()| Outcome::Done)
}
