//! What people do without a planner, to measure against: an external merge sort, a block cache,
//! tiles by hand.
//!
//! They move flat files to flat files. Memory is divided once, and the page cache, which takes what
//! they write, is not counted.

mod addresses;
mod lru;
mod sort;
mod tiled;

use std::num::NonZeroUsize;
use std::thread;

use crate::coalesce::coalesce;
use crate::ends::{self, Holder, Output};
use crate::error::{Error, Result, input};
use crate::exec::Payload;
use crate::file::{BLOCK, File, Sink, Source};
use crate::job::Request;
use crate::layout::Layout;
use crate::pattern::Pattern;
use crate::plan::cut::Task;
use crate::resolve::resolve;
use crate::target::Target;

/// A program that rearranges files without a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// An external merge sort of records that carry the addresses they go to. Records, which are
    /// the longest runs that move as one, have 1, 2, 4, 8 or 16 bytes.
    Sort,
    /// Record by record in the order of the output, through a cache of input blocks of which the
    /// least recently used goes.
    Lru,
    /// Tile by tile: read in segments, rearranged in memory, written in runs, with 16 requests in
    /// flight; the tile is the best of those searched.
    Tiled,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sort, Self::Lru, Self::Tiled];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sort => "sort",
            Self::Lru => "lru",
            Self::Tiled => "tiled",
        }
    }
}

/// What is moved.
struct Work<'a> {
    task: &'a Task,
    /// Bytes of a record.
    record: usize,
    /// Bytes of memory.
    memory: usize,
    source: Payload<&'a File>,
    sink: Payload<&'a File>,
    request: &'a Request,
}

/// Does what the request asks for, and makes it durable.
///
/// # Errors
/// For folders of chunks, and for records that a baseline does not move; else as the job itself.
pub fn run(baseline: Baseline, request: &Request) -> Result<()> {
    let from = ends::look(request)?;
    let header = &from.header;
    let pattern = Pattern::parse(&request.pattern)?;
    let resolved = resolve(&pattern, &header.shape, header.is_fortran, &request.sizes)?;
    let layout = Layout::of(&resolved);
    let output = ends::decide(request, &from, layout.as_ref(), resolved.shape.as_deref())?;
    let (Holder::Flat { file, start }, Output::Flat { header: head }) = (&from.holder, &output)
    else {
        return input("the baselines move flat files");
    };
    let payload = header.shape.iter().product::<u64>() * header.item_bytes;
    let target = Target::create(&request.output, head.len() as u64 + payload)?;
    target.file().write_part(0, head)?;
    if let Some(layout) = layout {
        let missing = Error::Internal("flat files fit together");
        let ends = (from.end().arrangement, output.end().arrangement);
        let arranged = layout.arranged(ends.0, ends.1).ok_or(missing)?;
        let (task, record) = coalesce(&arranged.task, header.item_bytes);
        let work = Work {
            task: &task,
            record: usize::try_from(record).unwrap_or(usize::MAX),
            memory: usize::try_from(request.memory).unwrap_or(usize::MAX),
            source: Payload { file, start: *start },
            sink: Payload { file: target.file(), start: head.len() as u64 },
            request,
        };
        match baseline {
            Baseline::Sort => sort::run(&work)?,
            Baseline::Lru => lru::run(&work)?,
            Baseline::Tiled => tiled::run(&work)?,
        }
    }
    target.commit(&request.output, request.force)
}

/// Reads a range of a file into the beginning of `buf`, whose address must be aligned, in whole
/// blocks; answers where in `buf` the range begins. `buf` must have room for two blocks more.
fn read_range(file: &File, offset: u64, len: usize, buf: &mut [u8]) -> Result<usize> {
    let skew = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
    let upto = (skew + len).next_multiple_of(BLOCK);
    let found = file.read(offset - skew as u64, &mut buf[..upto])?;
    if found < skew + len {
        return Err(Error::File("the input became shorter while it was read".into()));
    }
    Ok(skew)
}

/// Runs `body` on as many threads, ends at the first error.
fn on_threads(count: usize, body: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&body)).collect();
        let died = || Err(Error::Internal("a thread died"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| died()))
    })
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
