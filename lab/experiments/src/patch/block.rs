//! Blocks: sorted records in one page, or in several where one record needs them.
//!
//! Two bytes have the number of records. Each record has the number of bytes that its key shares
//! with the key before, the number of the rest, the length of its value plus one (0 for a
//! tombstone) as a variable-length integer, then the rest of the key and the value.

use std::sync::Arc;

use esker_format::Result as Decoded;
use esker_format::bytes::{Reader, put_varint};
use esker_format::key::common_prefix_len;

use super::error::damaged;
use crate::Result;

/// Most bytes of a key: the least key behind it has one more, and a length fits a byte.
pub const KEY_BYTES_MAX: usize = 250;
/// Most bytes of a value: of a block's pages there are at most 65,535.
pub const VALUE_BYTES_MAX: usize = 16 << 20;
/// What a record weighs besides its key and value.
const RECORD_BYTES: u64 = 4;
const HEAD_BYTES: usize = 2;

/// A key and its value, or `None` for a tombstone.
pub type Record = (Vec<u8>, Option<Vec<u8>>);

/// The bytes that a record counts for, whichever block it is in.
#[must_use]
pub fn weight(key: &[u8], value: Option<&[u8]>) -> u64 {
    key.len() as u64 + value.map_or(0, <[u8]>::len) as u64 + RECORD_BYTES
}

/// The weight of a record.
#[must_use]
pub fn weight_of(record: &Record) -> u64 {
    weight(&record.0, record.1.as_deref())
}

/// A block that is being filled.
#[derive(Debug)]
pub struct Packer {
    page_bytes: usize,
    bytes: Vec<u8>,
    last: Vec<u8>,
    records: u16,
    weight: u64,
}

/// A full block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Its bytes, at most a page unless it has one record.
    pub bytes: Vec<u8>,
    /// The sum of the records' weights.
    pub weight: u64,
}

impl Packer {
    /// An empty block for pages of this size.
    #[must_use]
    pub fn new(page_bytes: usize) -> Self {
        let bytes = vec![0; HEAD_BYTES];
        Self { page_bytes, bytes, last: Vec::new(), records: 0, weight: 0 }
    }

    /// Appends a record whose key is greater than all before. Returns the block before it where
    /// this one was full: the record is then the first of the next.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Option<Packed> {
        let mut full = None;
        let most = self.bytes.len() + key.len() + value.map_or(0, <[u8]>::len) + 2 + 5;
        if self.records > 0 && (most > self.page_bytes || self.records == u16::MAX) {
            full = self.finish();
        }
        let shared = if self.records == 0 { 0 } else { common_prefix_len(&self.last, key) };
        let rest = key.get(shared..).unwrap_or_default();
        self.bytes.push(shared as u8);
        self.bytes.push(rest.len() as u8);
        put_varint(&mut self.bytes, value.map_or(0, |value| value.len() as u64 + 1));
        self.bytes.extend_from_slice(rest);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.last.clear();
        self.last.extend_from_slice(key);
        self.records += 1;
        self.weight += weight(key, value);
        full
    }

    /// The block as far as it is filled, if it has a record; it is empty then.
    pub fn finish(&mut self) -> Option<Packed> {
        if self.records == 0 {
            return None;
        }
        let mut bytes = std::mem::replace(&mut self.bytes, vec![0; HEAD_BYTES]);
        for (to, from) in bytes.iter_mut().zip(self.records.to_le_bytes()) {
            *to = from;
        }
        let packed = Packed { bytes, weight: self.weight };
        (self.records, self.weight) = (0, 0);
        Some(packed)
    }
}

/// A record of a block's bytes: its key follows from `key`, which has the one before.
fn next<'a>(input: &mut Reader<'a>, key: &mut Vec<u8>) -> Decoded<Option<&'a [u8]>> {
    let (shared, rest) = (input.u8()?, input.u8()?);
    let length = input.length(VALUE_BYTES_MAX + 1)?;
    if usize::from(shared) > key.len() {
        return Err(input.error("a key shares more bytes than the one before it has"));
    }
    key.truncate(shared.into());
    key.extend_from_slice(input.take(rest.into())?);
    match length.checked_sub(1) {
        None => Ok(None),
        Some(length) => Ok(Some(input.take(length)?)),
    }
}

/// All records of a block.
///
/// # Errors
/// The bytes are no block.
pub fn decode(bytes: &[u8]) -> Result<Arc<Vec<Record>>> {
    let mut input = Reader::new(bytes);
    let records = input.u16().map_err(damaged)?;
    let (mut all, mut key) = (Vec::with_capacity(records.into()), Vec::new());
    for _ in 0..records {
        let value = next(&mut input, &mut key).map_err(damaged)?;
        all.push((key.clone(), value.map(<[u8]>::to_vec)));
    }
    Ok(Arc::new(all))
}

/// The record of a key: `None` where there is none, `Some(None)` for a tombstone.
///
/// # Errors
/// The bytes are no block.
pub fn find(bytes: &[u8], wanted: &[u8]) -> Result<Option<Option<Vec<u8>>>> {
    let mut input = Reader::new(bytes);
    let mut key = Vec::with_capacity(KEY_BYTES_MAX);
    for _ in 0..input.u16().map_err(damaged)? {
        let value = next(&mut input, &mut key).map_err(damaged)?;
        if key.as_slice() >= wanted {
            return Ok((key == wanted).then(|| value.map(<[u8]>::to_vec)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn packed(records: &BTreeMap<Vec<u8>, Option<Vec<u8>>>, page: usize) -> Vec<Packed> {
        let mut packer = Packer::new(page);
        let mut all = Vec::new();
        for (key, value) in records {
            all.extend(packer.push(key, value.as_deref()));
        }
        all.extend(packer.finish());
        all
    }

    proptest! {
        #[test]
        fn records_are_read_back(
            records in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 0..20),
                prop::option::of(prop::collection::vec(any::<u8>(), 0..300)),
                0..60,
            )
        ) {
            let blocks = packed(&records, 512);
            let mut all = Vec::new();
            for block in &blocks {
                let found = decode(&block.bytes).unwrap();
                prop_assert!(block.bytes.len() <= 512 || found.len() == 1);
                prop_assert_eq!(found.iter().map(weight_of).sum::<u64>(), block.weight);
                for (key, value) in found.iter() {
                    prop_assert_eq!(find(&block.bytes, key).unwrap(), Some(value.clone()));
                    let absent = [key.as_slice(), &[0, 0, 0]].concat();
                    prop_assert_eq!(find(&block.bytes, &absent).unwrap(), None);
                }
                all.extend(found.iter().cloned());
            }
            prop_assert!(all.into_iter().eq(records));
        }

        #[test]
        fn damage_is_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = find(&bytes, b"key");
        }
    }

    #[test]
    fn a_long_record_has_a_block_of_its_own() {
        let records = [(b"a".to_vec(), Some(vec![1; 10])), (b"b".to_vec(), Some(vec![2; 5000]))];
        let blocks = packed(&BTreeMap::from(records), 512);
        assert_eq!(blocks.len(), 2);
        assert!(blocks[1].bytes.len() > 5000);
    }
}
