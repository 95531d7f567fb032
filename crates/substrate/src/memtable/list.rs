//! The list of leaves, in order.
//!
//! A list is never changed. A new one shares all leaves but those that differ, and since a
//! memtable of a gigabyte has tens of thousands, the list is one of groups: the new list shares
//! whole groups too.

use std::fmt;
use std::sync::Arc;

use esker_format::ids::Seq;

use super::cut::Limits;
use super::grow::grow;
use super::leaf::{Boundary, Leaf};
use super::place::Place;
use super::version::{Position, Version};

/// Leaves a group, at most.
const GROUP_LEAVES: usize = 128;

/// An ordered list of leaves, as it was at one time. Its leaves may still grow.
#[derive(Clone, Default)]
pub struct Leaves {
    groups: Vec<Group>,
}

/// Up to [`GROUP_LEAVES`] leaves, at least one.
#[derive(Clone)]
struct Group {
    /// The first key bytes of the first leaf's boundary.
    head: u64,
    /// Leaves in the groups before.
    leaves_before: usize,
    slots: Arc<[Slot]>,
}

/// A leaf with the first key bytes of its boundary, by which most searches are decided.
#[derive(Clone)]
struct Slot {
    head: u64,
    leaf: Arc<Leaf>,
}

/// Which leaf of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    group: usize,
    slot: usize,
}

impl Slot {
    fn new(leaf: Arc<Leaf>) -> Self {
        Self { head: leaf.lower().position().head(), leaf }
    }

    /// Whether the leaf begins at or before `position`.
    fn begins_by(&self, position: Position<'_>) -> bool {
        (self.head.cmp(&position.head()))
            .then_with(|| self.leaf.lower().position().cmp(&position))
            .is_le()
    }
}

impl Group {
    fn of(slots: &[Slot]) -> Self {
        let head = slots.first().map_or(0, |slot| slot.head);
        Self { head, leaves_before: 0, slots: slots.into() }
    }

    fn first(&self) -> Option<&Slot> {
        self.slots.first()
    }

    fn begins_by(&self, position: Position<'_>) -> bool {
        self.head < position.head()
            || self.head == position.head()
                && self.first().is_none_or(|slot| slot.begins_by(position))
    }
}

impl Leaves {
    /// The newest version of `key` with a number of at most `seq`. Costs a search of the list and
    /// of one leaf.
    #[must_use]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<Version> {
        let found = self.lower_bound(key, seq)?;
        (found.key() == key).then(|| found.clone())
    }

    /// The first version at or behind (`key`, `seq`).
    #[must_use]
    pub fn lower_bound(&self, key: &[u8], seq: Seq) -> Option<Place<'_>> {
        let position = Position::new(key, seq);
        let (spot, leaf) = self.locate(position)?;
        match leaf.lower_bound(position) {
            Some(entry) => Some(Place::new(self, spot, entry)),
            None => self.first_from(self.after(spot)?),
        }
    }

    /// The last version before (`key`, `seq`).
    #[must_use]
    pub fn upper_bound(&self, key: &[u8], seq: Seq) -> Option<Place<'_>> {
        let position = Position::new(key, seq);
        let (spot, leaf) = self.locate(position)?;
        match leaf.upper_bound(position) {
            Some(entry) => Some(Place::new(self, spot, entry)),
            None => self.last_to(self.before(spot)?),
        }
    }

    /// The first version of all.
    #[must_use]
    pub fn first(&self) -> Option<Place<'_>> {
        self.first_from(Spot { group: 0, slot: 0 })
    }

    /// The last version of all.
    #[must_use]
    pub fn last(&self) -> Option<Place<'_>> {
        let group = self.groups.len().checked_sub(1)?;
        let slot = self.groups.get(group)?.slots.len().checked_sub(1)?;
        self.last_to(Spot { group, slot })
    }

    /// All versions in order.
    pub fn iter(&self) -> impl Iterator<Item = Place<'_>> {
        std::iter::successors(self.first(), Place::next)
    }

    /// All leaves in order.
    pub fn leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.groups.iter().flat_map(|group| group.slots.iter()).map(|slot| &slot.leaf)
    }

    /// Leaves in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.last().map_or(0, |group| group.leaves_before + group.slots.len())
    }

    /// Whether the list has no leaf. A list with leaves has versions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Appends all versions of the leaf number `index`, counted from 0, in order: nothing when
    /// there is no such leaf.
    pub fn collect_leaf(&self, index: usize, out: &mut Vec<Version>) {
        let group = self.groups.partition_point(|group| group.leaves_before <= index);
        if let Some(group) = group.checked_sub(1).and_then(|group| self.groups.get(group))
            && let Some(slot) = group.slots.get(index - group.leaves_before)
        {
            slot.leaf.collect(out);
        }
    }

    /// Estimated memory of the leaves, in bytes. Asks every leaf.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.leaves().map(|leaf| leaf.memory_bytes()).sum()
    }

    /// The list without the leaves whose every version has a user key of at most `wavefront`.
    /// Shares the rest. Only for a memtable that does not grow any more.
    ///
    /// Costs one reference a remaining leaf of the first group, and one a remaining group of up to
    /// 128 leaves.
    #[must_use]
    pub fn behind(&self, wavefront: &[u8]) -> Self {
        // The last leaf that begins at or before the wavefront: all before it end there too.
        let Some((spot, leaf)) = self.locate(Position::new(wavefront, Seq(0))) else {
            return self.clone();
        };
        let is_passed = leaf.last().is_none_or(|last| last.key() <= wavefront);
        let first = if is_passed { spot.slot + 1 } else { spot.slot };
        let mut groups = self.groups.get(spot.group..).unwrap_or_default().to_vec();
        if let Some(group) = groups.first_mut().filter(|_| first > 0) {
            *group = Group::of(group.slots.get(first..).unwrap_or_default());
        }
        Self::of(groups)
    }

    /// The list with one more version than its leaf has room for, and how much more memory it
    /// takes, in bytes.
    ///
    /// Costs a copy of the leaf, one reference a group and one a leaf of the group.
    pub(super) fn with(&self, version: Version, limits: &Limits) -> (Self, u64) {
        let Some((spot, leaf)) = self.locate(version.position()) else {
            let leaf = Arc::new(Leaf::new(Boundary::least(), vec![version]));
            let memory_bytes = leaf.memory_bytes();
            return (Self::of(vec![Group::of(&[Slot::new(leaf)])]), memory_bytes);
        };
        let old_bytes = leaf.memory_bytes();
        let leaves = grow(leaf, version, limits);
        let new_bytes = leaves.iter().map(|leaf| leaf.memory_bytes()).sum::<u64>();
        let slots: Vec<_> = leaves.into_iter().map(Slot::new).collect();
        (self.replaced(spot, &slots), new_bytes.saturating_sub(old_bytes))
    }

    /// The list with `slots` in the place of one leaf.
    fn replaced(&self, spot: Spot, slots: &[Slot]) -> Self {
        let mut groups = self.groups.clone();
        let Some(group) = self.groups.get(spot.group) else { return Self { groups } };
        let before = group.slots.get(..spot.slot).unwrap_or_default();
        let behind = group.slots.get(spot.slot + 1..).unwrap_or_default();
        let slots = [before, slots, behind].concat();
        // The last group is filled, because ascending keys add only to it.
        let is_last = spot.group + 1 == groups.len();
        let group_leaves = match slots.len() {
            ..=GROUP_LEAVES => slots.len(),
            _ if is_last => GROUP_LEAVES,
            count => count.div_ceil(2),
        };
        groups.splice(spot.group..=spot.group, slots.chunks(group_leaves).map(Group::of));
        Self::of(groups)
    }

    /// The groups as a list, with the counts of leaves set right.
    fn of(mut groups: Vec<Group>) -> Self {
        groups.retain(|group| !group.slots.is_empty());
        let mut leaves_before = 0;
        for group in &mut groups {
            group.leaves_before = leaves_before;
            leaves_before += group.slots.len();
        }
        Self { groups }
    }

    /// The leaf that holds `position`: the last that begins at or before it, else the first.
    pub(super) fn locate(&self, position: Position<'_>) -> Option<(Spot, &Arc<Leaf>)> {
        let group = self.groups.partition_point(|group| group.begins_by(position));
        let group = group.saturating_sub(1);
        let slots = &self.groups.get(group)?.slots;
        let slot = slots.partition_point(|slot| slot.begins_by(position)).saturating_sub(1);
        Some((Spot { group, slot }, &slots.get(slot)?.leaf))
    }

    fn slot(&self, spot: Spot) -> Option<&Slot> {
        self.groups.get(spot.group)?.slots.get(spot.slot)
    }

    /// The leaf behind.
    pub(super) fn after(&self, spot: Spot) -> Option<Spot> {
        let next = Spot { slot: spot.slot + 1, ..spot };
        let next =
            if self.slot(next).is_some() { next } else { Spot { group: spot.group + 1, slot: 0 } };
        self.slot(next).map(|_| next)
    }

    /// The leaf before.
    pub(super) fn before(&self, spot: Spot) -> Option<Spot> {
        if let Some(slot) = spot.slot.checked_sub(1) {
            return Some(Spot { slot, ..spot });
        }
        let group = spot.group.checked_sub(1)?;
        Some(Spot { group, slot: self.groups.get(group)?.slots.len().checked_sub(1)? })
    }

    /// The first version in the leaf or behind it.
    pub(super) fn first_from(&self, spot: Spot) -> Option<Place<'_>> {
        let mut leaves = std::iter::successors(Some(spot), |spot| self.after(*spot));
        leaves.find_map(|spot| Some(Place::new(self, spot, self.slot(spot)?.leaf.first()?)))
    }

    /// The last version in the leaf or before it.
    pub(super) fn last_to(&self, spot: Spot) -> Option<Place<'_>> {
        let mut leaves = std::iter::successors(Some(spot), |spot| self.before(*spot));
        leaves.find_map(|spot| Some(Place::new(self, spot, self.slot(spot)?.leaf.last()?)))
    }
}

impl fmt::Debug for Leaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaves").field("len", &self.len()).finish_non_exhaustive()
    }
}
