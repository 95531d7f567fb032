//! NAND flash, simulated, and the translation layers (FTLs) that make a disk of it.
//!
//! Reading order: [`mod@error`]; [`nand`] (the trait [`Nand`], its geometry and timing, and the
//! simulator); [`ftl`] (the traits [`Ftl`] and [`Transactional`], the pool of blocks, garbage
//! collection, wear levelling, and the layers); [`closed_form`] (what the theory expects of them);
//! [`placement`] (streams of writes); [`trace`] and [`workload`] (operations of a host), [`run`]
//! (their loop), [`report`], [`mod@simulate`] (a whole simulation, from settings to report);
//! [`ssd`] (a store's files on a simulated SSD, or recorded as a trace); [`planted`] (bugs that the
//! tests must find).
//!
//! Two kinds of simulation share all code. One keeps no data, and takes 8 to 12 bytes of memory for
//! each flash page: it measures write amplification, wear and latency at real sizes. The other
//! keeps pages and their spare areas, so that a layer can be recovered after a power cut.
//!
//! Not modelled: retention, read disturb, error correction and its retries, program suspend,
//! pseudo-SLC caches, operations over several planes at once.

pub mod closed_form;
pub mod error;
pub mod ftl;
pub mod nand;
pub mod placement;
pub mod planted;
mod random;
pub mod report;
pub mod run;
pub mod simulate;
pub mod ssd;
pub mod trace;
pub mod workload;

pub use error::{Error, Result};
pub use ftl::{Ftl, Transactional};
pub use nand::{Geometry, Nand, NandSim, Timing};
