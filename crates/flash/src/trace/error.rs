//! What can be wrong with a trace: one line, with the file and the line or the byte.

use std::io;
use std::path::PathBuf;

/// The result of reading a trace.
pub type Result<T> = std::result::Result<T, TraceError>;

/// Why a trace cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The name of a trace has no known format before its colon.
    #[error("'{given}' is not FORMAT:FILE; the formats are {known}")]
    Format {
        /// What was given.
        given: String,
        /// Every format, with commas.
        known: String,
    },
    /// The file cannot be opened.
    #[error("cannot open the trace {path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The file cannot be read to its end; this includes a truncated gzip stream.
    #[error("cannot read the trace {path} after line {line}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Lines read so far; 0 in a binary trace.
        line: u64,
        /// The answer of the system or of the decoder.
        source: io::Error,
    },
    /// A line is not of the format.
    #[error("{path}:{line}: {what}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// What is wrong, and what is expected.
        what: String,
    },
    /// The bytes of a binary trace are not of the format.
    #[error("{path}: byte {offset}: {what}", path = path.display())]
    Bytes {
        /// The file.
        path: PathBuf,
        /// Where, from the start of the uncompressed trace.
        offset: u64,
        /// What is wrong, and what is expected.
        what: String,
    },
    /// A binary trace was written by a newer program.
    #[error(
        "{path} has version {found} of the trace format; this program reads up to version \
         {supported}: use a newer one",
        path = path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that is read here.
        supported: u32,
    },
    /// A trace cannot be written.
    #[error("cannot write the trace {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
}
