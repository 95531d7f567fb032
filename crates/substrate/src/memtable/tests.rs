//! Tests of the memtable against a sorted map, of concurrent readers and writer, and of freed
//! memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use esker_format::data::Data;
use esker_format::ids::Seq;
use proptest::prelude::*;

use super::{Leaf, Leaves, Memtable, Place};

type ModelKey = (Vec<u8>, Reverse<u64>);
type Model = BTreeMap<ModelKey, Option<Vec<u8>>>;
type Found = (Vec<u8>, u64, Option<Vec<u8>>);

/// Inserts with numbers from 1 on, into a memtable and its model.
fn filled(leaf_entries: usize, ops: &[(Vec<u8>, bool)]) -> (Memtable, Model) {
    let memtable = Memtable::with_leaf_entries(leaf_entries);
    let mut model = Model::new();
    for (seq, (key, put)) in (1u64..).zip(ops) {
        let value = put.then(|| seq.to_le_bytes().to_vec());
        memtable.insert(key, Seq(seq), value.as_deref().into());
        model.insert((key.clone(), Reverse(seq)), value);
    }
    (memtable, model)
}

fn found(version: &super::Version) -> Found {
    (version.key().to_vec(), version.seq().0, version.data().value().map(<[u8]>::to_vec))
}

fn modelled(entry: (&ModelKey, &Option<Vec<u8>>)) -> Found {
    let ((key, seq), value) = entry;
    (key.clone(), seq.0, value.clone())
}

fn forwards(start: Option<Place<'_>>) -> Vec<Found> {
    std::iter::successors(start, Place::next).map(|place| found(&place)).collect()
}

fn backwards(start: Option<Place<'_>>) -> Vec<Found> {
    std::iter::successors(start, Place::prev).map(|place| found(&place)).collect()
}

/// Every search and walk in `leaves` answers what `model` does.
fn same(leaves: &Leaves, model: &Model, key: &[u8], at: u64) {
    let probe = (key.to_vec(), Reverse(at));
    let behind: Vec<_> = model.range(probe.clone()..).map(modelled).collect();
    let before: Vec<_> = model.range(..probe).rev().map(modelled).collect();
    let newest = behind.first().filter(|(found, ..)| found == key).cloned();
    assert_eq!(leaves.get(key, Seq(at)).as_ref().map(found), newest);
    assert_eq!(forwards(leaves.lower_bound(key, Seq(at))), behind);
    assert_eq!(backwards(leaves.upper_bound(key, Seq(at))), before);
    let all: Vec<_> = model.iter().map(modelled).collect();
    assert_eq!(forwards(leaves.first()), all);
    assert!(backwards(leaves.last()).into_iter().eq(all.iter().rev().cloned()));
    let mut collected = Vec::new();
    for index in 0..leaves.len() {
        leaves.collect_leaf(index, &mut collected);
    }
    leaves.collect_leaf(leaves.len(), &mut collected);
    assert_eq!(collected.iter().map(found).collect::<Vec<_>>(), all);
    assert_eq!(leaves.is_empty(), model.is_empty());
}

fn handles(leaves: &Leaves) -> Vec<Weak<Leaf>> {
    leaves.leaves().map(Arc::downgrade).collect()
}

fn living(handles: &[Weak<Leaf>]) -> usize {
    handles.iter().filter(|leaf| leaf.strong_count() > 0).count()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let prefix =
        prop_oneof![Just(&b""[..]), Just(&b"\x01"[..]), Just(&b"\x01 which many share"[..])];
    let tail = proptest::collection::vec(0u8..3, 0..12);
    (prefix, tail).prop_map(|(prefix, tail)| [prefix, &tail[..]].concat())
}

/// Few versions a leaf make many leaves; many make full chains of pages.
fn leaf_entries() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..9, 30usize..90, Just(512)]
}

fn ops() -> impl Strategy<Value = Vec<(Vec<u8>, bool)>> {
    let sorted = proptest::collection::vec((key(), any::<bool>()), 0..400);
    (sorted, 0..3).prop_map(|(mut ops, order)| {
        match order {
            0 => ops.sort(),
            1 => ops.sort_by(|left, right| right.cmp(left)),
            _ => {}
        }
        ops
    })
}

proptest! {
    #[test]
    fn behaves_like_a_sorted_map_of_versions(
        ops in ops(),
        leaf_entries in leaf_entries(),
        probe in key(),
        at in 0u64..420,
    ) {
        let (memtable, model) = filled(leaf_entries, &ops);
        let leaves = memtable.leaves();
        same(&leaves, &model, &probe, at);
        prop_assert_eq!(
            memtable.get(&probe, Seq(at)).as_ref().map(found),
            leaves.get(&probe, Seq(at)).as_ref().map(found)
        );
        let counts = memtable.counts();
        prop_assert_eq!(counts.puts as usize, ops.iter().filter(|(_, put)| *put).count());
        prop_assert_eq!((counts.puts + counts.tombstones) as usize, ops.len());
        prop_assert_eq!(memtable.is_empty(), ops.is_empty());
        prop_assert_eq!(memtable.memory_bytes(), leaves.memory_bytes());
        prop_assert!(leaves.leaves().all(|leaf| (1..=leaf_entries).contains(&leaf.len())));
    }

    #[test]
    fn a_list_behind_a_wavefront_holds_all_later_keys(
        ops in ops(),
        leaf_entries in leaf_entries(),
        mut wavefronts in proptest::collection::vec(key(), 1..4),
        probe in key(),
        at in 0u64..420,
    ) {
        wavefronts.sort();
        let (memtable, model) = filled(leaf_entries, &ops);
        let mut leaves = memtable.leaves_arc();
        for wavefront in wavefronts {
            let rest = leaves.behind(&wavefront);
            // The omitted part is a front of the list, of leaves without a later key.
            let gone = leaves.len() - rest.len();
            let mut dropped = Vec::new();
            (0..gone).for_each(|index| leaves.collect_leaf(index, &mut dropped));
            prop_assert!(dropped.iter().all(|version| version.key() <= wavefront.as_slice()));
            if let Some(first) = rest.leaves().next() {
                let last = first.last().map(|last| last.version);
                prop_assert!(last.is_some_and(|last| last.key() > wavefront.as_slice()));
            }
            let start = rest.first().map(|place| found(&place));
            let start = start.map(|(key, seq, _)| (key, Reverse(seq)));
            let left = start.map_or_else(Model::new, |start| model.clone().split_off(&start));
            prop_assert!(model.keys().filter(|(key, _)| *key > wavefront)
                .all(|key| left.contains_key(key)));
            same(&rest, &left, &probe, at);
            leaves = Arc::new(rest);
        }
    }

    #[test]
    fn an_old_list_still_has_what_it_had(
        ops in ops(),
        more in ops(),
        leaf_entries in leaf_entries(),
    ) {
        let (memtable, model) = filled(leaf_entries, &ops);
        let old = memtable.leaves_arc();
        for (seq, (key, _)) in (1000u64..).zip(&more) {
            memtable.insert(key, Seq(seq), Data::Put(b"later"));
        }
        let kept: Vec<_> =
            forwards(old.first()).into_iter().filter(|(_, seq, _)| *seq < 1000).collect();
        prop_assert_eq!(kept, model.iter().map(modelled).collect::<Vec<_>>());
    }
}

#[test]
fn an_empty_list_answers_nothing() {
    let memtable = Memtable::default();
    let leaves = memtable.leaves();
    same(&leaves, &Model::new(), b"key", 7);
    same(&leaves.behind(b"key"), &Model::new(), b"", u64::MAX);
    assert_eq!((memtable.memory_bytes(), leaves.memory_bytes(), leaves.len()), (0, 0, 0));
    assert!(memtable.is_empty());
}

#[test]
fn ascending_keys_leave_full_leaves() {
    let memtable = Memtable::with_leaf_entries(10);
    for number in 0..10_000u32 {
        memtable.insert(&number.to_be_bytes(), Seq(u64::from(number)), Data::Put(b"value"));
    }
    assert_eq!(memtable.leaves().len(), 1000);
    assert!(memtable.leaves().leaves().all(|leaf| leaf.len() == 10));
}

#[test]
fn ten_thousand_versions_of_one_key_span_leaves() {
    let memtable = Memtable::default();
    memtable.insert(b"j", Seq(1), Data::Put(b"before"));
    memtable.insert(b"l", Seq(2), Data::Put(b"after"));
    for seq in 3..10_003u64 {
        memtable.insert(b"k", Seq(seq), Data::Put(&seq.to_le_bytes()));
    }
    let leaves = memtable.leaves();
    assert!((20..=400).contains(&leaves.len()), "{leaves:?}");
    for seq in 3..10_003u64 {
        assert_eq!(
            leaves.get(b"k", Seq(seq)).unwrap().data().value(),
            Some(&seq.to_le_bytes()[..])
        );
    }
    assert!(leaves.get(b"k", Seq(2)).is_none());
    assert_eq!(leaves.lower_bound(b"k", Seq(2)).unwrap().key(), b"l");
    assert_eq!(leaves.upper_bound(b"k", Seq::MAX).unwrap().key(), b"j");
    assert_eq!(leaves.behind(b"j").first().unwrap().key(), b"j", "its leaf has later keys");
    // The leaf of the oldest versions contains the later key as well, and stays whole.
    assert_eq!(leaves.behind(b"k").len(), 1);
    assert_eq!(leaves.behind(b"k").get(b"l", Seq(2)).unwrap().data().value(), Some(&b"after"[..]));
    assert!(leaves.behind(b"l").is_empty());
}

#[test]
fn large_values_do_not_make_small_leaves_of_their_neighbours() {
    let large = vec![7; 256 << 10];
    // Small versions before, behind and between large ones, in every order.
    for order in 0..4u32 {
        let memtable = Memtable::default();
        for (seq, key) in [(1, [0u8, 128]), (2, [1, 128])] {
            memtable.insert(&key, Seq(seq), Data::Put(&large));
        }
        for number in 0..6000u32 {
            let number = if order & 1 == 0 { number } else { 5999 - number };
            let lead = if order & 2 == 0 { number % 3 } else { number / 2000 } as u8;
            let [.., high, low] = (number / 3).to_be_bytes();
            let key = [lead.min(1), if lead == 1 { 0 } else { 200 }, high, low];
            memtable.insert(&key, Seq(u64::from(number) + 10), Data::Put(b"small"));
        }
        let leaves = memtable.leaves();

        assert!(leaves.len() < 6000 / 30, "order {order}: {leaves:?}");
        let with_large = leaves.leaves().filter(|leaf| leaf.memory_bytes() > 64 << 10);
        assert!(with_large.into_iter().all(|leaf| leaf.len() == 1));
    }
}

#[test]
fn the_leaves_stay_within_their_memory() {
    let memtable = Memtable::default();
    for number in 0..20_000u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        memtable.insert(&key, Seq(number), Data::Put(&vec![1; (number % 3000) as usize]));
    }
    let leaves = memtable.leaves();
    assert!(leaves.leaves().all(|leaf| leaf.memory_bytes() <= 64 << 10));
    assert!((leaves.len() as u64) < memtable.memory_bytes() / (20 << 10), "{leaves:?}");
}

#[test]
fn memory_goes_when_leaves_are_left_behind() {
    let memtable = Memtable::default();
    for number in 0..200_000u32 {
        let key = number.wrapping_mul(0x9e37_79b9).to_be_bytes();
        memtable.insert(&key, Seq(u64::from(number)), Data::Put(&[0; 100]));
    }
    let mut rest = memtable.leaves_arc();
    let all = handles(&rest);
    let full_bytes = memtable.memory_bytes();
    assert_eq!(living(&all), all.len());
    drop(memtable);
    for step in 1..=16u32 {
        let wavefront = if step == 16 { [255; 4] } else { (step << 28).to_be_bytes() };
        rest = Arc::new(rest.behind(&wavefront));
        assert_eq!(living(&all), rest.len());
        let expected = full_bytes / 16 * u64::from(16 - step);
        assert!(rest.memory_bytes().abs_diff(expected) < full_bytes / 50, "step {step}");
    }
    assert!(rest.is_empty());
}

#[test]
fn a_parted_leaf_goes_when_its_last_reader_does() {
    let memtable = Memtable::with_leaf_entries(4);
    for number in [1u8, 3, 5, 7] {
        memtable.insert(&[number], Seq(1), Data::Delete);
    }
    let reader = memtable.leaves_arc();
    let old = handles(&reader);
    memtable.insert(&[4], Seq(2), Data::Delete);
    assert_eq!(living(&old), 1);
    assert!(memtable.leaves().leaves().all(|leaf| !Weak::ptr_eq(&Arc::downgrade(leaf), &old[0])));
    drop(reader);
    assert_eq!(living(&old), 0);
}

#[test]
fn debug_output_has_no_contents() {
    let memtable = Memtable::with_leaf_entries(1);
    memtable.insert(b"aaaa", Seq(1), Data::Put(b"aaaa"));
    let leaves = memtable.leaves();
    let place = leaves.first();
    let leaf = leaves.leaves().next().unwrap();
    let text = format!("{memtable:?} {:?} {:?} {place:?}", &**leaves, leaf);
    assert!(!text.contains("aaaa") && !text.contains("97, 97"), "{text}");
}

/// Key of the version with this number: scattered, with a few versions each.
fn scattered(seq: u64) -> [u8; 8] {
    (seq % 20_000).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn look_up(memtable: &Memtable, at: u64, step: &mut u64) {
    let leaves = memtable.leaves();
    for back in 0..at.min(64) {
        *step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let seq = at - if back < 32 { back } else { (*step >> 33) % at };
        let version = leaves.get(&scattered(seq), Seq(seq)).unwrap();
        assert_eq!(version.data().value(), Some(&seq.to_le_bytes()[..]));
    }
}

fn walk_both_ways(memtable: &Memtable, at: u64) {
    let leaves = memtable.leaves_arc();
    let mut last: Option<Place<'_>> = None;
    let mut seen = 0;
    for place in leaves.iter() {
        assert!(last.is_none_or(|last| last.position() < place.position()));
        seen += u64::from(place.seq().0 <= at);
        last = Some(place);
    }
    assert_eq!(seen, at);
    let mut place = leaves.last();
    while let Some(here) = place {
        seen -= u64::from(here.seq().0 <= at);
        place = here.prev();
        assert!(place.as_ref().is_none_or(|before| before.position() < here.position()));
    }
    assert_eq!(seen, 0);
}

#[test]
fn readers_find_what_was_inserted_before_their_number() {
    const LAST: u64 = 60_000;
    for leaf_entries in [16, 512] {
        let memtable = Memtable::with_leaf_entries(leaf_entries);
        let visible = AtomicU64::new(0);
        let until_the_last = |read: &mut dyn FnMut(u64)| {
            loop {
                let at = visible.load(Ordering::Acquire);
                read(at);
                if at == LAST {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for seq in 1..=LAST {
                    memtable.insert(&scattered(seq), Seq(seq), Data::Put(&seq.to_le_bytes()));
                    visible.store(seq, Ordering::Release);
                }
            });
            scope.spawn(|| {
                let mut step = 0;
                until_the_last(&mut |at| look_up(&memtable, at, &mut step));
            });
            scope.spawn(|| until_the_last(&mut |at| walk_both_ways(&memtable, at)));
        });
    }
}
