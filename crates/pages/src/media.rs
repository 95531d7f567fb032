//! Reads and writes of pages, through the operations of a device with erase blocks.
//!
//! Raw flash is programmed page by page, in order within a block, each page once until the whole
//! block is erased. Segments that are filled in order follow these rules, so their contents are
//! written through this trait. A block is a segment. Data that is rewritten in place (superblocks,
//! nodes of the map, single slots) is not, and needs a device, or a part of one, that allows it.

use std::fmt::Debug;
use std::sync::Arc;

use esker_device::{DeviceFile, Purpose, Result};

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

    /// Makes all that was programmed durable.
    ///
    /// # Errors
    /// The device failed, and what is durable is unknown.
    fn flush(&self, purpose: Purpose) -> Result<()>;
}

/// A file as blocks, on a device that erases by itself.
#[derive(Debug)]
pub struct FileMedia {
    file: Arc<dyn DeviceFile>,
    block_bytes: u32,
}

impl FileMedia {
    /// `file` in blocks of this many bytes.
    #[must_use]
    pub fn new(file: Arc<dyn DeviceFile>, block_bytes: u32) -> Self {
        Self { file, block_bytes }
    }
}

impl Media for FileMedia {
    fn geometry(&self) -> Result<Geometry> {
        let blocks = self.file.len()? / u64::from(self.block_bytes.max(1));
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Ok(Geometry { program_bytes: 512, block_bytes: self.block_bytes, blocks })
    }

    fn read(&self, at: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.file.read_at(at, buf, purpose)
    }

    fn program(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.file.write_at(at, bytes, purpose)
    }

    /// Does nothing: rewriting written blocks is fast on a file, and discarding them is not.
    fn erase(&self, _block: u32) -> Result<()> {
        Ok(())
    }

    fn flush(&self, purpose: Purpose) -> Result<()> {
        self.file.sync(purpose)
    }
}
