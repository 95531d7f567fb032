//! The merge of a scan's sources against a plain merge of all versions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use esker_format::action::KeyRange;
use esker_format::data::{Data, Value};
use esker_format::ids::Moment;
use esker_substrate::memtable::Memtable;
use esker_substrate::planted::Bug;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::run::numbers::Numbers;

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
    /// The keys of which the greatest numbers are known on their own.
    known: (Vec<u8>, Vec<u8>),
}

fn contents() -> impl Strategy<Value = Content> {
    let run = vec((0..30u8, any::<bool>()), 0..RUN_SEQS as usize);
    let removed = (0..30u8, 0..30u8, 1..7 * RUN_SEQS);
    let known = (0..30u8, 0..30u8).prop_map(|(begin, end)| (key(begin), key(end)));
    let (run, removed) = (vec(run, 0..7), vec(removed, 0..6));
    (run, removed, known).prop_map(|(runs, removed, known)| Content { runs, removed, known })
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

    /// The greatest numbers of a run: those of some keys are known on their own.
    fn numbers(&self, of: usize) -> Numbers {
        let newest = |has: &dyn Fn(&[u8]) -> bool| {
            let versions = self.versions().filter(|(run, key, ..)| *run == of && has(key));
            Seq(versions.map(|(_, _, seq, _)| seq).max().unwrap_or_default())
        };
        let (begin, end) = self.known.clone();
        let is_known = |key: &[u8]| begin.as_slice() <= key && key < end.as_slice();
        let numbers = Numbers::up_to(newest(&|key| !is_known(key)));
        let keys = KeyRange { begin: &begin, end: Some(&end) };
        numbers.with(&keys.into(), newest(&is_known))
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
            let runs = leaves.iter().zip((0..leaves.len()).rev());
            let sources = runs.map(|(leaves, of)| {
                let mut source = Source::memory(leaves);
                source.numbers = Some(Cow::Owned(self.numbers(of)));
                source
            });
            let sources = sources.collect();
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
        let (runs, removed, known) = (runs.collect(), Vec::new(), Default::default());
        let content = Content { runs, removed, known };
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

/// By hand: a run with an old version and one that is newer than a removal of both keys, which is
/// found, by its walk and behind a jump over another run.
#[test]
fn what_was_written_after_a_removal_is_found_among_removed_keys() {
    let content = |known| Content {
        runs: vec![vec![(0, false), (3, false), (6, false)], vec![(3, false), (0, true)]],
        removed: vec![(0, 9, RUN_SEQS)],
        known,
    };
    for known in [(vec![], vec![]), (key(0), key(3)), (key(3), key(6))] {
        let content = content(known);
        for reverse in [false, true] {
            let all = content.scanned(2 * RUN_SEQS, reverse, 5);
            assert_eq!(all, [(key(3), format!("3 {}", RUN_SEQS + 1).into_bytes())]);
        }
    }
}

#[test]
fn jumps_over_newer_versions_are_found() {
    assert!(Bug::IN_SCANS.contains(&Bug::JumpsOverNewer));
    let test = what_was_written_after_a_removal_is_found_among_removed_keys;
    let hunt = || planted::with(Bug::JumpsOverNewer, test);
    assert!(std::panic::catch_unwind(hunt).is_err());
}

/// A run of which nothing is newer than a removal is not walked through.
#[test]
fn removed_keys_are_jumped_over_and_not_walked_through() {
    let memtable = Memtable::default();
    let key = |number: u64| number.to_be_bytes();
    for number in 0..1000 {
        memtable.insert(&key(number), Seq(number + 1), Data::Put(b"value"));
    }
    let (begin, end, middle) = (key(10), key(990), key(500));
    let removed = [(&begin[..], &middle[..]), (&middle[..], &end[..])];
    let removed = removed.iter().zip(2000..).fold(
        RangeTombstones::default(),
        |removed, ((begin, end), seq)| {
            let keys = KeyRange { begin, end: Some(end) };
            removed.with(keys, Seq(seq), (&[Seq(seq - 1)], None))
        },
    );
    assert_eq!(removed.len(), 2);
    let leaves = memtable.leaves_arc();
    for reverse in [false, true] {
        let request = ScanRequest {
            at: At { seq: Seq(3000), now: Moment(0) },
            lower: Bound::Unbounded,
            upper: Bound::Unbounded,
            reverse,
            entries_max: usize::MAX,
            bytes_max: usize::MAX,
            skip_damaged: false,
        };
        let mut source = Source::memory(&leaves);
        source.numbers = Some(Cow::Owned(Numbers::up_to(Seq(1000))));
        let (operator, mut held) = (Operator::default(), HeldBlocks::default());
        let mut scan = Scan::new(&request, vec![source], &removed, &operator, &mut held);
        scan.merge.start().unwrap();
        let mut keys = 0;
        while let Some((index, source)) = scan.merge.first() {
            let (head, key) = (source.head, source.key.clone());
            match scan.jump(index, &key) {
                Some(jump) => scan.merge.jump(index, &jump).unwrap(),
                None => scan.take(index, head, &key).unwrap(),
            }
            keys += 1;
        }
        // Twenty that are there, and the jump.
        assert_eq!((keys, scan.entries.len()), (21, 20));
    }
}
