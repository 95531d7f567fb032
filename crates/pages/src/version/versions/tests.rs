//! Equality with the algorithms of MV-FTL as printed: same versions, same reads, same purges.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::version::mapping::{Entry, Mapping};

/// Logical and physical pages.
type Mappings = Vec<(u32, u32)>;

/// MV-FTL as in its paper: diffs in a list, linear search, mappings moved by purges. With the tail
/// looked at again when it is displaced.
#[derive(Default)]
struct Paper {
    /// The main L2P table.
    main: BTreeMap<u32, u32>,
    /// The committed diffs: id, reference count, mappings. The first is imaginary.
    list: Vec<(u64, u64, Mappings)>,
    invalid: BTreeSet<u32>,
}

impl Paper {
    /// Algorithm 2.
    fn read(&self, did: u64, page: u32) -> Option<u32> {
        let at = self.list.iter().position(|(id, ..)| *id == did).unwrap();
        for (_, _, entries) in self.list[..=at].iter().rev() {
            if let Some((_, physical)) = entries.iter().find(|(logical, _)| *logical == page) {
                return Some(*physical);
            }
        }
        self.main.get(&page).copied()
    }

    /// Algorithm 3.
    fn purge(&mut self, did: u64) {
        let at = self.list.iter().position(|(id, ..)| *id == did).unwrap();
        if at == self.list.len() - 1 {
            return;
        }
        let (.., victim) = self.list.remove(at);
        for (page, physical) in victim {
            if at == 0 {
                if let Some(old) = self.main.insert(page, physical) {
                    assert!(self.invalid.insert(old));
                }
                continue;
            }
            let next = &mut self.list[at].2;
            if next.iter().any(|(logical, _)| *logical == page) {
                assert!(self.invalid.insert(physical));
            } else {
                next.push((page, physical));
            }
        }
    }

    /// The invalid pages, and those of the main table that the oldest diff maps anew: no reader has
    /// an older version, but the paper invalidates it only when that diff is purged.
    fn unreadable(&self) -> BTreeSet<u32> {
        let oldest = self.list[0].2.iter();
        let hidden = oldest.filter_map(|(page, _)| self.main.get(page)).copied();
        self.invalid.iter().copied().chain(hidden).collect()
    }

    fn unpin(&mut self, did: u64) {
        let diff = self.list.iter_mut().find(|(id, ..)| *id == did).unwrap();
        diff.1 -= 1;
        if diff.1 == 0 {
            self.purge(did);
        }
    }

    fn commit(&mut self, did: u64, entries: Mappings) {
        let (before, readers, _) = *self.list.last().unwrap();
        self.list.push((did, 0, entries));
        if readers == 0 {
            self.purge(before);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Commit(BTreeSet<u32>),
    Pin,
    Unpin(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => prop::collection::btree_set(0..12u32, 0..6).prop_map(Op::Commit),
        2 => Just(Op::Pin),
        2 => any::<usize>().prop_map(Op::Unpin),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn same_reads_and_same_purges_as_the_paper(ops in prop::collection::vec(op(), 1..120)) {
        let mut versions = Versions::new(0, Arc::new(Root::empty(512)));
        let mut paper = Paper { list: vec![(0, 0, Vec::new())], ..Paper::default() };
        let mut dead = BTreeSet::new();
        let mut pins: Vec<(u64, View)> = Vec::new();
        let (mut did, mut physical) = (0, 0);
        for op in ops {
            match op {
                Op::Commit(pages) => {
                    did += 1;
                    let mut root = Root::clone(versions.newest().1);
                    let mut replaced = Replaced::new();
                    let mut entries = Vec::new();
                    for page in pages {
                        physical += 1;
                        let entry = Entry { slot: Sector(physical), crc: 0 };
                        let old = root.map.set(page, Mapping { entry, delta: None });
                        replaced.insert(page, old.entry.slot);
                        entries.push((page, physical));
                    }
                    versions.publish(did, Arc::new(root), replaced);
                    paper.commit(did, entries);
                }
                Op::Pin => {
                    pins.push(versions.pin());
                    let tail = paper.list.last_mut().unwrap();
                    tail.1 += 1;
                    prop_assert_eq!(pins.last().unwrap().0, tail.0);
                }
                Op::Unpin(pick) if !pins.is_empty() => {
                    let (version, _) = pins.swap_remove(pick % pins.len());
                    versions.unpin(version);
                    paper.unpin(version);
                }
                Op::Unpin(_) => {}
            }
            for slot in versions.take_dead() {
                prop_assert!(dead.insert(slot.0), "{} died twice", slot.0);
            }
            prop_assert_eq!(&dead, &paper.unreadable());
            let ids: Vec<u64> = versions.kept().iter().map(|kept| kept.version).collect();
            prop_assert_eq!(ids, paper.list.iter().map(|(id, ..)| *id).collect::<Vec<_>>());
            for (version, root) in &pins {
                let root = root.root();
                for page in 0..12 {
                    let slot = root.map.get(page).entry.slot;
                    let slot = (slot != Sector::NONE).then_some(slot.0);
                    prop_assert_eq!(slot, paper.read(*version, page));
                }
            }
        }
    }
}
