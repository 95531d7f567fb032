//! Entries: what a level holds.

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::fence::Fence;
use crate::ids::Seq;
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// What an entry is. The numbers are on the device and frozen; those without a variant are
/// reserved: 3 value reference, 4 range tombstone, 5 expiry, 6 merge operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The key is deleted.
    Delete = 0,
    /// The key has a value.
    Put = 1,
    /// The way to a block of a lower level.
    Fence = 2,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            2 => Some(Self::Fence),
            _ => None,
        }
    }
}

/// The part of an entry behind its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A tombstone.
    Delete,
    /// A value.
    Put(&'a [u8]),
    /// A fence.
    Fence(Fence<'a>),
}

impl<'a> Payload<'a> {
    /// The payload of a data operation: a value, or none for a delete.
    #[must_use]
    pub const fn of(value: Option<&'a [u8]>) -> Self {
        match value {
            Some(value) => Self::Put(value),
            None => Self::Delete,
        }
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Delete => Kind::Delete,
            Self::Put(_) => Kind::Put,
            Self::Fence(_) => Kind::Fence,
        }
    }
}

/// One entry of a block. Its full key is the block's common prefix followed by `suffix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key without the block's common prefix.
    pub suffix: &'a [u8],
    /// The number; [`Seq::MAX`] in a fence stands for ∞.
    pub seq: Seq,
    /// What the entry says.
    pub payload: Payload<'a>,
}

/// Bytes that the slot of an entry takes.
pub const SLOT_BYTES: usize = 6;

/// What a put takes beside its key and value in a memtable's account: kind, lengths, number, slot.
pub const PUT_OVERHEAD_BYTES: usize = 13;

impl<'a> Entry<'a> {
    /// Appends the entry. `base` is the block's smallest data number.
    pub fn encode(&self, base: Seq, out: &mut Vec<u8>) {
        out.push(self.payload.kind() as u8);
        put_varint(out, self.suffix.len() as u64);
        match &self.payload {
            Payload::Delete => {
                put_varint(out, self.seq.0.saturating_sub(base.0));
                out.extend_from_slice(self.suffix);
            }
            Payload::Put(value) => {
                put_varint(out, self.seq.0.saturating_sub(base.0));
                put_varint(out, value.len() as u64);
                out.extend_from_slice(self.suffix);
                out.extend_from_slice(value);
            }
            Payload::Fence(fence) => {
                // ∞ is by far the commonest number of a fence: it becomes 0.
                put_varint(out, self.seq.0.wrapping_add(1));
                out.extend_from_slice(self.suffix);
                fence.encode(out);
            }
        }
    }

    /// Reads an entry.
    pub fn decode(reader: &mut Reader<'a>, base: Seq) -> Result<Self> {
        let kind = Kind::from_number(reader.u8()?)
            .ok_or_else(|| reader.error("entry kind is unknown to this version"))?;
        let suffix_len = reader.length(KEY_BYTES_MAX)?;
        let number = reader.varint()?;
        if kind == Kind::Fence {
            let suffix = reader.take(suffix_len)?;
            let fence = Fence::decode(reader)?;
            let seq = Seq(number.wrapping_sub(1));
            return Ok(Self { suffix, seq, payload: Payload::Fence(fence) });
        }
        let seq = base.0.checked_add(number).map(Seq);
        let seq = seq.ok_or_else(|| reader.error("sequence number overflows"))?;
        let payload_len =
            if kind == Kind::Put { Some(reader.length(VALUE_BYTES_MAX)?) } else { None };
        let suffix = reader.take(suffix_len)?;
        let value = payload_len.map(|len| reader.take(len)).transpose()?;
        Ok(Self { suffix, seq, payload: Payload::of(value) })
    }

    /// Reads only what a search compares: kind, suffix, number.
    pub fn decode_key(reader: &mut Reader<'a>, base: Seq) -> Result<(Kind, &'a [u8], Seq)> {
        let kind = Kind::from_number(reader.u8()?)
            .ok_or_else(|| reader.error("entry kind is unknown to this version"))?;
        let suffix_len = reader.length(KEY_BYTES_MAX)?;
        let number = reader.varint()?;
        let seq = match kind {
            Kind::Fence => number.wrapping_sub(1),
            Kind::Put | Kind::Delete => base.0.saturating_add(number),
        };
        if kind == Kind::Put {
            reader.varint()?;
        }
        Ok((kind, reader.take(suffix_len)?, Seq(seq)))
    }
}
