//! Values as streams, in pieces of any size. `python/esker/_values.py` makes files of them.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Buffer;
use crate::fork::Kept;
use crate::raised;
use crate::reads::Reads;
use crate::store::{Open, detached, durability};

/// The maximum of one read, in bytes.
const READ_BYTES_MAX: u64 = 8 << 20;

/// A stream that several threads may use, one at a time, until it is closed. A thread waits for it
/// while other Python threads run.
struct Stream<T: Send>(Kept<Mutex<Option<T>>>);

impl<T: Send> Stream<T> {
    fn new(stream: T) -> Self {
        Self(Kept::new(Mutex::new(Some(stream))))
    }

    /// Runs an operation on the stream, unless it is closed.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut T) -> io::Result<R> + Send,
    ) -> PyResult<R> {
        let held = self.0.get(py)?;
        let done = py.detach(|| {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            held.as_mut().map(run)
        });
        match done {
            Some(done) => done.map_err(|error| failed(py, error)),
            None => Err(closed(py)),
        }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        let held = self.0.get(py)?;
        Ok(py.detach(|| held.lock().unwrap_or_else(PoisonError::into_inner).take()))
    }
}

fn closed(py: Python<'_>) -> PyErr {
    raised::closed(py, "the stream is closed")
}

/// The exception of what a stream fails with, which is an error of the store.
fn failed(py: Python<'_>, error: io::Error) -> PyErr {
    match error.downcast::<esker::Error>() {
        Ok(error) => raised::of_store(py, &error),
        Err(error) => error.into(),
    }
}

/// The stream below `esker.ValueReader`.
#[pyclass(frozen, module = "esker._esker")]
pub(crate) struct ValueReader {
    stream: Stream<esker::ValueReader>,
    nbytes: u64,
}

/// A reader of the value of `key`; `KeyError` where there is none.
pub(crate) fn reader(
    py: Python<'_>,
    reads: &Reads,
    key: &Bound<'_, PyAny>,
) -> PyResult<ValueReader> {
    let wanted = Buffer::key(key)?;
    let found = reads.reader(py, wanted.as_ref())?;
    let stream = found.ok_or_else(|| raised::no_key(key))?;
    Ok(ValueReader { nbytes: stream.len(), stream: Stream::new(stream) })
}

#[pymethods]
impl ValueReader {
    /// Length of the value, in bytes.
    #[getter]
    const fn nbytes(&self) -> u64 {
        self.nbytes
    }

    /// Return the bytes from `position` on, at most `size` and no more than 8 MiB.
    fn read<'py>(
        &self,
        py: Python<'py>,
        position: u64,
        size: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let left = self.nbytes.saturating_sub(position);
        let size = size.min(left).min(READ_BYTES_MAX);
        let data = self.stream.with(py, |stream| {
            let mut data = Vec::with_capacity(size as usize);
            stream.seek(SeekFrom::Start(position))?;
            stream.take(size).read_to_end(&mut data)?;
            Ok(data)
        })?;
        Ok(PyBytes::new(py, &data))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.stream.take(py)?;
        py.detach(|| drop(stream));
        Ok(())
    }
}

/// The stream below `esker.ValueWriter`.
#[pyclass(frozen, module = "esker._esker")]
pub(crate) struct ValueWriter {
    stream: Stream<esker::ValueWriter>,
    key: Vec<u8>,
    open: Arc<Open>,
}

/// A writer of the value of `key`.
pub(crate) fn writer(
    py: Python<'_>,
    reads: &Reads,
    key: &Bound<'_, PyAny>,
) -> PyResult<ValueWriter> {
    let key = Buffer::key(key)?.as_ref().to_vec();
    let keyspace = reads.keyspace(py)?;
    let stream = detached(py, || keyspace.writer(&key))?;
    Ok(ValueWriter { stream: Stream::new(stream), key, open: Arc::clone(reads.open()) })
}

#[pymethods]
impl ValueWriter {
    /// Append all of `data` and return its length.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let data = Buffer::value(data)?;
        let data = data.as_ref();
        self.stream.with(py, |stream| stream.write_all(data))?;
        Ok(data.len())
    }

    /// Set the value of the key to the written bytes.
    fn finish(&self, py: Python<'_>, durability: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let durability = self::durability(&self.open, durability)?;
        let stream = self.stream.take(py)?.ok_or_else(|| closed(py))?;
        detached(py, || {
            let _turn = self.open.turns().take(&self.key);
            stream.finish_with(durability)
        })
    }

    /// Discard the written bytes, unless the writer was finished.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let stream = self.stream.take(py)?;
        py.detach(|| drop(stream));
        Ok(())
    }
}
