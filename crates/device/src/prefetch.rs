//! A hint to the processor: a line of memory will be written.
//!
//! Writes at scattered addresses wait for each line to come from a farther level of memory.
//! Prefetched some steps ahead, many lines come at the same time.

#![expect(unsafe_code, reason = "the instruction has no safe name")]

/// Hints that the cache line at `bytes[at]` will be written soon. Has no visible effect; does
/// nothing where `at` is out of bounds, or where there is no such instruction.
#[inline]
pub fn prefetch_for_write(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if at < bytes.len() {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: the address is inside of `bytes`, and the instruction neither reads nor writes
        // anything that the program can see; processors without it take it for none.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(bytes.as_ptr().add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}
