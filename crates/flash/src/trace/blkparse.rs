//! The text that `blkparse` prints by default from a trace of the Linux block layer.
//!
//! `MAJOR,MINOR CPU SEQUENCE SECONDS PID EVENT RWBS [SECTOR + SECTORS] [PROCESS]`. A request passes
//! several events (queued, issued to the driver, completed); those of one kind are the trace. In
//! RWBS, `D` is a discard, `F` in front a flush before the request; a write through the device's
//! cache (`F` behind) is a write.

use super::error::Result;
use super::fields::{Parsed, number, range, required, seconds_as_ns, sectors, shown, words};
use super::lines::Lines;
use super::{Clock, OpKind, TraceOp};

/// The event of a request at which it enters the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `Q`: the file system has made the request, before requests are merged.
    Queued,
    /// `D`: the request goes to the driver, merged: what the device sees.
    Issued,
    /// `C`: the device has completed it.
    Completed,
}

impl Event {
    const fn letter(self) -> u8 {
        match self {
            Self::Queued => b'Q',
            Self::Issued => b'D',
            Self::Completed => b'C',
        }
    }
}

/// Operations of one file.
pub(super) struct Blkparse {
    lines: Lines,
    clock: Clock,
    event: Event,
    /// The device of the first operation.
    device: Vec<u8>,
    /// The request of a line that also has a flush, which comes first.
    pending: Option<TraceOp>,
    /// Whether a request of the wanted event was seen, and which other one was.
    has_wanted: bool,
    other: Option<u8>,
    at_end: bool,
}

/// What a line says.
enum Line<'a> {
    /// The events are over; a summary follows.
    Summary,
    /// An event of another kind, which may be one of those that a trace can consist of.
    Other(Option<u8>),
    Request {
        device: &'a [u8],
        at_ns: u64,
        has_flush: bool,
        op: Option<TraceOp>,
    },
}

impl Blkparse {
    pub(super) fn new(lines: Lines, event: Event) -> Self {
        Self {
            lines,
            clock: Clock::default(),
            event,
            device: Vec::new(),
            pending: None,
            has_wanted: false,
            other: None,
            at_end: false,
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<TraceOp>> {
        if let Some(op) = self.pending.take() {
            return Ok(Some(op));
        }
        while !self.at_end {
            let Some(line) = self.lines.next()? else { break };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match parse(line, self.event) {
                Ok(Line::Summary) => break,
                Ok(Line::Other(event)) => self.other = self.other.or(event),
                Ok(Line::Request { device, at_ns, has_flush, op }) => {
                    self.has_wanted = true;
                    if self.device.is_empty() {
                        self.device = device.to_vec();
                    }
                    if self.device != device {
                        let what = format!(
                            "the device is {} and was {}: trace one device",
                            shown(device),
                            shown(&self.device)
                        );
                        return Err(self.lines.wrong(what));
                    }
                    let at_ns = self.clock.at(at_ns);
                    let op = op.map(|op| TraceOp { at_ns, ..op });
                    if has_flush {
                        self.pending = op;
                        return Ok(Some(TraceOp::flush(at_ns)));
                    }
                    if op.is_some() {
                        return Ok(op);
                    }
                }
                Err(what) => return Err(self.lines.wrong(what)),
            }
        }
        self.at_end = true;
        match self.other {
            Some(other) if !self.has_wanted => {
                // Once; afterwards the trace has ended.
                self.has_wanted = true;
                Err(self.lines.wrong(format!(
                    "the trace has no events {}, but events {}: read it as blkparse-{}:FILE",
                    char::from(self.event.letter()),
                    char::from(other),
                    char::from(other.to_ascii_lowercase())
                )))
            }
            _ => Ok(None),
        }
    }
}

fn parse(line: &[u8], wanted: Event) -> Parsed<Line<'_>> {
    let mut fields = words(line);
    let device = required(fields.next(), "device")?;
    if device.starts_with(b"CPU") || device == b"Total" {
        return Ok(Line::Summary);
    }
    if !is_device(device) {
        return Err(format!("its device is '{}', not MAJOR,MINOR such as 8,0", shown(device)));
    }
    number(fields.next(), "processor")?;
    number(fields.next(), "sequence number")?;
    let at_ns = seconds_as_ns(fields.next(), "time")?;
    required(fields.next(), "process")?;
    let event = required(fields.next(), "event")?;
    if event != [wanted.letter()] {
        return Ok(Line::Other(match event {
            [letter @ (b'Q' | b'D' | b'C')] => Some(*letter),
            _ => None,
        }));
    }
    let rwbs = required(fields.next(), "kind of request (RWBS)")?;
    let has_flush = rwbs.first() == Some(&b'F');
    let kind = kind_of(rwbs);
    let start = fields.next().filter(|field| !field.starts_with(b"["));
    let has_range = fields.next() == Some(b"+");
    let op = match (kind, start) {
        (Some(kind), Some(start)) if has_range => {
            let offset = sectors(number(Some(start), "sector")?, "sector")?;
            let length = sectors(number(fields.next(), "number of sectors")?, "length")?;
            range(offset, length)?;
            Some(TraceOp { at_ns: 0, offset, length, kind, stream: 0 })
        }
        // A flush alone, or a command of SCSI that moves no data of the device.
        _ => None,
    };
    Ok(Line::Request { device, at_ns, has_flush, op: op.filter(|op| op.length > 0) })
}

/// The kind of a request by its letters; none for what is neither read, write nor discard.
fn kind_of(rwbs: &[u8]) -> Option<OpKind> {
    let letters = rwbs.strip_prefix(b"F").unwrap_or(rwbs);
    match letters.first()? {
        b'R' => Some(OpKind::Read),
        b'W' => Some(OpKind::Write),
        b'D' => Some(OpKind::Trim),
        _ => None,
    }
}

fn is_device(field: &[u8]) -> bool {
    let mut parts = field.split(|byte| *byte == b',');
    let mut is_number = || {
        let part = parts.next().unwrap_or_default();
        !part.is_empty() && part.iter().all(u8::is_ascii_digit)
    };
    is_number() && is_number() && parts.next().is_none()
}
