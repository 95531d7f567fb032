//! The entries of a batch: keys and values, back to back in one buffer.
//!
//! An entry is copied once, from its block to the buffer. What a caller takes is copied out of it,
//! so that memory is requested for one entry at a time.
//!
//! Invariant: the places ascend; an entry begins where the one before it ends.

use std::ops::Range;

use esker_format::data::{BlobOperand, Data, Value};

/// Most entries, and most bytes, that memory is requested for before they are there.
const RESERVED_MAX: usize = 128;
const RESERVED_BYTES_MAX: usize = 16 << 10;

/// Keys and values, or the blobs' references, in the direction of the scan.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// The number of entries that memory is requested for with the first one.
    expected: usize,
}

/// Where an entry ends.
#[derive(Clone, Copy, Debug)]
struct Place {
    key_end: usize,
    end: usize,
    form: Form,
}

/// What the bytes behind a key are.
#[derive(Clone, Copy, Debug)]
enum Form {
    Inline,
    Blob,
    /// A blob's reference up to the offset, and an operand.
    Operand(usize),
}

impl Entries {
    /// The number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Bytes of all keys and values.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Requests memory for `entries` like the first one, which is added next, and 16 KiB at most.
    fn reserve(&mut self, entries: usize, entry_bytes: usize) {
        self.places.reserve(entries);
        self.bytes.reserve(entries.saturating_mul(entry_bytes).min(RESERVED_BYTES_MAX));
    }

    /// No entries yet, and about so many later.
    pub(super) fn expecting(entries: usize) -> Self {
        Self { expected: entries.min(RESERVED_MAX), ..Self::default() }
    }

    /// Adds a key with the value that `data` is; without one, it adds nothing.
    pub(super) fn push(&mut self, key: &[u8], data: Data<'_>) {
        let Some(value) = data.value() else { return };
        let form = if data.reference().is_some() { Form::Blob } else { Form::Inline };
        if self.places.is_empty() {
            self.reserve(self.expected, key.len() + value.len());
        }
        let key_end = self.put_key(key);
        self.bytes.extend_from_slice(value);
        self.places.push(Place { key_end, end: self.bytes.len(), form });
    }

    /// Adds a key with a value of its own.
    pub(super) fn push_value(&mut self, key: &[u8], value: &Value) {
        match value {
            Value::Inline(value) => self.push(key, Data::Put(value)),
            Value::Blob(content) => self.push(key, Data::Reference(content)),
            Value::Operand(onto) => {
                let key_end = self.put_key(key);
                self.bytes.extend_from_slice(&onto.content);
                let form = Form::Operand(self.bytes.len());
                self.bytes.extend_from_slice(&onto.operand);
                self.places.push(Place { key_end, end: self.bytes.len(), form });
            }
        }
    }

    fn put_key(&mut self, key: &[u8]) -> usize {
        self.bytes.extend_from_slice(key);
        self.bytes.len()
    }

    /// Takes back what was added behind the first `len` entries.
    pub(super) fn truncate(&mut self, len: usize) {
        self.places.truncate(len);
        self.bytes.truncate(self.places.last().map_or(0, |last| last.end));
    }

    fn slice(&self, from: usize, to: usize) -> Vec<u8> {
        self.bytes.get(from..to).unwrap_or_default().to_vec()
    }

    /// A copy of an entry.
    fn get(&self, index: usize) -> Option<(Vec<u8>, Value)> {
        let Place { key_end, end, form } = *self.places.get(index)?;
        let before = index.checked_sub(1).and_then(|before| self.places.get(before));
        let value = match form {
            Form::Inline => Value::Inline(self.slice(key_end, end)),
            Form::Blob => Value::Blob(self.slice(key_end, end)),
            Form::Operand(border) => {
                let (content, operand) = (self.slice(key_end, border), self.slice(border, end));
                Value::Operand(Box::new(BlobOperand { content, operand }))
            }
        };
        Some((self.slice(before.map_or(0, |before| before.end), key_end), value))
    }
}

impl IntoIterator for Entries {
    type Item = (Vec<u8>, Value);
    type IntoIter = IntoIter;

    fn into_iter(self) -> IntoIter {
        IntoIter { left: 0..self.len(), entries: self }
    }
}

/// The entries of a batch that are left, from both ends.
#[derive(Clone, Debug, Default)]
pub struct IntoIter {
    entries: Entries,
    left: Range<usize>,
}

impl Iterator for IntoIter {
    type Item = (Vec<u8>, Value);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.get(self.left.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for IntoIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.entries.get(self.left.next_back()?)
    }
}

impl ExactSizeIterator for IntoIter {}

impl std::iter::FusedIterator for IntoIter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in() {
        let onto = BlobOperand { content: b"blob".to_vec(), operand: b"+1".to_vec() };
        let values = [
            Value::Inline(b"one".to_vec()),
            Value::Inline(Vec::new()),
            Value::Blob(b"reference".to_vec()),
            Value::Operand(Box::new(onto)),
            Value::Inline(b"last".to_vec()),
        ];
        let all: Vec<_> =
            values.into_iter().zip(1..).map(|(value, len)| (vec![b'k'; len], value)).collect();
        let mut entries = Entries::default();
        for (at, (key, value)) in all.iter().enumerate() {
            entries.push_value(b"taken back", value);
            entries.truncate(at);
            entries.push(b"deleted", Data::Delete);
            entries.push_value(key, value);
            assert_eq!(entries.len(), at + 1);
        }
        let bytes = all.iter().map(|(key, value)| key.len() + value.stored_len());
        assert_eq!(entries.bytes(), bytes.sum::<usize>());
        assert!(entries.clone().into_iter().eq(all.clone()));
        let mut left = entries.into_iter();
        assert_eq!(left.next_back().as_ref(), all.last());
        assert_eq!(left.next().as_ref(), all.first());
        assert_eq!(left.len(), 3);
        assert!(left.rev().eq(all[1..4].iter().rev().cloned()));
    }
}
