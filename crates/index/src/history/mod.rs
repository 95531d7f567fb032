//! Keyspaces with history: the split of a full merge, and the past indexes that splits leave.
//!
//! Source: W. G. Choi et al., *Optimization of a Multiversion Index on SSDs to Improve System
//! Performance* (bulk-split multiversion B-tree). The paper's *version split* of a whole tree, and
//! its *roots*: one for each past index, and one for the index of now.
//!
//! Merges keep every version, so the entries that newer ones have superseded, which a scan of the
//! present has to pass, become more and more. When they are a given share of all entries
//! (`share`), a full merge is a *split*: it copies what is live as of one number, with its own
//! numbers, into a new index, and leaves everything that it has read as it is. That is a past index
//! (`read::past`); readers as of earlier numbers search it, and no later merge touches it. Before a
//! split, everything above the bottom is merged into one level, so that a reader of the past has
//! two levels to ask.
//!
//! Invariant: of a keyspace's past indexes each begins with the version at which the one before it
//! ends, and the index of now begins with that at which the last one ends.
//! Invariant: an index, past or of now, answers each version from its first one on without the
//! others: what was live at its first version is in it.

pub(crate) mod retention;
pub(crate) mod share;

use esker_format::ids::Seq;

/// The history that a keyspace keeps: every version from one on.
#[derive(Clone, Copy, Debug)]
pub struct History {
    /// The first version that stays readable.
    pub from: Seq,
    /// The share of superseded entries at which a full merge splits; 1 for never.
    pub share: f64,
}
