//! Log segments and the batches in them.
//!
//! A segment is a file whose first [`SEGMENT_HEADER_BYTES`] identify this use of the file:
//!
//! ```text
//! byte   0  u32  "EskL"
//! byte   4  u32  format version
//! byte   8  u64  store id
//! byte  16  u64  segment id
//! byte  24  u64  number of the first operation
//! byte  32       zeros
//! byte 4092 u32  CRC-32C of bytes 0..4092
//! ```
//!
//! Frames ([`crate::frame`]) follow at multiples of [`LOG_GRAIN_BYTES`], sealed with the segment
//! id. One frame is one batch and thereby atomic: its `number` is the sequence number of the
//! first operation, the others follow consecutively, `count` is how many there are, and `mark`
//! is the number up to which the log was known durable. The body is the operations:
//!
//! ```text
//! varint keyspace · u8 kind · varint length, key · (deletes not) varint length, content
//! ```
//!
//! A range deletion has its first key as the key, and the key behind its last one as the content,
//! which is empty where the range has no end.

use crate::action::{KIND_REMOVE_RANGE, KeyRange, WriteOp};
use crate::bytes::{Reader, put_byte_string, put_varint};
use crate::data::{CONTENT_BYTES_MAX, Data};
use crate::entry::Kind;
use crate::error::{DecodeError, Result};
use crate::frame::{FRAME_BODY_BYTES_MAX, FrameHeader, Seal, pad_body};
use crate::ids::{KeyspaceId, SegmentId, Seq, StoreId};
use crate::{FORMAT_VERSION, KEY_BYTES_MAX};

/// Length of a segment's header, in bytes: a page of its own, so that appending never rewrites
/// it.
pub const SEGMENT_HEADER_BYTES: usize = 4096;
/// Frames of a segment begin at multiples of this many bytes.
pub const LOG_GRAIN_BYTES: u64 = 8;

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"EskL");

/// The header of a segment, which identifies the use of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The store.
    pub store: StoreId,
    /// This use of the file.
    pub id: SegmentId,
    /// Number of the first operation in the segment.
    pub first_seq: Seq,
}

impl SegmentHeader {
    /// The header's bytes, [`SEGMENT_HEADER_BYTES`] of them.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.extend_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        for field in [self.store.0, self.id.0, self.first_seq.0] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(SEGMENT_HEADER_BYTES.saturating_sub(4), 0);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header; the padding is covered by the checksum.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u32()? != SEGMENT_MAGIC {
            return Err(DecodeError::new(0, "not a log segment"));
        }
        let version = reader.u32()?;
        let header = Self {
            store: StoreId(reader.u64()?),
            id: SegmentId(reader.u64()?),
            first_seq: Seq(reader.u64()?),
        };
        let covered = Reader::new(bytes).take(SEGMENT_HEADER_BYTES.saturating_sub(4))?;
        let mut trailer = Reader::new(bytes);
        trailer.take(covered.len())?;
        if trailer.u32()? != crc32c::crc32c(covered) {
            return Err(DecodeError::new(0, "segment header does not match its checksum"));
        }
        trailer.finish()?;
        if version != FORMAT_VERSION {
            return Err(DecodeError::new(4, "segment has an unknown format version"));
        }
        Ok(header)
    }
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOp<'a> {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The operation; its keys are at most [`KEY_BYTES_MAX`] long.
    pub action: WriteOp<'a>,
}

/// Collects the operations of a batch as they will be logged.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    body: Vec<u8>,
    ops: u32,
    last_ops: Vec<LastOp>,
}

/// The last operation of a batch in one keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LastOp {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Index of the operation in the batch.
    pub index: u32,
}

/// A batch ready for the log: encoded, padded, checksummed. Only its numbers are missing.
#[derive(Clone, Debug)]
pub struct EncodedBatch {
    padded: Vec<u8>,
    body_bytes: u32,
    body_crc: u32,
    ops: u32,
    last_ops: Vec<LastOp>,
}

impl BatchBuilder {
    /// No operations yet; memory for about `body_bytes`.
    #[must_use]
    pub fn with_capacity(body_bytes: usize) -> Self {
        Self { body: Vec::with_capacity(body_bytes), ..Self::default() }
    }

    /// Appends a put.
    pub fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
        self.push(keyspace, &WriteOp::Point(key, Data::Put(value)));
    }

    /// Appends a delete.
    pub fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) {
        self.push(keyspace, &WriteOp::Point(key, Data::Delete));
    }

    /// Appends an operation.
    pub fn push(&mut self, keyspace: KeyspaceId, action: &WriteOp<'_>) {
        put_varint(&mut self.body, keyspace.0.into());
        match action {
            WriteOp::Point(key, data) => {
                self.body.push(data.kind() as u8);
                put_byte_string(&mut self.body, key);
                if let Some(len) = data.content_len() {
                    put_varint(&mut self.body, len as u64);
                    data.put_content(&mut self.body);
                }
            }
            WriteOp::DeleteRange(range) => {
                self.body.push(KIND_REMOVE_RANGE);
                range.encode(&mut self.body);
            }
        }
        let op = LastOp { keyspace, index: self.ops };
        match self.last_ops.last_mut() {
            Some(last) if last.keyspace == keyspace => *last = op,
            _ => self.last_ops.push(op),
        }
        self.ops = self.ops.saturating_add(1);
    }

    /// The number of operations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ops as usize
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// Encoded length so far, in bytes.
    #[must_use]
    pub const fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Pads and checksums the batch. Fails when it is empty or longer than
    /// [`FRAME_BODY_BYTES_MAX`].
    pub fn finish(self) -> Result<EncodedBatch> {
        let Self { mut body, ops, mut last_ops } = self;
        if ops == 0 || body.len() > FRAME_BODY_BYTES_MAX {
            return Err(DecodeError::new(body.len(), "batch is empty or too long for the log"));
        }
        let body_bytes = body.len() as u32;
        pad_body(&mut body, LOG_GRAIN_BYTES);
        let body_crc = crc32c::crc32c(&body);
        // The highest index of each keyspace comes first in reverse order, and stays.
        last_ops.sort_unstable_by(|a, b| b.cmp(a));
        last_ops.dedup_by_key(|op| op.keyspace);
        Ok(EncodedBatch { padded: body, body_bytes, body_crc, ops, last_ops })
    }
}

impl EncodedBatch {
    /// The number of operations, and thereby sequence numbers, in the batch; at least 1.
    #[must_use]
    pub const fn ops(&self) -> u32 {
        self.ops
    }

    /// The last operation in each keyspace that the batch touches, each keyspace once.
    #[must_use]
    pub fn last_ops(&self) -> &[LastOp] {
        &self.last_ops
    }

    /// Length of the whole frame in a segment, in bytes.
    #[must_use]
    pub const fn frame_bytes(&self) -> u64 {
        self.header(Seq(0), Seq(0)).frame_bytes(LOG_GRAIN_BYTES)
    }

    /// Appends the frame to `out`: the batch begins at `first`, and the log is known durable up
    /// to `durable`.
    pub fn write_frame(&self, out: &mut Vec<u8>, seal: Seal, first: Seq, durable: Seq) {
        out.extend_from_slice(&self.header(first, durable).encode(seal));
        out.extend_from_slice(&self.padded);
    }

    const fn header(&self, first: Seq, durable: Seq) -> FrameHeader {
        FrameHeader {
            body_crc: self.body_crc,
            body_bytes: self.body_bytes,
            count: self.ops,
            number: first.0,
            mark: durable.0,
        }
    }
}

/// The operations of a checked body, in order. `padded` is the body with its padding, which must
/// be zeros; the iterator yields exactly `header.count` operations or ends with an error.
pub fn decode_ops<'a>(header: &FrameHeader, padded: &'a [u8]) -> DecodeOps<'a> {
    let (body, padding) = padded.split_at_checked(header.body_bytes as usize).unwrap_or_default();
    let mut failed = None;
    if body.len() != header.body_bytes as usize || padding.iter().any(|byte| *byte != 0) {
        failed = Some(DecodeError::new(body.len(), "batch has a wrong length or padding"));
    }
    DecodeOps { reader: Reader::new(body), left: header.count, failed }
}

/// Iterator over the operations of a batch.
#[derive(Debug)]
pub struct DecodeOps<'a> {
    reader: Reader<'a>,
    left: u32,
    failed: Option<DecodeError>,
}

impl<'a> DecodeOps<'a> {
    fn decode_one(&mut self) -> Result<LogOp<'a>> {
        let keyspace = KeyspaceId(self.reader.varint_u32()?);
        let at_kind = self.reader.clone();
        let number = self.reader.u8()?;
        if number == KIND_REMOVE_RANGE {
            let action = WriteOp::DeleteRange(KeyRange::decode(&mut self.reader)?);
            return Ok(LogOp { keyspace, action });
        }
        // The other numbers are those of entries; there are no fences in the log.
        let kind = Kind::from_number(number).filter(|kind| *kind != Kind::Fence);
        let kind = kind.ok_or_else(|| at_kind.error("operation has an unknown kind"))?;
        let key = self.reader.byte_string(KEY_BYTES_MAX)?;
        let data = if kind.has_content() {
            let len = self.reader.length(CONTENT_BYTES_MAX)?;
            Data::decode(kind, &mut self.reader, len)?
        } else {
            Data::Delete
        };
        Ok(LogOp { keyspace, action: WriteOp::Point(key, data) })
    }

    fn next_op(&mut self) -> Result<Option<LogOp<'a>>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(left) = self.left.checked_sub(1) else {
            self.reader.finish()?;
            return Ok(None);
        };
        self.left = left;
        self.decode_one().map(Some)
    }
}

impl<'a> Iterator for DecodeOps<'a> {
    type Item = Result<LogOp<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_op().transpose();
        if matches!(next, Some(Err(_))) {
            *self = Self { reader: Reader::new(&[]), left: 0, failed: None };
        }
        next
    }
}

#[cfg(test)]
mod tests;
