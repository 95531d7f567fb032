//! Block traces of MSR Cambridge (Narayanan, Donnelly, Rowstron, FAST 2008), as SNIA publishes
//! them: one file a disk, csv or csv.gz.
//!
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: the time in units of 100 ns
//! (Windows FILETIME), `Read` or `Write`, bytes.

use super::error::Result;
use super::fields::{Parsed, number, range, required, shown};
use super::lines::Lines;
use super::{Clock, OpKind, TraceOp};

/// Operations of one file.
pub(super) struct Msr {
    lines: Lines,
    clock: Clock,
    /// Host and disk of the first line.
    disk: Vec<u8>,
}

/// A line, before its time is made relative.
struct Line<'a> {
    time_100ns: u64,
    disk: &'a [u8],
    op: TraceOp,
}

impl Msr {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, clock: Clock::default(), disk: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Result<Option<TraceOp>> {
        loop {
            let number = self.lines.number();
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if line.is_empty() || number == 0 && line.starts_with(b"Timestamp,") {
                continue;
            }
            let op = parse(line).and_then(|line| {
                if self.disk.is_empty() {
                    self.disk = line.disk.to_vec();
                }
                if self.disk != line.disk {
                    return Err(format!(
                        "the disk is {} and was {}: give a file of one disk",
                        shown(line.disk),
                        shown(&self.disk)
                    ));
                }
                let at_ns = self.clock.at(line.time_100ns.saturating_mul(100));
                Ok(TraceOp { at_ns, ..line.op })
            });
            return op.map(Some).map_err(|what| self.lines.wrong(what));
        }
    }
}

fn parse(line: &[u8]) -> Parsed<Line<'_>> {
    let mut fields = line.split(|byte| *byte == b',');
    let time = fields.next();
    let time_100ns = number(time, "timestamp")?;
    let host = required(fields.next(), "host name")?;
    let disk_number = required(fields.next(), "disk number")?;
    let kind = match required(fields.next(), "type")? {
        text if text.eq_ignore_ascii_case(b"read") => OpKind::Read,
        text if text.eq_ignore_ascii_case(b"write") => OpKind::Write,
        text => return Err(format!("its type is '{}', not Read or Write", shown(text))),
    };
    let offset = number(fields.next(), "offset")?;
    let length = number(fields.next(), "size")?;
    required(fields.next(), "response time")?;
    if fields.next().is_some() {
        return Err("it has more than 7 fields".to_owned());
    }
    range(offset, length)?;
    // Both fields with the comma between them.
    let start = time.map_or(0, <[u8]>::len) + 1;
    let disk = line.get(start..start + host.len() + 1 + disk_number.len()).unwrap_or_default();
    Ok(Line { time_100ns, disk, op: TraceOp { at_ns: 0, offset, length, kind, stream: 0 } })
}
