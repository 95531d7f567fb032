//! The output file, which has no name until it is complete.
//!
//! A file without a name (`O_TMPFILE`) is deleted when the process ends, however it ends. On a file
//! system without such files it has a hidden name in the folder of the result, and so has a folder
//! of chunks: a process that is killed leaves it behind. The process that makes it holds a lock on
//! it, so that the next process that makes the same result recognises leftovers and removes them.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::{Error, Result, unusable};
use crate::file::{File, failed};
use crate::message::{Message, Value};
use crate::planted::{self, Bug};

/// A file that is in no folder, or under a hidden name, which is removed when dropped before
/// [`Target::commit`].
#[derive(Debug)]
pub struct Target {
    file: File,
    /// Its hidden name, if it has one.
    hidden: Option<PathBuf>,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Target {
    /// Creates a file on the file system of `path`, of `len` bytes, with its space reserved.
    pub fn create(path: &Path, len: u64) -> Result<Self> {
        let target = match File::unnamed(&folder_of(path))? {
            Some(file) if !planted::is(Bug::NamedWhileWritten) => Self { file, hidden: None },
            _ => Self::hidden(path)?,
        };
        target.file.reserve(len)?;
        Ok(target)
    }

    /// Creates a file that will never have a name.
    pub(crate) fn scratch(path: &Path, len: u64) -> Result<Self> {
        let mut target = Self::create(path, len)?;
        if let Some(hidden) = target.hidden.take() {
            let name = hidden.display().to_string();
            fs::unlink(&hidden).map_err(|errno| failed("remove the name", &name, errno))?;
        }
        Ok(target)
    }

    /// A file under a hidden name in the folder of `path`.
    fn hidden(path: &Path) -> Result<Self> {
        let hidden = Hidden::of(path)?;
        hidden.sweep();
        let (temporary, file) = hidden.make(File::create)?;
        Ok(Self { file, hidden: Some(temporary) })
    }

    /// The open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// The open file alone, for a result without a name.
    pub(crate) fn into_descriptor(mut self) -> Result<OwnedFd> {
        if let Some(hidden) = self.hidden.take() {
            let name = hidden.display().to_string();
            fs::unlink(&hidden).map_err(|errno| failed("remove the name", &name, errno))?;
        }
        self.file.descriptor()
    }

    /// Makes the contents durable and gives the file its name; an existing file is replaced only
    /// if `force`.
    pub fn commit(mut self, path: &Path, force: bool) -> Result<()> {
        self.file.sync()?;
        let named = match &self.hidden {
            Some(hidden) => rename(hidden, path, force),
            None => self.link(path, force),
        };
        match named {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(exists(path, "exists by now")),
            Err(errno) => {
                return Err(failed("give the result the name", &path.display().to_string(), errno));
            }
        }
        self.hidden = None;
        let folder = folder_of(path);
        if let Ok(folder) = fs::open(&folder, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            // Some file systems cannot sync folders; the file itself is durable.
            let _ = fs::fsync(folder);
        }
        Ok(())
    }

    /// Gives a file without a name its own. No call replaces a file by one without a name: it gets
    /// a hidden one first, for as long as a rename takes.
    fn link(&mut self, path: &Path, force: bool) -> rustix::io::Result<()> {
        match self.file.link(path) {
            Err(Errno::EXIST) if force => {}
            outcome => return outcome,
        }
        let hidden = Hidden::of(path).map_err(|_| Errno::INVAL)?.next();
        self.file.link(&hidden)?;
        let outcome = rename(&hidden, path, true);
        self.hidden = outcome.is_err().then_some(hidden);
        outcome
    }
}

fn rename(from: &Path, to: &Path, force: bool) -> rustix::io::Result<()> {
    let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    match fs::renameat_with(CWD, from, CWD, to, flags) {
        // Some file systems cannot refuse to replace; then the name was looked at before.
        Err(Errno::INVAL) if !force && !to.exists() => fs::rename(from, to),
        outcome => outcome,
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            let _ = fs::unlink(hidden);
        }
    }
}

/// Hidden names in the folder of a path: `.NAME.PROCESS-NUMBER.part`.
#[derive(Debug)]
pub(crate) struct Hidden {
    folder: PathBuf,
    prefix: OsString,
}

const SUFFIX: &str = ".part";
/// Names have at most 255 bytes; process and number at most 31 of them.
const NAME_MAX: usize = 255 - 31 - SUFFIX.len();

impl Hidden {
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let Some(name) = path.file_name() else {
            return unusable(format!("{} is no name of a file", path.display()));
        };
        let mut prefix = OsString::from(".");
        prefix.push(if name.len() < NAME_MAX { name } else { "esker-permute".as_ref() });
        prefix.push(".");
        Ok(Self { folder: folder_of(path), prefix })
    }

    /// A name that nothing else of this process has.
    fn next(&self) -> PathBuf {
        let mut name = self.prefix.clone();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        name.push(format!("{}-{number}{SUFFIX}", std::process::id()));
        self.folder.join(name)
    }

    /// Makes something under such a name, and locks it.
    pub(crate) fn make<T: AsFd>(&self, make: impl Fn(&Path) -> Result<T>) -> Result<(PathBuf, T)> {
        loop {
            let path = self.next();
            match make(&path) {
                // Another machine, or a process of the same number in another container.
                Err(Error::System { source, .. })
                    if source.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(made) => match fs::flock(&made, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) if !is_at(&made, &path) => {}
                    // Another process is removing leftovers, and has just taken this file for one.
                    Err(Errno::WOULDBLOCK) => {}
                    // A file system without locks: nothing is swept there.
                    Ok(()) | Err(_) => return Ok((path, made)),
                },
            }
        }
    }

    /// Removes what processes that were killed have left under such names.
    pub(crate) fn sweep(&self) {
        if planted::is(Bug::LeftOversStay) {
            return;
        }
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            if self.is_one(entry.file_name().as_bytes()) {
                remove_left_over(&entry.path());
            }
        }
    }

    fn is_one(&self, name: &[u8]) -> bool {
        let number = name
            .strip_prefix(self.prefix.as_bytes())
            .and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        number.is_some_and(|number| {
            number.contains(&b'-') && number.iter().all(|b| b.is_ascii_digit() || *b == b'-')
        })
    }
}

/// Removes a file or folder that no process has locked.
fn remove_left_over(path: &Path) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let Ok(found) = fs::open(path, flags, Mode::empty()) else { return };
    let locked = fs::flock(&found, FlockOperation::NonBlockingLockExclusive);
    if locked.is_err() || !is_at(&found, path) {
        return;
    }
    // What cannot be removed stays: it does no harm.
    let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
}

/// Whether a path leads to what is open.
fn is_at(open: &impl AsFd, path: &Path) -> bool {
    match (fs::fstat(open), fs::lstat(path)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        _ => false,
    }
}

/// The folder that contains a path.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Symbolic links that are followed, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// The path to which what is written to `path` goes: itself, or what it is a symbolic link to,
/// which need not be there.
pub(crate) fn behind_links(path: &Path) -> Result<PathBuf> {
    // Without a slash at the end, behind which a link would be followed.
    let mut place: PathBuf = path.components().collect();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&place) {
            Ok(_) if planted::is(Bug::LinkReplaced) => return Ok(place),
            Ok(to) => place = folder_of(&place).join(to).components().collect(),
            Err(_) => return Ok(place),
        }
    }
    unusable(format!("{} is a symbolic link in a circle", path.display()))
}

/// Refuses what the file system has no space for, where it tells.
pub(crate) fn check_space(path: &Path, len: u64) -> Result<()> {
    let folder = folder_of(path);
    let stat = match fs::statvfs(&folder) {
        Ok(stat) => stat,
        Err(errno) => {
            let path = folder.display().to_string();
            return match errno {
                Errno::NOENT | Errno::NOTDIR => unusable(format!("the folder {path} is not there")),
                _ => Err(failed("look at", &path, errno)),
            };
        }
    };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < len {
        return unusable(format!(
            "{} has {free} bytes free and {len} are needed: make room or write elsewhere",
            folder.display()
        ));
    }
    Ok(())
}

/// Whether the path may be written: nothing is there, or a file that may be replaced.
pub(crate) fn check_free(
    path: &Path,
    force: bool,
    input_identity: Option<(u64, u64)>,
) -> Result<()> {
    let text = path.display();
    match fs::stat(path) {
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("look at", &text.to_string(), errno)),
        Ok(stat) if Some((stat.st_dev, stat.st_ino)) == input_identity => {
            unusable(format!("{text} is the input itself; write to another file"))
        }
        Ok(stat) if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::RegularFile => {
            unusable(format!("{text} exists and is not a regular file; write to another name"))
        }
        Ok(_) if force => Ok(()),
        Ok(_) => Err(exists(path, "exists")),
    }
}

/// The error that the output exists and would be replaced.
pub(crate) fn exists(path: &Path, what: &str) -> Error {
    let text = Message::from(format!("{} {what}; ", path.display()));
    Error::File(text.option("force", Value::On).then(" replaces it"))
}

#[cfg(test)]
#[path = "target/tests.rs"]
mod tests;
