//! The check of a tree: all its pages, its order, and its counts.

use alloc::vec::Vec;

use crate::buffer::{Prefix, SubtreeId};
use crate::chip::{Chip, PageNo};
use crate::error::{Error, Result};
use crate::page::{self, Kind};
use crate::tree::{LaTree, has_subtrees};

/// What a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Nodes.
    pub nodes: u64,
    /// Leaves among them.
    pub leaves: u64,
    /// Pages of buffers.
    pub fragment_pages: u64,
    /// Levels of the tree.
    pub levels: u8,
}

/// A node that is to be checked, and the keys that it may have.
struct Visit {
    at: PageNo,
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl<C: Chip> LaTree<C> {
    /// Reads the whole tree: every page has a correct checksum, levels and orders hold, keys are in
    /// the ranges of their nodes and buffers, every subtree is reached once, and the pages in use
    /// are those that are counted. Cost: a read for each page.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Invariant`] for what is wrong; errors of the chip.
    pub fn check(&mut self) -> Result<Checked> {
        self.guarded(Self::check_all)
    }

    fn check_all(&mut self) -> Result<Checked> {
        let mut checked =
            Checked { levels: self.table.get(self.root)?.level, ..Checked::default() };
        let mut visits = Vec::new();
        let mut reached = 0;
        self.visit_subtree(self.root, Vec::new(), None, &mut visits, &mut checked)?;
        while let Some(visit) = visits.pop() {
            reached += u64::from(self.check_node(&visit, &mut visits, &mut checked)?);
        }
        if reached + 1 != self.table.len() as u64 {
            return Err(Error::Invariant("every subtree is reached once"));
        }
        if checked.leaves != self.stats.leaves {
            return Err(Error::Invariant("leaves are counted"));
        }
        let pages = checked.nodes + checked.fragment_pages + self.log.pages.len() as u64;
        if pages != self.flash.space.live_pages() {
            return Err(Error::Invariant("pages in use are counted"));
        }
        Ok(checked)
    }

    /// Checks a buffer and adds the root of its subtree to what is checked next.
    fn visit_subtree(
        &mut self,
        id: SubtreeId,
        low: Vec<u8>,
        high: Option<Vec<u8>>,
        visits: &mut Vec<Visit>,
        checked: &mut Checked,
    ) -> Result<()> {
        let is_in = |key: &[u8]| key >= &low[..] && high.as_deref().is_none_or(|high| key < high);
        let subtree = self.table.get(id)?;
        if let Some(buffer) = &subtree.buffer {
            if !buffer.part.iter().all(|entry| is_in(entry.0)) {
                return Err(Error::Invariant("a buffer has keys of its subtree"));
            }
            for page in buffer.all_pages() {
                let bytes = self.flash.read(page.at, Kind::Fragment)?;
                let keys: Vec<_> =
                    page::entries(page::payload(&bytes)).map(|entry| entry.0).collect();
                let is_sound = keys.is_sorted_by(|a, b| a < b)
                    && keys.iter().all(|key| is_in(key))
                    && keys.first().is_some_and(|key| Prefix::of(key) == page.prefix);
                if !is_sound {
                    let what = "it has keys that are not in order or of another subtree";
                    return Err(Error::Damaged { page: page.at, what });
                }
                checked.fragment_pages += 1;
            }
        }
        visits.push(Visit { at: subtree.root, level: subtree.level, low, high });
        Ok(())
    }

    /// Checks a node; answers how many subtrees are below it.
    fn check_node(
        &mut self,
        visit: &Visit,
        visits: &mut Vec<Visit>,
        checked: &mut Checked,
    ) -> Result<u32> {
        checked.nodes += 1;
        checked.leaves += u64::from(visit.level == 1);
        let damaged = |what| Error::Damaged { page: visit.at, what };
        let node = self.flash.read(visit.at, Kind::Node)?;
        if page::require(&node, visit.at, Kind::Node)?.level != visit.level {
            return Err(damaged("it is a node of another level"));
        }
        let entries: Vec<_> = page::entries(page::payload(&node)).collect();
        if entries.is_empty() || !entries.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(damaged("its keys do not ascend"));
        }
        let is_in = |key: &[u8]| {
            key >= &visit.low[..] && visit.high.as_deref().is_none_or(|high| key < high)
        };
        let skipped = usize::from(visit.level > 1);
        if !entries.iter().skip(skipped).all(|entry| is_in(entry.0)) {
            return Err(damaged("it has keys of another node"));
        }
        if visit.level == 1 {
            return Ok(0);
        }
        let mut subtrees = 0;
        for (index, (key, value)) in entries.iter().enumerate() {
            let low = if index == 0 { visit.low.clone() } else { key.to_vec() };
            let next = entries.get(index + 1).map(|entry| entry.0.to_vec());
            let high = next.or_else(|| visit.high.clone());
            let child = page::child(*value);
            if has_subtrees(visit.level, self.k()) {
                subtrees += 1;
                if self.table.get(SubtreeId(child))?.level != visit.level - 1 {
                    return Err(damaged("its child is a subtree of another level"));
                }
                self.visit_subtree(SubtreeId(child), low, high, visits, checked)?;
            } else {
                visits.push(Visit { at: PageNo(child), level: visit.level - 1, low, high });
            }
        }
        Ok(subtrees)
    }
}
