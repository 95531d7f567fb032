//! Nodes that are nearly empty: they are merged with a neighbour.

use super::{Backing, Step, Tree};
use crate::error::Result;
use crate::page::Change;

impl<B: Backing> Tree<B> {
    /// Merges a node that lost an entry, and those above it, where that is due.
    pub(super) fn shrink(&mut self, path: &[Step], leaf: u32) -> Result<()> {
        let (mut node, mut level) = (leaf, 0);
        for step in path.iter().rev() {
            let is_low = self.load(node, level)?.page.len() * 4 < self.layout.capacity(level);
            if !is_low || !self.merge(*step, level)? {
                break;
            }
            node = step.node;
            level += 1;
        }
        self.lower_root()
    }

    /// Merges the child at a step with its neighbour, if both fit; answers whether it did.
    fn merge(&mut self, step: Step, level: u8) -> Result<bool> {
        let parent = &self.load(step.node, level + 1)?.page;
        let left_at = if step.at + 1 < parent.len() { step.at } else { step.at.saturating_sub(1) };
        if left_at + 1 >= parent.len() {
            return Ok(false);
        }
        let (left, (separator, right)) = (parent.value(left_at) as u32, parent.entry(left_at + 1));
        let right = right as u32;
        let moved: Vec<(u64, u64)> = self.load(right, level)?.page.entries().collect();
        let fits = self.layout.capacity(level) * 4 / 5;
        if !moved.is_empty() && self.load(left, level)?.page.len() + moved.len() > fits {
            return Ok(false);
        }
        for (key, value) in moved {
            self.change(left, level, &Change::Put { key, value })?;
        }
        self.change(step.node, level + 1, &Change::Remove { key: separator })?;
        self.cache.remove(right);
        self.backing.free(right)?;
        Ok(true)
    }

    fn lower_root(&mut self) -> Result<()> {
        while self.height > 0 {
            let (old, height) = (self.root, self.height);
            let page = &self.load(old, height)?.page;
            if page.len() != 1 {
                break;
            }
            self.root = page.value(0) as u32;
            self.height -= 1;
            self.cache.remove(old);
            self.backing.free(old)?;
        }
        Ok(())
    }
}
