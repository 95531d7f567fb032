//! Translation layers (FTLs): logical pages that can be overwritten, on flash that cannot.
//!
//! Every layer has `format(nand, options)`, which makes an empty device, `recover(nand, options)`,
//! which reopens one after a power cut, and `into_nand()`. All are behind the trait [`Ftl`].
//!
//! Reading order: this file (the traits), `options`, [`policy`] (victims, as pure functions),
//! [`pool`] with `buckets` and `collecting` (the blocks), [`gc`] (moving pages), `wear`
//! (levelling), `scan` (what a recovery reads); the layers.
//!
//! **Contract.** F1: a read answers the newest write of that logical page, or "not mapped" after a
//! trim and before the first write. F2: what was written before a `flush` that returned survives a
//! power cut; what was written or trimmed after it may be lost, each logical page alone, but a read
//! never answers bytes that were never written there. F3: a recovery is idempotent. F4: a full
//! device answers [`Error::Full`]; reads go on. After any other error the layer
//! must be recovered.

mod buckets;
mod collecting;
pub mod dftl;
pub mod gc;
mod map;
pub mod mvftl;
mod options;
pub mod page_mapped;
pub mod policy;
pub mod pool;
pub mod scan;
pub(crate) mod transactional;
mod wear;
pub mod xftl;

pub use dftl::Dftl;
pub use options::Options;
pub use page_mapped::PageMapped;
pub use policy::Policy;
pub use pool::Stream;

use crate::error::{Error, Result};
use crate::nand::{Counters, Geometry, Lpn, Nand};

/// Operations of the host, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Pages read, those that are not mapped included.
    pub reads: u64,
    /// Pages written.
    pub writes: u64,
    /// Pages trimmed.
    pub trims: u64,
    /// Flushes.
    pub flushes: u64,
}

/// The erase counts of the blocks of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wear {
    /// The least.
    pub min: u32,
    /// The mean.
    pub mean: f64,
    /// The greatest.
    pub max: u32,
    /// The greatest difference within one domain of garbage collection, which wear levelling
    /// bounds.
    pub spread: u32,
}

/// A translation layer.
///
/// Where the flash keeps no data, `data` may be empty and what is read is not defined.
pub trait Ftl {
    /// The number of logical pages.
    fn logical_pages(&self) -> u32;

    /// The flash below.
    fn dyn_nand(&self) -> &dyn Nand;

    /// The flash below, for its clock. What is programmed or erased behind the layer's back breaks
    /// it.
    fn dyn_nand_mut(&mut self) -> &mut dyn Nand;

    /// The sizes of the flash below.
    fn geometry(&self) -> &Geometry {
        self.dyn_nand().geometry()
    }

    /// Reads a logical page, and answers whether it is mapped. One that is not reads as zeros.
    ///
    /// # Errors
    /// A page out of range, a wrong length, the power off.
    fn read(&mut self, lpn: Lpn, data: &mut [u8]) -> Result<bool>;

    /// Writes a logical page.
    ///
    /// # Errors
    /// A page out of range, a wrong length, a full device, the power off.
    fn write(&mut self, lpn: Lpn, data: &[u8]) -> Result<()>;

    /// Writes a logical page in a stream, whose pages have blocks of their own until garbage
    /// collection moves them. A stream that the layer does not have is its last one. A layer with
    /// one stream ignores it.
    ///
    /// # Errors
    /// Those of [`Ftl::write`].
    fn write_in_stream(&mut self, lpn: Lpn, data: &[u8], stream: Stream) -> Result<()> {
        let _ = stream;
        self.write(lpn, data)
    }

    /// The number of streams, at least 1; [`Ftl::write`] writes in the first.
    fn streams(&self) -> u32 {
        1
    }

    /// Forgets the content of a logical page.
    ///
    /// # Errors
    /// A page out of range, the power off.
    fn trim(&mut self, lpn: Lpn) -> Result<()>;

    /// Makes all writes and trims survive a power cut.
    ///
    /// # Errors
    /// A full device, the power off.
    fn flush(&mut self) -> Result<()>;

    /// What the host asked for so far.
    fn host(&self) -> HostCounters;

    /// The operations on flash so far, by cause.
    fn counters(&self) -> &Counters {
        self.dyn_nand().counters()
    }

    /// The erase counts. Reads those of all blocks.
    fn wear(&self) -> Wear;

    /// Begins a request of the host at this time; see [`Nand::issue_at`].
    #[inline]
    fn issue_at(&mut self, ns: u64) {
        self.dyn_nand_mut().issue_at(ns);
    }

    /// When the request ends; see [`Nand::end_ns`].
    #[inline]
    fn end_ns(&self) -> u64 {
        self.dyn_nand().end_ns()
    }

    /// The memory of the layer and of the simulator below, in bytes, without pages' contents.
    fn ram_bytes(&self) -> u64;

    /// Checks every invariant of the layer against a recount: every valid page has one owner,
    /// counts equal a recount, free, open and full blocks are all blocks. Reads the whole map.
    ///
    /// # Errors
    /// [`Error::Invariant`], with the first one that does not hold.
    fn check(&self) -> Result<()>;
}

/// A transaction of a [`Transactional`] layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxId(pub u32);

/// A translation layer with transactions. What isolation it has is the layer's to say.
pub trait Transactional: Ftl {
    /// Begins a transaction.
    ///
    /// # Errors
    /// A limit of the layer.
    fn begin(&mut self) -> Result<TxId>;

    /// Reads a logical page as the transaction sees it, as [`Ftl::read`].
    ///
    /// # Errors
    /// An unknown transaction, and those of [`Ftl::read`].
    fn read_in(&mut self, tx: TxId, lpn: Lpn, data: &mut [u8]) -> Result<bool>;

    /// Writes a logical page; others see it after the commit.
    ///
    /// # Errors
    /// An unknown transaction, a limit of the layer, and those of [`Ftl::write`].
    fn write_in(&mut self, tx: TxId, lpn: Lpn, data: &[u8]) -> Result<()>;

    /// Makes the writes of a transaction visible and durable, all or none.
    ///
    /// # Errors
    /// An unknown transaction, a full device, the power off.
    fn commit(&mut self, tx: TxId) -> Result<()>;

    /// Drops the writes of a transaction.
    ///
    /// # Errors
    /// An unknown transaction.
    fn abort(&mut self, tx: TxId) -> Result<()>;

    /// Ends a transaction that wrote nothing.
    ///
    /// # Errors
    /// An unknown transaction, or one that wrote.
    fn end(&mut self, tx: TxId) -> Result<()>;
}

/// Refuses a logical page that a device of `limit` pages does not have.
pub(crate) fn require_lpn(lpn: Lpn, limit: u32) -> Result<()> {
    if lpn.0 < limit {
        return Ok(());
    }
    Err(Error::OutOfRange { what: "logical page", number: lpn.0.into(), limit: limit.into() })
}

/// Refuses a buffer that is not one page long, where the flash keeps data.
pub(crate) fn require_length<N: Nand>(nand: &N, found: usize) -> Result<()> {
    let expected = nand.geometry().page_size() as usize;
    if found == expected || !nand.keeps_data() {
        return Ok(());
    }
    Err(Error::Length { expected, found })
}
