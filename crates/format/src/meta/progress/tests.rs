use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::ids::Generation;
use crate::meta::{IndexHistory, KindMeta, LevelCounts, LevelMeta, RemovedRange};
use crate::ptr::Extent;

const COUNTS: core::ops::Range<u64> = 0..1 << 50;

fn pointer() -> impl Strategy<Value = BlockPtr> {
    (0u64..1 << 47, 1u16..=2048, any::<u32>(), any::<u64>()).prop_map(
        |(sector, sectors, crc, generation)| BlockPtr {
            sector,
            sectors,
            crc,
            generation: Generation(generation),
        },
    )
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    vec((0u64..1 << 43, 1u64..1 << 43), 0..3)
        .prop_map(|runs| runs.into_iter().map(|(start, units)| Extent { start, units }).collect())
}

fn counts() -> impl Strategy<Value = LevelCounts> {
    proptest::array::uniform8(COUNTS).prop_map(
        |[
            blocks,
            sectors,
            puts,
            tombstones,
            put_bytes,
            tombstone_bytes,
            fences,
            kept_for_snapshots,
        ]| LevelCounts {
            blocks,
            sectors,
            puts,
            tombstones,
            put_bytes,
            tombstone_bytes,
            fences,
            kept_for_snapshots,
        },
    )
}

fn level() -> impl Strategy<Value = LevelMeta> {
    (0u8..=64, counts(), any::<(u64, u64)>(), extents()).prop_map(
        |(rank, counts, (first, last), extents)| LevelMeta {
            rank,
            counts,
            seqs: (Seq(first), Seq(last)),
            extents,
        },
    )
}

/// A tree with a number of levels in `levels`, and at least `top_min` top blocks if it has any.
fn tree(levels: core::ops::Range<usize>, top_min: usize) -> impl Strategy<Value = TreeMeta> {
    (vec(pointer(), top_min..3), extents(), vec(level(), levels)).prop_map(
        |(mut top, top_extents, levels)| {
            if levels.is_empty() {
                top.clear();
            }
            TreeMeta { top, top_extents, levels }
        },
    )
}

fn shape() -> impl Strategy<Value = Shape> {
    (any::<u16>(), 0u8..=64, 0u8..=64, COUNTS).prop_map(|(b_quarters, k, t, kappa0_bytes)| Shape {
        b_quarters,
        k,
        t,
        kappa0_bytes,
    })
}

fn tail_fence() -> impl Strategy<Value = TailFence> {
    let seq = prop_oneof![Just(u64::MAX), any::<u64>()];
    (vec(any::<u8>(), 0..9), seq, pointer(), any::<(u32, u32)>(), vec(any::<u8>(), 0..9)).prop_map(
        |(key, seq, ptr, (puts, tombstones), filter)| TailFence {
            key,
            seq: Seq(seq),
            ptr,
            puts,
            tombstones,
            filter,
        },
    )
}

fn scope() -> impl Strategy<Value = MergeScope> {
    prop_oneof![
        Just(MergeScope::Upper),
        Just(MergeScope::Full),
        Just(MergeScope::Gather),
        any::<u64>().prop_map(|at| MergeScope::Split(Seq(at))),
    ]
}

fn history() -> impl Strategy<Value = IndexHistory> {
    let fields = (0..u64::MAX, 0..=crate::history::MILLIONTHS, any::<bool>());
    fields.prop_map(|(from, replaced_millionths, splits_next)| IndexHistory {
        from: Seq(from),
        replaced_millionths,
        splits_next,
    })
}

/// The parts of a merge's progress that do not depend on the index or on its own new levels.
fn plain_progress() -> impl Strategy<Value = MergeProgress> {
    let key = || vec(any::<u8>(), 0..300);
    (
        any::<(u64, u64)>(),
        (key(), key()),
        scope(),
        shape(),
        any::<Option<u64>>(),
        proptest::option::of(tail_fence()),
    )
        .prop_map(|((from, to), (wavefront, last_key), scope, shape, last, plast)| {
            MergeProgress {
                frozen: (Seq(from.min(to)), Seq(from.max(to))),
                wavefront,
                scope,
                shape,
                last_key,
                last_data: last.map(Seq),
                plast,
                ..MergeProgress::default()
            }
        })
}

/// Any progress of a merge that replaces `levels` levels and `sorted_runs` runs, which together
/// have
/// `inputs` levels.
fn progress(levels: u8, sorted_runs: u8, inputs: usize) -> impl Strategy<Value = MergeProgress> {
    let tails = |new: TreeMeta| (vec(vec(tail_fence(), 0..4), new.levels.len()), Just(new));
    let inputs = vec((COUNTS, COUNTS), 0..=inputs);
    (plain_progress(), tree(0..4, 0).prop_flat_map(tails), inputs).prop_map(
        move |(plain, (tails, new), inputs)| MergeProgress {
            levels,
            sorted_runs,
            new,
            tails,
            inputs: inputs
                .into_iter()
                .map(|(entries, blocks)| InputProgress { entries, blocks })
                .collect(),
            ..plain
        },
    )
}

/// Any list of range tombstones.
fn removed() -> impl Strategy<Value = Arc<[RemovedRange]>> {
    let seqs = || btree_set(1u64.., 1..4);
    let keys = btree_set(vec(any::<u8>(), 0..9), 0..7);
    (keys, vec(seqs(), 4), any::<bool>()).prop_map(|(keys, seqs, is_open)| {
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        let pairs = keys.chunks(2).filter(|pair| pair.len() == 2 || is_open);
        let range = |(pair, seqs): (&[Vec<u8>], &BTreeSet<u64>)| RemovedRange {
            begin: pair[0].as_slice().into(),
            end: pair.get(1).map(|end| end.as_slice().into()),
            seqs: seqs.iter().rev().copied().map(Seq).collect(),
        };
        pairs.zip(&seqs).map(range).collect()
    })
}

/// Any index with a merge under way.
fn index() -> impl Strategy<Value = IndexMeta> {
    let runs = vec(tree(1..4, 1), 0..4);
    let bare = (any::<u64>(), shape(), COUNTS, tree(0..4, 1), runs, removed(), history()).prop_map(
        |(flushed, shape, merges, main, sorted_runs, removed, history)| IndexMeta {
            kind: KindMeta::FdTree,
            flushed_seq: Seq(flushed),
            shape,
            main,
            sorted_runs,
            merges,
            merge: None,
            removed,
            history,
        },
    );
    let merged = |index: IndexMeta| {
        (0..=index.main.levels.len() as u8, 0..=index.sorted_runs.len() as u8, Just(index))
    };
    bare.prop_flat_map(merged).prop_flat_map(|(levels, sorted_runs, index)| {
        let consumed = index.sorted_runs.iter().rev().take(usize::from(sorted_runs));
        let inputs = usize::from(levels) + consumed.map(|run| run.levels.len()).sum::<usize>();
        progress(levels, sorted_runs, inputs).prop_map(move |mut merge| {
            // A split is of versions that the index has.
            if let MergeScope::Split(at) = &mut merge.scope {
                at.0 = at.0.max(index.history.from.0.saturating_add(1));
            }
            IndexMeta { merge: Some(Box::new(merge)), ..index.clone() }
        })
    })
}

fn encoded(index: &IndexMeta) -> Vec<u8> {
    let mut bytes = Vec::new();
    index.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn an_index_with_a_merge_under_way_round_trips(index in index()) {
        let bytes = encoded(&index);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(IndexMeta::decode(&mut reader).unwrap(), index);
        reader.finish().unwrap();
    }

    #[test]
    fn every_truncation_is_refused(index in index()) {
        let bytes = encoded(&index);
        for len in 0..bytes.len() {
            let error = IndexMeta::decode(&mut Reader::new(&bytes[..len])).unwrap_err();
            prop_assert!(error.offset <= len);
        }
    }

    #[test]
    fn a_damaged_index_is_refused_or_is_what_its_bytes_say(
        index in index(),
        at: proptest::sample::Index,
        mask in 1u8..,
    ) {
        let mut bytes = encoded(&index);
        let at = at.index(bytes.len());
        bytes[at] ^= mask;
        let mut reader = Reader::new(&bytes);
        if let Ok(other) = IndexMeta::decode(&mut reader) {
            prop_assert_ne!(&other, &index);
            prop_assert_eq!(encoded(&other), &bytes[..reader.offset()]);
        }
    }

    #[test]
    fn the_extents_of_the_new_levels_belong_to_the_index(index in index()) {
        let merge = index.merge.clone().unwrap();
        let without = IndexMeta { merge: None, ..index.clone() };
        let expected: Vec<_> = without.extents().chain(merge.new.extents()).collect();
        prop_assert_eq!(index.extents().collect::<Vec<_>>(), expected);
    }
}

/// An index with two levels and two runs of one level each, and the bytes up to its merge.
fn small_index() -> (IndexMeta, Vec<u8>) {
    let ptr = BlockPtr { sector: 8, sectors: 8, crc: 1, generation: Generation(1) };
    let tree = |levels| TreeMeta {
        top: vec![ptr],
        top_extents: Vec::new(),
        levels: vec![LevelMeta::default(); levels],
    };
    let index = IndexMeta { main: tree(2), sorted_runs: vec![tree(1); 2], ..IndexMeta::default() };
    let mut bytes = encoded(&index);
    bytes.pop();
    bytes.push(1);
    (index, bytes)
}

/// The record of a merge that has not begun, field by field.
const EMPTY: [&[u8]; 12] = [
    &[0, 0],       // 0: frozen
    &[0],          // 1: wavefront
    &[0],          // 2: full
    &[0, 0],       // 3: levels, sorted_runs
    &[8, 0, 0, 0], // 4: shape
    &[0],          // 5: top blocks
    &[0, 0],       // 6: their extents, new levels
    &[0],          // 7: tails
    &[0],          // 8: last key
    &[0],          // 9: number of the last entry
    &[0],          // 10: plast
    &[0],          // 11: inputs
];

/// The result of decoding the empty record with `bytes` in place of one field: the merge, or the
/// error and its distance from the start of the field.
fn with(field: usize, bytes: &[u8]) -> core::result::Result<MergeProgress, (&'static str, usize)> {
    let mut fields = EMPTY;
    fields[field] = bytes;
    let before = small_index().1;
    let start = before.len() + fields[..field].concat().len();
    let input = [before, fields.concat()].concat();
    let mut reader = Reader::new(&input);
    let index = IndexMeta::decode(&mut reader).map_err(|e| (e.what, e.offset - start))?;
    reader.finish().map_err(|e| (e.what, e.offset - start))?;
    Ok(*index.merge.unwrap())
}

#[test]
fn the_empty_record_is_the_default() {
    assert_eq!(with(0, &[0, 0]).unwrap(), MergeProgress::default());
    let index = IndexMeta { merge: Some(Box::default()), ..small_index().0 };
    assert_eq!(encoded(&index), [small_index().1, EMPTY.concat()].concat());
}

#[test]
fn numbers_that_do_not_fit_the_index_are_refused() {
    assert_eq!(with(0, &[9, 9]).unwrap().frozen, (Seq(9), Seq(9)));
    assert_eq!(with(0, &[9, 8]).unwrap_err(), ("frozen numbers fall", 0));
    let merged = "more levels or runs are merged than there are";
    assert_eq!(with(3, &[2, 2]).map(|merge| (merge.levels, merge.sorted_runs)), Ok((2, 2)));
    assert_eq!(with(3, &[3, 0]).unwrap_err(), (merged, 0));
    assert_eq!(with(3, &[0, 3]).unwrap_err(), (merged, 0));
    assert_eq!(with(7, &[1]).unwrap_err(), ("tails and new levels differ in number", 0));
    assert_eq!(with(7, &[33]).unwrap_err(), ("length is out of bounds", 0));
}

#[test]
fn no_more_inputs_than_merged_levels() {
    let (index, before) = small_index();
    let inputs = |number: usize| {
        let merge = MergeProgress {
            levels: 2,
            sorted_runs: 1,
            inputs: vec![InputProgress { entries: 5, blocks: 6 }; number],
            ..MergeProgress::default()
        };
        let bytes = encoded(&IndexMeta { merge: Some(Box::new(merge)), ..index.clone() });
        IndexMeta::decode(&mut Reader::new(&bytes)).map_err(|error| error.offset - before.len())
    };
    assert!(inputs(3).is_ok());
    assert_eq!(inputs(4).unwrap_err(), EMPTY[..11].concat().len());
}

#[test]
fn flags_keys_and_counts_have_bounds() {
    for field in [9, 10] {
        assert_eq!(with(field, &[2]).unwrap_err(), ("flag is neither 0 nor 1", 0));
    }
    let unknown = "a merge is of a kind that is unknown to this version";
    assert_eq!(with(2, &[4]).unwrap_err(), (unknown, 0));
    assert_eq!(with(2, &[2, 9]).unwrap().scope, MergeScope::Split(Seq(9)));
    let key = |len: usize| {
        let mut bytes = Vec::new();
        put_byte_string(&mut bytes, &vec![b'k'; len]);
        bytes
    };
    for field in [1, 8] {
        assert!(with(field, &key(KEY_BYTES_MAX)).is_ok());
        let error = with(field, &key(KEY_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(error, ("length is out of bounds", 0));
    }
    let plast = [&[1][..], &key(KEY_BYTES_MAX + 1)].concat();
    assert_eq!(with(10, &plast).unwrap_err(), ("length is out of bounds", 1));
    let mut shape = vec![8, 0, 0];
    put_varint(&mut shape, COUNTS.end);
    assert_eq!(with(4, &shape).unwrap_err(), ("count is out of range", 3));
}

#[test]
fn a_split_is_as_of_a_version_that_the_index_has() {
    let history = IndexHistory { from: Seq(5), ..IndexHistory::default() };
    let decoded = |at: u64| {
        let merge = MergeProgress { scope: MergeScope::Split(Seq(at)), ..MergeProgress::default() };
        let index = IndexMeta { merge: Some(Box::new(merge)), history, ..small_index().0 };
        IndexMeta::decode(&mut Reader::new(&encoded(&index))).map_err(|error| error.what)
    };
    assert!(decoded(6).is_ok());
    assert_eq!(decoded(5).unwrap_err(), "a split as of a version of a past index");
}

#[test]
fn only_the_tree_of_a_merge_may_lack_top_fences() {
    let mut bytes = Vec::new();
    let levels = vec![LevelMeta::default()];
    TreeMeta { levels, ..TreeMeta::default() }.encode(&mut bytes);
    assert!(TreeMeta::decode(&mut Reader::new(&bytes)).is_err());
    assert!(TreeMeta::decode_unfinished(&mut Reader::new(&bytes)).is_ok());

    let top = [1, 8, 8, 1, 0, 0, 0, 0];
    assert_eq!(with(5, &top).unwrap_err(), ("top fences lead to no level", top.len() + 2));
}

#[test]
fn lengths_that_the_input_cannot_hold_are_refused() {
    let mut huge = Vec::new();
    put_varint(&mut huge, usize::MAX as u64);
    let mut level = Vec::new();
    TreeMeta { levels: vec![LevelMeta::default()], ..TreeMeta::default() }.encode(&mut level);
    let before = [small_index().1, EMPTY[..5].concat()].concat();
    let input = [before, level, vec![1], huge].concat();
    let error = IndexMeta::decode(&mut Reader::new(&input)).unwrap_err();
    assert_eq!((error.what, error.offset), ("input ends early", input.len()));
}

#[test]
fn a_fence_in_a_tail_says_what_a_fence_in_a_block_says() {
    let ptr = BlockPtr { sector: 8, sectors: 8, crc: 0, generation: Generation(1) };
    let filter = vec![1, 2];
    let tail = TailFence { key: b"k".to_vec(), seq: Seq::MAX, ptr, puts: 3, tombstones: 4, filter };
    let expected = Fence { ptr, puts: 3, tombstones: 4, filter: &[1, 2] };
    assert_eq!(tail.fence(), expected);
    let mut bytes = Vec::new();
    tail.encode(&mut bytes);
    assert_eq!(bytes, [1, b'k', 0, 8, 8, 1, 0, 0, 0, 0, 3, 4, 2, 1, 2]);
}
