//! One open file: past the page cache where the request allows it, otherwise through it.
//!
//! A file opened for direct I/O has two descriptors of the same inode. User reads of a file with
//! [`Caching::Selective`] go to the buffered one. Other requests whose offset and length are
//! aligned go to the direct one, through a bounce buffer if the caller's memory is not aligned, or
//! if a read needs part of a block. Writes of part of a block go through the page cache: direct I/O
//! would have to read the block first, and two such writes at the same time would undo each other.
//! Value writes to a file with [`Caching::Selective`] go through the page cache too, and the device
//! begins to write them immediately: a caller does not wait for one request before it makes the
//! next.
//!
//! The two descriptors agree because Linux keeps them coherent: a direct read first writes back the
//! dirty pages in its range, and a direct write writes back and drops the pages in its range,
//! before and after. So a request sees everything that was written before it began, by either
//! descriptor. Overlapping requests at the same time have no order, as on any file.

use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::fs::{self, Advice, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags, preadv2, retry_on_intr};

use super::Access;
use super::behind::Behind;
use crate::buffer::{ALIGNMENT_BYTES, AlignedBuf};
use crate::transfer::{Alignment, read_full, write_full};
use crate::{Caching, DeviceError, Open, Operation, Purpose, Result, name};

/// The largest size of a bounce buffer, in bytes: enough to keep a device busy.
const BOUNCE_BYTES: usize = 256 << 10;

/// The number of zeros in one write where a file system cannot reserve space.
const ZEROS_BYTES: usize = 256 << 10;

/// One open file.
#[derive(Debug)]
pub(super) struct Handle {
    path: String,
    buffered: OwnedFd,
    direct: Option<Direct>,
    caching: Caching,
    /// The last writes of values.
    behind: Mutex<Behind>,
}

/// The descriptor for direct I/O.
///
/// Invariant: our buffers meet the alignment ([`Alignment::is_usable`]).
#[derive(Debug)]
struct Direct {
    fd: OwnedFd,
    align: Alignment,
}

/// The end of a range, where the system can address it.
pub(super) fn end_of(offset: u64, len: u64) -> Option<u64> {
    offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok())
}

impl Handle {
    /// Opens the regular file `name` in `folder`, to read it or to write it as well.
    pub(super) fn open(
        folder: &OwnedFd,
        name: &str,
        (open, access): (Open, Access),
        caching: Caching,
        path: String,
    ) -> Result<Self> {
        let failed =
            |source: io::Error| DeviceError::new(Operation::Open, path.as_str(), 0, source);
        // A name may lead to a pipe or a device that blocks when opened; it is refused below.
        let access = if access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
        let common =
            access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
        let flags = match open {
            Open::Existing => common,
            Open::CreateNew => common | OFlags::CREATE | OFlags::EXCL,
        };
        let mode = Mode::RUSR | Mode::WUSR;
        let buffered = retry_on_intr(|| fs::openat(folder, name, flags, mode));
        let buffered = buffered.map_err(|errno| failed(errno.into()))?;
        let stat = fs::fstat(&buffered).map_err(|errno| failed(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let why = "it is not a regular file";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let direct = match caching {
            Caching::Buffered => None,
            Caching::Direct | Caching::Selective => {
                let again = || fs::openat(folder, name, common | OFlags::DIRECT, Mode::empty());
                match retry_on_intr(again) {
                    Ok(fd) => {
                        let other = fs::fstat(&fd).map_err(|errno| failed(errno.into()))?;
                        if (other.st_dev, other.st_ino) != (stat.st_dev, stat.st_ino) {
                            let why = "it was replaced while it was being opened";
                            return Err(failed(io::Error::other(why)));
                        }
                        Direct::new(fd)
                    }
                    // The file system has no direct I/O (tmpfs before Linux 6.6, some others).
                    Err(Errno::INVAL | Errno::NOTSUP) => None,
                    Err(errno) => return Err(failed(errno.into())),
                }
            }
        };
        if direct.is_some() {
            // Read-ahead of neighbouring pages is useless, and those may be being written.
            let _advice = fs::fadvise(&buffered, 0, None, Advice::Random);
        }
        Ok(Self { path, buffered, direct, caching, behind: Mutex::default() })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Fails unless this is the file that is open as `like`.
    pub(super) fn check_same(&self, like: impl AsFd) -> Result<()> {
        let place = |fd: BorrowedFd<'_>| fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
        let failed = |errno| self.failed(Operation::Open, 0)(errno);
        let (ours, other) = (place(self.buffered.as_fd()), place(like.as_fd()));
        if ours.map_err(failed)? == other.map_err(failed)? { Ok(()) } else { self.replaced() }
    }

    fn replaced(&self) -> Result<()> {
        let why = io::Error::other("it was replaced while it was being opened");
        Err(DeviceError::new(Operation::Open, self.path.as_str(), 0, why))
    }

    /// The descriptor for reads past the page cache, if these are.
    fn direct_for(&self, purpose: Purpose) -> Option<&Direct> {
        let cached = self.caching == Caching::Selective && purpose == Purpose::User;
        self.direct.as_ref().filter(|_| !cached)
    }

    /// Whether reads for this purpose pass the page cache.
    pub(super) fn is_direct_for(&self, purpose: Purpose) -> bool {
        self.direct_for(purpose).is_some()
    }

    fn failed(&self, operation: Operation, offset: u64) -> impl FnOnce(Errno) -> DeviceError {
        move |errno| DeviceError::new(operation, self.path.as_str(), offset, errno)
    }

    pub(super) fn len(&self) -> Result<u64> {
        let stat = fs::fstat(&self.buffered).map_err(self.failed(Operation::Open, 0))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    /// Fills `buf` from `offset`.
    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        let read = match end_of(offset, buf.len() as u64) {
            Some(_) => {
                let read = self.read_up_to(offset, buf, purpose);
                read.map_err(self.failed(Operation::Read, offset))?
            }
            None => 0,
        };
        if read < buf.len() {
            return Err(name::past_end(&self.path, offset, buf.len(), self.len()?));
        }
        Ok(())
    }

    /// Fills `buf` from `offset` up to the end of the file; returns how much was there.
    fn read_up_to(
        &self,
        offset: u64,
        buf: &mut [u8],
        purpose: Purpose,
    ) -> rustix::io::Result<usize> {
        if let Some(direct) = self.direct_for(purpose) {
            match direct.read_up_to(offset, buf) {
                // Opening with O_DIRECT may succeed where using it does not.
                Err(Errno::INVAL) => {}
                outcome => return outcome,
            }
        }
        read_full(self.buffered.as_fd(), offset, buf, 1)
    }

    /// Has the page cache begin to read a range, where reads for this purpose go through it.
    pub(super) fn announce(&self, offset: u64, len: u64, purpose: Purpose) {
        if !self.is_direct_for(purpose) {
            let _advice = fs::fadvise(&self.buffered, offset, NonZero::new(len), Advice::WillNeed);
        }
    }

    /// Fills `buf` if all of it is in the page cache; whether it was.
    pub(super) fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let wanted = buf.len();
        let mut slices = [io::IoSliceMut::new(buf)];
        let flags = ReadWriteFlags::NOWAIT;
        matches!(preadv2(&self.buffered, &mut slices, offset, flags), Ok(read) if read == wanted)
    }

    /// Writes all of `buf`; the end must be one that [`end_of`] gives.
    pub(super) fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        if self.caching == Caching::Selective && purpose == Purpose::Value {
            return self.write_and_forget(offset, buf);
        }
        let mut written = 0;
        if let Some(direct) = &self.direct {
            match direct.write(offset, buf) {
                Ok(landed) => written = landed,
                Err(Errno::INVAL) => {}
                Err(errno) => return Err(self.failed(Operation::Write, offset)(errno)),
            }
        }
        self.write_buffered(offset + written as u64, &buf[written..])
    }

    /// Writes through the page cache, has the device begin with it, and drops what it has written
    /// of earlier writes. Both by the advice that a range is not needed: the system begins to write
    /// what is not written of it, does not wait (as `sync_file_range` does for what is being
    /// written already), and drops what is.
    fn write_and_forget(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write_buffered(offset, buf)?;
        let range = offset..offset + buf.len() as u64;
        let passed = self.behind.lock().note(range.clone());
        for range in passed.chain([range]) {
            let len = NonZero::new(range.end - range.start);
            let _advice = fs::fadvise(&self.buffered, range.start, len, Advice::DontNeed);
        }
        Ok(())
    }

    fn write_buffered(&self, offset: u64, buf: &[u8]) -> Result<()> {
        let written = write_full(self.buffered.as_fd(), offset, buf);
        let written = written.map_err(self.failed(Operation::Write, offset))?;
        if written < buf.len() {
            let why = "the system wrote nothing and gave no reason";
            let source = io::Error::new(io::ErrorKind::WriteZero, why);
            return Err(DeviceError::new(Operation::Write, self.path.as_str(), offset, source));
        }
        Ok(())
    }

    /// Makes contents and length durable. `fdatasync` leaves out only what is not needed to read
    /// the data back (times); the length and the extents are included. It serves both descriptors,
    /// because it syncs the inode.
    pub(super) fn sync(&self) -> Result<()> {
        // Not repeated when interrupted: a sync that failed says nothing when repeated.
        fs::fdatasync(&self.buffered).map_err(self.failed(Operation::Sync, 0))
    }

    /// Reserves space up to `len`.
    pub(super) fn preallocate(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let reserve = || fs::fallocate(&self.buffered, FallocateFlags::empty(), 0, len);
        match retry_on_intr(reserve) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(len),
            Err(errno) => Err(self.failed(Operation::Resize, len)(errno)),
        }
    }

    /// Takes space for a range. What a file system has taken of it before it ran out, behind the
    /// end, is given back.
    pub(super) fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let old_len = self.len()?;
        let reserve = || fs::fallocate(&self.buffered, FallocateFlags::empty(), offset, len);
        let result = match retry_on_intr(reserve) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(offset + len),
            Err(errno) => Err(self.failed(Operation::Resize, offset)(errno)),
        };
        if result.is_err() {
            self.truncate(old_len)?;
        }
        result
    }

    /// Extends the file to `len` with zeros that take space.
    pub(super) fn write_zeros(&self, len: u64) -> Result<()> {
        let mut at = self.len()?;
        let zeros = vec![0; ZEROS_BYTES];
        while at < len {
            let count = usize::try_from(len - at).unwrap_or(usize::MAX).min(zeros.len());
            self.write_buffered(at, &zeros[..count])?;
            at += count as u64;
        }
        Ok(())
    }

    /// Cuts the file to `len`, where it is longer.
    pub(super) fn truncate(&self, len: u64) -> Result<()> {
        if len >= self.len()? {
            return Ok(());
        }
        retry_on_intr(|| fs::ftruncate(&self.buffered, len))
            .map_err(self.failed(Operation::Resize, len))
    }

    /// Gives the space of a range back, where the file system can.
    pub(super) fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len).min(self.len()?);
        if offset >= end {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| fs::fallocate(&self.buffered, flags, offset, end - offset)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.failed(Operation::Resize, offset)(errno)),
        }
    }
}

impl Direct {
    /// `None` where the device wants more alignment than our buffers have.
    fn new(fd: OwnedFd) -> Option<Self> {
        let align = Alignment::of(&fd);
        align.is_usable().then_some(Self { fd, align })
    }

    fn is_aligned(&self, offset: u64, buf: &[u8]) -> bool {
        offset.is_multiple_of(self.align.offset as u64)
            && buf.len().is_multiple_of(self.align.offset)
            && buf.as_ptr().addr().is_multiple_of(self.align.memory)
    }

    fn read_up_to(&self, offset: u64, buf: &mut [u8]) -> rustix::io::Result<usize> {
        if self.is_aligned(offset, buf) {
            return read_full(self.fd.as_fd(), offset, buf, self.align.offset);
        }
        let align = self.align.offset as u64;
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset + filled as u64;
            // Below the alignment.
            let skip = usize::try_from(at % align).unwrap_or(0);
            let wanted = (buf.len() - filled + skip).min(BOUNCE_BYTES);
            let mut bounce = AlignedBuf::zeroed(wanted.next_multiple_of(self.align.offset));
            let start = at - skip as u64;
            let read = read_full(self.fd.as_fd(), start, &mut bounce, self.align.offset)?;
            let got = read.min(wanted).saturating_sub(skip);
            buf[filled..filled + got].copy_from_slice(&bounce[skip..skip + got]);
            filled += got;
            if read < wanted {
                break;
            }
        }
        Ok(filled)
    }

    /// Writes what can be written past the page cache, from the front: whole blocks, or nothing.
    /// What remains is for the page cache.
    fn write(&self, offset: u64, buf: &[u8]) -> rustix::io::Result<usize> {
        // Whole blocks of 4 KiB, regardless of what the device accepts: a file system that must add
        // the rest of its own block does so under a lock that stops other direct writes.
        let block = ALIGNMENT_BYTES as u64;
        if !offset.is_multiple_of(block) || !(buf.len() as u64).is_multiple_of(block) {
            return Ok(0);
        }
        if buf.as_ptr().addr().is_multiple_of(self.align.memory) {
            return write_full(self.fd.as_fd(), offset, buf);
        }
        let mut written = 0;
        let mut bounce = AlignedBuf::zeroed(buf.len().min(BOUNCE_BYTES));
        for piece in buf.chunks(BOUNCE_BYTES) {
            let copy = &mut bounce[..piece.len()];
            copy.copy_from_slice(piece);
            let landed = write_full(self.fd.as_fd(), offset + written as u64, copy)?;
            written += landed;
            if landed < piece.len() {
                break;
            }
        }
        Ok(written)
    }
}
