//! Every legal state after a power cut: records a run on a simulated disk, makes the images that
//! a crash may leave at every position, opens each and judges it.
//!
//! One state in [`NESTED_ONE_IN`] is taken further: the store is opened and used on a disk that
//! records again, and the crashes of that run, those within the recovery itself included, are
//! judged as well.

use std::collections::HashSet;
use std::sync::Arc;

use esker::{Error, IndexKind, Scheme};
use esker_device::Device;
use esker_device::sim::{
    CrashModel, CrashOptions, CrashState, SimDevice, SimImage, Trace, Unwritten,
};
use esker_harness::crash::is_whole;

use crate::counts::{Counts, budget};
use crate::generations;
use crate::history::{Op, generate};
use crate::model::Model;
use crate::recovery::{Depth, Expectation, Point, Recovered, judge};
use crate::scenario::{Make, SEED_STEP, Scenario, mixed_profile};
use crate::session::{Config, Outcome, Session};
use crate::violation::{Oracle, Verdict, Violation, without_panic};

/// One crash state in this many is run on and crashed again.
pub const NESTED_ONE_IN: u64 = 50;
/// In one state in this many the whole data file is looked through for generations.
const GENERATIONS_ONE_IN: u64 = 4;
/// Different images that every kind of workload must give.
pub const DISTINCT_AT_LEAST: u64 = 5_000;
/// Workloads of one kind that are tried for them.
const ROUNDS_MAX: u64 = 40;
const NESTED_OPS: usize = 24;

/// A run and everything needed to judge its crashes.
#[derive(Debug)]
pub struct Recording {
    /// The options with which the store was opened.
    pub config: Config,
    /// The operations on the disk. Mark `n` is where `points[n]` was reached.
    pub trace: Trace,
    /// The data that was written.
    pub model: Model,
    /// The points that were reached, one whenever more was promised than before.
    pub points: Vec<Point>,
    /// The last commit of the run.
    pub visible: u64,
    /// Merges that the run finished, and sorted runs and levels at its end, over all keyspaces.
    pub shape: Shape,
    /// Whether several writers were at work: then any commit of the run may have been under way
    /// at any point.
    pub is_concurrent: bool,
}

/// The shape of the indexes after a run.
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

/// The state from which a run starts.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The contents of the store.
    pub model: Model,
    /// The state that it is known to have.
    pub point: Point,
}

/// Runs a scenario's first part without recording and its second part with it.
///
/// # Errors
/// A promise broken while nothing crashed.
pub fn record_scenario(scenario: &Scenario) -> Verdict<Recording> {
    let (image, base) = prepare(scenario)?;
    let device = Arc::new(SimDevice::from_image(&image));
    if let Some(capacity_bytes) = scenario.capacity_bytes {
        device.set_capacity_bytes(capacity_bytes);
    }
    record(&scenario.config, &device, base, &scenario.ops, scenario.capacity_bytes.is_some())
}

/// Runs a scenario's first part. Without one the disk is empty.
///
/// # Errors
/// A promise broken while nothing crashed.
pub fn prepare(scenario: &Scenario) -> Verdict<(SimImage, Base)> {
    let device = Arc::new(SimDevice::new());
    let mut base = Base::default();
    if !scenario.prepare.is_empty() {
        let mut run = Run::start(&scenario.config, &device, base)?;
        run.apply_all(&scenario.prepare, false)?;
        base = run.close()?;
    }
    Ok((device.image(), base))
}

/// Runs `ops` on a disk that records, from opening to closing. Where the disk `may_fill_up`, an
/// operation may fail for want of room.
///
/// # Errors
/// A promise broken while nothing crashed.
pub fn record(
    config: &Config,
    device: &Arc<SimDevice>,
    base: Base,
    ops: &[Op],
    may_fill_up: bool,
) -> Verdict<Recording> {
    device.record();
    let mut run = Run::start(config, device, base)?;
    run.apply_all(ops, may_fill_up)?;
    let points = std::mem::take(&mut run.points);
    let shape = run.shape();
    let Base { model, point } = run.close()?;
    let trace = device.take_trace();
    let trace = trace.ok_or_else(|| Violation::new(Oracle::Harness, "no trace was recorded"))?;
    let (config, visible) = (config.clone(), point.visible);
    Ok(Recording { config, trace, model, points, visible, shape, is_concurrent: false })
}

/// A session whose progress is marked in the trace.
struct Run<'a> {
    device: &'a Arc<SimDevice>,
    session: Session,
    points: Vec<Point>,
}

impl<'a> Run<'a> {
    fn start(config: &Config, device: &'a Arc<SimDevice>, base: Base) -> Verdict<Self> {
        let opens = |error: Error| Violation::new(Oracle::Opens, error.to_string());
        let shared: Arc<dyn Device> = Arc::clone(device) as _;
        let session = Session::open(config, shared, base.model).map_err(opens)?;
        let mut run = Self { device, session, points: vec![base.point] };
        run.reach(true);
        Ok(run)
    }

    fn apply_all(&mut self, ops: &[Op], may_fill_up: bool) -> Verdict {
        for (at, op) in ops.iter().enumerate() {
            let outcome = self.session.apply(op).map_err(|v| v.at(format!("operation {at}")))?;
            match outcome {
                Outcome::Failed(Error::Full { .. }) if may_fill_up => {}
                Outcome::Failed(Error::Poisoned { .. }) if may_fill_up => return Ok(()),
                Outcome::Failed(error) => {
                    let detail = format!("operation {at}, {op}, failed: {error}");
                    return Err(Violation::new(Oracle::WorksOn, detail));
                }
                Outcome::Done | Outcome::Skipped => {}
            }
            self.reach(false);
        }
        if may_fill_up { Ok(()) } else { self.session.runs_on() }
    }

    /// Notes a point where more is promised than at the last one.
    fn reach(&mut self, always: bool) {
        let point = self.session.point();
        let last = self.points.last();
        let more = last.is_none_or(|last| {
            point.durable > last.durable || point.alive != last.alive || !last.exists
        });
        if more || always {
            self.device.mark(self.points.len() as u64);
            self.points.push(point);
        }
    }

    fn shape(&self) -> Shape {
        let stats = self.session.db().and_then(|db| db.stats().ok()).unwrap_or_default();
        let mut shape = Shape::default();
        for keyspace in &stats.keyspaces {
            shape.merges += keyspace.merges;
            shape.sorted_runs += keyspace.sorted_runs;
            shape.levels += keyspace.levels.len() as u64;
            let levels = keyspace.lsm.iter().flat_map(|lsm| &lsm.levels);
            shape.blocks_packed += levels.map(|level| level.written.blocks_packed).sum::<u64>();
        }
        shape
    }

    fn close(self) -> Verdict<Base> {
        let mut point = self.session.point();
        let closed = self.session.close();
        let model = closed
            .map_err(|error| Violation::new(Oracle::WorksOn, format!("closing failed: {error}")))?;
        point.durable = point.visible;
        Ok(Base { model, point })
    }
}

/// The number of crashes to judge, and their depth.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Images, over all kinds of disks.
    pub images: u64,
    /// Whether some states are run on and crashed again.
    pub nested: bool,
}

impl Effort {
    /// The effort that the budget asks for.
    #[must_use]
    pub fn from_budget() -> Self {
        Self { images: 2_500 * budget(), nested: true }
    }
}

/// The kinds of disks, and how many eighths of the effort each gets.
const DISKS: [(CrashModel, u64); 4] = [
    (disk(false, Unwritten::Zeros), 5),
    (disk(true, Unwritten::Zeros), 1),
    (disk(false, Unwritten::Garbage), 1),
    (disk(false, Unwritten::OldData), 1),
];

const fn disk(ordered: bool, unwritten: Unwritten) -> CrashModel {
    CrashModel { ordered, unwritten, honours_syncs: true }
}

/// Judges the crashes of a recording, and adds the digests of their images to `images`.
///
/// # Errors
/// The first broken promise, with what is needed to see it again.
pub fn explore(
    recording: &Recording,
    effort: Effort,
    images: &mut HashSet<u64>,
    counts: &mut Counts,
) -> Verdict {
    for (model, eighths) in DISKS {
        let limit = Some(effort.images * eighths / 8);
        let options = CrashOptions { model, limit, seed: 5, ..CrashOptions::default() };
        let visited = recording.trace.for_each_crash(&options, |state, device| {
            images.insert(state.digest);
            counts.add("judged", 1);
            visit(recording, state, device, effort.nested, counts)
                .map_err(|violation| violation.at(format!("{model:?}: {state}")))
        })?;
        counts.add("generated", visited.generated);
    }
    Ok(())
}

fn visit(
    recording: &Recording,
    state: &CrashState<'_>,
    device: &Arc<SimDevice>,
    nested: bool,
    counts: &mut Counts,
) -> Verdict {
    let image = device.image();
    let depth = if state.digest.is_multiple_of(6) { Depth::Thorough } else { Depth::Once };
    let config = &recording.config;
    let recovered = without_panic(|| judge_state(recording, config, state, device, depth))?;
    if nested && (state.digest / 6).is_multiple_of(NESTED_ONE_IN) {
        without_panic(|| crash_again(recording, &image, recovered, state.digest, counts))
            .map_err(|violation| violation.at("then run on"))?;
    }
    Ok(())
}

/// Opens what a crash left as `config` says, and judges it.
fn judge_state(
    recording: &Recording,
    config: &Config,
    state: &CrashState<'_>,
    device: &Arc<SimDevice>,
    depth: Depth,
) -> Verdict<Recovered> {
    let passed = state.acknowledged().and_then(|mark| usize::try_from(mark).ok()).unwrap_or(0);
    let blank = Point::default();
    let mut now = recording.points.get(passed).unwrap_or(&blank).clone();
    if is_whole(state) {
        // What was handed to the system survives where the system does.
        now.durable = now.visible;
    }
    let next = recording.points.get(passed + 1).filter(|_| !recording.is_concurrent);
    let end = Point { visible: recording.visible, ..now.clone() };
    let next = Some(next.unwrap_or(&end));
    let expectation = Expectation { model: &recording.model, now: &now, next, doubt: None };
    let shared: Arc<dyn Device> = Arc::clone(device) as _;
    if state.digest.is_multiple_of(GENERATIONS_ONE_IN) {
        generations::are_used_once(&shared)?;
    }
    judge(config, &shared, &expectation, depth)
}

/// Opens a crashed store on a disk that records, uses it, and judges the crashes of that.
fn crash_again(
    recording: &Recording,
    image: &SimImage,
    recovered: Recovered,
    seed: u64,
    counts: &mut Counts,
) -> Verdict {
    let device = Arc::new(SimDevice::from_image(image));
    let point = Point {
        durable: recovered.seq,
        visible: recovered.seq,
        alive: recovered.model.alive(),
        exists: recovered.existed,
    };
    let base = Base { model: recovered.model, point };
    let ops = generate(&mixed_profile(NESTED_OPS), seed);
    let again = record(&recording.config, &device, base, &ops, false)?;
    let options = CrashOptions {
        exhaustive_units: 6,
        family_choices: 8,
        random_choices: 4,
        limit: Some(24),
        seed,
        ..CrashOptions::default()
    };
    counts.add("runs crashed again", 1);
    again.trace.for_each_crash(&options, |state, device| {
        counts.add("judged within them", 1);
        without_panic(|| judge_state(&again, &again.config, state, device, Depth::Once))
            .map(drop)
            .map_err(|violation| violation.at(format!("nested with seed {seed}: {state}")))
    })?;
    Ok(())
}

/// Records and explores workloads of one kind until there are enough different images.
///
/// # Errors
/// The first broken promise.
pub fn run(make: Make) -> Verdict<Counts> {
    let mut counts = Counts::new("crash", make(0).name);
    let mut images = HashSet::new();
    for round in 0..ROUNDS_MAX {
        let scenario = make(round * SEED_STEP);
        let place = format!("{} {round}", scenario.name);
        run_once(&scenario, Effort::from_budget(), &mut images, &mut counts)
            .map_err(|violation| violation.at(place))?;
        if images.len() as u64 >= DISTINCT_AT_LEAST {
            counts.add("distinct", images.len() as u64);
            return Ok(counts);
        }
    }
    let detail = format!("{} different images, {DISTINCT_AT_LEAST} are needed", images.len());
    Err(Violation::new(Oracle::Harness, detail).at(make(0).name))
}

/// Records and explores one workload.
///
/// # Errors
/// The first broken promise.
pub fn run_once(
    scenario: &Scenario,
    effort: Effort,
    images: &mut HashSet<u64>,
    counts: &mut Counts,
) -> Verdict {
    let recording = without_panic(|| record_scenario(scenario))?;
    counts.add("runs", 1);
    counts.add("device events", recording.trace.len() as u64);
    counts.add("acknowledgements", recording.points.len() as u64);
    counts.add("merges", recording.shape.merges);
    counts.add("sorted runs at the end", recording.shape.sorted_runs);
    counts.add("levels at the end", recording.shape.levels);
    if scenario.config.index == IndexKind::Lsm {
        counts.add("blocks packed", recording.shape.blocks_packed);
    }
    explore(&recording, effort, images, counts)
}

/// Records one workload under `scheme` and judges `images` of its crashes, each opened under a
/// scheme of its own: a merge that one began is another's to go on with.
///
/// # Errors
/// The first broken promise.
pub fn glance(make: Make, scheme: Scheme, images: u64, counts: &mut Counts) -> Verdict {
    let mut scenario = make(0);
    scenario.config.scheme = scheme;
    let recording = without_panic(|| record_scenario(&scenario))?;
    counts.add("runs", 1);
    counts.add("merges", recording.shape.merges);
    let options = CrashOptions {
        exhaustive_units: 4,
        family_choices: 6,
        random_choices: 4,
        limit: Some(images),
        seed: scheme as u64,
        ..CrashOptions::default()
    };
    recording.trace.for_each_crash(&options, |state, device| {
        counts.add("judged", 1);
        let turn = (state.digest / 6) as usize % Scheme::ALL.len();
        // A scheme that requires more invariants than the scheme that made the image would miss
        // them.
        let opener = Scheme::ALL.get(turn).copied().unwrap_or_default();
        let opener = if scheme.tightens() { opener } else { scheme };
        let config = Config { scheme: opener, ..recording.config.clone() };
        let depth = if state.digest.is_multiple_of(6) { Depth::Thorough } else { Depth::Once };
        without_panic(|| judge_state(&recording, &config, state, device, depth))
            .map(drop)
            .map_err(|violation| violation.at(format!("opened as {opener:?}: {state}")))
    })?;
    Ok(())
}
