//! Segment files: names, creation, spares.
//!
//! A segment file takes its whole space at once and is then reused for ever: rewriting written
//! blocks makes a sync several times cheaper than growing a file. Where syncs are many it is also
//! filled with zeros before its first use; where they are few, that would cost more than it saves.
//! The header identifies the current use of the file; the records of earlier uses stay behind the
//! newer ones and are refused by their seal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;

use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use esker_format::frame::{FrameHeader, FrameKind, Seal};
use esker_format::ids::{KeyspaceId, SegmentId, Seq, StoreId};
use esker_format::log_record::{SEGMENT_HEADER_BYTES, SegmentHeader};
use esker_format::manifest_edit::SegmentRef;

use crate::error::{Error, Result};
use crate::planted::{self, Bug};

/// The offset of the first record of a segment, in bytes.
pub(super) const RECORDS_OFFSET: u64 = SEGMENT_HEADER_BYTES as u64;

/// Writing this many zeros takes about as long as is saved by a sync that does not have to record
/// which blocks are written for the first time.
const SYNC_WORTH_BYTES: u64 = 256 << 10;

/// Spares that stay when space is returned to the device, and that values may not use: operations
/// that free space on a full device are logged there.
pub(super) const SPARES_KEPT: usize = 1;

/// Whether a file of `bytes` should be written through before its first use, when a segment of this
/// length has `syncs` syncs.
pub(super) const fn are_zeros_worth(bytes: u64, syncs: u64) -> bool {
    bytes <= syncs.saturating_mul(SYNC_WORTH_BYTES)
}

/// The name of a segment file.
#[must_use]
pub fn segment_name(file: u32) -> String {
    format!("log-{file:08x}")
}

/// The number of the segment file with this name.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    let number = u32::from_str_radix(name.strip_prefix("log-")?, 16).ok()?;
    (segment_name(number) == name).then_some(number)
}

/// The seal of the records in one use of a segment file.
pub(super) fn seal(store: StoreId, id: SegmentId) -> Seal {
    let stale_too = planted::is(Bug::StaleLogTailAccepted);
    Seal::new(store, FrameKind::Log, if stale_too { 0 } else { id.0 })
}

/// A segment in use.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub reference: SegmentRef,
    pub file: Arc<dyn DeviceFile>,
    pub seal: Seal,
    /// The offset of the next record, or of the end of the last one.
    pub end: u64,
    /// The highest number of each keyspace, as far as known.
    pub highest: BTreeMap<KeyspaceId, Seq>,
    /// Whether `highest` covers all records.
    pub replayed: bool,
    /// The record that a follower has read last here, and its offset.
    pub last_record: Option<(u64, FrameHeader)>,
    /// The keyspace that needed the segment at the last check, which is checked first. Numbers of
    /// flushes only grow, so that all checks together cost one walk, and not one each.
    pub last_pin: KeyspaceId,
}

impl Segment {
    /// Whether the segment is no longer needed: each of its keyspaces is flushed beyond it or
    /// dropped.
    pub fn is_obsolete(&mut self, flushed: &dyn Fn(KeyspaceId) -> Option<Seq>) -> bool {
        self.replayed && self.pin(flushed).is_none()
    }

    /// A keyspace that still needs the segment.
    pub fn pin(&mut self, flushed: &dyn Fn(KeyspaceId) -> Option<Seq>) -> Option<KeyspaceId> {
        let needed = |(keyspace, highest): (&KeyspaceId, &Seq)| {
            flushed(*keyspace).is_some_and(|flushed| flushed < *highest).then_some(*keyspace)
        };
        let from = self.last_pin;
        let around = self.highest.range(from..).chain(self.highest.range(..from));
        let pin = around.into_iter().find_map(needed);
        self.last_pin = pin.unwrap_or(from);
        pin
    }

    /// Notes that a record of `keyspace` has this number.
    pub fn note(&mut self, keyspace: KeyspaceId, seq: Seq) {
        let highest = self.highest.entry(keyspace).or_default();
        *highest = seq.max(*highest);
    }
}

/// Opens a live segment and checks its header and length.
pub(super) fn open_live(
    device: &dyn Device,
    store: StoreId,
    reference: SegmentRef,
) -> Result<Segment> {
    let name = segment_name(reference.file);
    let file = match device.open(&name, Open::Existing, Caching::Buffered) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => {
            return Err(corrupt(&name, 0, "the manifest names this segment, but it is missing"));
        }
        other => other?,
    };
    check_header(file.as_ref(), store, &reference, Purpose::Recovery)?;
    Ok(Segment {
        reference,
        file,
        seal: seal(store, reference.id),
        end: reference.bytes,
        highest: BTreeMap::new(),
        replayed: false,
        last_record: None,
        last_pin: KeyspaceId(0),
    })
}

/// Checks that a file is long enough and that its header is this segment's.
pub(super) fn check_header(
    file: &dyn DeviceFile,
    store: StoreId,
    reference: &SegmentRef,
    purpose: Purpose,
) -> Result<()> {
    let (name, len) = (file.name(), file.len()?);
    if len < reference.bytes {
        return Err(corrupt(name, len, "the segment ends before its recorded length"));
    }
    let mut bytes = vec![0; SEGMENT_HEADER_BYTES];
    file.read_at(0, &mut bytes, purpose)?;
    let found = SegmentHeader::decode(&bytes).map_err(|error| Error::corrupt(name, 0, &error))?;
    let expected = SegmentHeader { store, id: reference.id, first_seq: reference.first_seq };
    if found != expected {
        return Err(corrupt(name, 0, "the segment is of another store or another time"));
    }
    Ok(())
}

pub(super) fn corrupt(file: &str, offset: u64, what: &str) -> Error {
    Error::Corrupt { file: file.to_string(), offset, what: what.to_string() }
}

/// Files that hold no live segment, and the numbers of all files.
#[derive(Debug, Default)]
pub(super) struct Spares {
    /// Numbers of files for reuse, whose names and lengths are durable: each was a live segment
    /// since the log was opened, or was made ahead.
    pub files: Vec<u32>,
    /// Numbers of files whose names and lengths may not be durable: an earlier run left them (a
    /// sync may have failed), or they could not be made. They are removed and not reused.
    pub strays: Vec<u32>,
    /// Numbers of all existing files: live segments, spares, strays, and files being made.
    pub numbers: BTreeSet<u32>,
    /// Length of an ordinary segment, and of every spare, in bytes.
    pub segment_bytes: u64,
}

impl Spares {
    /// A number for a new file.
    pub fn new_number(&mut self) -> u32 {
        let number = (1..=u32::MAX).find(|number| !self.numbers.contains(number));
        let number = number.unwrap_or(u32::MAX);
        self.numbers.insert(number);
        number
    }

    /// Removes the strays, as far as it goes.
    pub fn remove_strays(&mut self, device: &dyn Device) {
        let Self { strays, numbers, .. } = self;
        strays.retain(|number| {
            let is_gone = match device.remove(&segment_name(*number)) {
                Ok(()) => true,
                Err(error) => error.source.kind() == ErrorKind::NotFound,
            };
            if is_gone {
                numbers.remove(number);
            }
            !is_gone
        });
    }

    /// Puts back a file that could not be used, or was made ahead.
    pub fn put_back(&mut self, number: u32, is_durable: bool) {
        if is_durable {
            self.files.push(number);
        } else {
            self.strays.push(number);
        }
    }
}

/// A file for the next segment.
#[derive(Debug)]
pub(super) struct Taken {
    pub number: u32,
    pub file: Arc<dyn DeviceFile>,
    pub is_new: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_written_for_a_sync_each_quarter_of_a_mebibyte() {
        assert!(!are_zeros_worth(4 << 20, 15) && are_zeros_worth(4 << 20, 16));
        assert!(!are_zeros_worth(1 << 30, 16) && are_zeros_worth(1 << 30, u64::MAX));
    }

    #[test]
    fn names_are_read_back_exactly() {
        for number in [1, 0xff, u32::MAX] {
            assert_eq!(segment_number(&segment_name(number)), Some(number));
        }
        for name in ["log-", "log-1", "log-0000000G", "log-000000001", "logs"] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }
}
