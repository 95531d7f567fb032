//! Every index against a map of every version: each key in each version, and each version's range.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::bulk::{Bulk, Options, Overwrite};
use super::keyspace::Kept;
use super::mvbt::Mvbt;
use super::node::{Layout, LeafForm};
use super::tmvbt::Tmvbt;
use super::{Key, Multiversion, Value, Version};

/// One transaction: keys, with a value or a deletion.
pub(super) type Transaction = Vec<(Key, bool)>;

/// Histories over few keys and over many, with few and with many deletions.
pub(super) fn histories() -> impl Strategy<Value = (Key, Vec<Transaction>)> {
    let keys = prop_oneof![Just(3 as Key), Just(20), Just(200)];
    (keys, 1u32..10, 1usize..40).prop_flat_map(|(keys, deletes, longest)| {
        let change = (0..keys, prop::bool::weighted(f64::from(deletes) / 15.0));
        let transaction = prop::collection::vec(change, 0..longest);
        (Just(keys), prop::collection::vec(transaction, 1..60))
    })
}

/// Runs a history and compares every version; `check` looks at the index after each transaction.
pub(super) fn compare<T: Multiversion>(
    index: &mut T,
    keys: Key,
    history: &[Transaction],
    mut check: impl FnMut(&mut T),
) {
    let mut state: BTreeMap<Key, Value> = BTreeMap::new();
    let mut versions: Vec<(Version, BTreeMap<Key, Value>)> = Vec::new();
    let mut value = 0;
    for transaction in history {
        index.begin().unwrap();
        for (key, is_deletion) in transaction {
            value += 1;
            if *is_deletion {
                state.remove(key);
                index.delete(*key).unwrap();
            } else {
                state.insert(*key, value);
                index.insert(*key, value).unwrap();
            }
        }
        let version = index.commit().unwrap();
        check(index);
        versions.retain(|(before, _)| *before != version);
        versions.push((version, state.clone()));
    }
    for (version, state) in versions {
        for key in 0..keys {
            let found = index.get(key, version).unwrap();
            assert_eq!(found, state.get(&key).copied(), "key {key} in version {version}");
        }
        let range: Vec<(Key, Value)> = state.into_iter().collect();
        assert_eq!(index.range(version).unwrap(), range, "version {version}");
    }
    assert_eq!(index.get(0, 0).unwrap(), None);
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout { page_bytes: 352, ..Layout::WIDE }),
        Just(Layout { page_bytes: 512, form: LeafForm::Markers, ..Layout::WIDE }),
        Just(Layout { page_bytes: 232, ..Layout::NARROW }),
    ]
}

proptest! {
    #[test]
    fn transactional_trees_answer_as_maps_do(
        layout in layouts(),
        pool in 1usize..9,
        (keys, history) in histories(),
    ) {
        let mut index = Tmvbt::new(layout, pool).unwrap();
        compare(&mut index, keys, &history, |index| index.0.check());
    }

    #[test]
    fn trees_of_one_item_a_version_answer_as_maps_do(
        layout in layouts(),
        pool in 1usize..9,
        (keys, history) in histories(),
    ) {
        let mut index = Mvbt::new(layout, pool).unwrap();
        compare(&mut index, keys, &history, |index| index.0.check());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn keyspaces_answer_as_maps_do((keys, history) in histories()) {
        let mut index = Kept::new(64).unwrap();
        compare(&mut index, keys, &history, |_| ());
    }
}

/// A long history, with splits.
#[test]
fn keyspaces_split_and_answer() {
    let keys: Vec<Key> = (0..20_000u64).map(|at| at * 7919 % 4000).collect();
    let history: Vec<Transaction> = keys
        .chunks(500)
        .map(|keys| keys.iter().map(|key| (*key, key % 7 == 0)).collect())
        .collect();
    let mut index = Kept::new(64).unwrap();
    compare(&mut index, 4000, &history, |_| ());
    index.flush().unwrap();
    let (splits, carried) = index.indexes().unwrap();
    assert!(splits > 0 && carried > 3000, "{splits} splits, {carried} entries");
    let counters = index.counters().unwrap();
    assert!(counters.writes > index.pages().unwrap() && index.log_pages().unwrap() > 0);
}

/// A long history: trees of several levels, that grow and shrink to nothing.
#[test]
fn trees_grow_and_shrink() {
    for layout in
        [Layout { page_bytes: 352, ..Layout::WIDE }, Layout { page_bytes: 232, ..Layout::NARROW }]
    {
        let keys: Vec<Key> = (0..1500).map(|at| at * 7919 % 1500).collect();
        let grow = keys.chunks(13).map(|keys| keys.iter().map(|key| (*key, false)).collect());
        let shrink = keys.chunks(17).map(|keys| keys.iter().map(|key| (*key, true)).collect());
        let history: Vec<Transaction> = grow.chain(shrink).collect();
        let mut index = Tmvbt::new(layout, 20).unwrap();
        compare(&mut index, 1500, &history, |index| index.0.check());
        let survey = index.0.survey().unwrap();
        assert_eq!(survey.height, 0);
        let changes = index.0.changes();
        assert!(changes.version_splits > 100 && changes.merges > 50 && changes.key_splits > 50);
    }
}

fn options() -> impl Strategy<Value = Options> {
    let sizes = (112usize..250, 1usize..6, 2u64..5, prop_oneof![Just(0.2), Just(0.5), Just(2.0)]);
    (sizes, any::<bool>(), any::<bool>()).prop_map(|(sizes, is_in_place, is_head_transactional)| {
        let (page_bytes, head_leaves, ratio, dead_share) = sizes;
        let overwrite = if is_in_place { Overwrite::InPlace } else { Overwrite::Alternate };
        let page_bytes = if is_head_transactional { 352 } else { page_bytes };
        let pool_pages = 3;
        Options {
            page_bytes,
            head_leaves,
            ratio,
            dead_share,
            is_head_transactional,
            overwrite,
            pool_pages,
        }
    })
}

proptest! {
    #[test]
    fn bulk_split_trees_answer_as_maps_do(options in options(), (keys, history) in histories()) {
        let mut index = Bulk::new(options).unwrap();
        compare(&mut index, keys, &history, |_| ());
    }

    #[test]
    fn both_heads_hold_the_same((keys, history) in histories(), longest in 1usize..60) {
        let options = Options { page_bytes: 352, head_leaves: 1 << 20, ..Options::USUAL };
        let transactional = Options { is_head_transactional: true, ..options };
        let mut heads = [options, transactional].map(|options| Bulk::new(options).unwrap());
        let _ = keys;
        for transaction in history.iter().take(longest) {
            for (at, head) in heads.iter_mut().enumerate() {
                head.begin().unwrap();
                for (value, (key, is_deletion)) in (1..).zip(transaction) {
                    let value = value + 100 * u64::from(head.begun());
                    if *is_deletion {
                        head.delete(*key).unwrap();
                    } else {
                        head.insert(*key, value).unwrap();
                    }
                }
                head.commit().unwrap();
                let _ = at;
            }
            let [plain, transactional] = &mut heads;
            prop_assert_eq!(plain.head_entries(), transactional.head_entries());
        }
    }
}

/// A long history: levels that are merged, and versions that are split.
#[test]
fn versions_are_split() {
    let options =
        Options { page_bytes: 208, head_leaves: 2, ratio: 3, pool_pages: 8, ..Options::USUAL };
    for is_head_transactional in [false, true] {
        let page_bytes = if is_head_transactional { 352 } else { 208 };
        let mut index =
            Bulk::new(Options { page_bytes, is_head_transactional, ..options }).unwrap();
        let change = |at: u64| (at * 7919 % 500, at % 5 == 4);
        let changes: Vec<(Key, bool)> = (0..6000).map(change).collect();
        let history: Vec<Transaction> = changes.chunks(20).map(<[_]>::to_vec).collect();
        compare(&mut index, 500, &history, |_| ());
        let work = index.work();
        assert!(work.splits >= 3 && work.merges > 100, "{work:?}");
    }
}
