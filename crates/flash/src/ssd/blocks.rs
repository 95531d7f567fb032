//! What files do to a block device, page by page: the interface between the two.

use esker_device::Purpose;

use crate::error::Result;
use crate::nand::Lpn;

/// A block device without content: an SSD that is simulated, or a trace that is recorded.
pub trait Blocks: Send + 'static {
    /// Bytes of a page.
    fn page_bytes(&self) -> u64;

    /// Logical pages.
    fn pages(&self) -> u32;

    /// A request of the host begins. All of its pages are in flight together.
    fn begin(&mut self);

    /// Reads a page.
    ///
    /// # Errors
    /// Those of the layer, or of the trace's file; so for the other operations.
    fn read(&mut self, lpn: Lpn, purpose: Purpose) -> Result<()>;

    /// Writes a page.
    fn write(&mut self, lpn: Lpn, purpose: Purpose) -> Result<()>;

    /// Writes a page of which the host writes a part: it is read before.
    fn rewrite(&mut self, lpn: Lpn, purpose: Purpose) -> Result<()> {
        self.read(lpn, purpose)?;
        self.write(lpn, purpose)
    }

    /// Forgets a page.
    fn trim(&mut self, lpn: Lpn) -> Result<()>;

    /// Makes what was written durable.
    fn flush(&mut self) -> Result<()>;

    /// The request ends.
    fn end(&mut self) -> Result<()>;
}
