//! Memory that direct I/O accepts.
#![expect(unsafe_code, reason = "an aligned allocation has no safe constructor")]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, madvise};

/// The alignment of every [`AlignedBuf`] in bytes: enough for direct I/O on every device in use.
pub const ALIGNMENT_BYTES: usize = 4096;

/// The size and alignment of the pages that [`AlignedBuf::in_huge_pages`] asks for, in bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes on the heap whose address is a multiple of [`ALIGNMENT_BYTES`].
///
/// Invariants: `address` points to `layout(len, align)` bytes allocated here and initialised, or
/// `len` is zero and nothing is allocated. No other value has the address.
pub struct AlignedBuf {
    address: NonNull<u8>,
    len: usize,
    align: usize,
}

// SAFETY: the buffer owns its memory as a `Vec<u8>` does; nothing is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared references only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `len` zero bytes. Ends the process when there is no memory, as `Vec` does.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let align = ALIGNMENT_BYTES;
        let layout = layout_or_end(len, align);
        if len == 0 {
            return Self { address: dangling(), len, align };
        }
        // SAFETY: the size of `layout` is not zero because `len` is not.
        let raw = unsafe { alloc_zeroed(layout) };
        match NonNull::new(raw) {
            Some(address) => Self { address, len, align },
            None => handle_alloc_error(layout),
        }
    }

    /// A buffer of `len` zero bytes in pages of 2 MiB, where the system provides them; the last
    /// page may be used in part. Such memory is contiguous, so that a direct request of a megabyte
    /// is one piece for the device instead of 256, and copies with large strides miss the page
    /// table seldom.
    #[must_use]
    pub fn in_huge_pages(len: usize) -> Self {
        if len < HUGE_PAGE_BYTES {
            return Self::zeroed(len);
        }
        let align = HUGE_PAGE_BYTES;
        let layout = layout_or_end(len, align);
        // SAFETY: the size of `layout` is not zero because `len` is not.
        let raw = unsafe { alloc(layout) };
        let Some(address) = NonNull::new(raw) else { handle_alloc_error(layout) };
        // SAFETY: the range is within one allocation of this function; the advice changes no
        // contents. Where it is refused, pages are small. Given before the first byte is touched.
        let _advice = unsafe { madvise(raw.cast(), len, Advice::LinuxHugepage) };
        // SAFETY: the allocation has `len` bytes, and no other code has the address.
        unsafe { raw.write_bytes(0, len) };
        Self { address, len, align }
    }

    /// A copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

/// The allocation of a buffer of `len` bytes; `None` past the address space.
fn layout(len: usize, align: usize) -> Option<Layout> {
    Layout::from_size_align(len, align).ok()
}

/// As [`layout`]; more than the address space is as impossible as an allocation that fails.
fn layout_or_end(len: usize, align: usize) -> Layout {
    match layout(len, align) {
        Some(layout) => layout,
        None => handle_alloc_error(Layout::new::<[u8; ALIGNMENT_BYTES]>()),
    }
}

/// An aligned address for buffers without memory.
fn dangling() -> NonNull<u8> {
    let address = ptr::without_provenance_mut(ALIGNMENT_BYTES);
    NonNull::new(address).unwrap_or(NonNull::dangling())
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let (1.., Some(layout)) = (self.len, layout(self.len, self.align)) {
            // SAFETY: a constructor allocated the address with this layout; nothing else frees it.
            unsafe { dealloc(self.address.as_ptr(), layout) };
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `address` points to `len` initialised bytes that live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the reference unique.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Contents may be secret and are long.
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for len in [0, 1, 512, 4096, 4097, 1 << 20] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_ptr().addr() % ALIGNMENT_BYTES, 0, "{len}");
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert!(buf.clone().iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn huge_pages_are_aligned_and_zero() {
        for len in [0, 4096, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 77] {
            let mut buf = AlignedBuf::in_huge_pages(len);
            let align = if len < HUGE_PAGE_BYTES { ALIGNMENT_BYTES } else { HUGE_PAGE_BYTES };
            assert_eq!((buf.as_ptr().addr() % align, buf.len()), (0, len));
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert!(buf.clone().iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn clones_share_nothing() {
        let first = AlignedBuf::copy_of(b"one");
        let mut second = first.clone();
        second[0] = b'x';
        assert_eq!((&first[..], &second[..]), (&b"one"[..], &b"xne"[..]));
    }

    #[test]
    fn crosses_threads() {
        let buf = AlignedBuf::copy_of(b"here");
        let sum = std::thread::spawn(move || buf.iter().map(|b| u32::from(*b)).sum::<u32>());
        assert_eq!(sum.join().ok(), Some(104 + 101 + 114 + 101));
    }
}
