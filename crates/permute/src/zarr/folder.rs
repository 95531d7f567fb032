//! The folder of an array: one that is there, or one that is made under a temporary name until it
//! is complete.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::metadata::{Array, V2_ATTRIBUTES, V2_NAME, V3_NAME};
use crate::error::{Error, Result, unusable};
use crate::file::failed;
use crate::target::{Hidden, exists, folder_of};

/// The longest metadata that is read, in bytes; attributes are part of it.
const METADATA_MAX: u64 = 16 << 20;

/// The text of a file, of at most this many bytes; `None` if it does not exist.
pub(super) fn text(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let refused = |source: std::io::Error| Error::System {
        what: "read",
        path: path.display().to_string(),
        source,
    };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(refused(error)),
    };
    if !file.metadata().map_err(refused)?.is_file() {
        return unusable(format!("{} is not a regular file", path.display()));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > most {
        return unusable(format!("{} is longer than {} MiB", path.display(), most >> 20));
    }
    Ok(Some(bytes))
}

/// Reads the metadata of the array in a folder.
pub fn open(folder: &Path) -> Result<Array> {
    let at = |path: PathBuf, parsed: Result<Array>| parsed.map_err(|error| error.in_file(&path));
    let path = folder.join(V3_NAME);
    if let Some(bytes) = text(&path, METADATA_MAX)? {
        return at(path, Array::parse_v3(&bytes));
    }
    let path = folder.join(V2_NAME);
    if let Some(bytes) = text(&path, METADATA_MAX)? {
        let attributes = text(&folder.join(V2_ATTRIBUTES), METADATA_MAX)?;
        return at(path, Array::parse_v2(&bytes, attributes.as_deref()));
    }
    let folder_name = folder.display();
    if folder.join(".zgroup").exists() {
        return unusable(format!("{folder_name} is a Zarr group: name one of its arrays"));
    }
    unusable(format!(
        "{folder_name} is a folder, but no Zarr array: it has no {V3_NAME} or {V2_NAME}"
    ))
}

/// Whether the path may be written: nothing is there, or an array that may be replaced.
pub fn check_free(path: &Path, force: bool, input: &Path) -> Result<()> {
    let name = path.display();
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    let same = |other: &Path| fs::canonicalize(other).ok() == fs::canonicalize(path).ok();
    if same(input) {
        return unusable(format!("{name} is the input itself; write to another name"));
    }
    let is_array = there.is_dir() && (path.join(V3_NAME).exists() || path.join(V2_NAME).exists());
    if !is_array || open(path).is_err() {
        return unusable(format!("{name} exists and is no Zarr array; write to another name"));
    }
    if fs::canonicalize(input)
        .is_ok_and(|input| fs::canonicalize(path).is_ok_and(|path| input.starts_with(path)))
    {
        return unusable(format!("{name} holds the input; write to another name"));
    }
    if force { Ok(()) } else { Err(exists(path, "exists")) }
}

/// A folder next to its final path; removed with all it holds when dropped before
/// [`FolderTarget::commit`]. One that a killed process left is removed by the next that makes the
/// same array.
#[derive(Debug)]
pub struct FolderTarget {
    temporary: PathBuf,
    /// Held as long as the process lives: says that the folder is not left over.
    _lock: OwnedFd,
}

impl FolderTarget {
    /// Creates a folder next to `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let hidden = Hidden::of(path)?;
        hidden.sweep();
        let (temporary, lock) = hidden.make(|temporary| {
            fs::create_dir(temporary).map_err(|source| {
                let path = temporary.display().to_string();
                Error::System { what: "create the folder", path, source }
            })?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            rustix::fs::open(temporary, flags, Mode::empty())
                .map_err(|errno| failed("open", &temporary.display().to_string(), errno))
        })?;
        Ok(Self { temporary, _lock: lock })
    }

    /// The folder that chunks are written to.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Writes the metadata, makes everything durable and gives the folder its name; an array that
    /// is there is replaced only if `force`.
    pub fn commit(self, array: &Array, path: &Path, force: bool) -> Result<()> {
        for (name, text) in array.encode()? {
            let file = self.temporary.join(name);
            let written =
                fs::File::create_new(&file).and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|source| Error::System {
                what: "write",
                path: file.display().to_string(),
                source,
            })?;
        }
        self.sync()?;
        let renamed = match renameat_with(CWD, &self.temporary, CWD, path, RenameFlags::NOREPLACE) {
            // What was there takes the temporary name, under which it is removed.
            Err(Errno::EXIST) if force => {
                renameat_with(CWD, &self.temporary, CWD, path, RenameFlags::EXCHANGE)
            }
            // Some file systems cannot refuse to replace; a folder that holds something never is.
            Err(Errno::INVAL) => rustix::fs::rename(&self.temporary, path),
            outcome => outcome,
        };
        let name = path.display().to_string();
        match renamed {
            Ok(()) => {}
            Err(Errno::EXIST | Errno::NOTEMPTY) => {
                return Err(exists(path, "exists by now"));
            }
            Err(errno) => return Err(failed("rename the result to", &name, errno)),
        }
        let above =
            rustix::fs::open(folder_of(path), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        if let Ok(above) = above {
            // Some file systems cannot sync folders; the files themselves are durable.
            let _ = rustix::fs::fsync(above);
        }
        Ok(())
    }

    /// Makes files and names durable: all of the file system's, because a call for each of
    /// thousands of files costs more than what others wait to have written.
    fn sync(&self) -> Result<()> {
        let name = self.temporary.display().to_string();
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let folder = rustix::fs::open(&self.temporary, flags, Mode::empty());
        let synced = folder.and_then(rustix::fs::syncfs);
        synced.map_err(|errno| failed("sync", &name, errno))
    }
}

impl Drop for FolderTarget {
    fn drop(&mut self) {
        // After the rename there is nothing under this name, or what was replaced.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}
