//! The simulated disk as a [`Device`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::compact::LEAST_SECTORS;
use super::disk::{Disk, Subject};
use super::fault::{Effect, Failure, FaultPlan, OpKind};
use super::holes::Holes;
use super::image::{Image, InodeId, SimImage, Unit};
use super::sectors::SectorStore;
use super::survivors::{CrashModel, Survivors};
use super::trace::{Event, Trace};
use crate::{
    Caching, Device, DeviceError, DeviceFile, DeviceLock, Open, Operation, Purpose, Result, name,
};

/// The properties of a simulated disk.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// The unit that a crash keeps or loses as a whole: 512 or 4096 bytes.
    pub sector_bytes: usize,
    /// The capacity, in whole sectors of all named files. Growing past it is `StorageFull`.
    pub capacity_bytes: u64,
}

impl Default for SimOptions {
    /// Sectors of 512 bytes and room for 1 GiB.
    fn default() -> Self {
        Self { sector_bytes: 512, capacity_bytes: 1 << 30 }
    }
}

/// A simulated disk. Clones are the same disk.
///
/// Thread safety: one mutex; the order of operations is the order in which it was taken.
#[derive(Clone)]
pub struct SimDevice {
    shared: Arc<Mutex<State>>,
}

/// Invariants: `counts` counts every operation since the plan was set, also those that failed.
/// While `recorder` is there, every change of `disk` is in it.
struct State {
    disk: Disk,
    next_inode: InodeId,
    /// Alive while the file is open.
    handles: BTreeMap<InodeId, Weak<()>>,
    /// The number of sectors above which the disk is compacted next.
    compact_at_sectors: usize,
    capacity_bytes: u64,
    holes: Holes,
    faults: FaultPlan,
    counts: [u64; OpKind::ALL.len()],
    recorder: Option<Recorder>,
    locked: bool,
    powered_off: bool,
}

/// A trace that is being recorded.
struct Recorder {
    start: Disk,
    events: Vec<Event>,
}

struct SimFile {
    name: String,
    inode: InodeId,
    shared: Arc<Mutex<State>>,
    _open: Arc<()>,
}

/// Releases the lock when dropped.
struct LockGuard(Arc<Mutex<State>>);

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.0.lock().locked = false;
    }
}

const LOCATION: &str = "simulated disk";

fn path(name: &str) -> String {
    format!("{LOCATION}/{name}")
}

impl State {
    fn new(image: Image, store: SectorStore, capacity_bytes: u64) -> Self {
        let named = image.names.values().map(|inode| inode + 1).max().unwrap_or(0);
        Self {
            next_inode: named.max(image.inodes.len()),
            handles: BTreeMap::new(),
            compact_at_sectors: LEAST_SECTORS.max(store.len()),
            disk: Disk::at_rest(image, store),
            capacity_bytes,
            holes: Holes::default(),
            faults: FaultPlan::new(),
            counts: [0; OpKind::ALL.len()],
            recorder: None,
            locked: false,
            powered_off: false,
        }
    }

    /// Counts an operation and fails it where the plan says so.
    fn begin(&mut self, kind: OpKind, file: &str) -> io::Result<Option<Effect>> {
        self.counts[kind as usize] += 1;
        if self.powered_off {
            return Err(Failure::Io.error());
        }
        match self.faults.decide(kind, file) {
            Some(Effect::Fail(failure)) => Err(failure.error()),
            Some(Effect::PowerOff) => {
                self.powered_off = true;
                Err(Failure::Io.error())
            }
            effect => Ok(effect),
        }
    }

    fn note(&mut self, event: Event) {
        if let Some(recorder) = &mut self.recorder {
            recorder.events.push(event);
        }
    }

    fn change(&mut self, kind: OpKind, subject: Subject, units: Vec<Unit>) {
        if !units.is_empty() {
            let change = self.disk.change(kind, subject, units);
            self.note(Event::Change(change));
        }
        if self.recorder.is_none() && self.disk.store.len() > self.compact_at_sectors {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.handles.retain(|_, open| open.strong_count() > 0);
        let open: BTreeSet<InodeId> = self.handles.keys().copied().collect();
        // Twice of what is left: each sector is moved once for each one written.
        self.compact_at_sectors = LEAST_SECTORS.max(2 * self.disk.compact(&open));
    }

    /// The token that keeps an open file alive.
    fn handle(&mut self, inode: InodeId) -> Arc<()> {
        let open = self.handles.get(&inode).and_then(Weak::upgrade).unwrap_or_default();
        self.handles.insert(inode, Arc::downgrade(&open));
        open
    }

    fn sync(&mut self, subject: Subject, effect: Option<Effect>) -> io::Result<()> {
        if let Some(Effect::FailSync(loss)) = effect {
            self.disk.fail_sync(subject, loss);
            self.note(Event::FailedSync(subject, loss));
            return Err(Failure::Io.error());
        }
        self.disk.sync(subject);
        self.note(Event::Sync(subject));
        Ok(())
    }

    fn lookup(&self, name: &str) -> io::Result<InodeId> {
        let inode = self.disk.live.names.get(name).copied();
        inode.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn len(&self, inode: InodeId) -> u64 {
        self.disk.live.inodes.get(inode).map_or(0, |file| file.len)
    }

    /// Takes room for a range of a file, behind its end too.
    fn take_room(&mut self, inode: InodeId, from: u64, until: u64) -> io::Result<()> {
        let now = self.len(inode).div_ceil(self.disk.store.sector_bytes() as u64);
        let sectors = self.disk.store.sectors(from, until);
        let behind = (sectors.end as u64).saturating_sub(now);
        let more = behind.saturating_add(self.holes.count(inode, sectors.clone()) as u64);
        if more == 0 {
            return Ok(());
        }
        let more_bytes = more.saturating_mul(self.disk.store.sector_bytes() as u64);
        if more_bytes.saturating_add(self.used_bytes()) > self.capacity_bytes {
            return Err(Failure::NoSpace.error());
        }
        self.holes.fill(inode, &sectors);
        Ok(())
    }

    /// Room that all named files take.
    fn used_bytes(&self) -> u64 {
        let holes = self.holes.named(&self.disk.live.names) * self.disk.store.sector_bytes();
        self.disk.live.used_bytes(&self.disk.store).saturating_sub(holes as u64)
    }

    /// Notes that the whole sectors of a range take no room.
    fn give_room(&mut self, inode: InodeId, offset: u64, len: u64) {
        let file_len = self.len(inode);
        let first = offset.min(file_len).next_multiple_of(self.disk.store.sector_bytes() as u64);
        let sector_bytes = self.disk.store.sector_bytes() as u64;
        let end = offset.saturating_add(len);
        let end = if end >= file_len { file_len } else { end / sector_bytes * sector_bytes };
        let sectors = self.disk.store.sectors(first.min(end), end);
        self.holes.add(inode, sectors);
    }

    fn write(
        &mut self,
        inode: InodeId,
        offset: u64,
        buf: &[u8],
        effect: Option<Effect>,
    ) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).ok_or_else(|| Failure::TooLarge.error())?;
        if buf.is_empty() {
            return Ok(());
        }
        self.take_room(inode, offset, end)?;
        let (units, outcome) = match effect {
            Some(Effect::ShortWrite { bytes, failure }) => {
                let landed = usize::try_from(bytes).unwrap_or(usize::MAX).min(buf.len());
                let units = self.disk.write_units(inode, offset, &buf[..landed]);
                (if landed == 0 { Vec::new() } else { units }, Err(failure.error()))
            }
            Some(Effect::LoseWrite) => (self.growth(inode, end), Ok(())),
            Some(Effect::MisdirectWrite { by_bytes }) => {
                let mut units = self.growth(inode, end);
                let last = self.len(inode).max(end) - buf.len() as u64;
                let target = offset.saturating_add_signed(by_bytes).min(last);
                units.extend(self.disk.write_units(inode, target, buf));
                (units, Ok(()))
            }
            _ => (self.disk.write_units(inode, offset, buf), Ok(())),
        };
        self.change(OpKind::Write, Subject::File(inode), units);
        outcome
    }

    /// The unit that makes a file `end` long, where it is shorter.
    fn growth(&self, inode: InodeId, end: u64) -> Vec<Unit> {
        let longer = end > self.len(inode);
        longer.then_some(Unit::Extend { inode, len: end }).into_iter().collect()
    }

    fn read(&self, inode: InodeId, offset: u64, buf: &mut [u8], effect: Option<Effect>) {
        if effect == Some(Effect::StaleRead) {
            self.disk.read_stale(inode, offset, buf);
        } else if let Some(file) = self.disk.live.inodes.get(inode) {
            file.read(offset, buf, &self.disk.store);
        }
        if let Some(Effect::FlipRead { byte, mask }) = effect
            && let Some(at) = byte.checked_rem(buf.len() as u64)
        {
            // The remainder is below the length of a slice.
            buf[usize::try_from(at).unwrap_or(0)] ^= mask;
        }
    }

    fn image(&mut self, image: Image) -> SimImage {
        self.disk.store.freeze();
        SimImage { image, store: self.disk.store.clone(), holes: self.holes.clone() }
    }
}

impl SimDevice {
    /// An empty disk with sectors of 512 bytes.
    #[must_use]
    pub fn new() -> Self {
        Self::with_options(SimOptions::default())
    }

    /// An empty disk.
    #[must_use]
    pub fn with_options(options: SimOptions) -> Self {
        let store = SectorStore::new(options.sector_bytes.max(1));
        Self::at_rest(Image::default(), store, options.capacity_bytes)
    }

    /// A disk that holds an image, all of it durable.
    #[must_use]
    pub fn from_image(image: &SimImage) -> Self {
        let capacity_bytes = SimOptions::default().capacity_bytes;
        let device = Self::at_rest(image.image.clone(), image.store.clone(), capacity_bytes);
        device.shared.lock().holes.clone_from(&image.holes);
        device
    }

    /// A disk that holds these files, all of them durable.
    #[must_use]
    pub fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        Self::from_image(&SimImage::from_files(files))
    }

    pub(super) fn at_rest(image: Image, store: SectorStore, capacity_bytes: u64) -> Self {
        Self { shared: Arc::new(Mutex::new(State::new(image, store, capacity_bytes))) }
    }

    /// Sets the capacity.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.shared.lock().capacity_bytes = capacity_bytes;
    }

    /// Room that all files take, without their discarded ranges.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.shared.lock().used_bytes()
    }

    /// The contents that reads see now. Far cheaper than a copy.
    #[must_use]
    pub fn image(&self) -> SimImage {
        let mut state = self.shared.lock();
        let live = state.disk.live.clone();
        state.image(live)
    }

    /// All files with their contents, as reads see them now.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.image().files()
    }

    /// Cuts the power: this disk fails from now on. Returns the contents of the medium.
    #[must_use]
    pub fn crash(&self, survivors: &Survivors, model: &CrashModel) -> SimImage {
        let mut state = self.shared.lock();
        state.powered_off = true;
        let mut disk = state.disk.clone();
        survivors.apply_crash(&mut disk, model, &mut Vec::new());
        disk.store.freeze();
        SimImage { image: disk.durable, store: disk.store, holes: Holes::default() }
    }

    /// Makes all operations fail from now on, as after a power cut.
    pub fn power_off(&self) {
        self.shared.lock().powered_off = true;
    }

    /// The number of changes that a crash could keep or lose now.
    #[must_use]
    pub fn pending_units(&self) -> usize {
        self.shared.lock().disk.pending.iter().map(|change| change.units.len()).sum()
    }

    /// Starts a new trace here, dropping one that is being recorded.
    pub fn record(&self) {
        let mut state = self.shared.lock();
        state.recorder = Some(Recorder { start: state.disk.clone(), events: Vec::new() });
    }

    /// Ends recording; `None` when nothing was being recorded.
    #[must_use]
    pub fn take_trace(&self) -> Option<Trace> {
        let mut state = self.shared.lock();
        let Recorder { mut start, events } = state.recorder.take()?;
        state.disk.store.freeze();
        start.store = state.disk.store.clone();
        Some(Trace { start, events })
    }

    /// Notes in the trace that a statement is true from here on, such as "write 7 was
    /// acknowledged".
    pub fn mark(&self, mark: u64) {
        self.shared.lock().note(Event::Mark(mark));
    }

    /// Replaces the faults, restores power, and counts operations from 0 again.
    pub fn set_faults(&self, plan: FaultPlan) {
        let mut state = self.shared.lock();
        state.disk.previous = plan.needs_previous().then(|| state.disk.durable.clone());
        state.faults = plan;
        state.counts = [0; OpKind::ALL.len()];
        state.powered_off = false;
    }

    /// Operations since the faults were set, or since the disk was made.
    #[must_use]
    pub fn op_count(&self) -> u64 {
        self.shared.lock().counts.iter().sum()
    }

    /// Operations of one kind since the faults were set, or since the disk was made.
    #[must_use]
    pub fn op_count_of(&self, kind: OpKind) -> u64 {
        self.shared.lock().counts[kind as usize]
    }

    /// Damages the medium: changes the bits of `mask` in one byte. Nothing happens past the end.
    pub fn flip(&self, file: &str, offset: u64, mask: u8) {
        let mut state = self.shared.lock();
        if let Ok(inode) = state.lookup(file) {
            state.disk.flip(inode, offset, mask);
            state.note(Event::Flip { inode, offset, mask });
        }
    }
}

impl Default for SimDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        let names = state.disk.live.names.keys();
        f.debug_tuple("SimDevice").field(&names.collect::<Vec<_>>()).finish()
    }
}

impl Device for SimDevice {
    fn open(&self, name: &str, open: Open, _caching: Caching) -> Result<Arc<dyn DeviceFile>> {
        name::check(name, Operation::Open, LOCATION)?;
        let failed = |source: io::Error| DeviceError::new(Operation::Open, path(name), 0, source);
        let mut state = self.shared.lock();
        let inode = match open {
            Open::Existing => {
                state.begin(OpKind::Open, name).map_err(failed)?;
                state.lookup(name).map_err(failed)?
            }
            Open::CreateNew => {
                state.begin(OpKind::Create, name).map_err(failed)?;
                if state.lookup(name).is_ok() {
                    return Err(failed(io::ErrorKind::AlreadyExists.into()));
                }
                let inode = state.next_inode;
                state.next_inode += 1;
                let link = Unit::Link { name: name.into(), inode };
                state.change(OpKind::Create, Subject::Folder, vec![link]);
                inode
            }
        };
        let (shared, open) = (Arc::clone(&self.shared), state.handle(inode));
        Ok(Arc::new(SimFile { name: name.to_owned(), inode, shared, _open: open }))
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut state = self.shared.lock();
        let failed = |source| DeviceError::new(Operation::List, LOCATION, 0, source);
        state.begin(OpKind::List, "").map_err(failed)?;
        Ok(state.disk.live.names.keys().map(|name| name.to_string()).collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check(name, Operation::Directory, LOCATION)?;
        let failed = |source| DeviceError::new(Operation::Directory, path(name), 0, source);
        let mut state = self.shared.lock();
        state.begin(OpKind::Remove, name).map_err(failed)?;
        let inode = state.lookup(name).map_err(failed)?;
        let unlink = Unit::Unlink { name: name.into(), inode };
        state.change(OpKind::Remove, Subject::Folder, vec![unlink]);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        name::check(from, Operation::Directory, LOCATION)?;
        name::check(to, Operation::Directory, LOCATION)?;
        let failed = |source| DeviceError::new(Operation::Directory, path(from), 0, source);
        let mut state = self.shared.lock();
        state.begin(OpKind::Rename, from).map_err(failed)?;
        let inode = state.lookup(from).map_err(failed)?;
        if from != to {
            let units = vec![Unit::Move { to: to.into(), inode }];
            state.change(OpKind::Rename, Subject::Folder, units);
        }
        Ok(())
    }

    fn sync_dir(&self) -> Result<()> {
        let mut state = self.shared.lock();
        let outcome = state.begin(OpKind::SyncDir, "");
        let outcome = outcome.and_then(|effect| state.sync(Subject::Folder, effect));
        outcome.map_err(|source| DeviceError::new(Operation::Directory, LOCATION, 0, source))
    }

    fn try_lock(&self) -> Result<Option<DeviceLock>> {
        if std::mem::replace(&mut self.shared.lock().locked, true) {
            return Ok(None);
        }
        Ok(Some(Box::new(LockGuard(Arc::clone(&self.shared)))))
    }

    fn location(&self) -> String {
        LOCATION.to_owned()
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.name)
    }
}

impl SimFile {
    fn failed(&self, operation: Operation, offset: u64) -> impl FnOnce(io::Error) -> DeviceError {
        move |source| DeviceError::new(operation, path(&self.name), offset, source)
    }
}

impl DeviceFile for SimFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Result<u64> {
        let state = self.shared.lock();
        if state.powered_off {
            return Err(self.failed(Operation::Open, 0)(Failure::Io.error()));
        }
        Ok(state.len(self.inode))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], _purpose: Purpose) -> Result<()> {
        let mut state = self.shared.lock();
        let effect = state.begin(OpKind::Read, &self.name);
        let effect = effect.map_err(self.failed(Operation::Read, offset))?;
        let len_bytes = state.len(self.inode);
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > len_bytes) {
            return Err(name::past_end(&path(&self.name), offset, buf.len(), len_bytes));
        }
        state.read(self.inode, offset, buf, effect);
        Ok(())
    }

    fn write_at(&self, offset: u64, buf: &[u8], _purpose: Purpose) -> Result<()> {
        let mut state = self.shared.lock();
        let outcome = state.begin(OpKind::Write, &self.name);
        let outcome = outcome.and_then(|effect| {
            if buf.is_empty() { Ok(()) } else { state.write(self.inode, offset, buf, effect) }
        });
        outcome.map_err(self.failed(Operation::Write, offset))
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        let mut state = self.shared.lock();
        let outcome = state.begin(OpKind::Sync, &self.name);
        let outcome = outcome.and_then(|effect| state.sync(Subject::File(self.inode), effect));
        outcome.map_err(self.failed(Operation::Sync, 0))
    }

    fn preallocate(&self, len: u64, _purpose: Purpose) -> Result<()> {
        let mut state = self.shared.lock();
        let outcome = state.begin(OpKind::Preallocate, &self.name);
        let outcome = outcome.and_then(|_| state.take_room(self.inode, 0, len));
        outcome.map_err(self.failed(Operation::Resize, len))?;
        let units = state.growth(self.inode, len);
        state.change(OpKind::Preallocate, Subject::File(self.inode), units);
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64, _purpose: Purpose) -> Result<()> {
        let mut state = self.shared.lock();
        let end = offset.checked_add(len).ok_or_else(|| Failure::TooLarge.error());
        let end = end.map_err(self.failed(Operation::Resize, offset))?;
        if len == 0 {
            return Ok(());
        }
        let outcome = state.begin(OpKind::Preallocate, &self.name);
        let outcome = outcome.and_then(|_| state.take_room(self.inode, offset, end));
        outcome.map_err(self.failed(Operation::Resize, offset))?;
        let units = state.growth(self.inode, end);
        state.change(OpKind::Preallocate, Subject::File(self.inode), units);
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        let mut state = self.shared.lock();
        let outcome = state.begin(OpKind::Truncate, &self.name);
        outcome.map_err(self.failed(Operation::Resize, len))?;
        let units = state.disk.cut_units(self.inode, len);
        let gone = state.disk.store.sectors(len, u64::MAX);
        state.holes.fill(self.inode, &gone);
        state.change(OpKind::Truncate, Subject::File(self.inode), units);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let mut state = self.shared.lock();
        let outcome = state.begin(OpKind::Discard, &self.name);
        outcome.map_err(self.failed(Operation::Resize, offset))?;
        let units = state.disk.discard_units(self.inode, offset, len);
        state.give_room(self.inode, offset, len);
        state.change(OpKind::Discard, Subject::File(self.inode), units);
        Ok(())
    }
}
