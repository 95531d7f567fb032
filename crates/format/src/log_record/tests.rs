use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::frame::{FRAME_HEADER_BYTES, FrameKind};
use crate::ids::Moment;

/// Keyspace, key, moment or whether it is an operand, value.
type Op = (u32, Vec<u8>, Option<Until>, Option<Vec<u8>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Until {
    Moment(u64),
    Operand,
}

const STORE: StoreId = StoreId(0xfeed);

fn seal() -> Seal {
    Seal::new(STORE, FrameKind::Log, 9)
}

fn frame(ops: &[Op], first: u64) -> Vec<u8> {
    let mut builder = BatchBuilder::default();
    for (keyspace, key, until, value) in ops {
        let data = match (until, value) {
            (Some(Until::Moment(until)), Some(value)) => Data::PutUntil(Moment(*until), value),
            (Some(Until::Operand), Some(value)) => Data::Operand(value),
            (None, Some(value)) => Data::Put(value),
            (_, None) => Data::Delete,
        };
        builder.push(KeyspaceId(*keyspace), &WriteOp::Point(key, data));
    }
    assert_eq!(builder.len(), ops.len());
    let batch = builder.finish().unwrap();
    let mut out = Vec::new();
    batch.write_frame(&mut out, seal(), Seq(first), Seq(first - 1));
    assert_eq!(out.len() as u64, batch.frame_bytes());
    assert_eq!(out.len() % LOG_GRAIN_BYTES as usize, 0);
    out
}

fn decode(frame: &[u8]) -> Result<Vec<Op>> {
    let header = FrameHeader::decode(frame, seal())?;
    let padded = &frame[FRAME_HEADER_BYTES..];
    header.check_body(padded)?;
    decode_ops(&header, padded)
        .map(|op| {
            let LogOp { keyspace, action } = op?;
            let (key, data) = (action.key().unwrap(), action.data().unwrap());
            let until = data.until().map(|until| Until::Moment(until.0));
            let until = if data.is_operand() { Some(Until::Operand) } else { until };
            Ok((keyspace.0, key.to_vec(), until, data.value().map(<[u8]>::to_vec)))
        })
        .collect()
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let bytes = || vec(any::<u8>(), 0..40);
    let until = prop_oneof![any::<u64>().prop_map(Until::Moment), Just(Until::Operand)];
    let value = proptest::option::of((proptest::option::of(until), bytes()));
    let op = (any::<u32>(), bytes(), value).prop_map(|(keyspace, key, value)| match value {
        Some((until, value)) => (keyspace, key, until, Some(value)),
        None => (keyspace, key, None, None),
    });
    vec(op, 1..12)
}

proptest! {
    #[test]
    fn batches_round_trip(ops in ops(), first in 1u64..) {
        let bytes = frame(&ops, first);
        let header = FrameHeader::decode(&bytes, seal()).unwrap();
        prop_assert_eq!((header.number, header.mark), (first, first - 1));
        prop_assert_eq!(decode(&bytes).unwrap(), ops);
    }

    #[test]
    fn the_last_operation_of_each_keyspace_is_known(keyspaces in vec(0u32..4, 1..30)) {
        let mut builder = BatchBuilder::default();
        for keyspace in &keyspaces {
            builder.put(KeyspaceId(*keyspace), b"k", b"v");
        }
        let mut expected = std::collections::BTreeMap::new();
        expected.extend(keyspaces.iter().copied().zip(0u32..));
        let batch = builder.finish().unwrap();
        let found: Vec<_> = batch.last_ops().iter().map(|op| (op.keyspace.0, op.index)).collect();
        prop_assert_eq!(found.len(), expected.len());
        prop_assert_eq!(found.into_iter().collect::<std::collections::BTreeMap<_, _>>(), expected);
    }

    #[test]
    fn any_body_is_decoded_or_refused(body: Vec<u8>, count in 1u32.., len: u32) {
        let header = FrameHeader { body_crc: 0, body_bytes: len, count, number: 1, mark: 0 };
        prop_assert!(decode_ops(&header, &body).count() <= body.len() + 1);
        let header = FrameHeader { body_bytes: body.len() as u32, ..header };
        prop_assert!(decode_ops(&header, &body).count() <= body.len() + 1);
    }
}

#[test]
fn every_flipped_byte_of_a_batch_is_noticed() {
    let put = |until| (1, b"key".to_vec(), until, Some(b"value".to_vec()));
    let good = frame(
        &[
            put(None),
            put(Some(Until::Moment(9))),
            put(Some(Until::Operand)),
            (2, b"gone".into(), None, None),
        ],
        7,
    );
    decode(&good).unwrap();
    for at in 0..good.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= mask;
            assert!(decode(&bad).is_err(), "byte {at} xor {mask:#x}");
        }
    }
}

#[test]
fn padding_must_be_zero_even_when_the_checksum_fits() {
    let header = FrameHeader { body_crc: 0, body_bytes: 3, count: 1, number: 1, mark: 0 };
    assert!(decode_ops(&header, &[1, 0, 0, 0, 0]).all(|op| op.is_ok()));
    assert!(decode_ops(&header, &[1, 0, 0, 0, 1]).any(|op| op.is_err()));
}

#[test]
fn reserved_kinds_and_missing_operations_are_refused() {
    // A range without begin and end is everything.
    let known = [KIND_REMOVE_RANGE, Kind::Operand as u8];
    for kind in (2..=255).filter(|kind| !known.contains(kind)) {
        let body = [1, kind, 0, 0];
        let header = FrameHeader { body_crc: 0, body_bytes: 4, count: 1, number: 1, mark: 0 };
        assert!(decode_ops(&header, &body).any(|op| op.is_err()), "kind {kind}");
    }
    let header = FrameHeader { body_crc: 0, body_bytes: 3, count: 2, number: 1, mark: 0 };
    assert!(decode_ops(&header, &[1, 0, 0]).any(|op| op.is_err()));
}

#[test]
fn removed_ranges_round_trip_and_reversed_ones_are_refused() {
    let ranges = [(&b"a"[..], Some(&b"c"[..])), (b"", None), (b"x", None)];
    let ops = ranges.map(|(begin, end)| WriteOp::DeleteRange(KeyRange { begin, end }));
    let mut builder = BatchBuilder::default();
    ops.iter().for_each(|op| builder.push(KeyspaceId(3), op));
    let batch = builder.finish().unwrap();
    let mut bytes = Vec::new();
    batch.write_frame(&mut bytes, seal(), Seq(7), Seq(6));
    let header = FrameHeader::decode(&bytes, seal()).unwrap();
    let found = decode_ops(&header, &bytes[FRAME_HEADER_BYTES..]);
    let found: Vec<_> = found.map(|op| op.unwrap().action).collect();
    assert_eq!(found, ops);
    let body = [1, KIND_REMOVE_RANGE, 1, b'b', 1, b'a'];
    let header = FrameHeader { body_crc: 0, body_bytes: 6, count: 1, number: 1, mark: 0 };
    assert!(decode_ops(&header, &body).any(|op| op.is_err()));
}

#[test]
fn an_empty_batch_is_refused() {
    assert!(BatchBuilder::default().finish().is_err());
}

#[test]
fn segment_headers_round_trip_and_every_flipped_byte_is_noticed() {
    let header = SegmentHeader { store: STORE, id: SegmentId(3), first_seq: Seq(17) };
    let bytes = header.encode();
    assert_eq!(bytes.len(), SEGMENT_HEADER_BYTES);
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        assert!(SegmentHeader::decode(&bad).is_err(), "byte {at}");
        assert!(SegmentHeader::decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}
