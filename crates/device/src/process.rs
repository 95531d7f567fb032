//! The identity of this process, for the price of a load, and state that belongs to one process.
//!
//! A child created by `fork` has its parent's memory and none of its threads. If it used what its
//! parent has open, both would write to the same files; and a lock that a thread held at that
//! moment is held for ever. So every open object keeps its [`Process`], and checks it.
//!
//! Processes have numbers: a child takes the number after the highest among its ancestors. The
//! number is kept in a page of memory that the kernel clears in every child, however it was
//! created; where the kernel cannot do that, `pthread_atfork` clears a static.

#![expect(unsafe_code, reason = "memory that a fork empties, and a pointer that each process sets")]

use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::inherited;
use crate::planted::{self, Bug};

const PAGE: usize = 4096;

/// The number of this process; 0 until it has one.
static KEPT: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The same, where there is no such page.
static WITHOUT_PAGE: AtomicU32 = AtomicU32::new(0);
/// The number of process numbers that this process and its ancestors have taken.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A process. Its forked children must not use what it has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    #[must_use]
    #[inline]
    pub fn current() -> Self {
        // SAFETY: the pointer is null, or to a number that is never given back.
        let kept = match unsafe { KEPT.load(Ordering::Acquire).as_ref() } {
            Some(kept) => kept,
            None => begin(),
        };
        match kept.load(Ordering::Relaxed) {
            0 => take_number(kept),
            number => Self(number),
        }
    }

    /// Whether it is the current process, and not one that this was forked from.
    #[must_use]
    #[inline]
    pub fn is_current(self) -> bool {
        Self::current() == self || planted::is(Bug::ForkNotSeen)
    }
}

#[cold]
fn take_number(kept: &AtomicU32) -> Process {
    let next = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
    match kept.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Process(next),
        Err(other) => Process(other),
    }
}

/// Finds a place for the number. Several threads may do so at the same time: nothing here waits,
/// because a child would wait for ever for a thread that it does not have.
#[cold]
fn begin() -> &'static AtomicU32 {
    inherited::watch_forks(forget_number);
    let place = map().unwrap_or(&WITHOUT_PAGE);
    let ours = ptr::from_ref(place).cast_mut();
    let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
    match KEPT.compare_exchange(ptr::null_mut(), ours, success, failure) {
        Ok(_) => place,
        // SAFETY: another thread has set it; what is set is never given back.
        Err(other) => unsafe { &*other },
    }
}

extern "C" fn forget_number() {
    WITHOUT_PAGE.store(0, Ordering::Relaxed);
}

/// Memory that is zeros in a child; `None` where the kernel does not know how.
fn map() -> Option<&'static AtomicU32> {
    let flags = MapFlags::PRIVATE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place, so that nothing else is there.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, protection, flags) }.ok()?;
    // SAFETY: it is the whole of that mapping, which holds zeros still.
    unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the mapping is aligned, holds zeros, and is never unmapped.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

/// A value that each process has of its own. A forked child begins with a new one: it neither sees
/// its parent's value nor waits for a lock in it.
pub struct PerProcess<T> {
    /// Null, or never given back: another thread may look at it.
    current: AtomicPtr<Of<T>>,
}

struct Of<T> {
    process: Process,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    /// A value that no process has created yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of this process.
    pub fn get(&'static self) -> &'static T {
        let process = Process::current();
        loop {
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: the pointer is null, or from a box that is never given back.
            match unsafe { current.as_ref() } {
                Some(of) if of.process == process => return &of.value,
                _ => {}
            }
            let ours = Box::into_raw(Box::new(Of { process, value: T::default() }));
            let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
            if self.current.compare_exchange(current, ours, success, failure).is_err() {
                // SAFETY: it comes from a box, and no other thread has seen it.
                drop(unsafe { Box::from_raw(ours) });
            }
        }
    }
}

impl<T: Default + Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::forked::{Child, Ended};

    #[test]
    fn a_child_is_another_process_and_so_is_its_child() {
        let ours = Process::current();
        assert!(ours.is_current());
        let child = Child::run(10, || {
            let theirs = Process::current();
            let grandchild = Child::run(10, || {
                let is_new = !ours.is_current() && !theirs.is_current();
                u8::from(!is_new || Process::current() != Process::current())
            });
            let is_good = !ours.is_current() && theirs.is_current();
            u8::from(!is_good || grandchild.wait() != Ended::Answer(0))
        });
        assert_eq!(child.wait(), Ended::Answer(0));
        assert!(ours.is_current());
    }

    #[test]
    fn a_child_does_not_wait_for_a_lock_of_its_parent() {
        static VALUE: PerProcess<Mutex<u32>> = PerProcess::new();
        let mut held = VALUE.get().lock().unwrap();
        *held = 7;
        let child = Child::run(10, || u8::try_from(*VALUE.get().lock().unwrap()).unwrap());
        assert_eq!(child.wait(), Ended::Answer(0));
        drop(held);
        assert_eq!(*VALUE.get().lock().unwrap(), 7);
    }
}
