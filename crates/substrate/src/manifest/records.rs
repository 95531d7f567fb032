//! Manifest records in their file: each twice, in distant regions.
//!
//! The record at offset `o` of the first region is repeated at `o` of the second. Records begin
//! at multiples of the grain and follow each other without gaps, numbered from 1. A commit is
//! synced before the next one is written, which gives the rules of reading:
//!
//! * A copy that is bad while its twin is good is rot, except at the last record, where a crash
//!   between the two writes looks the same.
//! * A record that is bad in both copies is the torn last one, except when any valid header of a
//!   later record exists: then it was durable once, and the manifest is corrupt.

use esker_device::{DeviceError, DeviceFile, Purpose};
use esker_format::DecodeError;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Seal, encode_frame};
use esker_format::ids::{Epoch, Generation, Seq, StoreId};
use esker_format::manifest_edit::{Edit, MANIFEST_GRAIN_BYTES, RecordBody};

use super::Problem;
use super::state::ManifestState;
use crate::error::{Error, Result};

/// The bytes that are read at once in a search for later records.
const SEARCH_CHUNK_BYTES: u64 = 64 * 1024;

/// The two regions of one manifest file.
#[derive(Debug)]
pub(super) struct Regions<'a> {
    pub file: &'a dyn DeviceFile,
    pub region_bytes: u64,
    pub seal: Seal,
    pub purpose: Purpose,
}

/// The contents of a manifest file.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub state: ManifestState,
    /// Number of the last record, 0 when there is none.
    pub last_number: u64,
    /// The last record's offset in a region, and its frame.
    pub last: (u64, Vec<u8>),
    /// The offset of the next record.
    pub tail: u64,
    /// Copies that are bad.
    pub problems: Vec<Problem>,
    /// How many of them are of records before the last one.
    pub before_last: usize,
}

/// A good copy of a record.
struct Record {
    header: FrameHeader,
    frame: Vec<u8>,
}

/// The reason why one copy of a record cannot be used.
enum Bad {
    Decode(DecodeError),
    Device(DeviceError),
}

/// The seal of an epoch's manifest.
pub(super) fn seal(store: StoreId, epoch: Epoch) -> Seal {
    Seal::new(store, FrameKind::Manifest, epoch.0)
}

/// The frame of a record.
pub(super) fn encode(
    seal: Seal,
    number: u64,
    durable_seq: Seq,
    next_generation: Generation,
    edits: &[Edit],
) -> Result<Vec<u8>> {
    let body = RecordBody::encode(edits, next_generation);
    encode_frame(body, edits.len(), number, durable_seq.0, seal, MANIFEST_GRAIN_BYTES)
        .map_err(|error| Error::Invalid { what: format!("manifest: {error}") })
}

impl Regions<'_> {
    /// Reads all records. With `is_committed`, the last record's commit is known to have succeeded,
    /// so that a bad copy of it is reported like any other.
    ///
    /// Cost: two to four reads a record, and both regions behind the last one.
    pub fn read(&self, is_committed: bool) -> Result<Contents> {
        let mut contents = self.read_whole()?;
        if !is_committed {
            contents.problems.truncate(contents.before_last);
        }
        let later = contents.last_number.saturating_add(2);
        if let Some(offset) = self.find_header(contents.tail, later)? {
            return Err(self.corrupt(
                contents.tail,
                format!("both copies of a record are damaged, and a later one is at byte {offset}"),
            ));
        }
        Ok(contents)
    }

    /// Reads all records up to the first that is not valid, and does not look behind it: what is
    /// there may be written at this moment.
    ///
    /// Cost: two to four reads a record.
    pub fn read_whole(&self) -> Result<Contents> {
        self.check_length()?;
        let mut contents = Contents::default();
        self.read_on(&mut contents)?;
        Ok(contents)
    }

    /// Reads the records behind `contents` up to the first that is not valid. Nothing is changed
    /// where there is none.
    ///
    /// Cost: two to four reads a record.
    pub fn read_on(&self, contents: &mut Contents) -> Result<()> {
        // A bad copy of the latest record: a problem once a later record shows that its commit
        // was complete.
        let mut latest = None;
        while let Some((record, bad_copy)) = self.read_twins(contents.tail, contents.last_number)? {
            contents.problems.extend(latest.take());
            latest = bad_copy;
            self.apply(&mut contents.state, &record, contents.tail)?;
            contents.last_number = record.header.number;
            let at = contents.tail;
            contents.tail += record.frame.len() as u64;
            contents.last = (at, record.frame);
        }
        contents.before_last = contents.problems.len();
        contents.problems.extend(latest);
        Ok(())
    }

    /// The offset in the file of any valid header numbered `number_min` or higher, at offset
    /// `from` of either region or behind it.
    pub fn find_header(&self, from: u64, number_min: u64) -> Result<Option<u64>> {
        let mut chunk = Vec::new();
        for base in [0, self.region_bytes] {
            let mut at = from;
            while at < self.region_bytes {
                chunk.resize((self.region_bytes - at).min(SEARCH_CHUNK_BYTES) as usize, 0);
                self.file.read_at(base + at, &mut chunk, self.purpose)?;
                let grains = chunk.chunks(MANIFEST_GRAIN_BYTES as usize).zip(0..);
                for (grain, index) in grains {
                    let header = FrameHeader::decode(grain, self.seal);
                    if header.is_ok_and(|header| header.number >= number_min) {
                        return Ok(Some(base + at + index * MANIFEST_GRAIN_BYTES));
                    }
                }
                at += chunk.len() as u64;
            }
        }
        Ok(None)
    }

    fn check_length(&self) -> Result<()> {
        let (found, expected) = (self.file.len()?, self.region_bytes.saturating_mul(2));
        if found < expected {
            let what = format!("the file ends here, but should be {expected} bytes long");
            return Err(self.corrupt(found, what));
        }
        Ok(())
    }

    /// Whether there is a record at `at`, behind record `last_number`.
    ///
    /// Cost: two to four reads.
    pub fn has_record(&self, at: u64, last_number: u64) -> Result<bool> {
        Ok(self.read_twins(at, last_number)?.is_some())
    }

    /// The record at `at`, behind record `last_number`, and the problem of one of its copies;
    /// `None` when neither copy is good.
    fn read_twins(&self, at: u64, last_number: u64) -> Result<Option<(Record, Option<Problem>)>> {
        let number = last_number.saturating_add(1);
        let first = self.read_copy(0, at, number);
        let second = self.read_copy(self.region_bytes, at, number);
        match (first, second) {
            (Ok(record), Ok(_twin)) => Ok(Some((record, None))),
            (Ok(record), Err(bad)) => {
                Ok(Some((record, Some(self.problem(self.region_bytes + at, &bad)))))
            }
            (Err(bad), Ok(record)) => Ok(Some((record, Some(self.problem(at, &bad))))),
            // Unreadable is not torn: a record may be there.
            (Err(Bad::Device(error)), _) | (_, Err(Bad::Device(error))) => Err(error.into()),
            (Err(_), Err(_)) => Ok(None),
        }
    }

    fn read_copy(&self, base: u64, at: u64, number: u64) -> std::result::Result<Record, Bad> {
        let room = self.region_bytes.saturating_sub(at);
        if room < MANIFEST_GRAIN_BYTES {
            return Err(Bad::Decode(DecodeError::new(0, "the region is full")));
        }
        let mut frame = vec![0; MANIFEST_GRAIN_BYTES as usize];
        self.file.read_at(base + at, &mut frame, self.purpose).map_err(Bad::Device)?;
        let header = FrameHeader::decode(&frame, self.seal).map_err(Bad::Decode)?;
        let frame_bytes = header.frame_bytes(MANIFEST_GRAIN_BYTES);
        if header.number != number || frame_bytes > room {
            return Err(Bad::Decode(DecodeError::new(0, "not the record that belongs here")));
        }
        frame.resize(frame_bytes as usize, 0);
        if let Some(rest) = frame.get_mut(MANIFEST_GRAIN_BYTES as usize..).filter(|r| !r.is_empty())
        {
            let offset = base + at + MANIFEST_GRAIN_BYTES;
            self.file.read_at(offset, rest, self.purpose).map_err(Bad::Device)?;
        }
        header.check_body(body_of(&frame)).map_err(Bad::Decode)?;
        Ok(Record { header, frame })
    }

    fn apply(&self, state: &mut ManifestState, record: &Record, at: u64) -> Result<()> {
        let (body, padding) = body_of(&record.frame)
            .split_at_checked(record.header.body_bytes as usize)
            .unwrap_or_default();
        let decoded = RecordBody::decode(body, record.header.count);
        let base = at + FRAME_HEADER_BYTES as u64;
        let decoded = decoded.map_err(|error| Error::corrupt(self.file.name(), base, &error))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(self.corrupt(at, "the record's padding is not zero".to_string()));
        }
        state
            .apply_record(&decoded, Seq(record.header.mark))
            .map_err(|misfit| self.corrupt(at, format!("the record {misfit}")))
    }

    fn problem(&self, offset: u64, bad: &Bad) -> Problem {
        let what = match bad {
            Bad::Decode(error) => error.what.to_string(),
            Bad::Device(error) => error.to_string(),
        };
        Problem {
            file: self.file.name().to_string(),
            offset,
            what: format!("one of two copies is damaged: {what}"),
        }
    }

    fn corrupt(&self, offset: u64, what: String) -> Error {
        Error::Corrupt { file: self.file.name().to_string(), offset, what }
    }
}

fn body_of(frame: &[u8]) -> &[u8] {
    frame.get(FRAME_HEADER_BYTES..).unwrap_or_default()
}
