//! The length of filters.

use esker_format::filter::{BITS_PER_KEY, BITS_PER_KEY_MANY};

/// Bits a key of filters, at least one: an empty filter would hide all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterBits(usize);

impl FilterBits {
    /// Where lookups ask many levels.
    pub const MANY: Self = Self(BITS_PER_KEY_MANY);

    /// So many bits.
    #[must_use]
    pub const fn new(bits: usize) -> Self {
        Self(if bits == 0 { 1 } else { bits })
    }

    /// The number of bits.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

impl Default for FilterBits {
    fn default() -> Self {
        Self(BITS_PER_KEY)
    }
}
