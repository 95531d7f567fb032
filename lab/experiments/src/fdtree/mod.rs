//! The FD+tree's concurrency schemes against each other: the experiments of Thonangi, Babu and
//! Yang (CIKM 2012, section 5) and of Thonangi's thesis (section 4.4).
//!
//! Reading order: [`subject`] (a store under a scheme), [`queue`] and [`run`] (one run of G_R),
//! [`alternate`] (alternated systems); then the experiments: [`stall`], [`lookup_ratio`],
//! [`ablation`], [`index_size`], [`level_skipping`].

pub mod ablation;
pub mod alternate;
pub mod index_size;
pub mod level_skipping;
pub mod lookup_ratio;
pub mod queue;
pub mod run;
pub mod stall;
pub mod subject;

use alternate::Sizes;

/// Memory of a memtable for about the papers' κ0, in bytes: 256 KiB there, and 300 KB of entries
/// here. With so small entries the memtable takes five times what they take in blocks.
const MEMTABLE_BYTES: u64 = 3 << 19;

/// A few minutes: 48,000 requests where the papers made ten million, and an index of half of
/// theirs, large enough for a full merge to take longer than the memtable's spare room lasts at
/// W_l 0.8. Each run sees the first merge, which is a full one, whatever W_l is.
const SMALL: Sizes = Sizes {
    preload: 5_000_000,
    warm_up: 11_500,
    requests: 48_000,
    growth: 24,
    memtable_bytes: MEMTABLE_BYTES,
    buffer_bytes: 5 << 20,
    repeats: 3,
};

/// The papers' numbers of entries and requests, γ and buffer. Workers are half as many, three to
/// one, and κ0 is what [`MEMTABLE_BYTES`] holds.
const FULL: Sizes = Sizes {
    preload: 10_000_000,
    warm_up: 10_000,
    requests: 10_000_000,
    growth: 24,
    memtable_bytes: MEMTABLE_BYTES,
    buffer_bytes: 15 << 20,
    repeats: 7,
};

/// Seconds at most.
const TINY: Sizes = Sizes {
    preload: 10_000,
    warm_up: 1_000,
    requests: 6_000,
    growth: 4,
    memtable_bytes: 64 << 10,
    buffer_bytes: 1 << 20,
    repeats: 1,
};
