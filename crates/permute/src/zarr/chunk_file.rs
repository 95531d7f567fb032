//! The file of one chunk. There are thousands, so that each is opened once where that is enough:
//! for direct I/O if what is read or written are whole blocks, else for the page cache; a second
//! descriptor comes when it is needed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use esker_device::transfer::{read_full, write_full};
use rustix::fs::{self, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::error::{Error, Result};
use crate::file::{BLOCK, failed};

/// The unit of offsets, lengths and addresses of direct reads on most devices; where a device wants
/// more, the page cache is asked.
pub(super) const SECTOR: usize = 512;

/// The purpose for which a file of a chunk is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// To be read.
    Read,
    /// To be created, and then written.
    Create,
    /// To be written; it was created before.
    Edit,
}

impl Access {
    fn flags(self) -> OFlags {
        let common = OFlags::CLOEXEC | OFlags::NOCTTY;
        match self {
            // A pipe would block when opened; reading by position then fails.
            Self::Read => common | OFlags::RDONLY | OFlags::NONBLOCK,
            Self::Create => common | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            Self::Edit => common | OFlags::RDWR | OFlags::NOFOLLOW,
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct ChunkFile {
    path: PathBuf,
    access: Access,
    direct: Option<OwnedFd>,
    buffered: OnceLock<OwnedFd>,
}

impl ChunkFile {
    /// Opens a file; for direct I/O if `is_direct` and the file system has it.
    pub(super) fn open(path: PathBuf, access: Access, is_direct: bool) -> Result<Self> {
        let mut access = access;
        if is_direct {
            match open(&path, access.flags() | OFlags::DIRECT) {
                Ok(fd) => {
                    let later = if access == Access::Create { Access::Edit } else { access };
                    let buffered = OnceLock::new();
                    return Ok(Self { path, access: later, direct: Some(fd), buffered });
                }
                // Some file systems create the file before they refuse.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                    if access == Access::Create && path.exists() {
                        access = Access::Edit;
                    }
                }
                Err(errno) => return Err(refused(access, &path, errno)),
            }
        }
        let fd = open(&path, access.flags()).map_err(|errno| refused(access, &path, errno))?;
        let later = if access == Access::Create { Access::Edit } else { access };
        Ok(Self { path, access: later, direct: None, buffered: OnceLock::from(fd) })
    }

    fn buffered(&self) -> Result<&OwnedFd> {
        if let Some(fd) = self.buffered.get() {
            return Ok(fd);
        }
        let opened = open(&self.path, self.access.flags());
        let fd = opened.map_err(|errno| refused(self.access, &self.path, errno))?;
        Ok(self.buffered.get_or_init(|| fd))
    }

    /// Fills `buf` from `offset`, as far as there are bytes; answers how many.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let failed = |errno: Errno| failed("read", &self.path.to_string_lossy(), errno);
        if let Some(direct) = self.direct.as_ref().filter(|_| is_aligned(offset, buf, SECTOR)) {
            match read_full(direct.as_fd(), offset, buf, SECTOR) {
                // What the device wants is coarser.
                Err(Errno::INVAL) => {}
                outcome => return outcome.map_err(failed),
            }
        }
        read_full(self.buffered()?.as_fd(), offset, buf, 1).map_err(failed)
    }

    /// Writes, past the page cache where blocks are whole.
    pub(super) fn write(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let name = self.path.to_string_lossy();
        let mut written = 0;
        if let Some(direct) = self.direct.as_ref().filter(|_| is_aligned(offset, buf, BLOCK)) {
            match write_full(direct.as_fd(), offset, buf) {
                Ok(landed) => written = landed,
                Err(Errno::INVAL) => {}
                Err(errno) => return Err(failed("write", &name, errno)),
            }
        }
        if written < buf.len() {
            let offset = offset + written as u64;
            written += write_full(self.buffered()?.as_fd(), offset, &buf[written..])
                .map_err(|errno| failed("write", &name, errno))?;
        }
        if written < buf.len() {
            let source = io::Error::from(io::ErrorKind::WriteZero);
            return Err(Error::System { what: "write", path: name.into_owned(), source });
        }
        Ok(())
    }

    /// Makes the file `len` bytes long and reserves its space where the file system can.
    pub(super) fn reserve(&self, len: u64) -> Result<()> {
        let fd = match &self.direct {
            Some(fd) => fd,
            None => self.buffered()?,
        };
        let reserved = match retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), 0, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fs::ftruncate(fd, len),
            outcome => outcome,
        };
        reserved.map_err(|errno| failed("make room in", &self.path.to_string_lossy(), errno))
    }

    /// The length of the file, in bytes.
    pub(super) fn len(&self) -> Result<u64> {
        let stat = fs::fstat(self.buffered()?);
        let stat = stat.map_err(|e| failed("look at", &self.path.to_string_lossy(), e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }
}

fn is_aligned(offset: u64, buf: &[u8], to: usize) -> bool {
    offset.is_multiple_of(to as u64)
        && buf.len().is_multiple_of(to)
        && buf.as_ptr().addr().is_multiple_of(to)
}

fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    retry_on_intr(|| fs::open(path, flags, mode))
}

fn refused(access: Access, path: &Path, errno: Errno) -> Error {
    let what = if access == Access::Create { "create" } else { "open" };
    failed(what, &path.to_string_lossy(), errno)
}
