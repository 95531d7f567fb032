//! Transactions that overlap, in one thread, against a sorted map for each: what each sees, and
//! whether it conflicts, to the key.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use common::{Model, assert_sound, contents, small, tiny};
use esker::{Db, IndexKind, Keyspace, KeyspaceOptions, Transaction};
use esker_device::memory::MemoryDevice;
use proptest::prelude::*;

const KEYS: u8 = 12;
const OPEN_MAX: usize = 4;

/// Which keyspace, and which of its keys.
type At = (usize, u8);

#[derive(Clone, Debug)]
enum Op {
    Begin { turn: bool },
    Get(usize, At),
    MultiGet(usize, Vec<At>),
    Scan(usize, Scan),
    Edge(usize, usize, bool),
    Write(usize, At, Option<u8>),
    Commit(usize),
    Rollback(usize),
    Plain(Vec<(At, Option<u8>)>),
    Flush,
    Compact,
}

#[derive(Clone, Debug)]
struct Scan {
    keyspace: usize,
    lower: Bound<u8>,
    upper: Bound<u8>,
    /// From which end each entry is taken.
    ends: Vec<bool>,
}

/// Lengths differ, and some keys are prefixes of others.
fn key(number: u8) -> Vec<u8> {
    let tail = if number % 3 == 1 { &b"\0"[..] } else { b"" };
    [&[b'a' + number / 2][..], &b"x".repeat(usize::from(number % 2)), tail].concat()
}

fn at() -> impl Strategy<Value = At> {
    (0..2_usize, 0..KEYS)
}

fn value() -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(0.7, any::<u8>())
}

fn bound() -> impl Strategy<Value = Bound<u8>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0..KEYS).prop_map(Bound::Included),
        (0..KEYS).prop_map(Bound::Excluded),
    ]
}

fn scan() -> impl Strategy<Value = Scan> {
    let ends = prop::collection::vec(any::<bool>(), 0..8);
    (0..2_usize, bound(), bound(), ends).prop_map(|(keyspace, lower, upper, ends)| Scan {
        keyspace,
        lower,
        upper,
        ends,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let tx = || 0..OPEN_MAX;
    prop_oneof![
        4 => prop::bool::weighted(0.2).prop_map(|turn| Op::Begin { turn }),
        6 => (tx(), at()).prop_map(|(tx, at)| Op::Get(tx, at)),
        2 => (tx(), prop::collection::vec(at(), 0..4)).prop_map(|(tx, at)| Op::MultiGet(tx, at)),
        6 => (tx(), scan()).prop_map(|(tx, scan)| Op::Scan(tx, scan)),
        2 => (tx(), 0..2_usize, any::<bool>()).prop_map(|(tx, of, last)| Op::Edge(tx, of, last)),
        8 => (tx(), at(), value()).prop_map(|(tx, at, value)| Op::Write(tx, at, value)),
        4 => tx().prop_map(Op::Commit),
        1 => tx().prop_map(Op::Rollback),
        3 => prop::collection::vec((at(), value()), 1..3).prop_map(Op::Plain),
        1 => Just(Op::Flush),
        1 => Just(Op::Compact),
    ]
}

/// A transaction, with what it should see and what it has read.
struct Open {
    tx: Transaction,
    has_turn: bool,
    /// The number of commits that it sees.
    start: usize,
    snapshot: [Model; 2],
    own: BTreeMap<At, Option<u8>>,
    read: BTreeSet<At>,
}

struct World {
    db: Db,
    keyspaces: [Keyspace; 2],
    model: [Model; 2],
    /// The keys of every commit.
    commits: Vec<Vec<At>>,
    open: Vec<Open>,
}

fn apply(model: &mut [Model; 2], (keyspace, number): At, value: Option<u8>) {
    match value {
        Some(value) => model[keyspace].insert(key(number), vec![value; 40]),
        None => model[keyspace].remove(&key(number)),
    };
}

impl Open {
    /// The entries that it sees.
    fn view(&self) -> [Model; 2] {
        let mut view = self.snapshot.clone();
        self.own.iter().for_each(|(at, value)| apply(&mut view, *at, *value));
        view
    }

    fn note(&mut self, keyspace: usize, is_read: impl Fn(&[u8]) -> bool) {
        let read = (0..KEYS).filter(|number| is_read(&key(*number)));
        let read = read.map(|number| (keyspace, number));
        let read: Vec<_> = read.filter(|at| !self.own.contains_key(at)).collect();
        self.read.extend(read);
    }

    fn scan(&mut self, keyspaces: &[Keyspace; 2], scan: &Scan) {
        let to_key = |bound: &Bound<u8>| bound.as_ref().map(|number| key(*number));
        let bounds = (to_key(&scan.lower), to_key(&scan.upper));
        let inside = |key: &[u8]| {
            let above = match &bounds.0 {
                Bound::Unbounded => true,
                Bound::Included(lower) => key >= lower.as_slice(),
                Bound::Excluded(lower) => key > lower.as_slice(),
            };
            above
                && match &bounds.1 {
                    Bound::Unbounded => true,
                    Bound::Included(upper) => key <= upper.as_slice(),
                    Bound::Excluded(upper) => key < upper.as_slice(),
                }
        };
        let view = self.view();
        let mut expected = view[scan.keyspace].iter().filter(|(key, _)| inside(key));
        let mut range = self.tx.range(&keyspaces[scan.keyspace], bounds.clone()).unwrap();
        let (mut front, mut back, mut ended) = (None, None, false);
        for from_back in &scan.ends {
            let (got, expected) = if *from_back {
                (range.next_back(), expected.next_back())
            } else {
                (range.next(), expected.next())
            };
            let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
            assert_eq!(got.transpose().unwrap(), expected);
            match expected {
                Some((key, _)) if *from_back => back = Some(key),
                Some((key, _)) => front = Some(key),
                None => ended = true,
            }
        }
        drop(range);
        let passed = |key: &[u8]| {
            let before = front.as_ref().is_some_and(|front| key <= front.as_slice());
            let behind = back.as_ref().is_some_and(|back| key >= back.as_slice());
            inside(key) && (ended || before || behind)
        };
        self.note(scan.keyspace, passed);
    }

    fn edge(&mut self, keyspaces: &[Keyspace; 2], of: usize, last: bool) {
        let view = self.view();
        let entries = &view[of];
        let keyspace = &keyspaces[of];
        let (got, expected) = if last {
            (self.tx.last(keyspace), entries.last_key_value())
        } else {
            (self.tx.first(keyspace), entries.first_key_value())
        };
        let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
        assert_eq!(got.unwrap(), expected);
        self.note(of, |key| match &expected {
            Some((edge, _)) if last => key >= edge.as_slice(),
            Some((edge, _)) => key <= edge.as_slice(),
            None => true,
        });
    }
}

impl World {
    fn new() -> Self {
        let db = small(&MemoryDevice::new()).open().unwrap();
        let lsm = || KeyspaceOptions::default().memtable_bytes(Some(4 << 10)).index(IndexKind::Lsm);
        let keyspaces = [tiny(&db, "a"), db.keyspace("b", lsm()).unwrap()];
        let (model, commits, open) = (Default::default(), Vec::new(), Vec::new());
        Self { db, keyspaces, model, commits, open }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Begin { turn } => self.begin(turn),
            Op::Plain(writes) => self.plain(&writes),
            Op::Flush => self.db.flush().unwrap(),
            Op::Compact => self.db.compact().unwrap(),
            Op::Commit(at) if at < self.open.len() => self.commit(at),
            Op::Rollback(at) if at < self.open.len() => self.open.swap_remove(at).tx.rollback(),
            Op::Get(tx, at) => self.get(tx, at),
            Op::MultiGet(tx, ats) => self.multi_get(tx, &ats),
            Op::Scan(tx, scan) => {
                let open = self.open.get_mut(tx);
                open.into_iter().for_each(|open| open.scan(&self.keyspaces, &scan));
            }
            Op::Edge(tx, of, last) => {
                let open = self.open.get_mut(tx);
                open.into_iter().for_each(|open| open.edge(&self.keyspaces, of, last));
            }
            Op::Write(tx, at, value) => self.write(tx, at, value),
            Op::Commit(_) | Op::Rollback(_) => {}
        }
    }

    fn begin(&mut self, turn: bool) {
        if self.open.len() == OPEN_MAX {
            return;
        }
        let has_turn = turn && !self.open.iter().any(|open| open.has_turn);
        let begun = if has_turn { self.db.write_transaction() } else { self.db.transaction() };
        self.open.push(Open {
            tx: begun.unwrap(),
            has_turn,
            start: self.commits.len(),
            snapshot: self.model.clone(),
            own: BTreeMap::new(),
            read: BTreeSet::new(),
        });
    }

    fn get(&mut self, tx: usize, (keyspace, number): At) {
        let Some(open) = self.open.get_mut(tx) else { return };
        let got = open.tx.get(&self.keyspaces[keyspace], key(number)).unwrap();
        assert_eq!(got.as_ref(), open.view()[keyspace].get(&key(number)));
        open.note(keyspace, |read| read == key(number));
    }

    fn multi_get(&mut self, tx: usize, ats: &[At]) {
        let Some(open) = self.open.get_mut(tx) else { return };
        let keys: Vec<_> = ats.iter().map(|(_, number)| key(*number)).collect();
        let got = open.tx.multi_get(&self.keyspaces[0], &keys).unwrap();
        let view = open.view();
        assert!(got.iter().map(Option::as_ref).eq(keys.iter().map(|key| view[0].get(key))));
        open.note(0, |read| keys.iter().any(|key| key == read));
    }

    fn write(&mut self, tx: usize, at: At, value: Option<u8>) {
        let Some(open) = self.open.get_mut(tx) else { return };
        let keyspace = &self.keyspaces[at.0];
        match value {
            Some(value) => open.tx.insert(keyspace, key(at.1), [value; 40]).unwrap(),
            None => open.tx.remove(keyspace, key(at.1)).unwrap(),
        }
        open.own.insert(at, value);
    }

    fn commit(&mut self, at: usize) {
        let Open { tx, start, own, read, .. } = self.open.swap_remove(at);
        let mut later = self.commits[start..].iter().flatten();
        let met = !own.is_empty() && later.any(|key| read.contains(key));
        match tx.commit() {
            Ok(seq) if !own.is_empty() => {
                assert!(!met, "committed over what it had read");
                assert_eq!(seq, self.db.visible_seq());
                own.iter().for_each(|(at, value)| apply(&mut self.model, *at, *value));
                self.commits.push(own.into_keys().collect());
            }
            Ok(_) => {}
            Err(error) => assert!(met && error.is_conflict(), "nothing was in between: {error}"),
        }
    }

    fn plain(&mut self, writes: &[(At, Option<u8>)]) {
        let mut batch = self.db.batch();
        for ((keyspace, number), value) in writes {
            match value {
                Some(value) => batch.insert(&self.keyspaces[*keyspace], key(*number), [*value; 40]),
                None => batch.remove(&self.keyspaces[*keyspace], key(*number)),
            }
            apply(&mut self.model, (*keyspace, *number), *value);
        }
        batch.commit().unwrap();
        self.commits.push(writes.iter().map(|(at, _)| *at).collect());
    }
}

proptest! {
    #[test]
    fn transactions_are_maps_of_their_own(ops in prop::collection::vec(op(), 1..120)) {
        let mut world = World::new();
        for op in ops {
            world.apply(op);
        }
        while !world.open.is_empty() {
            world.commit(0);
        }
        let found = world.keyspaces.each_ref().map(contents);
        prop_assert_eq!(&found, &world.model);
        prop_assert_eq!(world.db.stats().unwrap().transactions.live, 0);
        assert_sound(&world.db);
    }
}
