//! Everything in the file, counted page by page; and, in tests, the invariants.

use super::super::node::Entries;
use super::super::pages::pool::Codec;
use super::Tree;
use crate::Result;

/// The pages of a tree, and what is in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// All pages, with those that list roots.
    pub pages: u64,
    /// The leaves.
    pub leaves: u64,
    /// Items in leaves, copies with them, marks of deletion not.
    pub items: u64,
    /// Leaf entries that take space.
    pub entries: u64,
    /// The height of the current root; 0 of an empty tree.
    pub height: u64,
    /// Pages that list roots.
    pub roots: u64,
}

impl Tree {
    /// Counts everything. What is in memory is written first.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    pub fn survey(&mut self) -> Result<Survey> {
        self.flush()?;
        let height = match self.roots.current() {
            Some(root) => u64::from(self.pool.read(root)?.level) + 1,
            None => 0,
        };
        let (file, layout) = self.pool.parts();
        let roots = self.roots.pages() as u64;
        let mut survey = Survey { pages: file.pages(), height, roots, ..Survey::default() };
        for bytes in file.all() {
            let node = layout.decode(bytes)?;
            if let Entries::Leaf(items) = &node.entries {
                survey.leaves += 1;
                survey.items += items.len() as u64;
                survey.entries += node.slots(layout.form) as u64;
            }
        }
        Ok(survey)
    }

    /// The items of all leaves, dead ones too, in no order.
    ///
    /// # Errors
    /// When a page cannot be read or written.
    pub fn items(&mut self) -> Result<Vec<super::Item>> {
        self.flush()?;
        let (file, layout) = self.pool.parts();
        let mut found = Vec::new();
        for bytes in file.all() {
            let node = layout.decode(bytes)?;
            if let Entries::Leaf(items) = node.entries {
                let cut = |mut item: super::Item| {
                    item.end = item.end.min(node.died);
                    item
                };
                found.extend(items.into_iter().map(cut));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod check {
    use super::super::super::node::KEY_END;
    use super::super::super::{Key, OPEN};
    use super::*;

    impl Tree {
        /// Checks the invariants of the current version.
        pub(in super::super::super) fn check(&mut self) {
            let Some(root) = self.roots.current() else { return };
            let root_level = self.pool.read(root).unwrap().level;
            let mut pages = vec![(root, 0, KEY_END, root_level)];
            while let Some((page, low, high, level)) = pages.pop() {
                let node = self.pool.read(page).unwrap().clone();
                let limits = self.layout.limits(node.level);
                assert_eq!((node.low, node.high, node.level), (low, high, level), "page {page}");
                assert_eq!(node.died, OPEN);
                assert!(node.slots(self.layout.form) <= limits.capacity);
                let least = match (page == root, node.level) {
                    (true, 0) => 1,
                    (true, _) => 2,
                    _ => limits.min_live,
                };
                assert!(node.live() >= least, "page {page} has {} live", node.live());
                if node.born == self.active {
                    assert_eq!(node.live(), node.slots(self.layout.form));
                }
                let mut next: Key = low;
                if let Entries::Index(routers) = &node.entries {
                    for router in routers.iter().filter(|of| of.died == OPEN) {
                        assert_eq!(router.low, next);
                        next = router.high;
                        pages.push((router.child, router.low, router.high, level - 1));
                    }
                    assert_eq!(next, high);
                }
            }
        }
    }
}
