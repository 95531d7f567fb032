//! Buffers of blocks that were dropped, for the blocks that are read next.
//!
//! A read that misses the cache drops about one block for each that it brings. Allocators serve
//! memory of this length under a lock of theirs, and collect what smaller allocations have left
//! while they hold it, so that threads that scan would wait for each other.
//!
//! Invariant: every buffer has the length of a unit. Its content is of no meaning.

use std::sync::Mutex;

use esker_format::ptr::UNIT_BYTES;

const BYTES: usize = UNIT_BYTES as usize;
/// Most buffers that are kept, in all threads together.
const KEPT_MAX: usize = 16;

/// No thread waits for it, so that it is of no interest to a scheduler that tests control.
static KEPT: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer of `len` bytes, of any content.
pub(crate) fn take(len: usize) -> Box<[u8]> {
    kept(len).unwrap_or_else(|| vec![0; len].into_boxed_slice())
}

/// A buffer with these bytes.
pub(crate) fn copy_of(bytes: &[u8]) -> Box<[u8]> {
    let Some(mut buffer) = kept(bytes.len()) else { return bytes.into() };
    buffer.copy_from_slice(bytes);
    buffer
}

/// One that was kept, if it has this length.
fn kept(len: usize) -> Option<Box<[u8]>> {
    (len == BYTES).then(|| KEPT.try_lock().ok()?.pop())?
}

/// Keeps a buffer that nothing uses any more, or frees it.
pub(super) fn give(buffer: Box<[u8]>) {
    if buffer.len() == BYTES
        && let Ok(mut kept) = KEPT.try_lock()
        && kept.len() < KEPT_MAX
    {
        kept.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_the_length_that_is_asked_for() {
        for len in [0, 1, BYTES - 1, BYTES, BYTES + 1] {
            give(vec![7; len].into_boxed_slice());
            assert_eq!(take(len).len(), len);
            assert_eq!(*copy_of(&vec![9; len]), vec![9; len]);
        }
    }

    #[test]
    fn few_buffers_are_kept() {
        (0..100).for_each(|_| give(vec![7; BYTES].into_boxed_slice()));
        assert!(KEPT.lock().is_ok_and(|kept| kept.len() <= KEPT_MAX));
    }
}
