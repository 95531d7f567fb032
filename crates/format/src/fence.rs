//! Fences: how a level leads to the blocks of the next one.

use crate::bytes::{Reader, put_varint, varint_len};
use crate::error::Result;
use crate::ptr::{BLOCK_BYTES_MAX, BlockPtr};

/// The way to a block, and what the block is known to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence<'a> {
    /// The block.
    pub ptr: BlockPtr,
    /// Puts in the block.
    pub puts: u32,
    /// Tombstones in the block.
    pub tombstones: u32,
    /// Filter over the user keys of the block's data entries; empty when it has none.
    pub filter: &'a [u8],
}

impl<'a> Fence<'a> {
    /// Appends the fence.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.ptr.encode(out);
        put_varint(out, u64::from(self.puts));
        put_varint(out, u64::from(self.tombstones));
        put_varint(out, self.filter.len() as u64);
        out.extend_from_slice(self.filter);
    }

    /// Bytes that [`Fence::encode`] appends.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        varint_len(self.ptr.sector)
            + varint_len(u64::from(self.ptr.sectors))
            + varint_len(self.ptr.generation.0)
            + 4
            + varint_len(u64::from(self.puts))
            + varint_len(u64::from(self.tombstones))
            + varint_len(self.filter.len() as u64)
            + self.filter.len()
    }

    /// Reads a fence.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self {
            ptr: BlockPtr::decode(reader)?,
            puts: reader.varint_u32()?,
            tombstones: reader.varint_u32()?,
            filter: reader.byte_string(BLOCK_BYTES_MAX)?,
        })
    }
}
