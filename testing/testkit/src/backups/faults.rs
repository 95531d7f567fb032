//! Each operation of a backup fails, on either device: the store is as before, and so is the older
//! backup, unless the new one is there.

use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{Backup, Error};
use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_device::sim::{
    CrashModel, Effect, Failure, FaultPlan, OpKind, SimDevice, SimImage, Survivors,
};
use esker_harness::faults::{self, Case, Effects};

use super::{Held, Source, during_backup, judge_backup, judge_restored, with_one_backup};
use crate::config::Config;
use crate::counts::{Counts, budget};
use crate::history::{Op, generate};
use crate::recovery::Depth;
use crate::scenario::mixed_profile;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Runs of one kind of operation and effect at budget 1.
const RUNS_OF_A_KIND: u64 = 30;

/// The faults besides those of every suite.
const EFFECTS: Effects = Effects {
    power_off: false,
    on_write: &[(Effect::ShortWrite { bytes: 700, failure: Failure::NoSpace }, true)],
    on_read: &[(Effect::FlipRead { byte: 77, mask: 0x10 }, false)],
};

/// Operations of each kind.
type Operations = [u64; OpKind::ALL.len()];

/// Ends the faults of a device; what it has done since they began.
fn lift(device: &SimDevice) -> Operations {
    let operations = OpKind::ALL.map(|kind| device.op_count_of(kind));
    device.set_faults(FaultPlan::new());
    operations
}

/// Fails every operation of `work`, which answers how many there were, as far as the budget goes:
/// first it is done with nothing failing, to count them.
fn each(
    image: &SimImage,
    counts: &mut Counts,
    mut work: impl FnMut(&Arc<SimDevice>, Option<Case>) -> Verdict<Operations>,
) -> Verdict {
    let operations = work(&Arc::new(SimDevice::from_image(image)), None)?;
    counts.add("device operations", operations.iter().sum());
    let operations = OpKind::ALL.into_iter().zip(operations);
    faults::each(operations, RUNS_OF_A_KIND * budget(), &EFFECTS, |case| {
        let device = Arc::new(SimDevice::from_image(image));
        device.set_faults(case.plan());
        counts.add("runs", 1);
        work(&device, Some(case)).map(drop)
    })
}

const fn is_sync(case: Case) -> bool {
    matches!(case.kind, OpKind::Sync | OpKind::SyncDir)
}

/// Only what a device does may come out as an error.
fn expected(error: &Error) -> Verdict {
    let is_expected = matches!(error, Error::Io(_) | Error::Full { .. } | Error::Damaged { .. });
    ensure(is_expected, Oracle::ErrorsSurface, || format!("the answer is: {error}"))
}

/// The backup's device fails during the second backup.
///
/// # Errors
/// The first broken promise.
pub fn of_the_backup(counts: &mut Counts) -> Verdict {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let (mut source, older) = with_one_backup(&device)?;
    source.apply(&during_backup(generate(&mixed_profile(60), 61)))?;
    drop(device);
    each(&sim.image(), counts, |device, fault| {
        let shared: Arc<dyn Device> = Arc::clone(device) as _;
        let (newer, made) = source.backup(&shared, &[])?;
        let operations = lift(device);
        let lost = fault.is_some_and(is_sync);
        match &made {
            Ok(_) => {}
            Err(error) => {
                ensure(fault.is_some(), Oracle::WorksOn, || error.to_string())?;
                expected(error)?;
            }
        }
        let power_cut = device.crash(&Survivors::nothing(), &CrashModel::default());
        let restarts = [Some(power_cut), (!lost).then(|| device.image())];
        for image in restarts.into_iter().flatten() {
            after(&mut source, &image, [&older, &newer], made.is_ok())?;
        }
        source.is_unharmed().map(|()| operations)
    })
}

/// The backup's device fails during the first backup into a folder: the next one into it succeeds,
/// regardless of what is left there, after a kill and after a power cut.
///
/// # Errors
/// The first broken promise.
pub fn of_a_first_backup(counts: &mut Counts) -> Verdict {
    let mut source = Source::new(&Config::default())?;
    source.apply(&during_backup(generate(&mixed_profile(60), 63)))?;
    each(&SimDevice::new().image(), counts, |device, fault| {
        let shared: Arc<dyn Device> = Arc::clone(device) as _;
        let (held, made) = source.backup(&shared, &[])?;
        let operations = lift(device);
        let lost = fault.is_some_and(is_sync);
        if let Err(error) = &made {
            ensure(fault.is_some(), Oracle::WorksOn, || error.to_string())?;
            expected(error)?;
        }
        let power_cut = device.crash(&Survivors::nothing(), &CrashModel::default());
        let restarts = [Some(power_cut), (!lost).then(|| device.image())];
        for image in restarts.into_iter().flatten() {
            let left: Arc<dyn Device> = Arc::new(SimDevice::from_image(&image));
            if made.is_ok() {
                judge_backup(&source.config, &left, &held, Depth::Once)?;
            }
            let (held, _) = source.must_backup(&left, &[]).map_err(|v| v.at("once more"))?;
            judge_backup(&source.config, &left, &held, Depth::Once)?;
        }
        source.is_unharmed().map(|()| operations)
    })
}

/// One of the two is there, whole, and the next backup succeeds.
fn after(source: &mut Source, image: &SimImage, held: [&Held; 2], made: bool) -> Verdict {
    let device: Arc<dyn Device> = Arc::new(SimDevice::from_image(image));
    let backup = Backup::open_on(Arc::clone(&device));
    let backup = backup.map_err(|error| Violation::new(Oracle::Opens, error.to_string()))?;
    let seq = backup.seq();
    drop(backup);
    let newer = held[1].point.visible == seq;
    ensure(newer || !made, Oracle::AcknowledgedIsThere, || format!("it is of {seq}"))?;
    judge_backup(&source.config, &device, held[usize::from(newer)], Depth::Once)?;
    let (held, _) = source.must_backup(&device, &[]).map_err(|v| v.at("once more"))?;
    judge_backup(&source.config, &device, &held, Depth::Once)
}

/// The store's device fails while a backup is made and writes go on.
///
/// # Errors
/// The first broken promise.
pub fn of_the_source(counts: &mut Counts) -> Verdict {
    let config = Config::default();
    let history = during_backup(generate(&mixed_profile(160), 62));
    each(&SimDevice::new().image(), counts, |device, fault| {
        let faults = fault.map(|fault| fault.plan());
        device.set_faults(FaultPlan::new());
        let mut source = Source::on(&config, Arc::clone(device) as _)?;
        source.apply(&history)?;
        let folder: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let (older, _) = source.must_backup(&folder, &[])?;
        source.apply(&[Op::Flush])?;
        device.set_faults(faults.unwrap_or_default());
        let (newer, made) = source.backup(&folder, &[])?;
        let operations = lift(device);
        if let Err(error) = &made {
            let poisoned = matches!(error, Error::Poisoned { .. });
            if !poisoned {
                expected(error)?;
            }
        }
        let held = if made.is_ok() { &newer } else { &older };
        judge_backup(&config, &folder, held, Depth::Once).map(|()| operations)
    })
}

/// The device that a backup is restored to fails.
///
/// # Errors
/// The first broken promise.
pub fn of_restoring(counts: &mut Counts) -> Verdict {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let (source, held) = with_one_backup(&device)?;
    let broken = |error: Error| Violation::new(Oracle::WorksOn, error.to_string());
    let backup = Backup::open_on(device).map_err(broken)?;
    each(&SimDevice::new().image(), counts, |device, fault| {
        let restore = || {
            let device: Arc<dyn Device> = Arc::clone(device) as _;
            backup.restore_on(device, &mut |_| ControlFlow::Continue(()))
        };
        let made = restore();
        let operations = lift(device);
        if let Err(error) = &made {
            ensure(fault.is_some(), Oracle::WorksOn, || error.to_string())?;
            expected(error)?;
        }
        if made.is_err() && !device.files().contains_key("superblock") {
            restore().map_err(|error| broken(error).at("once more"))?;
        }
        let shared: Arc<dyn Device> = Arc::clone(device) as _;
        judge_restored(&source.config, &shared, &held, Depth::Once).map(|()| operations)
    })
}
