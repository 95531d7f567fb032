//! Where pages are read and written: what a device with blocks of its own lets one do.
//!
//! Raw flash is programmed page by page, in order within a block, each page once until the whole
//! block is erased. Segments that are filled in order obey that: what such a segment holds is
//! written through here. A block is a segment. What is rewritten in place (superblocks, nodes of
//! the map, single slots) is not, and needs a device, or a part of one, that takes it.

use std::fmt::Debug;
use std::sync::Arc;

use esker_device::{DeviceFile, Purpose, Result};

/// What the units of a device are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes that are programmed at once, or a multiple of them.
    pub program_bytes: u32,
    /// Bytes that are erased at once.
    pub block_bytes: u32,
    /// How many blocks there are now; a file grows.
    pub blocks: u32,
}

/// A device of blocks. Places are bytes from its start. All methods may be called from any thread,
/// but one block is programmed by one at a time.
pub trait Media: Send + Sync + Debug {
    /// Its units.
    ///
    /// # Errors
    /// The device does not say.
    fn geometry(&self) -> Result<Geometry>;

    /// Fills `buf` from `at` on.
    ///
    /// # Errors
    /// The device failed, or has nothing there.
    fn read(&self, at: u64, buf: &mut [u8], purpose: Purpose) -> Result<()>;

    /// Writes `bytes` at `at`, within one block and behind all that was programmed in it since it
    /// was erased.
    ///
    /// # Errors
    /// The device failed; what is there now is not known.
    fn program(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Prepares a block that is no longer needed to be programmed from its start.
    ///
    /// # Errors
    /// The device failed.
    fn erase(&self, block: u32) -> Result<()>;

    /// Makes all that was programmed durable.
    ///
    /// # Errors
    /// The device failed, and it is not known what is durable.
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

    /// Nothing: rewriting written blocks is what a file is quick at, and giving them back is not.
    fn erase(&self, _block: u32) -> Result<()> {
        Ok(())
    }

    fn flush(&self, purpose: Purpose) -> Result<()> {
        self.file.sync(purpose)
    }
}
