//! Standard output, buffered, with every failure noticed.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value;

use crate::exit::Failure;

const BUFFER_BYTES: usize = 64 * 1024;

/// The answer of the command. Nothing is promised to be written before [`Output::flush`].
///
/// Where standard output fails, a call fails with [`Failure::Output`] or
/// [`Failure::OutputClosed`].
#[derive(Debug)]
pub struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    /// Standard output, locked until this is dropped.
    #[must_use]
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()))
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(refused)
    }

    /// Writes a line, and its line feed.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes a value as one line.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(&value.to_string())
    }

    /// Passes everything written to the system.
    ///
    /// # Errors
    /// Those of standard output.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(refused)
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new()
    }
}

fn refused(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::OutputClosed
    } else {
        Failure::Output(error)
    }
}
