//! Inputs made from the encoders, so that mutation starts from what is valid.

use std::sync::Arc;

use esker_format::action::{KeyRange, WriteOp};
use esker_format::block::{BlockBuilder, BlockIdentity, Codec, Packer};
use esker_format::data::Data;
use esker_format::entry::{Entry, Payload};
use esker_format::fence::Fence;
use esker_format::frame::{FrameKind, Seal, encode_frame};
use esker_format::history::{HistoryMeta, MILLIONTHS, Retention};
use esker_format::ids::{Epoch, Generation, KeyspaceId, Moment, SegmentId, Seq, StoreId};
use esker_format::log_record::{BatchBuilder, SegmentHeader};
use esker_format::manifest_edit::{Edit, PastEdit, RecordBody, SegmentRef};
use esker_format::meta::{IndexMeta, LevelCounts, LevelMeta, PastIndex, RemovedRange, TreeMeta};
use esker_format::ptr::{BlockPtr, Extent};
use esker_format::superblock::Superblock;
use esker_format::value_ref::ValueRef;

use crate::history::{key, value};
use crate::random::Random;

const STORE: StoreId = StoreId(0x1234_5678);

/// Valid inputs of a target; empty for an unknown name.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "block" => blocks(),
        "entry" => entries(),
        "filter" => vec![Vec::new(), Random::new(1).bytes(72), vec![0xff; 64]],
        "frame" => frames(),
        "index_meta" => vec![index_meta(0), index_meta(3)],
        "log_record" => batches(),
        "manifest_edit" => records(),
        "superblock" => superblocks(),
        "store_image" => edits(),
        "canary" => vec![b"canarx".to_vec()],
        _ => Vec::new(),
    }
}

fn pointer() -> BlockPtr {
    BlockPtr { sector: 8, sectors: 8, crc: 0x1234_5678, generation: Generation(9) }
}

fn fence(filter: &[u8]) -> Fence<'_> {
    Fence { ptr: pointer(), puts: 12, tombstones: 3, filter }
}

fn entries() -> Vec<Vec<u8>> {
    let payloads = [
        (Payload::Delete, Seq(9)),
        (Payload::Put(b"value"), Seq(70)),
        (Payload::PutUntil(Moment(1 << 41), b"value"), Seq(71)),
        (Payload::Reference(&reference()), Seq(72)),
        (Payload::Fence(fence(&[0x55; 16])), Seq::MAX),
    ];
    let mut seeds: Vec<Vec<u8>> = payloads
        .into_iter()
        .map(|(payload, seq)| {
            let mut bytes = Vec::new();
            Entry { suffix: b"suffix", seq, payload }.encode(Seq(3), &mut bytes);
            bytes
        })
        .collect();
    let mut bytes = Vec::new();
    fence(&[0x55; 16]).encode(&mut bytes);
    seeds.push(bytes);
    seeds.push(reference());
    let mut bytes = Vec::new();
    let payload = Payload::Operand(b"operand");
    Entry { suffix: b"suffix", seq: Seq(73), payload }.encode(Seq(3), &mut bytes);
    seeds.push(bytes);
    seeds
}

fn reference() -> Vec<u8> {
    let run = |start, units| Extent { start, units };
    let reference = ValueRef {
        until: Some(Moment(1 << 41)),
        bytes: 70_000,
        generation: Generation(4),
        crc: 77,
        runs: vec![run(4, 16), run(40, 2)],
    };
    let mut bytes = Vec::new();
    reference.encode(&mut bytes);
    bytes
}

fn blocks() -> Vec<Vec<u8>> {
    let mut builder = BlockBuilder::new(4096);
    let mut keys: Vec<Vec<u8>> = (0..30).map(key).collect();
    keys.sort();
    keys.dedup();
    for (at, key) in keys.iter().enumerate() {
        let value = value(at as u32, 20);
        match at % 3 {
            0 => builder.push(key, Seq(at as u64 + 1), &Payload::Put(&value)),
            1 => builder.push(key, Seq(at as u64 + 1), &Payload::Delete),
            _ => builder.push(key, Seq::MAX, &Payload::Fence(fence(&[0x55; 8]))),
        }
    }
    let generation = Generation(2);
    let identity = BlockIdentity { store: STORE, keyspace: KeyspaceId(1), sector: 8, generation };
    let mut bytes = vec![0; builder.block_bytes()];
    builder.finish(identity, &mut bytes);
    let sectors = (bytes.len() / 512) as u8;
    let mut seeds = vec![[&[sectors][..], &bytes].concat(), vec![1]];
    for codec in [Codec::Lz4, Codec::Zstd] {
        for (at, key) in keys.iter().enumerate() {
            let payload = Payload::Put(b"a river, and a road beside it");
            builder.push(key, Seq(at as u64 + 1), &payload);
        }
        let mut packer = Packer::new(codec);
        let mut bytes = vec![0; builder.pack(&mut packer)];
        builder.finish_packed(identity, &packer, &mut bytes);
        seeds.push([&[(bytes.len() / 512) as u8][..], &bytes].concat());
    }
    seeds
}

fn frames() -> Vec<Vec<u8>> {
    let seal = Seal::new(STORE, FrameKind::Log, 3);
    let record = encode_frame(b"a body".to_vec(), 1, 7, 6, seal, 8);
    let segment = SegmentHeader { store: STORE, id: SegmentId(3), first_seq: Seq(4) };
    let mut seeds = vec![segment.encode()];
    seeds.extend(record);
    seeds
}

fn index(levels: u64) -> IndexMeta {
    let level = |rank: u64| LevelMeta {
        rank: rank as u8,
        counts: LevelCounts { blocks: 3, sectors: 24, puts: 90, ..LevelCounts::default() },
        seqs: (Seq(1), Seq(90)),
        extents: vec![Extent { start: rank * 16, units: 16 }],
    };
    let tree = TreeMeta {
        top: vec![pointer()],
        top_extents: vec![Extent { start: 1, units: 1 }],
        levels: (1..=levels).map(level).collect(),
    };
    let sorted_runs = vec![tree.clone(); levels as usize];
    let removed = |begin: &[u8], end: &[u8], seqs: &[u64]| RemovedRange {
        begin: begin.into(),
        end: Some(end).filter(|end| !end.is_empty()).map(Arc::from),
        seqs: seqs.iter().copied().map(Seq).collect(),
    };
    let removed = [removed(b"a", b"b", &[80, 70]), removed(b"b", b"", &[80])];
    IndexMeta {
        flushed_seq: Seq(90),
        main: tree,
        sorted_runs,
        merges: 4,
        removed: removed.into(),
        ..IndexMeta::default()
    }
}

fn index_meta(levels: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if levels == 0 {
        IndexMeta::default().encode(&mut bytes);
    } else {
        index(levels).encode(&mut bytes);
    }
    bytes
}

fn batches() -> Vec<Vec<u8>> {
    let mut batch = BatchBuilder::default();
    batch.put(KeyspaceId(1), b"key", b"value");
    let until = Data::PutUntil(Moment(1 << 41), b"value");
    batch.push(KeyspaceId(1), &WriteOp::Point(b"key", until));
    let range = KeyRange { begin: b"from", end: Some(b"to") };
    batch.push(KeyspaceId(1), &WriteOp::DeleteRange(range));
    batch.push(KeyspaceId(1), &WriteOp::DeleteRange(KeyRange { end: None, ..range }));
    batch.delete(KeyspaceId(300), b"");
    batch.put(KeyspaceId(1), b"", &[7; 200]);
    batch.push(KeyspaceId(1), &WriteOp::Point(b"key", Data::Operand(b"operand")));
    let count = (batch.len() as u16).to_le_bytes();
    let Ok(batch) = batch.finish() else { return Vec::new() };
    let mut frame = Vec::new();
    batch.write_frame(&mut frame, Seal::new(STORE, FrameKind::Log, 1), Seq(1), Seq(0));
    let body = frame.get(32..).unwrap_or_default();
    vec![[&count, body].concat()]
}

const HISTORY: HistoryMeta = HistoryMeta {
    retention: Retention::All,
    share_millionths: MILLIONTHS,
    from: Seq(7),
    expires: true,
};

fn records() -> Vec<Vec<u8>> {
    let segment = SegmentRef {
        id: SegmentId(4),
        file: 2,
        first_seq: Seq(80),
        bytes: 16 << 10,
        end_seq: None,
    };
    let id = KeyspaceId(1);
    let edits = vec![
        Edit::KeyspaceCreate { id, name: "events".into(), memtable_bytes: Some(4096) },
        Edit::KeyspaceCodec { id, codec: Codec::Zstd },
        Edit::Index { id, index: Arc::new(index(2)) },
        Edit::SegmentAdd(segment),
        Edit::SegmentClose { id: SegmentId(4), end_seq: Seq(99) },
        Edit::SegmentRemove { id: SegmentId(4) },
        Edit::KeyspaceDrop { id },
        Edit::NextKeyspace { id: KeyspaceId(2) },
        Edit::CleanClose { seq: Seq(99) },
        Edit::KeyspaceOperator { id, name: "esker.add".into() },
        Edit::KeyspaceHistory { id, history: HISTORY },
        Edit::Pin { name: "monday".into(), version: Seq(90) },
        Edit::Unpin { name: "monday".into() },
        Edit::Past { id, edit: PastEdit::Space(vec![Extent { start: 3, units: 2 }]) },
        Edit::Past { id, edit: PastEdit::Index(Arc::new(past())) },
        Edit::Past {
            id,
            edit: PastEdit::Replaced(Arc::new(past()), vec![Extent { start: 3, units: 1 }]),
        },
        Edit::Past { id, edit: PastEdit::Dropped(Seq(90)) },
    ];
    let one = |edit: &Edit| {
        let body = RecordBody::encode(std::slice::from_ref(edit), Generation(7));
        [&[1][..], &body].concat()
    };
    let all = RecordBody::encode(&edits, Generation(7));
    let mut seeds: Vec<Vec<u8>> = edits.iter().map(one).collect();
    seeds.push([&[edits.len() as u8][..], &all].concat());
    seeds
}

fn past() -> PastIndex {
    let index = index(1);
    let (main, sorted_runs, removed) = (index.main, index.sorted_runs, index.removed);
    PastIndex { from: Seq(3), until: Seq(90), main, sorted_runs, removed }
}

fn superblocks() -> Vec<Vec<u8>> {
    let superblock = Superblock { store: STORE, epoch: Epoch(5), region_bytes: 65536, features: 0 };
    vec![superblock.encode(), vec![0; 4096]]
}

/// Edits of every kind, two of each.
fn edits() -> Vec<Vec<u8>> {
    let edit = |kind: u8, which: u8| vec![kind, which, 9, 0, 3, 0xff, 0x01, 0x80];
    let all: Vec<Vec<u8>> = (0..5).flat_map(|kind| [edit(kind, 0), edit(kind, 7)]).collect();
    let mut seeds = vec![all.concat()];
    seeds.extend(all);
    seeds
}
