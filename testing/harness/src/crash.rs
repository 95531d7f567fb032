//! Every legal state after a power cut: what is promised there, and how many are judged.

use esker_device::sim::{CrashModel, CrashOptions, CrashState, Unwritten};

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
