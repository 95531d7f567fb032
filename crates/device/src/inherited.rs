//! Descriptors that children by `fork` close.
//!
//! A lock of `flock` belongs to an opening of a file, and a child inherits that: it would keep
//! locked what its parent has closed, or had open when it died. So the openings that hold locks are
//! in a list, and `pthread_atfork` has every child close its copies before anything else runs in
//! it.
//!
//! Invariant (open while listed): what is in the list is open, and the list's: it is taken out
//! before it is closed.
//! Invariant: nothing here waits, and the child calls nothing but `close`: the list only grows, and
//! its places are used again.

#![expect(unsafe_code, reason = "what runs in a child between fork and the rest of it")]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering, fence};

/// No descriptor.
const NONE: RawFd = -1;

/// A place in the list.
#[derive(Debug)]
pub(crate) struct Place {
    descriptor: AtomicI32,
    /// Set before it is in the list, and never changed.
    next: *const Self,
}

// SAFETY: the pointer is to a place that is never given back.
unsafe impl Send for Place {}
// SAFETY: as above, and no code changes it.
unsafe impl Sync for Place {}

static FIRST: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
/// The number of times that this process has begun to fork.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Has every child call `in_child`, and close what is in the list. More than once is no harm.
pub(crate) fn watch_forks(in_child: extern "C" fn()) {
    let nothing = None::<unsafe extern "C" fn()>;
    // SAFETY: the functions are there as long as this library is, and may be called in a child. It
    // fails only for want of a few bytes of memory: then the list is not seen to, and a lock ends
    // when it is given back, or when the last child ends.
    unsafe {
        libc::pthread_atfork(Some(before_fork), nothing, Some(close_all));
        libc::pthread_atfork(nothing, nothing, Some(in_child));
    }
}

extern "C" fn before_fork() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

fn places() -> impl Iterator<Item = &'static Place> {
    let mut at = FIRST.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: the pointer is null, or to a place that is never given back.
        let place = unsafe { at.as_ref() }?;
        at = place.next;
        Some(place)
    })
}

extern "C" fn close_all() {
    for place in places() {
        let descriptor = place.descriptor.swap(NONE, Ordering::Relaxed);
        if descriptor != NONE {
            // SAFETY: what is in the list is open. An owner of the descriptor knows the process to
            // which it belongs, and does not use it in this one.
            unsafe { libc::close(descriptor) };
        }
    }
}

impl Place {
    /// A free one, with `descriptor` in it.
    fn of(descriptor: RawFd) -> &'static Self {
        let take = |place: &&Self| {
            let taken = (Ordering::SeqCst, Ordering::Relaxed);
            place.descriptor.compare_exchange(NONE, descriptor, taken.0, taken.1).is_ok()
        };
        if let Some(place) = places().find(take) {
            return place;
        }
        let new = Box::leak(Box::new(Self { descriptor: descriptor.into(), next: ptr::null() }));
        let place = ptr::from_mut(new);
        loop {
            let first = FIRST.load(Ordering::Acquire);
            // SAFETY: it is not in the list yet, so that no other thread sees it.
            unsafe { (*place).next = first };
            let (success, failure) = (Ordering::SeqCst, Ordering::Relaxed);
            if FIRST.compare_exchange(first, place, success, failure).is_ok() {
                // SAFETY: it is never given back, and from now on not changed but by its atomic.
                return unsafe { &*place };
            }
        }
    }

    /// Takes the descriptor out of the list.
    pub(crate) fn clear(&self) {
        self.descriptor.store(NONE, Ordering::SeqCst);
    }
}

/// Opens something that no child keeps: again where a child was forked that may have it.
pub(crate) fn open<E>(
    mut open: impl FnMut() -> Result<OwnedFd, E>,
) -> Result<(OwnedFd, &'static Place), E> {
    loop {
        let forks = FORKS.load(Ordering::SeqCst);
        let opened = open()?;
        let place = Place::of(opened.as_raw_fd());
        // A child that does not have it in its list was forked before it was put there, and after
        // the count went up.
        fence(Ordering::SeqCst);
        if FORKS.load(Ordering::SeqCst) == forks {
            return Ok((opened, place));
        }
        place.clear();
    }
}
