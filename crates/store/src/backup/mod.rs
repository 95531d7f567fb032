//! Backups: a copy of the whole store at one moment in a separate folder, and restoring from it.
//!
//! A backup is what a crash at that moment would leave: the manifest, every block that it leads to,
//! and the log up to one number. Blocks are never changed in place, so a second backup into the
//! same folder copies only the blocks that the first does not contain. A backup reads the store and
//! waits only for the steps of merges under way; writers continue.
//!
//! Reading order: `capture` (the moment), `pieces` (what a backup contains, and what of it is
//! alive), `edges` (where its blocks begin and end), `folder` (the files, and how one backup takes
//! the place of another), `run` (one backup), `proof` (that one read before it counts), `image`
//! (a backup as the store that it is of), `restore` (that store on a device, and everything read
//! and checked). The catalog's bytes are `esker_format::backup`.

mod capture;
mod edges;
mod folder;
mod image;
mod pieces;
mod proof;
mod restore;
mod run;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use esker_device::Device;
use esker_device::file::FileDevice;
use esker_device::readonly::ReadOnlyDevice;
use esker_substrate::fault::FaultPoints;
use esker_substrate::manifest::{Beginning, Manifest, ManifestOptions};
use esker_substrate::poison::Poison;
use esker_substrate::runtime::{Runtime, SystemRuntime};

use crate::check::{self, CheckReport, Problem};
use crate::error::{Error, Result};
use crate::open;
use crate::options::{MEMORY_BUDGET_DEFAULT, Settings};
use crate::shared::Core;
use crate::work_queue::Mode;
use folder::Folder;
use image::ImageDevice;
use pieces::Pieces;

/// The progress of a backup or of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupProgress {
    /// Bytes copied so far.
    pub bytes_copied: u64,
    /// The most bytes that may have to be copied. A backup over an older one copies less.
    pub bytes_at_most: u64,
}

/// The result of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupReport {
    /// The sequence number up to which operations are in the backup.
    pub seq: u64,
    /// The number of this backup in its folder, from 1. The same as before if nothing had changed.
    pub run: u64,
    /// Bytes read from the store: blocks that are new, and the log.
    pub bytes_read: u64,
    /// Bytes written to the backup, its catalog included.
    pub bytes_written: u64,
    /// Bytes that the previous backup already had.
    pub bytes_reused: u64,
    /// Bytes of the store that the backup holds.
    pub bytes_total: u64,
}

/// A callback that receives the progress repeatedly and may end the operation.
pub(crate) type Progress<'p> = dyn FnMut(&BackupProgress) -> ControlFlow<()> + 'p;

/// A backup made by [`Db::backup`](crate::Db::backup), open to be checked and restored. No process
/// can write to it meanwhile.
pub struct Backup {
    folder: Folder,
}

impl Backup {
    /// Whether the folder `path` exists and has a backup.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be read.
    pub fn exists(path: impl AsRef<Path>) -> Result<bool> {
        match FileDevice::open_read_only(path) {
            Ok(device) => folder::is_backup(&device),
            Err(_) => Ok(false),
        }
    }

    /// Opens the backup in the folder `path`, without changing anything in it: it may be on
    /// read-only media, and be open several times.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is none, [`Error::Damaged`] when its catalog is unreadable or
    /// lost, [`Error::Locked`] while another handle or process writes it or has it open,
    /// [`Error::TooNew`], [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if Self::exists(path)? {
            return Self::open_on(open::read_only_folder(path)?);
        }
        if let Ok(device) = open::read_only_folder(path) {
            folder::refuse_remains(device.as_ref())?;
        }
        Err(Error::invalid(format!("there is no backup at {}", path.display())))
    }

    /// Opens the backup on `device`.
    ///
    /// # Errors
    /// Those of [`Backup::open`].
    pub fn open_on(device: Arc<dyn Device>) -> Result<Self> {
        Ok(Self { folder: Folder::existing(Arc::new(ReadOnlyDevice::new(device)))? })
    }

    /// The sequence number up to which operations are in it.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.folder.catalog.as_ref().map_or(0, |catalog| catalog.seq.0)
    }

    /// The number of this backup in its folder, from 1.
    #[must_use]
    pub fn run(&self) -> u64 {
        self.folder.catalog.as_ref().map_or(0, |catalog| catalog.run)
    }

    /// Bytes of the store that the backup holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.folder.catalog.as_ref().map_or(0, |catalog| {
            let log: u64 = catalog.chunks.iter().map(|chunk| chunk.bytes).sum();
            Pieces::new(&catalog.pieces).bytes().saturating_add(log)
        })
    }

    /// Reads everything and compares it with what it should be: first every byte with its checksum,
    /// then the store that it makes, as [`Db::check`](crate::Db::check) does.
    ///
    /// # Errors
    /// Damage is not an error here: it is in the report. [`Error::Damaged`] where the store could
    /// not be opened at all.
    pub fn check(&self) -> Result<CheckReport> {
        let mut problems = self.folder.problems.clone();
        let catalog = self.folder.backup()?;
        let mut nowhere = |_offset: u64, _bytes: &[u8]| Ok(());
        for piece in &catalog.pieces {
            note(&mut problems, restore::read_piece(&self.folder, piece, &mut nowhere))?;
        }
        for chunk in &catalog.chunks {
            note(&mut problems, restore::read_chunk(&self.folder, chunk, &mut nowhere))?;
        }
        if problems.len() > self.folder.problems.len() {
            // What the store says of the same bytes would be the same once more.
            return Ok(CheckReport { problems, ..CheckReport::default() });
        }
        let store = self.open_image()?;
        let mut report = check::check(&store)?;
        problems.append(&mut report.problems);
        report.problems = problems;
        Ok(report)
    }

    /// Restores the store into the folder `path`, which is new or empty, or has an interrupted
    /// restore. Everything is checked while it is copied; [`Db::open`](crate::Db::open) then opens
    /// the store as of [`seq`](Self::seq).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a folder that is not empty, [`Error::Damaged`] with the place in the
    /// backup, [`Error::Full`], [`Error::Io`]. There is no store then.
    pub fn restore(&self, path: impl AsRef<Path>) -> Result<()> {
        self.restore_with(path, &mut |_| ControlFlow::Continue(()))
    }

    /// [`restore`](Self::restore) with a progress callback that is called repeatedly; `Break` ends
    /// it.
    ///
    /// # Errors
    /// Those of [`restore`](Self::restore), and [`Error::Invalid`] when it was ended.
    pub fn restore_with(
        &self,
        path: impl AsRef<Path>,
        progress: &mut dyn FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        self.folder.check_process()?;
        self.restore_on(open::folder(path.as_ref(), true)?, progress)
    }

    /// [`restore_with`](Self::restore_with) on a device.
    ///
    /// # Errors
    /// Those of [`restore_with`](Self::restore_with).
    pub fn restore_on(
        &self,
        device: Arc<dyn Device>,
        progress: &mut dyn FnMut(&BackupProgress) -> ControlFlow<()>,
    ) -> Result<()> {
        self.folder.check_process()?;
        let mut so_far = BackupProgress { bytes_copied: 0, bytes_at_most: self.bytes() };
        restore::restore(&self.folder, &device, &mut |bytes| {
            so_far.bytes_copied += bytes;
            match progress(&so_far) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::invalid("the restoring was stopped")),
            }
        })
    }

    /// The store that it is, open on the backup's files. Nothing is merged in it.
    fn open_image(&self) -> Result<Arc<crate::shared::Shared>> {
        let catalog = self.folder.backup()?;
        let state = restore::state_of(catalog)?;
        let files = image::files(catalog, &state);
        let log_bytes: u64 = catalog.chunks.iter().map(|chunk| chunk.bytes).sum();
        let location = self.folder.device.location();
        let image = ImageDevice::new(location, &self.folder.blocks, files);
        let device: Arc<dyn Device> = Arc::new(image);
        let (poison, faults) = (Arc::<Poison>::default(), Arc::<FaultPoints>::default());
        let options = ManifestOptions::default();
        let beginning = Beginning { state, features: catalog.features };
        Manifest::create_with(&device, catalog.store, options, beginning, &poison, &faults)?;
        let settings = Settings {
            create: false,
            // Room for the log in memtables, so that nothing is flushed.
            memory_budget_bytes: MEMORY_BUDGET_DEFAULT.saturating_add(8 * log_bytes),
            mode: Mode::Inline(1),
            ..Settings::default()
        };
        let runtime: Arc<dyn Runtime> = Arc::new(SystemRuntime::default());
        open::open(device, &settings, &runtime)
    }
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup")
            .field("location", &self.folder.device.location())
            .field("run", &self.run())
            .field("seq", &self.seq())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Keeps damage as a problem.
fn note(problems: &mut Vec<Problem>, result: Result<()>) -> Result<()> {
    match result {
        Err(Error::Damaged { file, offset, what }) => {
            problems.push(Problem::new(file, offset, what));
            Ok(())
        }
        other => other,
    }
}

/// Makes a backup of the store on `device`.
pub(crate) fn backup_on(
    shared: &Core,
    device: Arc<dyn Device>,
    progress: &mut Progress<'_>,
) -> Result<BackupReport> {
    shared.check_process()?;
    let _span = tracing::debug_span!("backup", to = device.location()).entered();
    if shared.follower.is_none() {
        shared.poison.check()?;
    }
    run::run(shared, Folder::open(device)?, progress)
}

/// Makes a backup of the store in the folder `path`.
pub(crate) fn backup(
    shared: &Core,
    path: &Path,
    progress: &mut Progress<'_>,
) -> Result<BackupReport> {
    shared.check_process()?;
    refuse_own_folder(shared, path)?;
    backup_on(shared, open::folder(path, true)?, progress)
}

/// Fails for a folder within the store's own.
fn refuse_own_folder(shared: &Core, path: &Path) -> Result<()> {
    let Some(store) = shared.device.folder() else { return Ok(()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let around = [path, parent.unwrap_or_else(|| Path::new("."))];
    let found = around.iter().find_map(|path| FileDevice::open(path).ok());
    let inside = found.and_then(|device| device.folder());
    if inside.is_some_and(|folder| folder.starts_with(&store)) {
        return Err(Error::invalid(format!(
            "{} is within the store: a backup has a folder of its own, best on another device",
            path.display()
        )));
    }
    Ok(())
}
