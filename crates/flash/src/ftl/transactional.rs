//! What the transactional layers X-FTL and MV-FTL share.
//!
//! Reading order: [`space`] (data blocks: valid pages, lanes, which block is collected), [`store`]
//! (the flash, the data blocks over it, and one sequence number for everything), [`record`] (commit
//! records: bytes), [`ring`] (commit records: blocks), [`map_store`] (the main map on flash),
//! [`levelling`] (wear of all blocks), [`scan`] (what a recovery finds), [`account`] (invariants
//! between them), [`hash`] (tables of pages).
//!
//! **What is durable.** The pages of the main map, and the commit records. A page of the map holds
//! the newest committed mapping of its logical pages as of its sequence number; records with
//! greater numbers come on top of it. Spare areas are used to find meta blocks and to check what is
//! read, not to find mappings: a page that was programmed and is in no record does not exist.
//!
//! **Erasing.** A block is erased only when no durable mapping leads to it any more that a restart
//! would use. A commit is in its record before what it replaces is invalid. What garbage collection
//! moves is in a record before the victim is erased.
//!
//! **Meta blocks.** Their number is fixed when the device is formatted, and they are found by the
//! spare area of their first page. When one is erased it changes places with the least worn erased
//! data block, so that commits wear all blocks alike.

pub(crate) mod account;
pub(crate) mod hash;
pub(crate) mod levelling;
pub(crate) mod map_store;
pub(crate) mod record;
pub(crate) mod ring;
pub(crate) mod scan;
pub(crate) mod space;
pub(crate) mod store;

use crate::error::Error;
use crate::ftl::{Options, Policy};
use crate::nand::Ppn;

/// No physical page: the logical page is not mapped.
pub(crate) const NONE: Ppn = Ppn(u32::MAX);

/// The error for a transaction that is not open.
pub(crate) fn unknown(writer: u32) -> Error {
    Error::InvalidArgument(format!("there is no transaction {writer}: begin one"))
}

/// The error for a transaction that is ended although it wrote.
pub(crate) fn wrote(writer: u32) -> Error {
    Error::InvalidArgument(format!("transaction {writer} wrote: commit or abort it"))
}

/// How data blocks are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collection {
    /// How a victim is chosen.
    pub policy: Policy,
    /// The difference in erases beyond which static wear levelling moves a block.
    pub wear_spread: u32,
    /// The seed of policies that choose at random.
    pub seed: u64,
}

impl Default for Collection {
    fn default() -> Self {
        Self::from(&Options::default())
    }
}

impl From<&Options> for Collection {
    fn from(options: &Options) -> Self {
        Self { policy: options.policy, wear_spread: options.wear_spread, seed: options.seed }
    }
}
