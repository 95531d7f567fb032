//! Entries: what a level holds.

use crate::KEY_BYTES_MAX;
use crate::bytes::{Reader, put_varint};
use crate::data::{CONTENT_BYTES_MAX, Data};
use crate::error::Result;
use crate::fence::Fence;
use crate::ids::{Moment, Seq};

/// The kind of an entry. The numbers are on the device and frozen; 4 is in the log alone
/// ([`crate::action`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The key is deleted.
    Delete = 0,
    /// The key has a value.
    Put = 1,
    /// The way to a block of a lower level.
    Fence = 2,
    /// The key has a blob: a value outside the block.
    Reference = 3,
    /// The key has a value until a moment.
    PutUntil = 5,
    /// The key's value is changed, by what the keyspace's merge operator makes of both.
    Operand = 6,
}

impl Kind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Delete),
            1 => Some(Self::Put),
            2 => Some(Self::Fence),
            3 => Some(Self::Reference),
            5 => Some(Self::PutUntil),
            6 => Some(Self::Operand),
            _ => None,
        }
    }

    /// Whether entries of this kind have a content, whose length is in front of the key.
    #[must_use]
    pub const fn has_content(self) -> bool {
        matches!(self, Self::Put | Self::Reference | Self::PutUntil | Self::Operand)
    }
}

/// The part of an entry behind its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// A tombstone.
    Delete,
    /// A value.
    Put(&'a [u8]),
    /// An inline value with an expiry.
    PutUntil(Moment, &'a [u8]),
    /// The address of a blob: an encoded [`ValueRef`](crate::value_ref::ValueRef).
    Reference(&'a [u8]),
    /// A merge operand, which is applied to the value, or operand, of the next older version.
    Operand(&'a [u8]),
    /// A fence.
    Fence(Fence<'a>),
}

impl<'a> Payload<'a> {
    /// The payload for `data`.
    #[must_use]
    pub const fn of(data: Data<'a>) -> Self {
        match data {
            Data::Delete => Self::Delete,
            Data::Put(value) => Self::Put(value),
            Data::PutUntil(until, value) => Self::PutUntil(until, value),
            Data::Reference(content) => Self::Reference(content),
            Data::Operand(operand) => Self::Operand(operand),
        }
    }

    /// The data of the key; `None` for a fence.
    #[must_use]
    pub const fn data(&self) -> Option<Data<'a>> {
        match self {
            Self::Delete => Some(Data::Delete),
            Self::Put(value) => Some(Data::Put(value)),
            Self::PutUntil(until, value) => Some(Data::PutUntil(*until, value)),
            Self::Reference(content) => Some(Data::Reference(content)),
            Self::Operand(operand) => Some(Data::Operand(operand)),
            Self::Fence(_) => None,
        }
    }

    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Delete => Kind::Delete,
            Self::Put(_) => Kind::Put,
            Self::PutUntil(..) => Kind::PutUntil,
            Self::Reference(_) => Kind::Reference,
            Self::Operand(_) => Kind::Operand,
            Self::Fence(_) => Kind::Fence,
        }
    }
}

/// One entry of a block. Its full key is the block's common prefix followed by `suffix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key without the block's common prefix.
    pub suffix: &'a [u8],
    /// The sequence number; [`Seq::MAX`] in a fence means ∞.
    pub seq: Seq,
    /// The payload of the entry.
    pub payload: Payload<'a>,
}

/// Bytes that the slot of an entry takes.
pub const SLOT_BYTES: usize = 6;

/// Bytes that a put adds to a memtable's size in addition to its key and value: kind, lengths,
/// number, slot.
pub const PUT_OVERHEAD_BYTES: usize = 13;

impl<'a> Entry<'a> {
    /// Appends the entry. `base` is the block's smallest data number.
    pub fn encode(&self, base: Seq, out: &mut Vec<u8>) {
        out.push(self.payload.kind() as u8);
        put_varint(out, self.suffix.len() as u64);
        match &self.payload {
            Payload::Fence(fence) => {
                // ∞ is by far the commonest number of a fence: it becomes 0.
                put_varint(out, self.seq.0.wrapping_add(1));
                out.extend_from_slice(self.suffix);
                fence.encode(out);
            }
            Payload::Delete
            | Payload::Put(_)
            | Payload::PutUntil(..)
            | Payload::Reference(_)
            | Payload::Operand(_) => {
                let data = self.payload.data().unwrap_or(Data::Delete);
                put_varint(out, self.seq.0.saturating_sub(base.0));
                if let Some(len) = data.content_len() {
                    put_varint(out, len as u64);
                }
                out.extend_from_slice(self.suffix);
                data.put_content(out);
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
        let len = if kind.has_content() { Some(reader.length(CONTENT_BYTES_MAX)?) } else { None };
        let suffix = reader.take(suffix_len)?;
        let data = match len {
            Some(len) => Data::decode(kind, reader, len)?,
            None => Data::Delete,
        };
        Ok(Self { suffix, seq, payload: Payload::of(data) })
    }

    /// Reads only what a search compares: kind, suffix, number.
    pub fn decode_key(reader: &mut Reader<'a>, base: Seq) -> Result<(Kind, &'a [u8], Seq)> {
        let kind = Kind::from_number(reader.u8()?)
            .ok_or_else(|| reader.error("entry kind is unknown to this version"))?;
        let suffix_len = reader.length(KEY_BYTES_MAX)?;
        let number = reader.varint()?;
        let seq = match kind {
            Kind::Fence => number.wrapping_sub(1),
            Kind::Put | Kind::Delete | Kind::PutUntil | Kind::Reference | Kind::Operand => {
                base.0.saturating_add(number)
            }
        };
        if kind.has_content() {
            reader.varint()?;
        }
        Ok((kind, reader.take(suffix_len)?, Seq(seq)))
    }
}
