//! root*: the root of every version.
//!
//! Pages list roots by their first versions; a root holds until the next one. The current root and
//! the first version of each such page are in memory, so that a lookup in the past reads one of
//! these pages.

use super::super::node::{Entries, Node, Root, unlike};
use super::super::pages::PageId;
use super::super::{Version, node::Layout};
use super::Tree;
use crate::Result;

/// The current root, and where the others are listed.
#[derive(Clone, Debug)]
pub struct Roots {
    current: Option<PageId>,
    /// The version from which it is the root.
    from: Version,
    pages: Vec<(Version, PageId)>,
}

impl Roots {
    /// No root.
    pub const fn new() -> Self {
        Self { current: None, from: 0, pages: Vec::new() }
    }

    /// The root of the current version.
    pub const fn current(&self) -> Option<PageId> {
        self.current
    }

    /// How many pages list roots.
    pub const fn pages(&self) -> usize {
        self.pages.len()
    }
}

impl Tree {
    /// Makes a page the root from the active version on.
    pub(super) fn set_root(&mut self, page: Option<PageId>) -> Result<()> {
        let root = Root { from: self.active, page };
        let is_full = match self.roots.pages.last().copied() {
            Some((_, last)) => self.list(last, root)?,
            None => true,
        };
        if is_full {
            let mut node = Node::roots(self.active);
            node.entries = Entries::Roots(vec![root]);
            let id = self.create(node)?;
            self.roots.pages.push((self.active, id));
        }
        (self.roots.current, self.roots.from) = (page, self.active);
        Ok(())
    }

    /// Adds a root to a page, in place of one of the same version; says whether it had no room.
    fn list(&mut self, page: PageId, root: Root) -> Result<bool> {
        let layout: Layout = self.layout;
        let node = self.pool.change(page)?;
        let capacity = layout.limits(node.level).capacity;
        let Entries::Roots(roots) = &mut node.entries else { return Err(unlike("list of roots")) };
        let is_full = roots.len() >= capacity;
        match roots.last_mut() {
            Some(last) if last.from == root.from => *last = root,
            _ if is_full => return Ok(true),
            _ => roots.push(root),
        }
        Ok(false)
    }

    /// The root of a version.
    pub(super) fn root_of(&mut self, version: Version) -> Result<Option<PageId>> {
        if version >= self.roots.from {
            return Ok(self.roots.current);
        }
        let behind = self.roots.pages.partition_point(|(from, _)| *from <= version);
        let page = behind.checked_sub(1).and_then(|at| self.roots.pages.get(at)).copied();
        let Some((_, page)) = page else { return Ok(None) };
        let Entries::Roots(roots) = &self.pool.read(page)?.entries else {
            return Err(unlike("list of roots"));
        };
        let behind = roots.partition_point(|root| root.from <= version);
        Ok(behind.checked_sub(1).and_then(|at| roots.get(at)).and_then(|root| root.page))
    }
}
