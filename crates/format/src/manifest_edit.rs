//! Manifest records: what changed, as a list of edits.
//!
//! A record is a frame ([`crate::frame`]) at a multiple of [`MANIFEST_GRAIN_BYTES`], sealed with
//! the epoch: its `number` counts the records of the epoch from 1, its `mark` is the sequence
//! number up to which the log was durable, its `count` the number of edits. The body:
//!
//! ```text
//! varint next generation · then, for each edit, u8 tag · varint length · payload
//! ```
//!
//! A reader that meets an unknown tag skips the edit when the tag is at least
//! [`OPTIONAL_TAG_MIN`] and refuses the record otherwise.

mod past;

use std::sync::Arc;

use crate::block::Codec;
use crate::bytes::{Reader, put_byte_string, put_varint};
use crate::error::{DecodeError, Result};
use crate::history::HistoryMeta;
use crate::ids::{Generation, KeyspaceId, SegmentId, Seq};
use crate::meta::IndexMeta;
use crate::ptr::{Extent, decode_extents, encode_extents};
use crate::{KEYSPACE_NAME_BYTES_MAX, ptr::UNIT_BYTES};

pub use past::PastEdit;

/// Records begin at multiples of this many bytes, so that no two share a sector.
pub const MANIFEST_GRAIN_BYTES: u64 = 512;
/// Unknown edits with this tag or a higher one may be skipped.
pub const OPTIONAL_TAG_MIN: u8 = 0x80;
/// The longest log segment, in bytes.
pub const SEGMENT_BYTES_MAX: u64 = (1 << 30) + (2 << 20);

const TAG_KEYSPACE_CREATE: u8 = 1;
const TAG_KEYSPACE_DROP: u8 = 2;
const TAG_INDEX: u8 = 3;
const TAG_SEGMENT_ADD: u8 = 4;
const TAG_SEGMENT_CLOSE: u8 = 5;
const TAG_SEGMENT_REMOVE: u8 = 6;
const TAG_CLEAN_CLOSE: u8 = 7;
const TAG_NEXT_KEYSPACE: u8 = 8;
const TAG_KEYSPACE_CODEC: u8 = 9;
const TAG_KEYSPACE_OPERATOR: u8 = 10;
const TAG_VALUES: u8 = 11;
const TAG_KEYSPACE_HISTORY: u8 = 12;
// 13 to 15, and 18, are those of past indexes.
const TAG_PIN: u8 = 16;
const TAG_UNPIN: u8 = 17;

/// A log segment in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRef {
    /// This use of the file.
    pub id: SegmentId,
    /// Number of the file, which is its name.
    pub file: u32,
    /// Number of the first operation in the segment.
    pub first_seq: Seq,
    /// Length of the file that the segment may fill, in bytes.
    pub bytes: u64,
    /// The number of its last operation, once nothing is appended any more; all of the segment
    /// was durable before this was recorded.
    pub end_seq: Option<Seq>,
}

/// One change of the manifest's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A keyspace begins to exist, empty. Ids increase and are never reused.
    KeyspaceCreate {
        /// Its id.
        id: KeyspaceId,
        /// Its name: 1 to 255 bytes, no control characters.
        name: String,
        /// Payload bytes of its memtable, where not the default.
        memtable_bytes: Option<u64>,
    },
    /// A keyspace's data blocks are written with this codec from now on; before the first such
    /// edit with none.
    KeyspaceCodec {
        /// The keyspace.
        id: KeyspaceId,
        /// The codec.
        codec: Codec,
    },
    /// A keyspace's merge operands are those of the operator with this name, permanently.
    KeyspaceOperator {
        /// The keyspace.
        id: KeyspaceId,
        /// The name, with the bounds of a keyspace's.
        name: String,
    },
    /// A keyspace keeps history, permanently.
    KeyspaceHistory {
        /// The keyspace.
        id: KeyspaceId,
        /// Its history.
        history: HistoryMeta,
    },
    /// A keyspace ends.
    KeyspaceDrop {
        /// Its id.
        id: KeyspaceId,
    },
    /// A keyspace's index is now this one.
    Index {
        /// The keyspace.
        id: KeyspaceId,
        /// All of its index.
        index: Arc<IndexMeta>,
    },
    /// The past indexes of a keyspace change.
    Past {
        /// The keyspace.
        id: KeyspaceId,
        /// The change.
        edit: PastEdit,
    },
    /// Space of blobs that entries of a keyspace's levels refer to.
    OwnedSpace {
        /// The keyspace.
        id: KeyspaceId,
        /// The space that its levels refer to from now on.
        taken: Vec<Extent>,
        /// The space that they no longer refer to.
        freed: Vec<Extent>,
    },
    /// A version stays readable under a name.
    Pin {
        /// The name, with the bounds of a keyspace's.
        name: String,
        /// The version.
        version: Seq,
    },
    /// A name of a version is given up.
    Unpin {
        /// The name.
        name: String,
    },
    /// A log segment is taken into use.
    SegmentAdd(SegmentRef),
    /// A log segment is complete and durable.
    SegmentClose {
        /// The segment.
        id: SegmentId,
        /// Number of its last operation.
        end_seq: Seq,
    },
    /// A log segment is not needed any more.
    SegmentRemove {
        /// The segment.
        id: SegmentId,
    },
    /// The store was closed; its log was durable and ended at this number.
    CleanClose {
        /// The last number.
        seq: Seq,
    },
    /// Keyspace ids below this one are used up.
    NextKeyspace {
        /// The next id.
        id: KeyspaceId,
    },
}

/// The contents of a record, without its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBody {
    /// The next block generation to hand out.
    pub next_generation: Generation,
    /// The edits, in order. Optional edits that this version does not know are left out.
    pub edits: Vec<Edit>,
}

/// Whether `name` may name a keyspace, or a merge operator: 1 to [`KEYSPACE_NAME_BYTES_MAX`]
/// bytes, no control characters.
#[must_use]
pub fn keyspace_name_is_valid(name: &str) -> bool {
    let len = name.len();
    len > 0 && len <= KEYSPACE_NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

impl RecordBody {
    /// The bytes of a record's body.
    #[must_use]
    pub fn encode(edits: &[Edit], next_generation: Generation) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, next_generation.0);
        let mut payload = Vec::new();
        for edit in edits {
            payload.clear();
            out.push(edit.encode(&mut payload));
            put_byte_string(&mut out, &payload);
        }
        out
    }

    /// Reads a body that must hold exactly `count` edits.
    pub fn decode(body: &[u8], count: u32) -> Result<Self> {
        let mut reader = Reader::new(body);
        let next_generation = Generation(reader.varint()?);
        let mut edits = Vec::new();
        for _ in 0..count {
            edits.extend(decode_edit(&mut reader)?);
        }
        reader.finish()?;
        Ok(Self { next_generation, edits })
    }
}

impl Edit {
    /// Appends the payload and returns the tag.
    fn encode(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Self::KeyspaceCreate { id, name, memtable_bytes } => {
                put_varint(out, id.0.into());
                put_byte_string(out, name.as_bytes());
                put_varint(out, memtable_bytes.unwrap_or(0));
                TAG_KEYSPACE_CREATE
            }
            Self::KeyspaceDrop { id } => encode_number(out, id.0.into(), TAG_KEYSPACE_DROP),
            Self::KeyspaceCodec { id, codec } => {
                put_varint(out, id.0.into());
                out.push(*codec as u8);
                TAG_KEYSPACE_CODEC
            }
            Self::KeyspaceOperator { id, name } => {
                put_varint(out, id.0.into());
                put_byte_string(out, name.as_bytes());
                TAG_KEYSPACE_OPERATOR
            }
            Self::KeyspaceHistory { id, history } => {
                put_varint(out, id.0.into());
                history.encode(out);
                TAG_KEYSPACE_HISTORY
            }
            Self::Index { id, index } => {
                put_varint(out, id.0.into());
                index.encode(out);
                TAG_INDEX
            }
            Self::Past { id, edit } => {
                put_varint(out, id.0.into());
                edit.encode(out)
            }
            Self::OwnedSpace { id, taken, freed } => {
                put_varint(out, id.0.into());
                encode_extents(out, taken);
                encode_extents(out, freed);
                TAG_VALUES
            }
            Self::Pin { name, version } => {
                put_byte_string(out, name.as_bytes());
                put_varint(out, version.0);
                TAG_PIN
            }
            Self::Unpin { name } => {
                put_byte_string(out, name.as_bytes());
                TAG_UNPIN
            }
            Self::SegmentAdd(segment) => {
                segment.encode(out);
                TAG_SEGMENT_ADD
            }
            Self::SegmentClose { id, end_seq } => {
                put_varint(out, id.0);
                put_varint(out, end_seq.0);
                TAG_SEGMENT_CLOSE
            }
            Self::SegmentRemove { id } => encode_number(out, id.0, TAG_SEGMENT_REMOVE),
            Self::CleanClose { seq } => encode_number(out, seq.0, TAG_CLEAN_CLOSE),
            Self::NextKeyspace { id } => encode_number(out, id.0.into(), TAG_NEXT_KEYSPACE),
        }
    }

    /// Reads the payload of an edit; `None` for a tag that this version does not know.
    fn decode(tag: u8, reader: &mut Reader<'_>) -> Result<Option<Self>> {
        Ok(Some(match tag {
            TAG_KEYSPACE_CREATE => Self::decode_keyspace(reader)?,
            TAG_KEYSPACE_DROP => Self::KeyspaceDrop { id: keyspace_id(reader)? },
            TAG_KEYSPACE_CODEC => {
                Self::KeyspaceCodec { id: keyspace_id(reader)?, codec: codec(reader)? }
            }
            TAG_KEYSPACE_OPERATOR => {
                Self::KeyspaceOperator { id: keyspace_id(reader)?, name: name(reader)? }
            }
            TAG_KEYSPACE_HISTORY => Self::KeyspaceHistory {
                id: keyspace_id(reader)?,
                history: HistoryMeta::decode(reader)?,
            },
            TAG_INDEX => {
                let id = keyspace_id(reader)?;
                Self::Index { id, index: Arc::new(IndexMeta::decode(reader)?) }
            }
            past::TAG_INDEX | past::TAG_DROPPED | past::TAG_SPACE | past::TAG_REPLACED => {
                Self::Past { id: keyspace_id(reader)?, edit: PastEdit::decode(tag, reader)? }
            }
            TAG_VALUES => Self::OwnedSpace {
                id: keyspace_id(reader)?,
                taken: decode_extents(reader)?,
                freed: decode_extents(reader)?,
            },
            TAG_PIN => Self::Pin { name: name(reader)?, version: Seq(reader.varint()?) },
            TAG_UNPIN => Self::Unpin { name: name(reader)? },
            TAG_SEGMENT_ADD => Self::SegmentAdd(SegmentRef::decode(reader)?),
            TAG_SEGMENT_CLOSE => Self::SegmentClose {
                id: SegmentId(reader.varint()?),
                end_seq: Seq(reader.varint()?),
            },
            TAG_SEGMENT_REMOVE => Self::SegmentRemove { id: SegmentId(reader.varint()?) },
            TAG_CLEAN_CLOSE => Self::CleanClose { seq: Seq(reader.varint()?) },
            TAG_NEXT_KEYSPACE => Self::NextKeyspace { id: keyspace_id(reader)? },
            _ => return Ok(None),
        }))
    }

    fn decode_keyspace(reader: &mut Reader<'_>) -> Result<Self> {
        let id = keyspace_id(reader)?;
        let name = name(reader)?;
        let memtable_bytes = Some(reader.varint()?).filter(|bytes| *bytes != 0);
        Ok(Self::KeyspaceCreate { id, name, memtable_bytes })
    }
}

/// Appends the payload of an edit that is a number, and returns its tag.
fn encode_number(out: &mut Vec<u8>, number: u64, tag: u8) -> u8 {
    put_varint(out, number);
    tag
}

impl SegmentRef {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.id.0);
        put_varint(out, self.file.into());
        put_varint(out, self.first_seq.0);
        put_varint(out, self.bytes);
        // 0 is no operation's number, so it can mean "still open"; an empty closed segment that
        // begins at 1 would end at 0, and is never recorded.
        put_varint(out, self.end_seq.unwrap_or_default().0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let segment = Self {
            id: SegmentId(reader.varint()?),
            file: reader.varint_u32()?,
            first_seq: Seq(reader.varint()?),
            bytes: reader.varint()?,
            end_seq: Some(Seq(reader.varint()?)).filter(|seq| seq.0 != 0),
        };
        if segment.first_seq.0 == 0
            || segment.bytes < UNIT_BYTES
            || segment.bytes > SEGMENT_BYTES_MAX
        {
            return Err(at.error("log segment is out of range"));
        }
        Ok(segment)
    }
}

/// Reads one edit; `None` when it is unknown and may be skipped.
fn decode_edit(reader: &mut Reader<'_>) -> Result<Option<Edit>> {
    let at = reader.clone();
    let tag = reader.u8()?;
    let payload = reader.byte_string(usize::MAX)?;
    let base = reader.offset().saturating_sub(payload.len());
    let within =
        |error: DecodeError| DecodeError::new(base.saturating_add(error.offset), error.what);
    let mut inner = Reader::new(payload);
    let Some(edit) = Edit::decode(tag, &mut inner).map_err(within)? else {
        let unknown = at.error("edit of an unknown kind: use a newer esker");
        return if tag >= OPTIONAL_TAG_MIN { Ok(None) } else { Err(unknown) };
    };
    inner.finish().map_err(within)?;
    Ok(Some(edit))
}

fn keyspace_id(reader: &mut Reader<'_>) -> Result<KeyspaceId> {
    reader.varint_u32().map(KeyspaceId)
}

/// The name of a keyspace, or of a merge operator.
fn name(reader: &mut Reader<'_>) -> Result<String> {
    let at = reader.clone();
    let name = reader.byte_string(KEYSPACE_NAME_BYTES_MAX)?;
    let name = core::str::from_utf8(name).unwrap_or_default();
    if !keyspace_name_is_valid(name) {
        return Err(at.error("name is not valid"));
    }
    Ok(name.to_string())
}

fn codec(reader: &mut Reader<'_>) -> Result<Codec> {
    let at = reader.clone();
    let unknown = || at.error("codec is unknown to this version: use a newer esker");
    Codec::from_number(reader.u8()?).ok_or_else(unknown)
}

#[cfg(test)]
mod tests;
