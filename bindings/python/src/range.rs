//! Iterators over entries.
//!
//! Entries are fetched in runs, with the interpreter released, and returned from the run: the cost
//! of crossing the boundary and of locks is per run, not per entry.

use std::sync::{Arc, Mutex, PoisonError};

use esker::Entry;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::fork::Kept;
use crate::store::{Open, detached};
use crate::transaction::Rest;

/// The first run is that of the store; later ones grow. What a transaction reads is compared with
/// what others write: there the first run is one entry, so that what is fetched is never twice what
/// was asked for.
const RUN_ENTRIES_FIRST: usize = 128;
const RUN_ENTRIES_MAX: usize = 1024;
const RUN_BYTES_MAX: usize = 256 << 10;

/// The part of an entry that is returned.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Key,
    Value,
    Both,
}

/// Entries of a keyspace as of one moment, in ascending or descending order of keys. Holds its
/// state of the store until it is exhausted, closed or dropped, and blocks no writer.
#[pyclass(frozen, generic, module = "esker")]
pub(crate) struct Range {
    walk: Kept<Mutex<Walk>>,
    part: Part,
    name: String,
    open: Arc<Open>,
}

/// The source of the entries.
pub(crate) enum Source {
    Range(Box<esker::Range>),
    Rest(Rest),
}

impl Source {
    /// Takes entries for as long as `take` wants more. Returns whether it had enough, so that there
    /// may be more.
    pub(crate) fn run(
        &mut self,
        py: Python<'_>,
        reverse: bool,
        mut take: impl FnMut(Entry) -> bool + Send,
    ) -> PyResult<bool> {
        let range = match self {
            Self::Range(range) => range,
            Self::Rest(rest) => return rest.run(py, reverse, take),
        };
        detached(py, || {
            loop {
                let next = if reverse { range.next_back() } else { range.next() };
                let Some(entry) = next.transpose()? else { return Ok(false) };
                if !take(entry) {
                    return Ok(true);
                }
            }
        })
    }
}

struct Walk {
    /// `None` when nothing is left to fetch.
    source: Option<Source>,
    run: std::vec::IntoIter<Entry>,
    run_entries: usize,
    reverse: bool,
}

impl Range {
    pub(crate) fn new(
        open: &Arc<Open>,
        name: &str,
        source: Source,
        part: Part,
        reverse: bool,
    ) -> Self {
        let run_entries = match source {
            Source::Range(_) => RUN_ENTRIES_FIRST,
            Source::Rest(_) => 1,
        };
        let (source, run) = (Some(source), Vec::new().into_iter());
        let walk = Walk { source, run, run_entries, reverse };
        let walk = Kept::new(Mutex::new(walk));
        Self { walk, part, name: name.to_owned(), open: Arc::clone(open) }
    }
}

impl Walk {
    /// Fetches the next run. After an error nothing is left.
    fn fetch(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(mut source) = self.source.take() else { return Ok(()) };
        let (mut run, mut bytes, entries) = (Vec::new(), 0, self.run_entries);
        let is_more = source.run(py, self.reverse, |(key, value)| {
            bytes += key.len() + value.len();
            run.push((key, value));
            run.len() < entries && bytes < RUN_BYTES_MAX
        })?;
        self.source = is_more.then_some(source);
        self.run_entries = (self.run_entries * 2).min(RUN_ENTRIES_MAX);
        self.run = run.into_iter();
        Ok(())
    }
}

#[pymethods]
impl Range {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let walk = self.walk.get(py)?;
        self.open.check(py)?;
        let mut walk = walk.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let walk = &mut *walk;
        if walk.run.len() == 0 && walk.source.is_some() {
            py.check_signals()?;
            walk.fetch(py)?;
        }
        let Some((key, value)) = walk.run.next() else { return Ok(None) };
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        match self.part {
            Part::Key => bytes(&key).into_bound_py_any(py),
            Part::Value => bytes(&value).into_bound_py_any(py),
            Part::Both => (bytes(&key), bytes(&value)).into_bound_py_any(py),
        }
        .map(Some)
    }

    fn __repr__(&self) -> String {
        format!("<esker.Range of '{}' of '{}'>", self.name, self.open.path().display())
    }

    /// Release the held state; no entry comes after it. May be called repeatedly.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let walk = self.walk.get(py)?;
        let mut walk = walk.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        walk.source = None;
        walk.run = Vec::new().into_iter();
        Ok(())
    }
}
