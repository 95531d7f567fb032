//! The manifest: the durable state of everything but the data itself.
//!
//! Reading order: [`files`] (names, and what a folder holds), [`state`] (the manifest's contents,
//! as a pure function of edits), `superblocks` (which epoch is current), `records` (how its file is
//! read), `epoch` (beginning a new one), `follow` (reading on behind a writer), then this module.
//!
//! Two things are on the device: a file of superblocks, and the manifest file of the epoch that the
//! newest superblock names, with every record in two distant places. A commit writes both copies
//! and syncs once. When a record does not fit, a new epoch begins: a new file whose first record
//! repeats the whole state, and then the superblock that names it.
//!
//! Thread safety: everything may be called from any thread; commits are serial.
//! Invariant: a record is written only when all records before it are durable.
//! Invariant (file before superblock): a superblock is written only when the manifest file it names
//! is durable: its length, its first record, its directory entry.
//! Invariant (empty first record): the first record of an epoch changes nothing. So while it is the
//! only one, the epoch before it has the same state, and once it is not the only one the superblock
//! is known to be durable.
//! Invariant (written again): opening writes nothing. What was read may exist in the page cache
//! only, because the last run's sync failed or the last process was killed before it; therefore the
//! first commit, or [`Manifest::retry_last_record`], makes it durable by writing it again, and
//! nothing that it freed may be reused before.
//! Invariant (zeros behind): behind the last record there are zeros before the next one is written:
//! of two torn records in one place, halves might make a whole one.

mod epoch;
pub mod files;
mod follow;
mod records;
pub mod state;
mod superblocks;

use std::sync::Arc;

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, RwLock};
use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use esker_format::frame::Seal;
use esker_format::ids::{Epoch, Generation, Seq, StoreId};
use esker_format::manifest_edit::{Edit, RecordBody};
use esker_format::superblock::{SUPERBLOCK_FILE_BYTES, Superblock, slot_offset};

pub use epoch::KEPT_TIMES;
use epoch::{Wanted, put_superblocks, write_epoch};
pub(crate) use epoch::{full_or, write_zeros};
pub use files::{Presence, probe};
use files::{SUPERBLOCK, SUPERBLOCK_NEW, manifest_epoch, manifest_name};
use records::Regions;
pub use state::{KeyspaceState, ManifestState, PastState};

use crate::error::{Error, Result};
use crate::fault::{self, FaultPoints};
use crate::planted::{self, Bug};
use crate::poison::Poison;

/// Damage found that did not stop the store: one line of `check`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File name.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The expected and the actual state.
    pub what: String,
}

impl Problem {
    /// The text of an error, with its place where it has one.
    #[must_use]
    pub fn of(file: &str, error: &Error) -> Self {
        match error {
            Error::Corrupt { file, offset, what } => {
                Self { file: file.clone(), offset: *offset, what: what.clone() }
            }
            _ => Self { file: file.to_string(), offset: 0, what: error.to_string() },
        }
    }
}

/// Options of the layout of a manifest.
#[derive(Clone, Copy, Debug)]
pub struct ManifestOptions {
    /// The shortest region of a new epoch, in bytes; rounded up to a power of two between
    /// 4 KiB and 2 GiB. Default 64 KiB.
    pub region_bytes_min: u64,
}

impl Default for ManifestOptions {
    fn default() -> Self {
        Self { region_bytes_min: 64 * 1024 }
    }
}

/// The initial state of a store.
#[derive(Clone, Debug, Default)]
pub struct Beginning {
    /// Its state.
    pub state: ManifestState,
    /// The features that its readers must support.
    pub features: u32,
}

/// The manifest of an open store.
#[derive(Debug)]
pub struct Manifest {
    device: Arc<dyn Device>,
    poison: Arc<Poison>,
    faults: Arc<FaultPoints>,
    options: ManifestOptions,
    store: StoreId,
    /// As of the last successful commit.
    state: RwLock<Arc<ManifestState>>,
    /// Those of the current superblock.
    features: AtomicU32,
    /// The size of the state, as it would be in the first record of an epoch, about.
    state_bytes: AtomicU64,
    /// The length of the present epoch's region.
    region_bytes: AtomicU64,
    writer: Mutex<Writer>,
}

/// One epoch's file, and where its next record goes.
#[derive(Debug)]
struct Writer {
    superblocks: Arc<dyn DeviceFile>,
    superblock: Superblock,
    file: Arc<dyn DeviceFile>,
    next_number: u64,
    tail: u64,
    /// The last record that opening read, which is written again: its offset and
    /// frame.
    doubt: Option<(u64, Vec<u8>)>,
    /// A second copy of the state, which the next commit changes and makes current: a commit costs
    /// in proportion to its changes, not to the state. `None`: to be copied.
    copy: Option<ManifestState>,
}

/// Bytes that are looked at, and overwritten, at once.
const WIPED_BYTES: usize = 16 * 1024;

impl Writer {
    /// Behind an epoch's first record, which is the state.
    fn begin(
        superblocks: Arc<dyn DeviceFile>,
        (file, superblock, tail): (Arc<dyn DeviceFile>, Superblock, u64),
    ) -> Self {
        let (next_number, doubt, copy) = (2, None, None);
        Self { superblocks, superblock, file, next_number, tail, doubt, copy }
    }

    fn seal(&self) -> Seal {
        records::seal(self.superblock.store, self.superblock.epoch)
    }

    fn regions(&self, purpose: Purpose) -> Regions<'_> {
        Regions {
            file: self.file.as_ref(),
            region_bytes: self.superblock.region_bytes,
            seal: self.seal(),
            purpose,
        }
    }

    /// Overwrites what a torn record left behind the last one with zeros: a part of it, together
    /// with a part of the next record, which begins in the same place and is torn too, might be a
    /// whole record again.
    fn wipe_behind_the_tail(&self) -> Result<()> {
        let region_bytes = self.superblock.region_bytes;
        let mut chunk = vec![0; WIPED_BYTES];
        for region in [0, region_bytes] {
            let mut at = self.tail;
            while at < region_bytes {
                let len = (region_bytes - at).min(WIPED_BYTES as u64);
                let chunk = chunk.get_mut(..len as usize).unwrap_or_default();
                self.file.read_at(region + at, chunk, Purpose::Recovery)?;
                if chunk.iter().any(|byte| *byte != 0) {
                    chunk.fill(0);
                    self.file.write_at(region + at, chunk, Purpose::Manifest)?;
                }
                at += len;
            }
        }
        Ok(())
    }

    fn write_twins(&self, at: u64, frame: &[u8]) -> Result<()> {
        self.file.write_at(at, frame, Purpose::Manifest)?;
        Ok(self.file.write_at(self.superblock.region_bytes + at, frame, Purpose::Manifest)?)
    }
}

/// The end of a region is for records that free space, if a full device has no space for a new
/// region: the last sixteenth for those that drop a keyspace, the one before for those that take
/// nothing into use. Regions of less than `RESERVED_REGION_BYTES` reserve nothing.
const RESERVE_SHARE: u64 = 16;
const RESERVED_REGION_BYTES: u64 = 32 * 1024;

/// The number of reserved shares that a record of these edits may not use.
fn shares_left_alone(edits: &[Edit]) -> u64 {
    let takes = |edit: &Edit| matches!(edit, Edit::SegmentAdd(_) | Edit::KeyspaceCreate { .. });
    if edits.iter().any(|edit| matches!(edit, Edit::KeyspaceDrop { .. })) {
        0
    } else if edits.iter().any(takes) {
        2
    } else {
        1
    }
}

impl Manifest {
    /// Makes the manifest of a new, empty store. Durable on return; before that there is no store.
    /// Other files that the store needs are to be created before.
    ///
    /// # Errors
    /// Those of the device; [`Error::Full`] when there is no space. [`probe`] reports the files
    /// that are left in this case.
    pub fn create(
        device: &Arc<dyn Device>,
        store: StoreId,
        options: ManifestOptions,
        poison: &Arc<Poison>,
        faults: &Arc<FaultPoints>,
    ) -> Result<Arc<Self>> {
        let nothing = Beginning::default();
        Self::create_with(device, store, options, nothing, poison, faults)
    }

    /// [`Manifest::create`] for a store that begins with a state: everything that the state names
    /// must be durable before.
    ///
    /// # Errors
    /// Those of [`Manifest::create`].
    pub fn create_with(
        device: &Arc<dyn Device>,
        store: StoreId,
        options: ManifestOptions,
        beginning: Beginning,
        poison: &Arc<Poison>,
        faults: &Arc<FaultPoints>,
    ) -> Result<Arc<Self>> {
        let Beginning { state, features } = beginning;
        let epoch = Epoch(1);
        let (file, superblock, tail) =
            write_epoch(device.as_ref(), store, epoch, options, &state, Wanted::FIRST, faults)
                .map_err(|error| full_or(error, "a new store"))?;
        let superblock = Superblock { features, ..superblock };
        let superblocks = put_superblocks(device.as_ref(), &superblock)
            .map_err(|error| full_or(error, "a new store"))?;
        let writer = Writer::begin(superblocks, (file, superblock, tail));
        Ok(Self::assemble(device, options, poison, faults, (state, tail), writer))
    }

    /// Opens the manifest and writes nothing. The problems are copies that are damaged while
    /// their twins are good.
    ///
    /// # Errors
    /// [`Error::NotAStore`] and [`Error::TooNew`]; [`Error::Corrupt`] where damage would
    /// otherwise mean going back to an older state.
    pub fn open(
        device: &Arc<dyn Device>,
        options: ManifestOptions,
        poison: &Arc<Poison>,
        faults: &Arc<FaultPoints>,
    ) -> Result<(Arc<Self>, Vec<Problem>)> {
        let superblocks = device.open(SUPERBLOCK, Open::Existing, Caching::Buffered)?;
        let newest =
            superblocks::read(superblocks.as_ref(), &device.location(), Purpose::Recovery)?;
        let superblock = newest.superblock;
        refuse_newer_epoch(device.as_ref(), superblock)?;
        let name = manifest_name(superblock.epoch);
        let file = device
            .open(&name, Open::Existing, Caching::Buffered)
            .map_err(|error| missing_manifest(error.into(), &name))?;
        let mut writer = Writer::begin(superblocks, (file, superblock, 0));
        let contents = writer.regions(Purpose::Recovery).read(false)?;
        if contents.last_number == 0 {
            return Err(no_record(&name));
        }
        writer.next_number = contents.last_number + 1;
        writer.tail = contents.tail;
        writer.doubt = Some(contents.last);
        let state_bytes = epoch::first_record(writer.seal(), &contents.state)?.len() as u64;
        let mut problems = contents.problems;
        // With one record only, a crash may have come between the two copies.
        if contents.last_number > 1 {
            problems.extend(newest.bad_copies);
        }
        let state = (contents.state, state_bytes);
        Ok((Self::assemble(device, options, poison, faults, state, writer), problems))
    }

    fn assemble(
        device: &Arc<dyn Device>,
        options: ManifestOptions,
        poison: &Arc<Poison>,
        faults: &Arc<FaultPoints>,
        (state, state_bytes): (ManifestState, u64),
        writer: Writer,
    ) -> Arc<Self> {
        Arc::new(Self {
            device: Arc::clone(device),
            poison: Arc::clone(poison),
            faults: Arc::clone(faults),
            options,
            store: writer.superblock.store,
            state: RwLock::new(Arc::new(state)),
            features: writer.superblock.features.into(),
            state_bytes: state_bytes.into(),
            region_bytes: writer.superblock.region_bytes.into(),
            writer: Mutex::new(writer),
        })
    }

    /// The store's identity.
    #[must_use]
    pub const fn store(&self) -> StoreId {
        self.store
    }

    /// The manifest's state, as of the last commit.
    #[must_use]
    pub fn state(&self) -> Arc<ManifestState> {
        Arc::clone(&self.state.read())
    }

    /// Bytes that manifest and superblocks take on the device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.file_bytes().saturating_add(SUPERBLOCK_FILE_BYTES)
    }

    /// The length of the present epoch's file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.region_bytes.load(Ordering::Relaxed).saturating_mul(2)
    }

    /// Makes `edits` durable, all or none. `durable_seq` is the number up to which the log was
    /// synced before; neither it nor `next_generation` goes back: a smaller value leaves the
    /// recorded one unchanged. Without edits nothing is written.
    ///
    /// Cost: two writes and one sync; when a new epoch begins, about ten writes and four syncs.
    ///
    /// # Errors
    /// [`Error::Invalid`] when an edit does not fit the state and [`Error::Full`] when there is no
    /// space for a new epoch: nothing has changed. Every other failure poisons the store.
    pub fn commit(
        &self,
        edits: &[Edit],
        durable_seq: Seq,
        next_generation: Generation,
    ) -> Result<()> {
        if edits.is_empty() {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        self.poison.check()?;
        let copy = writer.copy.take().unwrap_or_else(|| ManifestState::clone(&self.state.read()));
        let mut state = copy;
        let (more_bytes, less_bytes) = state.change_of_size(edits);
        let record = RecordBody { next_generation, edits: edits.to_vec() };
        state
            .apply_record(&record, durable_seq)
            .map_err(|misfit| Error::Invalid { what: format!("the manifest record {misfit}") })?;
        self.poison.on_error(self.rewrite_last_record(&mut writer))?;
        self.append(&mut writer, edits, &state)?;
        // Only this thread changes it: it holds the writer.
        let state_bytes = self.state_bytes.load(Ordering::Relaxed).saturating_add(more_bytes);
        self.state_bytes.store(state_bytes.saturating_sub(less_bytes), Ordering::Relaxed);
        let before = std::mem::replace(&mut *self.state.write(), Arc::new(state));
        // If the state before has no readers any more, it becomes the next copy. After a failure
        // there is no copy, and the next commit makes one.
        writer.copy = Arc::into_inner(before).and_then(|mut state| {
            let applied = state.apply_record(&record, durable_seq);
            applied.is_ok().then_some(state)
        });
        Ok(())
    }

    fn append(&self, writer: &mut Writer, edits: &[Edit], next: &ManifestState) -> Result<()> {
        let encode = |writer: &Writer| {
            let (durable, generation) = (next.durable_seq, next.next_generation);
            records::encode(writer.seal(), writer.next_number, durable, generation, edits)
        };
        let mut frame = encode(writer)?;
        let region_bytes = writer.superblock.region_bytes;
        let room = region_bytes.saturating_sub(writer.tail);
        let frame_bytes = frame.len() as u64;
        let is_reserved = region_bytes >= RESERVED_REGION_BYTES;
        let share = if is_reserved { region_bytes / RESERVE_SHARE } else { 0 };
        if frame_bytes.saturating_add(2 * share) > room {
            let fits = frame_bytes.saturating_add(shares_left_alone(edits) * share) <= room;
            match self.begin_epoch(writer, frame_bytes, writer.superblock.features) {
                Err(Error::Full { .. }) if fits => {}
                begun => {
                    begun?;
                    frame = encode(writer)?;
                }
            }
        }
        self.poison.on_error(self.write_record(writer, &frame))
    }

    fn write_record(&self, writer: &mut Writer, frame: &[u8]) -> Result<()> {
        self.faults.hit(fault::MANIFEST_WRITE)?;
        writer.write_twins(writer.tail, frame)?;
        self.faults.hit(fault::MANIFEST_SYNC)?;
        // Without the sync, what this record frees is reused while the record may be lost.
        if !planted::is(Bug::ReclaimBeforeCommit) {
            writer.file.sync(Purpose::Manifest)?;
        }
        writer.next_number += 1;
        writer.tail += frame.len() as u64;
        Ok(())
    }

    /// Makes durable that the next opening hands out generations from `next` on, or from the one
    /// that is recorded where that is greater.
    ///
    /// Cost: that of [`Manifest::commit`].
    ///
    /// # Errors
    /// Those of [`Manifest::commit`].
    pub fn reserve_generations(&self, next: Generation) -> Result<()> {
        // A record has an edit: this one repeats the present state.
        let id = self.state().next_keyspace;
        self.commit(&[Edit::NextKeyspace { id }], Seq(0), next)
    }

    /// The features that readers of the store must support.
    #[must_use]
    pub fn features(&self) -> u32 {
        self.features.load(Ordering::Acquire)
    }

    /// Whether readers of the store must know all of `features`.
    #[must_use]
    pub fn requires(&self, features: u32) -> bool {
        self.features.load(Ordering::Acquire) & features == features
    }

    /// From now on readers of the store must support `features`: a version without them refuses it.
    /// Call this before anything is written that needs them.
    ///
    /// Cost: nothing when it is known already; else a new epoch, about ten writes and four syncs.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no space: nothing has changed. Every other failure poisons the
    /// store.
    pub fn require(&self, features: u32) -> Result<()> {
        if self.requires(features) {
            return Ok(());
        }
        let mut writer = self.writer.lock();
        self.poison.check()?;
        self.poison.on_error(self.rewrite_last_record(&mut writer))?;
        let all = writer.superblock.features | features;
        self.begin_epoch(&mut writer, 0, all)?;
        self.features.store(all, Ordering::Release);
        Ok(())
    }

    /// Makes durable what opening read, when that has not happened yet. To be called before
    /// anything that the last record freed is reused: space of the data file, log segments.
    ///
    /// Cost: four writes and three syncs; nothing after the first time.
    ///
    /// # Errors
    /// Any failure poisons the store.
    pub fn retry_last_record(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.poison.check()?;
        self.poison.on_error(self.rewrite_last_record(&mut writer))
    }

    fn rewrite_last_record(&self, writer: &mut Writer) -> Result<()> {
        let Some((at, frame)) = writer.doubt.take() else { return Ok(()) };
        writer.wipe_behind_the_tail()?;
        writer.write_twins(at, &frame)?;
        writer.file.sync(Purpose::Manifest)?;
        if writer.superblock.epoch == Epoch(1) && writer.next_number == 2 {
            // The store may be one whose creation failed in its very last step, so that not even
            // the superblock's name is durable: the file is put in place again.
            let _may_be_missing = self.device.remove(SUPERBLOCK_NEW);
            writer.superblocks = put_superblocks(self.device.as_ref(), &writer.superblock)?;
        } else {
            self.write_superblock(writer)?;
            self.device.sync_dir()?;
        }
        self.remove_strays(writer.superblock.epoch)
    }

    fn write_superblock(&self, writer: &Writer) -> Result<()> {
        self.faults.hit(fault::SUPERBLOCK_WRITE)?;
        superblocks::write(writer.superblocks.as_ref(), &writer.superblock)?;
        self.faults.hit(fault::SUPERBLOCK_SYNC)?;
        Ok(writer.superblocks.sync(Purpose::Manifest)?)
    }

    /// Removes the files of other epochs and of an unfinished creation. Their removal need not be
    /// durable, and one that cannot be removed does no harm.
    fn remove_strays(&self, current: Epoch) -> Result<()> {
        for name in self.device.list()? {
            let stray = manifest_epoch(&name).is_some_and(|epoch| epoch != current);
            if stray || name == SUPERBLOCK_NEW {
                let _stays_behind = self.device.remove(&name);
            }
        }
        Ok(())
    }

    /// Reads superblocks and manifest again and compares them with the state in memory.
    ///
    /// Cost: reads all of both files; commits wait meanwhile.
    #[must_use]
    pub fn verify(&self) -> Vec<Problem> {
        let writer = self.writer.lock();
        let mut problems = Vec::new();
        match superblocks::read(writer.superblocks.as_ref(), SUPERBLOCK, Purpose::Check) {
            Err(error) => problems.push(Problem::of(SUPERBLOCK, &error)),
            Ok(newest) if newest.superblock != writer.superblock => problems.push(Problem {
                file: SUPERBLOCK.to_string(),
                offset: slot_offset(writer.superblock.epoch, 0),
                what: "the newest superblock is not the one in force".to_string(),
            }),
            Ok(newest) if writer.doubt.is_none() || writer.next_number > 2 => {
                problems.extend(newest.bad_copies);
            }
            Ok(_) => {}
        }
        match writer.regions(Purpose::Check).read(writer.doubt.is_none()) {
            Err(error) => problems.push(Problem::of(writer.file.name(), &error)),
            Ok(contents) => {
                problems.extend(contents.problems);
                if contents.last_number.saturating_add(1) != writer.next_number {
                    problems.push(Problem {
                        file: writer.file.name().to_string(),
                        offset: contents.tail,
                        what: "both copies of the last record are damaged".to_string(),
                    });
                }
            }
        }
        problems
    }
}

/// Fails when the epoch after `superblock` was in use: then both copies of its superblock have
/// been lost. It was in use exactly when its manifest has a second record.
fn refuse_newer_epoch(device: &dyn Device, superblock: Superblock) -> Result<()> {
    let newer = Epoch(superblock.epoch.0.saturating_add(1));
    let name = manifest_name(newer);
    if !device.list()?.contains(&name) {
        return Ok(());
    }
    let file = device.open(&name, Open::Existing, Caching::Buffered)?;
    let regions = Regions {
        file: file.as_ref(),
        region_bytes: file.len()? / 2,
        seal: records::seal(superblock.store, newer),
        purpose: Purpose::Recovery,
    };
    match regions.find_header(0, 2)? {
        None => Ok(()),
        Some(_) => Err(Error::Corrupt {
            file: SUPERBLOCK.to_string(),
            offset: slot_offset(newer, 0),
            what: format!("both copies of the newest superblock are damaged; {name} was in use"),
        }),
    }
}

fn missing_manifest(error: Error, name: &str) -> Error {
    match error {
        Error::Device(device) if device.source.kind() == std::io::ErrorKind::NotFound => {
            Error::Corrupt {
                file: name.to_string(),
                offset: 0,
                what: "the superblock names this file, but it is missing".to_string(),
            }
        }
        other => other,
    }
}

fn no_record(name: &str) -> Error {
    Error::Corrupt {
        file: name.to_string(),
        offset: 0,
        what: "both copies of the first record are damaged".to_string(),
    }
}

#[cfg(test)]
mod tests;
