//! Promises of the transactional layers, against a model: every history, every power cut, every
//! planted bug, every limit.
//!
//! Reading order: `layer` (both layers at small sizes), `model` (what a device holds and may hold
//! after a power cut), `history` (random histories, applied to both), then the promises: `reads`,
//! `cuts`, `limits`, `amplification`, `time`, `wear`, `planted`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

mod amplification;
mod cuts;
mod history;
mod layer;
mod limits;
mod model;
mod planted;
mod reads;
mod time;
mod wear;

/// How much is tried: `ESKER_TEST_BUDGET`, 1 by default.
fn budget() -> u64 {
    std::env::var("ESKER_TEST_BUDGET").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
