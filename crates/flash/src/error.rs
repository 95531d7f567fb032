//! Errors of flash and of translation layers.

use crate::nand::{BlockId, Ppn};

/// The result of an operation on flash.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason of a failed operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device of these sizes cannot exist, or cannot be simulated.
    #[error("impossible geometry: {0}")]
    Geometry(String),
    /// The simulation needs more memory than there is.
    #[error(
        "the simulation needs {needed_bytes} bytes of memory, and {available_bytes} are available: \
         use fewer blocks"
    )]
    Memory {
        /// What it needs.
        needed_bytes: u64,
        /// What the machine, or a limit of the process, leaves.
        available_bytes: u64,
    },
    /// No preset has this name.
    #[error("there is no preset {name}: the presets are {known}")]
    UnknownPreset {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A page, block or logical page that the device does not have.
    #[error("{what} {number} is past the end: the device has {limit}; use a smaller number")]
    OutOfRange {
        /// What was numbered.
        what: &'static str,
        /// Its number.
        number: u64,
        /// How many of them there are.
        limit: u64,
    },
    /// A buffer that is not one page long.
    #[error("a buffer of {found} bytes: a page has {expected}; pass one whole page")]
    Length {
        /// The size of a page in bytes.
        expected: usize,
        /// The length of the buffer in bytes.
        found: usize,
    },
    /// The page was erased and not programmed since.
    #[error("{0} is erased: program it before it is read")]
    Erased(Ppn),
    /// A power cut interrupted the program of this page, or the erase of its block.
    #[error("{0} is torn by a power cut: erase its block")]
    Torn(Ppn),
    /// A page is programmed that is not the next one of its block.
    #[error("{page} is not programmed in order: the next page of {block} is {next}")]
    OutOfOrder {
        /// The page.
        page: Ppn,
        /// Its block.
        block: BlockId,
        /// The index in the block of the page that may be programmed, or the number of pages.
        next: u32,
    },
    /// A power cut interrupted the erase of this block, and it was not erased since.
    #[error("the erase of {0} was interrupted: erase it again before it is programmed")]
    NeedsErase(BlockId),
    /// The power is off.
    #[error("the power is off: switch it on and recover the layer")]
    PowerCut,
    /// No block can be reclaimed.
    #[error("the device is full: {0}; trim pages, or give it more spare blocks")]
    Full(String),
    /// A limit of a layer's memory is reached.
    #[error("refused: {0}")]
    Refused(String),
    /// Flash holds something that its layer does not write.
    #[error("{page} holds {what}: format the device")]
    Foreign {
        /// The page.
        page: Ppn,
        /// What was found, and what was expected.
        what: String,
    },
    /// A trace cannot be recorded.
    #[error("{0}")]
    Trace(String),
    /// An invariant of a layer does not hold: a bug of the layer.
    #[error("invariant broken: {0}; this is a bug, report it")]
    Invariant(String),
    /// The caller passed an invalid argument.
    #[error("{0}")]
    InvalidArgument(String),
}

/// A wrong argument.
pub(crate) fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::InvalidArgument(what.into()))
}

/// A broken invariant.
pub(crate) fn broken<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Invariant(what.into()))
}
