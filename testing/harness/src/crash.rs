//! Every legal state after a power cut: records a run on a simulated disk, makes the images that a
//! crash may leave at every position, and has each opened and judged.
//!
//! Some states are taken further: what is there is opened and used on a disk that records again,
//! and the crashes of that run, those within the recovery itself included, are judged as well.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use esker_device::sim::{
    CrashCounts, CrashModel, CrashOptions, CrashState, SimDevice, SimImage, Trace, Unwritten,
};

use crate::counts::Counts;
use crate::violation::{Oracle, Verdict, Violation, without_panic};

/// Something durable, open, with the model of what it holds. A wrong answer may be a panic
/// everywhere: it counts as a violation.
pub trait Subject: Sized {
    /// How it is opened, and what its runs are like.
    type Case;
    /// One step of a history.
    type Op: Debug;
    /// What is promised at one moment.
    type Point;
    /// What a run starts with: what is on the disk, as far as it is known.
    type Base;
    /// Everything that was ever written, to compare with what is found.
    type Model;
    /// An error that the device, or the lack of room, may cause.
    type Error: Display;

    /// Marks of the trace with one of these bits are the subject's own, and number no points.
    const OWN_MARKS: u64 = 0;

    /// Opens what is on `disk`.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(
        case: &Self::Case,
        disk: &Arc<SimDevice>,
        base: &Self::Base,
    ) -> Result<Self, Self::Error>;

    /// What is promised of `base` before it is opened.
    fn known(base: &Self::Base) -> Self::Point;

    /// Does one step, here and in the model.
    ///
    /// # Errors
    /// A broken promise; within, what the step itself answered.
    fn apply(&mut self, op: &Self::Op) -> Verdict<Result<(), Self::Error>>;

    /// What is promised now.
    fn observe(&self) -> Self::Point;

    /// Whether something else is promised than at `last`, which makes a mark due.
    fn is_more(now: &Self::Point, last: &Self::Point) -> bool;

    /// Ends a run in which nothing failed, as the trace shall have it: looks once more, or closes.
    ///
    /// # Errors
    /// A broken promise.
    fn finish(&mut self) -> Verdict {
        Ok(())
    }

    /// Ends without closing; nothing of it is in the trace.
    fn into_model(self) -> Self::Model;

    /// Opens what a crash left on `disk` and judges it. What else may differ after the crash, which
    /// is not on the disk, makes several variants; for each it says what is there, or `None` where
    /// that cannot be used further.
    ///
    /// # Errors
    /// The first broken promise.
    fn check(
        crash: &Crash<'_, Self>,
        disk: &Arc<SimDevice>,
        counts: &mut Counts,
    ) -> Verdict<Vec<Option<Self::Base>>>;

    /// The run, of `seed`, in which what a crash of a run of `case` left is used and crashes again.
    fn again(case: &Self::Case, seed: u64) -> Again<Self>;
}

/// A run on what a crash left.
pub struct Again<S: Subject> {
    /// How it is opened.
    pub case: S::Case,
    /// What is done.
    pub ops: Vec<S::Op>,
    /// Which of its crashes are judged.
    pub options: CrashOptions,
}

/// A run and what is needed to judge its crashes.
pub struct Recording<S: Subject> {
    /// How the subject was opened.
    pub case: S::Case,
    /// The operations on the disk. Mark `n` is where `points[n]` was reached; the first point is
    /// known from the beginning.
    pub trace: Trace,
    /// Everything that was written.
    pub model: S::Model,
    /// What was known before, then what was promised whenever that was something else.
    pub points: Vec<S::Point>,
    /// What was promised at the end.
    pub end: S::Point,
}

/// A crash of a run.
pub struct Crash<'a, S: Subject> {
    /// How the subject was opened.
    pub case: &'a S::Case,
    /// Everything that was written.
    pub model: &'a S::Model,
    /// What is promised.
    pub promise: Promise<'a, S::Point>,
    /// Where it came, and what survived.
    pub state: &'a CrashState<'a>,
    /// Whether the run began with what another crash left.
    pub is_again: bool,
}

/// What is promised when a crash comes.
#[derive(Clone, Copy, Debug)]
pub struct Promise<'a, P> {
    /// What was promised last.
    pub now: &'a P,
    /// What was to be promised next: the run was on its way there.
    pub next: &'a P,
    /// Whether the system has written everything that it was handed: that survives, synced or not.
    pub is_whole: bool,
}

impl<'a, P> Promise<'a, P> {
    /// The promise of a run that noted `points`, and `end` after them, at a crash. Marks with a bit
    /// of `own_marks` number no points.
    ///
    /// # Panics
    /// When a mark numbers a point that is not there.
    fn at(state: &CrashState<'_>, own_marks: u64, points: &'a [P], end: &'a P) -> Self {
        let passed = state.marks.iter().rev().find(|mark| *mark & own_marks == 0);
        let passed = passed.map_or(0, |mark| *mark as usize);
        let next = points.get(passed + 1).unwrap_or(end);
        Self { now: &points[passed], next, is_whole: is_whole(state) }
    }
}

/// Whether nothing is lost that was pending.
fn is_whole(state: &CrashState<'_>) -> bool {
    (0..state.pending_units).all(|unit| state.survivors.keeps(unit))
}

/// Judges every crash of a trace. Where `judge` panics or finds a violation, it has the state.
///
/// # Errors
/// The first violation.
pub fn each(
    trace: &Trace,
    options: &CrashOptions,
    mut judge: impl FnMut(&CrashState<'_>, &Arc<SimDevice>) -> Verdict,
) -> Verdict<CrashCounts> {
    trace.for_each_crash(options, |state, disk| {
        without_panic(|| judge(state, disk)).map_err(|violation| violation.at(state))
    })
}

/// `limit` crashes on a disk that follows from the seed: of five, one keeps the order of writes,
/// one has garbage where nothing was written, and one older data.
#[must_use]
pub fn limited(seed: u64, limit: u64) -> CrashOptions {
    let unwritten = match seed % 5 {
        3 => Unwritten::Garbage,
        4 => Unwritten::OldData,
        _ => Unwritten::Zeros,
    };
    let model = CrashModel { ordered: seed % 5 == 2, unwritten, honours_syncs: true };
    CrashOptions { model, limit: Some(limit), seed, ..CrashOptions::default() }
}

/// Does `ops` on a disk that records.
///
/// # Errors
/// A promise broken while nothing crashed, an operation that failed included.
pub fn record<S: Subject>(
    case: S::Case,
    disk: &Arc<SimDevice>,
    base: &S::Base,
    ops: &[S::Op],
) -> Verdict<Recording<S>> {
    let mut marks = Marks::start(disk, base);
    let opened = S::open(&case, disk, base);
    let mut subject = opened.map_err(|error| Violation::new(Oracle::Opens, error.to_string()))?;
    marks.reach(&subject, true);
    for (at, op) in ops.iter().enumerate() {
        let done = subject.apply(op).map_err(|violation| violation.at(format!("step {at}")))?;
        let failed = |error: S::Error| Violation::new(Oracle::WorksOn, format!("{op:?}: {error}"));
        done.map_err(|error| failed(error).at(format!("step {at}")))?;
        marks.reach(&subject, false);
    }
    let end = subject.observe();
    subject.finish().map_err(|violation| violation.at("at the end"))?;
    let (trace, points) = marks.finish()?;
    Ok(Recording { case, trace, model: subject.into_model(), points, end })
}

/// The points of a run, each with its mark in the trace.
pub(crate) struct Marks<'a, S: Subject> {
    disk: &'a Arc<SimDevice>,
    points: Vec<S::Point>,
}

impl<'a, S: Subject> Marks<'a, S> {
    /// Has the disk record; what is known is the first point.
    pub(crate) fn start(disk: &'a Arc<SimDevice>, base: &S::Base) -> Self {
        disk.record();
        Self { disk, points: vec![S::known(base)] }
    }

    /// Notes what is promised now where it is something else, or `always`.
    pub(crate) fn reach(&mut self, subject: &S, always: bool) {
        let point = subject.observe();
        if always || self.points.last().is_none_or(|last| S::is_more(&point, last)) {
            self.disk.mark(self.points.len() as u64);
            self.points.push(point);
        }
    }

    /// The trace, which ends here, and the points.
    pub(crate) fn finish(self) -> Verdict<(Trace, Vec<S::Point>)> {
        let trace = self.disk.take_trace();
        let missing = || Violation::new(Oracle::Harness, "no trace was recorded");
        Ok((trace.ok_or_else(missing)?, self.points))
    }
}

/// Judges crashes of a recording; about one in `again_one_in` of what is left, if any, is used and
/// crashed again. Calls `seen` with the digest of every image. Counts what was judged.
///
/// # Errors
/// The first broken promise, with the state that shows it.
pub fn explore<S: Subject>(
    recording: &Recording<S>,
    options: &CrashOptions,
    again_one_in: Option<u64>,
    counts: &mut Counts,
    mut seen: impl FnMut(u64),
) -> Verdict {
    let visited = each(&recording.trace, options, |state, disk| {
        let crash = recording.crash(state, false);
        seen(state.digest);
        let image = disk.image();
        counts.add("judged", 1);
        let found = S::check(&crash, disk, counts)?;
        counts.add("judged", (found.len() as u64).saturating_sub(1));
        // The remainder by 6 is for a subject to say how deeply it checks.
        if !again_one_in.is_some_and(|one_in| (state.digest / 6).is_multiple_of(one_in)) {
            return Ok(());
        }
        for base in found.into_iter().flatten() {
            again::<S>(&recording.case, &image, &base, state.digest, counts)
                .map_err(|violation| violation.at("then used"))?;
        }
        Ok(())
    })?;
    counts.add("generated", visited.generated);
    Ok(())
}

/// Opens what a crash left on a disk that records, uses it, and judges the crashes of that.
fn again<S: Subject>(
    case: &S::Case,
    image: &SimImage,
    base: &S::Base,
    seed: u64,
    counts: &mut Counts,
) -> Verdict {
    let Again { case, ops, options } = S::again(case, seed);
    let disk = Arc::new(SimDevice::from_image(image));
    let again: Recording<S> = record(case, &disk, base, &ops)?;
    counts.add("used and crashed again", 1);
    each(&again.trace, &options, |state, disk| {
        let crash = again.crash(state, true);
        counts.add("judged within them", 1);
        let found = S::check(&crash, disk, counts)?;
        counts.add("judged within them", (found.len() as u64).saturating_sub(1));
        Ok(())
    })
    .map_err(|violation| violation.at(format!("with seed {seed}")))?;
    Ok(())
}

impl<S: Subject> Recording<S> {
    /// What is promised at a crash.
    pub(crate) fn crash<'a>(&'a self, state: &'a CrashState<'a>, is_again: bool) -> Crash<'a, S> {
        let promise = Promise::at(state, S::OWN_MARKS, &self.points, &self.end);
        Crash { case: &self.case, model: &self.model, promise, state, is_again }
    }
}

#[cfg(test)]
mod tests;
