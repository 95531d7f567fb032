//! Every operation of the device fails, one at a time: once and from then on, with every error
//! that a system gives, with half of a write landed, with a sync that loses what it should keep.
//!
//! After every failure: nothing panics; the error comes out of a call that depends on it; a store
//! that accepts no more says so and keeps answering reads; and after a restart, with or without the
//! power lost as well, everything acknowledged is there, whole.

use std::sync::Arc;

use esker::Error;
use esker_device::Device;
use esker_device::sim::{
    CrashModel, Effect, Failure, FaultPlan, OpKind, SimDevice, SimImage, Survivors,
};
use esker_harness::faults::{Case, Effects, each};

use crate::counts::{Counts, budget};
use crate::crash::{Base, prepare};
use crate::history::{Op, generate};
use crate::recovery::{Depth, Expectation, Point, examine, judge};
use crate::scenario::{Scenario, mixed_profile};
use crate::session::{Config, Outcome, Session};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Runs of one workload, kind of operation and effect at budget 1; more operations than that are
/// sampled evenly.
const RUNS_OF_A_KIND: u64 = 90;
/// A device that is gone for good is left after this many failed operations.
const FAILURES_ENOUGH: usize = 4;

/// A workload, and the disk on which it starts.
#[derive(Debug)]
struct Workload<'a> {
    scenario: &'a Scenario,
    image: SimImage,
    base: Base,
}

/// The faults besides those of every suite.
const EFFECTS: Effects = Effects {
    power_off: false,
    on_write: &[
        (Effect::ShortWrite { bytes: 100, failure: Failure::NoSpace }, false),
        (Effect::ShortWrite { bytes: 700, failure: Failure::Io }, true),
        (Effect::Fail(Failure::ReadOnly), true),
    ],
    on_read: &[(Effect::FlipRead { byte: 77, mask: 0x10 }, false)],
};

/// The effects of a fault in a run.
#[derive(Debug, Default)]
struct Report {
    struck: bool,
    surfaced: bool,
    poisoned: bool,
}

/// Fails the operations of one workload, each in turn.
///
/// # Errors
/// The first broken promise.
pub fn run(scenario: &Scenario) -> Verdict<Counts> {
    run_some(scenario, scenario.name, RUNS_OF_A_KIND)
}

/// [`run`] with at most `runs_of_a_kind` runs of one kind of operation and effect, at budget 1.
///
/// # Errors
/// The first broken promise.
pub fn run_some(scenario: &Scenario, case: &str, runs_of_a_kind: u64) -> Verdict<Counts> {
    let mut counts = Counts::new("faults", case);
    let (image, base) = prepare(scenario)?;
    let workload = Workload { scenario, image, base };
    let sound = workload.sound_run()?;
    counts.add("device operations", sound.iter().sum());
    let operations = OpKind::ALL.into_iter().zip(sound);
    let verdict = each(operations, runs_of_a_kind * budget(), &EFFECTS, |fault| {
        let report = workload.fail(fault)?;
        counts.add("runs", 1);
        counts.add("struck", u64::from(report.struck));
        counts.add("surfaced", u64::from(report.surfaced));
        counts.add("poisoned", u64::from(report.poisoned));
        Ok(())
    });
    verdict.map(|()| counts).map_err(|violation| violation.at(case))
}

/// Whether a failure may pass unseen. What is read has a twin, or is read again when it is
/// needed; a merge that found no room is tried again; and nothing that was asked for depends on
/// giving space back.
fn may_pass_unseen(case: Case) -> bool {
    let is_tried_again = matches!(case.kind, OpKind::Read | OpKind::Preallocate);
    let gives_back = matches!(case.kind, OpKind::Discard | OpKind::Remove | OpKind::Truncate);
    let no_space = Failure::NoSpace;
    let no_room = match case.effect {
        Effect::Fail(failure) | Effect::ShortWrite { failure, .. } => failure == no_space,
        _ => false,
    };
    is_tried_again || gives_back || no_room
}

impl Workload<'_> {
    fn config(&self) -> &Config {
        &self.scenario.config
    }

    fn open(&self, device: &Arc<SimDevice>) -> esker::Result<Session> {
        Session::open(self.config(), Arc::clone(device) as _, self.base.model.clone())
    }

    /// Counts the operations of a run in which nothing fails.
    fn sound_run(&self) -> Verdict<[u64; OpKind::ALL.len()]> {
        let device = Arc::new(SimDevice::from_image(&self.image));
        let harness = |error: Error| Violation::new(Oracle::Harness, error.to_string());
        let mut session = self.open(&device).map_err(harness)?;
        for op in &self.scenario.ops {
            if let Outcome::Failed(error) = session.apply(op)? {
                return Err(harness(error).at(op.to_string()));
            }
        }
        session.close().map_err(harness)?;
        Ok(OpKind::ALL.map(|kind| device.op_count_of(kind)))
    }

    fn fail(&self, case: Case) -> Verdict<Report> {
        let device = Arc::new(SimDevice::from_image(&self.image));
        device.set_faults(case.plan());
        let mut report = Report::default();
        let session = match self.open(&device) {
            Ok(session) => Some(self.use_it(session, case, &mut report)?),
            Err(error) => {
                expected(&error, case)?;
                report.surfaced = true;
                None
            }
        };
        report.struck = device.op_count_of(case.kind) > case.nth;
        device.set_faults(FaultPlan::new());
        self.look_back(session, &device, case, &mut report)?;
        let unseen = report.struck && !report.surfaced;
        ensure(!unseen || may_pass_unseen(case), Oracle::ErrorsSurface, || {
            "the operation failed and every call succeeded".into()
        })?;
        Ok(report)
    }

    /// Runs the operations until the device is gone for good.
    fn use_it(&self, mut session: Session, case: Case, report: &mut Report) -> Verdict<Session> {
        let mut failures = 0;
        for op in &self.scenario.ops {
            let commits = session.model().last_commit();
            let outcome = session.apply(op).map_err(|v| v.at(op))?;
            if let Outcome::Failed(error) = &outcome {
                expected(error, case)?;
                report.surfaced = true;
                failures += 1;
            }
            let accepted = session.model().last_commit() > commits;
            ensure(!(report.poisoned && accepted), Oracle::PoisonHolds, || op.to_string())?;
            report.poisoned |= session.is_poisoned();
            if failures >= FAILURES_ENOUGH || session.db().is_none() {
                break;
            }
        }
        Ok(session)
    }

    /// Looks at the open store, then at what a restart and a power cut leave.
    fn look_back(
        &self,
        session: Option<Session>,
        device: &Arc<SimDevice>,
        case: Case,
        report: &mut Report,
    ) -> Verdict {
        let Some(session) = session else {
            return self.restart(device, &self.base.point, None, &self.base, "refused");
        };
        let power_cut = device.image_after_power_cut();
        let known = session.point();
        let doubt = session.doubt().cloned();
        let base = Base { model: session.model().clone(), point: known.clone() };
        let lost = case.drops();
        if let Some(db) = session.db()
            && !lost
        {
            let now = Point { durable: known.visible, ..known.clone() };
            let (model, doubt) = (&base.model, doubt.as_ref());
            let live = Expectation { model, now: &now, next: None, doubt };
            examine(db, &live, Depth::Once).map_err(|v| v.at("with the fault lifted"))?;
        }
        report.surfaced |= session.close().is_err();
        let handed_over = if lost { known.durable } else { known.visible };
        let restart = Point { durable: handed_over, ..known.clone() };
        self.restart(device, &restart, doubt.as_ref(), &base, "restarted")?;
        let device = Arc::new(SimDevice::from_image(&power_cut));
        self.restart(&device, &known, doubt.as_ref(), &base, "after a power cut")
    }

    /// Judges what is on a device, and works on with it.
    fn restart(
        &self,
        device: &Arc<SimDevice>,
        now: &Point,
        doubt: Option<&crate::session::Doubt>,
        base: &Base,
        place: &str,
    ) -> Verdict {
        let device = Arc::new(SimDevice::from_image(&device.image()));
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        let expectation = Expectation { model: &base.model, now, next: None, doubt };
        let recovered = judge(self.config(), &shared, &expectation, Depth::Thorough);
        let recovered = recovered.map_err(|v| v.at(place))?;
        let works_on = |error: Error| Violation::new(Oracle::WorksOn, error.to_string()).at(place);
        let session = Session::open(self.config(), shared, recovered.model);
        let mut session = session.map_err(works_on)?;
        for op in generate(&mixed_profile(6), recovered.seq).iter().chain([&Op::Flush]) {
            if let Outcome::Failed(error) = session.apply(op).map_err(|v| v.at(place))? {
                return Err(works_on(error));
            }
        }
        session.close().map(drop).map_err(works_on)
    }
}

/// Only what the device did may come out as an error.
fn expected(error: &Error, case: Case) -> Verdict {
    let is_expected = match error {
        Error::Io(_) | Error::Full { .. } | Error::Poisoned { .. } => true,
        // Wrong bits are damage, as far as a reader can know; so is what a lost sync took.
        Error::Damaged { .. } => is_flip(case) || case.drops(),
        _ => false,
    };
    ensure(is_expected, Oracle::ErrorsSurface, || format!("the answer is: {error}"))
}

const fn is_flip(case: Case) -> bool {
    matches!(case.effect, Effect::FlipRead { .. })
}

trait PowerCut {
    fn image_after_power_cut(&self) -> SimImage;
}

impl PowerCut for SimDevice {
    /// The contents of the medium when nothing survives that was not synced.
    fn image_after_power_cut(&self) -> SimImage {
        let image = self.crash(&Survivors::nothing(), &CrashModel::default());
        self.set_faults(FaultPlan::new());
        image
    }
}
