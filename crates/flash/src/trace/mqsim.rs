//! Traces of MQSim (Tavakkol et al., FAST 2018), which SSDsim and DiskSim also read.
//!
//! Five words a line: arrival time in ns, device number, first sector, sectors of 512 bytes, and
//! the type, 0 for a write and 1 for a read. As in MQSim, the device number is not used.

use super::error::Result;
use super::fields::{Parsed, number, range, required, sectors, shown, words};
use super::lines::Lines;
use super::{Clock, OpKind, TraceOp};

/// Operations of one file.
pub(super) struct Mqsim {
    lines: Lines,
    clock: Clock,
}

impl Mqsim {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, clock: Clock::default() }
    }

    pub(super) fn next(&mut self) -> Result<Option<TraceOp>> {
        loop {
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if line.is_empty() {
                continue;
            }
            return match parse(line) {
                Ok(op) => Ok(Some(TraceOp { at_ns: self.clock.at(op.at_ns), ..op })),
                Err(what) => Err(self.lines.wrong(what)),
            };
        }
    }
}

/// An operation with its absolute time.
fn parse(line: &[u8]) -> Parsed<TraceOp> {
    let mut fields = words(line);
    let at_ns = number(fields.next(), "arrival time")?;
    number(fields.next(), "device number")?;
    let offset = sectors(number(fields.next(), "first sector")?, "first sector")?;
    let length = sectors(number(fields.next(), "size")?, "size")?;
    let kind = match required(fields.next(), "type")? {
        b"0" => OpKind::Write,
        b"1" => OpKind::Read,
        text => return Err(format!("its type is '{}', not 0 (write) or 1 (read)", shown(text))),
    };
    if fields.next().is_some() {
        return Err("it has more than 5 fields".to_owned());
    }
    range(offset, length)?;
    Ok(TraceOp { at_ns, offset, length, kind, stream: 0 })
}
