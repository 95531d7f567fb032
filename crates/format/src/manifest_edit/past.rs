//! Edits of the past indexes of a keyspace with history.

use std::sync::Arc;

use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::Seq;
use crate::meta::PastIndex;
use crate::ptr::{Extent, decode_extents, encode_extents};

pub(super) const TAG_INDEX: u8 = 13;
pub(super) const TAG_DROPPED: u8 = 14;
pub(super) const TAG_SPACE: u8 = 15;
pub(super) const TAG_REPLACED: u8 = 18;

/// A change of the past indexes of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PastEdit {
    /// There is one more, the newest.
    Index(Arc<PastIndex>),
    /// Those that end at this version or before are given up.
    Dropped(Seq),
    /// Space of blobs to which no index will refer but those that are past with the next split:
    /// part of what the keyspace has taken.
    Space(Vec<Extent>),
    /// The one with the same versions is replaced by this one, which has no space for itself of
    /// the blobs that are given.
    Replaced(Arc<PastIndex>, Vec<Extent>),
}

impl PastEdit {
    /// Appends the payload and returns the tag.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::Index(past) => {
                past.encode(out);
                TAG_INDEX
            }
            Self::Dropped(until) => {
                put_varint(out, until.0);
                TAG_DROPPED
            }
            Self::Space(released) => {
                encode_extents(out, released);
                TAG_SPACE
            }
            Self::Replaced(past, freed) => {
                past.encode(out);
                encode_extents(out, freed);
                TAG_REPLACED
            }
        }
    }

    /// Reads the payload of an edit with one of the four tags.
    pub(super) fn decode(tag: u8, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(match tag {
            TAG_DROPPED => Self::Dropped(Seq(reader.varint()?)),
            TAG_SPACE => Self::Space(decode_extents(reader)?),
            TAG_REPLACED => {
                let past = Arc::new(PastIndex::decode(reader)?);
                Self::Replaced(past, decode_extents(reader)?)
            }
            _ => Self::Index(Arc::new(PastIndex::decode(reader)?)),
        })
    }
}
