//! Traces of block devices: recorded reads, writes, trims and flushes, read as a stream.
//!
//! A [`TraceSource`] is a file with its format; [`Trace`] iterates over its operations in the order
//! of the file. Memory does not grow with the file. Any of the formats may be compressed by gzip,
//! which is seen from the bytes.
//!
//! Invariants of what is read: the first operation is at 0 ns and times never decrease (a time that
//! goes back is read as the one before it); offset and length add up to less than 2^64. A line that
//! is not of the format is an error with file and line, never skipped.
//!
//! Reading order: here, [`error`], [`lines`] (the input), `fields` (words and numbers), one file a
//! format, [`TraceWriter`] in [`native`].

pub mod blkparse;
pub mod error;
mod fields;
mod fio;
pub mod lines;
mod mqsim;
mod msr;
pub mod native;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use blkparse::{Blkparse, Event};
use error::{Result, TraceError};
use fio::Fio;
use lines::{Input, Lines};
use mqsim::Mqsim;
use msr::Msr;
use native::NativeReader;

pub use native::TraceWriter;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes are no longer needed.
    Trim,
    /// What was written before is made durable; there is no range.
    Flush,
}

/// One operation of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceOp {
    /// When it was issued, in ns since the first operation.
    pub at_ns: u64,
    /// Its first byte on the device.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
    /// What it does.
    pub kind: OpKind,
    /// Its stream, or the purpose of its data; 0 where the format has none.
    pub stream: u8,
}

impl TraceOp {
    /// A flush.
    #[must_use]
    pub const fn flush(at_ns: u64) -> Self {
        Self { at_ns, offset: 0, length: 0, kind: OpKind::Flush, stream: 0 }
    }
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// MSR Cambridge, csv.
    Msr,
    /// Text of blkparse; the events of one kind.
    Blkparse(Event),
    /// A log of fio, version 2 or 3.
    Fio,
    /// MQSim, five columns.
    Mqsim,
    /// The binary format of this crate.
    Esker,
}

impl Format {
    /// Every format, by the name that a [`TraceSource`] begins with.
    pub const ALL: [(&'static str, Self); 7] = [
        ("msr", Self::Msr),
        ("blkparse", Self::Blkparse(Event::Issued)),
        ("blkparse-q", Self::Blkparse(Event::Queued)),
        ("blkparse-c", Self::Blkparse(Event::Completed)),
        ("fio", Self::Fio),
        ("mqsim", Self::Mqsim),
        ("esker", Self::Esker),
    ];

    /// The names of all formats, with commas.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Msr => "msr",
            Self::Blkparse(Event::Issued) => "blkparse",
            Self::Blkparse(Event::Queued) => "blkparse-q",
            Self::Blkparse(Event::Completed) => "blkparse-c",
            Self::Fio => "fio",
            Self::Mqsim => "mqsim",
            Self::Esker => "esker",
        }
    }
}

/// A file with its format, written `msr:web_0.csv.gz`. `blkparse` without an event means `D`, the
/// requests as the driver got them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSource {
    /// The format.
    pub format: Format,
    /// The file.
    pub path: PathBuf,
}

impl FromStr for TraceSource {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once(':').filter(|(_, path)| !path.is_empty());
        let found = parts.and_then(|(name, path)| {
            let (_, format) = Format::ALL.into_iter().find(|(known, _)| *known == name)?;
            Some(Self { format, path: path.into() })
        });
        found.ok_or_else(|| TraceError::Format { given: text.to_owned(), known: Format::names() })
    }
}

impl fmt::Display for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.format.name(), self.path.display())
    }
}

/// The operations of a trace, in the order of the file. After an error there are no more.
pub struct Trace {
    reader: Reader,
    is_over: bool,
}

enum Reader {
    Msr(Msr),
    Blkparse(Box<Blkparse>),
    Fio(Fio),
    Mqsim(Mqsim),
    Native(Box<NativeReader>),
}

impl Trace {
    /// Opens the file; nothing of its content is checked before it is read.
    ///
    /// # Errors
    /// [`TraceError::Open`] and [`TraceError::Read`].
    pub fn open(source: &TraceSource) -> Result<Self> {
        Ok(Self::new(source.format, &source.path, lines::open(&source.path)?))
    }

    /// The operations of a stream; `path` is its name in errors.
    ///
    /// # Errors
    /// [`TraceError::Read`] where the first bytes cannot be read.
    pub fn from_stream(
        format: Format,
        path: &Path,
        stream: Box<dyn std::io::Read + Send>,
    ) -> Result<Self> {
        let input = lines::input(stream).map_err(|source| TraceError::Read {
            path: path.to_owned(),
            line: 0,
            source,
        })?;
        Ok(Self::new(format, path, input))
    }

    fn new(format: Format, path: &Path, input: Input) -> Self {
        let lines = |input| Lines::new(path, input);
        let reader = match format {
            Format::Msr => Reader::Msr(Msr::new(lines(input))),
            Format::Blkparse(event) => {
                Reader::Blkparse(Box::new(Blkparse::new(lines(input), event)))
            }
            Format::Fio => Reader::Fio(Fio::new(lines(input))),
            Format::Mqsim => Reader::Mqsim(Mqsim::new(lines(input))),
            Format::Esker => Reader::Native(Box::new(NativeReader::new(path, input))),
        };
        Self { reader, is_over: false }
    }
}

impl Iterator for Trace {
    type Item = Result<TraceOp>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let next = match &mut self.reader {
            Reader::Msr(reader) => reader.next(),
            Reader::Blkparse(reader) => reader.next(),
            Reader::Fio(reader) => reader.next(),
            Reader::Mqsim(reader) => reader.next(),
            Reader::Native(reader) => reader.next(),
        };
        self.is_over = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// Absolute times made relative to the first, never decreasing.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Clock {
    fn at(&mut self, absolute_ns: u64) -> u64 {
        let first = *self.first_ns.get_or_insert(absolute_ns);
        self.last_ns = self.last_ns.max(absolute_ns.saturating_sub(first));
        self.last_ns
    }
}
