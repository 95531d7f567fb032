//! Whole transfers by position, which repeat `pread` or `pwrite` for the part that one call leaves
//! undone; and the requirements of direct I/O on a file.
//!
//! For files that a [`Device`](crate::Device) does not own. Errors are the system's, because only
//! the caller knows the path, and whether a refusal means that another descriptor will do.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, StatxFlags};
use rustix::io::{pread, pwrite, retry_on_intr};

use crate::buffer::ALIGNMENT_BYTES;

/// The multiples that direct I/O on a file requires, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Addresses.
    pub memory: usize,
    /// Offsets and lengths.
    pub offset: usize,
}

impl Alignment {
    /// The values of `statx` for an open file; [`ALIGNMENT_BYTES`] for both where it has none.
    #[must_use]
    pub fn of(fd: impl AsFd) -> Self {
        let unknown = Self { memory: ALIGNMENT_BYTES, offset: ALIGNMENT_BYTES };
        let Ok(stat) = fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
            return unknown;
        };
        let has_answer = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
        match (stat.stx_dio_mem_align, stat.stx_dio_offset_align) {
            (1.., 1..) if has_answer => Self {
                memory: stat.stx_dio_mem_align as usize,
                offset: stat.stx_dio_offset_align as usize,
            },
            _ => unknown,
        }
    }

    /// Whether an [`AlignedBuf`](crate::AlignedBuf) satisfies it: powers of two, at most
    /// [`ALIGNMENT_BYTES`].
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.memory.is_power_of_two()
            && self.offset.is_power_of_two()
            && self.memory <= ALIGNMENT_BYTES
            && self.offset <= ALIGNMENT_BYTES
    }
}

/// Reads until `buf` is full or the file ends; returns how much was read. A count that is not a
/// multiple of `align` is the end: from there a direct descriptor would not read on.
pub fn read_full(
    fd: BorrowedFd<'_>,
    offset: u64,
    buf: &mut [u8],
    align: usize,
) -> rustix::io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        let at = offset + filled as u64;
        let read = retry_on_intr(|| pread(fd, &mut buf[filled..], at))?;
        filled += read;
        if read == 0 || !filled.is_multiple_of(align) {
            break;
        }
    }
    Ok(filled)
}

/// Writes until all is written, an error occurs, or no progress is made; returns how much was
/// written.
pub fn write_full(fd: BorrowedFd<'_>, offset: u64, buf: &[u8]) -> rustix::io::Result<usize> {
    let mut written = 0;
    while written < buf.len() {
        match retry_on_intr(|| pwrite(fd, &buf[written..], offset + written as u64))? {
            0 => break,
            landed => written += landed,
        }
    }
    Ok(written)
}
