use esker_format::history::{MILLIONTHS, Retention};
use esker_format::meta::IndexHistory;
use proptest::prelude::*;

use super::*;

fn create(id: u32, name: &str) -> Edit {
    Edit::KeyspaceCreate { id: KeyspaceId(id), name: name.to_string(), memtable_bytes: None }
}

fn segment(id: u64, first_seq: u64) -> SegmentRef {
    let file = id as u32;
    SegmentRef { id: SegmentId(id), file, first_seq: Seq(first_seq), bytes: 4096, end_seq: None }
}

fn close(id: u64, end: u64) -> Edit {
    Edit::SegmentClose { id: SegmentId(id), end_seq: Seq(end) }
}

fn runs() -> impl Strategy<Value = Vec<Extent>> {
    let run = (0u64..30, 1u64..4).prop_map(|(start, units)| Extent { start, units });
    proptest::collection::vec(run, 0..2)
}

/// Edits over few ids and numbers, so that many of them fit.
fn edit() -> impl Strategy<Value = Edit> {
    let index = |flushed, from| IndexMeta {
        flushed_seq: Seq(flushed),
        history: IndexHistory { from: Seq(from), ..IndexHistory::default() },
        ..IndexMeta::default()
    };
    prop_oneof![
        (1u32..20, "[ab]{1,2}").prop_map(|(id, name)| create(id, &name)),
        (1u32..20).prop_map(|id| Edit::KeyspaceDrop { id: KeyspaceId(id) }),
        (1u32..20, 0u8..3).prop_map(|(id, codec)| Edit::KeyspaceCodec {
            id: KeyspaceId(id),
            codec: Codec::from_number(codec).unwrap(),
        }),
        (1u32..20, "[ab]")
            .prop_map(|(id, name)| Edit::KeyspaceOperator { id: KeyspaceId(id), name }),
        (1u32..20, 0u64..9, any::<bool>()).prop_map(|(id, from, expires)| Edit::KeyspaceHistory {
            id: KeyspaceId(id),
            history: HistoryMeta {
                retention: Retention::All,
                share_millionths: MILLIONTHS,
                from: Seq(from),
                expires,
            },
        }),
        ("[ab]", 1u64..20).prop_map(|(name, version)| Edit::Pin { name, version: Seq(version) }),
        "[ab]".prop_map(|name| Edit::Unpin { name }),
        (1u32..20, 0u64..9, 0u64..9).prop_map(move |(id, flushed, from)| Edit::Index {
            id: KeyspaceId(id),
            index: Arc::new(index(flushed, from))
        }),
        (1u32..20, 0u64..9, 1u64..9).prop_map(|(id, from, until)| Edit::Past {
            id: KeyspaceId(id),
            edit: PastEdit::Index(Arc::new(PastIndex {
                from: Seq(from),
                until: Seq(until),
                ..PastIndex::default()
            }))
        }),
        (1u32..20, 0u64..9).prop_map(|(id, until)| Edit::Past {
            id: KeyspaceId(id),
            edit: PastEdit::Dropped(Seq(until))
        }),
        (1u32..20, 0u64..9, 1u64..9, runs()).prop_map(|(id, from, until, freed)| Edit::Past {
            id: KeyspaceId(id),
            edit: PastEdit::Replaced(
                Arc::new(PastIndex { from: Seq(from), until: Seq(until), ..PastIndex::default() }),
                freed,
            )
        }),
        (1u32..20, runs()).prop_map(|(id, released)| Edit::Past {
            id: KeyspaceId(id),
            edit: PastEdit::Space(released)
        }),
        (1u32..20, runs(), runs()).prop_map(|(id, taken, freed)| Edit::OwnedSpace {
            id: KeyspaceId(id),
            taken,
            freed
        }),
        (1u64..20, 1u64..20).prop_map(|(id, first)| Edit::SegmentAdd(segment(id, first))),
        (1u64..20, 1u64..20).prop_map(|(id, end)| close(id, end)),
        (1u64..20).prop_map(|id| Edit::SegmentRemove { id: SegmentId(id) }),
        (1u64..20).prop_map(|seq| Edit::CleanClose { seq: Seq(seq) }),
    ]
}

proptest! {
    #[test]
    fn a_snapshot_gives_the_state_back(edits in proptest::collection::vec(edit(), 0..60)) {
        let mut state = ManifestState::default();
        for edit in &edits {
            let mut next = state.clone();
            if next.apply(edit).is_ok() {
                state = next;
            }
        }
        let mut again = ManifestState::default();
        let record =
            RecordBody { next_generation: state.next_generation, edits: state.to_edits() };
        again.apply_record(&record, state.durable_seq).unwrap();
        prop_assert_eq!(again, state);
    }
}

#[test]
fn ids_are_never_used_twice() {
    let mut state = ManifestState::default();
    state.apply(&create(1, "a")).unwrap();
    state.apply(&create(2, "b")).unwrap();
    state.apply(&Edit::KeyspaceDrop { id: KeyspaceId(2) }).unwrap();
    state.apply(&create(2, "c")).unwrap_err();
    let mut again = ManifestState::default();
    for edit in state.to_edits() {
        again.apply(&edit).unwrap();
    }
    assert_eq!(again.next_keyspace, KeyspaceId(3));
    again.apply(&create(2, "c")).unwrap_err();
    again.apply(&create(3, "a")).unwrap_err();
    again.apply(&create(3, "c")).unwrap();
}

#[test]
fn one_segment_is_open_at_a_time_and_numbers_never_overlap() {
    let mut state = ManifestState::default();
    state.apply(&Edit::SegmentAdd(segment(1, 1))).unwrap();
    state.clone().apply(&Edit::SegmentAdd(segment(2, 9))).unwrap_err();
    state.clone().apply(&close(1, 0)).unwrap_err();
    state.apply(&close(1, 8)).unwrap();
    state.clone().apply(&close(1, 9)).unwrap_err();
    state.clone().apply(&Edit::SegmentAdd(segment(2, 8))).unwrap_err();
    state.clone().apply(&Edit::SegmentAdd(SegmentRef { file: 1, ..segment(2, 9) })).unwrap_err();
    state.apply(&Edit::SegmentAdd(segment(2, 9))).unwrap();
    assert_eq!(state.log_must_reach(), Seq(8));
}

#[test]
fn a_later_record_ends_the_clean_close() {
    let mut state = ManifestState::default();
    let record = |edits| RecordBody { next_generation: Generation(0), edits };
    state.apply_record(&record(vec![Edit::CleanClose { seq: Seq(4) }]), Seq(4)).unwrap();
    assert_eq!((state.clean_close, state.log_must_reach()), (Some(Seq(4)), Seq(4)));
    state.apply_record(&record(vec![create(1, "a")]), Seq(0)).unwrap();
    assert_eq!((state.clean_close, state.durable_seq), (None, Seq(4)));
}
