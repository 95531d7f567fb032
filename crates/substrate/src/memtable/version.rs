//! What a memtable stores.

use std::fmt;
use std::iter::repeat_n;
use std::sync::Arc;

use esker_format::entry::Payload;
use esker_format::ids::Seq;

use super::position::Position;

/// Estimated memory of a version beside its key, its value and its slot, in bytes: the two counts
/// before its bytes, what the allocator adds to them and what it loses by rounding up to 16.
const VERSION_BYTES: u64 = 32;

/// One version of one key. Cloning shares the bytes.
#[derive(Clone)]
pub struct Version {
    seq: Seq,
    key_len: u32,
    is_put: bool,
    /// Key, then value.
    bytes: Arc<[u8]>,
}

impl Version {
    pub(super) fn new(key: &[u8], seq: Seq, value: Option<&[u8]>) -> Self {
        Self {
            seq,
            key_len: key.len() as u32,
            is_put: value.is_some(),
            bytes: concatenated(key, value.unwrap_or_default()),
        }
    }

    /// The user key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_len as usize).unwrap_or_default()
    }

    /// The number.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }

    /// The value that was put; `None` for a tombstone.
    #[must_use]
    pub fn put(&self) -> Option<&[u8]> {
        if self.is_put { self.bytes.get(self.key_len as usize..) } else { None }
    }

    /// The value as the payload of a block entry.
    #[must_use]
    pub fn payload(&self) -> Payload<'_> {
        Payload::of(self.put())
    }

    /// Bytes of key and value.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Estimated memory beside its slot, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.payload_bytes() + VERSION_BYTES
    }

    pub(super) fn position(&self) -> Position<'_> {
        Position::new(self.key(), self.seq)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Version")
            .field("key_len", &self.key_len)
            .field("seq", &self.seq)
            .field("put_len", &self.put().map(<[u8]>::len))
            .finish_non_exhaustive()
    }
}

/// Both in one allocation. Collecting into `Vec` first would make it two.
fn concatenated(key: &[u8], value: &[u8]) -> Arc<[u8]> {
    let mut bytes: Arc<[u8]> = repeat_n(0, key.len() + value.len()).collect();
    if let Some((keys, values)) =
        Arc::get_mut(&mut bytes).and_then(|bytes| bytes.split_at_mut_checked(key.len()))
    {
        keys.copy_from_slice(key);
        values.copy_from_slice(value);
    }
    bytes
}
