//! Reading the log, from the checkpoint on up to the first frame that is not there.

use esker_device::Purpose;
use esker_format::DecodeError;
use esker_format::bytes::Reader;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader};

use crate::error::{Result, corrupt, damaged};
use crate::log::frames::{FIRST, LAST, ORDINAL_BITS, WITH_PAGES, seal};
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

/// Reads a log from the checkpoint on, up to the first frame that is not there.
///
/// # Errors
/// A frame that was durable is damaged, or what the frames hold makes no sense.
pub(crate) fn scan(media: &dyn Media, block: &Superblock) -> Result<Scan> {
    let mut scanner = Scanner {
        media,
        block,
        segments: block.log.to_vec(),
        ordinal: 0,
        number: block.number,
        durable: block.number.saturating_sub(1),
        partial: None,
        records: Vec::new(),
        frames: Vec::new(),
    };
    while scanner.segment()? {}
    let Scanner { records, segments, frames, durable, .. } = scanner;
    Ok(Scan { records, segments, frames, durable })
}

struct Scanner<'a> {
    media: &'a dyn Media,
    block: &'a Superblock,
    segments: Vec<u32>,
    ordinal: usize,
    number: u64,
    durable: u64,
    /// A record that has begun.
    partial: Option<Vec<u8>>,
    records: Vec<(u64, Record)>,
    frames: Vec<Extent>,
}

impl Scanner<'_> {
    fn start(&self, ordinal: usize) -> Option<u64> {
        let segment = self.segments.get(ordinal)?;
        Some(u64::from(*segment) * u64::from(self.block.segment_bytes))
    }

    fn read(&self, ordinal: usize) -> Result<Option<Vec<u8>>> {
        let Some(start) = self.start(ordinal) else { return Ok(None) };
        let len = u64::from(self.block.segment_bytes);
        if start == 0 || start.saturating_add(len) > self.media.bytes()? {
            // A file that had grown and lost its new length in a crash, unless something says
            // that a frame there was durable.
            return Ok(None);
        }
        let mut bytes = vec![0; len as usize];
        self.media.read(start, &mut bytes, Purpose::Recovery)?;
        Ok(Some(bytes))
    }

    /// Reads one segment; `false` when the log ends in it.
    fn segment(&mut self) -> Result<bool> {
        let Some(bytes) = self.read(self.ordinal)? else {
            self.refuse_damage(&[], 0, self.start(self.ordinal).unwrap_or_default())?;
            return Ok(false);
        };
        let start = self.start(self.ordinal).unwrap_or_default();
        let mut offset = 0;
        while offset < bytes.len() {
            let Some(frame) = self.frame(&bytes, offset) else {
                self.refuse_damage(&bytes, offset, start)?;
                return Ok(false);
            };
            let (len, mark, body) = frame;
            self.durable = self.durable.max(mark);
            let at = start + offset as u64;
            let page_bytes =
                self.part(body).map_err(|error| damaged(self.media.name(), at, &error))?;
            self.frames.push((at, len as u64));
            self.number += 1;
            offset += len + page_bytes;
        }
        self.ordinal += 1;
        Ok(self.ordinal >> ORDINAL_BITS == 0)
    }

    /// The frame at `offset` if it is the next one: its length, its mark and its body.
    fn frame<'a>(&self, bytes: &'a [u8], offset: usize) -> Option<(usize, u64, &'a [u8])> {
        let seal = seal(self.block.store, self.block.epoch, self.ordinal);
        let rest = bytes.get(offset..)?;
        let header = FrameHeader::decode(rest, seal).ok()?;
        let len = usize::try_from(header.frame_bytes(self.block.log_unit.into())).ok()?;
        let padded = rest.get(FRAME_HEADER_BYTES..len)?;
        let is_next = header.number == self.number
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
        match self.segments.get(self.ordinal + 1) {
            None if self.segments.contains(&following) => {
                return Err(reader.error("the log leads back to a segment of its own"));
            }
            None => self.segments.push(following),
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
            self.records.push((self.number, Record::decode(&record)?));
        }
        Ok(page_bytes as usize)
    }

    /// Fails when a later frame says that the one which is not at `offset` was durable.
    fn refuse_damage(&self, bytes: &[u8], offset: usize, start: u64) -> Result<()> {
        let next = self.read(self.ordinal + 1)?;
        let rest = bytes.get(offset..).unwrap_or_default();
        let is_proof = self.proves_damage(rest, self.ordinal)
            || next.is_some_and(|next| self.proves_damage(&next, self.ordinal + 1));
        if is_proof || self.durable >= self.number {
            let what = "a commit record is gone that later ones build on";
            return Err(corrupt(self.media.name(), start + offset as u64, what));
        }
        Ok(())
    }

    fn proves_damage(&self, bytes: &[u8], ordinal: usize) -> bool {
        let seal = seal(self.block.store, self.block.epoch, ordinal);
        let headers = bytes.chunks(self.block.log_unit as usize);
        let mut headers = headers.filter_map(|chunk| FrameHeader::decode(chunk, seal).ok());
        headers.any(|header| header.number > self.number && header.mark >= self.number)
    }
}
