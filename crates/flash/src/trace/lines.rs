//! The input of a trace, read piece by piece: plain or gzip, as bytes or as numbered lines.
//!
//! Memory is bounded by [`LINE_BYTES_MAX`] and the buffers, whatever the size of the file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::error::{Result, TraceError};

/// The longest line that is read. Lines of traces have about 50 to 200 bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;

const BUFFER_BYTES: usize = 256 << 10;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// A buffered input that may be decompressed on the way.
pub(super) type Input = BufReader<Box<dyn Read + Send>>;

/// Opens a file; whether it is compressed is seen from its first bytes, not from its name.
///
/// # Errors
/// [`TraceError::Open`], and [`TraceError::Read`] where the first bytes cannot be read.
pub(super) fn open(path: &Path) -> Result<Input> {
    let file =
        File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    input(Box::new(file)).map_err(|source| TraceError::Read {
        path: path.to_owned(),
        line: 0,
        source,
    })
}

/// The same for any stream.
pub(super) fn input(stream: Box<dyn Read + Send>) -> io::Result<Input> {
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, stream);
    if raw.fill_buf()?.starts_with(&GZIP_MAGIC) {
        return Ok(BufReader::with_capacity(BUFFER_BYTES, Box::new(MultiGzDecoder::new(raw))));
    }
    // The buffer is handed over with what it holds.
    Ok(BufReader::with_capacity(BUFFER_BYTES, Box::new(raw)))
}

/// Numbered lines.
pub(super) struct Lines {
    input: Input,
    path: PathBuf,
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    pub(super) fn new(path: &Path, input: Input) -> Self {
        Self { input, path: path.to_owned(), number: 0, line: Vec::new() }
    }

    /// The next line without its end, or `None` after the last.
    ///
    /// # Errors
    /// [`TraceError::Read`]; [`TraceError::Line`] for one longer than [`LINE_BYTES_MAX`].
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        self.line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.input).take(limit).read_until(b'\n', &mut self.line);
        let count = read.map_err(|source| TraceError::Read {
            path: self.path.clone(),
            line: self.number,
            source,
        })?;
        if count == 0 {
            return Ok(None);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        } else if count > LINE_BYTES_MAX {
            return Err(self.wrong(format!(
                "the line is longer than {LINE_BYTES_MAX} bytes: is this a text trace?"
            )));
        }
        Ok(Some(&self.line))
    }

    /// Lines read so far.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// An error about the last line.
    pub(super) fn wrong(&self, what: String) -> TraceError {
        TraceError::Line { path: self.path.clone(), line: self.number, what }
    }
}
