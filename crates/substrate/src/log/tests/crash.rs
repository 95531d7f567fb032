//! Power cuts and failing operations.

use std::result::Result;

use esker_device::sim::OpKind;
use esker_harness::crash;
use esker_harness::faults::{self, Effects};
use esker_harness::violation::{Oracle, Verdict, Violation};

use super::*;

/// The state of a run: which numbers end a batch, and up to which number durability was
/// acknowledged.
#[derive(Clone, Debug, Default)]
struct History {
    boundaries: BTreeSet<u64>,
    acknowledged: u64,
}

fn text(error: Error) -> String {
    error.to_string()
}

/// A store that appends, syncs, flushes and closes in turn, for as long as nothing fails. Calls
/// `acknowledge` whenever something has become durable.
fn run(
    device: &Arc<dyn Device>,
    steps: u64,
    history: &mut History,
    mut acknowledge: impl FnMut(u64),
) -> crate::Result<()> {
    history.boundaries.insert(0);
    let rig = create_rig(device)?;
    for n in 0..steps {
        let ops = n % 4 + 1;
        history.boundaries.insert(rig.log.last_seq().0 + ops);
        let synced = n % 3 == 1;
        // Some of equal length, so that an old record could be where a new one should be.
        let value_bytes = if n % 2 == 0 { 200 } else { n as usize * 37 % 900 };
        let seq = rig.put(ops, value_bytes, synced)?;
        if synced {
            history.acknowledged = seq.0;
            acknowledge(seq.0);
        }
        if n % 5 == 2 {
            rig.log.work_ahead()?;
        }
        if n % 9 == 8 {
            rig.flush(1 + (n % 2) as u32)?;
            history.acknowledged = seq.0;
            acknowledge(seq.0);
        }
    }
    rig.clean_close()?;
    history.acknowledged = rig.log.last_seq().0;
    acknowledge(history.acknowledged);
    Ok(())
}

/// Opens the state after a crash, checks it, continues a little and checks again.
fn check(device: &Arc<dyn Device>, history: &History) -> Result<(), String> {
    let rig = open_rig(device).map_err(text)?;
    let last = rig.replay_and_check().map_err(text)?;
    if last.0 < history.acknowledged || !history.boundaries.contains(&last.0) {
        return Err(format!("ends at {last} and not at or behind {}", history.acknowledged));
    }
    let problems = [rig.manifest.verify(), rig.log.verify()].concat();
    if !problems.is_empty() {
        return Err(format!("a crash is no damage: {problems:?}"));
    }
    rig.put(2, 200, true).map_err(text)?;
    rig.flush(2).map_err(text)?;
    rig.put(1, 200, false).map_err(text)?;
    let again = open_rig(device).map_err(text)?;
    let found = again.replay_and_check().map_err(text)?;
    (found.0 == last.0 + 3).then_some(()).ok_or_else(|| format!("{found} after {last}"))
}

fn trace(steps: u64) -> (Trace, History) {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let mut history = History::default();
    sim.record();
    let done = run(&device, steps, &mut history, |seq| sim.mark(seq));
    assert!(done.is_ok() || cfg!(feature = "_planted"), "{done:?}");
    (sim.take_trace().unwrap(), history)
}

fn options(limit: u64) -> CrashOptions {
    CrashOptions { limit: Some(limit), ..CrashOptions::default() }
}

/// A state that was not promised.
fn broken(detail: String) -> Violation {
    Violation::new(Oracle::AcknowledgedIsThere, detail)
}

fn crash_everywhere(steps: u64, limit: u64, nested_every: u64) -> Verdict<u64> {
    let (trace, history) = trace(steps);
    let mut visited = 0;
    let mut nested_visited = 0;
    crash::each(&trace, &options(limit), |crash, sim| {
        let device: Arc<dyn Device> = sim.clone();
        let Some(acknowledged) = crash.acknowledged() else { return Ok(()) };
        let mut history = History { acknowledged, ..history.clone() };
        sim.record();
        check(&device, &history).map_err(broken)?;
        visited += 1;
        if visited % nested_every == 0 {
            let recovery = sim.take_trace().unwrap();
            let last = open_rig(&device).unwrap().log.last_seq().0;
            history.boundaries.extend([last - 3, last - 1, last]);
            crash::each(&recovery, &options(40), |_, sim| {
                nested_visited += 1;
                let device: Arc<dyn Device> = sim.clone();
                check(&device, &history).map_err(broken)
            })?;
        }
        Ok(())
    })?;
    Ok(visited + nested_visited)
}

#[test]
fn no_power_cut_loses_a_synced_batch_or_halves_any() {
    let visited = crash_everywhere(70, 4000, 11).unwrap();
    assert!(visited > 4000, "{visited}");
}

#[test]
fn no_power_cut_on_large_sectors_does_either() {
    let options = SimOptions { sector_bytes: 4096, ..SimOptions::default() };
    let sim = Arc::new(SimDevice::with_options(options));
    let device: Arc<dyn Device> = sim.clone();
    let mut history = History::default();
    sim.record();
    run(&device, 70, &mut history, |seq| sim.mark(seq)).unwrap();
    let trace = sim.take_trace().unwrap();
    let options = CrashOptions { limit: Some(1000), ..CrashOptions::default() };
    crash::each(&trace, &options, |crash, sim| {
        let device: Arc<dyn Device> = sim.clone();
        let Some(acknowledged) = crash.acknowledged() else { return Ok(()) };
        let history = History { acknowledged, ..history.clone() };
        check(&device, &history).map_err(broken)
    })
    .unwrap();
}

/// A short write, and nothing that a reader would see.
const EFFECTS: Effects = Effects {
    power_off: false,
    on_write: &[(Effect::ShortWrite { bytes: 100, failure: Failure::Io }, false)],
    on_read: &[],
};

/// Every operation fails; then the store is opened without a power cut, used, and only then the
/// power fails and nothing unsynced survives.
#[test]
fn no_failing_operation_loses_a_synced_batch() {
    let steps = 40;
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    run(&device, steps, &mut History::default(), |_| {}).unwrap();
    let operations = OpKind::ALL.map(|kind| (kind, sim.op_count_of(kind)));
    assert!(sim.op_count() > 100);
    let verdict = faults::each(operations, u64::MAX, &EFFECTS, |case| {
        let sim = Arc::new(SimDevice::new());
        let device: Arc<dyn Device> = sim.clone();
        sim.set_faults(case.plan());
        let mut history = History::default();
        let _failed = run(&device, steps, &mut history, |_| {});
        sim.set_faults(FaultPlan::new());
        let Ok(rig) = open_rig(&device) else {
            assert_eq!(history.acknowledged, 0);
            return Ok(());
        };
        if rig.manifest.state().keyspaces.len() < 2 {
            return Ok(());
        }
        let last = rig.replay_and_check().unwrap();
        assert!(last.0 >= history.acknowledged);
        rig.put(1, 100, true).unwrap();
        let left = sim.crash(&Survivors::Subset(0), &CrashModel::default());
        let device: Arc<dyn Device> = Arc::new(SimDevice::from_image(&left));
        assert_eq!(open_rig(&device).unwrap().replay_and_check().unwrap(), last.next());
        Ok(())
    });
    verdict.unwrap_or_else(|violation| panic!("{violation}"));
}

#[cfg(feature = "_planted")]
mod planted_bugs {
    use super::*;
    use crate::planted;

    #[test]
    fn each_is_found() {
        let bugs = [
            Bug::NoBarrierBeforeSuperblock,
            Bug::LogWithoutChecksum,
            Bug::StaleLogTailAccepted,
            Bug::AcknowledgedBeforeSync,
            Bug::NoDirectorySync,
            Bug::LengthNotSynced,
            Bug::LogTruncatedBeforeMerge,
            Bug::SequenceReusedAfterRecovery,
            Bug::SegmentUnlinkedEarly,
        ];
        for bug in bugs {
            let found = planted::with(bug, || crash_everywhere(70, 4000, 11));
            assert!(found.is_err(), "{bug:?}");
        }
    }
}
