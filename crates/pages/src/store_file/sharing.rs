//! The meeting file beside a store that several processes have open, and how they come and go.
//!
//! ```text
//!                       lock of the store's file     locks of the meeting file
//! one process writes    exclusive                    none
//! some only read        shared                       none
//! several take turns    shared, each                 a cell, each
//! the first of several  exclusive, then shared       that of who opens, while it opens; a cell
//! the last of several   none, then exclusive         that of who closes, while it closes
//! ```
//!
//! So who has a store to itself and those who share it keep each other out. Who opens or closes a
//! shared store has a lock meanwhile, and sees by the locks of the cells whether other processes
//! are there. The first one makes the file anew, whatever is in it: what a dead process, or one
//! from before a restart of the machine, has left there is never believed. It also writes that the
//! store is shared, which versions of the code that know of no meeting refuse; the last one takes
//! that back and removes the file. Between its exclusive and its shared lock another process may
//! lock the store for a moment: that one finds a cell in use, or a format that it does not know,
//! and leaves.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use esker_device::file::Access;
use esker_device::file::lock::{Lock, LockFile};
use esker_device::shared::{Shared, SharedFile, is_on_network};
use rustix::fs::{
    Access as RightsWanted, AtFlags, CWD, FlockOperation, Mode, accessat, fchmod, fchown, flock,
    fstat,
};
use rustix::io::{Errno, pread};
use rustix::process::{Gid, Uid, geteuid};

use super::{FileId, Missing, failed, make_missing, open_to_lock, place, refused, wait_for};
use crate::engine::{Engine, Turns};
use crate::error::{Error, Result, invalid};
use crate::log::joining::{open_first, open_next};
use crate::log::superblock::{Found, SUPERBLOCKS_BYTES, Superblock, find};
use crate::log::unsaid::open_unsaid;
use crate::meeting::cells::has_other;
use crate::meeting::layout::{
    FILE_BYTES, MEETING_BYTES, OPEN_LOCK, cell_locks, is_of_other_file, is_other_file, say_file,
};
use crate::meeting::state::has_no_state;
use crate::options::{Allocation, Options, Processes};
use crate::store::PageStore;

/// The time between two attempts to have a lock.
const PAUSE: Duration = Duration::from_millis(1);
/// For how long a lock is waited for that others have for a moment only.
const MOMENT: Duration = Duration::from_secs(2);
/// The largest number of times that a file may be replaced while it is being opened.
const REPLACED_MAX: u32 = 100;
/// How a store is open that processes which read cannot share.
const HELD: &str = "open in a process that does not share it";
/// How a store is open that a process wants to be the first to share.
const HELD_OTHERWISE: &str = "open in a process that does not share it, perhaps only to read, \
                              as it is asked not to or may not write beside it: close it there";

/// The meeting file of a store, while this process has the store open.
#[derive(Debug)]
pub(super) struct Meeting {
    path: PathBuf,
    shared: Arc<SharedFile>,
    /// Whether other processes had the store open when this one came.
    has_others: bool,
    /// Until when opening waits.
    until: Instant,
    /// What the store is closed with, once it is open.
    opened: Option<Opened>,
}

/// A store that is open with others.
#[derive(Debug)]
struct Opened {
    store: PathBuf,
    /// Whether this process may write.
    writes: AtomicBool,
    options: Options,
    /// Gone when nothing of the store is in use any more.
    engine: Weak<Engine>,
}

/// The path of the meeting file of the store at `path`.
fn meeting_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-esker");
    name.into()
}

/// Fails where processes that share the store at `path` have it open. Who asks has locked the
/// store's file, and keeps others from beginning to share it.
pub(super) fn check_unshared(path: &Path, id: FileId) -> Result<()> {
    let meeting = meeting_path(path);
    // What is there may be another file, or of another user, or on a medium that is read-only.
    if !fs::symlink_metadata(&meeting).is_ok_and(|found| found.is_file()) {
        return Ok(());
    }
    let lock = match LockFile::open(|| open_to_lock(&meeting, Access::Read)) {
        Err(Error::Device(error)) if error.source.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        lock => lock?,
    };
    let looked = |errno: Errno| failed(&meeting, errno.into());
    let mut said = [0; 16];
    let read = pread(&lock, &mut said, FILE_BYTES).map_err(looked)?;
    let is_other = read == said.len() && is_other_file(said, [id.0, id.1]);
    let mut is_used = false;
    for byte in cell_locks() {
        is_used |= lock.is_byte_locked(byte).map_err(looked)?;
    }
    if is_other || !is_used {
        return Ok(());
    }
    let how = "open in processes that share it: open it in the same way as they do, with the right \
               to write the file of this name and -esker";
    Err(Error::Locked { file: path.display().to_string(), how })
}

/// Locks the store at `path` for a process that shares it, and its meeting file for who opens it.
pub(super) fn lock(
    path: &Path,
    access: Access,
    missing: Missing,
    patience: Duration,
) -> Result<(LockFile, Meeting)> {
    let until = Instant::now() + patience;
    for _ in 0..REPLACED_MAX {
        if missing == Missing::Create {
            make_missing(path)?;
        }
        let lock = LockFile::open(|| open_to_lock(path, access))?;
        check_local(path, &lock)?;
        let Some(meeting) = Meeting::join(path, until)? else { continue };
        let id = FileId::of_open(&lock).map_err(|errno| failed(path, errno.into()))?;
        if meeting.has_others && is_of_other_file(&*meeting.shared, [id.0, id.1]) {
            // They go on to meet there, whatever its name is.
            fs::remove_file(&meeting.path).map_err(|error| failed(&meeting.path, error))?;
            continue;
        }
        if let Err(error) = meeting.lock_store(&lock, path, access, until) {
            meeting.remove();
            return Err(error);
        }
        if FileId::at(path).is_ok_and(|found| found == id) {
            return Ok((lock, meeting));
        }
    }
    let why = io::Error::other("it is replaced again and again");
    Err(failed(path, why).into())
}

/// Whether several processes may have the store at `path` open, or one that is made there with
/// these options: not on a file system of a network, not with segment allocation, and not where
/// the meeting file cannot be made or written. What cannot be found out now, opening says.
#[doc(hidden)]
#[must_use]
pub fn can_be_shared(path: &Path, options: &Options) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let (folder, meeting) = (folder.unwrap_or_else(|| Path::new(".")), meeting_path(path));
    let found = fs::symlink_metadata(&meeting);
    if found.as_ref().is_ok_and(|found| !found.is_file()) {
        return false;
    }
    let may_meet = if found.is_ok() {
        may(&meeting, RightsWanted::READ_OK | RightsWanted::WRITE_OK)
    } else {
        may(folder, RightsWanted::WRITE_OK)
    };
    let is_local = |file: &fs::File| !is_on_network(file).unwrap_or(false);
    let Ok(file) = open_to_look(path) else {
        let is_local = fs::File::open(folder).is_ok_and(|folder| is_local(&folder));
        return may_meet && is_local && options.allocation == Allocation::Slot;
    };
    let found = superblock_in(&file);
    let allocation = found.map_or(options.allocation, |block| block.allocation);
    may_meet && is_local(&file) && allocation == Allocation::Slot
}

/// Whether this process has these rights.
fn may(path: &Path, rights: RightsWanted) -> bool {
    accessat(CWD, path, rights, AtFlags::EACCESS).is_ok()
}

/// Opens a file for reading, without waiting for what is none.
fn open_to_look(path: &Path) -> Result<fs::File> {
    open_to_lock(path, Access::Read).map(fs::File::from)
}

/// The newest superblock in a file; `None` where there is no store.
fn superblock_in(file: &fs::File) -> Option<Superblock> {
    let mut head = vec![0; SUPERBLOCKS_BYTES];
    file.read_exact_at(&mut head, 0).ok()?;
    match find(&head) {
        Found::Superblock(block) => Some(block),
        _ => None,
    }
}

/// As [`lock`], for a process that may only read. `None` where it cannot be one of several: the
/// meeting file cannot be made, or a process has the store open that does not share it.
pub(super) fn lock_to_read(path: &Path, patience: Duration) -> Result<Option<(LockFile, Meeting)>> {
    match lock(path, Access::Read, Missing::Fail, patience) {
        Err(Error::Device(error)) if is_denied(&error.source) => Ok(None),
        Err(Error::Locked { how, .. }) if how == HELD => Ok(None),
        locked => locked.map(Some),
    }
}

fn is_denied(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// Fails for a file that other machines may have open.
fn check_local(path: &Path, lock: &LockFile) -> Result<()> {
    if is_on_network(lock).map_err(|error| failed(path, error))? {
        return invalid(format!(
            "{} is on a file system of a network, where processes cannot share memory: open it in \
             one process",
            path.display()
        ));
    }
    Ok(())
}

/// Locks the store's file as others have it that share it. They are not made to wait by a process
/// that wants the file for itself.
fn wait_to_share(lock: &LockFile, path: &Path, until: Instant) -> Result<()> {
    let until = until.max(Instant::now() + MOMENT);
    while !lock.try_lock(Lock::Shared).map_err(|errno| failed(path, errno.into()))? {
        if Instant::now() >= until {
            return Err(refused(path, Access::Write));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

impl Meeting {
    /// Opens the meeting file, or makes one, and takes the lock of who opens the store. `None`
    /// where the file was removed in the meantime.
    fn join(store: &Path, until: Instant) -> Result<Option<Self>> {
        let path = meeting_path(store);
        let shared = Arc::new(SharedFile::open(&path, MEETING_BYTES)?);
        while !shared.try_lock(OPEN_LOCK)? {
            if Instant::now() >= until {
                let how = "being opened or closed by another process: try again";
                return Err(Error::Locked { file: store.display().to_string(), how });
            }
            std::thread::sleep(PAUSE);
        }
        let has_others = has_other(&*shared)?;
        let meeting = Self { path, shared, has_others, until, opened: None };
        Ok(meeting.is_at_path().then_some(meeting))
    }

    /// Locks the store's file, with the others or alone.
    fn lock_store(
        &self,
        lock: &LockFile,
        path: &Path,
        access: Access,
        until: Instant,
    ) -> Result<()> {
        if self.has_others {
            return wait_to_share(lock, path, until);
        }
        self.belong_to(lock);
        if access == Access::Read {
            // Who has it open otherwise has it for long, and is waited for in another way.
            return wait_for(lock, path, Access::Write, MOMENT / 100).map_err(
                |error| match error {
                    Error::Locked { file, .. } => Error::Locked { file, how: HELD },
                    error => error,
                },
            );
        }
        // A process that has died may have its lock for a moment still.
        let left = until.saturating_duration_since(Instant::now());
        wait_for(lock, path, Access::Write, left.max(MOMENT / 20)).map_err(|error| match error {
            Error::Locked { file, .. } => Error::Locked { file, how: HELD_OTHERWISE },
            error => error,
        })
    }

    /// Gives the file the owner and the rights of the store's, so that those who may write the one
    /// may write the other. Where it cannot be, they are told when they open it.
    fn belong_to(&self, store: &LockFile) {
        let (Ok(is), Ok(own)) = (fstat(store), fstat(&*self.shared)) else { return };
        if is.st_mode & 0o666 != own.st_mode & 0o777 {
            let _best_effort = fchmod(&*self.shared, Mode::from_raw_mode(is.st_mode & 0o666));
        }
        if geteuid().is_root() && (is.st_uid, is.st_gid) != (own.st_uid, own.st_gid) {
            let (owner, group) = (Uid::from_raw(is.st_uid), Gid::from_raw(is.st_gid));
            let _best_effort = fchown(&*self.shared, Some(owner), Some(group));
        }
    }

    /// Removes the file, which no other process uses, after an opening that has failed.
    pub(super) fn remove(&self) {
        if !self.has_others {
            let _removed = fs::remove_file(&self.path);
        }
    }

    /// Whether its path leads to it still.
    fn is_at_path(&self) -> bool {
        let own = FileId::of_open(&*self.shared);
        own.is_ok_and(|own| FileId::at(&self.path).is_ok_and(|found| found == own))
    }

    /// Opens the store that `lock` is of. `None`, with the store's file locked for reading, where
    /// a process that reads has to be alone with others that only read.
    pub(super) fn open(
        mut self,
        store: &Path,
        access: Access,
        lock: &LockFile,
        options: Options,
    ) -> Result<Option<(PageStore, Self)>> {
        let opened = self.open_in_time(store, access, lock, &options);
        if !matches!(opened, Ok(Some(_))) {
            self.remove();
        }
        let Some(opened) = opened? else { return Ok(None) };
        let engine = Arc::downgrade(opened.engine());
        let writes = AtomicBool::new(access == Access::Write);
        self.opened = Some(Opened { store: store.to_owned(), writes, options, engine });
        self.shared.unlock(OPEN_LOCK)?;
        Ok(Some((opened, self)))
    }

    /// Waits while another process begins to write, or takes checkpoints.
    fn open_in_time(
        &self,
        path: &Path,
        access: Access,
        lock: &LockFile,
        options: &Options,
    ) -> Result<Option<PageStore>> {
        let until = self.until.max(Instant::now() + MOMENT / 4);
        loop {
            match self.open_store(path, access, lock, options.clone()) {
                Err(Error::Busy) if self.has_others && Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                opened => return opened,
            }
        }
    }

    fn open_store(
        &self,
        path: &Path,
        access: Access,
        lock: &LockFile,
        options: Options,
    ) -> Result<Option<PageStore>> {
        let (device, name) = place(path)?;
        let file = device.open_same(name, lock, access)?;
        let turns = Turns::new((access == Access::Write).then(|| Arc::clone(&file)));
        let shared = Arc::clone(&self.shared) as Arc<dyn Shared>;
        if self.has_others && !has_no_state(&*shared) {
            return Ok(Some(PageStore::over(open_next(file, options, shared, turns)?)));
        }
        if !self.has_others {
            (0..shared.words()).for_each(|at| shared.store(at, 0));
        }
        let unsaid = {
            let (file, shared) = (Arc::clone(&file), Arc::clone(&shared));
            let turns = Turns::new(turns.file().cloned());
            open_unsaid(file, options.clone(), shared, turns, self.has_others)?
        };
        let engine = match unsaid {
            // A store that is to be made.
            None if !self.has_others && access == Access::Write => {
                Some(open_first(file, options, shared, turns)?)
            }
            unsaid => unsaid,
        };
        if !self.has_others {
            let id = FileId::of_open(lock).map_err(|errno| failed(path, errno.into()))?;
            say_file(&*self.shared, [id.0, id.1]);
            wait_to_share(lock, path, Instant::now())?;
        }
        Ok(engine.map(PageStore::over))
    }

    /// From now on this process may write.
    pub(super) fn let_write(&self) {
        if let Some(opened) = &self.opened {
            opened.writes.store(true, Ordering::SeqCst);
        }
    }

    /// Whether no process has written the store since the meeting was made, and nothing in it says
    /// that it is shared.
    fn is_untouched(&self, opened: &Opened) -> bool {
        let block = open_to_look(&opened.store).ok().and_then(|file| superblock_in(&file));
        has_no_state(&*self.shared) && block.is_some_and(|block| !block.is_shared)
    }

    /// Takes back what the last process that shared the store leaves, when nothing of it is in use.
    fn end(&self, lock: &LockFile) -> Result<()> {
        let Some(opened) = &self.opened else { return Ok(()) };
        // Who is opening the store waits for this, and is not to be waited for.
        flock(lock, FlockOperation::Unlock).map_err(|errno| failed(&opened.store, errno.into()))?;
        let until = Instant::now() + MOMENT;
        while !self.shared.try_lock(OPEN_LOCK)? {
            if Instant::now() >= until {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
        let is_last = self.is_at_path() && !has_other(&*self.shared)?;
        if is_last && matches!(lock.try_lock(Lock::Exclusive), Ok(true)) {
            if !self.is_untouched(opened) {
                opened.close_last(lock)?;
            }
            fs::remove_file(&self.path).map_err(|error| failed(&self.path, error))?;
        }
        Ok(())
    }

    /// Leaves the store, of which this process uses nothing any more. What fails is done by the
    /// next process that opens it, as after a crash.
    pub(super) fn leave(&self, lock: &LockFile) {
        let in_use = |opened: &Opened| opened.engine.strong_count() > 0;
        if !lock.process().is_current() || self.opened.as_ref().is_some_and(in_use) {
            // What is in use may keep others out: it is unlocked with the last of it.
            return;
        }
        let _best_effort = self.end(lock);
        let _unlocked = self.shared.unlock(OPEN_LOCK);
    }
}

impl Opened {
    /// Leaves a store that older versions of the code can open.
    fn close_last(&self, lock: &LockFile) -> Result<()> {
        if !self.writes.load(Ordering::SeqCst) {
            return Ok(());
        }
        let (device, name) = place(&self.store)?;
        let file = device.open_same(name, lock, Access::Write)?;
        PageStore::open(file, self.options.clone().processes(Processes::One))?.close()
    }
}

#[cfg(test)]
mod tests;
