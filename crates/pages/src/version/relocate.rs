//! Relocation: moved pages get their new places in the maps of all versions.
//!
//! Versions share nodes. A node that leads to a moved page is copied once, whichever versions share
//! it, so that they share the copy afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use crate::place::Sector;
use crate::version::map::{Map, child_pages};
use crate::version::mapping::{Entry, Mapping};
use crate::version::tree::{INNER, LEAF, Leaf, Node};

/// A page that was copied from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Move {
    pub(crate) page: u32,
    pub(crate) from: Sector,
    pub(crate) to: Sector,
    /// The checksum of the copied page. The place may hold another version of the page by now, with
    /// another checksum.
    pub(crate) crc: u32,
}

impl Node {
    /// Its address in memory: the same for all maps that share it.
    pub(crate) fn address(&self) -> *const () {
        match self {
            Self::Leaf(leaf) => Arc::as_ptr(leaf).cast(),
            Self::Inner(inner) => Arc::as_ptr(inner).cast(),
        }
    }
}

/// The places that are to be freed.
pub(crate) type Evicted<'a> = &'a dyn Fn(Sector) -> bool;

/// Puts the new places into maps.
///
/// Invariant: `moves` ascend, and no two are from one place; `is_needed` says of each whether a map
/// had what was copied at its old place.
pub(crate) struct Relocation<'a> {
    moves: &'a [Move],
    /// Nodes at these places become copies, which are written to new places.
    evicted: Option<Evicted<'a>>,
    pub(crate) is_needed: Vec<bool>,
    /// The copy of a node, by the node's address; `None` where it stays. The nodes outlive this.
    known: HashMap<*const (), Option<Node>>,
}

impl<'a> Relocation<'a> {
    pub(crate) fn new(moves: &'a [Move], evicted: Option<Evicted<'a>>) -> Self {
        Self { moves, evicted, is_needed: vec![false; moves.len()], known: HashMap::new() }
    }

    /// Whether a node is where none is to be.
    fn is_evicted(&self, node: &Node) -> bool {
        let at = node.home().get().map(|at| at.sector);
        self.evicted.zip(at).is_some_and(|(is_evicted, at)| is_evicted(at))
    }

    /// The map with the new places; `None` where it has none of the old.
    pub(crate) fn map(&mut self, map: &Map) -> Option<Map> {
        let top = self.node(map.top.as_ref()?, map.height, 0, 0..self.moves.len())?;
        Some(Map { top: Some(top), height: map.height })
    }

    /// A node that maps pages from `first` on; `range` are the moves that may be of its pages.
    fn node(
        &mut self,
        node: &Node,
        height: u32,
        first: u64,
        range: std::ops::Range<usize>,
    ) -> Option<Node> {
        let address = node.address();
        if let Some(known) = self.known.get(&address) {
            return known.clone();
        }
        let new = match node {
            Node::Leaf(leaf) => {
                let copy = self.is_evicted(node).then(|| (**leaf).clone());
                self.leaf(leaf, copy, first, range).map(|leaf| Node::Leaf(leaf.into()))
            }
            Node::Inner(inner) => {
                let span = child_pages(height);
                let mut copy = self.is_evicted(node).then(|| (**inner).clone());
                for (index, start) in (0..INNER).zip((first..).step_by(span as usize)) {
                    let Some(Some(child)) = inner.children.get(index) else { continue };
                    let below = self.within(range.clone(), start, start + span);
                    if below.is_empty() && self.evicted.is_none() {
                        continue;
                    }
                    if let Some(new) = self.node(child, height.saturating_sub(1), start, below) {
                        let copy = copy.get_or_insert_with(|| (**inner).clone());
                        copy.children[index] = Some(new);
                    }
                }
                copy.map(|copy| Node::Inner(Arc::new(copy)))
            }
        };
        self.known.insert(address, new.clone());
        new
    }

    /// The moves of `range` that are of pages from `start` to `end`.
    fn within(
        &self,
        range: std::ops::Range<usize>,
        start: u64,
        end: u64,
    ) -> std::ops::Range<usize> {
        let moves = &self.moves[range.clone()];
        let from = moves.partition_point(|step| u64::from(step.page) < start);
        let to = moves.partition_point(|step| u64::from(step.page) < end);
        range.start + from..range.start + to
    }

    fn leaf(
        &mut self,
        leaf: &Leaf,
        mut copy: Option<Leaf>,
        first: u64,
        range: std::ops::Range<usize>,
    ) -> Option<Leaf> {
        for at in self.within(range, first, first + LEAF as u64) {
            let step = self.moves[at];
            let index = (u64::from(step.page) - first) as usize;
            let Mapping { entry, delta } = leaf.get(index);
            if (entry.slot, entry.crc) != (step.from, step.crc) {
                continue;
            }
            self.is_needed[at] = true;
            let entry = Entry { slot: step.to, ..entry };
            copy.get_or_insert_with(|| leaf.clone()).set(index, Mapping { entry, delta });
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::tree::{NodeRef, Releases};
    use proptest::prelude::*;

    fn page() -> impl Strategy<Value = u32> {
        prop_oneof![0..20u32, 500..530u32, 131_060..131_090u32]
    }

    fn nodes(node: &Node, seen: &mut Vec<*const ()>) {
        seen.push(node.address());
        if let Node::Inner(inner) = node {
            inner.children.iter().flatten().for_each(|child| nodes(child, seen));
        }
    }

    fn distinct(maps: &[Map]) -> usize {
        let mut seen = Vec::new();
        maps.iter().filter_map(|map| map.top.as_ref()).for_each(|top| nodes(top, &mut seen));
        seen.sort_unstable();
        seen.dedup();
        seen.len()
    }

    proptest! {
        /// Every version has every page where it was, or where that has moved to, and what versions
        /// shared they share.
        #[test]
        fn all_versions_get_the_new_places(
            history in prop::collection::vec((page(), 1..60u32, any::<bool>()), 1..60),
            from in prop::collection::btree_set(1..60u32, 0..30),
            other in 0..60u32,
        ) {
            let (mut map, mut versions) = (Map::default(), Vec::new());
            let place = |page: u32, n: u32| Sector(page * 64 + n);
            let mut pages = Vec::new();
            for (page, n, is_kept) in history {
                let entry = Entry { slot: place(page, n), crc: n };
                map.set(page, Mapping { entry, delta: None });
                pages.push(page);
                if is_kept {
                    versions.push(map.clone());
                }
            }
            versions.push(map);
            pages.sort_unstable();
            pages.dedup();
            let step = |page: u32, n: u32| {
                let (from, to) = (place(page, n), Sector(place(page, n).0 + (1 << 31)));
                // What was copied is not there any more.
                Move { page, from, to, crc: if n == other { 0 } else { n } }
            };
            let moves = pages.iter().flat_map(|page| from.iter().map(move |n| step(*page, *n)));
            let moves: Vec<Move> = moves.collect();
            let mut relocation = Relocation::new(&moves, None);
            let moved: Vec<Map> = versions.iter()
                .map(|map| relocation.map(map).unwrap_or_else(|| map.clone())).collect();
            prop_assert_eq!(distinct(&moved), distinct(&versions));
            let mut needed = vec![false; moves.len()];
            for (before, after) in versions.iter().zip(&moved) {
                for page in &pages {
                    let mut expected = before.get(*page);
                    let entry = (expected.entry.slot, expected.entry.crc);
                    let step = moves.iter().position(|step| (step.from, step.crc) == entry);
                    if let Some(at) = step {
                        expected.entry.slot = moves[at].to;
                        needed[at] = true;
                    }
                    prop_assert_eq!(after.get(*page), expected);
                }
            }
            prop_assert_eq!(relocation.is_needed, needed);
        }

        /// Nodes in freed places are copied, and nothing else but the nodes that lead to them.
        #[test]
        fn nodes_that_are_evicted_are_written_anew(
            pages in prop::collection::btree_set(page(), 1..60),
            limit in 0..8u32,
        ) {
            let mut map = Map::default();
            for page in pages {
                let entry = Entry { slot: Sector(page + 1), crc: page };
                map.set(page, Mapping { entry, delta: None });
            }
            let releases = Releases::default();
            let mut all = Vec::new();
            homes(map.top.as_ref().unwrap(), &mut |node| all.push(node.clone()));
            for (sector, node) in (0..).map(Sector).zip(&all) {
                node.home().set(NodeRef { sector, ..NodeRef::default() }, &releases);
            }
            let is_evicted = |at| at >= Sector(limit);
            let moved = Relocation::new(&[], Some(&is_evicted)).map(&map);
            let is_any = all.len() as u32 > limit;
            prop_assert_eq!(moved.is_some(), is_any);
            let Some(moved) = moved else { return Ok(()) };
            prop_assert!(Relocation::new(&[], Some(&is_evicted)).map(&moved).is_none());
            let mut kept = 0;
            homes(moved.top.as_ref().unwrap(), &mut |node| {
                kept += u32::from(node.home().get().is_some());
            });
            let stays = |node: &&Node| {
                let mut is_before = true;
                homes(node, &mut |below| {
                    is_before &= below.home().get().unwrap().sector < Sector(limit);
                });
                is_before
            };
            prop_assert_eq!(kept, all.iter().filter(stays).count() as u32);
            let mut before = Vec::new();
            let visited: Result<(), ()> = map.for_each(&mut |page, mapping| {
                before.push((page, mapping.clone()));
                Ok(())
            });
            prop_assert_eq!(visited, Ok(()));
            let visited: Result<(), ()> = moved.for_each(&mut |page, mapping| {
                assert_eq!(before.remove(0), (page, mapping.clone()));
                Ok(())
            });
            prop_assert_eq!((visited, before.len()), (Ok(()), 0));
        }
    }

    /// Visits a node and all below it.
    fn homes(node: &Node, visit: &mut impl FnMut(&Node)) {
        visit(node);
        if let Node::Inner(inner) = node {
            inner.children.iter().flatten().for_each(|child| homes(child, visit));
        }
    }
}
