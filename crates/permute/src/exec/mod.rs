//! Carries out one pass: threads that read and place, threads that write.
//!
//! A load is in memory in a few parts, each a stretch of the output. A reader takes the next batch,
//! reads it into its own buffer, and copies what belongs to each part to its place there, as the
//! parts become free. A part that is full is written by all writers together, and is then free for
//! a later load. If two loads fit in memory, they alternate. If only one fits, the device
//! alternates between reading and writing, with requests that are twice as large.
//!
//! Reading order: `flow` (synchronisation of the threads), `read`, `write`.

mod flow;
mod read;
mod write;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use esker_device::AlignedBuf;

use self::flow::Flow;
use crate::batches::Plan;
use crate::budget::{Budget, Division};
use crate::edges::Edges;
use crate::error::{Error, Result};
use crate::file::{BLOCK, Sink, Source};
use crate::pass::Pass;

/// A range of a source or sink that holds records, from its first byte.
#[derive(Clone, Copy)]
pub struct Payload<T> {
    /// The file.
    pub file: T,
    /// The offset of the first record, in bytes.
    pub start: u64,
}

/// The files between which a pass moves records.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// The file and offset that are read.
    pub source: Payload<&'a dyn Source>,
    /// The file and offset that are written.
    pub sink: Payload<&'a dyn Sink>,
    /// Whether they are the same range of the same file ([`Pass::is_in_place`]).
    pub is_in_place: bool,
}

/// The counters of a pass.
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

/// The state that the threads share.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    record: usize,
    source: Payload<&'a dyn Source>,
    sink: Payload<&'a dyn Sink>,
    edges: Edges,
    is_in_place: bool,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    read_device_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// The memory of a pass, cut.
struct Memory<'m> {
    readers: Vec<&'m mut [u8]>,
    writers: Vec<&'m mut [u8]>,
    /// The parts of the first load, then those of the second, if there is one.
    parts: Vec<&'m mut [u8]>,
}

/// Rearranges the records of a source into a sink. `go_on` is called at intervals with the number
/// of bytes read and written so far, and answers whether to continue.
pub fn run(
    pass: &Pass,
    budget: Budget,
    files: Files<'_>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Counters> {
    let Files { source, sink, .. } = files;
    if files.is_in_place && !pass.is_in_place() {
        return Err(Error::Internal("a pass would write what it has yet to read"));
    }
    let division = budget.divide(pass, source.file.alignment());
    let batch_records = (division.batch / budget.record.max(1)) as u64;
    let plan = Plan::new(pass, batch_records, budget.parts());
    // A part begins as far into a block of memory as in the file.
    let part_bytes = |records: &u64| {
        usize::try_from(records * budget.record as u64)
            .unwrap_or(usize::MAX)
            .saturating_add(BLOCK)
            .next_multiple_of(BLOCK)
    };
    let parts: Vec<usize> = plan.largest_parts().iter().map(part_bytes).collect();
    let buffers = arena_bytes(&division, &parts);
    let fixed = budget.thread_bytes(&division);
    let room = budget.memory.saturating_sub(buffers as u64 + fixed);
    let shared = Shared {
        plan: &plan,
        record: budget.record,
        source,
        sink,
        is_in_place: files.is_in_place,
        edges: Edges::new(usize::try_from(room).unwrap_or(usize::MAX)),
        reads: AtomicU64::new(0),
        read_bytes: AtomicU64::new(0),
        read_device_bytes: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        written_bytes: AtomicU64::new(0),
    };
    let mut arena = AlignedBuf::in_huge_pages(buffers);
    move_all(&shared, cut(&mut arena, &division, &parts)?, division.loads, go_on)?;
    drop(arena);
    shared.edges.finish(sink.file)?;
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Ok(Counters {
        read_bytes: of(&shared.read_bytes),
        read_device_bytes: of(&shared.read_device_bytes),
        reads: of(&shared.reads),
        written_bytes: of(&shared.written_bytes),
        writes: of(&shared.writes),
        peak_buffer_bytes: buffers as u64 + fixed + shared.edges.peak_bytes(),
    })
}

fn arena_bytes(division: &Division, parts: &[usize]) -> usize {
    let load = parts.iter().fold(0_usize, |sum, bytes| sum.saturating_add(*bytes));
    let loads = load.saturating_mul(division.loads);
    loads.saturating_add(usize::try_from(division.in_flight()).unwrap_or(usize::MAX))
}

/// Cuts the memory of a pass. One allocation, so that even small buffers are in huge pages.
fn cut<'m>(arena: &'m mut [u8], division: &Division, parts: &[usize]) -> Result<Memory<'m>> {
    let mut rest = arena;
    let mut take = |len: usize| {
        let (head, tail) = std::mem::take(&mut rest)
            .split_at_mut_checked(len)
            .ok_or(Error::Internal("the memory was divided wrongly"))?;
        rest = tail;
        Ok(head)
    };
    let readers =
        (0..division.readers).map(|_| take(division.read_buffer)).collect::<Result<_>>()?;
    let writers = (0..division.writers).map(|_| take(division.stage)).collect::<Result<_>>()?;
    let all = (0..division.loads).flat_map(|_| parts);
    let parts = all.map(|len| take(*len)).collect::<Result<_>>()?;
    Ok(Memory { readers, writers, parts })
}

/// Starts the threads, and watches until all records are written.
fn move_all<'m>(
    shared: &Shared<'_>,
    memory: Memory<'m>,
    loads: usize,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let Memory { readers, writers, parts } = memory;
    let flow = &Flow::new(shared, parts, loads, readers.len());
    thread::scope(|scope| {
        let reading = (0..).zip(readers).try_for_each(|(index, buffer)| {
            let read = move || flow.note(read::read_batches(shared, flow, index, buffer));
            spawn(scope, format!("esker-read-{index}"), read)
        });
        let started = reading.and_then(|()| {
            (0..).zip(writers).try_for_each(|(index, stage)| {
                let write = move || flow.note(write::write_parts(shared, flow, stage));
                spawn(scope, format!("esker-write-{index}"), write)
            })
        });
        flow.note(started);
        flow.watch(&mut || {
            let moved = shared.read_bytes.load(Ordering::Relaxed)
                + shared.written_bytes.load(Ordering::Relaxed);
            go_on(moved)
        });
    });
    flow.outcome()
}

fn spawn<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    body: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    let failed = |source| Error::System { what: "start", path: "a thread".to_owned(), source };
    thread::Builder::new().name(name).spawn_scoped(scope, body).map(drop).map_err(failed)
}
