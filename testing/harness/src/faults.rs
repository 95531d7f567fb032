//! Every operation of a device fails, one at a time: the cases, the loop over them, and the run of
//! a subject with one of them.
//!
//! A subject is opened and used while the operation fails. Then the subject is looked at, and what
//! is on the disk is judged: as a killed process leaves it, after closing, and as a power cut
//! leaves it.

use std::fmt;
use std::sync::Arc;

use esker_device::sim::{
    CrashModel, CrashOptions, Effect, Failure, Fault, FaultPlan, OpKind, SimDevice, SimImage,
    Survivors, SyncLoss,
};

use crate::counts::Counts;
use crate::crash::{self, Marks, Recording, Subject};
use crate::violation::{Oracle, Verdict, Violation, ensure, without_panic};

/// One way to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The kind of operation.
    pub kind: OpKind,
    /// Which of them, from 0.
    pub nth: u64,
    /// What happens to it.
    pub effect: Effect,
    /// Whether all later ones fail as well.
    pub is_sticky: bool,
}

impl Case {
    /// The fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        let fault = Fault::new(self.effect).on(self.kind).nth(self.nth);
        if self.is_sticky { fault.sticky() } else { fault }
    }

    /// The plan that has this fault alone.
    #[must_use]
    pub fn plan(&self) -> FaultPlan {
        FaultPlan::new().with(self.fault())
    }

    /// Whether the operation is a sync that drops what it should keep from the cache too.
    #[must_use]
    pub fn drops(&self) -> bool {
        self.effect == Effect::FailSync(SyncLoss::Dropped)
    }
}

/// The plan of a power failure at one operation, whatever it is, from 0.
#[must_use]
pub fn power_off_at(nth: u64) -> FaultPlan {
    FaultPlan::new().with(Fault::new(Effect::PowerOff).nth(nth))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, nth, effect, is_sticky } = self;
        let sticky = if *is_sticky { ", and all after it" } else { "" };
        write!(f, "{kind:?} {nth}{sticky}: {effect:?}")
    }
}

/// The faults of a suite besides those of every suite.
#[derive(Clone, Copy, Debug)]
pub struct Effects {
    /// Whether the power goes off with an operation.
    pub power_off: bool,
    /// Those of a write, each with whether it continues to strike.
    pub on_write: &'static [(Effect, bool)],
    /// Those of a read.
    pub on_read: &'static [(Effect, bool)],
}

/// The faults that may strike an operation of a kind, each with whether it continues to strike.
#[must_use]
pub fn effects_on(kind: OpKind, effects: &Effects) -> Vec<(Effect, bool)> {
    let mut all = vec![(Effect::Fail(Failure::Io), false), (Effect::Fail(Failure::Io), true)];
    if effects.power_off {
        all.push((Effect::PowerOff, false));
    }
    if matches!(kind, OpKind::Write | OpKind::Preallocate | OpKind::Create) {
        all.push((Effect::Fail(Failure::NoSpace), false));
        all.push((Effect::Fail(Failure::NoSpace), true));
    }
    match kind {
        OpKind::Write => all.extend(effects.on_write),
        OpKind::Read => all.extend(effects.on_read),
        OpKind::Sync | OpKind::SyncDir => {
            all.extend(SyncLoss::ALL.map(|loss| (Effect::FailSync(loss), false)));
        }
        _ => {}
    }
    all
}

/// Calls `run` with every effect on every operation of some kinds, of each of which there are so
/// many in a run without a fault. Of more than `runs_of_a_kind` operations of a kind about as many
/// are taken, evenly, for each effect.
///
/// # Errors
/// The first violation, a panic included, with its case.
pub fn each(
    operations: impl IntoIterator<Item = (OpKind, u64)>,
    runs_of_a_kind: u64,
    effects: &Effects,
    mut run: impl FnMut(Case) -> Verdict,
) -> Verdict {
    for (kind, operations) in operations {
        let stride = (operations / runs_of_a_kind.max(1)).max(1);
        for (turn, (effect, is_sticky)) in effects_on(kind, effects).into_iter().enumerate() {
            // Each effect starts at another operation, so that together they reach more operations.
            for nth in (turn as u64 % stride..operations).step_by(stride as usize) {
                let case = Case { kind, nth, effect, is_sticky };
                without_panic(|| run(case)).map_err(|violation| violation.at(case))?;
            }
        }
    }
    Ok(())
}

/// A subject whose device may fail.
pub trait Failing: Subject<Case: Clone> {
    /// The kinds of operations that fail.
    const KINDS: &'static [OpKind];
    /// The faults besides those of every suite.
    const EFFECTS: Effects;
    /// A device is gone for good after this many errors.
    const ERRORS_MAX: u64;
    /// What is judged afterwards.
    const ENDINGS: &'static [Ending];

    /// Judges whether an operation, or the opening, may answer this under such a fault.
    ///
    /// # Errors
    /// The broken promise.
    fn may_answer(error: &Self::Error, fault: Case) -> Verdict;

    /// Whether the fault may strike and every call succeed.
    fn may_pass_unseen(_: Case) -> bool {
        true
    }

    /// Whether an operation makes no sense under such a fault.
    fn leaves_out(_: &Self::Op, _: Case) -> bool {
        false
    }

    /// Looks at the subject after a failed operation; whether it can go on.
    ///
    /// # Errors
    /// A broken promise.
    fn after_error(&mut self, op: &Self::Op, fault: Case) -> Verdict<bool>;

    /// Whether it has said that it accepts nothing any more.
    fn is_poisoned(&self) -> bool;

    /// Looks at the subject at the end of the run, with the fault lifted; `errors` operations have
    /// failed.
    ///
    /// # Errors
    /// A broken promise.
    fn look(&mut self, fault: Case, errors: u64) -> Verdict;

    /// Closes.
    ///
    /// # Errors
    /// The error of the subject.
    fn close(&mut self) -> Result<(), Self::Error>;

    /// How many crashes within the run under the fault are judged, too.
    fn crashes(_: &Self::Case) -> u64 {
        0
    }

    /// Opens what is on `disk` and judges it.
    ///
    /// # Errors
    /// A broken promise.
    fn judge_left(left: &Left<'_, Self>, disk: &Arc<SimDevice>) -> Verdict;
}

/// How a run under a fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The subject could not be opened; the process ends.
    Refused,
    /// The process is killed.
    Killed,
    /// The subject is closed.
    Closed,
    /// The power is cut and nothing survives that was not synced.
    PowerCut,
    /// The power is cut and some of what was not synced survives.
    PowerCutSome,
}

impl Ending {
    /// Whether the power was lost.
    #[must_use]
    pub fn is_power_cut(self) -> bool {
        matches!(self, Self::PowerCut | Self::PowerCutSome)
    }
}

/// What a run under a fault left.
pub struct Left<'a, S: Subject> {
    /// How the subject was opened.
    pub case: &'a S::Case,
    /// The fault.
    pub fault: Case,
    /// The end of the run.
    pub ending: Ending,
    /// What the run started with.
    pub base: &'a S::Base,
    /// What was written, and what was promised at the end; `None` where it could not be opened.
    pub run: Option<(&'a S::Model, &'a S::Point)>,
}

/// A run whose device may fail.
pub struct Workload<'a, S: Subject> {
    /// How the subject is opened.
    pub case: &'a S::Case,
    /// What is on the disk.
    pub image: &'a SimImage,
    /// What is known of it.
    pub base: &'a S::Base,
    /// What is done.
    pub ops: &'a [S::Op],
}

/// Runs a workload under one fault after another, as [`each`] takes them, and judges each run.
///
/// # Errors
/// The first broken promise, with its fault.
pub fn run<S: Failing>(
    workload: &Workload<'_, S>,
    runs_of_a_kind: u64,
    counts: &mut Counts,
) -> Verdict {
    let operations = sound_run(workload)?;
    counts.add("device operations", operations.iter().map(|(_, count)| count).sum());
    each(operations, runs_of_a_kind, &S::EFFECTS, |fault| workload.fail(fault, counts))
}

/// Counts the operations of a run in which nothing fails.
fn sound_run<S: Failing>(workload: &Workload<'_, S>) -> Verdict<Vec<(OpKind, u64)>> {
    let failed = |error: S::Error| Violation::new(Oracle::Harness, error.to_string());
    let disk = Arc::new(SimDevice::from_image(workload.image));
    let mut subject = S::open(workload.case, &disk, workload.base).map_err(failed)?;
    for op in workload.ops {
        subject.apply(op)?.map_err(|error| failed(error).at(format!("{op:?}")))?;
    }
    subject.close().map_err(failed)?;
    Ok(S::KINDS.iter().map(|kind| (*kind, disk.op_count_of(*kind))).collect())
}

impl<S: Failing> Workload<'_, S> {
    fn fail(&self, fault: Case, counts: &mut Counts) -> Verdict {
        let disk = Arc::new(SimDevice::from_image(self.image));
        disk.set_faults(fault.plan());
        // Recorded where its crashes are judged, too.
        let crashes = S::crashes(self.case);
        let mut marks = (crashes > 0).then(|| Marks::<S>::start(&disk, self.base));
        counts.add("runs", 1);
        let mut subject = match S::open(self.case, &disk, self.base) {
            Ok(subject) => subject,
            Err(error) => {
                S::may_answer(&error, fault)?;
                counts.add("struck", 1);
                counts.add("surfaced", 1);
                disk.set_faults(FaultPlan::new());
                return self.judge(fault, Ending::Refused, None, &disk.image(), counts);
            }
        };
        if let Some(marks) = &mut marks {
            marks.reach(&subject, true);
        }
        let mut errors = self.apply_all(&mut subject, fault, marks.as_mut())?;
        let has_struck = disk.op_count_of(fault.kind) > fault.nth;
        let recorded = marks.map(Marks::finish).transpose()?;
        let at_once = S::ENDINGS.iter().filter(|ending| **ending != Ending::Closed);
        let mut images: Vec<_> =
            at_once.map(|ending| (*ending, left(&disk, *ending, fault))).collect();
        disk.set_faults(FaultPlan::new());
        subject.look(fault, errors).map_err(|violation| violation.at("with the fault lifted"))?;
        counts.add("poisoned", subject.is_poisoned().into());
        let end = subject.observe();
        if S::ENDINGS.contains(&Ending::Closed) {
            errors += u64::from(subject.close().is_err());
            images.push((Ending::Closed, disk.image()));
        }
        let model = subject.into_model();
        for (ending, image) in &images {
            self.judge(fault, *ending, Some((&model, &end)), image, counts)?;
        }
        if let Some((trace, points)) = recorded {
            let recording = Recording { case: self.case.clone(), trace, model, points, end };
            judge_crashes::<S>(&recording, crashes, fault, counts)?;
        }
        counts.add("errors", errors);
        counts.add("struck", has_struck.into());
        counts.add("surfaced", (errors > 0).into());
        let is_unseen = has_struck && errors == 0;
        ensure(!is_unseen || S::may_pass_unseen(fault), Oracle::ErrorsSurface, || {
            "the operation failed and every call succeeded".into()
        })
    }

    /// Does everything, until the device is gone for good; how many operations failed.
    fn apply_all(
        &self,
        subject: &mut S,
        fault: Case,
        mut marks: Option<&mut Marks<'_, S>>,
    ) -> Verdict<u64> {
        let mut errors = 0;
        for op in self.ops.iter().filter(|op| !S::leaves_out(op, fault)) {
            let at = |violation: Violation| violation.at(format!("{op:?}"));
            let answer = subject.apply(op).map_err(at)?;
            if let Some(marks) = &mut marks {
                marks.reach(subject, false);
            }
            let Err(error) = answer else { continue };
            S::may_answer(&error, fault).map_err(at)?;
            errors += 1;
            if !subject.after_error(op, fault).map_err(at)? || errors >= S::ERRORS_MAX {
                break;
            }
        }
        Ok(errors)
    }

    fn judge(
        &self,
        fault: Case,
        ending: Ending,
        run: Option<(&S::Model, &S::Point)>,
        image: &SimImage,
        counts: &mut Counts,
    ) -> Verdict {
        counts.add("judged", 1);
        let left = Left { case: self.case, fault, ending, base: self.base, run };
        let disk = Arc::new(SimDevice::from_image(image));
        S::judge_left(&left, &disk).map_err(|violation| violation.at(format!("{ending:?}")))
    }
}

/// What a run leaves that ends now.
fn left(disk: &SimDevice, ending: Ending, fault: Case) -> SimImage {
    match ending {
        Ending::PowerCut => disk.crash(&Survivors::nothing(), &CrashModel::default()),
        Ending::PowerCutSome => disk.crash(&Survivors::Random(fault.nth), &CrashModel::default()),
        Ending::Refused | Ending::Killed | Ending::Closed => disk.image(),
    }
}

/// The power fails as well, at so many moments of the run.
fn judge_crashes<S: Failing>(
    recording: &Recording<S>,
    crashes: u64,
    fault: Case,
    counts: &mut Counts,
) -> Verdict {
    let limit = Some(crashes);
    let options = CrashOptions { limit, seed: fault.nth, ..CrashOptions::default() };
    crash::explore(recording, &options, None, counts, |_| {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{List, Syncs, disk};

    const FEW: Effects = Effects { power_off: false, on_write: &[], on_read: &[] };

    #[test]
    fn few_operations_are_all_taken_and_many_evenly() {
        let taken = |operations: u64, runs: u64| {
            let mut taken = Vec::new();
            let verdict = each([(OpKind::Read, operations)], runs, &FEW, |case| {
                taken.push((case.is_sticky, case.nth));
                Ok(())
            });
            verdict.unwrap();
            taken
        };
        assert_eq!(taken(2, 5), [(false, 0), (false, 1), (true, 0), (true, 1)]);
        assert_eq!(
            taken(6, 3),
            [false, true].map(|s| [0, 2, 4].map(|n| (s, n + u64::from(s)))).concat()
        );
        assert_eq!(taken(0, 3), []);
    }

    #[test]
    fn what_fails_is_named_with_its_case() {
        let fails = |case: Case| match case.nth {
            1 => Err(Violation::new(Oracle::WorksOn, "no")),
            _ => Ok(()),
        };
        let violation = each([(OpKind::Sync, 3)], 3, &FEW, fails).unwrap_err();
        assert_eq!(
            (violation.oracle, violation.place.as_str()),
            (Oracle::WorksOn, "Sync 1: Fail(Io)")
        );
        let panics = |case: Case| -> Verdict { panic!("in {}", case.nth) };
        let violation = each([(OpKind::Sync, 3)], 3, &FEW, panics).unwrap_err();
        assert_eq!((violation.oracle, violation.detail.as_str()), (Oracle::NoPanic, "in 0"));
    }

    fn run_list(case: Syncs) -> Verdict<Counts> {
        let mut counts = Counts::new("faults", "list");
        let (image, ops) = (disk().image(), [(); 8]);
        let workload = Workload::<List> { case: &case, image: &image, base: &0, ops: &ops };
        run(&workload, u64::MAX, &mut counts).map(|()| counts)
    }

    #[test]
    fn each_operation_fails_and_each_ending_is_judged() {
        let counts = run_list(Syncs::always()).unwrap();
        // Eight writes and nine syncs, the last one of which is of closing, where nothing fails.
        assert_eq!(counts.get("device operations"), 17);
        let of_a_sync = 2 + SyncLoss::ALL.len() as u64;
        let struck = 8 * 4 + 8 * of_a_sync;
        assert_eq!((counts.get("struck"), counts.get("runs")), (struck, struck + of_a_sync));
        assert_eq!(counts.get("judged"), 3 * counts.get("runs"));
        assert_eq!((counts.get("poisoned"), counts.get("surfaced")), (struck, struck));
    }

    #[test]
    fn errors_that_are_passed_over_are_found() {
        let violation = run_list(Syncs { minds_errors: false, ..Syncs::always() }).unwrap_err();
        assert_eq!(violation.oracle, Oracle::AcknowledgedIsThere);
        assert!(violation.place.starts_with("Write 0: Fail(Io): Killed"), "{violation}");
    }
}
