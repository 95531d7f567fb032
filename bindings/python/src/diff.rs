//! What happened in a keyspace with history between two versions.

use std::ops::Bound as End;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyBytes;

use crate::buffer::Buffer;
use crate::fork::Kept;
use crate::history::microseconds;
use crate::reads::{Reads, between};
use crate::store::{Open, detached};

/// A version as Python passes it: its number or its name.
#[derive(FromPyObject)]
pub(crate) enum Version {
    Number(u64),
    Name(String),
}

impl Version {
    /// The keyspace as it was then.
    pub(crate) fn past(&self, keyspace: &esker::Keyspace) -> esker::Result<esker::Past> {
        match self {
            Self::Number(number) => keyspace.at(*number),
            Self::Name(name) => keyspace.at_named(name),
        }
    }

    /// Its number.
    fn number(&self, keyspace: &esker::Keyspace) -> esker::Result<u64> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Name(name) => Ok(keyspace.at_named(name)?.version()),
        }
    }
}

/// Keys as Python passes them: from one, up to but without another, or with a prefix.
#[derive(FromPyObject)]
pub(crate) struct Keys<'py>(
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
    Option<Bound<'py, PyAny>>,
);

fn key<'a, 'py>(given: Option<&'a Bound<'py, PyAny>>) -> PyResult<Option<Buffer<'a, 'py>>> {
    given.map(Buffer::key).transpose()
}

/// The iterator below `esker.Keyspace.changes`: keys, versions, times in microseconds since 1970
/// and values.
#[pyclass(frozen, module = "esker._esker")]
pub(crate) struct KeyChanges {
    walk: Kept<Mutex<Walk>>,
    open: Arc<Open>,
}

struct Walk {
    changes: esker::KeyChanges,
    /// The version that was last, and its time: a commit has often changed many keys.
    last: Option<(u64, Option<SystemTime>)>,
}

impl Walk {
    fn next(
        &mut self,
        db: &esker::Db,
    ) -> esker::Result<Option<(esker::KeyChange, Option<SystemTime>)>> {
        let Some(change) = self.changes.next().transpose()? else { return Ok(None) };
        let time = match self.last {
            Some((version, time)) if version == change.version => time,
            _ => db.time_of(change.version)?,
        };
        self.last = Some((change.version, time));
        Ok(Some((change, time)))
    }
}

/// A change as Python gets it.
type Change<'py> = (Bound<'py, PyBytes>, u64, Option<u64>, Option<Bound<'py, PyBytes>>);

impl KeyChanges {
    /// The changes after one version and up to another.
    pub(crate) fn of(
        py: Python<'_>,
        reads: &Reads,
        (since, until): (Option<Version>, Option<Version>),
        Keys(start, end, prefix): &Keys<'_>,
    ) -> PyResult<Self> {
        let keyspace = reads.keyspace(py)?;
        let (start, end) = (key(start.as_ref())?, key(end.as_ref())?);
        let prefix = key(prefix.as_ref())?;
        let (bounds, prefix) = (between(&start, &end), prefix.as_ref().map(AsRef::as_ref));
        let changes = detached(py, || {
            let number = |version: Option<Version>| {
                version.map(|version| version.number(keyspace)).transpose()
            };
            let since = number(since)?.map_or(End::Unbounded, End::Excluded);
            let until = number(until)?.map_or(End::Unbounded, End::Included);
            let changes = keyspace.changes((since, until))?;
            Ok(match prefix {
                Some(prefix) => changes.prefix(prefix),
                None => changes.range::<&[u8]>(bounds),
            })
        })?;
        let walk = Kept::new(Mutex::new(Walk { changes, last: None }));
        Ok(Self { walk, open: Arc::clone(reads.open()) })
    }
}

#[pymethods]
impl KeyChanges {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Change<'py>>> {
        let walk = self.walk.get(py)?;
        let db = self.open.db(py)?;
        let mut walk = walk.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let walk = &mut *walk;
        let next = detached(py, || walk.next(db))?;
        Ok(next.map(|(change, time)| {
            let value = change.value.map(|value| PyBytes::new(py, &value));
            let key = PyBytes::new(py, &change.key);
            (key, change.version, time.map(microseconds), value)
        }))
    }
}

/// The iterator below `esker.Keyspace.diff`: keys, values before and values after.
#[pyclass(frozen, module = "esker._esker")]
pub(crate) struct Diff {
    diff: Kept<Mutex<esker::Diff>>,
    open: Arc<Open>,
}

/// A difference as Python gets it.
type Difference<'py> =
    (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, Option<Bound<'py, PyBytes>>);

impl Diff {
    /// The differences between two versions; without the second one, up to the newest.
    pub(crate) fn of(
        py: Python<'_>,
        reads: &Reads,
        (before, after): (Version, Option<Version>),
        Keys(start, end, prefix): &Keys<'_>,
    ) -> PyResult<Self> {
        let (keyspace, db) = (reads.keyspace(py)?, reads.open().db(py)?);
        let (start, end) = (key(start.as_ref())?, key(end.as_ref())?);
        let prefix = key(prefix.as_ref())?;
        let (bounds, prefix) = (between(&start, &end), prefix.as_ref().map(AsRef::as_ref));
        let diff = detached(py, || {
            let before = before.number(keyspace)?;
            let after = after.map_or_else(|| Ok(db.version()), |after| after.number(keyspace))?;
            let diff = keyspace.diff(before, after)?;
            Ok(match prefix {
                Some(prefix) => diff.prefix(prefix),
                None => diff.range::<&[u8]>(bounds),
            })
        })?;
        let diff = Kept::new(Mutex::new(diff));
        Ok(Self { diff, open: Arc::clone(reads.open()) })
    }
}

#[pymethods]
impl Diff {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Difference<'py>>> {
        let diff = self.diff.get(py)?;
        self.open.check(py)?;
        let mut diff = diff.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let diff = &mut *diff;
        let next = detached(py, || diff.next().transpose())?;
        Ok(next.map(|difference| {
            let value = |value: Option<Vec<u8>>| value.map(|value| PyBytes::new(py, &value));
            let key = PyBytes::new(py, &difference.key);
            (key, value(difference.before), value(difference.after))
        }))
    }
}
