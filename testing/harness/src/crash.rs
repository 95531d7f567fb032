//! Every legal state after a power cut: records a run on a simulated disk, makes the images that a
//! crash may leave at every position, and has each opened and judged.
//!
//! Some states are taken further: what is there is opened and used on a disk that records again,
//! and the crashes of that run, those within the recovery itself included, are judged as well.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use esker_device::sim::{
    CrashModel, CrashOptions, CrashState, SimDevice, SimImage, Trace, Unwritten,
};

use crate::violation::{Oracle, Verdict, Violation, without_panic};

/// Something durable, open, with the model of what it holds. A wrong answer may be a panic
/// everywhere: it counts as a violation.
pub trait Subject: Sized {
    /// How it is opened.
    type Case;
    /// One step of a history.
    type Op: Debug;
    /// What is promised at one moment.
    type Point;
    /// Everything that was ever written, to compare with what is found.
    type Model;
    /// An error that the device, or the lack of room, may cause.
    type Error: Display;

    /// Opens what is on `disk`; `known` is what is promised of it.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(
        case: &Self::Case,
        disk: &Arc<SimDevice>,
        known: &Self::Point,
    ) -> Result<Self, Self::Error>;

    /// Does one step, here and in the model.
    ///
    /// # Errors
    /// A broken promise; within, what the step itself answered.
    fn apply(&mut self, op: &Self::Op) -> Verdict<Result<(), Self::Error>>;

    /// What is promised now.
    fn observe(&self) -> Self::Point;

    /// Whether something else is promised than at `last`, which makes a mark due.
    fn is_more(now: &Self::Point, last: &Self::Point) -> bool;

    /// Ends without closing.
    fn into_model(self) -> Self::Model;

    /// Opens what a crash left on `disk`, judges it, and says what is there; `None` where it cannot
    /// be used further.
    ///
    /// # Errors
    /// The first broken promise.
    fn check(
        recording: &Recording<Self>,
        promise: &Promise<'_, Self::Point>,
        disk: &Arc<SimDevice>,
    ) -> Verdict<Option<Self::Point>>;

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
    /// The operations on the disk. Mark `n` is where `points[n]` was reached.
    pub trace: Trace,
    /// Everything that was written.
    pub model: S::Model,
    /// What was known before, then what was promised whenever that was something else.
    pub points: Vec<S::Point>,
    /// What was promised at the end.
    pub end: S::Point,
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
    /// of `other_marks` number no points. `None` before the first mark of a point.
    ///
    /// # Panics
    /// When a mark numbers a point that is not there.
    #[must_use]
    pub fn at(
        state: &CrashState<'_>,
        other_marks: u64,
        points: &'a [P],
        end: &'a P,
    ) -> Option<Self> {
        let passed = state.marks.iter().rev().find(|mark| *mark & other_marks == 0)?;
        let passed = *passed as usize;
        let next = points.get(passed + 1).unwrap_or(end);
        Some(Self { now: &points[passed], next, is_whole: is_whole(state) })
    }
}

/// Whether nothing is lost that was pending.
#[must_use]
pub fn is_whole(state: &CrashState<'_>) -> bool {
    (0..state.pending_units).all(|unit| state.survivors.keeps(unit))
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

/// Crashes that were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Those of recordings.
    pub states: u64,
    /// Runs on what one of them left.
    pub again: u64,
    /// Crashes of these.
    pub within: u64,
}

/// Does `ops` on a disk that records. Before the first mark nothing is promised.
///
/// # Errors
/// A promise broken while nothing crashed, an operation that failed included.
pub fn record<S: Subject>(
    case: S::Case,
    disk: &Arc<SimDevice>,
    known: S::Point,
    ops: &[S::Op],
) -> Verdict<Recording<S>> {
    disk.record();
    disk.mark(0);
    let opened = S::open(&case, disk, &known);
    let mut subject = opened.map_err(|error| Violation::new(Oracle::Opens, error.to_string()))?;
    let mut points = vec![known];
    let mut reach = |subject: &S, always: bool| {
        let point = subject.observe();
        if always || points.last().is_none_or(|last| S::is_more(&point, last)) {
            disk.mark(points.len() as u64);
            points.push(point);
        }
    };
    reach(&subject, true);
    for (at, op) in ops.iter().enumerate() {
        let done = subject.apply(op).map_err(|violation| violation.at(format!("step {at}")))?;
        let failed = |error: S::Error| Violation::new(Oracle::WorksOn, format!("{op:?}: {error}"));
        done.map_err(|error| failed(error).at(format!("step {at}")))?;
        reach(&subject, false);
    }
    let end = subject.observe();
    // Taken first: nothing of the ending is in the trace.
    let trace = disk.take_trace();
    let model = subject.into_model();
    let trace = trace.ok_or_else(|| Violation::new(Oracle::Harness, "no trace was recorded"))?;
    Ok(Recording { case, trace, model, points, end })
}

/// Judges crashes of a recording; what every `again_one_in`th left is used and crashed again.
///
/// # Errors
/// The first broken promise, with the state that shows it.
pub fn explore<S: Subject>(
    recording: &Recording<S>,
    options: &CrashOptions,
    again_one_in: u64,
    judged: &mut Judged,
) -> Verdict {
    recording.trace.for_each_crash(options, |state, disk| {
        let Some(promise) = recording.promise(state) else { return Ok(()) };
        judged.states += 1;
        let image = disk.image();
        let found = without_panic(|| S::check(recording, &promise, disk));
        let found = found.map_err(|violation| violation.at(state))?;
        let Some(found) = found.filter(|_| judged.states.is_multiple_of(again_one_in)) else {
            return Ok(());
        };
        without_panic(|| again::<S>(&recording.case, &image, found, state.digest, judged))
            .map_err(|violation| violation.at("then used").at(state))
    })?;
    Ok(())
}

/// Opens what a crash left on a disk that records, uses it, and judges the crashes of that.
fn again<S: Subject>(
    case: &S::Case,
    image: &SimImage,
    found: S::Point,
    seed: u64,
    judged: &mut Judged,
) -> Verdict {
    let Again { case, ops, options } = S::again(case, seed);
    let disk = Arc::new(SimDevice::from_image(image));
    let again: Recording<S> = record(case, &disk, found, &ops)?;
    judged.again += 1;
    again.trace.for_each_crash(&options, |state, disk| {
        let Some(promise) = again.promise(state) else { return Ok(()) };
        judged.within += 1;
        without_panic(|| S::check(&again, &promise, disk))
            .map(drop)
            .map_err(|violation| violation.at(format!("with seed {seed}: {state}")))
    })?;
    Ok(())
}

impl<S: Subject> Recording<S> {
    fn promise(&self, state: &CrashState<'_>) -> Option<Promise<'_, S::Point>> {
        Promise::at(state, 0, &self.points, &self.end)
    }
}

#[cfg(test)]
mod tests;
