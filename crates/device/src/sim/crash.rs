//! All the images that a crash may leave, at every position of a trace.

use std::collections::HashSet;
use std::fmt;
use std::ops::Add;
use std::sync::Arc;

use super::device::{SimDevice, SimOptions};
use super::holes::Holes;
use super::image::{Image, SimImage};
use super::sectors::SectorStore;
use super::survivors::{CrashModel, Effort, Survivors, choices, mix};
use super::trace::{Event, Replay, Trace};

/// The number and kind of crash images.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// The model of the crash.
    pub model: CrashModel,
    /// Up to this many pending units (at most 20) all subsets are made.
    pub exhaustive_units: usize,
    /// Past that, at most this many of each regular kind (prefixes, suffixes, one lost, …).
    pub family_choices: usize,
    /// Past that, also this many random subsets.
    pub random_choices: usize,
    /// The seed of random subsets and samples.
    pub seed: u64,
    /// Visit at most this many images, spread evenly over all choices of survivors, and make a
    /// small multiple of them; `None` for all. Where most choices give the same image, fewer are
    /// visited.
    pub limit: Option<u64>,
}

impl Default for CrashOptions {
    fn default() -> Self {
        Self {
            model: CrashModel::default(),
            exhaustive_units: 10,
            family_choices: 64,
            random_choices: 16,
            seed: 0,
            limit: None,
        }
    }
}

/// The result of an enumeration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrashCounts {
    /// Places in the trace where a crash was tried.
    pub positions: u64,
    /// Choices of survivors, over all positions.
    pub choices: u64,
    /// Choices for which an image was made.
    pub generated: u64,
    /// Different ones of these images, or equal ones with different marks before them.
    pub distinct: u64,
    /// Images visited.
    pub visited: u64,
}

impl Add for CrashCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            positions: self.positions + other.positions,
            choices: self.choices + other.choices,
            generated: self.generated + other.generated,
            distinct: self.distinct + other.distinct,
            visited: self.visited + other.visited,
        }
    }
}

/// The crash that left an image. [`Trace::crash_image`] makes the image again from `position` and
/// `survivors`, with the same model.
#[derive(Debug)]
pub struct CrashState<'a> {
    /// The trace that the crash interrupted.
    pub trace: &'a Trace,
    /// The number of events before the crash.
    pub position: usize,
    /// The pending units that survived.
    pub survivors: &'a Survivors,
    /// The number of units that were pending.
    pub pending_units: usize,
    /// The marks before the crash, in order.
    pub marks: &'a [u64],
    /// Equal for equal images.
    pub digest: u64,
}

impl CrashState<'_> {
    /// The greatest mark before the crash.
    #[must_use]
    pub fn acknowledged(&self) -> Option<u64> {
        self.marks.iter().copied().max()
    }
}

impl fmt::Display for CrashState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "crash at position {} of {} (next: {}), {} units pending, of which survived: {}",
            self.position,
            self.trace.len(),
            self.trace.describe(self.position),
            self.pending_units,
            self.survivors,
        )?;
        match self.acknowledged() {
            Some(mark) => write!(f, "; acknowledged: {mark}"),
            None => write!(f, "; nothing acknowledged"),
        }
    }
}

/// The average number of choices that may be tried for one image of a sample.
const TRIES_EACH: u64 = 32;

/// The choices at which an image is made: one, at a random place, of each of `limit` equal parts of
/// all choices. Even steps would coincide with the order in which choices are made.
#[derive(Clone, Copy, Debug)]
struct Sample {
    limit: u64,
    choices: u64,
    seed: u64,
}

impl Sample {
    fn is_due_at(&self, index: u64) -> bool {
        if self.limit >= self.choices {
            return true;
        }
        if self.limit == 0 {
            return false;
        }
        let (limit, choices) = (u128::from(self.limit), u128::from(self.choices));
        // The part whose range holds the index; all values are below `choices`.
        let part = u128::from(index) * limit / choices;
        let first = |part: u128| (part * choices).div_ceil(limit);
        let (low, high) = (first(part), first(part + 1));
        let within = u128::from(mix(self.seed ^ mix(part as u64))) % (high - low).max(1);
        u128::from(index) == low + within
    }
}

/// One pass over all crash states of a trace.
struct Walk<'a> {
    trace: &'a Trace,
    options: &'a CrashOptions,
    /// `None` where every image is due.
    sample: Option<Sample>,
    /// Images that fell due and were not visited yet: choices are tried until one of them gives
    /// an image that was not seen before.
    owed: u64,
    /// Choices that may still be tried for what is owed. Where nearly all give the same image, as
    /// for names that came and went, looking for another would be most of the work.
    tries: u64,
    seen: HashSet<u64>,
    counts: CrashCounts,
}

impl<'a> Walk<'a> {
    fn new(trace: &'a Trace, options: &'a CrashOptions, sample: Option<Sample>) -> Self {
        let (seen, counts) = (HashSet::new(), CrashCounts::default());
        Self { trace, options, sample, owed: 0, tries: 0, seen, counts }
    }

    fn run<E>(
        &mut self,
        visit: &mut impl FnMut(&CrashState<'_>, &Image, &SectorStore) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut replay = Replay::new(self.trace);
        replay.disk.store.freeze();
        let mut marks = Vec::new();
        for position in 0..=self.trace.len() {
            let next = self.trace.events.get(position);
            // Before a mark the same images are possible as after it, where more must hold.
            if !matches!(next, Some(Event::Mark(_))) {
                self.crash_here(position, &mut replay, &marks, visit)?;
            }
            match next {
                Some(Event::Mark(mark)) => marks.push(*mark),
                Some(event) => replay.step(event, self.options.model.honours_syncs),
                None => {}
            }
        }
        Ok(())
    }

    fn crash_here<E>(
        &mut self,
        position: usize,
        replay: &mut Replay,
        marks: &[u64],
        visit: &mut impl FnMut(&CrashState<'_>, &Image, &SectorStore) -> Result<(), E>,
    ) -> Result<(), E> {
        let model = &self.options.model;
        let effort = Effort {
            exhaustive_units: self.options.exhaustive_units,
            family_choices: self.options.family_choices,
            random_choices: self.options.random_choices,
            seed: mix(self.options.seed ^ mix(position as u64)),
        };
        let disk = &mut replay.disk;
        let pending_units = disk.pending.iter().map(|change| change.units.len()).sum();
        let mut undo = Vec::new();
        self.counts.positions += 1;
        for survivors in &choices(&disk.pending, model.ordered, &effort) {
            if !self.is_due() {
                continue;
            }
            self.counts.generated += 1;
            survivors.apply_crash(disk, model, &mut undo);
            let digest = disk.durable.digest();
            if self.seen.insert(digest ^ mix(marks.len() as u64)) {
                let trace = self.trace;
                let state = CrashState { trace, position, survivors, pending_units, marks, digest };
                self.counts.distinct += 1;
                self.counts.visited += 1;
                self.owed = self.owed.saturating_sub(1);
                visit(&state, &disk.durable, &disk.store)?;
            }
            disk.durable.undo(&mut undo, &disk.store);
            disk.store.forget_fresh();
        }
        Ok(())
    }

    /// Whether the next choice is to be tried.
    fn is_due(&mut self) -> bool {
        let index = self.counts.choices;
        self.counts.choices += 1;
        let Some(sample) = self.sample else { return true };
        if sample.is_due_at(index) {
            self.owed += 1;
            self.tries += TRIES_EACH;
        }
        if self.owed == 0 || self.tries == 0 {
            (self.owed, self.tries) = (0, 0);
            return false;
        }
        self.tries -= 1;
        true
    }
}

impl Trace {
    /// Calls `visit` with each distinct crash image, on a disk of its own that starts there: the
    /// writes of `visit` are discarded afterwards, and can be recorded for crashes within a
    /// recovery. Ends at the first error.
    pub fn for_each_crash<E>(
        &self,
        options: &CrashOptions,
        mut visit: impl FnMut(&CrashState<'_>, &Arc<SimDevice>) -> Result<(), E>,
    ) -> Result<CrashCounts, E> {
        let sample = options.limit.map(|limit| {
            let choices = self.count_choices(options);
            Sample { limit, choices, seed: mix(options.seed) }
        });
        let mut walk = Walk::new(self, options, sample);
        let capacity_bytes = SimOptions::default().capacity_bytes;
        walk.run(&mut |state, image, store| {
            let device = SimDevice::at_rest(image.clone(), store.clone(), capacity_bytes);
            visit(state, &Arc::new(device))
        })?;
        Ok(walk.counts)
    }

    /// The number of choices of survivors. Makes no image.
    fn count_choices(&self, options: &CrashOptions) -> u64 {
        let none = Sample { limit: 0, choices: u64::MAX, seed: 0 };
        self.walk_unseen(options, Some(none)).choices
    }

    /// Counts the crash images without visiting any; `limit` does not matter.
    #[must_use]
    pub fn count_crashes(&self, options: &CrashOptions) -> CrashCounts {
        CrashCounts { visited: 0, ..self.walk_unseen(options, None) }
    }

    fn walk_unseen(&self, options: &CrashOptions, sample: Option<Sample>) -> CrashCounts {
        let mut walk = Walk::new(self, options, sample);
        let outcome: Result<(), std::convert::Infallible> = walk.run(&mut |_, _, _| Ok(()));
        match outcome {
            Ok(()) => walk.counts,
        }
    }

    /// Makes one crash image: the state after the power fails behind `position` events.
    #[must_use]
    pub fn crash_image(
        &self,
        position: usize,
        survivors: &Survivors,
        model: &CrashModel,
    ) -> SimImage {
        let mut replay = Replay::new(self);
        for event in self.events.iter().take(position) {
            replay.step(event, model.honours_syncs);
        }
        survivors.apply_crash(&mut replay.disk, model, &mut Vec::new());
        replay.disk.store.freeze();
        SimImage { image: replay.disk.durable, store: replay.disk.store, holes: Holes::default() }
    }
}
