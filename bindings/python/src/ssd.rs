//! Simulated SSDs: requests from arrays of Python, a report as a dictionary.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use esker_flash::report::Report;
use esker_flash::run::RunError;
use esker_flash::run::spec::Spec;
use esker_flash::simulate::{ReplayError, replay};
use esker_flash::trace::{OpKind, TraceOp};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::raised;

/// The interval at which Python is asked whether a signal came.
const TICK: Duration = Duration::from_millis(50);

/// Replay `length` requests, which `chunk(start)` gives in columns of bytes, on a device with these
/// settings, and return the report as text of JSON. Other threads of Python run meanwhile.
#[pyfunction]
pub(crate) fn simulate_ssd(
    py: Python<'_>,
    settings: Vec<(String, String)>,
    length: u64,
    chunk: Py<PyAny>,
) -> PyResult<String> {
    let mut spec = Spec::default();
    for (name, value) in &settings {
        spec.set(name, value).map_err(|error| raised::argument(py, &error.to_string()))?;
    }
    let requests =
        Requests { chunk, length, at: 0, columns: Columns::default(), next: 0, start: None };
    let signal = RefCell::new(None);
    let done = py.detach(move || {
        let mut asked = Instant::now();
        let mut go_on = |_| {
            if asked.elapsed() < TICK {
                return true;
            }
            asked = Instant::now();
            match Python::attach(|py| py.check_signals()) {
                Ok(()) => true,
                Err(error) => {
                    signal.replace(Some(error));
                    false
                }
            }
        };
        let done = replay(&spec, requests, &mut go_on);
        (done, signal.into_inner())
    });
    match done {
        (_, Some(error)) => Err(error),
        (Ok(report), None) => Ok(text(&report)),
        (Err(ReplayError::Run(RunError::Source(error))), None) => Err(error),
        (Err(error), None) => Err(raised::argument(py, &error.to_string())),
    }
}

fn text(report: &Report) -> String {
    report.to_json().to_string()
}

/// Requests, a chunk at a time.
struct Requests {
    chunk: Py<PyAny>,
    length: u64,
    /// The first request of the next chunk.
    at: u64,
    columns: Columns,
    /// The next request of the chunk.
    next: usize,
    /// The time of the first request.
    start: Option<u64>,
}

/// Bytes of a chunk: offsets and sizes as words, truth values, times as words or nothing, streams
/// as bytes or nothing.
#[derive(Default)]
struct Columns {
    offsets: Vec<u8>,
    sizes: Vec<u8>,
    is_write: Vec<u8>,
    times: Vec<u8>,
    streams: Vec<u8>,
}

impl Iterator for Requests {
    type Item = PyResult<TraceOp>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.columns.is_write.len() {
            if self.at >= self.length {
                return None;
            }
            match Python::attach(|py| self.read(py)) {
                Ok(()) => {}
                Err(error) => {
                    self.length = 0;
                    return Some(Err(error));
                }
            }
        }
        let index = self.next;
        self.next += 1;
        let is_write = *self.columns.is_write.get(index)? != 0;
        let time = word(&self.columns.times, index).unwrap_or(0);
        let start = *self.start.get_or_insert(time);
        Some(Ok(TraceOp {
            at_ns: time.saturating_sub(start),
            offset: word(&self.columns.offsets, index)?,
            length: word(&self.columns.sizes, index)?,
            kind: if is_write { OpKind::Write } else { OpKind::Read },
            stream: self.columns.streams.get(index).copied().unwrap_or(0),
        }))
    }
}

impl Requests {
    fn read(&mut self, py: Python<'_>) -> PyResult<()> {
        let chunk = self.chunk.call1(py, (self.at,))?;
        let chunk = chunk.cast_bound::<PyTuple>(py)?;
        let column = |index: usize| -> PyResult<Vec<u8>> {
            Ok(chunk.get_item(index)?.cast::<PyBytes>()?.as_bytes().to_vec())
        };
        self.columns = Columns {
            offsets: column(0)?,
            sizes: column(1)?,
            is_write: column(2)?,
            times: column(3)?,
            streams: column(4)?,
        };
        self.next = 0;
        self.at += self.columns.is_write.len() as u64;
        if self.columns.is_write.is_empty() {
            self.length = 0;
        }
        Ok(())
    }
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let rest = bytes.get(index.checked_mul(8)?..)?;
    rest.first_chunk::<8>().map(|word| u64::from_le_bytes(*word))
}
