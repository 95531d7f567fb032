//! Blobs in the data file: writing one as a stream, and reading pieces of it.
//!
//! A blob's space is uncommitted while it is written and until a log record refers to it; space
//! that no record refers to by then is freed ([`UncommittedRuns`]). A crash needs no cleanup: units
//! that no record names are free.
//!
//! Thread safety: blobs are written and read by any number of threads; a [`ValueWriter`] belongs to
//! one thread.

use std::sync::Arc;

use esker_device::process::Process;
use esker_device::{AlignedBuf, Purpose};
use esker_format::action::WriteOp;
use esker_format::data::Data;
use esker_format::ids::{Generation, Moment};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_format::value_piece::{
    self, PIECE_BYTES, PIECE_DATA_BYTES, PIECE_HEADER_BYTES, PIECE_UNITS, PieceHeader,
    PieceIdentity, units_for,
};
use esker_format::value_ref::{LARGE_VALUE_BYTES_MAX, VALUE_RUNS_MAX, ValueRef};

use crate::blocks::{BlockStore, DATA_FILE};
use crate::error::{Error, Result};
use crate::log::Beneath;
use crate::planted::{self, Bug};

/// Pieces that are written at once.
const BATCH_PIECES: usize = 4;
/// Pieces that are read ahead of a reader that goes through a value in order.
const AHEAD_PIECES: u64 = 32;
/// Units that a writer of unknown length takes first; after that, the number that it has already.
const FIRST_UNITS: u64 = 16 * PIECE_UNITS;
/// The most units that it takes at once, except for values near the largest.
const STEP_UNITS_MAX: u64 = 1024 * PIECE_UNITS;
/// Most runs that one request for space is answered with: a value asks for space at most 21 times.
const RUNS_AT_ONCE: u64 = 3;

/// Runs that no record names. Given back when this is dropped.
#[derive(Debug)]
pub struct UncommittedRuns {
    blocks: Arc<BlockStore>,
    runs: Vec<Extent>,
    /// In a child by `fork` they are its parent's still.
    process: Process,
}

impl UncommittedRuns {
    /// A log record names them from now on.
    pub fn keep(mut self) {
        self.runs.clear();
    }
}

impl Drop for UncommittedRuns {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        if let Err(error) = self.blocks.free_uncommitted(&self.runs) {
            tracing::error!(%error, "space of a value could not be given back");
        }
    }
}

/// Writes one value, piece by piece, in bounded memory.
#[derive(Debug)]
pub struct ValueWriter {
    runs: UncommittedRuns,
    generation: Generation,
    /// Units of the runs that are written.
    written_units: u64,
    bytes: u64,
    pieces: u32,
    /// Of the checksums of the pieces so far.
    crc: u32,
    /// Pieces that are not written yet; the last may not be full.
    buffer: AlignedBuf,
    /// Whole pieces in the buffer, and data of the one behind them.
    sealed: usize,
    open_bytes: usize,
}

impl ValueWriter {
    /// Begins a value. `expected_bytes`, where its length is known, are taken at once.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn new(blocks: &Arc<BlockStore>, expected_bytes: Option<u64>) -> Result<Self> {
        let generation = blocks.take_generation()?;
        let (blocks_of, process) = (Arc::clone(blocks), Process::current());
        let mut runs = UncommittedRuns { blocks: blocks_of, runs: Vec::new(), process };
        if let Some(bytes) = expected_bytes {
            runs.runs =
                blocks.allocate_runs(units_for(bytes), PIECE_UNITS, VALUE_RUNS_MAX as u64 / 2)?;
        }
        Ok(Self {
            runs,
            generation,
            written_units: 0,
            bytes: 0,
            pieces: 0,
            crc: 0,
            buffer: AlignedBuf::zeroed(BATCH_PIECES * PIECE_BYTES),
            sealed: 0,
            open_bytes: 0,
        })
    }

    /// Length so far, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends to the blob.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond the largest value, [`Error::Full`], and errors of the device: the
    /// blob is unusable then.
    pub fn append(&mut self, mut data: &[u8]) -> Result<()> {
        let bytes = self.bytes.saturating_add(data.len() as u64);
        if bytes > LARGE_VALUE_BYTES_MAX {
            let what = format!("a value is at most {LARGE_VALUE_BYTES_MAX} bytes long");
            return Err(Error::Invalid { what });
        }
        while !data.is_empty() {
            if self.open_bytes as u64 == PIECE_DATA_BYTES {
                self.seal()?;
            }
            let at = self.sealed * PIECE_BYTES + PIECE_HEADER_BYTES + self.open_bytes;
            let room = PIECE_DATA_BYTES as usize - self.open_bytes;
            let (now, rest) = data.split_at(room.min(data.len()));
            if let Some(place) = self.buffer.get_mut(at..at + now.len()) {
                place.copy_from_slice(now);
            }
            self.open_bytes += now.len();
            data = rest;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Writes the rest and returns the reference. Durable after
    /// [`BlockStore::sync_values`].
    ///
    /// # Errors
    /// Those of [`append`](Self::append); [`Error::Invalid`] for an empty value.
    pub fn finish(mut self, until: Option<Moment>) -> Result<(ValueRef, UncommittedRuns)> {
        if self.bytes == 0 {
            return Err(Error::Invalid { what: "an empty value cannot be a blob".into() });
        }
        self.seal()?;
        self.flush()?;
        self.give_back_the_rest()?;
        let (runs, generation, crc) = (self.runs.runs.clone(), self.generation, self.crc);
        Ok((ValueRef { until, bytes: self.bytes, generation, crc, runs }, self.runs))
    }

    /// Makes the open part of the buffer a piece.
    fn seal(&mut self) -> Result<()> {
        let units = units_for(self.open_bytes as u64);
        let from = self.sealed * PIECE_BYTES;
        let until = from + (units * UNIT_BYTES) as usize;
        let identity = PieceIdentity {
            store: self.runs.blocks.store(),
            generation: self.generation,
            number: self.pieces,
        };
        if let Some(piece) = self.buffer.get_mut(from..until) {
            let data_end = PIECE_HEADER_BYTES + self.open_bytes;
            piece.get_mut(data_end..).unwrap_or_default().fill(0);
            self.crc = value_piece::seal(piece, identity, self.crc, self.open_bytes);
        }
        self.pieces += 1;
        if units < PIECE_UNITS {
            // The last one: it is written with those before it.
            return self.write(self.sealed as u64 * PIECE_UNITS + units);
        }
        (self.sealed, self.open_bytes) = (self.sealed + 1, 0);
        if self.sealed == BATCH_PIECES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.write(self.sealed as u64 * PIECE_UNITS)
    }

    /// Writes the first `units` units of the buffer.
    fn write(&mut self, units: u64) -> Result<()> {
        let mut from = 0;
        while from < units {
            let Some(place) = self.place(units - from)? else { continue };
            let range = (from * UNIT_BYTES) as usize..((from + place.units) * UNIT_BYTES) as usize;
            let bytes = self.buffer.get(range).unwrap_or_default();
            self.runs.blocks.write_value(place.offset(), bytes)?;
            self.written_units += place.units;
            from += place.units;
        }
        (self.sealed, self.open_bytes) = (0, 0);
        Ok(())
    }

    /// The place of the next units, at most `units`; `None` when more space has been taken.
    fn place(&mut self, units: u64) -> Result<Option<Extent>> {
        let mut skip = self.written_units;
        for run in &self.runs.runs {
            if skip < run.units {
                let units = units.min(run.units - skip);
                return Ok(Some(Extent { start: run.start + skip, units }));
            }
            skip -= run.units;
        }
        let step = self.written_units.clamp(FIRST_UNITS, STEP_UNITS_MAX);
        let more = self.runs.blocks.allocate_runs(step, PIECE_UNITS, RUNS_AT_ONCE)?;
        for run in more {
            self.runs.join(run)?;
        }
        if self.runs.runs.len() > VALUE_RUNS_MAX {
            return Err(Error::Full { what: "a value in few pieces".into() });
        }
        Ok(None)
    }

    /// Frees space that was taken and not written.
    fn give_back_the_rest(&mut self) -> Result<()> {
        let mut left = self.written_units;
        let mut used = Vec::new();
        for run in std::mem::take(&mut self.runs.runs) {
            let units = left.min(run.units);
            left -= units;
            self.runs.blocks.shorten_uncommitted(run, units)?;
            used.extend((units > 0).then_some(Extent { start: run.start, units }));
        }
        self.runs.runs = used;
        Ok(())
    }
}

impl UncommittedRuns {
    /// Adds a run, as part of the last one where it follows that.
    fn join(&mut self, run: Extent) -> Result<()> {
        match self.runs.last_mut() {
            Some(last) if last.end() == run.start => {
                self.blocks.join_uncommitted(*last, run)?;
                last.units += run.units;
            }
            _ => self.runs.push(run),
        }
        Ok(())
    }
}

/// The pieces that a reader of a blob has asked the device to read ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadAhead {
    /// The piece behind the last one that was requested.
    until: u64,
}

impl ReadAhead {
    /// To be called before each piece that follows the one read before it.
    pub fn go_on(&mut self, blocks: &BlockStore, value: &ValueRef, number: u64) {
        let wanted = number.saturating_add(AHEAD_PIECES).min(value.pieces());
        let from = self.until.max(number);
        if wanted.saturating_sub(from) < AHEAD_PIECES / 2 && wanted < value.pieces() {
            return;
        }
        self.until = self.until.max(wanted);
        let mut together: Option<Extent> = None;
        for place in (from..wanted).filter_map(|number| value.piece(number)) {
            together = match together {
                Some(run) if run.end() == place.start => {
                    Some(Extent { units: run.units + place.units, ..run })
                }
                run => {
                    run.into_iter().for_each(|run| blocks.announce_run(&run));
                    Some(place)
                }
            };
        }
        together.into_iter().for_each(|run| blocks.announce_run(&run));
    }
}

/// The sum of the pieces of a blob, as far as they were read one after the other. A piece contains
/// the sum of those before it: if that sum differs, the piece does not belong to the same blob.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequel {
    next: u64,
    sum: u32,
}

impl Sequel {
    /// Whether piece `number` with this header may follow those before it; if so it is counted as
    /// one of them. Where the piece before it was not the last one read, only the blob's last piece
    /// can tell.
    pub fn takes(&mut self, value: &ValueRef, number: u64, header: &PieceHeader) -> bool {
        let next = number.saturating_add(1);
        let before = match number {
            0 => Some(0),
            _ => (self.next == number).then_some(self.sum),
        };
        let follows = before.is_none_or(|before| before == header.before);
        let fits = follows && (next < value.pieces() || header.sum == value.crc);
        if fits {
            *self = Self { next, sum: header.sum };
        }
        fits
    }
}

/// Reads piece `number` of a blob into `piece`, and returns its data. A damaged piece that a user
/// reads is read once more, past the page cache.
///
/// # Errors
/// [`Error::Corrupt`] when the bytes are not that piece, and errors of the device.
pub fn read_piece<'p>(
    blocks: &BlockStore,
    value: &ValueRef,
    (number, sequel): (u64, &mut Sequel),
    piece: &'p mut Vec<u8>,
    purpose: Purpose,
) -> Result<&'p [u8]> {
    let Some(place) = value.piece(number) else {
        return Err(Error::Invalid { what: format!("a value has no piece {number}") });
    };
    piece.resize(place.bytes() as usize, 0);
    let identity = PieceIdentity {
        store: blocks.store(),
        generation: value.generation,
        number: number as u32,
    };
    blocks.read_raw(place.offset(), piece, purpose)?;
    if value_piece::open(piece, identity).is_err() && purpose == Purpose::User {
        blocks.read_raw(place.offset(), piece, Purpose::Check)?;
    }
    if planted::is(Bug::ValueWithoutChecksum) {
        return Ok(value_piece::open_unchecked(piece));
    }
    let opened = value_piece::open(piece, identity);
    let (data, header) =
        opened.map_err(|error| Error::corrupt(DATA_FILE, place.offset(), &error))?;
    if !sequel.takes(value, number, &header) {
        return Err(other_value(&place));
    }
    let left = value.bytes - number * PIECE_DATA_BYTES;
    if data.len() as u64 != left.min(PIECE_DATA_BYTES) {
        let what = "a piece of a value has another length than the value gives it".into();
        return Err(Error::Corrupt { file: DATA_FILE.into(), offset: place.offset(), what });
    }
    Ok(data)
}

/// Reads all of a value; returns how many bytes were read.
///
/// # Errors
/// Those of [`read_piece`].
pub fn verify(blocks: &BlockStore, value: &ValueRef, purpose: Purpose) -> Result<u64> {
    let (mut piece, mut bytes, mut sequel) = (Vec::new(), 0, Sequel::default());
    for number in 0..value.pieces() {
        read_piece(blocks, value, (number, &mut sequel), &mut piece, purpose)?;
        bytes += piece.len() as u64;
    }
    Ok(bytes)
}

/// The log refers to blobs.
impl Beneath for BlockStore {
    fn sync(&self) -> Result<()> {
        self.sync_values()
    }

    fn has(&self, action: &WriteOp<'_>) -> Result<bool> {
        let WriteOp::Point(_, Data::Reference(content)) = action else { return Ok(true) };
        if planted::is(Bug::ValueNotVerified) {
            return Ok(true);
        }
        let value = ValueRef::decode(content);
        let value = value.map_err(|error| Error::corrupt(DATA_FILE, 0, &error))?;
        // Also for a blob that is left out: its pieces stay in their place.
        self.generation_found(value.generation);
        // A file that is shorter than it was lost more than what ends behind its end.
        if value.runs.iter().any(|run| run.end() > self.end()) {
            return Ok(false);
        }
        match verify(self, &value, Purpose::Recovery) {
            Ok(bytes) => {
                self.note_value(bytes);
                Ok(true)
            }
            Err(Error::Corrupt { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn other_value(place: &Extent) -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: place.offset(),
        what: "the pieces of a value are whole, but not those that its key refers to".into(),
    }
}

#[cfg(test)]
mod tests {
    use esker_device::Device;
    use esker_device::memory::MemoryDevice;
    use esker_format::ids::StoreId;

    use super::*;

    /// Pieces of the value.
    const PIECES: u64 = 5;

    /// A value of which each byte is this one, in a file of its own, and a file with it alone.
    fn written(byte: u8) -> (Arc<BlockStore>, ValueRef) {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let blocks = Arc::new(BlockStore::create(&device, StoreId(7), 1 << 16).unwrap());
        let bytes = vec![byte; (PIECES * PIECE_DATA_BYTES) as usize - 100];
        let mut writer = ValueWriter::new(&blocks, Some(bytes.len() as u64)).unwrap();
        writer.append(&bytes).unwrap();
        let (value, runs) = writer.finish(None).unwrap();
        runs.keep();
        (blocks, value)
    }

    fn read(blocks: &BlockStore, value: &ValueRef, numbers: &[u64]) -> Result<u8> {
        let (mut piece, mut sequel, mut byte) = (Vec::new(), Sequel::default(), 0);
        for number in numbers {
            let place = (*number, &mut sequel);
            byte = read_piece(blocks, value, place, &mut piece, Purpose::User)?[0];
        }
        Ok(byte)
    }

    #[test]
    fn a_piece_of_another_value_of_the_same_generation_is_refused() {
        for number in 0..PIECES {
            let ((blocks, value), (older, old)) = (written(1), written(2));
            assert_eq!((value.generation, &value.runs), (old.generation, &old.runs));
            let place = value.piece(number).unwrap();
            let mut piece = vec![0; place.bytes() as usize];
            older.read_raw(place.offset(), &mut piece, Purpose::Check).unwrap();
            verify(&blocks, &value, Purpose::Check).unwrap();
            blocks.write_raw(place.offset(), &piece, Purpose::Value).unwrap();
            let found = verify(&blocks, &value, Purpose::Check);
            assert!(matches!(found, Err(Error::Corrupt { .. })), "{number}: {found:?}");
            let mut content = Vec::new();
            value.encode(&mut content);
            let action = WriteOp::Point(b"k", Data::Reference(&content));
            assert!(!blocks.has(&action).unwrap(), "recovery takes piece {number} for whole");
        }
    }

    #[test]
    fn pieces_are_read_from_any_place_and_refused_as_often_as_asked_for() {
        let ((blocks, value), (older, _)) = (written(1), written(2));
        assert_eq!(read(&blocks, &value, &[3, 4, 0, 1, 4, 2, 2]).unwrap(), 1);
        let place = value.piece(2).unwrap();
        let mut piece = vec![0; place.bytes() as usize];
        older.read_raw(place.offset(), &mut piece, Purpose::Check).unwrap();
        blocks.write_raw(place.offset(), &piece, Purpose::Value).unwrap();
        let (mut piece, mut sequel) = (Vec::new(), Sequel::default());
        for number in [1, 2, 2, 2] {
            let place = (number, &mut sequel);
            let found = read_piece(&blocks, &value, place, &mut piece, Purpose::User);
            assert_eq!(found.is_ok(), number == 1, "{number}");
        }
    }
}
