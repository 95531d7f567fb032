//! Blocks: sorted entries, packed and checksummed, with an identity.
//!
//! ```text
//! ┌──────────┬────────┬───────────────┬─────────┬─────────┬─────┐
//! │ header   │ common │ slots         │ entries │ zeros   │ CRC │
//! │ 80 bytes │ prefix │ 6 bytes each  │         │         │  4  │
//! └──────────┴────────┴───────────────┴─────────┴─────────┴─────┘
//! ```
//!
//! Entries that are all puts with keys of one length and values of one length, which is the most
//! common case, need no slots: they are **rows** of one length, one after the other.
//!
//! ```text
//! ┌──────────┬────────┬───────────────────────────────┬─────────┬─────┐
//! │ header   │ common │ key suffix · number · value   │ zeros   │ CRC │
//! │ 80 bytes │ prefix │ as often as there are entries │         │  4  │
//! └──────────┴────────┴───────────────────────────────┴─────────┴─────┘
//! ```
//!
//! In other blocks a slot is the first four key bytes behind the common prefix and the offset of
//! the entry, so that a binary search touches a cache line or two before it compares full keys.
//! Offsets are 16 bits, in units of 1 byte in blocks up to 64 KiB and of 16 bytes above.
//!
//! If a codec saves a sector or more, everything between header and padding is compressed:
//!
//! ```text
//! ┌──────────┬─────────┬───────────────────────────────────┬─────────┬─────┐
//! │ header   │ length  │ common prefix, slots and entries, │ zeros   │ CRC │
//! │ 80 bytes │ 4 bytes │ or rows, compressed               │         │  4  │
//! └──────────┴─────────┴───────────────────────────────────┴─────────┴─────┘
//! ```
//!
//! The header contains the store, keyspace, address and generation that the block was written for;
//! the CRC-32C covers all of it and the padding. It has no level number: levels are renumbered
//! without being rewritten.

mod builder;
mod codec;
mod limit;
mod view;

#[cfg(test)]
mod tests;

pub use builder::{BlockBuilder, Finished};
pub use codec::{Codec, Packer, Unpacker};
pub use limit::{GROWN_BYTES_MAX, Limit};
pub use view::{BlockLayout, BlockView};

use crate::ids::{Generation, KeyspaceId, StoreId};
use crate::ptr::BLOCK_BYTES_MAX;

/// First bytes of a block.
pub const MAGIC: [u8; 4] = *b"ESBK";
/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 80;
/// Length of the CRC behind the padding, in bytes.
pub const TRAILER_BYTES: usize = 4;

/// The offset of compressed bytes, behind their length.
const COMPRESSED_AT: usize = HEADER_BYTES + 4;
/// The most bytes between header and padding.
const BODY_BYTES_MAX: usize = BLOCK_BYTES_MAX - HEADER_BYTES - TRAILER_BYTES;

/// The contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    /// Data entries, and fences if the level is not the bottom.
    Data = 1,
    /// Fences only.
    Fences = 2,
}

/// The identity of a block: written into its header, checked when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIdentity {
    /// The store.
    pub store: StoreId,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// First sector in the data file.
    pub sector: u64,
    /// The generation in which the address was written.
    pub generation: Generation,
}

/// The longest key suffix of a row.
const ROW_SUFFIX_BYTES_MAX: usize = u8::MAX as usize;

/// The form of a block's rows.
///
/// Invariant: `suffix_len + number_len <= stride`; what is left is the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rows {
    /// Bytes of a key behind the common prefix.
    suffix_len: usize,
    /// Bytes of a number's difference to the block's smallest, little-endian; 0 to 8.
    number_len: usize,
    /// Bytes of a row.
    stride: usize,
}

/// Blocks up to this length address entries byte by byte.
const BYTE_OFFSETS_MAX: usize = 1 << 16;
/// log2 of the grain of entries in longer blocks.
const LONG_SHIFT: u8 = 4;
