//! Merge operands: versions that change a value instead of replacing it.
//!
//! An operand alone is not a value. A read takes a key's versions from the newest on and joins
//! operands to one, until a version gives their base: a value, or its absence. Because an operator
//! is associative, that one operand is all that has to be kept while reading, and merges may join
//! operands that no snapshot distinguishes, in any groups in which they meet them.
//!
//! Reading order: this module (the operator, and its uses), `unwind` (calls of user code), `fold`
//! (the value that a writer puts in the place of many operands).
//!
//! Invariant: a key's value depends on its versions alone, and not on which merges have run: the
//! base of an operand is the next older version that its reader sees; if that is a tombstone, a
//! range tombstone, an expired value, or nothing, the operand is the value.
//! Invariant (joined for all or not): a merge joins two versions only when every reader sees both
//! or neither; the result has the newer one's number.
//! Invariant (left as written): what cannot be joined (no operator, one that fails, a result too
//! long, a blob or a value with an expiry) is written as it was.
//! Invariant: the new side of a flush contains what its frozen memtable contains: a read takes a
//! key from one of them and never from both.

mod fold;
mod unwind;

use std::fmt;
use std::sync::Arc;

use esker_format::VALUE_BYTES_MAX;
use esker_format::backup::checksum;
use esker_format::data::{BlobOperand, Data, Value};
use esker_format::value_ref::LARGE_VALUE_BYTES_MAX;
use esker_substrate::error::{Error, Result};

use crate::Index;

/// The error of a [`MergeOperator`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The merge operator of a keyspace, which defines how operands change values: counters that are
/// added to, lists that are appended to, sets that grow.
///
/// `merge(key, older, newer)` returns the result of applying `newer` to `older`, which is a value
/// or an operand. It must be **associative**: `merge(merge(a, b), c)` and `merge(a, merge(b, c))`
/// are the same, because operands are joined in any groups; and it must depend on nothing but its
/// arguments, now and whenever the store is opened again. An operand without an older value is the
/// value.
///
/// It is called by reads, and by merges in threads of the store, from several threads at once. It
/// must not use the store. An error or a panic is an error of the read; merges then leave the
/// operands as they are, and nothing is lost.
pub trait MergeOperator: Send + Sync {
    /// The result of applying `newer` to `older`.
    ///
    /// # Errors
    /// When the two cannot be merged: a read of `key` returns this error.
    fn merge(
        &self,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> std::result::Result<Vec<u8>, BoxError>;
}

impl<F> MergeOperator for F
where
    F: Fn(&[u8], &[u8], &[u8]) -> std::result::Result<Vec<u8>, BoxError> + Send + Sync,
{
    fn merge(
        &self,
        key: &[u8],
        older: &[u8],
        newer: &[u8],
    ) -> std::result::Result<Vec<u8>, BoxError> {
        self(key, older, newer)
    }
}

/// A keyspace's operator, as far as it is known.
#[derive(Clone, Default)]
pub struct Operator {
    /// Its name in the manifest; `None`: there are no operands.
    pub name: Option<Arc<str>>,
    /// The keyspace's name, for errors.
    pub keyspace: Arc<str>,
    /// The operator's function; `None`: not given yet.
    pub function: Option<Arc<dyn MergeOperator>>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("name", &self.name)
            .field("is_given", &self.function.is_some())
            .finish_non_exhaustive()
    }
}

impl Operator {
    /// The result of applying `newer` to `older`.
    ///
    /// # Errors
    /// [`Error::Operator`]: the operator has not been given, it fails or panics, or its result is
    /// longer than any value.
    pub fn join(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Result<Vec<u8>> {
        let failed = |why: String| {
            let (name, keyspace) = (self.name.as_deref().unwrap_or("?"), &self.keyspace);
            // The key itself may be a secret, and an error goes to logs.
            let (len, crc) = (key.len(), checksum(key));
            let what = format!(
                "merge operator {name} of keyspace {keyspace}: {why} \
                 (key of {len} bytes, CRC-32C {crc:08x})"
            );
            Error::Operator { what }
        };
        let Some(function) = self.function.as_deref() else {
            return Err(failed("open the keyspace with it to read operands".into()));
        };
        let joined = unwind::merge(function, key, older, newer).map_err(failed)?;
        if joined.len() as u64 > LARGE_VALUE_BYTES_MAX {
            return Err(failed(format!("it makes a value of {} bytes", joined.len())));
        }
        Ok(joined)
    }

    /// The same for a merge, which writes the result in a block; `None` where that is not
    /// possible.
    pub(crate) fn join_inline(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.function.as_ref()?;
        match self.join(key, older, newer) {
            Ok(joined) => Some(joined).filter(|joined| joined.len() <= VALUE_BYTES_MAX),
            Err(error) => {
                tracing::debug!(%error, "operands stay as they are");
                None
            }
        }
    }
}

/// The versions of a key that a read has found so far: operands, joined to one.
pub(crate) struct Stack<'a> {
    key: &'a [u8],
    operator: &'a Operator,
    operand: Option<Vec<u8>>,
}

impl<'a> Stack<'a> {
    pub(crate) const fn new(key: &'a [u8], operator: &'a Operator) -> Self {
        Self { key, operator, operand: None }
    }

    /// Takes the next older version, as of the read's moment. Returns the value, if that version
    /// completes it.
    pub(crate) fn push(&mut self, data: Data<'_>) -> Option<Result<Option<Value>>> {
        if let Data::Operand(older) = data {
            return self.push_operand(older).err().map(Err);
        }
        Some(self.onto(data))
    }

    /// Whether no operand has been found.
    pub(crate) const fn is_empty(&self) -> bool {
        self.operand.is_none()
    }

    fn push_operand(&mut self, older: &[u8]) -> Result<()> {
        let joined = match &self.operand {
            None => older.to_vec(),
            Some(newer) => self.operator.join(self.key, older, newer)?,
        };
        self.operand = Some(joined);
        Ok(())
    }

    fn onto(&mut self, data: Data<'_>) -> Result<Option<Value>> {
        let Some(newer) = self.operand.take() else { return Ok(data.into()) };
        Ok(Some(match data {
            Data::Delete => Value::Inline(newer),
            Data::Reference(content) => {
                Value::Operand(Box::new(BlobOperand { content: content.to_vec(), operand: newer }))
            }
            Data::Put(older) | Data::PutUntil(_, older) | Data::Operand(older) => {
                Value::Inline(self.operator.join(self.key, older, &newer)?)
            }
        }))
    }

    /// The value when nothing is older.
    pub(crate) fn end(self) -> Option<Value> {
        self.operand.map(Value::Inline)
    }

    /// The operands so far, joined to one.
    pub(crate) fn into_operand(self) -> Option<Vec<u8>> {
        self.operand
    }
}

impl Index {
    /// From now on operands are merged by this operator.
    pub fn set_operator(&self, operator: Operator) {
        self.operator.swap(Arc::new(operator));
    }

    /// The operator.
    pub fn operator(&self) -> Arc<Operator> {
        Arc::clone(&self.operator.load())
    }
}
