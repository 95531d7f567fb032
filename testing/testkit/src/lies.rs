//! Devices that lie: a write that reports success and never happens, one that lands elsewhere,
//! a read that answers what was there before.
//!
//! No store can survive every lie, and none is asked to: what it answers must be right or an
//! error, and what it promised must not be gone without an error. The end of the log is the one
//! place where a lost write looks like no write at all, so the log's own writes are left alone.

use std::sync::Arc;

use esker_device::sim::{Effect, Fault, FaultPlan, OpKind, SimDevice, SimImage};
use esker_harness::crash::record;

use crate::counts::{Counts, budget};
use crate::crash::{Recording, prepare};
use crate::flips::verdict::{Held, look};
use crate::image::{Image, ImageDevice};
use crate::scenario::Scenario;
use crate::session::{Doubt, Session};
use crate::subject::{Base, Case};
use crate::violation::{Verdict, without_panic};

/// Lies of one kind about one file at budget 1; more operations than that are sampled evenly.
const RUNS: u64 = 120;
/// Files whose writes are lied about, by the start of their names.
const FILES: [&str; 3] = ["data", "manifest", "superblock"];

/// The lies.
const LIES: [(&str, OpKind, Effect); 5] = [
    ("lost writes", OpKind::Write, Effect::LoseWrite),
    ("writes a unit too far", OpKind::Write, Effect::MisdirectWrite { by_bytes: 4096 }),
    ("writes a unit too near", OpKind::Write, Effect::MisdirectWrite { by_bytes: -4096 }),
    ("writes a sector too far", OpKind::Write, Effect::MisdirectWrite { by_bytes: 512 }),
    ("stale reads", OpKind::Read, Effect::StaleRead),
];

/// What is on the device before the workload.
type Start = (SimImage, Base);

/// Lies once about each operation of a workload, in turn.
///
/// # Errors
/// The first broken promise.
pub fn run(scenario: &Scenario) -> Verdict<Counts> {
    let mut counts = Counts::new("lies", scenario.name);
    let start = prepare(scenario)?;
    let sound = SoundRun::of(scenario, &start)?;
    for (name, kind, effect) in LIES {
        for file in FILES {
            let operations = sound.operations(kind, file);
            let stride = (operations / (RUNS * budget())).max(1) as usize;
            for nth in (0..operations).step_by(stride) {
                let fault = Fault::new(effect).on(kind).file(file).nth(nth);
                without_panic(|| lie(scenario, &start, fault, &mut counts))
                    .map_err(|v| v.at(format!("{name} of {file}, {nth}")).at(scenario.name))?;
            }
        }
    }
    Ok(counts)
}

/// The operations of a run without lies.
struct SoundRun {
    writes: Vec<String>,
    reads: u64,
}

impl SoundRun {
    fn of(scenario: &Scenario, (image, base): &Start) -> Verdict<Self> {
        let device = Arc::new(SimDevice::from_image(image));
        let case = Case::new(scenario.config.clone());
        let recording: Recording = record(case, &device, base, &scenario.ops)?;
        let events = (0..recording.trace.len()).map(|event| recording.trace.describe(event));
        let writes = events.filter_map(|event| Some(event.strip_prefix("Write ")?.to_owned()));
        Ok(Self { writes: writes.collect(), reads: device.op_count_of(OpKind::Read) })
    }

    /// Operations on files whose names start with `file`; for reads, of any file.
    fn operations(&self, kind: OpKind, file: &str) -> u64 {
        match kind {
            OpKind::Read => self.reads,
            _ => self.writes.iter().filter(|write| write.starts_with(file)).count() as u64,
        }
    }
}

/// Runs the workload with one lie, and looks at what a restart leaves.
fn lie(scenario: &Scenario, (image, base): &Start, fault: Fault, counts: &mut Counts) -> Verdict {
    let device = Arc::new(SimDevice::from_image(image));
    device.set_faults(FaultPlan::new().with(fault));
    let opened = Session::open(&scenario.config, Arc::clone(&device) as _, base.model.clone());
    let (model, point) = match opened {
        Ok(mut session) => {
            for op in &scenario.ops {
                session.apply(op).map_err(|v| v.at(format!("{op:?}")))?;
                if session.is_poisoned() || session.db().is_none() {
                    break;
                }
            }
            let (mut model, mut point) = (session.model().clone(), session.point());
            if let (Some(Doubt::Commit(changes)), Some(db)) = (session.doubt(), session.db()) {
                model.commit(db.visible_seq().max(model.last_commit() + 1), changes);
                point.visible = model.last_commit();
            }
            drop(session);
            (model, point)
        }
        // It refused to open because of the lie: nothing was promised since.
        Err(_) => (base.model.clone(), base.point.clone()),
    };
    counts.add("runs", 1);
    let held = Held { config: &scenario.config, model: &model, point: &point };
    let image = Image::from_files(device.files());
    let seen = look(&held, ImageDevice::new(&image)).map_err(|v| v.at("after a restart"))?;
    counts.add(seen.class.name(), 1);
    Ok(())
}
