//! Writes to a keyspace.

use std::time::Duration;

use esker::{Error, History, IndexKind, KeyspaceOptions};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::diff::{Diff, KeyChanges, Keys, Version};
use crate::history::Changes;
use crate::operator;
use crate::raised;
use crate::reads::{At, Reads, between};
use crate::store::{Store, Turns, detached, durability};
use crate::ttl;
use crate::values::{self, ValueReader, ValueWriter};

/// The mapping below `esker.Keyspace`.
#[pyclass(frozen, subclass, extends = Reads, module = "esker._esker")]
pub(crate) struct Keyspace;

/// The history that Python asks for: `all`, `for` with microseconds, `newest` with versions.
type Kept = (String, u64);

fn kept_history((kind, amount): &Kept) -> History {
    match kind.as_str() {
        "for" => History::For(Duration::from_micros(*amount)),
        "newest" => History::Newest(*amount),
        _ => History::All,
    }
}

#[pymethods]
impl Keyspace {
    #[new]
    fn new(
        py: Python<'_>,
        store: &Store,
        name: &str,
        create: bool,
        sizes: (Option<u64>, Option<u64>),
        choices: (Option<String>, Option<String>, Option<Kept>, Option<f64>),
        merge: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let db = store.open().db(py)?;
        let (memtable_bytes, inline_bytes_max) = sizes;
        let mut options = KeyspaceOptions::default().memtable_bytes(memtable_bytes);
        let (compression, index, history, history_share) = choices;
        if let Some(name) = compression {
            let chosen = name.parse().map_err(|error| raised::of_store(py, &error))?;
            options = options.compression(chosen);
        }
        if let Some(name) = index {
            let chosen = name.parse::<IndexKind>().map_err(Error::from);
            options = options.index(chosen.map_err(|error| raised::of_store(py, &error))?);
        }
        if let Some(bytes) = inline_bytes_max {
            options = options.inline_bytes_max(bytes);
        }
        if let Some(merge) = merge {
            options = operator::chosen(options, merge)?;
        }
        if let Some(kept) = history {
            options = options.history(kept_history(&kept));
        }
        if let Some(share) = history_share {
            options = options.history_share(share);
        }
        let found = detached(py, || {
            let found = if create { None } else { db.open_keyspace(name)? };
            match found {
                None if !create => Err(Error::NoKeyspace { name: name.to_owned() }),
                _ => db.keyspace(name, options),
            }
        });
        let reads = Reads::new(store.open(), found?, At::Now);
        Ok(PyClassInitializer::from(reads).add_subclass(Self))
    }

    fn __setitem__(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Self::insert(this, key, value, None, None)
    }

    fn __delitem__(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        match removed(&this, key)? {
            Some(_) => Ok(()),
            None => Err(raised::no_key(key)),
        }
    }

    /// Set the value of `key`, as `keyspace[key] = value` does, with a durability of its own if one
    /// is given. A key has at most 65,536 bytes, a value at most 1 GiB. No read, one write to the
    /// log; a value of more than 262,144 bytes is written to the data file, and its place to the
    /// log. With `ttl` the value expires after this many seconds, which may be a fraction; then the
    /// key is absent, as if it had been removed. A later write replaces the value and its expiry.
    /// An iterator and a snapshot keep to the moment at which they were made.
    #[pyo3(signature = (key, value, *, ttl=None, durability=None))]
    fn insert(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        durability: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, reads) = (this.py(), this.as_super());
        let durability = self::durability(reads.open(), durability)?;
        let ttl = ttl::of(ttl)?;
        let (key, value) = (Buffer::key(key)?, Buffer::value(value)?);
        let (key, value) = (key.as_ref(), value.as_ref());
        let (keyspace, turns) = (reads.keyspace(py)?, reads.open().turns());
        let Some(ttl) = ttl else {
            return detached(py, || {
                let _turn = turns.take(key);
                keyspace.insert_with(key, value, durability)
            });
        };
        let mut batch = reads.open().db(py)?.batch();
        detached(py, || {
            batch.insert_with_ttl(keyspace, key, value, ttl);
            let _turn = turns.take(key);
            batch.commit_with(durability).map(drop)
        })
    }

    /// Set the value of `key` for a number of seconds, as `insert` with `ttl`.
    fn insert_with_ttl(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        seconds: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Self::insert(this, key, value, Some(seconds), None)
    }

    /// Merge `operand` onto the value of `key`: the keyspace's merge operator computes the result;
    /// where there is no value, the operand becomes the value. An operand has at most 262,144
    /// bytes. No read, and one write to the log.
    #[pyo3(signature = (key, operand, *, durability=None))]
    fn merge(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        operand: &Bound<'_, PyAny>,
        durability: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, reads) = (this.py(), this.as_super());
        let durability = self::durability(reads.open(), durability)?;
        let (key, operand) = (Buffer::key(key)?, Buffer::value(operand)?);
        let (key, operand) = (key.as_ref(), operand.as_ref());
        let (keyspace, turns) = (reads.keyspace(py)?, reads.open().turns());
        detached(py, || {
            let _turn = turns.take(key);
            keyspace.merge_with(key, operand, durability)
        })
    }

    /// Remove `key`, which need not exist: no read, unlike `del keyspace[key]`, and one write to
    /// the log.
    #[pyo3(signature = (key, *, durability=None))]
    fn remove(
        this: PyRef<'_, Self>,
        key: &Bound<'_, PyAny>,
        durability: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, reads) = (this.py(), this.as_super());
        let durability = self::durability(reads.open(), durability)?;
        let key = Buffer::key(key)?;
        let (key, keyspace, turns) = (key.as_ref(), reads.keyspace(py)?, reads.open().turns());
        detached(py, || {
            let _turn = turns.take(key);
            keyspace.remove_with(key, durability)
        })
    }

    /// Remove all keys with `start <= key < end`, however many there are: no read, and one write to
    /// the log. Without `start` from the first key, without `end` to the last. Open iterators and
    /// snapshots still see them.
    #[pyo3(signature = (start=None, end=None, *, durability=None))]
    fn remove_range(
        this: PyRef<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        end: Option<&Bound<'_, PyAny>>,
        durability: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (py, reads) = (this.py(), this.as_super());
        let durability = self::durability(reads.open(), durability)?;
        let (start, end) = (start.map(Buffer::key).transpose()?, end.map(Buffer::key).transpose()?);
        let (keyspace, turns) = (reads.keyspace(py)?, reads.open().turns());
        let bounds = between(&start, &end);
        detached(py, || {
            let _turns = turns.take_all(Turns::all());
            keyspace.remove_range_with::<&[u8]>(bounds, durability)
        })
    }

    /// Remove all keys that begin with `prefix`, as `remove_range` does.
    fn remove_prefix(this: PyRef<'_, Self>, prefix: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, reads) = (this.py(), this.as_super());
        let prefix = Buffer::key(prefix)?;
        let (prefix, keyspace) = (prefix.as_ref(), reads.keyspace(py)?);
        let turns = reads.open().turns();
        detached(py, || {
            let _turns = turns.take_all(Turns::all());
            keyspace.remove_prefix(prefix)
        })
    }

    /// Remove `key` and return its value, or `default`, if given, where there is none. If several
    /// threads call this at the same time, one gets the value.
    #[pyo3(signature = (key, *default), text_signature = "($self, key, default=..., /)")]
    fn pop<'py>(
        this: PyRef<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            let count = default.len() + 1;
            let text = format!("pop takes a key and at most one default, not {count} arguments");
            return Err(raised::wrong_type(this.py(), &text));
        }
        match removed(&this, key)? {
            Some(value) => Ok(PyBytes::new(this.py(), &value).into_any()),
            None if !default.is_empty() => default.get_item(0),
            None => Err(raised::no_key(key)),
        }
    }

    /// Remove the entry with the smallest key and return it; `KeyError` where there is none. If
    /// several threads call this at the same time, one gets it.
    fn popitem<'py>(
        this: PyRef<'py, Self>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (py, reads) = (this.py(), this.as_super());
        let (keyspace, turns) = (reads.keyspace(py)?, reads.open().turns());
        let popped = detached(py, || {
            while let Some((key, _)) = keyspace.first()? {
                let _turn = turns.take(&key);
                // Another thread may have removed it first.
                if let Some(value) = keyspace.get(&key)? {
                    keyspace.remove(&key)?;
                    return Ok(Some((key, value)));
                }
            }
            Ok(None)
        })?;
        let (key, value) = popped.ok_or_else(|| raised::none_left(py))?;
        Ok((PyBytes::new(py, &key), PyBytes::new(py, &value)))
    }

    /// Return the value of `key`; if there is none, set it to `default` and return that.
    fn setdefault<'py>(
        this: PyRef<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (py, reads) = (this.py(), this.as_super());
        let (key, value) = (Buffer::key(key)?, Buffer::value(default)?);
        let (key, value) = (key.as_ref(), value.as_ref());
        let (keyspace, turns) = (reads.keyspace(py)?, reads.open().turns());
        let there = detached(py, || {
            let _turn = turns.take(key);
            let there = keyspace.get(key)?;
            if there.is_none() {
                keyspace.insert(key, value)?;
            }
            Ok(there)
        })?;
        Ok(PyBytes::new(py, there.as_deref().unwrap_or(value)))
    }

    fn _reader(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<ValueReader> {
        values::reader(this.py(), this.as_super(), key)
    }

    fn _changes(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<Changes> {
        let (py, reads) = (this.py(), this.as_super());
        let key = Buffer::key(key)?;
        let (key, keyspace) = (key.as_ref(), reads.keyspace(py)?);
        let changes = detached(py, || keyspace.history(key))?;
        Ok(Changes::new(reads.open(), changes))
    }

    fn _key_changes(
        this: PyRef<'_, Self>,
        since: Option<Version>,
        until: Option<Version>,
        keys: Keys<'_>,
    ) -> PyResult<KeyChanges> {
        KeyChanges::of(this.py(), this.as_super(), (since, until), &keys)
    }

    fn _diff(
        this: PyRef<'_, Self>,
        before: Version,
        after: Option<Version>,
        keys: Keys<'_>,
    ) -> PyResult<Diff> {
        Diff::of(this.py(), this.as_super(), (before, after), &keys)
    }

    fn _set_history(this: PyRef<'_, Self>, kept: Kept) -> PyResult<()> {
        let keyspace = this.as_super().keyspace(this.py())?;
        detached(this.py(), || keyspace.set_history(kept_history(&kept)))
    }

    fn _erase(this: PyRef<'_, Self>, keys: Vec<Vec<u8>>) -> PyResult<()> {
        let keyspace = this.as_super().keyspace(this.py())?;
        detached(this.py(), || keyspace.erase(&keys))
    }

    fn _writer(this: PyRef<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<ValueWriter> {
        values::writer(this.py(), this.as_super(), key)
    }

    /// Return an empty batch, for `update`.
    fn _batch(this: PyRef<'_, Self>) -> PyResult<Batch> {
        let (py, open) = (this.py(), this.as_super().open());
        Batch::empty(py, open, durability(open, None)?)
    }

    /// Remove every entry, however many there are: one step, and one write to the log.
    fn clear(this: PyRef<'_, Self>) -> PyResult<()> {
        let (py, reads) = (this.py(), this.as_super());
        let (keyspace, turns) = (reads.keyspace(py)?, reads.open().turns());
        detached(py, || {
            let _turns = turns.take_all(Turns::all());
            keyspace.remove_range::<&[u8]>(..)
        })
    }

    /// Flush the part of the keyspace that is only in memory (and in the log) to the data file.
    fn flush(this: PyRef<'_, Self>) -> PyResult<()> {
        let keyspace = this.as_super().keyspace(this.py())?;
        detached(this.py(), || keyspace.flush())
    }

    /// Compact the keyspace into one level without garbage. This reads and writes all of it.
    fn compact(this: PyRef<'_, Self>) -> PyResult<()> {
        let keyspace = this.as_super().keyspace(this.py())?;
        detached(this.py(), || keyspace.compact())
    }
}

/// Returns the value of a key after removing the key.
fn removed(this: &PyRef<'_, Keyspace>, key: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    let (py, reads) = (this.py(), this.as_super());
    let key = Buffer::key(key)?;
    let (key, keyspace, turns) = (key.as_ref(), reads.keyspace(py)?, reads.open().turns());
    detached(py, || {
        let _turn = turns.take(key);
        let value = keyspace.get(key)?;
        if value.is_some() {
            keyspace.remove(key)?;
        }
        Ok(value)
    })
}
