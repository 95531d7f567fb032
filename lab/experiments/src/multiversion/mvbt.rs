//! The multiversion B+-tree (Becker et al.): every update has a version of its own.
//!
//! It has no transactions of several items. Here such a transaction is a sequence of versions, of
//! which others may see the last one, and its log is forced once, at its end.

use super::node::Layout;
use super::tree::Tree;
use super::{Key, Multiversion, Value, Version};
use crate::Result;

/// The tree.
#[derive(Debug)]
pub struct Mvbt(pub Tree);

impl Mvbt {
    /// An empty tree, with room for a number of pages in memory.
    ///
    /// # Errors
    /// When pages are too small.
    pub fn new(layout: Layout, pool_pages: usize) -> Result<Self> {
        Tree::new(layout, pool_pages).map(Self)
    }
}

impl Multiversion for Mvbt {
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }

    fn insert(&mut self, key: Key, value: Value) -> Result<()> {
        self.0.begin()?;
        self.0.insert(key, value)
    }

    fn delete(&mut self, key: Key) -> Result<()> {
        self.0.begin()?;
        self.0.delete(key).map(drop)
    }

    fn commit(&mut self) -> Result<Version> {
        self.0.commit();
        Ok(self.0.version())
    }

    fn get(&mut self, key: Key, version: Version) -> Result<Option<Value>> {
        self.0.get(key, version)
    }

    fn range(&mut self, version: Version) -> Result<Vec<(Key, Value)>> {
        self.0.range(version)
    }
}
