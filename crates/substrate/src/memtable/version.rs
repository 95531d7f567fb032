//! What a memtable stores, and its order.
//!
//! The order is that of `esker_format::key`: user key ascending, then number descending, so that
//! a search for (key, number) lands on the newest version that the number may see. The first
//! eight key bytes stand in the node, so that most comparisons touch nothing else.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::iter::repeat_n;
use std::sync::Arc;

use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::key::long_head;

/// Estimated memory of a version beside the bytes of its key and value, in bytes.
///
/// On a machine of 64 bits the node takes 40 for the version, 8 for count and height, and 8 a
/// level, of which there are two on average; the bytes lie behind two counts of 8; the allocator
/// adds about 8 to each of the two allocations and rounds them up to 16.
pub(super) const NODE_BYTES: u64 = 104;

/// One version of one key. Cloning shares the bytes.
#[derive(Clone)]
pub struct Version {
    head: u64,
    seq: Seq,
    key_len: u32,
    is_put: bool,
    /// Key, then value.
    bytes: Arc<[u8]>,
}

impl Version {
    pub(super) fn new(key: &[u8], seq: Seq, value: Option<&[u8]>) -> Self {
        Self {
            head: long_head(key),
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

    /// Estimated memory in a leaf, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.payload_bytes() + NODE_BYTES
    }

    pub(super) fn position(&self) -> Position<'_> {
        Position { head: self.head, key: self.key(), seq: self.seq }
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

/// Where a version stands, or would stand.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    head: u64,
    key: &'a [u8],
    seq: Seq,
}

impl<'a> Position<'a> {
    pub(super) fn new(key: &'a [u8], seq: Seq) -> Self {
        Self { head: long_head(key), key, seq }
    }

    pub(super) const fn head(&self) -> u64 {
        self.head
    }
}

impl Ord for Position<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.head.cmp(&other.head))
            .then_with(|| self.key.cmp(other.key))
            .then_with(|| other.seq.cmp(&self.seq))
    }
}

impl PartialOrd for Position<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Position<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Position<'_> {}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

/// What has a position. A trait object is what a set of versions can lend itself as, so that a
/// search need not build a [`Version`].
pub(super) trait Placed {
    fn position(&self) -> Position<'_>;
}

impl Placed for Version {
    fn position(&self) -> Position<'_> {
        Self::position(self)
    }
}

impl Placed for Position<'_> {
    fn position(&self) -> Position<'_> {
        *self
    }
}

impl Ord for dyn Placed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.position().cmp(&other.position())
    }
}

impl PartialOrd for dyn Placed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Placed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Placed + '_ {}

impl<'a> Borrow<dyn Placed + 'a> for Version {
    fn borrow(&self) -> &(dyn Placed + 'a) {
        self
    }
}
