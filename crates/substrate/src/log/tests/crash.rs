//! Power cuts and failing operations.

use std::result::Result;

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

fn crash_everywhere(steps: u64, limit: u64, nested_every: u64) -> Result<u64, String> {
    let (trace, history) = trace(steps);
    let mut visited = 0;
    let mut nested_visited = 0;
    trace.for_each_crash(&options(limit), |crash, sim| -> Result<(), String> {
        let device: Arc<dyn Device> = sim.clone();
        let Some(acknowledged) = crash.acknowledged() else { return Ok(()) };
        let mut history = History { acknowledged, ..history.clone() };
        sim.record();
        check(&device, &history).map_err(|error| format!("{crash}: {error}"))?;
        visited += 1;
        if visited % nested_every == 0 {
            let recovery = sim.take_trace().unwrap();
            let last = open_rig(&device).map_err(text)?.log.last_seq().0;
            history.boundaries.extend([last - 3, last - 1, last]);
            recovery.for_each_crash(&options(40), |nested, sim| {
                nested_visited += 1;
                let device: Arc<dyn Device> = sim.clone();
                check(&device, &history).map_err(|error| format!("{crash}; {nested}: {error}"))
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
    trace
        .for_each_crash(&options, |crash, sim| {
            let device: Arc<dyn Device> = sim.clone();
            let Some(acknowledged) = crash.acknowledged() else { return Ok(()) };
            let history = History { acknowledged, ..history.clone() };
            check(&device, &history).map_err(|error| format!("{crash}: {error}"))
        })
        .unwrap();
}

/// Every operation fails once; then the store is opened without a power cut, used, and only then
/// the power fails and nothing unsynced survives.
#[test]
fn no_failing_operation_loses_a_synced_batch() {
    let mut effects = vec![Effect::Fail(Failure::Io), Effect::Fail(Failure::NoSpace)];
    effects.push(Effect::ShortWrite { bytes: 100, failure: Failure::Io });
    effects.extend(SyncLoss::ALL.map(Effect::FailSync));
    for effect in effects {
        for nth in 0.. {
            let sim = Arc::new(SimDevice::new());
            let device: Arc<dyn Device> = sim.clone();
            sim.set_faults(FaultPlan::new().with(Fault::new(effect).nth(nth)));
            let mut history = History::default();
            let done = run(&device, 40, &mut history, |_| {});
            if sim.op_count() <= nth {
                assert!(done.is_ok() && nth > 100);
                break;
            }
            let told = format!("{effect:?} at operation {nth}: {done:?}");
            sim.set_faults(FaultPlan::new());
            let Ok(rig) = open_rig(&device) else {
                assert_eq!(history.acknowledged, 0, "{told}");
                continue;
            };
            if rig.manifest.state().keyspaces.len() < 2 {
                continue;
            }
            let last = rig.replay_and_check().expect(&told);
            assert!(last.0 >= history.acknowledged, "{told}");
            rig.put(1, 100, true).expect(&told);
            let left = sim.crash(&Survivors::Subset(0), &CrashModel::default());
            let device: Arc<dyn Device> = Arc::new(SimDevice::from_image(&left));
            let again = open_rig(&device).expect(&told);
            assert_eq!(again.replay_and_check().expect(&told), last.next(), "{told}");
        }
    }
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
