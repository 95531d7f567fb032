//! Batches: writes that are applied all or not at all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use esker::Durability;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::buffer::Buffer;
use crate::fork::Kept;
use crate::keyspace::Keyspace;
use crate::raised;
use crate::reads::between;
use crate::store::{Open, Store, TurnSet, Turns, detached, durability};
use crate::ttl;

/// Writes to keyspaces of one store that are applied all or not at all. As a context manager it
/// applies them at a clean exit; an exception in its block drops them. No write is made or visible
/// before that.
#[pyclass(frozen, module = "esker")]
pub(crate) struct Batch {
    /// `None` once it was applied or dropped.
    writes: Kept<Mutex<Option<Writes>>>,
    durability: Durability,
    open: Arc<Open>,
}

/// A write to a key.
#[derive(Clone, Copy)]
pub(crate) enum KeyWrite<'a> {
    /// With an optional time to live.
    Put(&'a [u8], Option<Duration>),
    Merge(&'a [u8]),
    Delete,
}

impl KeyWrite<'_> {
    const fn len(self) -> usize {
        match self {
            Self::Put(bytes, _) | Self::Merge(bytes) => bytes.len(),
            Self::Delete => 0,
        }
    }
}

struct Writes {
    batch: esker::Batch,
    turns: TurnSet,
    bytes: u64,
}

impl Batch {
    pub(crate) fn empty(
        py: Python<'_>,
        open: &Arc<Open>,
        durability: Durability,
    ) -> PyResult<Self> {
        let (batch, turns) = (open.db(py)?.batch(), TurnSet::default());
        let writes = Writes { batch, turns, bytes: 0 };
        Ok(Self { writes: Kept::new(Mutex::new(Some(writes))), durability, open: Arc::clone(open) })
    }

    fn with<T>(&self, py: Python<'_>, run: impl FnOnce(&mut Writes) -> PyResult<T>) -> PyResult<T> {
        let writes = self.writes.get(py)?;
        let mut writes = writes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        match &mut *writes {
            Some(writes) => run(writes),
            None => Err(over(py)),
        }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<Writes>> {
        let writes = self.writes.get(py)?;
        Ok(writes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).take())
    }

    fn apply(&self, py: Python<'_>, writes: Writes) -> PyResult<()> {
        let turns = self.open.turns();
        detached(py, || {
            let _turns = turns.take_all(writes.turns);
            writes.batch.commit_with(self.durability).map(drop)
        })
    }
}

/// The keyspace that is given.
fn keyspace_of<'a, 'py>(given: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, Keyspace>> {
    match given.cast::<Keyspace>() {
        Ok(keyspace) => Ok(keyspace),
        Err(_) => {
            let name = given.get_type().fully_qualified_name()?;
            let text = format!("a batch takes a Keyspace, not {name}");
            Err(raised::wrong_type(given.py(), &text))
        }
    }
}

fn over(py: Python<'_>) -> PyErr {
    raised::closed(py, "the batch was applied or dropped")
}

#[pymethods]
impl Batch {
    #[new]
    fn new(py: Python<'_>, store: &Store, durability: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let durability = self::durability(store.open(), durability)?;
        Self::empty(py, store.open(), durability)
    }

    /// Set the value of `key` in `keyspace`. Of several writes to one key the last counts. With
    /// `ttl` the value expires after this many seconds, counted from this call.
    #[pyo3(signature = (keyspace, key, value, *, ttl=None))]
    fn insert(
        &self,
        keyspace: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let ttl = ttl::of(ttl)?;
        let (key, value) = (Buffer::key(key)?, Buffer::value(value)?);
        self.add(keyspace, key.as_ref(), KeyWrite::Put(value.as_ref(), ttl))
    }

    /// Merge `operand` onto the value of `key` in `keyspace`. All operands merged onto one key
    /// count, and so do earlier writes to it.
    fn merge(
        &self,
        keyspace: &Bound<'_, PyAny>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, operand) = (Buffer::key(key)?, Buffer::value(operand)?);
        self.add(keyspace, key.as_ref(), KeyWrite::Merge(operand.as_ref()))
    }

    /// Remove `key` from `keyspace`; it need not exist.
    fn remove(&self, keyspace: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.add(keyspace, Buffer::key(key)?.as_ref(), KeyWrite::Delete)
    }

    /// Remove all keys of `keyspace` with `start <= key < end`, including those that the batch has
    /// written before. Without `start` from the first key, without `end` to the last.
    #[pyo3(signature = (keyspace, start=None, end=None))]
    fn remove_range(
        &self,
        keyspace: &Bound<'_, PyAny>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = keyspace.py();
        let (start, end) = (start.map(Buffer::key).transpose()?, end.map(Buffer::key).transpose()?);
        let keyspace = keyspace_of(keyspace)?.borrow();
        let keyspace = keyspace.as_super().keyspace(py)?;
        self.open.check(py)?;
        self.with(py, |writes| {
            writes.turns = Turns::all();
            let len =
                |key: &Option<Buffer<'_, '_>>| key.as_ref().map_or(0, |key| key.as_ref().len());
            writes.bytes += (len(&start) + len(&end)) as u64;
            writes.batch.remove_range::<&[u8]>(keyspace, between(&start, &end));
            writes.batch.refused().map_or(Ok(()), |error| Err(raised::of_store(py, error)))
        })
    }

    /// Apply the writes now. At most 1 GiB, and no more than the memory of the store (4 MiB are
    /// always fine).
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let writes = self.take(py)?.ok_or_else(|| over(py))?;
        self.apply(py, writes)
    }

    /// Drop the writes. May be called repeatedly, also after they were applied.
    fn discard(&self, py: Python<'_>) -> PyResult<()> {
        self.take(py).map(drop)
    }

    /// Bytes of keys and values so far, repeats included.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |writes| Ok(writes.bytes))
    }

    /// The number of writes so far, repeats included.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |writes| Ok(writes.batch.len()))
    }

    /// True: an empty batch is a batch, too.
    const fn __bool__(&self) -> bool {
        true
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        this.with(this.py(), |_| Ok(()))?;
        Ok(this)
    }

    #[pyo3(signature = (kind, error, trace))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _where_it_happened = (error, trace);
        match self.take(py)? {
            Some(writes) if kind.is_none() => self.apply(py, writes),
            // Dropped, or over already within the block.
            _ => Ok(()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let writes = self.writes.get(py)?;
        let writes = writes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let path = self.open.path().display();
        Ok(match &*writes {
            Some(writes) => format!("<esker.Batch of {} writes to '{path}'>", writes.batch.len()),
            None => format!("<esker.Batch of '{path}', applied or dropped>"),
        })
    }
}

impl Batch {
    fn add(&self, keyspace: &Bound<'_, PyAny>, key: &[u8], action: KeyWrite<'_>) -> PyResult<()> {
        let py = keyspace.py();
        let keyspace = keyspace_of(keyspace)?.borrow();
        let keyspace = keyspace.as_super().keyspace(py)?;
        self.open.check(py)?;
        self.with(py, |writes| {
            writes.turns = self.open.turns().with(writes.turns, key);
            writes.bytes += (key.len() + action.len()) as u64;
            match action {
                KeyWrite::Put(value, None) => writes.batch.insert(keyspace, key, value),
                KeyWrite::Put(value, Some(ttl)) => {
                    writes.batch.insert_with_ttl(keyspace, key, value, ttl);
                }
                KeyWrite::Merge(operand) => writes.batch.merge(keyspace, key, operand),
                KeyWrite::Delete => writes.batch.remove(keyspace, key),
            }
            writes.batch.refused().map_or(Ok(()), |error| Err(raised::of_store(py, error)))
        })
    }
}
