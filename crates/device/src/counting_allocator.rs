//! An allocator for tests that counts the memory of a thread while it is told to.
//!
//! `unsafe` because the interface of allocators is; everything is handed to that of the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator: a test binary declares a static of it with `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountingAllocator;

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    if IS_COUNTED.get() {
        HELD.set(HELD.get() + bytes);
        PEAK.set(PEAK.get().max(HELD.get()));
    }
}

/// Runs `work`, in which the memory that this thread allocates and frees is counted, or not.
/// A memory that grows in place counts as a new one in addition to the old.
pub fn counted<T>(is_counted: bool, work: impl FnOnce() -> T) -> T {
    let before = IS_COUNTED.replace(is_counted);
    let done = work();
    IS_COUNTED.set(before);
    done
}

/// What this thread holds of what was counted, and its greatest value, in bytes. Both begin anew.
pub fn take_counts() -> (i64, i64) {
    (HELD.replace(0), PEAK.replace(0))
}

#[expect(unsafe_code, reason = "the interface of allocators")]
// SAFETY: every call is handed to the system's allocator with the caller's arguments, and its
// answer is handed back. Counting does not allocate: the cells are constants without destructors.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller promises what `System` requires: a layout that is not empty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: `at` came from `alloc`, that is from `System`, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}
