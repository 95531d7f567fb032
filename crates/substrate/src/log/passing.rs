//! Checking a segment while its bytes pass by, in pieces of any size: for copies of it.

use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader};
use esker_format::ids::{Seq, StoreId};
use esker_format::log_record::{LOG_GRAIN_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};

use super::hold::SegmentPart;
use super::segment::{corrupt, seal};
use crate::error::{Error, Result};

/// The part that is expected next.
#[derive(Debug)]
enum Expected {
    /// The segment's header.
    Start,
    /// A record's header.
    Record,
    /// The rest of a record, whose bytes so far have this checksum.
    Body { header: FrameHeader, left: u64, crc: u32 },
}

/// The check of one segment. Its memory is that of the longest header.
#[derive(Debug)]
pub struct PartCheck<'a> {
    store: StoreId,
    part: &'a SegmentPart,
    expected: Expected,
    /// A header of which not all has come.
    held: Vec<u8>,
    /// Bytes that have passed.
    passed: u64,
    next_seq: Seq,
}

impl<'a> PartCheck<'a> {
    /// Before the first byte of a store's segment.
    #[must_use]
    pub fn new(store: StoreId, part: &'a SegmentPart) -> Self {
        let next_seq = part.reference.first_seq;
        Self { store, part, expected: Expected::Start, held: Vec::new(), passed: 0, next_seq }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when they differ from what was written.
    pub fn pass(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let taken = match &self.expected {
                Expected::Start => self.collect(bytes, SEGMENT_HEADER_BYTES),
                Expected::Record => self.collect(bytes, FRAME_HEADER_BYTES),
                Expected::Body { left, .. } => (*left).min(bytes.len() as u64) as usize,
            };
            let (now, rest) = bytes.split_at_checked(taken).unwrap_or_default();
            self.step(now)?;
            self.passed += taken as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Behind the last byte of the part, which ends with operation `last_seq`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when something is missing.
    pub fn finish(&self, last_seq: Seq) -> Result<()> {
        let last_seq = self.part.reference.end_seq.unwrap_or(last_seq);
        let is_between = matches!(self.expected, Expected::Record) && self.held.is_empty();
        if is_between && self.next_seq == last_seq.next() {
            return Ok(());
        }
        Err(self.corrupt(&format!("the segment does not end with operation {last_seq}")))
    }

    /// The number of bytes of `bytes` that belong to a header of `len`, to which they are added.
    fn collect(&mut self, bytes: &[u8], len: usize) -> usize {
        let taken = bytes.len().min(len - self.held.len());
        self.held.extend_from_slice(bytes.get(..taken).unwrap_or_default());
        taken
    }

    fn step(&mut self, now: &[u8]) -> Result<()> {
        match &mut self.expected {
            Expected::Start if self.held.len() == SEGMENT_HEADER_BYTES => {
                let header = SegmentHeader::decode(&self.held);
                let header = header.map_err(|error| self.decoded(&error))?;
                let SegmentPart { reference, .. } = self.part;
                let (id, first_seq) = (reference.id, reference.first_seq);
                if header != (SegmentHeader { store: self.store, id, first_seq }) {
                    return Err(self.corrupt("the segment is of another store or another time"));
                }
                self.held.clear();
                self.expected = Expected::Record;
            }
            Expected::Record if self.held.len() == FRAME_HEADER_BYTES => {
                let header =
                    FrameHeader::decode(&self.held, seal(self.store, self.part.reference.id));
                let header = header.map_err(|error| self.decoded(&error))?;
                if header.number != self.next_seq.0 {
                    return Err(self.corrupt(&format!(
                        "log record {} is not consecutive (expected {})",
                        header.number, self.next_seq.0
                    )));
                }
                self.held.clear();
                self.next_seq = Seq(header.number.saturating_add(header.count.into()));
                let left = header.frame_bytes(LOG_GRAIN_BYTES) - FRAME_HEADER_BYTES as u64;
                self.expected = Expected::Body { header, left, crc: 0 };
            }
            Expected::Body { header, left, crc } => {
                *crc = FrameHeader::continue_body(*crc, now);
                *left -= now.len() as u64;
                if *left == 0 {
                    let checked = header.check_body_crc(*crc);
                    checked.map_err(|error| self.decoded(&error))?;
                    self.expected = Expected::Record;
                }
            }
            Expected::Start | Expected::Record => {}
        }
        Ok(())
    }

    fn decoded(&self, error: &esker_format::DecodeError) -> Error {
        self.corrupt(error.what)
    }

    fn corrupt(&self, what: &str) -> Error {
        corrupt(self.part.file.name(), self.passed, what)
    }
}
