//! The power is cut while a backup, or a store that is restored, is written: the backup before or
//! the new one is there, whole; a restored store is there whole or not at all.

use std::sync::Arc;

use esker::{Backup, Db, Error};
use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_device::sim::{CrashModel, CrashOptions, CrashState, SimDevice, Trace, Unwritten};
use esker_harness::crash;

use super::{Held, Source, during_backup, judge_backup, judge_restored, with_one_backup};
use crate::config::Config;
use crate::counts::{Counts, budget};
use crate::history::generate;
use crate::recovery::Depth;
use crate::scenario::mixed_profile;
use crate::violation::{Oracle, Verdict, Violation, ensure};
use std::ops::ControlFlow;

/// Images of one kind of disk at budget 1.
const IMAGES: u64 = 300;
/// One image in this many gets a backup after the crash.
const GOES_ON_ONE_IN: u64 = 5;

const DISKS: [CrashModel; 3] = [
    CrashModel { ordered: false, unwritten: Unwritten::Zeros, honours_syncs: true },
    CrashModel { ordered: true, unwritten: Unwritten::Zeros, honours_syncs: true },
    CrashModel { ordered: false, unwritten: Unwritten::Garbage, honours_syncs: true },
];

fn no_trace() -> Violation {
    Violation::new(Oracle::Harness, "no trace was recorded")
}

fn each(
    trace: &Trace,
    counts: &mut Counts,
    mut judge: impl FnMut(&CrashState<'_>, &Arc<SimDevice>) -> Verdict,
) -> Verdict {
    for model in DISKS {
        let limit = Some(IMAGES * budget());
        let options = CrashOptions { model, limit, seed: 7, ..CrashOptions::default() };
        crash::each(trace, &options, |state, device| {
            counts.add("judged", 1);
            judge(state, device)
        })
        .map_err(|violation| violation.at(format!("{model:?}")))?;
    }
    Ok(())
}

/// Crashes of five backups into one folder, the first one included.
///
/// # Errors
/// The first broken promise.
pub fn of_backups(counts: &mut Counts) -> Verdict {
    let mut source = Source::new(&Config::default())?;
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    sim.record();
    let mut held = Vec::new();
    for round in 0..5 {
        let ops = during_backup(generate(&mixed_profile(120), 50 + round));
        let (before, during) = ops.split_at(70);
        source.apply(before)?;
        held.push(source.must_backup(&device, during)?.0);
        sim.mark(round);
    }
    let trace = sim.take_trace().ok_or_else(no_trace)?;
    counts.add("device events", trace.len() as u64);
    each(&trace, counts, |state, device| judge_crash(&mut source, &held, state, device))
}

/// Checks that the backup that is there is the last acknowledged one, or the one that was under
/// way.
fn judge_crash(
    source: &mut Source,
    held: &[Held],
    state: &CrashState<'_>,
    device: &Arc<SimDevice>,
) -> Verdict {
    let made = state.acknowledged().map_or(0, |mark| mark as usize + 1);
    let shared: Arc<dyn Device> = Arc::clone(device) as _;
    match Backup::open_on(Arc::clone(&shared)) {
        Err(error) => {
            let none_yet = made == 0 && matches!(error, Error::Invalid { .. });
            ensure(none_yet, Oracle::Opens, || error.to_string())?;
        }
        Ok(backup) => {
            let seq = backup.seq();
            drop(backup);
            let candidates = held.iter().skip(made.saturating_sub(1)).take(2);
            let found = candidates.into_iter().find(|held| held.point.visible == seq);
            let found = found.ok_or_else(|| {
                let detail = format!("{made} backups were acknowledged, it is of {seq}");
                Violation::new(Oracle::AcknowledgedIsThere, detail)
            })?;
            judge_backup(&source.config, &shared, found, Depth::Once)?;
        }
    }
    if state.digest.is_multiple_of(GOES_ON_ONE_IN) {
        let (held, _) = source.must_backup(&shared, &[]).map_err(|v| v.at("once more"))?;
        judge_backup(&source.config, &shared, &held, Depth::Once)?;
    }
    Ok(())
}

/// Crashes of a restoring.
///
/// # Errors
/// The first broken promise.
pub fn of_restoring(counts: &mut Counts) -> Verdict {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let (source, held) = with_one_backup(&device)?;
    let broken = |error: Error| Violation::new(Oracle::WorksOn, error.to_string());
    let backup = Backup::open_on(device).map_err(broken)?;
    let sim = Arc::new(SimDevice::new());
    sim.record();
    let restore = |device: &Arc<SimDevice>| {
        let device: Arc<dyn Device> = Arc::clone(device) as _;
        backup.restore_on(device, &mut |_| ControlFlow::Continue(())).map_err(broken)
    };
    restore(&sim)?;
    sim.mark(0);
    let trace = sim.take_trace().ok_or_else(no_trace)?;
    counts.add("device events", trace.len() as u64);
    each(&trace, counts, |state, device| {
        let shared: Arc<dyn Device> = Arc::clone(device) as _;
        let is_there = device.files().contains_key("superblock");
        if !is_there {
            ensure(state.acknowledged().is_none(), Oracle::AcknowledgedIsThere, String::new)?;
            let opened = Db::builder_on(Arc::clone(&shared)).create(false).open();
            ensure(opened.is_err(), Oracle::NothingFromNowhere, || "a part of it opens".into())?;
            restore(device).map_err(|v| v.at("once more"))?;
        }
        judge_restored(&source.config, &shared, &held, Depth::Once)
    })
}
