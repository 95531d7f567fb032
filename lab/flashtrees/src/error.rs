//! Errors of the trees.

/// The result of an operation on a tree.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason of a failed operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The flash below failed.
    #[error(transparent)]
    Flash(#[from] esker_flash::Error),
    /// The chip has no room for another entry. Lookups and removals go on.
    #[error("the chip is full: {0}; remove entries, or use a chip with more blocks")]
    Full(String),
    /// The tree does not work in the memory that it was given.
    #[error("{tree} needs {needed_bytes} bytes of memory and has {budget_bytes}: give it more")]
    Memory {
        /// The name of the tree.
        tree: &'static str,
        /// The least that works now.
        needed_bytes: usize,
        /// What it was given.
        budget_bytes: usize,
    },
    /// A page is not what the tree wrote there.
    #[error("node {node} is damaged: {what}; format the chip")]
    Damaged {
        /// The node.
        node: u32,
        /// What was found, and what was expected.
        what: String,
    },
    /// An invariant of a tree does not hold: a bug of the tree.
    #[error("invariant broken: {0}; this is a bug, report it")]
    Invariant(String),
    /// The chip or an option cannot be used.
    #[error("{0}")]
    Refused(String),
}

/// A broken invariant.
pub(crate) fn broken<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Invariant(what.into()))
}
