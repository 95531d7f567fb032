//! Every operation of the device fails, one at a time: once and from then on, with every error
//! that a system gives, with half of a write landed, with a sync that loses what it should keep.
//!
//! After every failure: nothing panics; the error comes out of a call that depends on it; a store
//! that accepts no more says so and keeps answering reads; and after a restart, with or without the
//! power lost as well, everything acknowledged is there, whole.

use std::sync::Arc;

use esker::Error;
use esker_device::Device;
use esker_device::sim::{Effect, Failure, OpKind, SimDevice};
use esker_harness::faults::{self, Effects, Ending, Failing, Left, Workload};

use crate::config::Config;
use crate::counts::{Counts, budget};
use crate::crash::prepare;
use crate::history::{Op, generate};
use crate::recovery::{Depth, Expectation, Point, examine, judge};
use crate::scenario::{Scenario, mixed_profile};
use crate::session::{Outcome, Session};
use crate::subject::{Case, StoreRun};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Runs of one workload, kind of operation and effect at budget 1; more operations than that are
/// sampled evenly.
const RUNS_OF_A_KIND: u64 = 90;

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
pub fn run_some(scenario: &Scenario, name: &str, runs_of_a_kind: u64) -> Verdict<Counts> {
    let mut counts = Counts::new("faults", name);
    let (image, base) = prepare(scenario)?;
    let case = Case::new(scenario.config.clone());
    let workload =
        Workload::<StoreRun> { case: &case, image: &image, base: &base, ops: &scenario.ops };
    let verdict = faults::run(&workload, runs_of_a_kind * budget(), &mut counts);
    verdict.map(|()| counts).map_err(|violation| violation.at(name))
}

impl Failing for StoreRun {
    const KINDS: &'static [OpKind] = &OpKind::ALL;
    const EFFECTS: Effects = Effects {
        power_off: false,
        on_write: &[
            (Effect::ShortWrite { bytes: 100, failure: Failure::NoSpace }, false),
            (Effect::ShortWrite { bytes: 700, failure: Failure::Io }, true),
            (Effect::Fail(Failure::ReadOnly), true),
        ],
        on_read: &[(Effect::FlipRead { byte: 77, mask: 0x10 }, false)],
    };
    const ERRORS_MAX: u64 = 4;
    const ENDINGS: &'static [Ending] = &[Ending::Closed, Ending::PowerCut];

    /// Only what the device did may come out as an error.
    fn may_answer(error: &Error, fault: faults::Case) -> Verdict {
        let is_expected = match error {
            Error::Io(_) | Error::Full { .. } | Error::Poisoned { .. } => true,
            // Wrong bits are damage, as far as a reader can know; so is what a lost sync took.
            Error::Damaged { .. } => {
                matches!(fault.effect, Effect::FlipRead { .. }) || fault.drops()
            }
            _ => false,
        };
        ensure(is_expected, Oracle::ErrorsSurface, || format!("the answer is: {error}"))
    }

    /// What is read has a twin, or is read again when it is needed; a merge that found no room is
    /// tried again; and nothing that was asked for depends on giving space back.
    fn may_pass_unseen(fault: faults::Case) -> bool {
        let is_tried_again = matches!(fault.kind, OpKind::Read | OpKind::Preallocate);
        let gives_back = matches!(fault.kind, OpKind::Discard | OpKind::Remove | OpKind::Truncate);
        let no_space = Failure::NoSpace;
        let no_room = match fault.effect {
            Effect::Fail(failure) | Effect::ShortWrite { failure, .. } => failure == no_space,
            _ => false,
        };
        is_tried_again || gives_back || no_room
    }

    fn after_error(&mut self, _: &Op, _: faults::Case) -> Verdict<bool> {
        Ok(self.session.db().is_some())
    }

    fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    fn look(&mut self, fault: faults::Case, _: u64) -> Verdict {
        let Some(db) = self.session.db().filter(|_| !fault.drops()) else { return Ok(()) };
        let point = self.session.point();
        let now = Point { durable: point.visible, ..point };
        let (model, doubt) = (self.session.model(), self.session.doubt());
        let expectation = Expectation { model, now: &now, next: None, doubt };
        examine(db, &expectation, Depth::Once).map(drop)
    }

    fn close(&mut self) -> esker::Result<()> {
        self.session.close()
    }

    /// The store works on with what is there, too.
    fn judge_left(left: &Left<'_, Self>, disk: &Arc<SimDevice>) -> Verdict {
        let Left { case, fault, ending, base, run } = left;
        let (model, doubt, point) = match run {
            Some((written, point)) => (&written.model, written.doubt.as_ref(), *point),
            None => (&base.model, None, &base.point),
        };
        let mut now = point.clone();
        if *ending == Ending::Closed && !fault.drops() {
            now.durable = now.visible;
        }
        let expectation = Expectation { model, now: &now, next: None, doubt };
        works_on(&case.config, Arc::clone(disk) as _, &expectation)
    }
}

/// Judges what is on a device, and goes on with it.
fn works_on(config: &Config, device: Arc<dyn Device>, expectation: &Expectation<'_>) -> Verdict {
    let recovered = judge(config, &device, expectation, Depth::Thorough)?;
    let failed = |error: Error| Violation::new(Oracle::WorksOn, error.to_string());
    let mut session = Session::open(config, device, recovered.model).map_err(failed)?;
    for op in generate(&mixed_profile(6), recovered.seq).iter().chain([&Op::Flush]) {
        if let Outcome::Failed(error) = session.apply(op)? {
            return Err(failed(error));
        }
    }
    session.close().map_err(failed)
}
