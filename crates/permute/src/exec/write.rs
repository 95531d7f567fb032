//! Writers: full parts of loads, cut to requests.

use std::sync::atomic::Ordering;

use super::Shared;
use super::flow::Flow;
use crate::edges::write_span;
use crate::error::{Error, Result};
use crate::file::Sink;
use crate::runs::Runs;

/// Long flushes are cut to requests of this many bytes.
const REQUEST_BYTES: usize = 512 << 10;
/// The most that a writer takes at a time: this many bytes begun, or this many spans.
const JOB_BYTES: usize = 128 << 10;
const JOB_SPANS: usize = 16;

/// Bytes that are contiguous in memory and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// The offset in the file.
    pub(super) offset: u64,
    /// The offset in the memory of the part.
    pub(super) from: usize,
    pub(super) len: usize,
}

/// Cuts the runs of a part to spans.
#[derive(Debug)]
pub(super) struct Cutter<'p> {
    runs: Runs<'p>,
    /// The offset of the first record of the output, in bytes.
    start: u64,
    /// Bytes of a record.
    record: u64,
    /// The beginning of the next span in memory.
    from: usize,
    /// The rest of a run: its offset in the file, and its length.
    rest: Option<(u64, usize)>,
}

impl<'p> Cutter<'p> {
    /// Runs that follow each other in memory, beginning at `from`.
    pub(super) fn new(runs: Runs<'p>, start: u64, record: u64, from: usize) -> Self {
        let mut cutter = Self { runs, start, record, from, rest: None };
        cutter.rest = cutter.next_run();
        cutter
    }

    fn next_run(&mut self) -> Option<(u64, usize)> {
        let run = self.runs.next()?;
        let len = usize::try_from(run.records * self.record).unwrap_or(usize::MAX);
        Some((self.start + run.address * self.record, len))
    }

    /// Whether nothing is left.
    pub(super) const fn is_done(&self) -> bool {
        self.rest.is_none()
    }

    /// The spans that a writer takes next.
    pub(super) fn spans(&mut self, sink: &dyn Sink) -> Vec<Span> {
        let (mut spans, mut bytes) = (Vec::new(), 0);
        while let Some((offset, left)) = self.rest
            && bytes < JOB_BYTES
            && spans.len() < JOB_SPANS
        {
            let len = left.min(sink.stretch(offset, REQUEST_BYTES));
            spans.push(Span { offset, from: self.from, len });
            self.from += len;
            bytes += len;
            self.rest =
                if len < left { Some((offset + len as u64, left - len)) } else { self.next_run() };
        }
        spans
    }
}

/// Writes until everything is written. `stage` is for bytes whose offset in memory differs from
/// that in their block.
pub(super) fn write_parts<'m>(
    shared: &Shared<'_>,
    flow: &Flow<'_, 'm>,
    stage: &mut [u8],
) -> Result<()> {
    while let Some(job) = flow.next_job() {
        for Span { offset, from, len } in &job.spans {
            let Some(bytes) = job.memory.bytes().get(*from..from + len) else {
                return Err(Error::Internal("a flush is larger than its load"));
            };
            write_span(shared.sink.file, &shared.edges, stage, *offset, bytes)?;
            shared.writes.fetch_add(1, Ordering::Relaxed);
            shared.written_bytes.fetch_add(*len as u64, Ordering::Relaxed);
        }
        flow.done(job)?;
    }
    Ok(())
}
