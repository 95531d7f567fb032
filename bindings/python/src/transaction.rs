//! Transactions: reads and writes that happen at one moment, or not at all.

use std::ops::Bound as End;
use std::sync::{Arc, Mutex, PoisonError};

use esker::{Durability, Entry};
use pyo3::prelude::*;

use crate::batch::KeyWrite;
use crate::buffer::Buffer;
use crate::fork::Kept;
use crate::raised;
use crate::reads::{At, Reads, between};
use crate::snapshot::Named;
use crate::store::{Open, Store, TurnSet, Turns, detached, durability};
use crate::ttl;

/// A transaction that may have ended; its views share it.
pub(crate) struct Ongoing(Kept<Mutex<Option<Work>>>);

/// The state of a transaction so far.
pub(crate) struct Work {
    pub(crate) transaction: esker::Transaction,
    turns: TurnSet,
}

impl Ongoing {
    /// Runs an operation in it, while other Python threads run; one at a time.
    ///
    /// # Errors
    /// `ClosedError` when it has ended, `ForkError` in a child.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut Work) -> esker::Result<T> + Send,
    ) -> PyResult<T> {
        let work = self.0.get(py)?;
        let done = detached(py, || {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            work.as_mut().map(run).transpose()
        })?;
        done.ok_or_else(|| over(py))
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<Work>> {
        let work = self.0.get(py)?;
        detached(py, || Ok(work.lock().unwrap_or_else(PoisonError::into_inner).take()))
    }
}

#[cold]
fn over(py: Python<'_>) -> PyErr {
    raised::closed(py, "the transaction was committed or rolled back")
}

/// The transaction below `esker.Transaction`.
#[pyclass(frozen, subclass, module = "esker._esker")]
pub(crate) struct Transaction {
    ongoing: Arc<Ongoing>,
    durability: Durability,
    seq: u64,
    open: Arc<Open>,
}

#[pymethods]
impl Transaction {
    #[new]
    fn new(
        py: Python<'_>,
        store: &Store,
        write: bool,
        durability: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let open = Arc::clone(store.open());
        let (db, durability) = (open.db(py)?, self::durability(&open, durability)?);
        let transaction =
            detached(py, || if write { db.write_transaction() } else { db.transaction() })?;
        let (seq, turns) = (transaction.seq(), TurnSet::default());
        let work = Mutex::new(Some(Work { transaction, turns }));
        let ongoing = Arc::new(Ongoing(Kept::new(work)));
        Ok(Self { ongoing, durability, seq, open })
    }

    /// The number of the newest visible write.
    #[getter]
    const fn seq(&self) -> u64 {
        self.seq
    }

    /// The folder of the store.
    #[getter]
    fn path(&self) -> &std::path::Path {
        self.open.path()
    }

    /// Whether it has ended.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        let work = self.ongoing.0.get(py)?;
        detached(py, || Ok(work.lock().unwrap_or_else(PoisonError::into_inner).is_none()))
    }

    /// Raise an exception if it cannot be used.
    fn _check(&self, py: Python<'_>) -> PyResult<()> {
        self.open.check(py)?;
        self.ongoing.with(py, |_| Ok(()))
    }

    /// Apply the writes, if no other writer has since changed what was read. Otherwise nothing is
    /// applied, and `ConflictError` asks to run the whole transaction again.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.ongoing.take(py)?.ok_or_else(|| over(py))?;
        let turns = self.open.turns();
        detached(py, || {
            let _turns = turns.take_all(work.turns);
            work.transaction.commit_with(self.durability).map(drop)
        })
    }

    /// Drop the writes. May be called repeatedly, also after a commit.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.ongoing.take(py)?;
        detached(py, || {
            drop(work);
            Ok(())
        })
    }

    /// The number of keys that it will write.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.ongoing.with(py, |work| Ok(work.transaction.len()))
    }

    /// True: a transaction that writes nothing is one, too.
    const fn __bool__(&self) -> bool {
        true
    }
}

/// The mapping below `esker.TransactionKeyspace`.
#[pyclass(frozen, subclass, extends = Reads, module = "esker._esker")]
pub(crate) struct TransactionKeyspace {
    ongoing: Arc<Ongoing>,
}

#[pymethods]
impl TransactionKeyspace {
    #[new]
    fn new(
        py: Python<'_>,
        transaction: &Transaction,
        keyspace: Named<'_>,
    ) -> PyResult<PyClassInitializer<Self>> {
        transaction._check(py)?;
        let keyspace = keyspace.of(py, &transaction.open)?;
        let ongoing = Arc::clone(&transaction.ongoing);
        let reads = Reads::new(&transaction.open, keyspace, At::In(Arc::clone(&ongoing)));
        Ok(PyClassInitializer::from(reads).add_subclass(Self { ongoing }))
    }

    fn __setitem__(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Self::insert(this, key, value, None)
    }

    fn __delitem__(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let found = this.as_super().found(this.py(), Buffer::key(key)?.as_ref())?;
        match found {
            Some(_) => Self::remove(this, key),
            None => Err(raised::no_key(key)),
        }
    }

    /// Set the value of `key` when the transaction is committed. Reads nothing. With `ttl` the
    /// value expires after this many seconds, counted from this call.
    #[pyo3(signature = (key, value, *, ttl=None))]
    fn insert(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let ttl = ttl::of(ttl)?;
        let (key, value) = (Buffer::key(key)?, Buffer::value(value)?);
        write(&this, key.as_ref(), KeyWrite::Put(value.as_ref(), ttl))
    }

    /// Merge `operand` onto the value of `key` when the transaction is committed. Reads nothing.
    fn merge(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (key, operand) = (Buffer::key(key)?, Buffer::value(operand)?);
        write(&this, key.as_ref(), KeyWrite::Merge(operand.as_ref()))
    }

    /// Remove `key` when the transaction is committed; it need not exist. Reads nothing, unlike
    /// `del keyspace[key]`.
    fn remove(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        write(&this, Buffer::key(key)?.as_ref(), KeyWrite::Delete)
    }

    /// Remove all keys with `start <= key < end` when the transaction is committed, including those
    /// that others have written by then. Reads none of them.
    #[pyo3(signature = (start=None, end=None))]
    fn remove_range(
        this: PyRef<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, reads) = (this.py(), this.as_super());
        let (start, end) = (start.map(Buffer::key).transpose()?, end.map(Buffer::key).transpose()?);
        reads.open().check(py)?;
        let (keyspace, keys) = (reads.keyspace(py)?, between(&start, &end));
        this.ongoing.with(py, |work| {
            work.transaction.remove_range::<&[u8]>(keyspace, keys)?;
            work.turns = Turns::all();
            Ok(())
        })
    }
}

fn write(this: &PyRef<'_, TransactionKeyspace>, key: &[u8], action: KeyWrite<'_>) -> PyResult<()> {
    let (py, reads) = (this.py(), this.as_super());
    reads.open().check(py)?;
    let (keyspace, turns) = (reads.keyspace(py)?, reads.open().turns());
    this.ongoing.with(py, |work| {
        match action {
            KeyWrite::Put(value, None) => work.transaction.insert(keyspace, key, value)?,
            KeyWrite::Put(value, Some(ttl)) => {
                work.transaction.insert_with_ttl(keyspace, key, value, ttl)?;
            }
            KeyWrite::Merge(operand) => work.transaction.merge(keyspace, key, operand)?,
            KeyWrite::Delete => work.transaction.remove(keyspace, key)?,
        }
        work.turns = turns.with(work.turns, key);
        Ok(())
    })
}

/// A part of a keyspace in a transaction, from which entries are taken one run at a time: entries
/// that have not been taken have not been read, and are ignored when the transaction is committed.
pub(crate) struct Rest {
    pub(crate) ongoing: Arc<Ongoing>,
    pub(crate) keyspace: esker::Keyspace,
    pub(crate) start: End<Vec<u8>>,
    pub(crate) end: End<Vec<u8>>,
}

impl Rest {
    /// Takes entries for as long as `take` wants more; whether it had enough.
    pub(crate) fn run(
        &mut self,
        py: Python<'_>,
        reverse: bool,
        mut take: impl FnMut(Entry) -> bool + Send,
    ) -> PyResult<bool> {
        let Self { ongoing, keyspace, start, end } = self;
        ongoing.with(py, |work| {
            let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
            let mut range = work.transaction.range::<&[u8]>(keyspace, bounds)?;
            loop {
                let next = if reverse { range.next_back() } else { range.next() };
                let Some(entry) = next.transpose()? else { return Ok(false) };
                let key = entry.0.clone();
                if !take(entry) {
                    let passed = if reverse { end } else { start };
                    *passed = End::Excluded(key);
                    return Ok(true);
                }
            }
        })
    }
}
