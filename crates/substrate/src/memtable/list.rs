//! The list of leaves, in order.
//!
//! A list is never changed. A new one shares all leaves but those that differ, and since a
//! memtable of a gigabyte has tens of thousands, the list is one of groups: the new list shares
//! whole groups too.

use std::fmt;
use std::sync::Arc;

use esker_format::ids::Seq;

use super::cursor::Cursor;
use super::cut::Limits;
use super::directory::{Begins, Directory, Entry};
use super::grow::grow;
use super::leaf::Leaf;
use super::place::Place;
use super::position::{Boundary, Position};
use super::version::Version;

/// Leaves a group, at most.
const GROUP_LEAVES: usize = 64;

/// An ordered list of leaves, as it was at one time. Its leaves may still grow.
#[derive(Default)]
pub struct Leaves {
    groups: Directory<Group>,
}

/// One to [`GROUP_LEAVES`] leaves.
#[derive(Clone)]
struct Group {
    /// Leaves in the groups before.
    leaves_before: usize,
    leaves: Arc<Directory<Arc<Leaf>>>,
}

/// The place of a leaf in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    group: usize,
    leaf: usize,
}

impl Begins for Arc<Leaf> {
    fn lower(&self) -> Position<'_> {
        self.boundary().position()
    }
}

impl Begins for Group {
    fn lower(&self) -> Position<'_> {
        self.leaves.get(0).map_or(Position::LEAST, Begins::lower)
    }
}

impl Group {
    fn of(leaves: &[Entry<Arc<Leaf>>]) -> Entry<Self> {
        let leaves = Arc::new(Directory::new(leaves.to_vec()));
        Entry::new(Self { leaves_before: 0, leaves })
    }
}

impl Leaves {
    /// The newest version of `key` with a number of at most `seq`. Costs a search of the list and
    /// of one leaf.
    #[must_use]
    pub fn get(&self, key: &[u8], seq: Seq) -> Option<Version> {
        let found = self.lower_bound(key, seq)?;
        (found.key() == key).then(|| found.version().clone())
    }

    /// The first version at or behind (`key`, `seq`).
    #[must_use]
    pub fn lower_bound(&self, key: &[u8], seq: Seq) -> Option<Place<'_>> {
        let (spot, cursor) = self.gap(Position::new(key, seq))?;
        self.up(spot, cursor)
    }

    /// The last version before (`key`, `seq`).
    #[must_use]
    pub fn upper_bound(&self, key: &[u8], seq: Seq) -> Option<Place<'_>> {
        let (spot, cursor) = self.gap(Position::new(key, seq))?;
        self.down(spot, cursor)
    }

    /// The first version of all.
    #[must_use]
    pub fn first(&self) -> Option<Place<'_>> {
        let spot = Spot { group: 0, leaf: 0 };
        self.up(spot, Cursor::start(self.leaf(spot)?))
    }

    /// The last version of all.
    #[must_use]
    pub fn last(&self) -> Option<Place<'_>> {
        let group = self.groups.len().checked_sub(1)?;
        let spot = Spot { group, leaf: self.groups.get(group)?.leaves.len().checked_sub(1)? };
        self.down(spot, Cursor::end(self.leaf(spot)?))
    }

    /// All versions in order.
    pub fn iter(&self) -> impl Iterator<Item = Place<'_>> {
        std::iter::successors(self.first(), Place::next)
    }

    /// All leaves in order.
    pub fn leaves(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.groups.iter().flat_map(|group| group.leaves.iter())
    }

    /// Leaves in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        let last = self.groups.len().checked_sub(1).and_then(|last| self.groups.get(last));
        last.map_or(0, |group| group.leaves_before + group.leaves.len())
    }

    /// Whether the list has no leaf. A list with leaves has versions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends all versions of the leaf number `index`, counted from 0, in order: nothing when
    /// there is no such leaf.
    pub fn collect_leaf(&self, index: usize, out: &mut Vec<Version>) {
        let groups = self.groups.entries();
        let group = groups.partition_point(|group| group.item.leaves_before <= index);
        if let Some(group) = group.checked_sub(1).and_then(|group| self.groups.get(group))
            && let Some(leaf) = group.leaves.get(index - group.leaves_before)
        {
            leaf.collect(out);
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
    /// Costs one reference for each remaining leaf of the first group, and one for each remaining
    /// group of up to 64 leaves.
    #[must_use]
    pub fn behind(&self, wavefront: &[u8]) -> Self {
        // The last leaf that begins at or before the wavefront: all before it end there too.
        let Some((spot, leaf)) = self.locate(Position::new(wavefront, Seq(0))) else {
            return Self::default();
        };
        let is_passed = leaf.last().is_none_or(|last| last.version.key() <= wavefront);
        let first = if is_passed { spot.leaf + 1 } else { spot.leaf };
        let mut groups = self.groups.entries().get(spot.group..).unwrap_or_default().to_vec();
        if let Some(group) = groups.first_mut().filter(|_| first > 0) {
            *group = Group::of(group.item.leaves.entries().get(first..).unwrap_or_default());
        }
        Self::of(groups)
    }

    /// The list with one more version than its leaf has space for, and the additional memory that
    /// it takes, in bytes.
    ///
    /// Costs a copy of the leaf, one reference for each group and one for each leaf of the group.
    pub(super) fn with(&self, version: Version, limits: &Limits) -> (Self, u64) {
        let Some((spot, leaf)) = self.locate(version.position()) else {
            let leaf = Leaf::new(Boundary::least(), None, vec![version]);
            let memory_bytes = leaf.memory_bytes();
            return (Self::of(vec![Group::of(&[Entry::new(Arc::new(leaf))])]), memory_bytes);
        };
        let old_bytes = leaf.memory_bytes();
        let upper = self.after(spot).and_then(|spot| self.leaf(spot)).map(Begins::lower);
        let leaves = grow(leaf, upper, version, limits);
        let new_bytes = leaves.iter().map(|leaf| leaf.memory_bytes()).sum::<u64>();
        let leaves: Vec<_> = leaves.into_iter().map(Entry::new).collect();
        (self.replaced(spot, &leaves), new_bytes.saturating_sub(old_bytes))
    }

    /// The list with `leaves` in the place of one.
    fn replaced(&self, spot: Spot, leaves: &[Entry<Arc<Leaf>>]) -> Self {
        let mut groups = self.groups.entries().to_vec();
        let old = self.groups.get(spot.group).map_or(&[][..], |group| group.leaves.entries());
        let before = old.get(..spot.leaf).unwrap_or_default();
        let behind = old.get(spot.leaf + 1..).unwrap_or_default();
        let leaves = [before, leaves, behind].concat();
        // The last group is filled, because ascending keys add only to it.
        let is_last = spot.group + 1 == groups.len();
        let group_leaves = match leaves.len() {
            ..=GROUP_LEAVES => GROUP_LEAVES,
            _ if is_last => GROUP_LEAVES,
            count => count.div_ceil(count.div_ceil(GROUP_LEAVES)),
        };
        groups.splice(spot.group..=spot.group, leaves.chunks(group_leaves).map(Group::of));
        Self::of(groups)
    }

    /// The groups as a list, with the counts of leaves set right.
    fn of(mut groups: Vec<Entry<Group>>) -> Self {
        groups.retain(|group| group.item.leaves.len() > 0);
        let mut leaves_before = 0;
        for Entry { item: group, .. } in &mut groups {
            group.leaves_before = leaves_before;
            leaves_before += group.leaves.len();
        }
        Self { groups: Directory::new(groups) }
    }

    /// The leaf that holds `position`: the last that begins at or before it, else the first.
    pub(super) fn locate(&self, position: Position<'_>) -> Option<(Spot, &Arc<Leaf>)> {
        let group = self.groups.find(position);
        let leaves = &self.groups.get(group)?.leaves;
        let leaf = leaves.find(position);
        Some((Spot { group, leaf }, leaves.get(leaf)?))
    }

    /// The gap before the first version at or behind `position`, or behind the last of its leaf.
    fn gap(&self, position: Position<'_>) -> Option<(Spot, Cursor<'_>)> {
        let (spot, leaf) = self.locate(position)?;
        // Only in a list behind a wavefront may a position be before the first leaf's range.
        let position = match spot {
            Spot { group: 0, leaf: 0 } => position.max(leaf.lower()),
            _ => position,
        };
        Some((spot, Cursor::new(leaf, position)))
    }

    fn leaf(&self, spot: Spot) -> Option<&Arc<Leaf>> {
        self.groups.get(spot.group)?.leaves.get(spot.leaf)
    }

    /// The leaf behind.
    fn after(&self, spot: Spot) -> Option<Spot> {
        let next = Spot { leaf: spot.leaf + 1, ..spot };
        let next_group = Spot { group: spot.group + 1, leaf: 0 };
        [next, next_group].into_iter().find(|spot| self.leaf(*spot).is_some())
    }

    /// The leaf before.
    fn before(&self, spot: Spot) -> Option<Spot> {
        if let Some(leaf) = spot.leaf.checked_sub(1) {
            return Some(Spot { leaf, ..spot });
        }
        let group = spot.group.checked_sub(1)?;
        Some(Spot { group, leaf: self.groups.get(group)?.leaves.len().checked_sub(1)? })
    }

    /// The version behind a gap in a leaf.
    pub(super) fn up<'a>(&'a self, mut spot: Spot, mut cursor: Cursor<'a>) -> Option<Place<'a>> {
        loop {
            if let Some(found) = cursor.up() {
                return Some(Place::new(self, spot, cursor, found.version));
            }
            spot = self.after(spot)?;
            cursor = Cursor::start(self.leaf(spot)?);
        }
    }

    /// The version before a gap in a leaf.
    pub(super) fn down<'a>(&'a self, mut spot: Spot, mut cursor: Cursor<'a>) -> Option<Place<'a>> {
        loop {
            if let Some(found) = cursor.down() {
                cursor.up();
                return Some(Place::new(self, spot, cursor, found.version));
            }
            spot = self.before(spot)?;
            cursor = Cursor::end(self.leaf(spot)?);
        }
    }
}

impl fmt::Debug for Leaves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaves").field("len", &self.len()).finish_non_exhaustive()
    }
}
