//! Pages that have moved get their new places in the maps of all versions.
//!
//! Versions share nodes. A node that leads to a page which moved is copied once, whichever versions
//! share it, so that they share the copy afterwards.

use std::collections::HashMap;
use std::sync::Arc;

use crate::map::{Entry, INNER, LEAF, Leaf, Map, Mapping, Node, child_pages};
use crate::space::Sector;

/// A page that was copied from one place to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Move {
    pub(crate) page: u32,
    pub(crate) from: Sector,
    pub(crate) to: Sector,
}

impl Node {
    /// Where it is in memory: the same for all who share it.
    pub(crate) fn address(&self) -> *const () {
        match self {
            Self::Leaf(leaf) => Arc::as_ptr(leaf).cast(),
            Self::Inner(inner) => Arc::as_ptr(inner).cast(),
        }
    }
}

/// Puts the new places into maps.
///
/// Invariant: `moves` ascend, and no two are from one place; `is_needed` says of each whether a map
/// had the page at its old place.
pub(crate) struct Relocation<'a> {
    moves: &'a [Move],
    pub(crate) is_needed: Vec<bool>,
    /// What became of a node, by its address; `None` where it stays. The nodes outlive this.
    known: HashMap<*const (), Option<Node>>,
}

impl<'a> Relocation<'a> {
    pub(crate) fn new(moves: &'a [Move]) -> Self {
        Self { moves, is_needed: vec![false; moves.len()], known: HashMap::new() }
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
            Node::Leaf(leaf) => self.leaf(leaf, first, range).map(|leaf| Node::Leaf(leaf.into())),
            Node::Inner(inner) => {
                let span = child_pages(height);
                let mut copy = None;
                for (index, start) in (0..INNER).zip((first..).step_by(span as usize)) {
                    let Some(Some(child)) = inner.children.get(index) else { continue };
                    let below = self.within(range.clone(), start, start + span);
                    if below.is_empty() {
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

    fn leaf(&mut self, leaf: &Leaf, first: u64, range: std::ops::Range<usize>) -> Option<Leaf> {
        let mut copy = None;
        for at in self.within(range, first, first + LEAF as u64) {
            let step = self.moves[at];
            let index = (u64::from(step.page) - first) as usize;
            let Mapping { entry, delta } = leaf.get(index);
            if entry.slot != step.from {
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
                Move { page, from: place(page, n), to: Sector(place(page, n).0 + (1 << 31)) }
            };
            let moves = pages.iter().flat_map(|page| from.iter().map(move |n| step(*page, *n)));
            let moves: Vec<Move> = moves.collect();
            let mut relocation = Relocation::new(&moves);
            let moved: Vec<Map> = versions.iter()
                .map(|map| relocation.map(map).unwrap_or_else(|| map.clone())).collect();
            prop_assert_eq!(distinct(&moved), distinct(&versions));
            let mut needed = vec![false; moves.len()];
            for (before, after) in versions.iter().zip(&moved) {
                for page in &pages {
                    let mut expected = before.get(*page);
                    let step = moves.iter().position(|step| step.from == expected.entry.slot);
                    if let Some(at) = step {
                        expected.entry.slot = moves[at].to;
                        needed[at] = true;
                    }
                    prop_assert_eq!(after.get(*page), expected);
                }
            }
            prop_assert_eq!(relocation.is_needed, needed);
        }
    }
}
