//! Every legal state after a power cut: records a run of a store on a simulated disk, and has the
//! harness open and judge each image that a crash may leave at every position.
//!
//! One state in [`AGAIN_ONE_IN`] is taken further: the store is opened and used on a disk that
//! records again, and the crashes of that run, those within the recovery itself included, are
//! judged as well.

use std::collections::HashSet;
use std::sync::Arc;

use esker::{IndexKind, Scheme};
use esker_device::sim::{CrashModel, CrashOptions, SimDevice, SimImage, Unwritten};
use esker_harness::crash;

use crate::counts::{Counts, budget};
use crate::scenario::{Make, SEED_STEP, Scenario};
use crate::subject::{Base, Case, StoreRun};
use crate::violation::{Oracle, Verdict, Violation, without_panic};

/// One crash state in this many is used and crashed again.
pub const AGAIN_ONE_IN: u64 = 50;
/// Different images that every kind of workload must give.
pub const DISTINCT_AT_LEAST: u64 = 5_000;
/// Workloads of one kind that are tried for them.
const ROUNDS_MAX: u64 = 40;

/// A run of a store and everything needed to judge its crashes.
pub type Recording = crash::Recording<StoreRun>;

/// Runs a scenario's first part without recording and its second part with it.
///
/// # Errors
/// A promise broken while nothing crashed.
pub fn record_scenario(scenario: &Scenario) -> Verdict<Recording> {
    record_as(scenario, Case::new(scenario.config.clone()))
}

fn record_as(scenario: &Scenario, case: Case) -> Verdict<Recording> {
    let (image, base) = prepare(scenario)?;
    let disk = Arc::new(SimDevice::from_image(&image));
    if let Some(capacity_bytes) = scenario.capacity_bytes {
        disk.set_capacity_bytes(capacity_bytes);
    }
    let case = Case { may_fill_up: scenario.capacity_bytes.is_some(), ..case };
    crash::record(case, &disk, &base, &scenario.ops)
}

/// Runs a scenario's first part. Without one the disk is empty.
///
/// # Errors
/// A promise broken while nothing crashed.
pub fn prepare(scenario: &Scenario) -> Verdict<(SimImage, Base)> {
    let disk = Arc::new(SimDevice::new());
    let mut base = Base::default();
    if !scenario.prepare.is_empty() {
        let case = Case::new(scenario.config.clone());
        let run: Recording = crash::record(case, &disk, &base, &scenario.prepare)?;
        base = Base { model: run.model.model, point: run.end };
        // It was closed.
        base.point.durable = base.point.visible;
    }
    Ok((disk.image(), base))
}

/// The kinds of disks, and how many eighths of the images each gets.
const DISKS: [(CrashModel, u64); 4] = [
    (disk(false, Unwritten::Zeros), 5),
    (disk(true, Unwritten::Zeros), 1),
    (disk(false, Unwritten::Garbage), 1),
    (disk(false, Unwritten::OldData), 1),
];

const fn disk(ordered: bool, unwritten: Unwritten) -> CrashModel {
    CrashModel { ordered, unwritten, honours_syncs: true }
}

/// Judges so many crashes of a recording, over all kinds of disks, and adds the digests of their
/// images to `distinct`.
///
/// # Errors
/// The first broken promise, with what is needed to see it again.
pub fn explore(
    recording: &Recording,
    images: u64,
    distinct: &mut HashSet<u64>,
    counts: &mut Counts,
) -> Verdict {
    for (model, eighths) in DISKS {
        let limit = Some(images * eighths / 8);
        let options = CrashOptions { model, limit, seed: 5, ..CrashOptions::default() };
        let seen = |digest| {
            distinct.insert(digest);
        };
        crash::explore(recording, &options, Some(AGAIN_ONE_IN), counts, seen)
            .map_err(|violation| violation.at(format!("{model:?}")))?;
    }
    Ok(())
}

/// Records and explores workloads of one kind until there are enough different images.
///
/// # Errors
/// The first broken promise.
pub fn run(make: Make) -> Verdict<Counts> {
    let mut counts = Counts::new("crash", make(0).name);
    let mut distinct = HashSet::new();
    for round in 0..ROUNDS_MAX {
        let scenario = make(round * SEED_STEP);
        let place = format!("{} {round}", scenario.name);
        run_once(&scenario, 2_500 * budget(), &mut distinct, &mut counts)
            .map_err(|violation| violation.at(place))?;
        if distinct.len() as u64 >= DISTINCT_AT_LEAST {
            counts.add("distinct", distinct.len() as u64);
            return Ok(counts);
        }
    }
    let detail = format!("{} different images, {DISTINCT_AT_LEAST} are needed", distinct.len());
    Err(Violation::new(Oracle::Harness, detail).at(make(0).name))
}

/// Records one workload, and explores so many crashes of it.
///
/// # Errors
/// The first broken promise.
pub fn run_once(
    scenario: &Scenario,
    images: u64,
    distinct: &mut HashSet<u64>,
    counts: &mut Counts,
) -> Verdict {
    let recording = without_panic(|| record_scenario(scenario))?;
    counts.add("runs", 1);
    counts.add("device events", recording.trace.len() as u64);
    counts.add("acknowledgements", recording.points.len() as u64);
    counts.add("merges", recording.model.shape.merges);
    counts.add("sorted runs at the end", recording.model.shape.sorted_runs);
    counts.add("levels at the end", recording.model.shape.levels);
    if scenario.config.index == IndexKind::Lsm {
        counts.add("blocks packed", recording.model.shape.blocks_packed);
    }
    explore(&recording, images, distinct, counts)
}

/// Records one workload under `scheme` and judges `images` of its crashes, each opened under a
/// scheme of its own: a merge that one began is another's to go on with.
///
/// # Errors
/// The first broken promise.
pub fn glance(make: Make, scheme: Scheme, images: u64, counts: &mut Counts) -> Verdict {
    let mut scenario = make(0);
    scenario.config.scheme = scheme;
    let case = Case { is_handed_on: true, ..Case::new(scenario.config.clone()) };
    let recording = without_panic(|| record_as(&scenario, case))?;
    counts.add("runs", 1);
    counts.add("merges", recording.model.shape.merges);
    let options = CrashOptions {
        exhaustive_units: 4,
        family_choices: 6,
        random_choices: 4,
        limit: Some(images),
        seed: scheme as u64,
        ..CrashOptions::default()
    };
    crash::explore(&recording, &options, None, counts, |_| {})
}
