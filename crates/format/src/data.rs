//! The data of an operation on a key: the same in the log, in memtables and in blocks.
//!
//! Every kind but a delete has a **content**, a byte string after the key: the value, preceded by
//! what else the kind needs.

use crate::VALUE_BYTES_MAX;
use crate::bytes::{Reader, put_varint, varint_len};
use crate::entry::Kind;
use crate::error::Result;
use crate::ids::Moment;
use crate::value_ref::ValueRef;

/// The longest content: a value with a moment in front of it.
pub const CONTENT_BYTES_MAX: usize = VALUE_BYTES_MAX + 10;

/// The data of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// It has no value.
    Delete,
    /// It has this value.
    Put(&'a [u8]),
    /// It has this value until this moment, and none from then on.
    PutUntil(Moment, &'a [u8]),
    /// A blob: the value is where an encoded [`ValueRef`] points, perhaps until a moment.
    Reference(&'a [u8]),
    /// Its value is changed: this is merged onto the value, or the operand, of the next older
    /// version. Where there is none it is the value.
    Operand(&'a [u8]),
}

impl<'a> Data<'a> {
    /// The kind of entry for this data.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Delete => Kind::Delete,
            Self::Put(_) => Kind::Put,
            Self::PutUntil(..) => Kind::PutUntil,
            Self::Reference(_) => Kind::Reference,
            Self::Operand(_) => Kind::Operand,
        }
    }

    /// Whether it deletes, at every moment.
    #[must_use]
    pub const fn is_delete(&self) -> bool {
        matches!(self, Self::Delete)
    }

    /// The inline value, whether it has expired or not; for a blob the reference, and for a merge
    /// operand the operand.
    #[must_use]
    pub const fn value(&self) -> Option<&'a [u8]> {
        match self {
            Self::Delete => None,
            Self::Put(value)
            | Self::PutUntil(_, value)
            | Self::Reference(value)
            | Self::Operand(value) => Some(value),
        }
    }

    /// The reference to a blob.
    #[must_use]
    pub const fn reference(&self) -> Option<&'a [u8]> {
        match self {
            Self::Reference(content) => Some(content),
            Self::Delete | Self::Put(_) | Self::PutUntil(..) | Self::Operand(_) => None,
        }
    }

    /// Whether it is a merge operand, which changes the value of older versions.
    #[must_use]
    pub const fn is_operand(&self) -> bool {
        matches!(self, Self::Operand(_))
    }

    /// Length of the value, blob or operand, in bytes; 0 for none.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        match self {
            Self::Reference(content) => ValueRef::bytes_of(content),
            _ => self.value().map_or(0, |value| value.len() as u64),
        }
    }

    /// The moment from which on there is no value.
    #[must_use]
    pub fn until(&self) -> Option<Moment> {
        match self {
            Self::PutUntil(until, _) => Some(*until),
            Self::Reference(content) => ValueRef::until_of(content),
            Self::Delete | Self::Put(_) | Self::Operand(_) => None,
        }
    }

    /// The same for all readers from `now` on.
    #[must_use]
    pub fn as_of(self, now: Moment) -> Self {
        if self.until().is_some_and(|until| until <= now) { Self::Delete } else { self }
    }

    /// Length of the content, in bytes; `None` without a content.
    #[must_use]
    pub const fn content_len(&self) -> Option<usize> {
        match self {
            Self::Delete => None,
            Self::Put(value) | Self::Reference(value) | Self::Operand(value) => Some(value.len()),
            Self::PutUntil(until, value) => Some(varint_len(until.0) + value.len()),
        }
    }

    /// Appends the content without its length.
    pub fn put_content(&self, out: &mut Vec<u8>) {
        if let Self::PutUntil(until, _) = self {
            put_varint(out, until.0);
        }
        out.extend_from_slice(self.value().unwrap_or_default());
    }

    /// Reads a content of `len` bytes.
    pub(crate) fn decode(kind: Kind, reader: &mut Reader<'a>, len: usize) -> Result<Self> {
        let at = reader.clone();
        match kind {
            Kind::Put if len <= VALUE_BYTES_MAX => Ok(Self::Put(reader.take(len)?)),
            Kind::Operand if len <= VALUE_BYTES_MAX => Ok(Self::Operand(reader.take(len)?)),
            Kind::PutUntil => {
                let start = reader.offset();
                let until = Moment(reader.varint()?);
                let rest = len.checked_sub(reader.offset().saturating_sub(start));
                let rest = rest.filter(|rest| *rest <= VALUE_BYTES_MAX);
                let rest = rest.ok_or_else(|| at.error("value has a wrong length"))?;
                Ok(Self::PutUntil(until, reader.take(rest)?))
            }
            Kind::Reference => {
                let content = reader.take(len)?;
                ValueRef::check(content).map_err(|error| at.error(error.what))?;
                Ok(Self::Reference(content))
            }
            Kind::Put | Kind::Operand | Kind::Delete | Kind::Fence => {
                Err(at.error("value has a wrong length"))
            }
        }
    }
}

/// An inline value, or a reference to a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// The value.
    Inline(Vec<u8>),
    /// An encoded [`ValueRef`].
    Blob(Vec<u8>),
    /// A merge operand on a blob. Rare, and boxed: scans hold many values.
    Operand(Box<BlobOperand>),
}

/// A blob, and a merge operand on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobOperand {
    /// An encoded [`ValueRef`].
    pub content: Vec<u8>,
    /// The operand.
    pub operand: Vec<u8>,
}

impl Value {
    /// Bytes that it takes here.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        match self {
            Self::Inline(bytes) | Self::Blob(bytes) => bytes.len(),
            Self::Operand(onto) => onto.content.len() + onto.operand.len(),
        }
    }

    /// The value, if it is here.
    #[must_use]
    pub fn here(self) -> Option<Vec<u8>> {
        match self {
            Self::Inline(value) => Some(value),
            Self::Blob(_) | Self::Operand(_) => None,
        }
    }
}

/// [`Data`] with bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataBuf {
    value: Option<Value>,
    until: Option<Moment>,
    /// The value is an operand.
    is_operand: bool,
}

impl DataBuf {
    /// The data, borrowed.
    #[must_use]
    pub fn as_data(&self) -> Data<'_> {
        match (&self.value, self.until) {
            (None, _) => Data::Delete,
            (Some(Value::Inline(operand)), _) if self.is_operand => Data::Operand(operand),
            (Some(Value::Inline(value)), None) => Data::Put(value),
            (Some(Value::Inline(value)), Some(until)) => Data::PutUntil(until, value),
            (Some(Value::Blob(content)), _) => Data::Reference(content),
            // A version's data is never this.
            (Some(Value::Operand(onto)), _) => Data::Reference(&onto.content),
        }
    }

    /// Whether it is an operand.
    #[must_use]
    pub const fn is_operand(&self) -> bool {
        self.is_operand
    }

    /// The value for all readers at the moment that `now` returns; `now` is called only where it
    /// matters.
    pub fn into_value(self, now: impl FnOnce() -> Moment) -> Option<Value> {
        let is_over = self.until.is_some_and(|until| until <= now());
        self.value.filter(|_| !is_over)
    }
}

impl From<Data<'_>> for Option<Value> {
    /// The value; an operand is one where nothing is older.
    fn from(data: Data<'_>) -> Self {
        match data {
            Data::Reference(content) => Some(Value::Blob(content.to_vec())),
            _ => data.value().map(|value| Value::Inline(value.to_vec())),
        }
    }
}

impl From<Data<'_>> for DataBuf {
    fn from(data: Data<'_>) -> Self {
        Self { value: data.into(), until: data.until(), is_operand: data.is_operand() }
    }
}

impl<'a> From<Option<&'a [u8]>> for Data<'a> {
    /// A value, or none.
    fn from(value: Option<&'a [u8]>) -> Self {
        value.map_or(Self::Delete, Self::Put)
    }
}
