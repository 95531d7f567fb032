//! Equality with Algorithms 1 to 3 as printed: same reads, same diffs in the list, same dead pages.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const PAGES: u32 = 10;

/// Logical and physical pages.
type Entries = Vec<(u32, u32)>;

/// MV-FTL as in its paper: diffs are lists that are searched one entry after the other. Added are
/// only that the tail is examined again when it is displaced, and that a writer pins the tail.
#[derive(Default)]
struct Paper {
    /// The main L2P table.
    main: BTreeMap<u32, u32>,
    /// The committed diffs: id, reference count, entries. The first is imaginary.
    list: Vec<(u64, u64, Entries)>,
    /// The diffs of open transactions: id, diff that was the tail, entries.
    open: Vec<(u32, u64, Entries)>,
    invalid: BTreeSet<u32>,
}

impl Paper {
    fn begin(&mut self, did: u32) {
        let tail = self.list.last_mut().unwrap();
        tail.1 += 1;
        let base = tail.0;
        self.open.push((did, base, Entries::new()));
    }

    fn open_at(&self, did: u32) -> usize {
        self.open.iter().position(|(id, ..)| *id == did).unwrap()
    }

    fn invalidate(&mut self, page: u32) {
        assert!(self.invalid.insert(page), "page {page} is invalidated twice");
    }

    /// Algorithm 1.
    fn write_page(&mut self, did: u32, logical: u32, physical: u32) {
        let at = self.open_at(did);
        for at_entry in 0..self.open[at].2.len() {
            if self.open[at].2[at_entry].0 == logical {
                self.invalidate(self.open[at].2[at_entry].1);
                self.open[at].2[at_entry].1 = physical;
                return;
            }
        }
        self.open[at].2.push((logical, physical));
    }

    /// Algorithm 2.
    fn read_page(&self, did: u32, logical: u32) -> Option<u32> {
        let (_, base, entries) = &self.open[self.open_at(did)];
        let from = self.list.iter().position(|(id, ..)| id == base).unwrap();
        let diffs = std::iter::once(entries).chain(self.list[..=from].iter().rev().map(|d| &d.2));
        for entries in diffs {
            for (page, physical) in entries {
                if *page == logical {
                    return Some(*physical);
                }
            }
        }
        self.main.get(&logical).copied()
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
                    self.invalidate(old);
                }
                continue;
            }
            if self.list[at].2.iter().any(|(logical, _)| *logical == page) {
                self.invalidate(physical);
            } else {
                self.list[at].2.push((page, physical));
            }
        }
    }

    fn unpin(&mut self, base: u64) {
        let diff = self.list.iter_mut().find(|(id, ..)| *id == base).unwrap();
        diff.1 -= 1;
        if diff.1 == 0 {
            self.purge(base);
        }
    }

    fn commit(&mut self, did: u32, version: u64) {
        let at = self.open_at(did);
        let (_, base, entries) = self.open.remove(at);
        if !entries.is_empty() {
            let (before, readers, _) = *self.list.last().unwrap();
            self.list.push((version, 0, entries));
            if readers == 0 {
                self.purge(before);
            }
        }
        self.unpin(base);
    }

    fn abort(&mut self, did: u32) {
        let at = self.open_at(did);
        let (_, base, entries) = self.open.remove(at);
        for (_, physical) in entries {
            self.invalidate(physical);
        }
        self.unpin(base);
    }

    /// A page was moved: whatever has it has the new place.
    fn relocate(&mut self, from: u32, to: u32) {
        let list = self.list.iter_mut().flat_map(|diff| &mut diff.2);
        let diffs = list.chain(self.open.iter_mut().flat_map(|diff| &mut diff.2));
        let places = self.main.values_mut().chain(diffs.map(|(_, physical)| physical));
        let mut places: Vec<_> = places.filter(|physical| **physical == from).collect();
        assert_eq!(places.len(), 1, "page {from} has one owner");
        *places.remove(0) = to;
    }
}

#[derive(Clone, Debug)]
enum Op {
    Begin,
    Write(usize, u32),
    Commit(usize),
    Abort(usize),
    Relocate(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => Just(Op::Begin),
        8 => (any::<usize>(), 0..PAGES).prop_map(|(tx, page)| Op::Write(tx, page)),
        3 => any::<usize>().prop_map(Op::Commit),
        1 => any::<usize>().prop_map(Op::Abort),
        2 => any::<usize>().prop_map(Op::Relocate),
    ]
}

struct Both {
    versions: Versions,
    paper: Paper,
    open: Vec<u32>,
    dead: BTreeSet<u32>,
    physical: u32,
}

impl Both {
    fn new() -> Self {
        let versions = Versions::new(vec![NONE; PAGES as usize], usize::MAX);
        let paper = Paper { list: vec![(0, 0, Entries::new())], ..Paper::default() };
        Self { versions, paper, open: Vec::new(), dead: BTreeSet::new(), physical: 0 }
    }

    fn fresh(&mut self) -> u32 {
        self.physical += 1;
        self.physical
    }

    fn take(&mut self, pick: usize) -> u32 {
        self.open.swap_remove(pick % self.open.len())
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Begin => {
                let did = self.versions.begin(true);
                self.paper.begin(did);
                self.open.push(did);
            }
            Op::Relocate(pick) => {
                let valid: Vec<_> = self.versions.valid().collect();
                if !valid.is_empty() {
                    let (lpn, from) = valid[pick % valid.len()];
                    let to = self.fresh();
                    let newest = self.versions.newest(lpn) == from;
                    let moved = self.versions.relocate(from, Ppn(to), lpn);
                    assert_eq!(moved == Moved::Newest, newest);
                    self.paper.relocate(from.0, to);
                }
            }
            _ if self.open.is_empty() => {}
            Op::Write(pick, page) => {
                let (did, physical) = (self.open[pick % self.open.len()], self.fresh());
                self.versions.admit(did, Lpn(*page)).unwrap();
                self.versions.write(did, Lpn(*page), Ppn(physical));
                self.paper.write_page(did, *page, physical);
            }
            Op::Commit(pick) => {
                let did = self.take(*pick);
                self.versions.publish(did);
                self.paper.commit(did, self.versions.tail());
            }
            Op::Abort(pick) => {
                let did = self.take(*pick);
                self.versions.abort(did);
                self.paper.abort(did);
            }
        }
    }

    fn compare(&mut self) {
        for page in self.versions.take_dead() {
            assert!(self.dead.insert(page.0), "{} died twice", page.0);
        }
        assert_eq!(self.dead, self.paper.invalid);
        let list: Vec<_> = self.versions.list.keys().copied().collect();
        assert_eq!(list, self.paper.list.iter().map(|(id, ..)| *id).collect::<Vec<_>>());
        for did in &self.open {
            for page in 0..PAGES {
                let found = self.versions.read(*did, Lpn(page)).map(|ppn| ppn.0);
                assert_eq!(found, self.paper.read_page(*did, page), "page {page} of {did}");
            }
        }
        self.versions.check().unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn same_reads_and_same_purges_as_the_algorithms_printed(
        ops in prop::collection::vec(op(), 1..150)
    ) {
        let mut both = Both::new();
        for op in ops {
            both.apply(&op);
            both.compare();
        }
    }
}

fn committed(versions: &mut Versions, pages: std::ops::Range<u32>, physical: u32) {
    let writer = versions.begin(true);
    for (page, physical) in pages.zip(physical..) {
        versions.admit(writer, Lpn(page)).unwrap();
        versions.write(writer, Lpn(page), Ppn(physical));
    }
    versions.publish(writer);
}

#[test]
fn about_nine_hundred_entries_fit_into_16_kib() {
    let mut versions = Versions::new(vec![NONE; 2000], 16 << 10);
    let readers: Vec<_> = (0..15).map(|_| versions.begin(true)).collect();
    let writer = versions.begin(true);
    let mut written = 0;
    while versions.admit(writer, Lpn(written)).is_ok() {
        versions.write(writer, Lpn(written), Ppn(written));
        written += 1;
    }
    assert!((900..1000).contains(&written), "{written} entries beside 15 readers");
    assert_eq!(versions.entries_max(), written as usize);
    versions.admit(writer, Lpn(0)).expect("a page that is there needs no memory");
    versions.abort(writer);
    assert_eq!(versions.take_dead().len(), written as usize);
    for reader in readers {
        versions.abort(reader);
    }
    assert_eq!(versions.used_bytes(), DIFF_BYTES, "what is left is the tail");
}

#[test]
fn a_tail_that_has_no_reader_makes_room_for_a_large_transaction() {
    let mut versions = Versions::new(vec![NONE; 64], 40 * ENTRY_BYTES + 4 * DIFF_BYTES);
    committed(&mut versions, 0..30, 100);
    let writer = versions.begin(false);
    for page in 10..40 {
        versions.admit(writer, Lpn(page)).unwrap();
        versions.write(writer, Lpn(page), Ppn(200 + page));
    }
    assert_eq!(versions.read_at(Version::MAX, Lpn(12)), Some(Ppn(112)));
    assert_eq!(versions.committed(), 1, "the list is not empty");
    versions.check().unwrap();
    versions.publish(writer);
    assert_eq!(versions.newest(Lpn(12)), Ppn(212));
    versions.check().unwrap();
}

#[test]
fn an_older_version_that_a_reader_holds_makes_no_room() {
    let mut versions = Versions::new(vec![NONE; 64], 40 * ENTRY_BYTES + 4 * DIFF_BYTES);
    committed(&mut versions, 0..15, 100);
    let reader = versions.begin(true);
    committed(&mut versions, 15..30, 115);
    let writer = versions.begin(true);
    let mut written = 0;
    while versions.admit(writer, Lpn(written)).is_ok() {
        versions.write(writer, Lpn(written), Ppn(200 + written));
        written += 1;
    }
    assert!(written < 20, "{written}");
    assert_eq!(versions.read(reader, Lpn(3)), Some(Ppn(103)));
    versions.check().unwrap();
}

#[test]
fn a_page_without_a_mapping_is_a_version_too() {
    let mut versions = Versions::new(vec![NONE; 4], usize::MAX);
    committed(&mut versions, 0..4, 10);
    let reader = versions.begin(true);
    let trimmer = versions.begin(true);
    versions.write(trimmer, Lpn(2), NONE);
    versions.publish(trimmer);
    assert_eq!(versions.read(reader, Lpn(2)), Some(Ppn(12)));
    assert_eq!(versions.newest(Lpn(2)), NONE);
    assert_eq!(versions.take_dead(), []);
    versions.abort(reader);
    committed(&mut versions, 0..1, 20);
    assert_eq!(versions.take_dead(), [Ppn(12)]);
    versions.check().unwrap();
}
