//! A file mapped into memory, as words.

#![expect(unsafe_code, reason = "memory that other processes change, which only atomics may read")]

use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::process::Process;

/// The first bytes of a file, shared with all that have it mapped, until this is dropped. A child
/// created by `fork` does not have it: it would keep the locks of the file when its parent dies.
#[derive(Debug)]
pub(super) struct Mapping {
    first: NonNull<AtomicU64>,
    words: usize,
    process: Process,
}

// SAFETY: the memory is that of the process, and is accessed by atomic operations alone.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps whole pages of memory: `bytes` is a multiple of 4096, and the file has as many.
    pub(super) fn new(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        if bytes == 0 || !bytes.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place, so that nothing else is there.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        let first = NonNull::new(start.cast::<AtomicU64>()).ok_or(Errno::NOMEM)?;
        let mapping = Self { first, words: bytes / 8, process: Process::current() };
        // SAFETY: it is the whole of the mapping above, which this process keeps.
        unsafe { madvise(start, bytes, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Whether there is such a word, in this process.
    fn has(&self, at: usize) -> bool {
        at < self.words && self.process.is_current()
    }

    fn word(&self, at: usize) -> Option<&AtomicU64> {
        // SAFETY: the word is within the mapping, which is aligned to pages, is of numbers for
        // which all bits are right, and is there for as long as `self`, in this process.
        self.has(at).then(|| unsafe { self.first.add(at).as_ref() })
    }

    pub(super) fn load(&self, at: usize) -> u64 {
        self.word(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    pub(super) fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.word(at) {
            word.store(value, Ordering::SeqCst);
        }
    }

    /// The lower half of a word, whose address the kernel takes. It is not read or written here.
    fn lower_half(&self, at: usize) -> Option<&AtomicU32> {
        // SAFETY: as in `word`; the lower half of a word is at its address, as numbers are
        // little-endian, and has a smaller alignment.
        self.has(at).then(|| unsafe { self.first.add(at).cast::<AtomicU32>().as_ref() })
    }

    /// Sleeps while the lower half of a word is that of `value`, until another opening calls
    /// [`Mapping::wake`], for `time` at most.
    pub(super) fn wait(&self, at: usize, value: u64, time: Duration) {
        let time = Timespec::try_from(time).ok();
        if let Some((half, time)) = self.lower_half(at).zip(time) {
            // That it was woken, that the time is over, that the word is another, that a signal
            // came: all of them end the sleep.
            let _ended = futex::wait(half, futex::Flags::empty(), value as u32, Some(&time));
        }
    }

    /// Wakes all that wait for a word.
    pub(super) fn wake(&self, at: usize) {
        if let Some(half) = self.lower_half(at) {
            // Without any it does nothing.
            let _none = futex::wake(half, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // SAFETY: it is the whole of one mapping, and nothing refers to it any more.
        let _unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.words * 8) };
    }
}
