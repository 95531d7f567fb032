use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::history::{MILLIONTHS, Retention};
use crate::meta::{PastIndex, Shape};

fn segment() -> impl Strategy<Value = SegmentRef> {
    (any::<u64>(), any::<u32>(), 1u64.., UNIT_BYTES..=SEGMENT_BYTES_MAX, any::<Option<u64>>())
        .prop_map(|(id, file, first_seq, bytes, end)| SegmentRef {
            id: SegmentId(id),
            file,
            first_seq: Seq(first_seq),
            bytes,
            end_seq: end.filter(|seq| *seq != 0).map(Seq),
        })
}

fn index() -> impl Strategy<Value = Arc<IndexMeta>> {
    (any::<u64>(), 0u64..1 << 50, 0u8..=64).prop_map(|(flushed, merges, k)| {
        let shape = Shape { k, ..Shape::default() };
        Arc::new(IndexMeta { flushed_seq: Seq(flushed), merges, shape, ..IndexMeta::default() })
    })
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    vec((0u64..1 << 40, 1u64..1 << 40).prop_map(|(start, units)| Extent { start, units }), 0..4)
}

fn edit() -> impl Strategy<Value = Edit> {
    let keyspace = || any::<u32>().prop_map(KeyspaceId);
    let create = (keyspace(), "[a-zé\u{4e00}]{1,80}", any::<Option<u64>>());
    prop_oneof![
        create.prop_map(|(id, name, bytes)| Edit::KeyspaceCreate {
            id,
            name,
            memtable_bytes: bytes.filter(|bytes| *bytes != 0)
        }),
        keyspace().prop_map(|id| Edit::KeyspaceDrop { id }),
        (keyspace(), index()).prop_map(|(id, index)| Edit::Index { id, index }),
        (keyspace(), extents(), extents()).prop_map(|(id, taken, freed)| Edit::OwnedSpace {
            id,
            taken,
            freed
        }),
        (keyspace(), "[a-zé\u{4e00}]{1,80}")
            .prop_map(|(id, name)| Edit::KeyspaceOperator { id, name }),
        (keyspace(), history()).prop_map(|(id, history)| Edit::KeyspaceHistory { id, history }),
        (keyspace(), any::<u64>())
            .prop_map(|(id, until)| Edit::Past { id, edit: PastEdit::Dropped(Seq(until)) }),
        (keyspace(), extents())
            .prop_map(|(id, released)| Edit::Past { id, edit: PastEdit::Space(released) }),
        (keyspace(), past(), extents()).prop_map(|(id, past, freed)| Edit::Past {
            id,
            edit: PastEdit::Replaced(past.into(), freed)
        }),
        (keyspace(), past())
            .prop_map(|(id, past)| Edit::Past { id, edit: PastEdit::Index(past.into()) }),
        ("[a-zé\u{4e00}]{1,80}", any::<u64>())
            .prop_map(|(name, version)| Edit::Pin { name, version: Seq(version) }),
        "[a-zé\u{4e00}]{1,80}".prop_map(|name| Edit::Unpin { name }),
        segment().prop_map(Edit::SegmentAdd),
        (any::<u64>(), any::<u64>())
            .prop_map(|(id, end)| Edit::SegmentClose { id: SegmentId(id), end_seq: Seq(end) }),
        any::<u64>().prop_map(|id| Edit::SegmentRemove { id: SegmentId(id) }),
        any::<u64>().prop_map(|seq| Edit::CleanClose { seq: Seq(seq) }),
        keyspace().prop_map(|id| Edit::NextKeyspace { id }),
    ]
}

fn past() -> impl Strategy<Value = PastIndex> {
    (any::<u32>(), 1..u64::from(u32::MAX)).prop_map(|(from, versions)| PastIndex {
        from: Seq(from.into()),
        until: Seq(u64::from(from) + versions),
        ..PastIndex::default()
    })
}

fn history() -> impl Strategy<Value = HistoryMeta> {
    (1..=MILLIONTHS, any::<u64>(), any::<bool>()).prop_map(|(share, from, expires)| HistoryMeta {
        retention: Retention::All,
        share_millionths: share,
        from: Seq(from),
        expires,
    })
}

proptest! {
    #[test]
    fn records_round_trip(edits in vec(edit(), 0..8), generation: u64) {
        let body = RecordBody::encode(&edits, Generation(generation));
        let record = RecordBody::decode(&body, edits.len() as u32).unwrap();
        prop_assert_eq!(record, RecordBody { next_generation: Generation(generation), edits });
    }

    #[test]
    fn any_body_is_decoded_or_refused(body: Vec<u8>, count: u32) {
        let _either = RecordBody::decode(&body, count);
    }

    #[test]
    fn a_damaged_body_is_decoded_or_refused(
        edits in vec(edit(), 1..8),
        at: proptest::sample::Index,
        mask in 1u8..,
    ) {
        let mut body = RecordBody::encode(&edits, Generation(3));
        let at = at.index(body.len());
        body[at] ^= mask;
        let _either = RecordBody::decode(&body, edits.len() as u32);
    }
}

#[test]
fn unknown_edits_are_skipped_only_when_optional() {
    let body = |tag| [&[5, tag, 2, 9, 9][..], &[TAG_CLEAN_CLOSE, 1, 4]].concat();
    let record = RecordBody::decode(&body(OPTIONAL_TAG_MIN), 2).unwrap();
    assert_eq!(record.edits, [Edit::CleanClose { seq: Seq(4) }]);
    let error = RecordBody::decode(&body(OPTIONAL_TAG_MIN - 1), 2).unwrap_err();
    assert_eq!(error.offset, 1);
}

#[test]
fn bytes_behind_an_edit_or_a_record_are_refused_where_they_begin() {
    let error = RecordBody::decode(&[0, TAG_CLEAN_CLOSE, 2, 4, 4], 1).unwrap_err();
    assert_eq!(error.offset, 4);
    let error = RecordBody::decode(&[0, TAG_CLEAN_CLOSE, 1, 4, 4], 1).unwrap_err();
    assert_eq!(error.offset, 4);
}

#[test]
fn history_has_bounds() {
    let id = KeyspaceId(1);
    let decode = |payload: &[u8]| {
        let body = [&[0, TAG_KEYSPACE_HISTORY, payload.len() as u8], payload].concat();
        RecordBody::decode(&body, 1).map(|record| record.edits)
    };
    let (retention, from) = (Retention::All, Seq(5));
    let history = HistoryMeta { retention, share_millionths: 1, from, expires: false };
    assert_eq!(decode(&[1, 0, 0, 1, 5, 0]).unwrap(), [Edit::KeyspaceHistory { id, history }]);
    assert!(decode(&[1, 0, 7, 1, 5, 0]).is_err(), "an amount");
    assert!(decode(&[1, 9, 0, 1, 5, 0]).unwrap_err().what.contains("newer esker"));
    assert!(decode(&[1, 0, 0, 0, 5, 0]).is_err(), "a share of nothing");
    assert!(decode(&[1, 0, 0, 0xc1, 0x84, 0x3d, 5, 0]).is_err(), "more than all");
    assert!(decode(&[1, 0, 0, 1, 5, 2]).unwrap_err().what.contains("newer esker"));
}

#[test]
fn names_have_bounds() {
    for bad in ["", "a\nb", "\0", "\u{7f}", &"x".repeat(256)] {
        assert!(!keyspace_name_is_valid(bad), "{bad:?}");
        let edit =
            Edit::KeyspaceCreate { id: KeyspaceId(1), name: bad.to_string(), memtable_bytes: None };
        let operator = Edit::KeyspaceOperator { id: KeyspaceId(1), name: bad.to_string() };
        for edit in [edit, operator] {
            assert!(RecordBody::decode(&RecordBody::encode(&[edit], Generation(1)), 1).is_err());
        }
    }
    assert!(keyspace_name_is_valid(&"x".repeat(255)));
    assert!(keyspace_name_is_valid("größe/1 a"));
}
