//! A worker: its history, on the store and on the model of its part of it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use esker::{Db, Durability, Error, Keyspace, Snapshot};
use parking_lot::Mutex;

use super::harness;
use super::maintenance::Stage;
use super::plan::{self, Plan};
use crate::history::{By, Op};
use crate::model::{At, Change, Life, Model, Value, Write};
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};
use crate::writing::{batch, bounds, single};

/// An operation that a full device refuses is tried again so often, with a pause between.
const TRIES_MAX: u32 = 6_000;
const PAUSE: Duration = Duration::from_millis(3);

/// The contents that a worker's part of the store should have. Its commits are numbered by its
/// operations.
#[derive(Clone, Debug)]
pub(super) struct Part {
    worker: usize,
    model: Model,
    seq: u64,
}

impl Part {
    /// After the rounds before, and `count` operations of this one.
    pub fn replayed(plan: &Plan, worker: usize, count: usize) -> Self {
        let mut part = Self { worker, model: Model::default(), seq: 0 };
        plan::shared_names().for_each(|name| part.model.create(&name));
        let mut rounds = 0;
        for (round, count) in plan.rounds_before(worker) {
            part.wait_for(round);
            plan.ops_of(round, worker).iter().take(count).for_each(|op| part.note(op));
            rounds = round + 1;
        }
        part.wait_for(rounds);
        plan.ops(worker).iter().take(count).for_each(|op| part.note(op));
        part
    }

    fn wait_for(&mut self, round: usize) {
        self.model.pass(Plan::now(round).saturating_sub(self.model.now()));
    }

    /// An operation is done.
    pub fn note(&mut self, op: &Op) {
        self.seq += 1;
        match op {
            Op::Commit { changes, .. } => self.model.commit(self.seq, changes),
            Op::Create(name) => self.model.create(name),
            Op::Drop(name) => self.model.drop_keyspace(name),
            _ => {}
        }
    }

    fn at(&self) -> At {
        self.model.at(self.seq)
    }

    fn get(&self, change: &Change) -> Option<&Value> {
        self.model.living(&change.keyspace)?.1.get(&change.key, self.at())
    }

    /// Compares it with the store, whole: the keyspaces that there are, and what is in them.
    pub fn compare(&self, db: &Db) -> Verdict {
        let failed = |error: Error| Violation::new(Oracle::WorksOn, error.to_string());
        let own = format!("of-{}-", self.worker);
        let mut found = db.keyspaces().map_err(failed)?;
        found.retain(|name| name.starts_with(&own));
        let mut expected = self.model.names();
        expected.retain(|name| name.starts_with(&own));
        ensure(found == expected, Oracle::KeyspacesExist, || {
            format!("{found:?} are there, and not {expected:?}")
        })?;
        for name in self.model.names() {
            let keyspace = db.keyspace(&name, plan::options(&name)).map_err(failed)?;
            self.compare_keyspace(&keyspace)?;
        }
        Ok(())
    }

    /// Compares its part of a keyspace, forwards and backwards.
    fn compare_keyspace(&self, keyspace: &Keyspace) -> Verdict {
        let Some((_, life)) = self.model.living(keyspace.name()) else { return Ok(()) };
        let range = || keyspace.prefix(plan::prefix(self.worker));
        both_ways(&range, life, self.at(), Oracle::ContentMatches)
            .map_err(|violation| violation.at(keyspace.name()))
    }
}

/// Compares a range with the model, forwards and backwards.
fn both_ways(
    range: &dyn Fn() -> esker::Result<esker::Range>,
    life: &Life,
    at: At,
    oracle: Oracle,
) -> Verdict {
    let failed = |error: Error| Violation::new(oracle, format!("a sound store answered: {error}"));
    let forwards = range().map_err(failed)?;
    verify::same(forwards, life.entries(at), oracle)?.map_err(failed)?;
    let backwards = range().map_err(failed)?.rev();
    let found = verify::same(backwards, life.entries(at).rev(), oracle);
    found.map_err(|violation| violation.at("backwards"))?.map_err(failed)
}

/// A worker of a round.
pub(super) struct Worker<'a> {
    plan: &'a Plan,
    stage: &'a Stage<'a>,
    part: &'a Mutex<Part>,
    number: usize,
    handles: BTreeMap<String, Keyspace>,
    snapshots: VecDeque<(Snapshot, At)>,
}

impl<'a> Worker<'a> {
    pub fn new(plan: &'a Plan, stage: &'a Stage<'a>, part: &'a Mutex<Part>, number: usize) -> Self {
        let (handles, snapshots) = (BTreeMap::new(), VecDeque::new());
        Self { plan, stage, part, number, handles, snapshots }
    }

    /// Runs its operations, and says of each when it is done.
    pub fn run(&mut self) -> Verdict {
        for name in self.part.lock().model.names() {
            self.create(&name)?;
        }
        let number = self.number;
        let acknowledge = self.plan.acknowledger(number).map_err(harness)?;
        for (done, op) in self.plan.ops(number).iter().enumerate() {
            if self.stage.is_over() {
                break;
            }
            let _going_on = self.stage.pause.read();
            let place = || format!("worker {number}, operation {done}, {op:?}");
            self.apply(op).map_err(|violation| violation.at(place()))?;
            acknowledge(done + 1).map_err(harness)?;
        }
        Ok(())
    }

    /// Does one operation, and notes it.
    fn apply(&mut self, op: &Op) -> Verdict {
        match op {
            Op::Commit { changes, durability, by } => {
                return self.commit(op, changes, *durability, *by);
            }
            Op::Create(name) => self.create(name)?,
            Op::Drop(name) => {
                self.handles.remove(name);
                self.stage.retrying(|db| db.drop_keyspace(name).map(drop))?;
            }
            Op::Persist => self.stage.unless_full(Db::persist)?,
            Op::Flush => self.stage.unless_full(Db::flush)?,
            Op::Compact => self.stage.unless_full(Db::compact)?,
            Op::CompactKeyspace(name) => {
                if let Some(keyspace) = self.handles.get(name) {
                    self.stage.unless_full(|_| keyspace.compact())?;
                }
            }
            Op::OpenSnapshot => {
                let snapshot = self.stage.db.snapshot().map_err(broken)?;
                self.snapshots.push_back((snapshot, self.part.lock().at()));
            }
            Op::CloseSnapshot => self.close_snapshot()?,
            Op::Read { keyspace, keys } => self.read(keyspace, keys)?,
            Op::Compare => {
                let part = self.part.lock().clone();
                let names = self.handles.values().skip(part.seq as usize % self.handles.len());
                names.take(1).try_for_each(|keyspace| part.compare_keyspace(keyspace))?;
            }
            Op::Reopen | Op::Abandon | Op::Pass(_) => {}
        }
        self.part.lock().note(op);
        Ok(())
    }

    fn create(&mut self, name: &str) -> Verdict {
        let mut made = None;
        self.stage.retrying(|db| {
            made = Some(db.keyspace(name, plan::options(name))?);
            Ok(())
        })?;
        self.handles.extend(made.map(|keyspace| (name.to_owned(), keyspace)));
        Ok(())
    }

    /// Commits, as often as it takes where the device is full; a commit that was refused for want
    /// of room must not be there.
    fn commit(
        &self,
        op: &Op,
        changes: &[Change],
        durability: Option<Durability>,
        by: By,
    ) -> Verdict {
        let before = self.part.lock().clone_values(changes);
        self.part.lock().note(op);
        let after = self.part.lock().clone_values(changes);
        for _ in 0..TRIES_MAX {
            let committed = match (changes, by) {
                (many, By::Transaction) => self.transaction(many, &before, durability)?,
                ([one], By::Single) => single(self.stage.db, &self.handles, one, durability),
                (many, _) => batch(self.stage.db, &self.handles, many, durability).map(drop),
            };
            match committed {
                Ok(()) => return Ok(()),
                Err(error @ (Error::Full { .. } | Error::Conflict { .. })) => {
                    self.stage.note_refusal(&error);
                    self.is_as_before(changes, &before, &after)?;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Err(Violation::new(Oracle::WorksOn, "a commit is refused for ever"))
    }

    fn is_as_before(
        &self,
        changes: &[Change],
        before: &[Option<Value>],
        after: &[Option<Value>],
    ) -> Verdict {
        for (change, (before, after)) in changes.iter().zip(before.iter().zip(after)) {
            let Some(keyspace) = self.handles.get(&change.keyspace) else { continue };
            if before != after && !matches!(change.write, Write::DeleteUpTo(_)) {
                let found = keyspace.get(&change.key).map_err(broken)?;
                verify::point(&change.key, found.as_deref(), before.as_ref())
                    .map_err(|violation| violation.at("after a commit that was refused"))?;
            }
        }
        Ok(())
    }

    /// Commits by a transaction that has read what it changes.
    fn transaction(
        &self,
        changes: &[Change],
        before: &[Option<Value>],
        durability: Option<Durability>,
    ) -> Verdict<esker::Result<()>> {
        let mut tx = self.stage.db.transaction().map_err(broken)?;
        for (change, before) in changes.iter().zip(before) {
            let Some(keyspace) = self.handles.get(&change.keyspace) else { continue };
            let found = tx.get(keyspace, &change.key).map_err(broken)?;
            verify::point(&change.key, found.as_deref(), before.as_ref())
                .map_err(|violation| violation.at("in a transaction"))?;
        }
        let mut write = || {
            for Change { keyspace, key, write } in changes {
                let Some(keyspace) = self.handles.get(keyspace) else { continue };
                match write {
                    Write::Put(value) => tx.insert(keyspace, key, value)?,
                    Write::PutFor(value, millis) => {
                        tx.insert_with_ttl(keyspace, key, value, Duration::from_millis(*millis))?;
                    }
                    Write::Append(operand) => tx.merge(keyspace, key, operand)?,
                    Write::Delete => tx.remove(keyspace, key)?,
                    Write::DeleteUpTo(end) => tx.remove_range(keyspace, bounds(key, end))?,
                }
            }
            Ok(())
        };
        let written = write();
        Ok(written.and_then(|()| match durability {
            Some(durability) => tx.commit_with(durability).map(drop),
            None => tx.commit().map(drop),
        }))
    }

    fn close_snapshot(&mut self) -> Verdict {
        let Some((snapshot, at)) = self.snapshots.pop_front() else { return Ok(()) };
        let part = self.part.lock().clone();
        for keyspace in self.handles.values() {
            let Some((_, life)) = part.model.living(keyspace.name()) else { continue };
            let range = || snapshot.prefix(keyspace, plan::prefix(self.number));
            both_ways(&range, life, at, Oracle::SnapshotsStand)
                .map_err(|violation| violation.at(keyspace.name()))?;
        }
        Ok(())
    }

    fn read(&self, name: &str, keys: &[Vec<u8>]) -> Verdict {
        let part = self.part.lock();
        let living = self.handles.get(name).zip(part.model.living(name));
        let Some((keyspace, (_, life))) = living else { return Ok(()) };
        let keys = keys.iter().map(Vec::as_slice);
        verify::points(keyspace, life, part.at(), keys)?.map_err(broken)
    }
}

impl Part {
    /// The values of what is changed.
    fn clone_values(&self, changes: &[Change]) -> Vec<Option<Value>> {
        changes.iter().map(|change| self.get(change).cloned()).collect()
    }
}

pub(super) fn broken(error: Error) -> Violation {
    Violation::new(Oracle::WorksOn, error.to_string())
}

pub(super) fn retrying(db: &Db, mut operation: impl FnMut(&Db) -> esker::Result<()>) -> Verdict {
    for _ in 0..TRIES_MAX {
        match operation(db) {
            Ok(()) => return Ok(()),
            Err(Error::Full { .. }) => std::thread::sleep(PAUSE),
            Err(error) => return Err(broken(error)),
        }
    }
    Err(Violation::new(Oracle::WorksOn, "an operation is refused for ever"))
}
