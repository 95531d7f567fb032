//! One operation of a write: it changes one key, or deletes a range of keys.
//!
//! A range tombstone is in the log and, later, in the manifest ([`crate::meta::RemovedRange`]); it
//! is in no block.

use crate::KEY_BYTES_MAX;
use crate::bytes::{Reader, put_byte_string};
use crate::data::Data;
use crate::error::Result;

/// The kind of a range deletion in the log: no entry of a block has it.
pub const KIND_REMOVE_RANGE: u8 = 4;

/// Keys from `begin` up to, and without, `end`. Both are at most [`KEY_BYTES_MAX`] long, and
/// `begin` is less than `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange<'a> {
    /// The first key.
    pub begin: &'a [u8],
    /// The key behind the last one; `None`: there is no end.
    pub end: Option<&'a [u8]>,
}

/// [`KeyRange`] with bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRangeBuf {
    /// The first key.
    pub begin: Vec<u8>,
    /// The key behind the last one; `None`: there is no end.
    pub end: Option<Vec<u8>>,
}

impl KeyRangeBuf {
    /// The range.
    #[must_use]
    pub fn as_range(&self) -> KeyRange<'_> {
        KeyRange { begin: &self.begin, end: self.end.as_deref() }
    }
}

impl From<KeyRange<'_>> for KeyRangeBuf {
    fn from(keys: KeyRange<'_>) -> Self {
        Self { begin: keys.begin.to_vec(), end: keys.end.map(<[u8]>::to_vec) }
    }
}

/// One operation on a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOp<'a> {
    /// A put, a deletion or a merge operand of one key.
    Point(&'a [u8], Data<'a>),
    /// Keys have no values any more, whether they had any or not.
    DeleteRange(KeyRange<'a>),
}

impl<'a> KeyRange<'a> {
    /// Whether `key` is in the range.
    #[must_use]
    pub fn has(&self, key: &[u8]) -> bool {
        self.begin <= key && self.end.is_none_or(|end| key < end)
    }

    /// Whether there are keys in both.
    #[must_use]
    pub fn meets(&self, other: &KeyRange<'_>) -> bool {
        other.end.is_none_or(|end| self.begin < end) && self.end.is_none_or(|end| other.begin < end)
    }

    /// Bytes of both keys.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.begin.len().saturating_add(self.end.map_or(0, <[u8]>::len))
    }

    /// Appends the range: `begin`, then `end`, which is empty where there is none.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_byte_string(out, self.begin);
        put_byte_string(out, self.end.unwrap_or_default());
    }

    /// Reads a range.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let at = reader.clone();
        let begin = reader.byte_string(KEY_BYTES_MAX)?;
        let end = Some(reader.byte_string(KEY_BYTES_MAX)?).filter(|end| !end.is_empty());
        if end.is_some_and(|end| end <= begin) {
            return Err(at.error("a range of keys ends before it begins"));
        }
        Ok(Self { begin, end })
    }
}

impl<'a> WriteOp<'a> {
    /// The key that the operation changes.
    #[must_use]
    pub const fn key(&self) -> Option<&'a [u8]> {
        match self {
            Self::Point(key, _) => Some(key),
            Self::DeleteRange(_) => None,
        }
    }

    /// The operation's data for the key.
    #[must_use]
    pub const fn data(&self) -> Option<Data<'a>> {
        match self {
            Self::Point(_, data) => Some(*data),
            Self::DeleteRange(_) => None,
        }
    }

    /// The deleted range.
    #[must_use]
    pub const fn removed(&self) -> Option<KeyRange<'a>> {
        match self {
            Self::Point(..) => None,
            Self::DeleteRange(range) => Some(*range),
        }
    }

    /// Whether nothing is there afterwards that was not there before.
    #[must_use]
    pub const fn only_deletes(&self) -> bool {
        match self {
            Self::Point(_, data) => data.is_delete(),
            Self::DeleteRange(_) => true,
        }
    }

    /// Bytes of keys and value.
    #[must_use]
    pub fn user_bytes(&self) -> u64 {
        match self {
            Self::Point(key, data) => (key.len() as u64).saturating_add(data.value_bytes()),
            Self::DeleteRange(range) => range.key_bytes() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range<'a>(begin: &'a str, end: Option<&'a str>) -> KeyRange<'a> {
        KeyRange { begin: begin.as_bytes(), end: end.map(str::as_bytes) }
    }

    #[test]
    fn a_range_has_its_begin_and_not_its_end() {
        let some = range("b", Some("d"));
        assert!(some.has(b"b") && some.has(b"c\xff") && !some.has(b"d") && !some.has(b"a"));
        assert!(range("b", None).has(&[0xff; 9]));
    }

    #[test]
    fn ranges_meet_where_they_share_a_key() {
        let some = range("b", Some("d"));
        assert!(some.meets(&range("c", None)) && some.meets(&range("", Some("b\0"))));
        assert!(!some.meets(&range("", Some("b"))) && !some.meets(&range("d", None)));
    }

    #[test]
    fn reversed_and_empty_ranges_are_refused() {
        for bytes in [&b"\x01b\x01a"[..], b"\x01b\x01b"] {
            assert!(KeyRange::decode(&mut Reader::new(bytes)).is_err());
        }
        let open = KeyRange::decode(&mut Reader::new(b"\x01b\0")).unwrap();
        assert_eq!(open, range("b", None));
    }
}
