//! A version, as a memtable stores it.

use std::fmt;
use std::iter::repeat_n;
use std::sync::Arc;

use esker_format::data::Data;
use esker_format::entry::Payload;
use esker_format::ids::{Moment, Seq};

use super::position::Position;

/// Estimated memory of a version in addition to its key, its value and its slot, in bytes: the two
/// counts before its bytes, what the allocator adds to them and what it loses by rounding up to 16.
const VERSION_BYTES: u64 = 32;

/// One version of one key. Cloning shares the bytes.
#[derive(Clone)]
pub struct Version {
    seq: Seq,
    key_len: u32,
    what: What,
    /// The number of stacked operands of the key in the memtable up to this one.
    depth: u16,
    /// Key, then the moment of a value with an expiry, then the value or the blob reference.
    bytes: Arc<[u8]>,
}

/// The type of the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Delete,
    Put,
    PutUntil,
    Reference,
    Operand,
}

const MOMENT_BYTES: usize = size_of::<u64>();

impl Version {
    pub(super) fn new(key: &[u8], seq: Seq, data: Data<'_>) -> Self {
        let (what, bytes) = match data {
            Data::Delete => (What::Delete, concatenated([key, &[], &[]])),
            Data::Put(value) => (What::Put, concatenated([key, &[], value])),
            Data::Reference(content) => (What::Reference, concatenated([key, &[], content])),
            Data::Operand(operand) => (What::Operand, concatenated([key, &[], operand])),
            Data::PutUntil(until, value) => {
                (What::PutUntil, concatenated([key, &until.0.to_le_bytes(), value]))
            }
        };
        Self { seq, key_len: key.len() as u32, what, depth: 0, bytes }
    }

    /// The same as the uppermost of `depth` operands.
    pub(super) const fn at_depth(mut self, depth: u16) -> Self {
        self.depth = depth;
        self
    }

    /// The number of stacked operands of the key up to this one; 0 for other versions.
    pub(super) const fn depth(&self) -> u16 {
        self.depth
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

    /// The data of the key.
    #[must_use]
    pub fn data(&self) -> Data<'_> {
        let content = self.bytes.get(self.key_len as usize..).unwrap_or_default();
        match self.what {
            What::Delete => Data::Delete,
            What::Put => Data::Put(content),
            What::Reference => Data::Reference(content),
            What::Operand => Data::Operand(content),
            What::PutUntil => {
                let (until, value) = content.split_first_chunk::<MOMENT_BYTES>().unzip();
                let until = until.map_or(0, |until| u64::from_le_bytes(*until));
                Data::PutUntil(Moment(until), value.unwrap_or_default())
            }
        }
    }

    /// The same as the payload of a block entry.
    #[must_use]
    pub fn payload(&self) -> Payload<'_> {
        Payload::of(self.data())
    }

    /// Bytes of key, value and moment.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Estimated memory without its slot, in bytes.
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
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}

/// All in one allocation. Collecting into `Vec` first would make it two.
fn concatenated(parts: [&[u8]; 3]) -> Arc<[u8]> {
    let mut bytes: Arc<[u8]> = repeat_n(0, parts.iter().map(|part| part.len()).sum()).collect();
    let mut rest = Arc::get_mut(&mut bytes).unwrap_or_default();
    for part in parts {
        let Some((here, behind)) = rest.split_at_mut_checked(part.len()) else { break };
        here.copy_from_slice(part);
        rest = behind;
    }
    bytes
}
