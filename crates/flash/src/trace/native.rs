//! The compact binary format of traces, version 1; `docs/format/trace.md` describes its bytes.
//!
//! A header, one record an operation of 3 to 33 bytes, and an end mark with the number of records
//! and a checksum, so that a truncated or damaged trace is an error. Both directions stream.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::error::{Result, TraceError};
use super::lines::Input;
use super::{Clock, OpKind, TraceOp};

/// The first bytes of a trace.
pub const MAGIC: [u8; 8] = *b"esktrace";
/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 1;

const HEADER_BYTES: usize = 12;
/// Tag, stream, and three numbers of at most ten bytes.
const RECORD_BYTES_MAX: usize = 32;
const END: u8 = 0xff;
/// The tag of the end, the number of records, the checksum.
const END_BYTES: usize = 13;
const BUFFER_BYTES: usize = 64 << 10;
const SECTOR_BYTES: u64 = 512;

const KIND: u8 = 0b0000_0011;
const IN_SECTORS: u8 = 0b0000_0100;
const FOLLOWS: u8 = 0b0000_1000;
const HAS_STREAM: u8 = 0b0001_0000;

/// What a record is relative to: the operation before it.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    at_ns: u64,
    end: u64,
    stream: u8,
}

impl Before {
    const fn advance(&mut self, op: &TraceOp) {
        self.at_ns = op.at_ns;
        self.stream = op.stream;
        if !matches!(op.kind, OpKind::Flush) {
            self.end = op.offset.saturating_add(op.length);
        }
    }
}

/// Writes a trace operation by operation.
///
/// A trace without [`TraceWriter::finish`] has no end mark, and is refused by the reader.
pub struct TraceWriter {
    output: BufWriter<Box<dyn Write + Send>>,
    path: PathBuf,
    before: Before,
    count: u64,
    checksum: u32,
}

impl TraceWriter {
    /// Creates a trace, or replaces the file of this name.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path)
            .map_err(|source| TraceError::Write { path: path.to_owned(), source })?;
        Self::new(path, Box::new(file))
    }

    /// A trace in any stream; `path` is its name in errors.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn new(path: &Path, output: Box<dyn Write + Send>) -> Result<Self> {
        let mut writer = Self {
            output: BufWriter::with_capacity(BUFFER_BYTES, output),
            path: path.to_owned(),
            before: Before::default(),
            count: 0,
            checksum: 0,
        };
        let mut header = [0; HEADER_BYTES];
        let (magic, version) = header.split_at_mut(MAGIC.len());
        magic.copy_from_slice(&MAGIC);
        version.copy_from_slice(&VERSION.to_le_bytes());
        writer.write(&header)?;
        Ok(writer)
    }

    /// Appends an operation. A time before that of the operation before it is written as that one.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn push(&mut self, op: &TraceOp) -> Result<()> {
        let mut record = Record::default();
        encode(&mut record, op, &self.before);
        self.write(record.bytes())?;
        let at_ns = op.at_ns.max(self.before.at_ns);
        self.before.advance(&TraceOp { at_ns, ..*op });
        self.count += 1;
        Ok(())
    }

    /// Writes the end mark and passes everything to the system; answers the number of operations.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn finish(mut self) -> Result<u64> {
        let mut end = vec![END];
        end.extend(self.count.to_le_bytes());
        self.write(&end)?;
        let checksum = self.checksum.to_le_bytes();
        self.output.write_all(&checksum).map_err(|source| self.failed(source))?;
        self.output.flush().map_err(|source| self.failed(source))?;
        Ok(self.count)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.output.write_all(bytes).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> TraceError {
        TraceError::Write { path: self.path.clone(), source }
    }
}

/// The bytes of one record.
#[derive(Default)]
struct Record {
    bytes: [u8; RECORD_BYTES_MAX],
    length: usize,
}

impl Record {
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn encode(record: &mut Record, op: &TraceOp, before: &Before) {
    let has_range = op.kind != OpKind::Flush;
    let in_sectors = has_range && (op.offset | op.length).is_multiple_of(SECTOR_BYTES);
    let follows = has_range && op.offset == before.end;
    let has_stream = op.stream != before.stream;
    let mut tag = match op.kind {
        OpKind::Read => 0,
        OpKind::Write => 1,
        OpKind::Trim => 2,
        OpKind::Flush => 3,
    };
    for (is_set, bit) in [(in_sectors, IN_SECTORS), (follows, FOLLOWS), (has_stream, HAS_STREAM)] {
        if is_set {
            tag |= bit;
        }
    }
    record.byte(tag);
    if has_stream {
        record.byte(op.stream);
    }
    record.varint(op.at_ns.saturating_sub(before.at_ns));
    if has_range {
        let unit = if in_sectors { SECTOR_BYTES } else { 1 };
        if !follows {
            record.varint(op.offset / unit);
        }
        record.varint(op.length / unit);
    }
}

/// Reads a trace operation by operation.
pub(super) struct NativeReader {
    input: Input,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were decoded.
    start: usize,
    /// Offset of `start` in the trace.
    offset: u64,
    before: Before,
    clock: Clock,
    count: u64,
    checksum: u32,
    is_started: bool,
    at_end: bool,
}

impl NativeReader {
    pub(super) fn new(path: &Path, input: Input) -> Self {
        Self {
            input,
            path: path.to_owned(),
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            before: Before::default(),
            clock: Clock::default(),
            count: 0,
            checksum: 0,
            is_started: false,
            at_end: false,
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<TraceOp>> {
        if self.at_end {
            return Ok(None);
        }
        self.fill()?;
        if !self.is_started {
            self.header()?;
        }
        let left = self.buffer.get(self.start..).unwrap_or_default();
        if left.first() == Some(&END) {
            return self.end().map(|()| None);
        }
        let (op, length) = decode(left, &self.before).map_err(|what| self.wrong(what))?;
        self.consume(length);
        self.before.advance(&op);
        self.count += 1;
        Ok(Some(TraceOp { at_ns: self.clock.at(op.at_ns), ..op }))
    }

    /// Makes at least one record, the end or the header available, if the file has as much.
    fn fill(&mut self) -> Result<()> {
        if self.buffer.len() - self.start >= RECORD_BYTES_MAX {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let wanted = BUFFER_BYTES.saturating_sub(self.buffer.len()) as u64;
        (&mut self.input)
            .take(wanted)
            .read_to_end(&mut self.buffer)
            .map_err(|source| TraceError::Read { path: self.path.clone(), line: 0, source })?;
        Ok(())
    }

    fn header(&mut self) -> Result<()> {
        let header = self.buffer.first_chunk::<HEADER_BYTES>();
        let Some((magic, version)) = header.and_then(|header| header.split_first_chunk::<8>())
        else {
            return Err(self.wrong("the file is shorter than the header of a trace".to_owned()));
        };
        if *magic != MAGIC {
            return Err(self.wrong(
                "this is not a trace of esker: its first bytes are not 'esktrace'".to_owned(),
            ));
        }
        let version = version.first_chunk::<4>().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if version > VERSION {
            let path = self.path.clone();
            return Err(TraceError::Newer { path, found: version, supported: VERSION });
        }
        if version == 0 {
            return Err(self.wrong("the trace has version 0, which does not exist".to_owned()));
        }
        self.consume(HEADER_BYTES);
        self.is_started = true;
        self.fill()
    }

    /// Checks the end mark, and that nothing follows it.
    fn end(&mut self) -> Result<()> {
        let left = self.buffer.get(self.start..).unwrap_or_default();
        let Some(mark) = left.first_chunk::<END_BYTES>() else {
            return Err(self.wrong("the trace ends within its end mark".to_owned()));
        };
        let is_more = left.len() > END_BYTES;
        let [_, count @ .., c0, c1, c2, c3] = *mark;
        let (count, checksum) = (u64::from_le_bytes(count), u32::from_le_bytes([c0, c1, c2, c3]));
        let covered = mark.get(..END_BYTES - 4).unwrap_or_default();
        let found = crc32c::crc32c_append(self.checksum, covered);
        if count != self.count {
            return Err(self.wrong(format!(
                "the end mark counts {count} operations, and {} were read: the trace is damaged",
                self.count
            )));
        }
        if checksum != found {
            return Err(self.wrong(format!(
                "the checksum is {found:08x} and should be {checksum:08x}: the trace is damaged"
            )));
        }
        if is_more {
            return Err(self.wrong("bytes follow the end mark".to_owned()));
        }
        self.at_end = true;
        Ok(())
    }

    fn consume(&mut self, length: usize) {
        let bytes = self.buffer.get(self.start..self.start + length).unwrap_or_default();
        self.checksum = crc32c::crc32c_append(self.checksum, bytes);
        self.start += length;
        self.offset += length as u64;
    }

    fn wrong(&self, what: String) -> TraceError {
        TraceError::Bytes { path: self.path.clone(), offset: self.offset, what }
    }
}

/// The operation at the start of the bytes, and the length of its record.
fn decode(bytes: &[u8], before: &Before) -> std::result::Result<(TraceOp, usize), String> {
    let mut rest = bytes;
    let tag = byte(&mut rest)?;
    if tag & !(KIND | IN_SECTORS | FOLLOWS | HAS_STREAM) != 0 {
        return Err(format!("a record begins with {tag:#04x}, which no version uses"));
    }
    let kind = match tag & KIND {
        0 => OpKind::Read,
        1 => OpKind::Write,
        2 => OpKind::Trim,
        _ => OpKind::Flush,
    };
    let stream = if tag & HAS_STREAM == 0 { before.stream } else { byte(&mut rest)? };
    let at_ns = before
        .at_ns
        .checked_add(varint(&mut rest)?)
        .ok_or_else(|| "a time exceeds 2^64 ns".to_owned())?;
    let mut op = TraceOp { at_ns, offset: 0, length: 0, kind, stream };
    if kind != OpKind::Flush {
        let unit = if tag & IN_SECTORS == 0 { 1 } else { SECTOR_BYTES };
        let in_bytes = |value: u64| value.checked_mul(unit).ok_or_else(too_far);
        op.offset = if tag & FOLLOWS == 0 { in_bytes(varint(&mut rest)?)? } else { before.end };
        op.length = in_bytes(varint(&mut rest)?)?;
        op.offset.checked_add(op.length).ok_or_else(too_far)?;
    }
    Ok((op, bytes.len() - rest.len()))
}

fn too_far() -> String {
    "an operation ends behind 2^64 bytes".to_owned()
}

fn byte(rest: &mut &[u8]) -> std::result::Result<u8, String> {
    match rest.split_first() {
        Some((first, behind)) => {
            *rest = behind;
            Ok(*first)
        }
        None => {
            Err("the trace ends here without its end mark: its recording was cut short".to_owned())
        }
    }
}

fn varint(rest: &mut &[u8]) -> std::result::Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = byte(rest)?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            break;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number exceeds 2^64".to_owned())
}
