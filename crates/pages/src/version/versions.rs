//! The readable versions, and the slots that only they need: MV-FTL's list of committed diffs.
//!
//! After D. Lee, M. Shin, W. Choi, H. Roh, S. Park, "MV-FTL: An FTL That Provides Page-Level
//! Multi-Version Management" (IEEE TKDE), sections 3.4 and 3.5. The paper keeps for every committed
//! transaction the mappings that it made, looks a page up from its version backwards (Algorithm 2),
//! and purges a version without readers by moving its mappings into the main map, where it is the
//! oldest, or into the next version's (Algorithm 3). Here every version has a map of its own that
//! shares nearly all nodes with its neighbours, which gives the same answer in a few steps. What is
//! kept for every version is the other side of its diff: the slots that it **replaced**. Its
//! predecessors still need those slots. Purging moves these lists, never data. A slot dies here as
//! soon as no version has it; in the paper a page that the main map holds under the oldest diff
//! dies one purge later.
//!
//! Invariants:
//! - the list is never empty; its last version, the tail, is the newest and is never purged.
//! - every version but the tail has a reader. A tail without readers is examined again when a
//!   new commit displaces it.
//! - `replaced` of a version has an entry for each page whose slot differs, or in between
//!   differed, from the slot in the version before it in the list: the slot which that version has,
//!   or that it has none. The first version's is empty.
//! - a slot is in `dead` once, when no version in the list has it any more.
//!
//! Where several processes have a store open, a version without readers here may have some
//! elsewhere: versions are then purged by a record of the log alone ([`Versions::purge_except`]),
//! so that all processes have the same dead slots. Until then, a version that has no readers here
//! is kept without its root.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use crate::place::Sector;
use crate::planted::{self, Bug};
use crate::version::map::Root;
use crate::version::mapping::Entry as Mapped;
use crate::version::relocate::{Evicted, Move, Relocation};
use crate::version::view::{Current, View};

/// The slots that pages had before a version gave them others; [`Sector::NONE`] for those that had
/// none.
pub(crate) type Replaced = HashMap<u32, Sector>;

#[derive(Debug)]
struct Version {
    /// None where it has no readers here, and is kept for those of other processes.
    root: Option<Arc<Root>>,
    pages: u32,
    page_size: u32,
    /// The place from which readers take the root, where pages move; made for the first reader.
    current: Option<Current>,
    readers: u64,
    replaced: Replaced,
}

impl Version {
    fn new(root: Arc<Root>, readers: u64, replaced: Replaced) -> Self {
        let (pages, page_size) = (root.pages, root.page_size);
        Self { root: Some(root), pages, page_size, current: None, readers, replaced }
    }

    /// A way to its root for one more reader, if it has one.
    fn view(&mut self, pages_move: bool) -> Option<View> {
        let root = self.root.as_ref()?;
        self.readers += 1;
        if !pages_move {
            return Some(View::Fixed(Arc::clone(root)));
        }
        let make = || Current::new(RwLock::new(Arc::clone(root)));
        Some(View::Moving(Arc::clone(self.current.get_or_insert_with(make))))
    }
}

/// The list of committed versions.
#[derive(Debug)]
pub(crate) struct Versions {
    list: BTreeMap<u64, Version>,
    dead: Vec<Sector>,
    /// The newest version: the last of the list.
    tail: (u64, Arc<Root>),
    /// Whether garbage collection moves pages.
    pages_move: bool,
    /// Whether versions are purged by a record alone.
    are_shared: bool,
    /// The number of slots that were replaced since versions were purged by a record.
    replaced_since: usize,
    /// Versions that were read here when the store was loaded again, and are not in the list.
    apart: BTreeMap<u64, Version>,
}

/// The result of moving pages.
pub(crate) struct Relocated {
    /// Whether a version had the page at its old place.
    pub(crate) is_needed: Vec<bool>,
    /// The roots that lead to the old places.
    pub(crate) old_roots: Vec<Weak<Root>>,
}

/// A version that is kept, and what is kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) version: u64,
    pub(crate) readers: u64,
    /// Slots that this version has and the next one has not.
    pub(crate) held_slots: u64,
    pub(crate) pages: u32,
    pub(crate) page_size: u32,
}

/// A version that is kept, as processes tell it each other that have the store open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptVersion {
    pub(crate) version: u64,
    pub(crate) page_size: u32,
    pub(crate) pages: u32,
    /// The slots that pages had in the version before it, by page; ascending.
    pub(crate) replaced: Vec<(u32, Sector)>,
}

impl Versions {
    pub(crate) fn new(version: u64, root: Arc<Root>) -> Self {
        let only = Version::new(Arc::clone(&root), 0, Replaced::new());
        let (list, tail) = (BTreeMap::from([(version, only)]), (version, root));
        let (dead, apart) = (Vec::new(), BTreeMap::new());
        Self { list, dead, tail, pages_move: false, are_shared: false, replaced_since: 0, apart }
    }

    /// From now on pages may be moved. Before the first reader.
    pub(crate) fn let_pages_move(&mut self) {
        self.pages_move = true;
    }

    /// From now on other processes may read versions. Before the first reader.
    pub(crate) fn share(&mut self) {
        self.are_shared = true;
    }

    /// The newest version.
    pub(crate) fn newest(&self) -> (u64, &Arc<Root>) {
        (self.tail.0, &self.tail.1)
    }

    /// Adds a reader to the newest version.
    pub(crate) fn pin(&mut self) -> (u64, View) {
        let version = self.tail.0;
        let pages_move = self.pages_move;
        let view = self.list.get_mut(&version).and_then(|tail| tail.view(pages_move));
        (version, view.unwrap_or_else(|| View::Fixed(Arc::clone(&self.tail.1))))
    }

    /// Adds a reader to a version of the list.
    pub(crate) fn pin_at(&mut self, version: u64) -> Option<View> {
        let kept = self.list.get_mut(&version).or_else(|| self.apart.get_mut(&version))?;
        kept.view(self.pages_move)
    }

    /// A version of the list.
    pub(crate) fn root(&self, version: u64) -> Option<&Arc<Root>> {
        self.list.get(&version).and_then(|kept| kept.root.as_ref())
    }

    /// All roots, the oldest first.
    pub(crate) fn roots(&self) -> Vec<Arc<Root>> {
        self.list.values().filter_map(|kept| kept.root.clone()).collect()
    }

    /// The entry that a version has for a page, if that is at this place.
    pub(crate) fn entry_at(&self, page: u32, place: Sector) -> Option<Mapped> {
        let roots = self.list.values().rev().filter_map(|kept| kept.root.as_ref());
        let entries = roots.map(|root| root.map.get(page).entry);
        entries.into_iter().find(|entry| entry.slot == place)
    }

    /// Puts the new places of pages into all versions. `moves` ascend. Nodes of maps in places that
    /// are `evicted` get new ones with the next checkpoint.
    pub(crate) fn relocate(&mut self, moves: &[Move], evicted: Option<Evicted<'_>>) -> Relocated {
        let mut relocation = Relocation::new(moves, evicted);
        let mut old_roots = Vec::new();
        let newest = self.tail.0;
        for (version, kept) in &mut self.list {
            if planted::is(Bug::VersionForgotten) && *version != newest {
                continue;
            }
            let Some(old) = &kept.root else { continue };
            let Some(map) = relocation.map(&old.map) else { continue };
            let root = Arc::new(Root { map, ..**old });
            if let Some(current) = &kept.current {
                *current.write() = Arc::clone(&root);
            }
            old_roots.extend(kept.root.replace(root));
        }
        if let Some(root) = self.list.get(&newest).and_then(|tail| tail.root.as_ref()) {
            self.tail.1 = Arc::clone(root);
        }
        for replaced in self.list.values_mut().map(|kept| &mut kept.replaced) {
            let needed = moves.iter().zip(&relocation.is_needed);
            for (step, _) in needed.filter(|(_, is_needed)| **is_needed) {
                match replaced.get_mut(&step.page) {
                    Some(place) if *place == step.from => *place = step.to,
                    _ => {}
                }
            }
        }
        // The nodes outlive the relocation, which knows them by their addresses.
        let is_needed = relocation.is_needed;
        Relocated { is_needed, old_roots: old_roots.iter().map(Arc::downgrade).collect() }
    }

    /// Takes a reader away, and purges the version when it was the last one's.
    pub(crate) fn unpin(&mut self, version: u64) {
        if let Some(kept) = self.list.get_mut(&version) {
            kept.readers = kept.readers.saturating_sub(1);
            self.leave(version);
        } else if let Some(kept) = self.apart.get_mut(&version) {
            kept.readers = kept.readers.saturating_sub(1);
            self.apart.retain(|_, kept| kept.readers > 0);
        }
    }

    /// A version may have no readers any more: purges it then, or drops its root where other
    /// processes may read it.
    fn leave(&mut self, version: u64) {
        let Some(kept) = self.list.get_mut(&version).filter(|kept| kept.readers == 0) else {
            return;
        };
        if !self.are_shared {
            self.purge(version);
        } else if version != self.tail.0 {
            kept.root = None;
        }
    }

    /// Purges all versions but the newest and those that `is_held`. Returns one that is purged
    /// although it has readers here: then it is not known any more what they read.
    ///
    /// Cost: that of the pages that the purged versions replaced.
    pub(crate) fn purge_except(&mut self, is_held: impl Fn(u64) -> bool) -> Option<u64> {
        self.replaced_since = 0;
        let newest = self.tail.0;
        let purged: Vec<u64> =
            self.list.keys().copied().filter(|at| *at != newest && !is_held(*at)).collect();
        let kept = self.list.iter().chain(&self.apart);
        let mut read = kept.filter(|(_, kept)| kept.readers > 0).map(|(version, _)| *version);
        let lost = read.find(|at| *at != newest && !is_held(*at));
        purged.into_iter().for_each(|version| self.purge(version));
        lost
    }

    /// All slots that versions replaced and that versions before them have, once each.
    pub(crate) fn replaced_slots(&self) -> impl Iterator<Item = Sector> {
        self.list.values().flat_map(|kept| slots(&kept.replaced))
    }

    /// Takes over the versions with readers from `old`, the list before the store was loaded again;
    /// `names` of them are not readers. Those that the new list does not have are readable, and
    /// their slots are accounted for by others.
    pub(crate) fn keep_readers(&mut self, old: Self, names: impl Fn(u64) -> u64) {
        for (version, mut kept) in old.list.into_iter().chain(old.apart) {
            kept.readers = kept.readers.saturating_sub(names(version));
            match self.list.get_mut(&version) {
                _ if kept.readers == 0 => {}
                Some(known) => {
                    known.readers += kept.readers;
                    known.root = known.root.take().or(kept.root);
                }
                None => drop(self.apart.insert(version, kept)),
            }
        }
    }

    /// The versions from `first` up to `newest`, the oldest first.
    pub(crate) fn kept_between(&self, first: u64, newest: u64) -> Vec<KeptVersion> {
        let kept = self.list.range(first.min(newest)..=newest).map(|(version, kept)| {
            let mut replaced: Vec<_> =
                kept.replaced.iter().map(|(page, slot)| (*page, *slot)).collect();
            replaced.sort_unstable_by_key(|(page, _)| *page);
            let (page_size, pages) = (kept.page_size, kept.pages);
            KeptVersion { version: *version, page_size, pages, replaced }
        });
        kept.collect()
    }

    /// After a store was loaded: keeps these versions, which other processes may read. Those that
    /// the checkpoint does not have cannot be read here.
    pub(crate) fn restore(&mut self, kept: Vec<KeptVersion>) {
        for KeptVersion { version, page_size, pages, replaced } in kept {
            let replaced = replaced.into_iter().collect();
            match self.list.get_mut(&version) {
                Some(known) => known.replaced = replaced,
                None if version < self.tail.0 => {
                    let (root, current, readers) = (None, None, 0);
                    let kept = Version { root, pages, page_size, current, readers, replaced };
                    self.list.insert(version, kept);
                }
                None => {}
            }
        }
    }

    /// Appends a version which replaced these slots of the newest.
    pub(crate) fn publish(&mut self, version: u64, root: Arc<Root>, replaced: Replaced) {
        let before = self.tail.0;
        self.tail = (version, Arc::clone(&root));
        self.replaced_since += if self.are_shared { slots(&replaced).count() } else { 0 };
        self.list.insert(version, Version::new(root, 0, replaced));
        self.leave(before);
    }

    /// Puts a version before all others, while a store is opened: `newer` are the slots that the
    /// first of the list took the place of.
    pub(crate) fn prepend(&mut self, version: u64, root: Arc<Root>, newer: Replaced) {
        if let Some(mut first) = self.list.first_entry() {
            first.get_mut().replaced = newer;
        }
        self.list.insert(version, Version::new(root, 0, Replaced::new()));
    }

    /// Algorithm 3.
    fn purge(&mut self, version: u64) {
        let is_head = self.list.first_key_value().is_some_and(|(first, _)| *first == version);
        let Some(next) = self.list.range(version + 1..).next().map(|(next, _)| *next) else {
            return;
        };
        let Some(victim) = self.list.remove(&version) else { return };
        let Some(next) = self.list.get_mut(&next) else { return };
        if is_head || planted::is(Bug::OlderReadersIgnored) {
            let replaced = std::mem::take(&mut next.replaced);
            self.dead.extend(slots(&replaced));
        } else {
            merge(victim.replaced, &mut next.replaced, &mut self.dead);
        }
    }

    /// The slots that no version needs any more, once each.
    pub(crate) fn take_dead(&mut self) -> Vec<Sector> {
        std::mem::take(&mut self.dead)
    }

    /// The slots that no version needs, left where they are.
    pub(crate) fn dead(&self) -> &[Sector] {
        &self.dead
    }

    /// The number of slots that no version needs and that have not been taken.
    pub(crate) fn dead_count(&self) -> usize {
        self.dead.len()
    }

    /// The number of slots that a checkpoint may find dead: those of [`Versions::dead_count`], and
    /// where other processes read versions, those that were replaced since they were last asked.
    pub(crate) fn dead_count_at_most(&self) -> usize {
        self.dead.len() + self.replaced_since
    }

    /// The versions that have readers here, or that `is_read` says so of; the oldest first.
    pub(crate) fn read(&self, is_read: impl Fn(u64) -> bool) -> Vec<Kept> {
        let mut read: Vec<Kept> = Vec::new();
        let mut pages = HashSet::new();
        for (version, kept) in &self.list {
            if let Some(before) = read.last_mut() {
                // Of the slots that were replaced since, the first of each page is that version's.
                let first = kept.replaced.iter().filter(|(page, _)| pages.insert(**page));
                let held = first.filter(|(_, slot)| **slot != Sector::NONE).count();
                before.held_slots += held as u64;
            }
            if kept.readers > 0 || is_read(*version) {
                pages.clear();
                read.push(Kept {
                    version: *version,
                    readers: kept.readers,
                    held_slots: 0,
                    pages: kept.pages,
                    page_size: kept.page_size,
                });
            }
        }
        read
    }

    /// All versions, the oldest first.
    pub(crate) fn kept(&self) -> Vec<Kept> {
        self.read(|_| true)
    }
}

fn slots(replaced: &Replaced) -> impl Iterator<Item = Sector> {
    replaced.values().copied().filter(|slot| *slot != Sector::NONE)
}

/// Moves the victim's replaced slots into the next version's. Where both replaced a slot of a page,
/// the next version's was the victim's own, which no other version has. The smaller is moved into
/// the larger, so that the cost of a long history is that of its commits.
fn merge(victim: Replaced, next: &mut Replaced, dead: &mut Vec<Sector>) {
    if victim.len() <= next.len() {
        for (page, older) in victim {
            dead.extend(next.insert(page, older).filter(|slot| *slot != Sector::NONE));
        }
        return;
    }
    let newer = std::mem::replace(next, victim);
    for (page, slot) in newer {
        match next.entry(page) {
            Entry::Occupied(_) => dead.extend((slot != Sector::NONE).then_some(slot)),
            Entry::Vacant(vacant) => {
                vacant.insert(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests;
