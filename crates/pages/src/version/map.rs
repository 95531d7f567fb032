//! The page map of one version: a radix tree whose nodes are shared between versions.
//!
//! A version is a [`Root`]. A change copies the nodes on the path and leaves the older root as it
//! was. A reader holds a version by holding its root, and finds a page in as many steps as the tree
//! is high (one for 2 MiB of pages of 4 KiB, two for 512 MiB, three for 128 GiB).

use std::sync::Arc;

use crate::place::Sector;
use crate::version::mapping::Mapping;
use crate::version::tree::{INNER, Inner, LEAF, Leaf, Node};

const LEAF_BITS: u32 = LEAF.trailing_zeros();
const INNER_BITS: u32 = INNER.trailing_zeros();

/// A map from pages to mappings. `height` is 0 for a single leaf.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    pub(crate) top: Option<Node>,
    pub(crate) height: u32,
}

/// The number of pages that a tree of this height can map.
fn capacity(height: u32) -> u64 {
    1 << (LEAF_BITS + INNER_BITS * height).min(63)
}

/// The number of pages that one child of a node at this height maps.
pub(crate) fn child_pages(height: u32) -> u64 {
    capacity(height.saturating_sub(1))
}

impl Map {
    /// The leaf that a page belongs to.
    pub(crate) fn leaf(&self, page: u32) -> Option<&Leaf> {
        let mut page = u64::from(page);
        if page >= capacity(self.height) {
            return None;
        }
        let mut node = self.top.as_ref()?;
        let mut height = self.height;
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Inner(inner) => {
                    let span = child_pages(height);
                    node = inner.children.get((page / span) as usize)?.as_ref()?;
                    page %= span;
                    height = height.saturating_sub(1);
                }
            }
        }
    }

    pub(crate) fn get(&self, page: u32) -> Mapping {
        self.leaf(page).map(|leaf| leaf.get(page as usize % LEAF)).unwrap_or_default()
    }

    /// Maps a page anew and returns how it was mapped.
    pub(crate) fn set(&mut self, page: u32, mapping: Mapping) -> Mapping {
        while u64::from(page) >= capacity(self.height) {
            if mapping.is_hole() {
                return Mapping::default();
            }
            if let Some(top) = self.top.take() {
                let mut inner = Inner::default();
                inner.children[0] = Some(top);
                self.top = Some(Node::Inner(Arc::new(inner)));
            }
            self.height += 1;
        }
        if mapping.is_hole() && self.leaf(page).is_none() {
            return Mapping::default();
        }
        set_in(&mut self.top, self.height, u64::from(page), mapping)
    }

    /// Removes all pages from `pages` on, and calls `gone` with the slot of each that had one.
    pub(crate) fn cut(&mut self, pages: u32, gone: &mut impl FnMut(u32, &Mapping)) {
        cut_in(&mut self.top, self.height, 0, u64::from(pages), gone);
        if self.top.is_none() {
            self.height = 0;
        }
    }

    /// Calls `visit` with every page that has another slot here than in `newer`, or none there.
    pub(crate) fn for_each_lost<E>(
        &self,
        newer: &Self,
        visit: &mut impl FnMut(u32, Sector) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(top) = &self.top else { return Ok(()) };
        let other = newer.top.as_ref().filter(|_| newer.height == self.height);
        lost_in(top, other, newer, self.height, 0, visit)
    }

    /// Calls `visit` with every page that is mapped, in order.
    pub(crate) fn for_each<E>(
        &self,
        visit: &mut impl FnMut(u32, &Mapping) -> Result<(), E>,
    ) -> Result<(), E> {
        self.top.as_ref().map_or(Ok(()), |top| visit_in(top, self.height, 0, visit))
    }
}

fn set_in(node: &mut Option<Node>, height: u32, page: u64, mapping: Mapping) -> Mapping {
    if height == 0 {
        let slot = node.get_or_insert_with(|| Node::Leaf(Arc::default()));
        let Node::Leaf(leaf) = slot else { return Mapping::default() };
        let leaf = Arc::make_mut(leaf);
        let was_hole = mapping.is_hole();
        let old = leaf.set(page as usize % LEAF, mapping);
        if was_hole && leaf.is_empty() {
            *node = None;
        }
        return old;
    }
    let slot = node.get_or_insert_with(|| Node::Inner(Arc::default()));
    let Node::Inner(inner) = slot else { return Mapping::default() };
    let inner = Arc::make_mut(inner);
    let span = child_pages(height);
    let Some(child) = inner.children.get_mut((page / span) as usize) else {
        return Mapping::default();
    };
    let old = set_in(child, height - 1, page % span, mapping);
    if child.is_none() && inner.children.iter().all(Option::is_none) {
        *node = None;
    }
    old
}

fn cut_in(
    node: &mut Option<Node>,
    height: u32,
    first: u64,
    pages: u64,
    gone: &mut impl FnMut(u32, &Mapping),
) {
    let Some(there) = node else { return };
    if first >= pages {
        let mut visit = |page, mapping: &Mapping| -> Result<(), std::convert::Infallible> {
            gone(page, mapping);
            Ok(())
        };
        match visit_in(there, height, first, &mut visit) {
            Ok(()) => *node = None,
        }
        return;
    }
    if first + capacity(height) <= pages {
        return;
    }
    let is_empty = match there {
        Node::Leaf(leaf) => {
            let leaf = Arc::make_mut(leaf);
            for index in (pages - first) as usize..LEAF {
                let old = leaf.set(index, Mapping::default());
                if !old.is_hole() {
                    gone(first as u32 + index as u32, &old);
                }
            }
            leaf.is_empty()
        }
        Node::Inner(inner) => {
            let inner = Arc::make_mut(inner);
            let span = child_pages(height);
            for (child, start) in inner.children.iter_mut().zip((first..).step_by(span as usize)) {
                cut_in(child, height.saturating_sub(1), start, pages, gone);
            }
            inner.children.iter().all(Option::is_none)
        }
    };
    if is_empty {
        *node = None;
    }
}

fn visit_in<E>(
    node: &Node,
    height: u32,
    first: u64,
    visit: &mut impl FnMut(u32, &Mapping) -> Result<(), E>,
) -> Result<(), E> {
    match node {
        Node::Leaf(leaf) => {
            for index in 0..LEAF {
                let mapping = leaf.get(index);
                if !mapping.is_hole() {
                    visit(first as u32 + index as u32, &mapping)?;
                }
            }
        }
        Node::Inner(inner) => {
            let span = child_pages(height);
            for (child, start) in inner.children.iter().zip((first..).step_by(span as usize)) {
                if let Some(child) = child {
                    visit_in(child, height.saturating_sub(1), start, visit)?;
                }
            }
        }
    }
    Ok(())
}

/// `other` is the node at the same place in `newer`, where that tree has one.
fn lost_in<E>(
    node: &Node,
    other: Option<&Node>,
    newer: &Map,
    height: u32,
    first: u64,
    visit: &mut impl FnMut(u32, Sector) -> Result<(), E>,
) -> Result<(), E> {
    if other.is_some_and(|other| node.is(other)) {
        return Ok(());
    }
    match node {
        Node::Leaf(leaf) => {
            for (entry, page) in leaf.entries().iter().zip(first as u32..) {
                if entry.slot != Sector::NONE && newer.get(page).entry.slot != entry.slot {
                    visit(page, entry.slot)?;
                }
            }
        }
        Node::Inner(inner) => {
            let span = child_pages(height);
            for (index, child) in inner.children.iter().enumerate() {
                let Some(child) = child else { continue };
                let other = match other {
                    Some(Node::Inner(other)) => other.children.get(index).and_then(Option::as_ref),
                    _ => None,
                };
                let start = first + index as u64 * span;
                lost_in(child, other, newer, height.saturating_sub(1), start, visit)?;
            }
        }
    }
    Ok(())
}

/// One version of a database.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) map: Map,
    /// Bytes of a page.
    pub(crate) page_size: u32,
    /// Pages of the database.
    pub(crate) pages: u32,
}

impl Root {
    pub(crate) fn empty(page_size: u32) -> Self {
        Self { map: Map::default(), page_size, pages: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::mapping::{Delta, Entry};
    use crate::version::tree::{NodeRef, Releases};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn mapping(n: u32, delta: bool) -> Mapping {
        let delta = delta.then(|| Delta::new([n as u8].as_slice().into()));
        Mapping { entry: Entry { slot: Sector(n), crc: n }, delta }
    }

    fn contents(map: &Map) -> BTreeMap<u32, Mapping> {
        let mut all = BTreeMap::new();
        let mut visit = |page, mapping: &Mapping| -> Result<(), ()> {
            all.insert(page, mapping.clone());
            Ok(())
        };
        map.for_each(&mut visit).unwrap();
        all
    }

    fn page() -> impl Strategy<Value = u32> {
        prop_oneof![0..20u32, 500..530u32, 131_060..131_090u32, any::<u32>()]
    }

    proptest! {
        /// The tree maps as an ordinary map does, and older versions stay as they were.
        #[test]
        fn maps_as_a_map(
            ops in prop::collection::vec((0..8u8, page(), 0..5u32, any::<bool>()), 1..80),
        ) {
            let mut map = Map::default();
            let mut model = BTreeMap::new();
            let mut older = Vec::new();
            for (op, page, n, delta) in ops {
                if op == 0 {
                    let mut gone = Vec::new();
                    map.cut(page, &mut |page, old| gone.push((page, old.clone())));
                    let cut: Vec<_> = model.split_off(&page).into_iter().collect();
                    prop_assert_eq!(gone, cut);
                } else {
                    let new = mapping(n, delta);
                    let old = map.set(page, new.clone());
                    let was = model.remove(&page);
                    if !new.is_hole() {
                        model.insert(page, new);
                    }
                    prop_assert_eq!(old, was.unwrap_or_default());
                }
                prop_assert_eq!(map.get(page), model.get(&page).cloned().unwrap_or_default());
                if op == 7 {
                    older.push((map.clone(), model.clone()));
                }
            }
            older.push((map, model));
            for (map, model) in older {
                prop_assert_eq!(contents(&map), model.clone());
                prop_assert_eq!(map.top.is_none(), model.is_empty());
            }
        }
    }

    #[test]
    fn places_come_back_when_the_last_root_is_gone() {
        let releases = Releases::default();
        let mut map = Map::default();
        map.set(3, mapping(1, false));
        let at = NodeRef { sector: Sector(9), ..NodeRef::default() };
        map.top.as_ref().unwrap().home().set(at, &releases);
        let old = map.clone();
        map.set(3, mapping(2, false));
        assert!(map.top.as_ref().unwrap().home().get().is_none());
        assert!(releases.lock().is_empty());
        drop(old);
        assert_eq!(*releases.lock(), [Sector(9)]);
    }
}
