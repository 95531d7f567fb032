//! A store and its model as the subject of the harness: recorded, crashed, used and crashed again.

use std::sync::Arc;

use esker::{Error, Scheme};
use esker_device::Device;
use esker_device::sim::{CrashOptions, SimDevice};
use esker_harness::crash::{Again, Crash, Subject};

use crate::config::Config;
use crate::counts::Counts;
use crate::generations;
use crate::history::{Op, generate};
use crate::model::Model;
use crate::recovery::{Depth, Expectation, Point, Recovered, judge};
use crate::scenario::mixed_profile;
use crate::session::{Doubt, Outcome, Session};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// One crash state in this many is judged thoroughly.
const THOROUGH_ONE_IN: u64 = 6;
/// In one state in this many the whole data file is looked through for generations.
const GENERATIONS_ONE_IN: u64 = 4;
const AGAIN_OPS: usize = 24;

/// How a store is opened, and what its runs are like.
#[derive(Clone, Debug)]
pub struct Case {
    /// The options with which the store is opened.
    pub config: Config,
    /// Whether an operation may fail for want of room.
    pub may_fill_up: bool,
    /// Whether several writers are at work: then any commit of the run may have been under way at
    /// any point.
    pub is_concurrent: bool,
    /// Whether what a crash left is opened under any scheme: a merge that one began is another's to
    /// go on with.
    pub is_handed_on: bool,
}

impl Case {
    /// One writer with room for everything, and one scheme.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self { config, may_fill_up: false, is_concurrent: false, is_handed_on: false }
    }

    /// The options with which a crash image with this digest is opened.
    fn opener(&self, digest: u64) -> Config {
        let scheme = self.config.scheme;
        // A scheme that requires more invariants than the scheme that made the image would miss
        // them.
        if !self.is_handed_on || !scheme.tightens() {
            return self.config.clone();
        }
        let turn = (digest / THOROUGH_ONE_IN) as usize % Scheme::ALL.len();
        let scheme = Scheme::ALL.get(turn).copied().unwrap_or_default();
        Config { scheme, ..self.config.clone() }
    }
}

/// The state from which a run starts.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The contents of the store.
    pub model: Model,
    /// The state that it is known to have.
    pub point: Point,
}

impl From<Recovered> for Base {
    fn from(recovered: Recovered) -> Self {
        let Recovered { seq, model, existed, .. } = recovered;
        let point = Point { durable: seq, visible: seq, alive: model.alive(), exists: existed };
        Self { model, point }
    }
}

/// What a run has written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Every version.
    pub model: Model,
    /// The change that a failed operation may have made beyond the model.
    pub doubt: Option<Doubt>,
    /// The indexes at the end.
    pub shape: Shape,
}

/// The shape of the indexes after a run, over all keyspaces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Merges finished since the keyspaces were created.
    pub merges: u64,
    /// Standing sorted runs at the end.
    pub sorted_runs: u64,
    /// Levels with blocks at the end.
    pub levels: u64,
    /// Blocks that were written to pack levels, since the store was opened last.
    pub blocks_packed: u64,
}

impl Shape {
    fn of(session: &Session) -> Self {
        let stats = session.db().and_then(|db| db.stats().ok()).unwrap_or_default();
        let mut shape = Self::default();
        for keyspace in &stats.keyspaces {
            shape.merges += keyspace.merges;
            shape.sorted_runs += keyspace.sorted_runs;
            shape.levels += keyspace.levels.len() as u64;
            let levels = keyspace.lsm.iter().flat_map(|lsm| &lsm.levels);
            shape.blocks_packed += levels.map(|level| level.written.blocks_packed).sum::<u64>();
        }
        shape
    }
}

/// A session, and what its run has shown.
#[derive(Debug)]
pub struct StoreRun {
    pub(crate) session: Session,
    /// Whether the store has refused to accept more since it was opened.
    pub(crate) is_poisoned: bool,
    may_fill_up: bool,
    /// Whether a store without room accepts nothing more.
    is_over: bool,
    shape: Shape,
}

impl Subject for StoreRun {
    type Case = Case;
    type Op = Op;
    type Point = Point;
    type Base = Base;
    type Model = Written;
    type Error = Error;

    fn open(case: &Case, disk: &Arc<SimDevice>, base: &Base) -> esker::Result<Self> {
        let session = Session::open(&case.config, Arc::clone(disk) as _, base.model.clone())?;
        let (is_poisoned, is_over, shape) = (false, false, Shape::default());
        Ok(Self { session, is_poisoned, may_fill_up: case.may_fill_up, is_over, shape })
    }

    fn known(base: &Base) -> Point {
        base.point.clone()
    }

    fn apply(&mut self, op: &Op) -> Verdict<esker::Result<()>> {
        if self.is_over {
            return Ok(Ok(()));
        }
        let commits = self.session.model().last_commit();
        let outcome = self.session.apply(op)?;
        let accepted = self.session.model().last_commit() > commits;
        ensure(!(self.is_poisoned && accepted), Oracle::PoisonHolds, || format!("{op:?}"))?;
        // Opened again, a store that was poisoned is not.
        self.is_poisoned &= !matches!(op, Op::Reopen | Op::Abandon);
        self.is_poisoned |= self.session.is_poisoned();
        match outcome {
            Outcome::Failed(Error::Full { .. }) if self.may_fill_up => {}
            Outcome::Failed(Error::Poisoned { .. }) if self.may_fill_up => self.is_over = true,
            Outcome::Failed(error) => return Ok(Err(error)),
            Outcome::Done | Outcome::Skipped => {}
        }
        Ok(Ok(()))
    }

    fn observe(&self) -> Point {
        self.session.point()
    }

    fn is_more(now: &Point, last: &Point) -> bool {
        now.durable > last.durable || now.alive != last.alive || !last.exists
    }

    fn finish(&mut self) -> Verdict {
        if !self.may_fill_up {
            self.session.runs_on()?;
        }
        self.shape = Shape::of(&self.session);
        self.session
            .close()
            .map_err(|error| Violation::new(Oracle::WorksOn, format!("closing failed: {error}")))
    }

    fn into_model(self) -> Written {
        let doubt = self.session.doubt().cloned();
        Written { model: self.session.into_model(), doubt, shape: self.shape }
    }

    fn check(
        crash: &Crash<'_, Self>,
        disk: &Arc<SimDevice>,
        _: &mut Counts,
    ) -> Verdict<Vec<Option<Base>>> {
        let Crash { case, model: Written { model, .. }, promise, state, is_again } = crash;
        let shared: Arc<dyn Device> = Arc::clone(disk) as _;
        if state.digest.is_multiple_of(GENERATIONS_ONE_IN) {
            generations::are_used_once(&shared)?;
        }
        let mut now = promise.now.clone();
        if promise.is_whole {
            // What was handed to the system survives where the system does.
            now.durable = now.visible;
        }
        let end = Point { visible: model.last_commit(), ..now.clone() };
        let next = if case.is_concurrent { &end } else { promise.next };
        let expectation = Expectation { model, now: &now, next: Some(next), doubt: None };
        let is_thorough = !is_again && state.digest.is_multiple_of(THOROUGH_ONE_IN);
        let depth = if is_thorough { Depth::Thorough } else { Depth::Once };
        let config = case.opener(state.digest);
        let recovered = judge(&config, &shared, &expectation, depth)
            .map_err(|violation| violation.at(format!("opened as {:?}", config.scheme)))?;
        Ok(vec![Some(recovered.into())])
    }

    fn again(case: &Case, seed: u64) -> Again<Self> {
        let options = CrashOptions {
            exhaustive_units: 6,
            family_choices: 8,
            random_choices: 4,
            limit: Some(24),
            seed,
            ..CrashOptions::default()
        };
        let ops = generate(&mixed_profile(AGAIN_OPS), seed);
        Again { case: Case::new(case.config.clone()), ops, options }
    }
}
