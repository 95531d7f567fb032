//! A file as the device of a page store.

use std::sync::Arc;

use esker_device::{DeviceFile, Purpose, Result};

use crate::media::{Geometry, Media};

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
    fn name(&self) -> &str {
        self.file.name()
    }

    fn bytes(&self) -> Result<u64> {
        self.file.len()
    }

    fn geometry(&self) -> Result<Geometry> {
        let blocks = self.file.len()? / u64::from(self.block_bytes.max(1));
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Ok(Geometry { program_bytes: 512, block_bytes: self.block_bytes, blocks })
    }

    fn read(&self, at: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.file.read_at(at, buf, purpose)
    }

    fn write(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.file.write_at(at, bytes, purpose)
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

    fn truncate(&self, bytes: u64) -> Result<()> {
        self.file.truncate(bytes)
    }
}
