//! Carries out one pass: threads that read, one that places, threads that write.
//!
//! Readers take batches in order, each with a buffer of its own, and hand them over as they are
//! filled; reads ahead of the current load wait in their buffers. This thread copies batches to
//! their places in the load. When a load is full, a dispatcher hands its flushes to the writers,
//! while the next load is read and placed in a second memory: the device reads and writes at the
//! same time.
//!
//! Invariants: a batch that was begun has its buffer, so that the batches of the current load
//! never wait for those of a later one; nothing waits for a thread that has stopped, because each
//! channel ends when its sender does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use esker_device::AlignedBuf;

use crate::batches::{Batch, Batches, Plan};
use crate::budget::{Budget, PAD_BYTES};
use crate::copy::Program;
use crate::edges::{Edges, write_span};
use crate::error::{Error, Result};
use crate::file::{BLOCK, Sink, Source};
use crate::pass::Pass;
use crate::runs::Run;
use crate::space::Choice;

/// How often the caller is asked whether to go on.
const TICK: Duration = Duration::from_millis(50);

/// The size to which long flushes are cut, in bytes. They are written from where they lie, so
/// that it takes no memory; and a file system that notes each range which is written for the
/// first time has fewer of them.
const WRITE_BYTES: usize = 2 << 20;

/// A range of a source or sink that holds records, from its first byte.
#[derive(Clone, Copy)]
pub struct Payload<T> {
    /// The file.
    pub file: T,
    /// Where the first record begins, in bytes.
    pub start: u64,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes of records read, filtered ones included.
    pub read_bytes: u64,
    /// Bytes asked of the device, which are whole sectors.
    pub read_device_bytes: u64,
    /// Requests to read.
    pub reads: u64,
    /// Bytes of records written.
    pub written_bytes: u64,
    /// Flushes, each cut to the size of a request.
    pub writes: u64,
    /// Bytes of all buffers together, at most.
    pub peak_buffer_bytes: u64,
}

/// What the threads share.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    budget: Budget,
    source: Payload<&'a dyn Source>,
    sink: Payload<&'a dyn Sink>,
    /// How many loads are in memory at once.
    loads: usize,
    edges: Edges,
    stop: AtomicBool,
    error: Mutex<Option<Error>>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    read_device_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// A batch in memory.
struct Filled {
    batch: Batch,
    buffer: AlignedBuf,
    /// Where its first record is.
    start: usize,
}

/// A few runs of a full load.
struct Flush {
    memory: Arc<AlignedBuf>,
    /// Offset in the file, offset in memory, length; in bytes.
    runs: Vec<(u64, usize, usize)>,
}

/// Rearranges the records of `source` into `sink`. `go_on` is asked at each batch, and every
/// 50 ms where none comes, with how many bytes were read and written so far, whether to go on.
pub fn run(
    pass: &Pass,
    budget: Budget,
    source: Payload<&dyn Source>,
    sink: Payload<&dyn Sink>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Counters> {
    let record = budget.record as u64;
    let plan = Plan::new(pass, budget.unit as u64 / record);
    let load_bytes = pass.load_records() * record + BLOCK as u64;
    let loads = if pass.load_records() < pass.space.records() { 2 } else { 1 };
    let room = budget.load.saturating_sub(load_bytes * loads);
    let shared = Shared {
        plan: &plan,
        budget,
        source,
        sink,
        loads: usize::try_from(loads).unwrap_or(1),
        edges: Edges::new(usize::try_from(room / BLOCK as u64).unwrap_or(usize::MAX)),
        stop: AtomicBool::new(false),
        error: Mutex::new(None),
        reads: AtomicU64::new(0),
        read_bytes: AtomicU64::new(0),
        read_device_bytes: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        written_bytes: AtomicU64::new(0),
    };
    let placed = place_all(&shared, load_bytes, go_on);
    if let Some(error) = shared.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    placed?;
    shared.edges.finish(sink.file)?;
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Ok(Counters {
        read_bytes: of(&shared.read_bytes),
        read_device_bytes: of(&shared.read_device_bytes),
        reads: of(&shared.reads),
        written_bytes: of(&shared.written_bytes),
        writes: of(&shared.writes),
        peak_buffer_bytes: budget.in_flight() + load_bytes * loads + shared.edges.peak_bytes(),
    })
}

/// Starts the threads and places batches until all loads are written.
fn place_all(
    shared: &Shared<'_>,
    load_bytes: u64,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let batches = Mutex::new(shared.plan.batches());
    let (free_sender, free) = channel::<AlignedBuf>();
    let (filled_sender, filled) = channel::<Filled>();
    let (flush_sender, flushes) = sync_channel::<Flush>(shared.budget.writers);
    let (free, flushes) = (Mutex::new(free), Mutex::new(flushes));
    let (done_sender, done) = channel::<()>();
    thread::scope(|scope| {
        for index in 0..shared.budget.readers {
            let sender = filled_sender.clone();
            let (batches, free) = (&batches, &free);
            let read = move || shared.note(read_batches(shared, batches, free, &sender));
            spawn(scope, format!("esker-read-{index}"), read)?;
            let buffer = AlignedBuf::zeroed(shared.budget.unit + PAD_BYTES);
            let _ = free_sender.send(buffer);
        }
        for index in 0..shared.budget.writers {
            let sender = done_sender.clone();
            let flushes = &flushes;
            let write = move || shared.note(write_flushes(shared, flushes, &sender));
            spawn(scope, format!("esker-write-{index}"), write)?;
        }
        drop((filled_sender, done_sender));
        let (full_sender, full) = channel::<Full>();
        let (emptied_sender, emptied) = channel::<AlignedBuf>();
        let dispatcher =
            Dispatcher { shared, full, flushes: flush_sender, done, emptied: emptied_sender };
        let dispatch = move || shared.note(dispatcher.run());
        spawn(scope, "esker-dispatch".to_owned(), dispatch)?;
        let mut placer = Placer {
            shared,
            filled,
            free: free_sender,
            full: full_sender,
            emptied,
            load_bytes: usize::try_from(load_bytes).unwrap_or(usize::MAX),
            unmade: shared.loads,
            away: 0,
            waiting: Vec::new(),
            go_on,
        };
        let placed = placer.run();
        if placed.is_err() {
            shared.stop.store(true, Ordering::SeqCst);
        }
        placed
    })
}

fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    body: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    let failed = |source| Error::System { what: "start", path: "a thread".to_owned(), source };
    thread::Builder::new().name(name).spawn_scoped(scope, body).map(drop).map_err(failed)
}

impl Shared<'_> {
    /// Keeps the first error, and has everybody stop.
    fn note(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.stop.store(true, Ordering::SeqCst);
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn read_batches(
    shared: &Shared<'_>,
    batches: &Mutex<Batches<'_>>,
    free: &Mutex<Receiver<AlignedBuf>>,
    filled: &Sender<Filled>,
) -> Result<()> {
    while !shared.stopped() {
        let received = free.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut buffer) = received else { return Ok(()) };
        let batch = batches.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(batch) = batch else { return Ok(()) };
        let start = read_batch(shared, &batch, &mut buffer)?;
        if filled.send(Filled { batch, buffer, start }).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads the runs of a batch, one after the other in memory; answers where the first begins.
fn read_batch(shared: &Shared<'_>, batch: &Batch, buffer: &mut AlignedBuf) -> Result<usize> {
    let choice = shared.plan.read_choice(batch);
    let record = shared.budget.record as u64;
    let (mut begin, mut end) = (0, 0);
    for Run { address, records } in shared.plan.reads(&choice) {
        if shared.stopped() {
            return Err(Error::Interrupted);
        }
        let offset = shared.source.start + address * record;
        let len = usize::try_from(records * record).unwrap_or(usize::MAX);
        let at = read_run(shared, buffer, end, offset, len)?;
        if end == 0 {
            // The first run stays where it was read.
            (begin, end) = (at, at + len);
        } else {
            buffer.copy_within(at..at + len, end);
            end += len;
        }
        shared.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }
    Ok(begin)
}

/// Reads `len` bytes into memory that begins at or after `from`; answers where.
fn read_run(
    shared: &Shared<'_>,
    buffer: &mut AlignedBuf,
    from: usize,
    offset: u64,
    len: usize,
) -> Result<usize> {
    let align = shared.source.file.alignment();
    let skew = usize::try_from(offset % align as u64).unwrap_or(0);
    let place = from.next_multiple_of(align);
    let cover = (skew + len).next_multiple_of(align);
    let Some(target) = buffer.get_mut(place..place.saturating_add(cover)) else {
        return Err(Error::Internal("a batch is larger than its buffer"));
    };
    let read = shared.source.file.read(offset - skew as u64, target)?;
    shared.reads.fetch_add(1, Ordering::Relaxed);
    shared.read_device_bytes.fetch_add(cover as u64, Ordering::Relaxed);
    if read < skew + len {
        return Err(Error::File("the input ends early: it was cut while it was read".to_owned()));
    }
    Ok(place + skew)
}

fn write_flushes(
    shared: &Shared<'_>,
    flushes: &Mutex<Receiver<Flush>>,
    done: &Sender<()>,
) -> Result<()> {
    let mut scratch = AlignedBuf::zeroed(shared.budget.unit + PAD_BYTES);
    loop {
        let received = flushes.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Flush { memory, runs }) = received else { return Ok(()) };
        // Also after a failure everything is taken, so that nobody waits for room.
        if !shared.stopped() {
            shared.note(write_runs(shared, &mut scratch, &memory, &runs));
        }
        drop(memory);
        if done.send(()).is_err() {
            return Ok(());
        }
    }
}

fn write_runs(
    shared: &Shared<'_>,
    scratch: &mut AlignedBuf,
    memory: &AlignedBuf,
    runs: &[(u64, usize, usize)],
) -> Result<()> {
    for (offset, from, len) in runs {
        let Some(bytes) = memory.get(*from..from + len) else {
            return Err(Error::Internal("a flush is larger than its load"));
        };
        write_span(shared.sink.file, &shared.edges, scratch, *offset, bytes)?;
        shared.writes.fetch_add(1, Ordering::Relaxed);
        shared.written_bytes.fetch_add(*len as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// A load that is full, on its way to the writers.
struct Full {
    memory: AlignedBuf,
    choice: Choice,
    /// Where its first record is.
    start: usize,
}

/// Has full loads written, one after the other, and gives their memory back.
struct Dispatcher<'a> {
    shared: &'a Shared<'a>,
    full: Receiver<Full>,
    flushes: SyncSender<Flush>,
    done: Receiver<()>,
    emptied: Sender<AlignedBuf>,
}

impl Dispatcher<'_> {
    fn run(self) -> Result<()> {
        while let Ok(Full { memory, choice, start }) = self.full.recv() {
            let memory = Arc::new(memory);
            self.write(&memory, &choice, start)?;
            // The writers let go before they say that they are done.
            let Ok(memory) = Arc::try_unwrap(memory) else {
                return Err(Error::Internal("a load is held after it was written"));
            };
            if self.emptied.send(memory).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Cuts the flushes of a load to requests, and waits until they are written.
    fn write(&self, memory: &Arc<AlignedBuf>, choice: &Choice, start: usize) -> Result<()> {
        let unit = self.shared.budget.unit.max(WRITE_BYTES);
        let record = self.shared.budget.record as u64;
        let mut at = start;
        let (mut pending, mut bytes, mut sent) = (Vec::new(), 0, 0_u64);
        let send = |runs: Vec<(u64, usize, usize)>| {
            let flush = Flush { memory: Arc::clone(memory), runs };
            self.flushes.send(flush).map_err(|_| Error::Interrupted)
        };
        for run in self.shared.plan.writes(choice) {
            let mut offset = self.shared.sink.start + run.address * record;
            let mut left = usize::try_from(run.records * record).unwrap_or(usize::MAX);
            while left > 0 {
                let len = left.min(self.shared.sink.file.stretch(offset, unit));
                pending.push((offset, at, len));
                offset += len as u64;
                (at, left, bytes) = (at + len, left - len, bytes + len);
                if bytes >= unit / 2 || pending.len() >= 64 {
                    send(std::mem::take(&mut pending))?;
                    (bytes, sent) = (0, sent + 1);
                }
            }
        }
        if !pending.is_empty() {
            send(pending)?;
            sent += 1;
        }
        for _ in 0..sent {
            self.done.recv().map_err(|_| Error::Interrupted)?;
        }
        Ok(())
    }
}

/// The thread that copies, and its ends of the channels.
struct Placer<'a> {
    shared: &'a Shared<'a>,
    filled: Receiver<Filled>,
    free: Sender<AlignedBuf>,
    full: Sender<Full>,
    emptied: Receiver<AlignedBuf>,
    /// Bytes of the memory of a load, and how many of them may still be made.
    load_bytes: usize,
    unmade: usize,
    /// How many are with the dispatcher.
    away: usize,
    /// Batches of the next load, read ahead.
    waiting: Vec<Filled>,
    go_on: &'a mut dyn FnMut(u64) -> bool,
}

impl Placer<'_> {
    fn run(&mut self) -> Result<()> {
        let mut load = 0;
        while let Some(first) = self.next(load)? {
            let wanted = first.batch.load_records;
            let choice = self.shared.plan.write_choice(&first.batch);
            let start = self.start_of(&choice);
            let mut memory = self.memory()?;
            let mut placed = self.place(first, &mut memory, start)?;
            while placed < wanted {
                let Some(filled) = self.next(load)? else {
                    return Err(Error::Internal("a load was not read whole"));
                };
                placed += self.place(filled, &mut memory, start)?;
            }
            let full = Full { memory, choice, start };
            self.full.send(full).map_err(|_| Error::Interrupted)?;
            self.away += 1;
            load += 1;
        }
        while self.away > 0 {
            drop(self.returned()?);
        }
        Ok(())
    }

    /// Where the first record of a load lies in memory: as it will in its block, so that it can
    /// be written from there.
    fn start_of(&self, choice: &Choice) -> usize {
        let record = self.shared.budget.record as u64;
        let first = self.shared.plan.writes(choice).next();
        let offset = first.map_or(0, |run| self.shared.sink.start + run.address * record);
        usize::try_from(offset % BLOCK as u64).unwrap_or(0)
    }

    /// Memory for the next load.
    fn memory(&mut self) -> Result<AlignedBuf> {
        if self.unmade > 0 {
            self.unmade -= 1;
            return Ok(AlignedBuf::in_huge_pages(self.load_bytes));
        }
        self.returned()
    }

    /// Memory of a load that was written.
    fn returned(&mut self) -> Result<AlignedBuf> {
        loop {
            match self.emptied.recv_timeout(TICK) {
                Ok(memory) => {
                    self.away -= 1;
                    return Ok(memory);
                }
                Err(RecvTimeoutError::Timeout) => self.check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Interrupted),
            }
        }
    }

    /// The next batch of a load; `None` at the end.
    fn next(&mut self, load: u64) -> Result<Option<Filled>> {
        if let Some(index) = self.waiting.iter().position(|filled| filled.batch.load == load) {
            return Ok(Some(self.waiting.swap_remove(index)));
        }
        loop {
            // Also where batches never have to be waited for.
            self.check()?;
            match self.filled.recv_timeout(TICK) {
                Ok(filled) if filled.batch.load == load => return Ok(Some(filled)),
                Ok(later) => self.waiting.push(later),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        let moved = self.shared.read_bytes.load(Ordering::Relaxed)
            + self.shared.written_bytes.load(Ordering::Relaxed);
        if self.shared.stopped() || !(self.go_on)(moved) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Copies a batch to its place and gives its buffer back; answers how many records it had.
    fn place(&self, filled: Filled, memory: &mut AlignedBuf, start: usize) -> Result<u64> {
        let Filled { batch, buffer, start: from } = filled;
        let mut records = 0;
        for piece in self.shared.plan.copies(&batch) {
            records += piece.dims.iter().map(|dim| dim.count).product::<u64>();
            let program = Program::new(&piece, self.shared.budget.record, from, start);
            if !program.fits(buffer.len(), memory.len()) {
                return Err(Error::Internal("a copy leaves its buffers"));
            }
            program.run(&buffer, memory);
        }
        // Readers that have ended need no buffer.
        let _ = self.free.send(buffer);
        Ok(records)
    }
}
