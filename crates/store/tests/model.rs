//! Every public operation against a sorted map, with merges of all depths and reopenings.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::ops::Bound;

use common::{Model, assert_sound, contents, copy, threaded};
use esker::{Compression, Db, IndexKind, Keyspace, KeyspaceOptions, Merge, Scheme, Snapshot};
use esker_device::memory::MemoryDevice;
use esker_testkit::scenario::LONG_VALUES;
use proptest::prelude::*;

const NAMES: [&str; 2] = ["left", "right"];

/// A key or value; long ones are printed short.
#[derive(Clone, Default, PartialEq)]
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = self.0.get(..12).unwrap_or(&self.0);
        write!(f, "\"{}\"", shown.escape_ascii())?;
        if shown.len() < self.0.len() { write!(f, "…{}", self.0.len()) } else { Ok(()) }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(usize, Bytes, Bytes),
    Remove(usize, Bytes),
    Merge(usize, Bytes, Bytes),
    MergeMany(usize, Bytes, u8),
    Batch(Vec<(usize, Change)>),
    RemoveRange(usize, Bound<Bytes>, Bound<Bytes>),
    Transaction(Vec<(usize, Change)>),
    Fill(usize, u16, u16),
    Clear(usize, u16, u16),
    Get(usize, Bytes),
    MultiGet(usize, Vec<Bytes>),
    Range(usize, Bound<Bytes>, Bound<Bytes>, Vec<bool>),
    Prefix(usize, Bytes),
    Ends(usize),
    TakeSnapshot,
    DropSnapshot,
    Flush(usize),
    FlushAll,
    Compact(usize),
    Persist,
    Recreate(usize),
    Compress(usize, Compression),
    Reopen,
    Kill,
}

#[derive(Clone, Debug)]
enum Change {
    Insert(Bytes, Bytes),
    Merge(Bytes, Bytes),
    Remove(Bytes),
    RemoveRange(Bound<Bytes>, Bound<Bytes>),
}

impl Change {
    fn make(self, model: &mut Model) {
        match self {
            Self::Insert(key, value) => drop(model.insert(key.0, value.0)),
            Self::Merge(key, operand) => model.entry(key.0).or_default().extend(operand.0),
            Self::Remove(key) => drop(model.remove(&key.0)),
            Self::RemoveRange(lower, upper) => {
                let gone = within(model, &plain(&lower), &plain(&upper));
                model.retain(|key, _| !gone.contains_key(key));
            }
        }
    }
}

fn key() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        8 => (0u16..400).prop_map(numbered),
        1 => Just(Bytes::default()),
        2 => prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), Just(b'k')], 0..6)
            .prop_map(Bytes),
        1 => (0usize..3, 1usize..2000).prop_map(|(c, len)| Bytes(vec![b'k' + c as u8; len])),
    ]
}

fn numbered(number: u16) -> Bytes {
    Bytes(format!("key{number:05}").into_bytes())
}

fn value() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Bytes),
        2 => (any::<u8>(), 100usize..900).prop_map(|(byte, len)| Bytes(vec![byte; len])),
        1 => (any::<u8>(), 3000usize..12_000).prop_map(|(byte, len)| Bytes(vec![byte; len])),
        1 => (any::<u8>(), prop::sample::select(&LONG_VALUES[..]))
            .prop_map(|(byte, len)| Bytes(vec![byte; len])),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Bytes>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        14 => (key(), value()).prop_map(|(key, value)| Change::Insert(key, value)),
        6 => (key(), value()).prop_map(|(key, operand)| Change::Merge(key, operand)),
        5 => key().prop_map(Change::Remove),
        1 => (bound(), bound()).prop_map(|(lower, upper)| Change::RemoveRange(lower, upper)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let which = || 0usize..2;
    let changes = || prop::collection::vec((which(), change()), 0..30);
    prop_oneof![
        20 => (which(), key(), value()).prop_map(|(k, key, value)| Op::Insert(k, key, value)),
        10 => (which(), key()).prop_map(|(k, key)| Op::Remove(k, key)),
        10 => (which(), key(), value()).prop_map(|(k, key, value)| Op::Merge(k, key, value)),
        2 => (which(), key(), any::<u8>()).prop_map(|(k, key, count)| Op::MergeMany(k, key, count)),
        8 => changes().prop_map(Op::Batch),
        6 => (which(), bound(), bound()).prop_map(|(k, l, u)| Op::RemoveRange(k, l, u)),
        3 => changes().prop_map(Op::Transaction),
        4 => (which(), 0u16..300, 1u16..120).prop_map(|(k, from, len)| Op::Fill(k, from, len)),
        3 => (which(), 0u16..300, 1u16..200).prop_map(|(k, from, len)| Op::Clear(k, from, len)),
        10 => (which(), key()).prop_map(|(k, key)| Op::Get(k, key)),
        3 => (which(), prop::collection::vec(key(), 0..20))
            .prop_map(|(k, keys)| Op::MultiGet(k, keys)),
        8 => (which(), bound(), bound(), prop::collection::vec(any::<bool>(), 0..300))
            .prop_map(|(k, lower, upper, ends)| Op::Range(k, lower, upper, ends)),
        3 => (which(), key()).prop_map(|(k, prefix)| Op::Prefix(k, prefix)),
        2 => which().prop_map(Op::Ends),
        3 => Just(Op::TakeSnapshot),
        2 => Just(Op::DropSnapshot),
        2 => which().prop_map(Op::Flush),
        1 => Just(Op::FlushAll),
        1 => which().prop_map(Op::Compact),
        1 => Just(Op::Persist),
        1 => which().prop_map(Op::Recreate),
        1 => (which(), compression()).prop_map(|(k, compression)| Op::Compress(k, compression)),
        2 => Just(Op::Reopen),
        2 => Just(Op::Kill),
    ]
}

fn compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(Compression::ALL.as_slice())
}

/// The settings of a run: the merge scheme of each opening in turn, and the number of steps that
/// follow each write (0: all of them).
#[derive(Clone, Debug)]
struct Manner {
    schemes: Vec<Scheme>,
    steps: u32,
    /// The initial compression of the keyspaces.
    compression: Compression,
    /// The kind of index of each keyspace; whenever it is created again, it gets the other kind.
    kinds: [IndexKind; 2],
}

fn manner() -> impl Strategy<Value = Manner> {
    let scheme = prop::sample::select(Scheme::ALL.to_vec());
    // An FD-tree keeps I1 to I3 alone, which the checks of others would miss.
    let tight = prop::sample::select(Scheme::TIGHT.to_vec());
    let schemes = prop_oneof![
        Just(vec![Scheme::Fc]),
        scheme.prop_map(|scheme| vec![scheme]),
        prop::collection::vec(tight, 2..5),
    ];
    let kind = || prop::sample::select(IndexKind::ALL.to_vec());
    (schemes, 0u32..4, compression(), [kind(), kind()]).prop_map(
        |(schemes, steps, compression, kinds)| Manner { schemes, steps, compression, kinds },
    )
}

fn other(kind: IndexKind) -> IndexKind {
    IndexKind::ALL.into_iter().find(|other| *other != kind).unwrap()
}

/// A store and what it should hold. Snapshots keep what they should see.
struct World {
    manner: Manner,
    device: MemoryDevice,
    db: Db,
    keyspaces: [Keyspace; 2],
    models: [Model; 2],
    compressions: [Compression; 2],
    snapshots: Vec<(Snapshot, [Model; 2])>,
}

impl Manner {
    fn open(&mut self, device: &MemoryDevice, create: bool) -> Db {
        self.schemes.rotate_left(1);
        let builder = threaded(device).inline_merges(self.steps).scheme(self.schemes[0]);
        builder.create(create).open().unwrap()
    }

    fn another_keyspace(&mut self, db: &Db, k: usize) -> Keyspace {
        self.kinds[k] = other(self.kinds[k]);
        self.keyspace(db, k)
    }

    fn keyspace(&self, db: &Db, k: usize) -> Keyspace {
        let options = KeyspaceOptions::default().memtable_bytes(Some(4 << 10));
        drop(db.keyspace(NAMES[k], options.index(self.kinds[k])).unwrap());
        let options = KeyspaceOptions::default().compression(self.compression);
        db.keyspace(NAMES[k], options.merge(Merge::Append)).unwrap()
    }
}

impl World {
    fn new(mut manner: Manner) -> Self {
        let device = MemoryDevice::new();
        let db = manner.open(&device, true);
        let keyspaces = [0, 1].map(|k| manner.keyspace(&db, k));
        let compressions = [manner.compression; 2];
        let (models, snapshots) = (Default::default(), Vec::new());
        Self { manner, device, db, keyspaces, models, compressions, snapshots }
    }

    /// Opens what `device` holds, in place of the present store.
    fn open(&mut self, device: MemoryDevice) {
        self.db = self.manner.open(&device, false);
        self.device = device;
        self.keyspaces = NAMES.map(|name| self.db.open_keyspace(name).unwrap().unwrap());
        let stats = self.db.stats().unwrap();
        for k in 0..2 {
            assert_eq!(contents(&self.keyspaces[k]), self.models[k]);
            assert_eq!(stats.keyspaces[k].compression, self.compressions[k]);
        }
        assert_sound(&self.db);
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(k, key, value) => {
                self.keyspaces[k].insert(&key.0, &value.0).unwrap();
                self.models[k].insert(key.0, value.0);
            }
            Op::Remove(k, key) => {
                self.keyspaces[k].remove(&key.0).unwrap();
                self.models[k].remove(&key.0);
            }
            Op::Merge(k, key, operand) => {
                self.keyspaces[k].merge(&key.0, &operand.0).unwrap();
                Change::Merge(key, operand).make(&mut self.models[k]);
            }
            Op::MergeMany(k, key, count) => {
                for at in 0..count {
                    self.apply(Op::Merge(k, key.clone(), Bytes(vec![at])));
                }
            }
            Op::Batch(changes) => self.batch(changes),
            Op::Transaction(changes) => self.transaction(changes),
            Op::RemoveRange(k, lower, upper) => {
                self.keyspaces[k].remove_range((plain(&lower), plain(&upper))).unwrap();
                Change::RemoveRange(lower, upper).make(&mut self.models[k]);
            }
            Op::Fill(k, from, len) => {
                for number in from..from + len {
                    let value = Bytes(vec![number as u8; 60 + usize::from(len)]);
                    self.apply(Op::Insert(k, numbered(number), value));
                }
            }
            Op::Clear(k, from, len) => {
                (from..from + len).for_each(|number| self.apply(Op::Remove(k, numbered(number))));
            }
            Op::Compress(k, compression) => {
                let options = KeyspaceOptions::default().compression(compression);
                self.keyspaces[k] = self.db.keyspace(NAMES[k], options).unwrap();
                self.compressions[k] = compression;
            }
            Op::TakeSnapshot if self.snapshots.len() < 4 => {
                self.snapshots.push((self.db.snapshot().unwrap(), self.models.clone()));
            }
            Op::DropSnapshot if !self.snapshots.is_empty() => drop(self.snapshots.remove(0)),
            Op::TakeSnapshot | Op::DropSnapshot => {}
            Op::Flush(k) => self.keyspaces[k].flush().unwrap(),
            Op::FlushAll => self.db.flush().unwrap(),
            Op::Compact(k) => self.keyspaces[k].compact().unwrap(),
            Op::Persist => {
                self.db.persist().unwrap();
                assert_eq!(self.db.durable_seq(), self.db.visible_seq());
            }
            Op::Recreate(k) => {
                assert!(self.db.drop_keyspace(NAMES[k]).unwrap());
                self.keyspaces[k] = self.manner.another_keyspace(&self.db, k);
                self.models[k].clear();
                self.compressions[k] = self.manner.compression;
                self.snapshots.iter_mut().for_each(|(_, models)| models[k].clear());
            }
            Op::Reopen => {
                self.snapshots.clear();
                self.db.clone().close().unwrap();
                self.open(self.device.clone());
            }
            Op::Kill => {
                self.snapshots.clear();
                self.open(copy(&self.device));
            }
            read => self.read(read),
        }
    }

    fn batch(&mut self, changes: Vec<(usize, Change)>) {
        let mut batch = self.db.batch();
        for (k, change) in &changes {
            let keyspace = &self.keyspaces[*k];
            match change {
                Change::Insert(key, value) => batch.insert(keyspace, &key.0, &value.0),
                Change::Merge(key, operand) => batch.merge(keyspace, &key.0, &operand.0),
                Change::Remove(key) => batch.remove(keyspace, &key.0),
                Change::RemoveRange(lower, upper) => {
                    batch.remove_range(keyspace, (plain(lower), plain(upper)));
                }
            }
        }
        let seq = batch.commit().unwrap();
        let merges = changes.iter().filter(|(_, change)| matches!(change, Change::Merge(..)));
        // What many operands come to may have been written behind them.
        assert!((seq..=seq + merges.count() as u64).contains(&self.db.visible_seq()));
        changes.into_iter().for_each(|(k, change)| change.make(&mut self.models[k]));
    }

    /// As a batch; what it reads on its way is what it will be.
    fn transaction(&mut self, changes: Vec<(usize, Change)>) {
        let mut tx = self.db.transaction().unwrap();
        for (k, change) in changes {
            let keyspace = &self.keyspaces[k];
            match &change {
                Change::Insert(key, value) => tx.insert(keyspace, &key.0, &value.0).unwrap(),
                Change::Merge(key, operand) => tx.merge(keyspace, &key.0, &operand.0).unwrap(),
                Change::Remove(key) => tx.remove(keyspace, &key.0).unwrap(),
                Change::RemoveRange(lower, upper) => {
                    tx.remove_range(keyspace, (plain(lower), plain(upper))).unwrap();
                }
            }
            let is_range = matches!(change, Change::RemoveRange(..));
            change.make(&mut self.models[k]);
            if is_range {
                let found: Result<Model, _> = tx.iter(keyspace).unwrap().collect();
                assert_eq!(found.unwrap(), self.models[k]);
                let found: Result<Model, _> = tx.iter(keyspace).unwrap().rev().collect();
                assert_eq!(found.unwrap(), self.models[k]);
                let key = numbered(200).0;
                assert_eq!(tx.get(keyspace, &key).unwrap().as_ref(), self.models[k].get(&key));
            }
        }
        tx.commit().unwrap();
    }

    /// Compares an answer of the store as it is, and of every snapshot.
    fn read(&self, op: Op) {
        let check = |k: usize, model: &[Model; 2], snapshot: Option<&Snapshot>| {
            compare(&op, &self.keyspaces[k], &model[k], snapshot);
        };
        let (Op::Get(k, _)
        | Op::MultiGet(k, _)
        | Op::Range(k, ..)
        | Op::Prefix(k, _)
        | Op::Ends(k)) = op
        else {
            unreachable!("not a read")
        };
        check(k, &self.models, None);
        for (snapshot, models) in &self.snapshots {
            check(k, models, Some(snapshot));
        }
    }
}

fn compare(op: &Op, keyspace: &Keyspace, model: &Model, snapshot: Option<&Snapshot>) {
    match op {
        Op::Get(_, Bytes(key)) => {
            let got = match snapshot {
                None => keyspace.get(key),
                Some(snapshot) => snapshot.get(keyspace, key),
            };
            assert_eq!(got.unwrap().as_ref(), model.get(key));
        }
        Op::MultiGet(_, keys) => {
            let keys: Vec<_> = keys.iter().map(|key| &key.0).collect();
            let got = match snapshot {
                None => keyspace.multi_get(&keys),
                Some(snapshot) => snapshot.multi_get(keyspace, &keys),
            };
            let expected: Vec<_> = keys.iter().map(|key| model.get(*key).cloned()).collect();
            assert_eq!(got.unwrap(), expected);
        }
        Op::Range(_, lower, upper, ends) => {
            let bounds = (plain(lower), plain(upper));
            let range = match snapshot {
                None => keyspace.range(bounds.clone()),
                Some(snapshot) => snapshot.range(keyspace, bounds.clone()),
            };
            from_both_ends(range.unwrap(), within(model, &bounds.0, &bounds.1), ends);
        }
        Op::Prefix(_, Bytes(prefix)) => {
            let range = match snapshot {
                None => keyspace.prefix(prefix),
                Some(snapshot) => snapshot.prefix(keyspace, prefix),
            };
            let got: Vec<_> = range.unwrap().map(Result::unwrap).collect();
            let expected: Vec<_> = model
                .iter()
                .filter(|(key, _)| key.starts_with(prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            assert_eq!(got, expected);
        }
        Op::Ends(_) => {
            let (first, last) = match snapshot {
                None => (keyspace.first(), keyspace.last()),
                Some(snapshot) => (snapshot.first(keyspace), snapshot.last(keyspace)),
            };
            let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
            assert_eq!(first.unwrap(), model.first_key_value().map(owned));
            assert_eq!(last.unwrap(), model.last_key_value().map(owned));
        }
        _ => unreachable!("not a read"),
    }
}

fn plain(bound: &Bound<Bytes>) -> Bound<Vec<u8>> {
    bound.clone().map(|bytes| bytes.0)
}

/// The model's entries between bounds, which may be reversed.
fn within(
    model: &Model,
    lower: &Bound<Vec<u8>>,
    upper: &Bound<Vec<u8>>,
) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let above = |key: &Vec<u8>| match lower {
        Bound::Unbounded => true,
        Bound::Included(lower) => key >= lower,
        Bound::Excluded(lower) => key > lower,
    };
    let below = |key: &Vec<u8>| match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
    };
    let entries = model.iter().filter(|(key, _)| above(key) && below(key));
    entries.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Takes entries from the end that `ends` names, and then all that are left from the front.
fn from_both_ends(mut range: esker::Range, expected: Model, ends: &[bool]) {
    let mut expected = expected.into_iter();
    for back in ends {
        let (got, expected) = if *back {
            (range.next_back(), expected.next_back())
        } else {
            (range.next(), expected.next())
        };
        assert_eq!(got.transpose().unwrap(), expected);
    }
    let rest: Vec<_> = range.map(Result::unwrap).collect();
    assert_eq!(rest, expected.collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig {
        // A quarter of what PROPTEST_CASES asks for: a case here is a whole life of a store.
        cases: ProptestConfig::default().cases / 4,
        max_shrink_iters: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_store_is_a_sorted_map(
        ops in prop::collection::vec(op(), 1..200),
        manner in manner(),
    ) {
        let mut world = World::new(manner);
        for op in ops {
            world.apply(op);
        }
        assert_sound(&world.db);
        world.apply(Op::Reopen);
    }
}
