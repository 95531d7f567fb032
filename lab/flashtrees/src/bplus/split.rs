//! Nodes that are full: the upper half of the entries moves to a new node.

use super::{Backing, HEIGHT_MAX, Step, Tree};
use crate::error::{Error, Result};
use crate::page::Change;

impl<B: Backing> Tree<B> {
    /// Adds an entry that a full leaf does not have. `path` are the nodes above the leaf.
    pub(super) fn split_and_insert(
        &mut self,
        path: &mut Vec<Step>,
        leaf: u32,
        key: u64,
        value: u64,
    ) -> Result<()> {
        let (mut node, mut level, mut entry) = (leaf, 0, (key, value));
        while self.load(node, level)?.page.is_full() {
            let is_last = path.iter().all(|step| self.is_last_child(*step));
            let upper = self.split(node, level, entry, is_last)?;
            if path.is_empty() {
                return self.grow(node, upper);
            }
            entry = (upper.0, u64::from(upper.1));
            level += 1;
            node = path.pop().map_or(node, |step| step.node);
        }
        self.change(node, level, &Change::Put { key: entry.0, value: entry.1 })
    }

    fn is_last_child(&self, step: Step) -> bool {
        self.cache.peek(step.node).is_some_and(|frame| step.at + 1 == frame.page.len())
    }

    /// Splits a full node and adds an entry to one of the halves; answers the first key and the
    /// number of the new node. A node of the right edge of the tree that gets its greatest key is
    /// left full: keys that ascend make full nodes.
    fn split(
        &mut self,
        node: u32,
        level: u8,
        entry: (u64, u64),
        is_last: bool,
    ) -> Result<(u64, u32)> {
        let page = &self.load(node, level)?.page;
        let len = page.len();
        let place = page.search(entry.0).unwrap_or_else(|at| at);
        let middle = if is_last && place == len { len } else { len / 2 };
        let mut upper: Vec<(u64, u64)> = (middle..len).map(|at| page.entry(at)).collect();
        let cut = upper.first().map(|(key, _)| *key);
        let goes_up = place > middle || middle == len;
        if goes_up {
            upper.insert(place - middle, entry);
        }
        let first = upper.first().map_or(entry.0, |(key, _)| *key);
        let new = self.backing.allocate()?;
        self.create(new, level, &upper)?;
        if let Some(key) = cut {
            self.change(node, level, &Change::Cut { key })?;
        }
        if !goes_up {
            self.change(node, level, &Change::Put { key: entry.0, value: entry.1 })?;
        }
        Ok((first, new))
    }

    /// A new root over the old one and the node that was split off it.
    fn grow(&mut self, old: u32, upper: (u64, u32)) -> Result<()> {
        if self.height >= HEIGHT_MAX {
            return Err(Error::Full(format!("the tree has {HEIGHT_MAX} levels")));
        }
        let root = self.backing.allocate()?;
        self.create(root, self.height + 1, &[(0, old.into()), (upper.0, upper.1.into())])?;
        self.root = root;
        self.height += 1;
        Ok(())
    }
}
