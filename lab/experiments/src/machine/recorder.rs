//! What the host does on the device, as a trace: `esker lab trace`.

use esker_flash::trace::error::TraceError;
use esker_flash::trace::{OpKind, TraceOp, TraceWriter};

use super::disk::{BLOCK_BYTES, Purpose};

/// A trace that is written. Its times begin with the first operation.
pub struct Recorder {
    writer: TraceWriter,
    begun_ns: Option<u64>,
    /// The first error, after which nothing is written.
    failed: Option<TraceError>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Recorder").field("begun_ns", &self.begun_ns).finish_non_exhaustive()
    }
}

/// The stream of a purpose, as in the traces of stores.
const fn stream(purpose: Purpose) -> u8 {
    let like = match purpose {
        Purpose::Data => esker_device::Purpose::User,
        Purpose::Journal => esker_device::Purpose::Log,
        Purpose::Metadata => esker_device::Purpose::Manifest,
    };
    like as u8
}

impl Recorder {
    /// An empty trace.
    #[must_use]
    pub const fn new(writer: TraceWriter) -> Self {
        Self { writer, begun_ns: None, failed: None }
    }

    pub(super) fn read(&mut self, now: u64, block: u32, bytes: usize) {
        self.push(now, (OpKind::Read, stream(Purpose::Data)), (block, bytes));
    }

    pub(super) fn write(&mut self, now: u64, (purpose, block): (Purpose, u32), bytes: usize) {
        self.push(now, (OpKind::Write, stream(purpose)), (block, bytes));
    }

    pub(super) fn flush(&mut self, now: u64) {
        self.push(now, (OpKind::Flush, 0), (0, 0));
    }

    fn push(&mut self, now: u64, (kind, stream): (OpKind, u8), (block, bytes): (u32, usize)) {
        if self.failed.is_some() {
            return;
        }
        let at_ns = now.saturating_sub(*self.begun_ns.get_or_insert(now));
        let (offset, length) = (u64::from(block) * BLOCK_BYTES as u64, bytes as u64);
        let op = TraceOp { at_ns, offset, length, kind, stream };
        self.failed = self.writer.push(&op).err();
    }

    /// Ends the trace; the number of its operations.
    ///
    /// # Errors
    /// The first error of a write.
    pub fn finish(self) -> Result<u64, TraceError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.writer.finish(),
        }
    }
}
