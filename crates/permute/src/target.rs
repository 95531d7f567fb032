//! The file that is made: under a temporary name until it is complete.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::{Result, unusable};
use crate::file::{File, failed};

/// A file beside its final place; removed when dropped before [`Target::commit`].
#[derive(Debug)]
pub struct Target {
    file: File,
    temporary: PathBuf,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Target {
    /// Creates a file beside `path`, of `len` bytes, with its space reserved.
    pub fn create(path: &Path, len: u64) -> Result<Self> {
        let temporary = temporary_name(path)?;
        let file = File::create(&temporary)?;
        let target = Self { file, temporary };
        target.file.reserve(len)?;
        Ok(target)
    }

    /// The open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Makes the contents durable and gives the file its name; an existing file is replaced only
    /// if `force`.
    pub fn commit(self, path: &Path, force: bool) -> Result<()> {
        self.file.sync()?;
        let text = path.display().to_string();
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let renamed = match fs::renameat_with(CWD, &self.temporary, CWD, path, flags) {
            // Some file systems cannot refuse to replace; then the name was looked at before.
            Err(Errno::INVAL) if !force && !path.exists() => fs::rename(&self.temporary, path),
            outcome => outcome,
        };
        match renamed {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                return unusable(format!("{text} exists by now; --force replaces it"));
            }
            Err(errno) => return Err(failed("rename the result to", &text, errno)),
        }
        let folder = folder_of(path);
        if let Ok(folder) = fs::open(&folder, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            // Some file systems cannot sync folders; the file itself is durable.
            let _ = fs::fsync(folder);
        }
        Ok(())
    }
}

/// A name beside a path that nothing else has.
pub(crate) fn temporary_name(path: &Path) -> Result<PathBuf> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let Some(name) = path.file_name() else {
        return unusable(format!("{} is no name of a file", path.display()));
    };
    let process = std::process::id();
    let hidden = format!(".{}.{process}-{number}.part", name.to_string_lossy());
    // Names have at most 255 bytes.
    let short = format!(".esker-permute.{process}-{number}.part");
    Ok(path.with_file_name(if hidden.len() > 255 { short } else { hidden }))
}

impl Drop for Target {
    fn drop(&mut self) {
        // After the rename there is nothing under this name.
        let _ = fs::unlink(&self.temporary);
    }
}

/// The folder that a path lies in.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above.to_owned(),
        _ => PathBuf::from("."),
    }
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
        Ok(_) => unusable(format!("{text} exists; --force replaces it")),
    }
}
