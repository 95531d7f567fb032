//! Which process this is, for less than a call of the system.
//!
//! Every call of SQLite asks, because a child by `fork` must not use what its parent has open. The
//! number is kept in a page of memory that the kernel empties in every child.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

const PAGE: usize = 4096;

/// The number of this process.
pub fn id() -> u32 {
    static KEPT: OnceLock<Option<&'static AtomicU32>> = OnceLock::new();
    let Some(kept) = KEPT.get_or_init(map) else { return std::process::id() };
    match kept.load(Ordering::Relaxed) {
        // Just mapped, or emptied by a fork. No process has this number.
        0 => {
            let id = std::process::id();
            kept.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

/// Memory that is zeros in a child; `None` where the kernel does not know how.
fn map() -> Option<&'static AtomicU32> {
    let flags = MapFlags::PRIVATE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place, so that nothing else is there.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), PAGE, protection, flags) }.ok()?;
    // SAFETY: it is the whole of that mapping, which holds zeros still.
    unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) }.ok()?;
    // SAFETY: the mapping is aligned, holds zeros, and is never unmapped.
    Some(unsafe { &*page.cast::<AtomicU32>() })
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_this_process() {
        assert_eq!((super::id(), super::id()), (std::process::id(), std::process::id()));
    }
}
