//! A trace of what files do to a block device.
//!
//! The trace has what an SSD of the same page size would be asked for: a replay of it programs and
//! erases as an [`SsdDevice`](super::SsdDevice) does under the same store. Pages of one request
//! that follow each other are one operation of the trace. Its stream is the number of the
//! [`Purpose`] of the bytes.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use esker_device::file::FileDevice;
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, DeviceError, DeviceFile, Open, Purpose};

use super::blocks::Blocks;
use super::device::OnBlocks;
use crate::error::{Error, Result as BlockResult, invalid};
use crate::nand::Lpn;
use crate::trace::{OpKind, TraceOp, TraceWriter};

/// A device whose operations are also written to a trace.
pub type RecordingDevice = OnBlocks<Recorder>;

/// Sizes and times of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// Bytes of a page: 512 or a greater power of two, at most 64 KiB.
    pub page_bytes: u32,
    /// Bytes of the device on which the files are laid out, lowest extents first.
    pub device_bytes: u64,
    /// Whether operations have the times at which they were asked for; else all are at 0.
    pub is_timed: bool,
}

impl Default for RecordOptions {
    /// Pages of 4 KiB, a device of 16 GiB, without times.
    fn default() -> Self {
        Self { page_bytes: 4096, device_bytes: 16 << 30, is_timed: false }
    }
}

/// What is in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Operations.
    pub operations: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written, by purpose.
    pub bytes_written: [u64; Purpose::ALL.len()],
    /// Bytes trimmed.
    pub bytes_trimmed: u64,
    /// Flushes.
    pub flushes: u64,
    /// The end of the highest page that was in use: a device on which the trace is replayed needs
    /// as many logical bytes.
    pub end_bytes: u64,
}

impl Recorded {
    /// The bytes written for each purpose, by its name.
    pub fn written(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Purpose::ALL.map(Purpose::as_str).into_iter().zip(self.bytes_written)
    }
}

/// The trace below a [`RecordingDevice`].
pub struct Recorder {
    /// Gone when the recording is finished.
    writer: Option<TraceWriter>,
    options: RecordOptions,
    pages: u32,
    started: Option<Instant>,
    /// The time of the request under way.
    at_ns: u64,
    /// What the next page may follow.
    pending: Option<TraceOp>,
    recorded: Recorded,
}

impl RecordingDevice {
    /// Records what is done to files of `inner` from now on, in a trace of the format esker.
    /// Files that are there already are written first, but for pages that hold nothing but zeros.
    ///
    /// # Errors
    /// Those of the inner device and of the trace's file; options that are out of bounds.
    pub fn new(
        inner: Arc<dyn Device>,
        writer: TraceWriter,
        options: RecordOptions,
    ) -> Result<Self, RecordError> {
        let recorder = Recorder::new(writer, options)?;
        Ok(Self::around(inner, recorder)?)
    }

    /// The same, for files that are kept in memory.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn in_memory(writer: TraceWriter, options: RecordOptions) -> Result<Self, RecordError> {
        Self::new(Arc::new(MemoryDevice::new()), writer, options)
    }

    /// The same, for the files of a folder, which is created if there is none.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn in_folder(
        folder: &Path,
        writer: TraceWriter,
        options: RecordOptions,
    ) -> Result<Self, RecordError> {
        let files = match folder.is_dir() {
            true => FileDevice::open(folder)?,
            false => FileDevice::create(folder)?,
        };
        Self::new(Arc::new(files), writer, options)
    }

    /// Creates a file that is read and written through the page cache, as SQLite's databases are.
    ///
    /// # Errors
    /// The file is there already, and those of the inner device.
    pub fn create(&self, name: &str) -> Result<Arc<dyn DeviceFile>, DeviceError> {
        self.open(name, Open::CreateNew, Caching::Buffered)
    }

    /// Ends the trace. What is done to the files later is not recorded.
    ///
    /// # Errors
    /// The trace cannot be written to its end, or was finished before.
    pub fn finish(&self) -> BlockResult<Recorded> {
        self.lock().blocks.finish()
    }

    /// What was recorded so far.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        self.lock().blocks.recorded.clone()
    }
}

/// Why a recording does not begin.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The options cannot be used, or the trace cannot be written.
    #[error(transparent)]
    Trace(#[from] Error),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Recorder {
    fn new(writer: TraceWriter, options: RecordOptions) -> BlockResult<Self> {
        let RecordOptions { page_bytes, device_bytes, is_timed } = options;
        if !page_bytes.is_power_of_two() || !(512..=64 << 10).contains(&page_bytes) {
            let what = "record pages of 512 bytes to 64 KiB, a power of two";
            return invalid(format!("pages of {page_bytes} bytes: {what}"));
        }
        let Ok(pages) = u32::try_from(device_bytes / u64::from(page_bytes)) else {
            return invalid(format!("a device of {device_bytes} bytes has 2^32 pages or more"));
        };
        let started = is_timed.then(Instant::now);
        let recorded = Recorded::default();
        let writer = Some(writer);
        Ok(Self { writer, options, pages, started, at_ns: 0, pending: None, recorded })
    }

    fn page(&mut self, kind: OpKind, lpn: Lpn, stream: u8) -> BlockResult<()> {
        let page = self.page_bytes();
        let (offset, at_ns) = (u64::from(lpn.0) * page, self.at_ns);
        self.recorded.end_bytes = self.recorded.end_bytes.max(offset + page);
        if let Some(op) = &mut self.pending
            && (op.kind, op.stream, op.offset + op.length) == (kind, stream, offset)
        {
            op.length += page;
            return Ok(());
        }
        self.push_pending()?;
        self.pending = Some(TraceOp { at_ns, offset, length: page, kind, stream });
        Ok(())
    }

    fn push_pending(&mut self) -> BlockResult<()> {
        let Some(op) = self.pending.take() else { return Ok(()) };
        self.push(&op)
    }

    fn push(&mut self, op: &TraceOp) -> BlockResult<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.push(op).map_err(|error| Error::Trace(error.to_string()))?;
        let recorded = &mut self.recorded;
        recorded.operations += 1;
        match op.kind {
            OpKind::Read => recorded.bytes_read += op.length,
            OpKind::Write => {
                if let Some(bytes) = recorded.bytes_written.get_mut(usize::from(op.stream)) {
                    *bytes += op.length;
                }
            }
            OpKind::Trim => recorded.bytes_trimmed += op.length,
            OpKind::Flush => recorded.flushes += 1,
        }
        Ok(())
    }

    fn finish(&mut self) -> BlockResult<Recorded> {
        self.push_pending()?;
        let Some(writer) = self.writer.take() else {
            return Err(Error::Trace("the recording is finished already".to_owned()));
        };
        writer.finish().map_err(|error| Error::Trace(error.to_string()))?;
        Ok(self.recorded.clone())
    }
}

impl Blocks for Recorder {
    fn page_bytes(&self) -> u64 {
        u64::from(self.options.page_bytes)
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn begin(&mut self) {
        if let Some(started) = self.started {
            self.at_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
    }

    fn read(&mut self, lpn: Lpn, purpose: Purpose) -> BlockResult<()> {
        self.page(OpKind::Read, lpn, purpose as u8)
    }

    fn write(&mut self, lpn: Lpn, purpose: Purpose) -> BlockResult<()> {
        self.page(OpKind::Write, lpn, purpose as u8)
    }

    fn trim(&mut self, lpn: Lpn) -> BlockResult<()> {
        self.page(OpKind::Trim, lpn, 0)
    }

    fn flush(&mut self) -> BlockResult<()> {
        self.push_pending()?;
        self.push(&TraceOp::flush(self.at_ns))
    }

    fn end(&mut self) -> BlockResult<()> {
        self.push_pending()
    }
}
