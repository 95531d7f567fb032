//! The folder that a backup is in: a catalog, and one file with all that the catalog names.
//!
//! A new backup is written to units of that file that the previous one does not use, and synced.
//! Then its catalog is written, synced, read and decoded, and replaces the previous one with one
//! rename. So at every moment one of the two is complete.
//!
//! While the first backup is not finished there is a mark. Blocks with neither a catalog nor the
//! mark are of a finished backup whose catalog was lost: they are never removed.
//!
//! Invariant: what the catalog in place names is durable, and is never written to.
//! Invariant (durable catalog): before the first write of a run the catalog in place is durable:
//! the renaming that put it there may have been the last thing that a process did.
//! Invariant (mark first): the mark is durable before there is a file of blocks, and it is removed,
//! durably, when the first catalog is durable and before the first backup is acknowledged.

use std::sync::Arc;

use esker_device::process::Process;
use esker_device::{AlignedBuf, Caching, Device, DeviceFile, DeviceLock, Open, Purpose};
use esker_format::FORMAT_VERSION;
use esker_format::backup::{Catalog, HalfError};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_substrate::manifest::files::{LOCK, SUPERBLOCK};
use esker_substrate::planted::{self, Bug};
use esker_substrate::space::{Overlap, Space};

use super::pieces::places;
use crate::check::Problem;
use crate::error::{Error, Result};

const CATALOG: &str = "backup";
const CATALOG_NEW: &str = "backup.new";
/// The file of blocks and log.
pub(super) const BLOCKS: &str = "blocks";
/// Says that the first backup is not finished.
const UNFINISHED: &str = "unfinished";
/// A catalog is not longer than this: it names pieces of a store of some hundred terabytes.
const CATALOG_BYTES_MAX: u64 = 1 << 32;

/// A backup's folder, locked.
#[derive(Debug)]
pub(super) struct Folder {
    process: Process,
    pub device: Arc<dyn Device>,
    _lock: DeviceLock,
    pub blocks: Arc<dyn DeviceFile>,
    /// The backup that is in it.
    pub catalog: Option<Catalog>,
    /// Copies of the catalog that are damaged, while the other is good.
    pub problems: Vec<Problem>,
    /// The catalog's bytes until it is known to be durable.
    doubt: Option<Vec<u8>>,
    /// A catalog is being put in place: which one counts is not known before the next opening.
    committing: bool,
    /// The mark of a first backup is there.
    is_marked: bool,
    space: Space,
}

/// Whether the names of a folder's files are those of a backup.
pub(super) fn is_backup(device: &dyn Device) -> Result<bool> {
    let names = device.list()?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    // A store may contain files that are not its own.
    Ok(has(CATALOG) && !has(SUPERBLOCK))
}

impl Folder {
    /// Opens the folder of a backup that must exist, on a device that is only read.
    pub fn existing(device: Arc<dyn Device>) -> Result<Self> {
        refuse_foreign(device.as_ref())?;
        let names = device.list()?;
        if !names.iter().any(|name| name == CATALOG) {
            refuse_lost_catalog(device.as_ref(), &names)?;
            return Err(no_backup(device.as_ref()));
        }
        let folder = Self::open(device)?;
        match folder.catalog {
            Some(_) => Ok(folder),
            None => Err(no_backup(folder.device.as_ref())),
        }
    }

    /// Opens a folder to make a backup in it: empty, or with a backup, or with one that was never
    /// finished.
    pub fn open(device: Arc<dyn Device>) -> Result<Self> {
        refuse_foreign(device.as_ref())?;
        let lock = device.try_lock()?;
        let lock = lock.ok_or_else(|| Error::Locked { location: device.location() })?;
        let names = device.list()?;
        let has = |name: &str| names.iter().any(|found| found == name);
        let mut problems = Vec::new();
        let mut found = None;
        if has(CATALOG) {
            found = Some(read_catalog(device.as_ref(), &mut problems)?);
        } else {
            refuse_lost_catalog(device.as_ref(), &names)?;
        }
        let is_marked = found.is_none() || has(UNFINISHED);
        let blocks = match found {
            Some(_) => open_blocks(device.as_ref())?,
            None => begin(device.as_ref(), &names)?,
        };
        let (catalog, doubt) = found.unzip();
        let space = space_of(blocks.len()? / UNIT_BYTES, catalog.as_ref())?;
        let process = Process::current();
        let committing = false;
        Ok(Self {
            process,
            device,
            _lock: lock,
            blocks,
            catalog,
            problems,
            doubt,
            committing,
            is_marked,
            space,
        })
    }

    /// Fails in a child by `fork` of the process that opened it, which does not hold the lock.
    pub fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(Error::Forked { location: self.device.location() })
    }

    /// The backup.
    pub fn backup(&self) -> Result<&Catalog> {
        self.check_process()?;
        self.catalog.as_ref().ok_or_else(|| no_backup(self.device.as_ref()))
    }

    /// Writes whole units to where the last backup has nothing. Not durable.
    pub fn write(&mut self, bytes: &AlignedBuf) -> Result<Extent> {
        self.sync_catalog()?;
        let units = bytes.len() as u64 / UNIT_BYTES;
        let extent = match self.space.allocate(units) {
            Some(extent) => extent,
            None => {
                // Free units at the end are part of what is needed.
                self.space.grow(units.saturating_sub(self.space.tail().0));
                let found = self.space.allocate(units);
                found.ok_or_else(|| Error::invalid("the backup's file has no end"))?
            }
        };
        self.blocks.write_at(extent.offset(), bytes, Purpose::Backup)?;
        Ok(extent)
    }

    /// Makes `catalog` the one that counts, when everything that it names is durable.
    pub fn commit(&mut self, catalog: Catalog) -> Result<u64> {
        if !planted::is(Bug::CatalogBeforeBlocks) {
            self.blocks.sync(Purpose::Backup)?;
        }
        let bytes = catalog.encode();
        let space = space_of(self.space.end(), Some(&catalog))?;
        write_catalog(self.device.as_ref(), &bytes, &catalog)?;
        self.committing = true;
        name_catalog(self.device.as_ref())?;
        if planted::is(Bug::CatalogBeforeBlocks) {
            self.blocks.sync(Purpose::Backup)?;
        }
        // The space after the last unit is unused now.
        self.space = space;
        let tail = self.space.tail().0;
        if tail > 0 {
            self.blocks.truncate((self.space.end() - tail) * UNIT_BYTES)?;
            self.space.trim_end(tail);
        }
        self.catalog = Some(catalog);
        // The one that was in doubt is replaced, durably.
        self.doubt = None;
        Ok(bytes.len() as u64)
    }

    /// Ends a run: the catalog in place is durable, and the first backup is marked no longer.
    pub fn finish(&mut self) -> Result<()> {
        self.sync_catalog()?;
        if self.is_marked {
            self.device.remove(UNFINISHED)?;
            self.device.sync_dir()?;
            self.is_marked = false;
        }
        Ok(())
    }

    /// Gives back what a run took that failed: only to be tidy, because no catalog names it.
    pub fn abandon(&self) {
        if self.committing {
            return;
        }
        let used = self.catalog.iter().flat_map(extents).map(|extent| extent.end()).max();
        let bytes = used.unwrap_or(0).saturating_mul(UNIT_BYTES);
        if self.blocks.len().is_ok_and(|len| len > bytes) {
            let _stays_behind = self.blocks.truncate(bytes);
        }
    }

    /// Makes the catalog in place durable, once. What it names was before it was put there.
    fn sync_catalog(&mut self) -> Result<()> {
        if let (Some(bytes), Some(catalog)) = (self.doubt.take(), &self.catalog) {
            write_catalog(self.device.as_ref(), &bytes, catalog)?;
            name_catalog(self.device.as_ref())?;
        }
        Ok(())
    }
}

/// Fails for a folder that holds a store or anything else than a backup. Touches nothing.
fn refuse_foreign(device: &dyn Device) -> Result<()> {
    let names = device.list()?;
    let location = device.location();
    if names.iter().any(|name| name == SUPERBLOCK) {
        return Err(Error::invalid(format!(
            "{location} is a store and not a backup: a backup has a folder of its own"
        )));
    }
    let ours = [CATALOG, CATALOG_NEW, BLOCKS, UNFINISHED, LOCK];
    match names.iter().find(|name| !ours.contains(&name.as_str())) {
        Some(foreign) => Err(Error::invalid(format!(
            "{location} is not a backup: it holds {foreign:?}; choose a folder that is empty or new"
        ))),
        None => Ok(()),
    }
}

/// Fails for the folder of a finished backup that has lost its catalog. Touches nothing.
pub(super) fn refuse_remains(device: &dyn Device) -> Result<()> {
    match refuse_foreign(device) {
        Ok(()) => refuse_lost_catalog(device, &device.list()?),
        Err(_) => Ok(()),
    }
}

/// Fails where a finished backup has lost its catalog. Touches nothing.
fn refuse_lost_catalog(device: &dyn Device, names: &[String]) -> Result<()> {
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if !has(BLOCKS) || has(UNFINISHED) || planted::is(Bug::LostCatalogIgnored) {
        return Ok(());
    }
    let location = device.location();
    Err(damaged(
        CATALOG,
        0,
        &format!(
            "the catalog is missing from {location}, whose {BLOCKS:?} is left of a backup: put \
             the catalog back from a copy, or choose another folder; if the backup is of no use, \
             remove {BLOCKS:?}"
        ),
    ))
}

/// Makes the file of blocks of a first backup. The files that an unfinished one has left are
/// removed.
fn begin(device: &dyn Device, names: &[String]) -> Result<Arc<dyn DeviceFile>> {
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if !has(UNFINISHED) {
        device.open(UNFINISHED, Open::CreateNew, Caching::Buffered)?;
    }
    // Also one that is there: it may be in the page cache alone.
    device.sync_dir()?;
    if has(BLOCKS) {
        device.remove(BLOCKS)?;
    }
    Ok(device.open(BLOCKS, Open::CreateNew, Caching::Direct)?)
}

fn no_backup(device: &dyn Device) -> Error {
    Error::invalid(format!("there is no backup at {}", device.location()))
}

fn open_blocks(device: &dyn Device) -> Result<Arc<dyn DeviceFile>> {
    device.open(BLOCKS, Open::Existing, Caching::Direct).map_err(|error| {
        match error.source.kind() {
            std::io::ErrorKind::NotFound => damaged(BLOCKS, 0, "the file is missing"),
            _ => error.into(),
        }
    })
}

/// The free space of a backup's file of `units`.
fn space_of(units: u64, catalog: Option<&Catalog>) -> Result<Space> {
    if planted::is(Bug::BackupOverwritten) {
        return Ok(Space::of(units, []).unwrap_or_default());
    }
    Space::of(units, catalog.into_iter().flat_map(extents)).map_err(|Overlap(extent)| {
        damaged(BLOCKS, extent.offset(), "the catalog names it twice, or the file ends before it")
    })
}

/// The units of a backup's file that its catalog names.
fn extents(catalog: &Catalog) -> impl Iterator<Item = Extent> {
    let chunks = catalog.chunks.iter();
    let chunks = chunks.map(|chunk| Extent { start: chunk.place, units: chunk.units() });
    places(&catalog.pieces).chain(chunks)
}

pub(super) fn damaged(file: &str, offset: u64, what: &str) -> Error {
    Error::Damaged { file: file.to_string(), offset, what: what.to_string() }
}

/// Reads the catalog: either half will do.
fn read_catalog(device: &dyn Device, problems: &mut Vec<Problem>) -> Result<(Catalog, Vec<u8>)> {
    let file = device.open(CATALOG, Open::Existing, Caching::Buffered)?;
    let len = file.len()?;
    let halves_are_whole = len > 0 && len.is_multiple_of(2 * UNIT_BYTES);
    if !halves_are_whole || len > CATALOG_BYTES_MAX {
        return Err(damaged(CATALOG, len, "the catalog has not the length of one"));
    }
    let half_bytes = len / 2;
    let mut found: Option<(Catalog, Vec<u8>)> = None;
    let mut errors = Vec::new();
    for offset in [0, half_bytes] {
        let mut half = vec![0; half_bytes as usize];
        let read = file.read_at(offset, &mut half, Purpose::Recovery);
        let decoded = match read {
            Ok(()) => Catalog::decode(&half).map_err(|error| refused(&error, offset)),
            Err(error) => Err(error.into()),
        };
        match decoded {
            Ok(_) if found.is_some() => {}
            Ok(catalog) => found = Some((catalog, half)),
            Err(error @ (Error::TooNew { .. } | Error::Invalid { .. })) => return Err(error),
            Err(error) => errors.push((offset, error)),
        }
    }
    let problem = |(offset, error): &(u64, Error)| {
        Problem::new(CATALOG, *offset, format!("one of two copies is damaged: {error}"))
    };
    problems.extend(errors.iter().map(problem));
    let bad = errors.into_iter().next().map(|(_, error)| error);
    let none = || bad.unwrap_or_else(|| damaged(CATALOG, 0, "there is no catalog"));
    found.map(|(catalog, half)| (catalog, half.repeat(2))).ok_or_else(none)
}

fn refused(error: &HalfError, offset: u64) -> Error {
    match error {
        HalfError::TooNew(found) => {
            let file = CATALOG.to_string();
            Error::TooNew { file, found: *found, supported: FORMAT_VERSION }
        }
        HalfError::TooOld(found) => Error::invalid(format!(
            "{CATALOG} has format version {found}, of a development build; this build reads \
             version {FORMAT_VERSION}: restore it with the build that wrote it"
        )),
        HalfError::UnknownFeatures(features) => Error::invalid(format!(
            "{CATALOG} needs features that this build does not know ({features:#x}): \
             use a newer esker"
        )),
        HalfError::Damaged(error) => {
            damaged(CATALOG, offset.saturating_add(error.offset as u64), error.what)
        }
    }
}

/// Writes a catalog to a second file next to the current one, durably, and reads it back: both
/// halves are then known to hold `catalog`. The names of all files that were made before are
/// durable after it.
fn write_catalog(device: &dyn Device, bytes: &[u8], catalog: &Catalog) -> Result<()> {
    let _may_be_missing = device.remove(CATALOG_NEW);
    let file = device.open(CATALOG_NEW, Open::CreateNew, Caching::Buffered)?;
    file.write_at(0, bytes, Purpose::Backup)?;
    file.sync(Purpose::Backup)?;
    device.sync_dir()?;
    let half_bytes = bytes.len() / 2;
    let mut half = vec![0; half_bytes];
    for offset in [0, half_bytes as u64] {
        file.read_at(offset, &mut half, Purpose::Check)?;
        if Catalog::decode(&half).as_ref() != Ok(catalog) {
            let what = "the new catalog does not read back as it was written: the last one stays";
            return Err(damaged(CATALOG_NEW, offset, what));
        }
    }
    Ok(())
}

/// Puts the catalog that was written in place, durably.
fn name_catalog(device: &dyn Device) -> Result<()> {
    device.rename(CATALOG_NEW, CATALOG)?;
    Ok(device.sync_dir()?)
}
