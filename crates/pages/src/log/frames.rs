//! The log: records in frames, in segments that follow each other, from one checkpoint on.
//!
//! A frame is the one of the store's own log (`esker_format::frame`): a header with the frame's
//! number and what was known durable when it was made, and checksums over both header and body
//! that also cover the store's id and the segment's generation. A generation is never used twice:
//! it is the epoch of the checkpoint and the segment's place in the epoch's log. What a segment
//! held before, and what a crash left behind the log's end, is therefore never taken for a frame:
//! every opening that finds a frame begins a new epoch before it writes.
//!
//! ```text
//! body of a frame:  u8 flags (1: first of its record, 2: last, 4: pages follow the frame),
//!                   u32 segment after this one, u32 bytes of those pages if there are, bytes
//! ```
//!
//! The length of a frame is a multiple of the log's **unit**: 512 bytes, or a page where pages
//! follow the records that name them.
//!
//! A record that does not fit in the rest of a segment continues in the next one. A segment is
//! filled to its end, and every frame names the segment after its own, so that a reader knows where
//! to look for proof that a bad frame is damage and not the end.
//!
//! Invariants:
//! - numbers of frames are consecutive over the life of a store.
//! - `segments` holds the segment in use and the one after it, last.
//! - `offset` is below the length of a segment and a multiple of `unit`.

use esker_format::DecodeError;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameKind, Seal, encode_frame};
use esker_format::ids::StoreId;

use crate::log::superblock::Superblock;

const PART_BYTES: usize = 5;
/// Bytes of a frame's body that hold the length of the pages behind it.
const PAGES_BYTES: usize = 4;
pub(super) const FIRST: u8 = 1;
pub(super) const LAST: u8 = 2;
pub(super) const WITH_PAGES: u8 = 4;
/// The number of bits of a generation that are the place within an epoch.
pub(super) const ORDINAL_BITS: u32 = 24;

/// The place of the next frame.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    store: StoreId,
    pub(crate) epoch: u64,
    /// Segments of this epoch, in order.
    pub(crate) segments: Vec<u32>,
    offset: u64,
    /// Number of the next frame.
    pub(crate) number: u64,
    /// Bytes of frames in this epoch.
    pub(crate) bytes: u64,
    segment_bytes: u64,
    /// Frames are multiples of this long.
    pub(crate) unit: u64,
}

/// Bytes to be written at an offset of the file.
pub(crate) type Write = (u64, Vec<u8>);

pub(super) fn seal(store: StoreId, epoch: u64, ordinal: usize) -> Seal {
    Seal::new(store, FrameKind::Log, (epoch << ORDINAL_BITS) | ordinal as u64)
}

impl Log {
    /// An empty log of an epoch.
    pub(crate) fn new(block: &Superblock) -> Self {
        Self {
            store: block.store,
            epoch: block.epoch,
            segments: block.log.to_vec(),
            offset: 0,
            number: block.number,
            bytes: 0,
            segment_bytes: block.segment_bytes.into(),
            unit: block.log_unit.into(),
        }
    }

    /// The log of a checkpoint in which another process has written up to here; `segments` are
    /// those that frames name, and one more.
    pub(crate) fn resumed(
        block: &Superblock,
        segments: Vec<u32>,
        offset: u64,
        from: &Self,
    ) -> Self {
        Self { segments, offset, number: from.number, bytes: from.bytes, ..Self::new(block) }
    }

    /// The segments that are named by frames, or by the superblock; the number of those before the
    /// present one; and the bytes before the next frame in it.
    pub(crate) fn named(&self) -> (&[u32], usize, u64) {
        let ordinal = self.segments.len().saturating_sub(2);
        // The segment after one that has no frame yet is only known here.
        let is_unnamed = self.offset == 0 && ordinal > 0;
        let count = self.segments.len() - usize::from(is_unnamed);
        (self.segments.get(..count).unwrap_or_default(), ordinal, self.offset)
    }

    fn current(&self) -> u32 {
        self.segments.iter().rev().nth(1).copied().unwrap_or_default()
    }

    fn following(&self) -> u32 {
        self.segments.last().copied().unwrap_or_default()
    }

    /// The largest number of additional segments that a record of this length takes.
    pub(crate) fn segments_for(&self, record_bytes: u64) -> u32 {
        let overhead = (FRAME_HEADER_BYTES + PART_BYTES) as u64;
        let frames = record_bytes / (self.segment_bytes - overhead) + 2;
        let bytes = record_bytes + frames * overhead + self.unit;
        (bytes.saturating_sub(self.segment_bytes - self.offset) / self.segment_bytes) as u32 + 1
    }

    /// Appends a record and says what to write for it. `take` gives a free segment; it has been
    /// made sure that there are [`Log::segments_for`] the record.
    pub(crate) fn append(
        &mut self,
        record: &[u8],
        durable: u64,
        take: impl FnMut() -> Option<u32>,
    ) -> Result<Vec<Write>, DecodeError> {
        self.append_with_pages(record, 0, durable, take)
    }

    /// The place where the pages behind a record of this length would begin, in bytes from the
    /// start of the file, if record and pages fit in the rest of the segment.
    pub(crate) fn place_for_pages(&self, record_bytes: u64, page_bytes: u64) -> Option<u64> {
        let body = record_bytes + (FRAME_HEADER_BYTES + PART_BYTES + PAGES_BYTES) as u64;
        let frame = body.next_multiple_of(self.unit);
        let fits = self.offset + frame + page_bytes <= self.segment_bytes;
        let start = u64::from(self.current()) * self.segment_bytes + self.offset;
        (fits && page_bytes.is_multiple_of(self.unit)).then_some(start + frame)
    }

    /// As [`Log::append`], but leaves room behind the frame for pages, for which
    /// [`Log::place_for_pages`] has found a place.
    pub(crate) fn append_with_pages(
        &mut self,
        record: &[u8],
        page_bytes: u32,
        durable: u64,
        mut take: impl FnMut() -> Option<u32>,
    ) -> Result<Vec<Write>, DecodeError> {
        let none_left = DecodeError::new(0, "the log has no segment left");
        let mut writes = Vec::new();
        let mut rest = record;
        let mut flags = FIRST | if page_bytes > 0 { WITH_PAGES } else { 0 };
        loop {
            let room = (self.segment_bytes - self.offset) as usize;
            let part = rest.len().min(room - FRAME_HEADER_BYTES - PART_BYTES);
            let (now, later) = rest.split_at_checked(part).unwrap_or((rest, &[]));
            flags |= if later.is_empty() { LAST } else { 0 };
            let mut body = vec![flags];
            body.extend_from_slice(&self.following().to_le_bytes());
            if flags & WITH_PAGES != 0 {
                body.extend_from_slice(&page_bytes.to_le_bytes());
            }
            body.extend_from_slice(now);
            let seal = seal(self.store, self.epoch, self.segments.len() - 2);
            let frame = encode_frame(body, 1, self.number, durable, seal, self.unit)?;
            let at = u64::from(self.current()) * self.segment_bytes + self.offset;
            self.number += 1;
            self.offset += frame.len() as u64 + u64::from(page_bytes);
            self.bytes += frame.len() as u64;
            writes.push((at, frame));
            if self.offset >= self.segment_bytes {
                self.segments.push(take().ok_or_else(|| none_left.clone())?);
                self.offset = 0;
            }
            if flags & LAST != 0 {
                return Ok(writes);
            }
            (rest, flags) = (later, 0);
        }
    }
}
