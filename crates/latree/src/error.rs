//! Errors: what happened, where, and what to do.

use alloc::string::String;
use core::fmt;

use crate::chip::PageNo;

/// The result of an operation of the tree.
pub type Result<T> = core::result::Result<T, Error>;

/// The reason of a failed operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The options do not fit the chip.
    Options(String),
    /// The memory is below the least that works, in bytes.
    Memory {
        /// The least that works.
        needed_bytes: usize,
        /// What the options give.
        given_bytes: usize,
    },
    /// The tree has more subtrees than the memory has room for, in bytes.
    Subtrees {
        /// The memory that has room for twice as many.
        needed_bytes: usize,
        /// What the options give.
        given_bytes: usize,
    },
    /// A key, or a key and its value, is longer than a page's share, in bytes.
    TooLong {
        /// The length of key and value.
        found: usize,
        /// The greatest that fits.
        limit: usize,
    },
    /// The chip has no room. Nothing of the operation was done.
    Full,
    /// No block is left that can be programmed, in the middle of an operation: blocks failed.
    Exhausted,
    /// No page of the chip was ever programmed.
    Blank,
    /// The chip has pages, and none is of a tree.
    Foreign,
    /// The chip has a tree of a later version.
    Newer {
        /// The version that was found.
        version: u8,
    },
    /// The chip has pages of a tree and no complete checkpoint: its creation was interrupted.
    Unfinished,
    /// The tree was created on a chip of other sizes, or with other levels in a subtree.
    Geometry(String),
    /// A page does not hold what it must.
    Damaged {
        /// The page.
        page: PageNo,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The chip reported an error that is not a worn block, such as a power cut.
    Chip(String),
    /// An earlier operation failed half-way: memory and flash may differ.
    Poisoned,
    /// An invariant does not hold: a bug of this crate.
    Invariant(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(what) => f.write_str(what),
            Self::Memory { needed_bytes, given_bytes } => write!(
                f,
                "{given_bytes} bytes of memory are below the least that works on this chip: give \
                 the tree {needed_bytes} bytes"
            ),
            Self::Subtrees { needed_bytes, given_bytes } => write!(
                f,
                "{given_bytes} bytes of memory are too little for the tree's table of subtrees: \
                 open it with {needed_bytes}, or create it with more levels in a subtree"
            ),
            Self::TooLong { found, limit } => write!(
                f,
                "key and value of {found} bytes: a quarter of a page holds {limit}; use shorter \
                 ones or a chip with larger pages"
            ),
            Self::Full => f.write_str("the chip is full: remove keys, or use a larger chip"),
            Self::Exhausted => f.write_str(
                "no block is left that can be programmed: open the tree again, and copy it to a \
                 chip with more good blocks",
            ),
            Self::Blank => f.write_str("the chip is blank: create a tree on it"),
            Self::Foreign => f.write_str("the chip holds no tree: erase it and create one"),
            Self::Newer { version } => write!(
                f,
                "the chip holds a tree of format {version}, which is newer than this version \
                 reads: use a later version"
            ),
            Self::Unfinished => {
                f.write_str("the chip holds a tree whose creation was interrupted: create it again")
            }
            Self::Geometry(what) => f.write_str(what),
            Self::Damaged { page, what } => {
                write!(f, "flash page {} is damaged: {what}; restore a backup", page.0)
            }
            Self::Chip(what) => write!(f, "the chip failed: {what}; open the tree again"),
            Self::Poisoned => {
                f.write_str("an earlier operation failed half-way: open the tree again")
            }
            Self::Invariant(what) => {
                write!(f, "invariant broken: {what}; this is a bug, report it")
            }
        }
    }
}

impl core::error::Error for Error {}
