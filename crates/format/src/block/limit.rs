//! The limit on the length of blocks, and when they are whole units.

use crate::ptr::UNIT_BYTES;

/// The length up to which a block may grow beyond its target length, in bytes.
pub const GROWN_BYTES_MAX: usize = 4 * UNIT_BYTES as usize;

/// A block without a codec is whole units, so that blocks of short entries begin at pages, unless
/// no entry fits any more and more than one part in this many of them is empty.
const EMPTY_SHARE: usize = 4;

/// The limit on the length of a block.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The length that no further entry may exceed, except as `grows_above` allows.
    pub target_bytes: usize,
    /// A block may grow beyond that while more than one part in this many of its units would be
    /// empty.
    pub grows_above: Option<usize>,
}

impl Limit {
    /// Whether a block of `used` bytes may have one more entry, with which it has `bytes`.
    pub(super) const fn allows(&self, used: usize, bytes: usize) -> bool {
        if bytes <= self.target_bytes {
            return true;
        }
        let Some(parts) = self.grows_above else { return false };
        let whole = used.next_multiple_of(UNIT_BYTES as usize);
        bytes <= GROWN_BYTES_MAX && (bytes <= whole || is_empty_by(parts, used, whole))
    }

    /// Whether a block with this many bytes and entries has no space for another entry of their
    /// average length.
    #[must_use]
    pub const fn is_reached(&self, used: usize, entries: usize) -> bool {
        let entry = match used.checked_div(entries) {
            Some(entry) => entry,
            None => return false,
        };
        !self.allows(used, used.saturating_add(entry))
    }
}

/// Whether a block of `used` bytes leaves too much of `whole` bytes empty, its whole units.
pub(super) const fn leaves_too_much(used: usize, whole: usize) -> bool {
    is_empty_by(EMPTY_SHARE, used, whole)
}

/// Whether more than one part in `parts` of `whole` bytes is empty, of which `used` are not.
const fn is_empty_by(parts: usize, used: usize, whole: usize) -> bool {
    whole.saturating_sub(used).saturating_mul(parts) > whole
}
