use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Keys "a" to "p", and what is behind them.
const KEYS: u8 = 16;

fn key(number: u8) -> Vec<u8> {
    vec![b'a' + number]
}

/// Every range tombstone of each key, newest first.
type Model = BTreeMap<u8, Vec<Seq>>;

#[derive(Clone, Debug)]
struct Removal {
    begin: u8,
    end: Option<u8>,
    /// A snapshot is taken before.
    held: bool,
}

fn removals() -> impl Strategy<Value = Vec<Removal>> {
    let removal = (0..KEYS, proptest::option::weighted(0.9, 1..=KEYS), any::<bool>());
    let removal = removal.prop_map(|(begin, len, held)| {
        let end = len.map(|len| begin.saturating_add(len).min(KEYS));
        Removal { begin, end, held }
    });
    proptest::collection::vec(removal, 0..40)
}

fn obeys(removed: &RangeTombstones) {
    for (left, right) in removed.ranges().zip(removed.ranges().skip(1)) {
        let left_end = left.end.as_deref().unwrap();
        assert!(left_end <= &*right.begin, "{removed:?}");
        assert!(left_end < &*right.begin || left.seqs != right.seqs, "{removed:?}");
    }
    for range in removed.ranges() {
        assert!(range.end.as_deref().is_none_or(|end| *range.begin < *end));
        assert!(!range.seqs.is_empty() && range.seqs.is_sorted_by(|a, b| a > b));
    }
}

proptest! {
    #[test]
    fn every_key_has_its_removals_for_every_snapshot(removals in removals()) {
        let (mut removed, mut model) = (RangeTombstones::default(), Model::new());
        let mut held = Vec::new();
        let mut visible = Seq(0);
        for (removal, seq) in removals.iter().zip((1..).map(|n| Seq(2 * n))) {
            if removal.held {
                held.push(visible);
            }
            let live = held.iter().rev().copied();
            let points: Vec<Seq> = [visible].into_iter().chain(live).collect();
            let (begin, end) = (key(removal.begin), removal.end.map(key));
            let keys = KeyRange { begin: &begin, end: end.as_deref() };
            removed = removed.with(keys, seq, (&points, None));
            for number in removal.begin..removal.end.unwrap_or(KEYS + 1) {
                model.entry(number).or_default().insert(0, seq);
            }
            visible = seq;
            obeys(&removed);
        }
        for number in 0..=KEYS {
            let all = model.get(&number).cloned().unwrap_or_default();
            for point in held.iter().copied().chain([visible]) {
                let expected = all.iter().copied().find(|seq| *seq <= point).unwrap_or_default();
                prop_assert_eq!(removed.newest(&key(number), point), expected);
            }
        }
        let middle = Seq(removals.len() as u64);
        let (low, high) = (removed.up_to(middle), removed.above(middle));
        obeys(&low);
        obeys(&high);
        let seqs = |set: &RangeTombstones, key: &[u8]| {
            set.at(key).map_or(Vec::new(), |at| at.seqs.clone())
        };
        for key in (0..=KEYS).map(key) {
            let both = [seqs(&high, &key), seqs(&low, &key)].concat();
            prop_assert_eq!(both, seqs(&removed, &key));
        }
    }
}

#[test]
fn a_queue_that_is_emptied_from_the_front_has_one_range() {
    let mut removed = RangeTombstones::default();
    for n in 1..1000_u64 {
        let end = n.to_be_bytes();
        let keys = KeyRange { begin: b"", end: Some(&end) };
        removed = removed.with(keys, Seq(n), (&[Seq(n - 1)], None));
        assert!(removed.ranges().count() <= 2 && removed.len() <= 4, "{removed:?}");
    }
}

#[test]
fn what_is_removed_again_without_a_witness_is_removed_once() {
    let keys = |begin, end| KeyRange { begin, end: Some(end) };
    let once = RangeTombstones::default().with(keys(b"a", b"c"), Seq(3), (&[Seq(2)], None));
    let unseen = once.with(keys(b"a", b"c"), Seq(7), (&[Seq(6)], None));
    let again = unseen.with(keys(b"a", b"c"), Seq(9), (&[Seq(8), Seq(2)], None));
    assert_eq!(again.at(b"b").unwrap().seqs, [Seq(9), Seq(7)]);
    let seen = unseen.with(keys(b"a", b"c"), Seq(9), (&[Seq(8), Seq(5)], None));
    assert_eq!(seen.at(b"b").unwrap().seqs, [Seq(9), Seq(7), Seq(3)]);
}
