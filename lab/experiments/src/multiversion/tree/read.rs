//! Lookups: from the root of a version down, to what covers the key in it. Nothing is locked,
//! because what is visible does not move.

use super::super::node::{Entries, Item};
use super::super::pages::PageId;
use super::super::{Key, Value, Version};
use super::Tree;
use crate::Result;

impl Tree {
    /// The value of a key in a version.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn get(&mut self, key: Key, version: Version) -> Result<Option<Value>> {
        match self.root_of(version)? {
            Some(root) => self.value_below(root, key, version),
            None => Ok(None),
        }
    }

    /// The same, from a page down.
    pub(super) fn value_below(
        &mut self,
        mut page: PageId,
        key: Key,
        version: Version,
    ) -> Result<Option<Value>> {
        loop {
            let node = self.pool.read(page)?;
            match &node.entries {
                Entries::Leaf(items) => return Ok(visible(items, key, version)),
                _ => page = node.child(key, version)?,
            }
        }
    }

    /// All keys and values of a version, in order.
    ///
    /// # Errors
    /// When a page cannot be read.
    pub fn range(&mut self, version: Version) -> Result<Vec<(Key, Value)>> {
        let mut found = Vec::new();
        let mut pages: Vec<PageId> = self.root_of(version)?.into_iter().collect();
        while let Some(page) = pages.pop() {
            let node = self.pool.read(page)?;
            if let Entries::Leaf(items) = &node.entries {
                let seen = items.iter().filter(|item| item.lives_in(version));
                found.extend(seen.map(|item| (item.key, item.value)));
                continue;
            }
            let covers = |born, died| born <= version && version < died;
            let routers = node.routes()?.iter().rev();
            pages.extend(routers.filter(|of| covers(of.born, of.died)).map(|of| of.child));
        }
        Ok(found)
    }
}

fn visible(items: &[Item], key: Key, version: Version) -> Option<Value> {
    let first = items.partition_point(|item| item.key < key);
    let of_key = items.get(first..)?.iter().take_while(|item| item.key == key);
    of_key.into_iter().find(|item| item.lives_in(version)).map(|item| item.value)
}
