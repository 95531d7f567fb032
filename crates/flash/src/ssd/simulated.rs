//! The SSD below the files: a translation layer over flash that keeps no data.

use std::sync::Arc;

use esker_device::{Device, Purpose, Result};

use super::blocks::Blocks;
use super::device::OnBlocks;
use super::report::SsdReport;
use crate::error::Result as BlockResult;
use crate::ftl::{Ftl, Stream};
use crate::nand::{Lpn, Urgency};
use crate::placement::Placement;

/// A device whose writes are also those of a simulated SSD.
pub type SsdDevice = OnBlocks<Ssd>;

/// The simulated side of an [`SsdDevice`].
pub struct Ssd {
    layer: Box<dyn Ftl + Send>,
    stream_of: Box<dyn FnMut(Purpose) -> Stream + Send>,
    written: [u64; Purpose::ALL.len()],
    now_ns: u64,
}

impl SsdDevice {
    /// Puts files of `inner` on an empty `layer`, over flash that keeps no data. Files that are
    /// there already are written first, but for pages that hold nothing but zeros. All writes are
    /// in one stream.
    ///
    /// # Errors
    /// Those of the inner device; an SSD that is too small for what is there.
    pub fn new(inner: Arc<dyn Device>, layer: Box<dyn Ftl + Send>) -> Result<Self> {
        Self::placed(inner, layer, Placement::None)
    }

    /// The same, with writes in streams by their purpose. The layer needs as many streams as the
    /// placement has: [`Options::streams`](crate::ftl::Options::streams).
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn placed(
        inner: Arc<dyn Device>,
        layer: Box<dyn Ftl + Send>,
        placement: Placement,
    ) -> Result<Self> {
        Self::in_streams(inner, layer, move |purpose| placement.of_purpose(purpose))
    }

    /// The same, with the streams that a function chooses. It is asked for each page.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn in_streams(
        inner: Arc<dyn Device>,
        layer: Box<dyn Ftl + Send>,
        stream_of: impl FnMut(Purpose) -> Stream + Send + 'static,
    ) -> Result<Self> {
        let written = [0; Purpose::ALL.len()];
        Self::around(inner, Ssd { layer, stream_of: Box::new(stream_of), written, now_ns: 0 })
    }

    /// What was done so far. Dirty pages in the page cache are not part of it.
    #[must_use]
    pub fn report(&self) -> SsdReport {
        let files = self.lock();
        let ssd = &files.blocks;
        SsdReport {
            page_bytes: ssd.page_bytes(),
            host: ssd.layer.host(),
            written: ssd.written,
            flash: *ssd.layer.counters(),
            wear: ssd.layer.wear(),
            busy_ns: ssd.now_ns,
        }
    }

    /// Checks the invariants of the layer.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> BlockResult<()> {
        self.lock().blocks.layer.check()
    }
}

impl Blocks for Ssd {
    fn page_bytes(&self) -> u64 {
        u64::from(self.layer.geometry().page_size())
    }

    fn pages(&self) -> u32 {
        self.layer.logical_pages()
    }

    fn begin(&mut self) {
        self.layer.issue_at(self.now_ns);
    }

    fn read(&mut self, lpn: Lpn, _: Purpose) -> BlockResult<()> {
        self.layer.read(lpn, &mut []).map(drop)
    }

    fn write(&mut self, lpn: Lpn, purpose: Purpose) -> BlockResult<()> {
        let stream = (self.stream_of)(purpose);
        self.layer.write_in_stream(lpn, &[], stream)?;
        self.written[purpose as usize] += 1;
        Ok(())
    }

    fn rewrite(&mut self, lpn: Lpn, purpose: Purpose) -> BlockResult<()> {
        let outer = self.layer.dyn_nand_mut().open_scope(Urgency::Foreground);
        self.read(lpn, purpose)?;
        self.layer.dyn_nand_mut().wait();
        self.write(lpn, purpose)?;
        self.layer.dyn_nand_mut().close_scope(outer);
        Ok(())
    }

    fn trim(&mut self, lpn: Lpn) -> BlockResult<()> {
        self.layer.trim(lpn)
    }

    fn flush(&mut self) -> BlockResult<()> {
        self.layer.flush()
    }

    fn end(&mut self) -> BlockResult<()> {
        self.now_ns = self.now_ns.max(self.layer.end_ns());
        Ok(())
    }
}
