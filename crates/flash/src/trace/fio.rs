//! Logs of fio (`write_iolog=`), versions 2 and 3.
//!
//! Version 2: `FILE ACTION OFFSET LENGTH`, bytes; time passes only by `wait`, in µs. Version 3:
//! the same after a time in µs since the start of the job, and no `wait`. `add`, `open` and
//! `close` have no offset and length.

use super::error::Result;
use super::fields::{Parsed, number, range, required, shown, words};
use super::lines::Lines;
use super::{Clock, OpKind, TraceOp};

const HEADER: &[u8] = b"fio version ";

/// Operations of one file.
pub(super) struct Fio {
    lines: Lines,
    clock: Clock,
    /// 2 or 3; 0 before the first line.
    version: u8,
    /// Version 2: the sum of all waits.
    waited_ns: u64,
    /// The file of the first operation.
    file: Vec<u8>,
}

/// What a line asks for.
enum Line<'a> {
    Op {
        file: &'a [u8],
        time_us: u64,
        op: TraceOp,
    },
    Wait {
        micros: u64,
    },
    /// Files are opened and closed.
    Nothing,
}

impl Fio {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, clock: Clock::default(), version: 0, waited_ns: 0, file: Vec::new() }
    }

    pub(super) fn next(&mut self) -> Result<Option<TraceOp>> {
        loop {
            let is_first = self.version == 0;
            let Some(line) = self.lines.next()? else { return Ok(None) };
            if is_first {
                match version(line) {
                    Ok(version) => self.version = version,
                    Err(what) => return Err(self.lines.wrong(what)),
                }
                continue;
            }
            let parsed = match self.version {
                _ if line.is_empty() => Ok(Line::Nothing),
                2 => parse(line, false),
                _ => parse(line, true),
            };
            match parsed {
                Ok(Line::Nothing) => {}
                Ok(Line::Wait { micros }) => {
                    self.waited_ns = self.waited_ns.saturating_add(micros.saturating_mul(1000));
                }
                Ok(Line::Op { file, time_us, op }) => {
                    if self.file.is_empty() {
                        self.file = file.to_vec();
                    }
                    if self.file != file {
                        let what = format!(
                            "the file is {} and was {}: log one file or device",
                            shown(file),
                            shown(&self.file)
                        );
                        return Err(self.lines.wrong(what));
                    }
                    let ns = self.waited_ns.saturating_add(time_us.saturating_mul(1000));
                    return Ok(Some(TraceOp { at_ns: self.clock.at(ns), ..op }));
                }
                Err(what) => return Err(self.lines.wrong(what)),
            }
        }
    }
}

/// The version that the first line states.
fn version(line: &[u8]) -> Parsed<u8> {
    match line.strip_prefix(HEADER).and_then(|rest| rest.strip_suffix(b" iolog")) {
        Some(b"2") => Ok(2),
        Some(b"3") => Ok(3),
        Some(other) => {
            Err(format!("fio's log has version {}; versions 2 and 3 are read", shown(other)))
        }
        None => Err(format!(
            "the first line is '{}', not 'fio version 2 iolog' or 'fio version 3 iolog'",
            shown(line)
        )),
    }
}

fn parse(line: &[u8], has_time: bool) -> Parsed<Line<'_>> {
    let mut fields = words(line);
    let time_us = if has_time { number(fields.next(), "time in µs")? } else { 0 };
    let file = required(fields.next(), "file")?;
    let action = required(fields.next(), "action")?;
    let kind = match action {
        b"read" => OpKind::Read,
        b"write" => OpKind::Write,
        b"trim" => OpKind::Trim,
        b"sync" | b"datasync" => OpKind::Flush,
        b"wait" if has_time => {
            return Err("version 3 of the log has times and no wait".to_owned());
        }
        b"wait" => return Ok(Line::Wait { micros: number(fields.next(), "time to wait")? }),
        // `sync_file_range` starts writes and makes nothing durable.
        b"add" | b"open" | b"close" | b"sync_file_range" => return Ok(Line::Nothing),
        other => {
            return Err(format!(
                "its action is '{}', not read, write, trim, sync, datasync, wait, add, open or \
                 close",
                shown(other)
            ));
        }
    };
    let (offset, length) = if kind == OpKind::Flush {
        (0, 0)
    } else {
        (number(fields.next(), "offset")?, number(fields.next(), "length")?)
    };
    range(offset, length)?;
    Ok(Line::Op { file, time_us, op: TraceOp { at_ns: 0, offset, length, kind, stream: 0 } })
}
