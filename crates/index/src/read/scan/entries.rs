//! The entries of a batch: keys and values, back to back in pieces of 16 KiB.
//!
//! An entry is copied once, from its block to the pieces. What a caller takes is copied out of
//! them, so that memory is requested for one entry at a time. A piece is never moved: a batch
//! takes no more memory than its bytes and one piece. The pieces of what was taken are freed.
//!
//! Invariant: the places ascend; an entry begins where the one before it ends.
//! Invariant: all pieces but the last one have 16 KiB, until they are freed.

use std::ops::Range;

use esker_format::data::{BlobOperand, Data, Value};

/// Most entries that memory is requested for before they are there.
const RESERVED_MAX: usize = 128;
const PIECE_BYTES: usize = 16 << 10;

/// Keys and values, or the blobs' references, in the direction of the scan.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    pieces: Vec<Vec<u8>>,
    /// Bytes of all pieces.
    bytes: usize,
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
        self.bytes
    }

    /// Requests memory for `entries` like the first one, which is added next, and one piece at
    /// most.
    fn reserve(&mut self, entries: usize, entry_bytes: usize) {
        self.places.reserve(entries);
        if self.pieces.is_empty() {
            let bytes = entries.saturating_mul(entry_bytes).min(PIECE_BYTES);
            self.pieces.push(Vec::with_capacity(bytes));
        }
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
        let key_end = self.append(key);
        let end = self.append(value);
        self.places.push(Place { key_end, end, form });
    }

    /// Adds a key with a value of its own.
    pub(super) fn push_value(&mut self, key: &[u8], value: &Value) {
        match value {
            Value::Inline(value) => self.push(key, Data::Put(value)),
            Value::Blob(content) => self.push(key, Data::Reference(content)),
            Value::Operand(onto) => {
                let key_end = self.append(key);
                let form = Form::Operand(self.append(&onto.content));
                let end = self.append(&onto.operand);
                self.places.push(Place { key_end, end, form });
            }
        }
    }

    /// Adds bytes behind the others; returns where they end.
    #[inline]
    fn append(&mut self, bytes: &[u8]) -> usize {
        match self.pieces.last_mut() {
            Some(last) if last.len() + bytes.len() <= last.capacity().min(PIECE_BYTES) => {
                last.extend_from_slice(bytes);
            }
            _ => self.append_in_parts(bytes),
        }
        self.bytes += bytes.len();
        self.bytes
    }

    fn append_in_parts(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.pieces.last().map_or(0, |last| PIECE_BYTES.saturating_sub(last.len()));
            match self.pieces.last_mut() {
                Some(last) if room > 0 => {
                    let (part, rest) = bytes.split_at(room.min(bytes.len()));
                    if last.capacity() < PIECE_BYTES {
                        last.reserve_exact(room);
                    }
                    last.extend_from_slice(part);
                    bytes = rest;
                }
                _ => self.pieces.push(Vec::with_capacity(PIECE_BYTES)),
            }
        }
    }

    /// Takes back what was added behind the first `len` entries.
    pub(super) fn truncate(&mut self, len: usize) {
        self.places.truncate(len);
        self.bytes = self.places.last().map_or(0, |last| last.end);
        self.pieces.truncate(self.bytes.div_ceil(PIECE_BYTES).max(1));
        let before = self.pieces.len().saturating_sub(1) * PIECE_BYTES;
        if let Some(last) = self.pieces.last_mut() {
            last.truncate(self.bytes.saturating_sub(before));
        }
    }

    #[inline]
    fn slice(&self, from: usize, to: usize) -> Vec<u8> {
        let (mut bytes, mut at) = (Vec::with_capacity(to.saturating_sub(from)), from);
        while at < to {
            let piece = self.pieces.get(at / PIECE_BYTES).map_or(&[][..], Vec::as_slice);
            let begin = at % PIECE_BYTES;
            let end = piece.len().min(begin + (to - at));
            let Some(part) = piece.get(begin..end).filter(|part| !part.is_empty()) else { break };
            bytes.extend_from_slice(part);
            at += part.len();
        }
        bytes
    }

    /// Where an entry begins.
    fn begin(&self, index: usize) -> usize {
        let before = index.checked_sub(1).and_then(|before| self.places.get(before));
        before.map_or(0, |before| before.end)
    }

    /// Where an entry ends.
    fn end(&self, index: usize) -> usize {
        self.places.get(index).map_or(self.bytes, |place| place.end)
    }

    /// Frees pieces, of which no entry is wanted any more.
    fn free(&mut self, pieces: Range<usize>) {
        for piece in self.pieces.get_mut(pieces).unwrap_or_default() {
            *piece = Vec::new();
        }
    }

    /// A key and an inline value that are in one piece.
    #[inline]
    fn lend(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let Place { key_end, end, form: Form::Inline } = *self.places.get(index)? else {
            return None;
        };
        let begin = self.begin(index);
        let number = begin / PIECE_BYTES;
        // At a border its piece is freed with it.
        if number != end / PIECE_BYTES {
            return None;
        }
        let entry = self.pieces.get(number)?.get(begin % PIECE_BYTES..end % PIECE_BYTES)?;
        entry.split_at_checked(key_end - begin)
    }

    /// A copy of the first key.
    pub(crate) fn first_key(&self) -> Option<Vec<u8>> {
        self.places.first().map(|place| self.slice(0, place.key_end))
    }

    /// A copy of an entry.
    fn get(&self, index: usize) -> Option<(Vec<u8>, Value)> {
        let Place { key_end, end, form } = *self.places.get(index)?;
        let value = match form {
            Form::Inline => Value::Inline(self.slice(key_end, end)),
            Form::Blob => Value::Blob(self.slice(key_end, end)),
            Form::Operand(border) => {
                let (content, operand) = (self.slice(key_end, border), self.slice(border, end));
                Value::Operand(Box::new(BlobOperand { content, operand }))
            }
        };
        Some((self.slice(self.begin(index), key_end), value))
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

impl IntoIter {
    /// Whether there is a next entry, with an inline value and in one piece.
    #[must_use]
    #[inline]
    pub fn lends(&self) -> bool {
        !self.left.is_empty() && self.entries.lend(self.left.start).is_some()
    }

    /// The next key with its value, without a copy, if [it lends](Self::lends); else nothing is
    /// taken.
    #[inline]
    pub fn next_lent(&mut self) -> Option<(&[u8], &[u8])> {
        let index = self.left.start;
        let lent = self.entries.lend(index).filter(|_| !self.left.is_empty())?;
        self.left.start = index + 1;
        Some(lent)
    }
}

impl Iterator for IntoIter {
    type Item = (Vec<u8>, Value);

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.left.next()?;
        let entry = self.entries.get(index);
        let (begin, end) = (self.entries.begin(index), self.entries.end(index));
        if begin / PIECE_BYTES != end / PIECE_BYTES {
            self.entries.free(begin / PIECE_BYTES..end / PIECE_BYTES);
        }
        entry
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl DoubleEndedIterator for IntoIter {
    fn next_back(&mut self) -> Option<Self::Item> {
        let index = self.left.next_back()?;
        let entry = self.entries.get(index);
        let first = self.entries.begin(index).div_ceil(PIECE_BYTES);
        let behind = self.entries.end(index).div_ceil(PIECE_BYTES);
        if first < behind {
            self.entries.free(first..behind);
        }
        entry
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

    #[test]
    fn a_batch_takes_its_bytes_and_one_piece_and_frees_what_is_taken() {
        let entry = |number: usize| {
            let len = [3, 100, 5_000, 40_000, 0][number % 5] + number;
            (format!("key {number:03}").into_bytes(), Value::Inline(vec![number as u8; len]))
        };
        let mut entries = Entries::expecting(8);
        (0..60).for_each(|number| {
            let (key, value) = entry(number);
            entries.push_value(&key, &value);
        });
        let taken = |entries: &Entries| entries.pieces.iter().map(Vec::capacity).sum::<usize>();
        assert!(taken(&entries) < entries.bytes() + PIECE_BYTES);
        assert!(entries.pieces.iter().rev().skip(1).all(|piece| piece.len() == PIECE_BYTES));
        let mut shorter = entries.clone();
        shorter.truncate(7);
        assert!(shorter.bytes() > taken(&shorter) - PIECE_BYTES);
        assert!(shorter.into_iter().eq((0..7).map(entry)));
        let mut left = entries.into_iter();
        for number in 0..30 {
            assert_eq!(left.next(), Some(entry(number)));
            assert_eq!(left.next_back(), Some(entry(59 - number)));
            let wanted = left.entries.end(59 - number - 1) - left.entries.begin(number + 1);
            assert!(taken(&left.entries) <= wanted + 2 * PIECE_BYTES, "{number}");
        }
        assert!(left.next().is_none() && left.next_back().is_none());
    }
}
