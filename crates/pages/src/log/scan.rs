//! Reading the log, from the checkpoint on up to the first frame that is not there.

use esker_device::Purpose;
use esker_format::DecodeError;
use esker_format::bytes::Reader;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader};

use crate::error::{Result, corrupt, damaged};
use crate::log::frames::{FIRST, LAST, Log, ORDINAL_BITS, WITH_PAGES, seal};
use crate::log::record::Record;
use crate::log::superblock::Superblock;
use crate::media::Media;

/// Bytes from the start of the file, and how many.
pub(crate) type Extent = (u64, u64);

/// The contents of a log.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The records, each with the number of its last frame.
    pub(crate) records: Vec<(u64, Record)>,
    /// Every segment that a frame names.
    pub(crate) segments: Vec<u32>,
    /// The places and lengths of its frames, in bytes.
    pub(crate) frames: Vec<Extent>,
    /// The number up to which frames are known to have been durable.
    pub(crate) durable: u64,
}

/// A place in a log, before a frame.
#[derive(Clone, Debug)]
pub(crate) struct Position {
    /// The segments that are known: those up to the present one, and at most one after it.
    pub(crate) segments: Vec<u32>,
    /// The present segment, counted from the first of the log.
    ordinal: usize,
    /// Bytes from the start of the segment.
    offset: u64,
    /// The number of the frame here.
    pub(crate) number: u64,
}

impl Position {
    /// The beginning of the log of a checkpoint.
    pub(crate) fn first(block: &Superblock) -> Self {
        Self { segments: block.log.to_vec(), ordinal: 0, offset: 0, number: block.number }
    }

    /// The end of a log that this process has written.
    pub(crate) fn end_of(log: &Log) -> Self {
        let (segments, ordinal, offset) = log.named();
        Self { segments: segments.to_vec(), ordinal, offset, number: log.number }
    }

    /// Bytes from the start of the present segment.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the segment after the present one is known.
    pub(crate) fn has_following(&self) -> bool {
        self.segments.len() > self.ordinal + 1
    }
}

/// Reads a log from the checkpoint on, up to the first frame that is not there.
///
/// # Errors
/// A frame that was durable is damaged, or what the frames hold makes no sense.
pub(crate) fn scan(media: &dyn Media, block: &Superblock) -> Result<Scan> {
    let mut scanner = Scanner::new(media, block, Position::first(block), u64::MAX);
    while scanner.segment()? {}
    let Scanner { records, at, frames, durable, .. } = scanner;
    Ok(Scan { records, segments: at.segments, frames, durable })
}

/// Bytes of a log that are read at first for one more record.
const WINDOW_BYTES: u64 = 4096;

/// Reads the log of `block` from a position on, up to the frame before number `end`, and moves the
/// position there. `None`, and the position is where it was, when one of these frames is not there:
/// its segment is used for something else by now, or the record at the end is not whole.
///
/// Cost: the bytes of the frames, and at most as many again.
///
/// # Errors
/// The device failed, or what the frames hold makes no sense.
pub(crate) fn scan_on(
    media: &dyn Media,
    block: &Superblock,
    at: &mut Position,
    end: u64,
) -> Result<Option<Scan>> {
    let mut scanner = Scanner::new(media, block, at.clone(), end);
    let mut window = WINDOW_BYTES;
    while scanner.at.number < end {
        let rest = u64::from(block.segment_bytes).saturating_sub(scanner.at.offset);
        let Some(bytes) = scanner.read(scanner.at.ordinal, scanner.at.offset, window.min(rest))?
        else {
            return Ok(None);
        };
        let before = scanner.at.number;
        scanner.frames_in(&bytes)?;
        if scanner.at.number == before && window >= rest {
            return Ok(None);
        }
        window = window.saturating_mul(4);
        if scanner.at.offset >= u64::from(block.segment_bytes) {
            scanner.next_segment();
            window = WINDOW_BYTES;
        }
    }
    if scanner.partial.is_some() || scanner.at.number != end {
        return Ok(None);
    }
    let Scanner { records, at: reached, frames, durable, .. } = scanner;
    let segments = reached.segments.clone();
    *at = reached;
    Ok(Some(Scan { records, segments, frames, durable }))
}

struct Scanner<'a> {
    media: &'a dyn Media,
    block: &'a Superblock,
    at: Position,
    /// The number of the frame that is not read any more.
    end: u64,
    durable: u64,
    /// A record that has begun.
    partial: Option<Vec<u8>>,
    records: Vec<(u64, Record)>,
    frames: Vec<Extent>,
}

impl<'a> Scanner<'a> {
    fn new(media: &'a dyn Media, block: &'a Superblock, at: Position, end: u64) -> Self {
        let durable = at.number.saturating_sub(1);
        let (records, frames) = (Vec::new(), Vec::new());
        Self { media, block, at, end, durable, partial: None, records, frames }
    }

    fn start(&self, ordinal: usize) -> Option<u64> {
        let segment = self.at.segments.get(ordinal)?;
        Some(u64::from(*segment) * u64::from(self.block.segment_bytes))
    }

    /// Bytes of a segment; `None` where the file has no such segment.
    fn read(&self, ordinal: usize, offset: u64, len: u64) -> Result<Option<Vec<u8>>> {
        let Some(start) = self.start(ordinal) else { return Ok(None) };
        let end = start.saturating_add(u64::from(self.block.segment_bytes));
        if start == 0 || end > self.media.bytes()? {
            // A file that had grown and lost its new length in a crash, unless something says
            // that a frame there was durable.
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        self.media.read(start + offset, &mut bytes, Purpose::Recovery)?;
        Ok(Some(bytes))
    }

    /// Reads one segment; `false` when the log ends in it.
    fn segment(&mut self) -> Result<bool> {
        let len = self.block.segment_bytes.into();
        let start = self.start(self.at.ordinal).unwrap_or_default();
        let Some(bytes) = self.read(self.at.ordinal, 0, len)? else {
            self.refuse_damage(&[], 0, start)?;
            return Ok(false);
        };
        self.frames_in(&bytes)?;
        if self.at.offset < len {
            self.refuse_damage(&bytes, self.at.offset as usize, start)?;
            return Ok(false);
        }
        self.next_segment();
        Ok(self.at.ordinal >> ORDINAL_BITS == 0)
    }

    fn next_segment(&mut self) {
        self.at.ordinal += 1;
        self.at.offset = 0;
    }

    /// Takes the next frames, as far as they are whole in `bytes`, which begin at the position.
    fn frames_in(&mut self, bytes: &[u8]) -> Result<()> {
        let first = self.at.offset;
        let start = self.start(self.at.ordinal).unwrap_or_default();
        while self.at.number < self.end {
            let within = (self.at.offset - first) as usize;
            let Some((len, mark, body)) = self.frame(bytes, within) else { break };
            self.durable = self.durable.max(mark);
            let at = start + self.at.offset;
            let page_bytes =
                self.part(body).map_err(|error| damaged(self.media.name(), at, &error))?;
            self.frames.push((at, len as u64));
            self.at.number += 1;
            self.at.offset += (len + page_bytes) as u64;
        }
        Ok(())
    }

    /// The frame at `offset` if it is the next one: its length, its mark and its body.
    fn frame<'b>(&self, bytes: &'b [u8], offset: usize) -> Option<(usize, u64, &'b [u8])> {
        let seal = seal(self.block.store, self.block.epoch, self.at.ordinal);
        let rest = bytes.get(offset..)?;
        let header = FrameHeader::decode(rest, seal).ok()?;
        let len = usize::try_from(header.frame_bytes(self.block.log_unit.into())).ok()?;
        let padded = rest.get(FRAME_HEADER_BYTES..len)?;
        let is_next = header.number == self.at.number
            && header.mark < header.number
            && header.check_body(padded).is_ok();
        let body = padded.get(..header.body_bytes as usize)?;
        is_next.then_some((len, header.mark, body))
    }

    /// Takes the body of the next frame, and says how many bytes of pages follow it.
    fn part(&mut self, body: &[u8]) -> std::result::Result<usize, DecodeError> {
        let mut reader = Reader::new(body);
        let (flags, following) = (reader.u8()?, reader.u32()?);
        let page_bytes = if flags & WITH_PAGES == 0 { 0 } else { reader.u32()? };
        if !page_bytes.is_multiple_of(self.block.log_unit) {
            return Err(
                reader.error("the data after a frame header is not a whole number of pages")
            );
        }
        match self.at.segments.get(self.at.ordinal + 1) {
            None if self.at.segments.contains(&following) => {
                return Err(reader.error("the log leads back to a segment of its own"));
            }
            None => self.at.segments.push(following),
            Some(known) if *known == following => {}
            Some(_) => return Err(reader.error("a frame names another segment than the last one")),
        }
        let mut record = match (flags & FIRST != 0, self.partial.take()) {
            (true, None) => Vec::new(),
            (false, Some(partial)) => partial,
            _ => return Err(reader.error("a part of a record belongs to none")),
        };
        record.extend_from_slice(body.get(reader.offset()..).unwrap_or_default());
        if flags & LAST == 0 {
            self.partial = Some(record);
        } else {
            self.records.push((self.at.number, Record::decode(&record)?));
        }
        Ok(page_bytes as usize)
    }

    /// Fails when a later frame says that the one which is not at `offset` was durable.
    fn refuse_damage(&self, bytes: &[u8], offset: usize, start: u64) -> Result<()> {
        let next = self.read(self.at.ordinal + 1, 0, self.block.segment_bytes.into())?;
        let rest = bytes.get(offset..).unwrap_or_default();
        let is_proof = self.proves_damage(rest, self.at.ordinal)
            || next.is_some_and(|next| self.proves_damage(&next, self.at.ordinal + 1));
        if is_proof || self.durable >= self.at.number {
            let what = "a commit record is gone that later ones build on";
            return Err(corrupt(self.media.name(), start + offset as u64, what));
        }
        Ok(())
    }

    fn proves_damage(&self, bytes: &[u8], ordinal: usize) -> bool {
        let seal = seal(self.block.store, self.block.epoch, ordinal);
        let headers = bytes.chunks(self.block.log_unit as usize);
        let mut headers = headers.filter_map(|chunk| FrameHeader::decode(chunk, seal).ok());
        headers.any(|header| header.number > self.at.number && header.mark >= self.at.number)
    }
}
