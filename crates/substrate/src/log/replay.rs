//! Reading segments: where the log ends, and what is in it.
//!
//! Records of a segment follow each other in offset and number. In a closed segment all of them, up
//! to the recorded last number, were durable; a bad one is damage. Only the newest segment has a
//! tail: the first bad record ends the log there, unless there is evidence that the record was
//! durable once. So does the first one that may not have been durable and refers to missing data
//! ([`Beneath`](super::Beneath)). Evidence is
//! * the manifest, which records how far the log was durable at its last commit or at a clean
//!   close;
//! * the mark of a later record, found by looking for valid headers behind the bad record: a
//!   header carries a checksum of its own, so one offset costs one short check.
//!
//! Headers behind the tail that are *not* evidence are records that a crash left without the one
//! before them. They must never be read as part of the log after new records have been put in
//! front of them, so their range is reported, to be overwritten before the next append.

use std::ops::Range;

use esker_device::{DeviceFile, Purpose};
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader, Seal};
use esker_format::ids::Seq;
use esker_format::log_record::{LOG_GRAIN_BYTES, LogOp, decode_ops};

use super::Place;
use super::segment::{RECORDS_OFFSET, Segment};
use crate::error::{Error, Result};
use crate::planted::{self, Bug};

/// The bytes of a segment that are read at once; more only for a longer record.
const WINDOW_BYTES: u64 = 64 * 1024;

/// A record with correct checksums and position.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub at: u64,
    pub header: FrameHeader,
    padded: &'a [u8],
}

impl Record<'_> {
    /// The number of the record's last operation.
    pub const fn last_seq(&self) -> Seq {
        last_seq(&self.header)
    }

    /// Passes the operations with their places on.
    pub fn for_each(
        &self,
        file: &str,
        visit: &mut dyn FnMut(Place, LogOp<'_>) -> Result<()>,
    ) -> Result<()> {
        let base = self.at + FRAME_HEADER_BYTES as u64;
        let last = self.last_seq();
        for (op, seq) in decode_ops(&self.header, self.padded).zip(self.header.number..) {
            let place = Place { seq: Seq(seq), last };
            visit(place, op.map_err(|error| Error::corrupt(file, base, &error))?)?;
        }
        Ok(())
    }
}

const fn last_seq(header: &FrameHeader) -> Seq {
    Seq(header.number.saturating_add(header.count as u64).saturating_sub(1))
}

/// Reads a segment's records in order, with bounded memory.
#[derive(Debug)]
pub(super) struct Records<'a> {
    file: &'a dyn DeviceFile,
    seal: Seal,
    purpose: Purpose,
    /// The offset of the next record.
    at: u64,
    /// Nothing is read from here on.
    end: u64,
    next_seq: Seq,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Records<'a> {
    /// The records of `segment` that end at or before `end`.
    pub fn new(segment: &'a Segment, end: u64, purpose: Purpose) -> Self {
        Self {
            file: segment.file.as_ref(),
            seal: segment.seal,
            purpose,
            at: RECORDS_OFFSET,
            end,
            next_seq: segment.reference.first_seq,
            window: Vec::new(),
            window_at: 0,
        }
    }

    /// The next record is the one at `at`, which begins with number `next_seq`.
    pub const fn begin_at(&mut self, at: u64, next_seq: Seq) {
        (self.at, self.next_seq) = (at, next_seq);
    }

    /// The offset at which the next record begins, or would begin.
    pub const fn offset(&self) -> u64 {
        self.at
    }

    /// The number that the next record begins with.
    pub const fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// The next record; `None` when there is no valid record. Fails when the device does.
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        let at = self.at;
        let Some(header) = self.header_at(at)? else { return Ok(None) };
        let len = header.frame_bytes(LOG_GRAIN_BYTES);
        let in_order = header.number == self.next_seq.0 || planted::is(Bug::StaleLogTailAccepted);
        let fits = len <= self.end.saturating_sub(at);
        let countable = header.number.saturating_add(header.count.into()) < u64::MAX;
        if !in_order || !fits || !countable {
            return Ok(None);
        }
        let frame = self.bytes(at, len)?;
        let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        if header.check_body(body).is_err() && !planted::is(Bug::LogWithoutChecksum) {
            return Ok(None);
        }
        self.at += len;
        self.next_seq = last_seq(&header).next();
        let from = (at - self.window_at) as usize + FRAME_HEADER_BYTES;
        let until = (self.at - self.window_at) as usize;
        let padded = self.window.get(from..until).unwrap_or_default();
        Ok(Some(Record { at, header, padded }))
    }

    /// The valid header at `at`, if there is one.
    fn header_at(&mut self, at: u64) -> Result<Option<FrameHeader>> {
        if self.end.saturating_sub(at) < FRAME_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let seal = self.seal;
        let bytes = self.bytes(at, FRAME_HEADER_BYTES as u64)?;
        if planted::is(Bug::LogWithoutChecksum) {
            return Ok(FrameHeader::decode_unchecked(bytes).ok());
        }
        Ok(FrameHeader::decode(bytes, seal).ok())
    }

    /// The bytes from `at`, `len` of them, all before `end`.
    fn bytes(&mut self, at: u64, len: u64) -> Result<&[u8]> {
        let window_end = self.window_at.saturating_add(self.window.len() as u64);
        if at < self.window_at || at + len > window_end {
            let wanted = len.max(WINDOW_BYTES).min(self.end.saturating_sub(at));
            self.window.clear();
            self.window.resize(wanted as usize, 0);
            self.window_at = at;
            self.file.read_at(at, &mut self.window, self.purpose)?;
        }
        let from = (at - self.window_at) as usize;
        Ok(self.window.get(from..from + len as usize).unwrap_or_default())
    }
}

/// The end of the newest segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tail {
    /// The last number.
    pub last_seq: Seq,
    /// The offset of the next record.
    pub end: u64,
    /// The number up to which the log is known durable; at most `last_seq`.
    pub durable_seq: Seq,
    /// The records beyond `durable_seq`: perhaps they are in the page cache only.
    pub doubtful: Range<u64>,
    /// The range that holds all headers which would be valid at the tail or behind it.
    pub stale: Range<u64>,
}

/// Whether all is there that an operation refers to.
pub(super) type Has<'a> = dyn Fn(&LogOp<'_>) -> Result<bool> + 'a;

/// Finds the tail of the newest segment. `must_reach` is the number that the manifest knows to
/// have been durable.
///
/// # Errors
/// [`Error::Corrupt`] when a durable record is missing.
pub(super) fn find_tail(segment: &Segment, must_reach: Seq, has: &Has<'_>) -> Result<Tail> {
    let capacity = segment.reference.bytes;
    let mut records = Records::new(segment, capacity, Purpose::Recovery);
    let mut durable_seq = must_reach;
    while let Some(record) = records.next()? {
        durable_seq = durable_seq.max(Seq(record.header.mark));
    }
    let (end, next_seq) = (records.offset(), records.next_seq());
    let last_seq = Seq(next_seq.0.saturating_sub(1));
    let behind = search_behind(&mut records, segment)?;
    durable_seq = durable_seq.max(behind.mark);
    if durable_seq > last_seq {
        return Err(Error::Corrupt {
            file: segment.file.name().to_string(),
            offset: end,
            what: format!(
                "the log was durable up to operation {durable_seq}, but is readable only up to \
                 {last_seq}"
            ),
        });
    }
    let doubtful = find_doubtful(segment, durable_seq, end, has)?;
    let mut tail =
        Tail { last_seq, end, durable_seq, doubtful: doubtful.from..end, stale: behind.stale };
    if let Some((at, seq)) = doubtful.incomplete {
        tail.stale = at..tail.stale.end;
        (tail.end, tail.doubtful.end) = (at, at);
        tail.last_seq = Seq(seq.0.saturating_sub(1));
    }
    Ok(tail)
}

struct Behind {
    /// The highest mark of a valid header.
    mark: Seq,
    /// From the first valid header to behind the last one.
    stale: Range<u64>,
}

/// Looks for valid headers behind the tail, at every grain. The header at the tail itself is not
/// stale: the next append overwrites it, and until then its body stays torn.
fn search_behind(records: &mut Records<'_>, segment: &Segment) -> Result<Behind> {
    let tail = records.offset();
    let mut behind = Behind { mark: Seq(0), stale: tail..tail };
    let mut at = tail;
    // Every operation takes more than a byte, so these are all numbers the segment can hold.
    let (first, span) = (segment.reference.first_seq.0, segment.reference.bytes);
    while at + FRAME_HEADER_BYTES as u64 <= records.end {
        let bytes = records.bytes(at, FRAME_HEADER_BYTES as u64)?;
        let plausible = FrameHeader::decode_unchecked(bytes)
            .is_ok_and(|header| header.number.wrapping_sub(first) < span);
        if plausible && let Some(header) = records.header_at(at)? {
            behind.mark = behind.mark.max(Seq(header.mark));
            if at > tail {
                let start = if behind.stale.is_empty() { at } else { behind.stale.start };
                behind.stale = start..at + FRAME_HEADER_BYTES as u64;
            }
        }
        at += LOG_GRAIN_BYTES;
    }
    Ok(behind)
}

struct Doubtful {
    /// Offset of the first record that is not known to be durable, or the end.
    from: u64,
    /// Offset and first number of the first record that refers to missing data.
    incomplete: Option<(u64, Seq)>,
}

/// Looks at the records beyond `durable_seq`.
fn find_doubtful(segment: &Segment, durable_seq: Seq, end: u64, has: &Has<'_>) -> Result<Doubtful> {
    let mut records = Records::new(segment, end, Purpose::Recovery);
    let mut from = None;
    while let Some(record) = records.next()? {
        if record.last_seq() <= durable_seq {
            continue;
        }
        let from = *from.get_or_insert(record.at);
        let mut is_complete = true;
        record.for_each(segment.file.name(), &mut |_, op| {
            is_complete = is_complete && has(&op)?;
            Ok(())
        })?;
        if !is_complete {
            let incomplete = Some((record.at, Seq(record.header.number)));
            return Ok(Doubtful { from, incomplete });
        }
    }
    Ok(Doubtful { from: from.unwrap_or(end), incomplete: None })
}

/// Reads all records of a segment, of which the last number must be `last_seq`, and passes them
/// on. Returns where they end.
///
/// # Errors
/// [`Error::Corrupt`] when a record is missing, and what `visit` fails with.
pub(super) fn read_all(
    segment: &Segment,
    end: u64,
    last_seq: Seq,
    purpose: Purpose,
    visit: &mut dyn FnMut(&Record<'_>) -> Result<()>,
) -> Result<u64> {
    let mut records = Records::new(segment, end, purpose);
    while records.next_seq() <= last_seq {
        match records.next()? {
            Some(record) => visit(&record)?,
            None => break,
        }
    }
    if records.next_seq() != last_seq.next() {
        return Err(Error::Corrupt {
            file: segment.file.name().to_string(),
            offset: records.offset(),
            what: format!(
                "the log record of operation {} is damaged; this segment ends at {last_seq}",
                records.next_seq()
            ),
        });
    }
    Ok(records.offset())
}
