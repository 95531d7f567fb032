//! The merge of a scan's sources against a plain merge of all versions.

use std::collections::BTreeMap;

use esker_format::action::KeyRange;
use esker_format::data::{Data, Value};
use esker_format::ids::Moment;
use esker_substrate::memtable::Memtable;
use esker_substrate::planted::Bug;
use proptest::prelude::*;

use super::*;

/// Numbers of a run; run 0 is the oldest.
const RUN_SEQS: u64 = 40;

type Entry = (Vec<u8>, Vec<u8>);

/// Keys that differ in their first bytes, behind their eighth byte, and by their length.
fn key(number: u8) -> Vec<u8> {
    match number % 3 {
        0 => vec![number],
        1 => [b"same head", &[number][..]].concat(),
        _ => vec![b's'; usize::from(number % 12)],
    }
}

#[derive(Debug)]
struct Content {
    /// Of each run, oldest first: key and whether it is deleted, with ascending numbers.
    runs: Vec<Vec<(u8, bool)>>,
    removed: Vec<(u8, u8, u64)>,
}

fn contents() -> impl Strategy<Value = Content> {
    let run = proptest::collection::vec((0..30u8, any::<bool>()), 0..RUN_SEQS as usize);
    let removed = (0..30u8, 0..30u8, 1..7 * RUN_SEQS);
    let all = (proptest::collection::vec(run, 0..7), proptest::collection::vec(removed, 0..4));
    all.prop_map(|(runs, removed)| Content { runs, removed })
}

impl Content {
    /// Every version, with its number.
    fn versions(&self) -> impl Iterator<Item = (usize, Vec<u8>, u64, Option<Vec<u8>>)> {
        self.runs.iter().enumerate().flat_map(|(run, versions)| {
            versions.iter().zip(1..).map(move |((number, deleted), at)| {
                let seq = run as u64 * RUN_SEQS + at;
                (run, key(*number), seq, (!deleted).then(|| format!("{number} {seq}").into_bytes()))
            })
        })
    }

    fn tombstones(&self) -> RangeTombstones {
        let points: Vec<Seq> = (0..=7 * RUN_SEQS).map(Seq).collect();
        let mut removed = RangeTombstones::default();
        let mut ranges = self.removed.clone();
        ranges.sort_by_key(|range| range.2);
        for (begin, end, seq) in ranges {
            let (begin, end) = (key(begin), key(end));
            if begin < end {
                let keys = KeyRange { begin: &begin, end: Some(&end) };
                removed = removed.with(keys, Seq(seq), (&points, None));
            }
        }
        removed
    }

    /// What a plain merge of all versions finds.
    fn expected(&self, seq: u64) -> Vec<Entry> {
        let mut newest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)> = BTreeMap::new();
        for (_, key, at, value) in self.versions().filter(|version| version.2 <= seq) {
            newest.insert(key, (at, value));
        }
        let hides = |hidden: &[u8], at: u64| {
            self.removed.iter().any(|(begin, end, removed)| {
                let (begin, end) = (key(*begin), key(*end));
                begin.as_slice() <= hidden
                    && hidden < end.as_slice()
                    && *removed <= seq
                    && at < *removed
            })
        };
        let visible = newest.into_iter().filter(|(key, (at, _))| !hides(key, *at));
        visible.filter_map(|(key, (_, value))| Some((key, value?))).collect()
    }

    /// What a scan finds in batches.
    fn scanned(&self, seq: u64, reverse: bool, entries_max: usize) -> Vec<Entry> {
        let runs: Vec<Memtable> =
            self.runs.iter().map(|_| Memtable::with_leaf_entries(4)).collect();
        for (run, key, seq, value) in self.versions() {
            runs[run].insert(&key, Seq(seq), value.as_deref().map_or(Data::Delete, Data::Put));
        }
        let leaves: Vec<_> = runs.iter().rev().map(Memtable::leaves_arc).collect();
        let (removed, mut held) = (self.tombstones(), HeldBlocks::default());
        let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
        let mut all = Vec::new();
        loop {
            let request = ScanRequest {
                at: At { seq: Seq(seq), now: Moment(0) },
                lower: lower.as_ref().map(Vec::as_slice),
                upper: upper.as_ref().map(Vec::as_slice),
                reverse,
                entries_max,
                bytes_max: usize::MAX,
                skip_damaged: false,
            };
            let sources = leaves.iter().map(|leaves| Source::memory(leaves)).collect();
            let operator = Operator::default();
            let scan = Scan::new(&request, sources, &removed, &operator, &mut held);
            let batch = scan.run().unwrap();
            assert!(batch.entries.len() <= entries_max);
            all.extend(batch.entries.into_iter().map(|(key, value)| match value {
                Value::Inline(value) => (key, value),
                other => panic!("{other:?} was not written"),
            }));
            match batch.resume {
                None => return all,
                Some(bound) if reverse => upper = bound,
                Some(bound) => lower = bound,
            }
        }
    }
}

#[test]
fn scans_in_a_wrong_order_are_found() {
    // Keys of two runs alternate, behind the same eight bytes, and in their first one.
    for numbers in [[1, 7, 13, 4, 10, 16], [0, 6, 12, 3, 9, 15]] {
        let runs = numbers.chunks(3).map(|run| run.iter().map(|key| (*key, false)).collect());
        let content = Content { runs: runs.collect(), removed: Vec::new() };
        let is_right = || content.scanned(100, false, 4) == content.expected(100);
        assert!(is_right());
        let hunt = |bug| std::panic::catch_unwind(|| planted::with(bug, is_right));
        let found: Vec<_> =
            Bug::IN_SCANS.into_iter().filter(|bug| !matches!(hunt(*bug), Ok(true))).collect();
        let expected = if numbers[0] == 1 { Bug::HeadsCompared } else { Bug::RankNotRenewed };
        assert_eq!(found, [expected]);
    }
}

proptest! {
    #[test]
    fn a_scan_finds_what_a_plain_merge_finds(
        content in contents(),
        seq in 0..7 * RUN_SEQS,
        entries_max in 1..20usize,
    ) {
        let mut expected = content.expected(seq);
        prop_assert_eq!(content.scanned(seq, false, entries_max), expected.clone());
        expected.reverse();
        prop_assert_eq!(content.scanned(seq, true, entries_max), expected);
    }
}
