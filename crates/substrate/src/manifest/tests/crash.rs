//! Power cuts and failing operations.

use std::result::Result;

use esker_device::sim::{CrashModel, Survivors};
use esker_harness::crash;
use esker_harness::faults::{self, Effects};
use esker_harness::violation::{Oracle, Verdict, Violation};

use super::*;

const COMMITS: u64 = 30;

/// Checks a state that a device may have when `acknowledged` commits have returned and one more may
/// be under way; then continues and checks again.
fn check(
    device: &Arc<SimDevice>,
    states: &[ManifestState],
    acknowledged: u64,
) -> Result<(), String> {
    let device: Arc<dyn Device> = device.clone();
    let (manifest, problems) = open(&device).map_err(|error| error.to_string())?;
    if !problems.is_empty() {
        return Err(format!("a crash is no damage: {problems:?}"));
    }
    let found = manifest.state();
    let at = states.iter().position(|state| *state == *found).ok_or("an unknown state")? as u64;
    if at < acknowledged || at > acknowledged + 1 {
        return Err(format!("{acknowledged} commits were acknowledged, {at} are there"));
    }
    if at < COMMITS {
        commit_nth(&manifest, at).map_err(|error| format!("afterwards: {error}"))?;
        let (again, problems) = open(&device).map_err(|error| format!("again: {error}"))?;
        if !problems.is_empty() || *again.state() != states[at as usize + 1] {
            return Err(format!("afterwards: {problems:?}, {:?}", again.state()));
        }
    }
    Ok(())
}

/// The history from creation on; mark `n + 1` when `n` commits have returned.
fn trace() -> Trace {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    sim.record();
    if let Ok(manifest) = create(&device) {
        sim.mark(1);
        for n in 0..COMMITS {
            if commit_nth(&manifest, n).is_err() {
                break;
            }
            sim.mark(n + 2);
        }
    }
    sim.take_trace().unwrap()
}

fn options(limit: Option<u64>) -> CrashOptions {
    CrashOptions { limit, ..CrashOptions::default() }
}

/// A state that was not promised.
fn broken(detail: String) -> Violation {
    Violation::new(Oracle::AcknowledgedIsThere, detail)
}

/// Opens every crash image of the history, and of each the crash images of its recovery.
fn crash_everywhere(trace: &Trace, nested_every: u64) -> Verdict<CrashCounts> {
    let states = states(COMMITS);
    let mut visited = 0;
    crash::each(trace, &options(None), |crash, sim| {
        let Some(acknowledged) = crash.acknowledged().map(|mark| mark - 1) else {
            return check_creation(sim, &states).map_err(broken);
        };
        sim.record();
        check(sim, &states, acknowledged).map_err(broken)?;
        visited += 1;
        if visited % nested_every == 0 {
            let recovery = sim.take_trace().unwrap();
            crash::each(&recovery, &options(Some(60)), |_, sim| {
                let device: Arc<dyn Device> = sim.clone();
                let found = open(&device).unwrap();
                match states.iter().position(|state| *state == *found.0.state()) {
                    Some(at) if (acknowledged..=acknowledged + 2).contains(&(at as u64)) => Ok(()),
                    other => Err(broken(format!("state {other:?}"))),
                }
            })?;
        }
        Ok(())
    })
}

fn check_creation(sim: &Arc<SimDevice>, states: &[ManifestState]) -> Result<(), String> {
    let device: Arc<dyn Device> = sim.clone();
    match probe(device.as_ref()).map_err(|error| error.to_string())? {
        Presence::Store => return check(sim, states, 0),
        Presence::Empty => {}
        Presence::Unfinished(leftovers) => {
            for name in leftovers {
                device.remove(&name).map_err(|error| error.to_string())?;
            }
        }
    }
    let manifest = create(&device).map_err(|error| error.to_string())?;
    commit_nth(&manifest, 0).map_err(|error| error.to_string())?;
    let (again, _) = open(&device).map_err(|error| error.to_string())?;
    (*again.state() == states[1]).then_some(()).ok_or_else(|| "created in vain".to_string())
}

#[test]
fn no_power_cut_loses_an_acknowledged_commit() {
    let counts = crash_everywhere(&trace(), 7).unwrap();
    assert!(counts.distinct > 300, "{counts:?}");
}

/// Every operation of a history fails, in every way; then the store is opened again without a
/// power cut, used, and only then the power fails.
#[test]
fn no_failing_operation_loses_an_acknowledged_commit() {
    let states = states(COMMITS + 2);
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let manifest = create(&device).unwrap();
    (0..COMMITS).for_each(|n| commit_nth(&manifest, n).unwrap());
    let operations = OpKind::ALL.map(|kind| (kind, sim.op_count_of(kind)));
    assert!(sim.op_count() > 100);
    let effects = Effects { power_off: false, on_write: &[], on_read: &[] };
    let verdict = faults::each(operations, u64::MAX, &effects, |case| {
        let sim = Arc::new(SimDevice::new());
        let device: Arc<dyn Device> = sim.clone();
        sim.set_faults(case.plan());
        let created = create(&device);
        let acknowledged = match &created {
            // A removal that fails is passed over.
            Ok(manifest) => (0..COMMITS).find(|n| commit_nth(manifest, *n).is_err()),
            Err(_) => None,
        };
        sim.set_faults(FaultPlan::new());
        if created.is_err() && probe(device.as_ref()).unwrap() != Presence::Store {
            return Ok(());
        }
        let acknowledged = acknowledged.unwrap_or(if created.is_ok() { COMMITS } else { 0 });
        let (manifest, problems) = open(&device).unwrap();
        assert_eq!(problems, []);
        let at = states.iter().position(|state| *state == *manifest.state()).unwrap();
        assert!((acknowledged..=acknowledged + 1).contains(&(at as u64)), "{at}");
        commit_nth(&manifest, at as u64).unwrap();
        let left = sim.crash(&Survivors::Subset(0), &CrashModel::default());
        let device: Arc<dyn Device> = Arc::new(SimDevice::from_image(&left));
        let (manifest, _) = open(&device).unwrap();
        assert_eq!(*manifest.state(), states[at + 1]);
        Ok(())
    });
    verdict.unwrap_or_else(|violation| panic!("{violation}"));
}

#[cfg(feature = "_planted")]
mod planted_bugs {
    use super::*;
    use crate::planted::{self, Bug};

    #[test]
    fn each_is_found() {
        for bug in [Bug::NoBarrierBeforeSuperblock, Bug::NoDirectorySync] {
            let found = planted::with(bug, || crash_everywhere(&trace(), u64::MAX));
            assert!(found.is_err(), "{bug:?}");
        }
    }
}
