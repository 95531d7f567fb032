//! One backup: walks what the store leads to, copies what the last one has not, puts the new
//! catalog in place.
//!
//! The blocks of the previous backup are identified by address and generation, which no two blocks
//! of a store share. Blocks of two stores with one identity, one of them restored or copied, could
//! share them. Therefore one block of each generation that is kept is read and compared with the
//! store's fence, and of each blob the headers of its pieces.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use esker_device::{AlignedBuf, Purpose};
use esker_format::backup::{Catalog, LOG_CHUNK_BYTES, LogChunk, Piece, checksum};
use esker_format::block::{BlockIdentity, BlockLayout};
use esker_format::ids::{Generation, SegmentId};
use esker_format::ptr::{BlockPtr, SECTOR_BYTES, UNIT_BYTES};
use esker_format::value_piece::{self, PieceIdentity};
use esker_format::value_ref::ValueRef;
use esker_index::run::walk::{self, Visitor};
use esker_substrate::Error as Inner;
use esker_substrate::log::{PartCheck, SegmentPart};
use esker_substrate::manifest::ManifestState;
use esker_substrate::planted::{self, Bug};
use esker_substrate::values::{self, Sequel};

use super::capture::Captured;
use super::edges::Copied;
use super::folder::{BLOCKS, Folder, damaged};
use super::pieces::{Pieces, UNIT_SECTORS, written_since};
use super::proof::{self, piece_at};
use super::{BackupProgress, BackupReport, Progress};
use crate::error::{Error, Result};
use crate::follow;
use crate::shared::Core;

/// Adjacent blocks are written together up to this many bytes, and one block at least.
const WRITE_BYTES: usize = 256 * 1024;

/// Passes of a follower, and those in a row that find the same state and the same error.
const PASSES_MAX: u32 = 64;
const UNMOVED_MAX: u32 = 3;

type Walked<T> = esker_substrate::error::Result<T>;

/// Makes a backup of the store in `folder`.
pub(super) fn run(
    shared: &Core,
    mut folder: Folder,
    progress: &mut Progress<'_>,
) -> Result<BackupReport> {
    refuse_other_store(shared, &folder)?;
    let report = make(shared, &mut folder, progress);
    if report.is_err() {
        folder.abandon();
    }
    report
}

/// Copies in one pass; in a follower, whose writer may use space again before it is copied, in as
/// many as it takes. Each pass copies what is new since the one before, of a newer state.
fn make(shared: &Core, folder: &mut Folder, progress: &mut Progress<'_>) -> Result<BackupReport> {
    let mut earlier = Earlier::of(folder);
    let mut state: Option<ManifestState> = None;
    let mut unmoved = 0;
    for _ in 0..PASSES_MAX {
        let captured = Captured::now(shared)?;
        let mut run = Run::new(shared, &captured, folder, progress, earlier);
        let copied = run.check_log().and_then(|()| run.copy());
        let error = match copied {
            Ok(chunks) => return run.finish(chunks),
            Err(error) => run.failure.take().unwrap_or(error),
        };
        if shared.follower.is_none() || !run.store_failed || !error.may_be_reuse() {
            return Err(error);
        }
        unmoved = if state.as_ref() == Some(&captured.state) { unmoved + 1 } else { 0 };
        if unmoved >= UNMOVED_MAX {
            return Err(error);
        }
        earlier = run.end_pass()?;
        state = Some(captured.state.clone());
    }
    Err(follow::overtaken(shared))
}

fn refuse_other_store(shared: &Core, folder: &Folder) -> Result<()> {
    let store = shared.env.blocks.store();
    match &folder.catalog {
        Some(catalog) if catalog.store != store => Err(Error::invalid(format!(
            "{} is a backup of another store: choose a folder that is empty or new",
            folder.device.location()
        ))),
        _ => Ok(()),
    }
}

/// What passes before this one have copied.
struct Earlier {
    /// With what the last backup has, as far as the store still has it.
    pieces: Pieces,
    chunks: BTreeMap<(SegmentId, u64), LogChunk>,
    so_far: BackupProgress,
    report: BackupReport,
    /// Whether there were any.
    any: bool,
}

impl Earlier {
    /// Nothing but the last backup.
    fn of(folder: &Folder) -> Self {
        let catalog = folder.catalog.as_ref();
        let chunks = catalog.into_iter().flat_map(|catalog| &catalog.chunks);
        Self {
            pieces: Pieces::new(catalog.map_or(&[][..], |catalog| &catalog.pieces)),
            chunks: chunks.map(|chunk| ((chunk.segment, chunk.offset), *chunk)).collect(),
            so_far: BackupProgress::default(),
            report: BackupReport::default(),
            any: false,
        }
    }
}

struct Run<'r, 'p> {
    shared: &'r Core,
    captured: &'r Captured<'r>,
    folder: &'r mut Folder,
    old: Pieces,
    old_chunks: BTreeMap<(SegmentId, u64), LogChunk>,
    new: Pieces,
    /// Generations with a block that has been compared.
    compared: BTreeSet<Generation>,
    /// Blocks that are not written yet.
    pending: Pending,
    progress: &'r mut Progress<'p>,
    so_far: BackupProgress,
    report: BackupReport,
    /// Passes before this one have copied something.
    had_passes: bool,
    /// The error that stopped the walk, if it is one that the walk cannot return.
    failure: Option<Error>,
    /// What could not be read is of the store, and not of the backup.
    store_failed: bool,
}

/// Adjacent blocks of one generation, at their distance from the start of a unit.
#[derive(Default)]
struct Pending {
    buffer: AlignedBuf,
    /// Sector and generation of the first one.
    first: (u64, Generation),
    /// The offset in the buffer at which the blocks begin; they end at `to`.
    from: usize,
    to: usize,
}

impl Pending {
    const fn is_empty(&self) -> bool {
        self.from == self.to
    }

    const fn sectors(&self) -> u64 {
        (self.to - self.from) as u64 / SECTOR_BYTES
    }

    fn takes(&self, ptr: &BlockPtr) -> bool {
        let (sector, generation) = self.first;
        let fits = self.to + ptr.bytes() <= WRITE_BYTES;
        fits && sector + self.sectors() == ptr.sector && generation == ptr.generation
    }

    fn holds(&self, ptr: &BlockPtr) -> bool {
        let (sector, generation) = self.first;
        let end = ptr.sector.saturating_add(u64::from(ptr.sectors));
        ptr.generation == generation && sector <= ptr.sector && end <= sector + self.sectors()
    }

    fn begin(&mut self, ptr: &BlockPtr) {
        self.first = (ptr.sector, ptr.generation);
        self.from = (ptr.sector % UNIT_SECTORS * SECTOR_BYTES) as usize;
        self.to = self.from;
    }

    fn add(&mut self, bytes: &[u8]) {
        let end = self.to + bytes.len();
        if self.buffer.len() < end {
            let mut longer = AlignedBuf::zeroed(end.next_multiple_of(UNIT_BYTES as usize));
            let held = self.buffer.len();
            if let Some(part) = longer.get_mut(..held) {
                part.copy_from_slice(&self.buffer);
            }
            self.buffer = longer;
        }
        if let Some(place) = self.buffer.get_mut(self.to..end) {
            place.copy_from_slice(bytes);
        }
        self.to = end;
    }

    /// Takes the pending blocks out, in whole units with zeros around them.
    fn take(&mut self) -> AlignedBuf {
        let units = self.to.next_multiple_of(UNIT_BYTES as usize);
        let mut whole = AlignedBuf::zeroed(units);
        let held = self.buffer.get(self.from..self.to).unwrap_or_default();
        if let Some(place) = whole.get_mut(self.from..self.to) {
            place.copy_from_slice(held);
        }
        self.to = self.from;
        whole
    }
}

impl<'r, 'p> Run<'r, 'p> {
    fn new(
        shared: &'r Core,
        captured: &'r Captured<'r>,
        folder: &'r mut Folder,
        progress: &'r mut Progress<'p>,
        earlier: Earlier,
    ) -> Self {
        let Earlier { pieces: old, chunks: old_chunks, so_far, report, any } = earlier;
        let bytes_copied = so_far.bytes_copied;
        let data_bytes: u64 = captured.extents().map(|extent| extent.bytes()).sum();
        let log_bytes: u64 = captured.log.iter().map(|part| part.end).sum();
        Self {
            shared,
            captured,
            old,
            old_chunks,
            folder,
            new: Pieces::default(),
            compared: BTreeSet::new(),
            pending: Pending::default(),
            progress,
            so_far: BackupProgress {
                bytes_copied,
                bytes_at_most: bytes_copied + data_bytes + log_bytes,
            },
            report: BackupReport { seq: captured.seq.0, ..report },
            had_passes: any,
            failure: None,
            store_failed: false,
        }
    }

    /// Ends a pass that did not come to its end: what it has copied is there for the next one.
    fn end_pass(mut self) -> Result<Earlier> {
        self.flush()?;
        let pieces = Pieces::new(&self.pieces()?);
        let Self { old_chunks: chunks, so_far, report, .. } = self;
        Ok(Earlier { pieces, chunks, so_far, report, any: true })
    }

    /// Fails if the log could not be replayed over the state.
    fn check_log(&mut self) -> Result<()> {
        let torn = self.captured.torn();
        self.of_store(torn.map_or(Ok(()), Err))
    }

    /// Copies what is new, and answers where the log is.
    fn copy(&mut self) -> Result<Vec<LogChunk>> {
        self.tell()?;
        let state = &self.captured.state;
        for (id, keyspace) in &state.keyspaces {
            let indexes = (&*keyspace.index, &keyspace.past_indexes()[..]);
            let walked = walk::walk(&self.shared.env.blocks, *id, indexes, self);
            self.store_failed |= walked.is_err() && self.failure.is_none();
            walked?;
        }
        self.flush()?;
        for value in &self.captured.logged {
            self.copy_value(value)?;
        }
        let mut chunks = Vec::new();
        for part in &self.captured.log {
            self.copy_segment(part, &mut chunks)?;
        }
        Ok(chunks)
    }

    /// Puts the catalog in place, if it is another one than before.
    fn finish(mut self, chunks: Vec<LogChunk>) -> Result<BackupReport> {
        let before = self.folder.catalog.as_ref();
        let run = before.map_or(0, |catalog| catalog.run);
        let mut catalog = self.captured.catalog(run);
        catalog.pieces = self.pieces()?;
        catalog.record.next_generation = next_generation(&catalog);
        catalog.chunks = chunks;
        let total = Pieces::new(&catalog.pieces).bytes();
        let log = catalog.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>();
        self.report.bytes_total = total + log;
        let copied = self.so_far.bytes_copied;
        self.report.bytes_reused = self.report.bytes_total.saturating_sub(copied);
        if before != Some(&catalog) {
            catalog.run += 1;
            self.prove(&catalog)?;
            self.report.bytes_written += self.folder.commit(catalog)?;
        }
        self.folder.finish()?;
        self.report.run = self.folder.backup()?.run;
        Ok(self.report)
    }

    /// The pieces that were copied, and the parts of the last backup that remain.
    fn pieces(&self) -> Result<Vec<Piece>> {
        let (blocks, store) = (self.folder.blocks.as_ref(), self.shared.env.blocks.store());
        self.old.updated(&self.new, self.captured.extents(), &|piece, range| {
            if planted::is(Bug::PiecesCutAtUnits) {
                return Ok(range.clone());
            }
            Copied { blocks, store, piece }.whole(range)
        })
    }

    /// Reads the new backup.
    fn prove(&mut self, catalog: &Catalog) -> Result<()> {
        let Self { folder, new, captured, shared, progress, so_far, .. } = self;
        let mut go_on = || report(progress, so_far);
        let before = folder.catalog.as_ref().map_or(&[][..], |catalog| &catalog.pieces);
        let all = self.had_passes.then(|| written_since(&catalog.pieces, before));
        let new = all.as_ref().unwrap_or(new);
        proof::prove((folder, catalog), new, (captured, &shared.env.blocks), &mut go_on)
    }

    fn copy_segment(&mut self, part: &SegmentPart, chunks: &mut Vec<LogChunk>) -> Result<()> {
        let mut check = PartCheck::new(self.shared.env.blocks.store(), part);
        let mut offset = 0;
        while offset < part.end {
            let bytes = (part.end - offset).min(LOG_CHUNK_BYTES);
            let mut buffer = AlignedBuf::zeroed(bytes.next_multiple_of(UNIT_BYTES) as usize);
            let content = buffer.get_mut(..bytes as usize).unwrap_or_default();
            let read = self.captured.within_store(|| {
                part.file.read_at(offset, content, Purpose::Backup)?;
                Ok(check.pass(content)?)
            });
            self.of_store(read)?;
            let crc = checksum(content);
            self.report.bytes_read += bytes;
            let known = self.old_chunks.get(&(part.reference.id, offset));
            let same = known.filter(|known| known.bytes == bytes && known.crc == crc);
            let place = match same {
                Some(same) => same.place,
                None => {
                    let place = self.folder.write(&buffer)?.start;
                    self.report.bytes_written += buffer.len() as u64;
                    self.so_far.bytes_copied += bytes;
                    place
                }
            };
            let chunk = LogChunk { segment: part.reference.id, offset, bytes, crc, place };
            self.old_chunks.insert((chunk.segment, offset), chunk);
            chunks.push(chunk);
            self.tell()?;
            offset += bytes;
        }
        let whole = check.finish(self.captured.seq);
        self.of_store(whole.map_err(Error::from))
    }

    /// Writes the pending blocks.
    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let ((sector, generation), sectors) = (self.pending.first, self.pending.sectors());
        let units = self.pending.take();
        let extent = self.folder.write(&units)?;
        let place = extent.start * UNIT_SECTORS + sector % UNIT_SECTORS;
        self.new.insert(Piece { sector, sectors, generation, place });
        self.report.bytes_written += units.len() as u64;
        Ok(())
    }

    /// Compares a block of the last backup with the store's fence: are they of one history?
    fn compare(&mut self, ptr: &BlockPtr, place: u64) -> Result<()> {
        let mut bytes = vec![0; ptr.bytes()];
        self.folder.blocks.read_at(place, &mut bytes, Purpose::Backup)?;
        let found = BlockLayout::parse(&bytes).map_err(|error| {
            damaged(BLOCKS, place.saturating_add(error.offset as u64), error.what)
        })?;
        let identity = BlockIdentity {
            store: self.shared.env.blocks.store(),
            keyspace: found.identity.keyspace,
            sector: ptr.sector,
            generation: ptr.generation,
        };
        let verified = BlockLayout::verify(&bytes, identity, ptr.crc);
        verified.map(drop).map_err(|_| self.other_history())
    }

    /// Copies what the last backup has not of a value.
    fn copy_value(&mut self, value: &ValueRef) -> Result<()> {
        self.flush()?;
        let (mut buffer, mut sequel) = (Vec::new(), Sequel::default());
        for number in 0..value.pieces() {
            let Some(place) = value.piece(number) else { break };
            let ptr = piece_at(value, &place);
            if let Some(known) = self.old.find(&ptr) {
                self.compare_piece(value, (number, &mut sequel), known)?;
                continue;
            }
            if self.new.find(&ptr).is_some() {
                continue;
            }
            self.tell()?;
            let blocks = &self.shared.env.blocks;
            let read = self.captured.within_store(|| {
                let piece = (number, &mut sequel);
                values::read_piece(blocks, value, piece, &mut buffer, Purpose::Backup)?;
                Ok(())
            });
            self.of_store(read)?;
            self.take_piece(&ptr, &buffer)?;
        }
        Ok(())
    }

    fn take_piece(&mut self, ptr: &BlockPtr, bytes: &[u8]) -> Result<()> {
        let mut aligned = AlignedBuf::zeroed(bytes.len());
        aligned.copy_from_slice(bytes);
        let extent = self.folder.write(&aligned)?;
        let BlockPtr { sector, sectors, generation, .. } = *ptr;
        let place = extent.start * UNIT_SECTORS;
        self.new.insert(Piece { sector, sectors: sectors.into(), generation, place });
        self.report.bytes_read += bytes.len() as u64;
        self.report.bytes_written += bytes.len() as u64;
        self.so_far.bytes_copied += bytes.len() as u64;
        Ok(())
    }

    /// Compares a piece of a value in the last backup with the store's reference, by what its
    /// header says of those before it.
    fn compare_piece(
        &self,
        value: &ValueRef,
        (number, sequel): (u64, &mut Sequel),
        place: u64,
    ) -> Result<()> {
        let mut header = vec![0; UNIT_BYTES as usize];
        self.folder.blocks.read_at(place, &mut header, Purpose::Backup)?;
        let found = value_piece::parse(&header).map_err(|error| {
            damaged(BLOCKS, place.saturating_add(error.offset as u64), error.what)
        })?;
        let identity = PieceIdentity {
            store: self.shared.env.blocks.store(),
            generation: value.generation,
            number: number as u32,
        };
        let is_same = found.identity == identity && sequel.takes(value, number, &found);
        if is_same { Ok(()) } else { Err(self.other_history()) }
    }

    fn other_history(&self) -> Error {
        let location = self.folder.device.location();
        Error::invalid(format!(
            "{location} is a backup of another copy of this store, which has gone its own way: \
             choose a folder that is empty or new"
        ))
    }

    fn tell(&mut self) -> Result<()> {
        report(self.progress, &self.so_far)
    }

    /// Notes that what failed was reading the store.
    const fn of_store<T>(&mut self, result: Result<T>) -> Result<T> {
        self.store_failed |= result.is_err();
        result
    }

    /// Ends the walk with an error that is kept aside.
    fn stop<T>(&mut self, result: Result<T>) -> Walked<T> {
        result.map_err(|error| {
            let what = error.to_string();
            self.failure = Some(error);
            Inner::Invalid { what }
        })
    }

    fn take_block(&mut self, ptr: &BlockPtr, bytes: &[u8]) -> Result<()> {
        if !self.pending.takes(ptr) {
            self.flush()?;
            self.pending.begin(ptr);
        }
        self.pending.add(bytes);
        self.so_far.bytes_copied += bytes.len() as u64;
        Ok(())
    }
}

/// The generation at which the restored store continues: it has only what is in the backup. The
/// original store may continue from another number; the generations distinguish two stores that
/// give the same numbers to different blocks.
fn next_generation(catalog: &Catalog) -> Generation {
    let highest = catalog.pieces.iter().map(|piece| piece.generation.0).max().unwrap_or(0);
    let next = Generation(highest.saturating_add(1));
    if planted::is(Bug::GenerationsNotReserved) { catalog.record.next_generation } else { next }
}

fn report(progress: &mut Progress<'_>, so_far: &BackupProgress) -> Result<()> {
    match progress(so_far) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::invalid("the backup was stopped")),
    }
}

impl Visitor for Run<'_, '_> {
    fn knows(&mut self, ptr: &BlockPtr) -> Walked<bool> {
        if self.pending.holds(ptr) || self.new.find(ptr).is_some() {
            return Ok(true);
        }
        let Some(place) = self.old.find(ptr) else { return Ok(false) };
        if self.compared.insert(ptr.generation) {
            let compared = self.compare(ptr, place);
            self.stop(compared)?;
        }
        Ok(true)
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Walked<()> {
        let reported = self.tell();
        self.stop(reported)?;
        let blocks = &self.shared.env.blocks;
        let read =
            self.captured.within_store(|| Ok(blocks.read_raw(offset, buf, Purpose::Backup)?));
        let read = self.of_store(read);
        self.stop(read)?;
        self.report.bytes_read += buf.len() as u64;
        Ok(())
    }

    fn take(&mut self, ptr: &BlockPtr, bytes: &[u8]) -> Walked<()> {
        let taken = self.take_block(ptr, bytes);
        self.stop(taken)
    }

    fn wants_values(&self) -> bool {
        self.captured.has_large_values()
    }

    fn take_value(&mut self, value: &ValueRef) -> Walked<()> {
        let taken = self.copy_value(value);
        self.stop(taken)
    }
}
