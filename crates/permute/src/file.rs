//! Files, past the page cache where the file system allows it.
//!
//! Every offset and length given to [`Source::read`] and [`Sink::write_blocks`] is a multiple of
//! [`BLOCK`], and so is the address of the buffer. Parts of blocks go through the page cache; the
//! two agree, because Linux writes back and drops what a direct request covers.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use esker_device::transfer::{Alignment, read_full, write_full};
use rustix::fs::{self, Advice, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::error::{Error, Result};

/// The unit of offsets, lengths and addresses of direct I/O, in bytes.
pub const BLOCK: usize = 4096;

/// Those that the process's mask leaves of reading and writing.
const PERMISSIONS: Mode = Mode::from_raw_mode(0o666);

/// A source of bytes. All methods may be called from several threads at the same time.
pub trait Source: Sync {
    /// Fills `buf` from `offset`, as far as there are bytes; answers how many.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    /// The unit of offsets, lengths and addresses of reads, which must be multiples of it: a power
    /// of two, at most [`BLOCK`].
    fn alignment(&self) -> usize;
}

/// A target of bytes. All methods may be called from several threads at the same time, for
/// different ranges.
pub trait Sink: Sync {
    /// Writes whole blocks.
    fn write_blocks(&self, offset: u64, buf: &[u8]) -> Result<()>;
    /// The unit of addresses of whole blocks, which must be multiples of it: a power of two, at
    /// most [`BLOCK`].
    fn alignment(&self) -> usize {
        BLOCK
    }
    /// Writes part of a block.
    fn write_part(&self, offset: u64, buf: &[u8]) -> Result<()>;
    /// Whether blocks are written whole, and their parts kept until they are; else everything is
    /// written as it comes, with [`Sink::write_part`].
    fn is_blocked(&self) -> bool {
        true
    }
    /// The largest number of bytes of a request from `offset` on. They end where a block does, so
    /// that only the ends of a run share blocks, and are about `most`, which is many blocks.
    fn stretch(&self, offset: u64, most: usize) -> usize {
        most - usize::try_from(offset % BLOCK as u64).unwrap_or(0)
    }
}

/// An open file, with a second descriptor for direct I/O where there is such.
#[derive(Debug)]
pub struct File {
    path: String,
    buffered: OwnedFd,
    /// For direct I/O, with what offsets, lengths and addresses must be multiples of.
    direct: Option<(OwnedFd, usize)>,
    len: u64,
}

impl File {
    /// Opens a regular file for reading. Follows links, as `cp` does.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let failed = |errno: Errno| failed("open", &name, errno);
        // A pipe would block when opened; it is refused below.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let buffered = retry_on_intr(|| fs::open(path, flags, Mode::empty())).map_err(failed)?;
        let stat = fs::fstat(&buffered).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let text = format!("{name} is not a regular file; write it to one first");
            return Err(Error::File(text.into()));
        }
        let direct = open_direct(path, flags, &stat);
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { path: name, buffered, direct, len })
    }

    /// Creates a file that must not exist, for writing and reading.
    pub fn create(path: &Path) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let buffered = retry_on_intr(|| fs::open(path, flags, PERMISSIONS))
            .map_err(|errno| failed("create", &name, errno))?;
        let stat = fs::fstat(&buffered).map_err(|errno| failed("look at", &name, errno))?;
        let direct = open_direct(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW, &stat);
        Ok(Self { path: name, buffered, direct, len: 0 })
    }

    /// Creates a file in a folder, without a name, for writing and reading; `None` where the file
    /// system has no such files, or where one could not be given a name later.
    pub(crate) fn unnamed(folder: &Path) -> Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let name = folder.display().to_string();
        let buffered = match retry_on_intr(|| fs::open(folder, flags, PERMISSIONS)) {
            Ok(file) => file,
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => return Ok(None),
            Err(errno) => return Err(failed("create a file in", &name, errno)),
        };
        let stat = fs::fstat(&buffered).map_err(|errno| failed("look at", &name, errno))?;
        let by_number = by_number(&buffered);
        // Without /proc there is no way back to it.
        let Ok(found) = fs::stat(&by_number) else { return Ok(None) };
        if (found.st_dev, found.st_ino) != (stat.st_dev, stat.st_ino) {
            return Ok(None);
        }
        let direct = open_direct(&by_number, OFlags::RDWR | OFlags::CLOEXEC, &stat);
        let path = format!("the result in {name}");
        Ok(Some(Self { path, buffered, direct, len: 0 }))
    }

    /// Gives a file without a name one, which nothing may have.
    pub(crate) fn link(&self, path: &Path) -> rustix::io::Result<()> {
        let from = by_number(&self.buffered);
        fs::linkat(CWD, &from, CWD, path, AtFlags::SYMLINK_FOLLOW)
    }

    /// Another descriptor of it.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd> {
        self.buffered.try_clone().map_err(|error| failed("keep open", &self.path, error))
    }

    /// The length of the file when it was opened, in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it was empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The identity of the file: device and inode.
    pub fn identity(&self) -> Result<(u64, u64)> {
        let stat = fs::fstat(&self.buffered).map_err(|e| failed("look at", &self.path, e))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Makes the file `len` bytes long and reserves its space where the file system can; a
    /// device without that much space is found here.
    pub fn reserve(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let reserve = || fs::fallocate(&self.buffered, FallocateFlags::empty(), 0, len);
        match retry_on_intr(reserve) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => fs::ftruncate(&self.buffered, len)
                .map_err(|errno| failed("make room in", &self.path, errno)),
            Err(errno) => Err(failed("make room in", &self.path, errno)),
        }
    }

    /// Makes contents and length durable.
    pub fn sync(&self) -> Result<()> {
        fs::fdatasync(&self.buffered).map_err(|errno| failed("sync", &self.path, errno))
    }

    /// Lets the page cache forget what was read of it.
    pub fn forget(&self) {
        let _advice = fs::fadvise(&self.buffered, 0, None, Advice::DontNeed);
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }
}

/// The path of an open file, whatever its name.
fn by_number(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Source for File {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some((direct, align)) = &self.direct {
            match read_full(direct.as_fd(), offset, buf, *align) {
                // Opening with O_DIRECT may succeed where using it does not.
                Err(Errno::INVAL) => {}
                outcome => return outcome.map_err(|errno| failed("read", &self.path, errno)),
            }
        }
        let read = read_full(self.buffered.as_fd(), offset, buf, 1);
        read.map_err(|errno| failed("read", &self.path, errno))
    }

    fn alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, |(_, align)| *align)
    }
}

impl Sink for File {
    fn write_blocks(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let mut written = 0;
        if let Some((direct, _)) = &self.direct {
            match write_full(direct.as_fd(), offset, buf) {
                Ok(landed) => written = landed,
                Err(Errno::INVAL) => {}
                Err(errno) => return Err(failed("write", &self.path, errno)),
            }
        }
        self.write_part(offset + written as u64, &buf[written..])
    }

    fn alignment(&self) -> usize {
        Source::alignment(self)
    }

    fn write_part(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let written = write_full(self.buffered.as_fd(), offset, buf)
            .map_err(|errno| failed("write", &self.path, errno))?;
        if written < buf.len() {
            let source = io::Error::from(io::ErrorKind::WriteZero);
            return Err(Error::System { what: "write", path: self.path.clone(), source });
        }
        Ok(())
    }
}

/// A second descriptor of the same file, for direct I/O, if there is such; with what offsets,
/// lengths and addresses must be multiples of.
fn open_direct(path: &Path, flags: OFlags, stat: &fs::Stat) -> Option<(OwnedFd, usize)> {
    let fd = fs::open(path, flags | OFlags::DIRECT, Mode::empty()).ok()?;
    let other = fs::fstat(&fd).ok()?;
    let align = Alignment::of(&fd);
    let same = (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino);
    (same && align.is_usable()).then_some((fd, align.offset.max(align.memory)))
}

pub(crate) fn failed(what: &'static str, path: &str, source: impl Into<io::Error>) -> Error {
    Error::System { what, path: path.to_owned(), source: source.into() }
}
