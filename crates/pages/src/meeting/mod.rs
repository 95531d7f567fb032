//! The meeting file: what the processes that have a store open tell each other.
//!
//! It has 64 KiB of words that all of them map ([`esker_device::shared::Shared`]), and locks of
//! single bytes. It holds hints alone, which can be made again: where the log ends, which
//! versions each process reads, and from which version on a reader need not be seen. What a word
//! means is believed only if its checksum fits: noise is found, and what cannot be read holds all
//! versions, so that nothing is freed because of it.
//!
//! Reading order: [`layout`] (which word is what), [`state`] (the end of the log), [`cells`] (the
//! pins of all processes, as seen by the one that frees), [`member`] (the pins of this process),
//! [`queue`] (processes that wait to write).

pub(crate) mod cells;
pub(crate) mod layout;
pub(crate) mod member;
pub(crate) mod queue;
pub(crate) mod state;

#[cfg(test)]
mod tests;
