//! Multiversion indexes on pages that are counted: the experiments of W. G. Choi et al.,
//! "Optimization of a Multiversion Index on SSDs to Improve System Performance".
//!
//! Three indexes keep every version of every key. The multiversion B+-tree ([`mvbt`], Becker et
//! al.) and its transactional form ([`tmvbt`], Haapasalo et al.) divide keys and versions among
//! pages that are updated in place. The bulk-split tree ([`bulk`]) of the paper collects updates in
//! a head tree and merges them into sorted levels; it leaves old versions behind by one sequential
//! version split of everything.
//!
//! Reading order: [`pages`] (simulated pages, counted), [`node`] and [`limits`] (a page of a tree,
//! and when it is divided), [`tree`] (both multiversion B+-trees), [`mvbt`], [`tmvbt`], [`bulk`];
//! [`keyspace`] (the store's own, for comparison); [`workload`] and [`measure`] (one run),
//! [`judge`]; then the experiments: [`inserts`], [`mixed`], [`head_leaves`], and [`published`],
//! which compares the pages of the transactional tree with those that its authors published.

pub mod bulk;
pub mod head_leaves;
pub mod inserts;
pub mod judge;
pub mod keyspace;
pub mod limits;
pub mod measure;
pub mod mixed;
pub mod mvbt;
pub mod node;
pub mod pages;
pub mod published;
pub mod tmvbt;
pub mod tree;
pub mod workload;

#[cfg(test)]
mod oracle;

use crate::Result;

/// A key. The greatest number is no key.
pub type Key = u64;
/// A version: the number of a transaction.
pub type Version = u32;
/// A value. An index may have room for fewer bits.
pub type Value = u64;

/// The end of what still lives.
pub const OPEN: Version = Version::MAX;

/// An index that keeps all versions, one updating transaction at a time.
pub trait Multiversion {
    /// Begins a transaction.
    ///
    /// # Errors
    /// When versions have run out.
    fn begin(&mut self) -> Result<()>;

    /// Writes a key.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    fn insert(&mut self, key: Key, value: Value) -> Result<()>;

    /// Deletes a key, which need not exist.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    fn delete(&mut self, key: Key) -> Result<()>;

    /// Ends the transaction; the answer is the version in which others see it.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    fn commit(&mut self) -> Result<Version>;

    /// The value of a key in a version.
    ///
    /// # Errors
    /// When a page cannot be read.
    fn get(&mut self, key: Key, version: Version) -> Result<Option<Value>>;

    /// All keys and values of a version, in order.
    ///
    /// # Errors
    /// When a page cannot be read.
    fn range(&mut self, version: Version) -> Result<Vec<(Key, Value)>>;
}
