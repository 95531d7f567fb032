//! Who waits for what.
//!
//! Invariants: batches are handed out in the order of their loads; a part of memory serves one
//! load at a time, and goes to the next one in its turn when everything of it is written. So a
//! reader waits only for what is read and written before its own batch, and writers wait for
//! nobody but readers: something always moves until all records are written.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::write::{Cutter, Span};
use super::{Payload, Shared};
use crate::batches::{Batch, Batches, Part, Plan};
use crate::error::{Error, Result};
use crate::file::{BLOCK, Sink};

/// How often the caller is asked whether to go on.
const TICK: Duration = Duration::from_millis(10);

/// Hands out batches, parts to fill and parts to write.
pub(super) struct Flow<'p, 'm> {
    plan: &'p Plan<'p>,
    /// Bytes of a record.
    record: u64,
    sink: Payload<&'p dyn Sink>,
    /// How many loads are in memory at once.
    loads: u64,
    state: Mutex<State<'p, 'm>>,
    /// Woken when a part is free, or no longer being filled by somebody else.
    free: Condvar,
    /// Woken when a part is full.
    full: Condvar,
    /// Woken at the end.
    over: Condvar,
}

struct State<'p, 'm> {
    batches: Batches<'p>,
    /// The loads that were begun and may not be written yet, from the oldest.
    begun: VecDeque<Arc<Load>>,
    /// Those of the first load in memory, then those of the second.
    places: Vec<Place<'m>>,
    writing: VecDeque<Writing<'p, 'm>>,
    /// Readers at work.
    readers: usize,
    /// Records that are not in their places yet.
    unplaced: u64,
    /// Bytes that are not written yet.
    unwritten: u64,
    is_over: bool,
    outcome: Result<()>,
}

/// A load that was begun.
pub(super) struct Load {
    number: u64,
    pub(super) parts: Vec<Stretch>,
}

/// A part of a load.
pub(super) struct Stretch {
    pub(super) part: Part,
    /// Where its first record lies in memory, in bytes: as it will in its block of the file, so
    /// that it can be written from there.
    pub(super) start: usize,
}

/// Memory for one part.
struct Place<'m> {
    /// The load that it serves.
    load: u64,
    /// How many records of it have come.
    placed: u64,
    /// Gone while somebody fills it, and while it is written.
    memory: Option<&'m mut [u8]>,
}

/// The memory of a part that is full: several writers read it.
pub(super) struct Full<'m>(&'m mut [u8]);

impl Full<'_> {
    pub(super) const fn bytes(&self) -> &[u8] {
        self.0
    }
}

/// A part that is being written.
struct Writing<'p, 'm> {
    place: usize,
    memory: Arc<Full<'m>>,
    cutter: Cutter<'p>,
    /// Jobs that are not done.
    jobs: usize,
    is_handed_out: bool,
}

/// Some of a part, to be written.
pub(super) struct Job<'m> {
    place: usize,
    pub(super) memory: Arc<Full<'m>>,
    pub(super) spans: Vec<Span>,
}

impl<'p, 'm> Flow<'p, 'm> {
    /// Begins before the first batch, with the memory of all parts and so many readers.
    pub(super) fn new(
        shared: &Shared<'p>,
        memory: Vec<&'m mut [u8]>,
        loads: usize,
        readers: usize,
    ) -> Self {
        let plan = shared.plan;
        let parts = (memory.len() / loads.max(1)).max(1);
        let place = |(index, memory): (usize, &'m mut [u8])| Place {
            load: (index / parts) as u64,
            placed: 0,
            memory: Some(memory),
        };
        let records = plan.pass.space.records();
        let state = State {
            batches: plan.batches(),
            begun: VecDeque::new(),
            places: memory.into_iter().enumerate().map(place).collect(),
            writing: VecDeque::new(),
            readers,
            unplaced: records,
            unwritten: records.saturating_mul(shared.record as u64),
            is_over: false,
            outcome: Ok(()),
        };
        Self {
            plan,
            record: shared.record as u64,
            sink: shared.sink,
            loads: loads.max(1) as u64,
            state: Mutex::new(state),
            free: Condvar::new(),
            full: Condvar::new(),
            over: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'p, 'm>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where part `part` of a load goes.
    fn place_of(&self, state: &State<'_, '_>, load: u64, part: usize) -> usize {
        let parts = state.places.len() / usize::try_from(self.loads).unwrap_or(1);
        usize::try_from(load % self.loads).unwrap_or(0) * parts + part
    }

    /// The next batch and its load; `None` at the end, also an early one.
    pub(super) fn next_batch(&self) -> Option<(Batch, Arc<Load>)> {
        let mut state = self.lock();
        if state.is_over {
            return None;
        }
        let batch = state.batches.next()?;
        let newest = state.begun.back().filter(|load| load.number == batch.load);
        if let Some(load) = newest {
            return Some((batch, Arc::clone(load)));
        }
        let stretch = |part: Part| {
            let first = self.plan.writes(part.choice.clone()).next();
            let offset = first.map_or(0, |run| self.sink.start + run.address * self.record);
            Stretch { part, start: usize::try_from(offset % BLOCK as u64).unwrap_or(0) }
        };
        let parts = self.plan.parts_of(&batch).into_iter().map(stretch).collect();
        let load = Arc::new(Load { number: batch.load, parts });
        state.begun.push_back(Arc::clone(&load));
        for part in 0..load.parts.len() {
            let place = self.place_of(&state, load.number, part);
            self.skip_empty(&mut state, place);
        }
        Some((batch, load))
    }

    /// Has a place serve the next load that has records for it.
    fn skip_empty(&self, state: &mut State<'_, '_>, place: usize) {
        let parts = state.places.len() / usize::try_from(self.loads).unwrap_or(1);
        let is_empty = |state: &State<'_, '_>| {
            let number = state.places[place].load;
            let load = state.begun.iter().find(|load| load.number == number);
            load.is_some_and(|load| load.parts[place % parts].part.records == 0)
        };
        while is_empty(state) {
            state.places[place].load += self.loads;
        }
        let oldest = state.places.iter().map(|place| place.load).min().unwrap_or(0);
        while state.begun.front().is_some_and(|load| load.number < oldest) {
            state.begun.pop_front();
        }
    }

    /// Waits for the memory of one of some parts of a load; answers which, as an index of `parts`.
    /// `None` when all is over.
    pub(super) fn take(&self, load: &Load, parts: &[usize]) -> Option<(usize, &'m mut [u8])> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            for (index, part) in parts.iter().enumerate() {
                let place = self.place_of(&state, load.number, *part);
                let place = &mut state.places[place];
                if place.load == load.number
                    && let Some(memory) = place.memory.take()
                {
                    return Some((index, memory));
                }
            }
            state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives the memory of a part back, with so many more records in it.
    pub(super) fn put(&self, load: &Load, part: usize, memory: &'m mut [u8], records: u64) {
        let mut state = self.lock();
        let index = self.place_of(&state, load.number, part);
        state.unplaced = state.unplaced.saturating_sub(records);
        let place = &mut state.places[index];
        place.placed += records;
        let Stretch { part, start } = &load.parts[part];
        if place.placed < part.records {
            place.memory = Some(memory);
            self.free.notify_all();
            return;
        }
        let runs = self.plan.writes(part.choice.clone());
        state.writing.push_back(Writing {
            place: index,
            memory: Arc::new(Full(memory)),
            cutter: Cutter::new(runs, self.sink.start, self.record, *start),
            jobs: 0,
            is_handed_out: false,
        });
        self.full.notify_all();
    }

    /// A reader has met the end.
    pub(super) fn leave(&self) -> Result<()> {
        let mut state = self.lock();
        state.readers = state.readers.saturating_sub(1);
        if state.readers == 0 && state.unplaced > 0 && !state.is_over {
            return Err(Error::Internal("a load was not read whole"));
        }
        Ok(())
    }

    /// Waits for something to write; `None` at the end, also an early one.
    pub(super) fn next_job(&self) -> Option<Job<'m>> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(writing) = state.writing.iter_mut().find(|w| !w.is_handed_out) {
                let spans = writing.cutter.spans(self.sink.file);
                writing.jobs += 1;
                writing.is_handed_out = writing.cutter.is_done();
                let Writing { place, memory, .. } = writing;
                return Some(Job { place: *place, memory: Arc::clone(memory), spans });
            }
            state = self.full.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A job is done.
    pub(super) fn done(&self, job: Job<'m>) -> Result<()> {
        let Job { place, memory, spans } = job;
        drop(memory);
        let bytes: usize = spans.iter().map(|span| span.len).sum();
        let mut state = self.lock();
        state.unwritten = state.unwritten.saturating_sub(bytes as u64);
        if state.unwritten == 0 {
            state.is_over = true;
            self.wake();
        }
        let Some(index) = state.writing.iter().position(|w| w.place == place) else {
            return Err(Error::Internal("what was written belongs to no part"));
        };
        let writing = &mut state.writing[index];
        writing.jobs -= 1;
        if writing.jobs > 0 || !writing.is_handed_out {
            return Ok(());
        }
        let Some(writing) = state.writing.remove(index) else { return Ok(()) };
        let Ok(Full(memory)) = Arc::try_unwrap(writing.memory) else {
            return Err(Error::Internal("a part is held after it was written"));
        };
        let free = &mut state.places[place];
        free.memory = Some(memory);
        free.placed = 0;
        free.load += self.loads;
        self.skip_empty(&mut state, place);
        self.free.notify_all();
        Ok(())
    }

    /// Keeps the first error, and has everybody stop.
    pub(super) fn note(&self, outcome: Result<()>) {
        if outcome.is_err() {
            let mut state = self.lock();
            if state.outcome.is_ok() {
                state.outcome = outcome;
            }
            state.is_over = true;
            self.wake();
        }
    }

    fn wake(&self) {
        self.free.notify_all();
        self.full.notify_all();
        self.over.notify_all();
    }

    /// Whether everything is written, or something failed.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Waits for the end, asking at the beginning and now and then whether to go on.
    pub(super) fn watch(&self, go_on: &mut dyn FnMut() -> bool) {
        while !self.is_over() {
            if !go_on() {
                self.note(Err(Error::Interrupted));
            }
            let state = self.lock();
            if !state.is_over {
                let waited = self.over.wait_timeout(state, TICK);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// What became of it.
    pub(super) fn outcome(&self) -> Result<()> {
        std::mem::replace(&mut self.lock().outcome, Ok(()))
    }
}
