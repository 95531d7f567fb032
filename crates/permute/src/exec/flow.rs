//! The synchronisation of readers and writers.
//!
//! Invariants: batches are handed out in the order of their loads; a place in memory serves one
//! part of one load at a time, and goes to the next one in its turn when everything of it is
//! written. So a reader waits only for what is read and written before its own batch, and writers
//! wait only for readers: there is always progress until all records are written. Where a pass
//! writes to the file that it reads, no part of a load is written before all of it was read; other
//! loads have other ranges of the file.
//!
//! Locks are taken in the order batches, place, load, queue, end, and a place's is held while a
//! batch is copied to it: readers that meet go to other parts first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::write::{Cutter, Span};
use super::{Payload, Shared};
use crate::batches::{Batch, Batches, Part, Plan};
use crate::error::{Error, Result};
use crate::file::{BLOCK, Sink};

/// The interval at which the caller is asked whether to continue.
const TICK: Duration = Duration::from_millis(10);

/// Hands out batches, parts to fill and parts to write.
pub(super) struct Flow<'p, 'm> {
    plan: &'p Plan<'p>,
    /// Bytes of a record.
    record: u64,
    sink: Payload<&'p dyn Sink>,
    /// The number of parts of a load.
    parts: usize,
    /// Whether the file that is read is written: a load is written when all of it was read.
    is_in_place: bool,
    batches: Mutex<Handed<'p, 'm>>,
    /// Those of the first load in memory, then those of the second.
    places: Vec<Place<'m>>,
    queue: Mutex<VecDeque<Writing<'p, 'm>>>,
    /// Woken when a part is full.
    full: Condvar,
    /// Readers at work.
    readers: AtomicUsize,
    /// Records that are not in their places yet.
    unplaced: AtomicU64,
    /// Bytes that are not written yet.
    unwritten: AtomicU64,
    is_over: AtomicBool,
    outcome: Mutex<Result<()>>,
    /// Woken at the end.
    over: Condvar,
}

/// The batches and parts that were handed out to readers.
struct Handed<'p, 'm> {
    batches: Batches<'p>,
    newest: Option<Arc<Load<'p, 'm>>>,
    /// For each place, the number of parts with records that were given to it.
    turns: Vec<u64>,
}

/// A load that was begun.
pub(super) struct Load<'p, 'm> {
    number: u64,
    pub(super) parts: Vec<Stretch>,
    /// The number of parts that have records.
    count: usize,
    /// Parts that are full and wait for the others, where a load is written when all of it is read.
    waiting: Mutex<Vec<Writing<'p, 'm>>>,
}

/// A part of a load.
pub(super) struct Stretch {
    pub(super) part: Part,
    /// The place of its first record in memory, in bytes: as it will in its block of the file, so
    /// that it can be written from there.
    pub(super) start: usize,
    place: usize,
    /// The number of parts that the place serves before.
    turn: u64,
}

/// Memory for one part.
struct Place<'m> {
    held: Mutex<Held<'m>>,
    /// Woken when its next turn begins.
    free: Condvar,
}

struct Held<'m> {
    /// The number of parts that it has served.
    turn: u64,
    /// The number of records of the present part that have come.
    placed: u64,
    /// `None` while it is written.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'p, 'm> Flow<'p, 'm> {
    /// Begins before the first batch, with the memory of all parts and this many readers.
    pub(super) fn new(
        shared: &Shared<'p>,
        memory: Vec<&'m mut [u8]>,
        loads: usize,
        readers: usize,
    ) -> Self {
        let plan = shared.plan;
        let parts = (memory.len() / loads.max(1)).max(1);
        let place = |memory: &'m mut [u8]| Place {
            held: Mutex::new(Held { turn: 0, placed: 0, memory: Some(memory) }),
            free: Condvar::new(),
        };
        let places: Vec<Place<'m>> = memory.into_iter().map(place).collect();
        let records = plan.pass.space.records();
        let turns = vec![0; places.len()];
        Self {
            plan,
            record: shared.record as u64,
            sink: shared.sink,
            parts,
            is_in_place: shared.is_in_place,
            batches: Mutex::new(Handed { batches: plan.batches(), newest: None, turns }),
            places,
            queue: Mutex::default(),
            full: Condvar::new(),
            readers: AtomicUsize::new(readers),
            unplaced: AtomicU64::new(records),
            unwritten: AtomicU64::new(records.saturating_mul(shared.record as u64)),
            is_over: AtomicBool::new(false),
            outcome: Mutex::new(Ok(())),
            over: Condvar::new(),
        }
    }

    /// The next batch and its load; `None` at the end, also an early one.
    pub(super) fn next_batch(&self) -> Option<(Batch, Arc<Load<'p, 'm>>)> {
        if self.is_over() {
            return None;
        }
        let mut handed = lock(&self.batches);
        let batch = handed.batches.next()?;
        let load = match handed.newest.take().filter(|load| load.number == batch.load) {
            Some(load) => load,
            None => Arc::new(self.begin(&batch, &mut handed.turns)),
        };
        handed.newest = Some(Arc::clone(&load));
        Some((batch, load))
    }

    /// The load of a batch, its parts after those that their places were given before.
    fn begin(&self, batch: &Batch, turns: &mut [u64]) -> Load<'p, 'm> {
        let loads = (self.places.len() / self.parts).max(1) as u64;
        let first = usize::try_from(batch.load % loads).unwrap_or(0) * self.parts;
        let stretch = |(place, part): (usize, Part)| {
            let run = self.plan.writes(part.choice.clone()).next();
            let offset = run.map_or(0, |run| self.sink.start + run.address * self.record);
            let turn = turns[place];
            turns[place] += u64::from(part.records > 0);
            let start = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
            Stretch { part, start, place, turn }
        };
        let parts: Vec<Stretch> = (first..).zip(self.plan.parts_of(batch)).map(stretch).collect();
        let count = parts.iter().filter(|stretch| stretch.part.records > 0).count();
        Load { number: batch.load, parts, count, waiting: Mutex::default() }
    }

    /// Waits for the memory of one of some parts of a load, and calls `fill` with it and its index
    /// in `parts`; it answers how many records it put there. Answers the index, and `None` when all
    /// is over.
    pub(super) fn fill(
        &self,
        load: &Load<'p, 'm>,
        parts: &[usize],
        mut fill: impl FnMut(usize, &mut [u8]) -> Result<u64>,
    ) -> Result<Option<usize>> {
        let Some(first) = parts.first() else { return Ok(None) };
        for (index, part) in parts.iter().enumerate() {
            let stretch = &load.parts[*part];
            let held = match self.places[stretch.place].held.try_lock() {
                Ok(held) => held,
                Err(TryLockError::Poisoned(held)) => held.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if held.is_for(stretch) {
                self.fill_held(held, load, stretch, |memory| fill(index, memory))?;
                return Ok(Some(index));
            }
        }
        let stretch = &load.parts[*first];
        let place = &self.places[stretch.place];
        let mut held = lock(&place.held);
        while !held.is_for(stretch) {
            if self.is_over() {
                return Ok(None);
            }
            held = place.free.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        self.fill_held(held, load, stretch, |memory| fill(0, memory))?;
        Ok(Some(0))
    }

    fn fill_held(
        &self,
        mut held: MutexGuard<'_, Held<'m>>,
        load: &Load<'p, 'm>,
        stretch: &Stretch,
        fill: impl FnOnce(&mut [u8]) -> Result<u64>,
    ) -> Result<()> {
        let Some(memory) = held.memory.as_deref_mut() else { return Ok(()) };
        let records = fill(memory)?;
        held.placed += records;
        self.unplaced.fetch_sub(records, Ordering::Relaxed);
        if held.placed < stretch.part.records {
            return Ok(());
        }
        let Some(memory) = held.memory.take() else { return Ok(()) };
        drop(held);
        let runs = self.plan.writes(stretch.part.choice.clone());
        let writing = Writing {
            place: stretch.place,
            memory: Arc::new(Full(memory)),
            cutter: Cutter::new(runs, self.sink.start, self.record, stretch.start),
            jobs: 0,
            is_handed_out: false,
        };
        self.hand_on(load, writing);
        Ok(())
    }

    /// Hands a part that is full to the writers, immediately or with the last of its load.
    fn hand_on(&self, load: &Load<'p, 'm>, writing: Writing<'p, 'm>) {
        let mut waiting = lock(&load.waiting);
        waiting.push(writing);
        if self.is_in_place && waiting.len() < load.count {
            return;
        }
        lock(&self.queue).extend(waiting.drain(..));
        self.full.notify_all();
    }

    /// A reader has met the end.
    pub(super) fn leave(&self) -> Result<()> {
        let is_last = self.readers.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && self.unplaced.load(Ordering::Relaxed) > 0 && !self.is_over() {
            return Err(Error::Internal("a load was not read whole"));
        }
        Ok(())
    }

    /// Waits for something to write; `None` at the end, also an early one.
    pub(super) fn next_job(&self) -> Option<Job<'m>> {
        let mut queue = lock(&self.queue);
        loop {
            if self.is_over() {
                return None;
            }
            if let Some(writing) = queue.iter_mut().find(|writing| !writing.is_handed_out) {
                let spans = writing.cutter.spans(self.sink.file);
                writing.jobs += 1;
                writing.is_handed_out = writing.cutter.is_done();
                let Writing { place, memory, .. } = writing;
                return Some(Job { place: *place, memory: Arc::clone(memory), spans });
            }
            queue = self.full.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A job is done.
    pub(super) fn done(&self, job: Job<'m>) -> Result<()> {
        let Job { place, memory, spans } = job;
        drop(memory);
        let bytes = spans.iter().map(|span| span.len).sum::<usize>() as u64;
        let Some(Full(memory)) = self.written(place)? else {
            self.count_written(bytes);
            return Ok(());
        };
        let Place { held, free } = &self.places[place];
        let mut held = lock(held);
        held.memory = Some(memory);
        held.placed = 0;
        held.turn += 1;
        drop(held);
        free.notify_all();
        self.count_written(bytes);
        Ok(())
    }

    /// The memory of a part of which a job is done, if it was the last.
    fn written(&self, place: usize) -> Result<Option<Full<'m>>> {
        let mut queue = lock(&self.queue);
        let Some(index) = queue.iter().position(|writing| writing.place == place) else {
            return Err(Error::Internal("what was written belongs to no part"));
        };
        let writing = &mut queue[index];
        writing.jobs -= 1;
        if writing.jobs > 0 || !writing.is_handed_out {
            return Ok(None);
        }
        let Some(writing) = queue.remove(index) else { return Ok(None) };
        let held = || Error::Internal("a part is held after it was written");
        Arc::try_unwrap(writing.memory).map(Some).map_err(|_| held())
    }

    fn count_written(&self, bytes: u64) {
        if self.unwritten.fetch_sub(bytes, Ordering::AcqRel) == bytes {
            self.end(Ok(()));
        }
    }

    /// Keeps the first error, and makes all threads stop.
    pub(super) fn note(&self, outcome: Result<()>) {
        if outcome.is_err() {
            self.end(outcome);
        }
    }

    /// A waiting thread checks for the end under the lock that it waits with; this wakes it.
    fn end(&self, outcome: Result<()>) {
        let mut kept = lock(&self.outcome);
        if !self.is_over() {
            *kept = outcome;
        }
        self.is_over.store(true, Ordering::Release);
        self.over.notify_all();
        drop(kept);
        for Place { held, free } in &self.places {
            drop(lock(held));
            free.notify_all();
        }
        drop(lock(&self.queue));
        self.full.notify_all();
    }

    /// Whether everything is written, or something failed.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits for the end. Asks the caller, at the beginning and at intervals, whether to continue.
    pub(super) fn watch(&self, go_on: &mut dyn FnMut() -> bool) {
        while !self.is_over() {
            if !go_on() {
                self.note(Err(Error::Interrupted));
            }
            let outcome = lock(&self.outcome);
            if !self.is_over() {
                let waited = self.over.wait_timeout(outcome, TICK);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// The result of the pass.
    pub(super) fn outcome(&self) -> Result<()> {
        std::mem::replace(&mut *lock(&self.outcome), Ok(()))
    }
}

impl Held<'_> {
    /// Whether it is the turn of a part, and it is not being written.
    const fn is_for(&self, stretch: &Stretch) -> bool {
        self.turn == stretch.turn && self.memory.is_some()
    }
}
