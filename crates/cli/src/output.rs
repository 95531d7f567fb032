//! Standard output, buffered, with every failure noticed.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::Value;

use crate::exit::Failure;

const BUFFER_BYTES: usize = 64 * 1024;

/// The answer of the command. Nothing is promised to be written before [`Output::flush`].
pub(crate) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(crate) fn new() -> Self {
        Self(BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write_all(bytes).map_err(refused)
    }

    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    pub(crate) fn json(&mut self, value: &Value) -> Result<(), Failure> {
        self.line(&value.to_string())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.0.flush().map_err(refused)
    }
}

fn refused(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::OutputClosed
    } else {
        Failure::Output(error)
    }
}
