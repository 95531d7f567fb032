//! Reads and writes of a page store, through the operations of a device with erase blocks.
//!
//! Raw flash is programmed page by page, in order within a block, each page once until the whole
//! block is erased. Segments that are filled in order follow these rules, and are written with
//! [`Media::program`] and [`Media::erase`]. A block is a segment. Data that is rewritten in place
//! (superblocks, nodes of the map, single slots) is written with [`Media::write`], and needs a
//! device, or a part of one, that allows it. All bytes of a store pass through this trait.

use std::fmt::Debug;

use esker_device::{Purpose, Result};

pub mod file;
pub(crate) mod gate;

pub use file::FileMedia;

/// The units of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the unit of programming, or a multiple of them.
    pub program_bytes: u32,
    /// Bytes of the unit of erasing.
    pub block_bytes: u32,
    /// The present number of blocks; a file grows.
    pub blocks: u32,
}

/// A device of blocks. Places are bytes from its start. All methods may be called from any thread,
/// but only one thread at a time programs a block.
pub trait Media: Send + Sync + Debug {
    /// Its name, for messages.
    fn name(&self) -> &str;

    /// Its present length in bytes.
    ///
    /// # Errors
    /// The device does not report it.
    fn bytes(&self) -> Result<u64>;

    /// Its units.
    ///
    /// # Errors
    /// The device does not report them.
    fn geometry(&self) -> Result<Geometry>;

    /// Fills `buf` from `at` on.
    ///
    /// # Errors
    /// The device failed, or has nothing there.
    fn read(&self, at: u64, buf: &mut [u8], purpose: Purpose) -> Result<()>;

    /// Writes `bytes` at `at`, whatever was there before. A write past the end makes the device
    /// longer.
    ///
    /// # Errors
    /// The device failed or has no room; the contents there are unknown.
    fn write(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Writes `bytes` at `at`, within one block and behind everything that was programmed in it
    /// since it was erased.
    ///
    /// # Errors
    /// The device failed; the contents there are unknown.
    fn program(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Prepares a block that is no longer needed to be programmed from its start.
    ///
    /// # Errors
    /// The device failed.
    fn erase(&self, block: u32) -> Result<()>;

    /// Makes all that was written and programmed durable.
    ///
    /// # Errors
    /// The device failed, and what is durable is unknown.
    fn flush(&self, purpose: Purpose) -> Result<()>;

    /// Cuts the device to this many bytes.
    ///
    /// # Errors
    /// The device failed; it is as long as before.
    fn truncate(&self, bytes: u64) -> Result<()>;
}
