//! The example bytes of docs/format are what the encoders write, and decode to what they say.
//!
//! An example is a code block with the language `hex` and a name. Each line holds bytes, then
//! optionally `;` and words for the reader; `00 × 12` stands for twelve zeros.

use std::sync::Arc;

use esker_format::action::{KeyRange, KeyRangeBuf, WriteOp};
use esker_format::backup::{Catalog, LogChunk, Piece};
use esker_format::block::{
    BlockBuilder, BlockIdentity, BlockLayout, BlockView, Codec, Packer, Unpacker,
};
use esker_format::bytes::{Reader, put_varint};
use esker_format::data::Data;
use esker_format::entry::{Entry, Payload};
use esker_format::fence::Fence;
use esker_format::filter;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Seal, encode_frame};
use esker_format::history::{HistoryMeta, MILLIONTHS, Retention};
use esker_format::ids::{Epoch, Generation, KeyspaceId, Moment, SegmentId, Seq, StoreId};
use esker_format::log_record::{BatchBuilder, LogOp, SegmentHeader, decode_ops};
use esker_format::manifest_edit::{Edit, MANIFEST_GRAIN_BYTES, PastEdit, RecordBody, SegmentRef};
use esker_format::meta::{
    IndexHistory, IndexMeta, InputProgress, KindMeta, LearntMeta, LevelCounts, LevelMeta, LsmLevel,
    LsmMeta, MergeProgress, MergeScope, PastIndex, Real, RemovedRange, Shape, TailFence, TreeMeta,
};
use esker_format::ptr::{BlockPtr, Extent};
use esker_format::superblock::{FEATURE_COMPRESSION, FEATURE_EXPIRY, Superblock};
use esker_format::value_piece::{self, PieceIdentity};
use esker_format::value_ref::ValueRef;

const PAGES: &str = concat!(
    include_str!("../../../docs/format/store.md"),
    include_str!("../../../docs/format/backup.md"),
    include_str!("../../../docs/format/pages.md"),
);

const STORE: StoreId = StoreId(0x0123_4567_89ab_cdef);

/// The bytes of the example called `name`, if the page has it and it can be read.
fn example(name: &str) -> Option<Vec<u8>> {
    let (_, after) = PAGES.split_once(&format!("```hex {name}\n"))?;
    let (text, _) = after.split_once("\n```")?;
    let mut bytes = Vec::new();
    for line in text.lines() {
        let code = line.split(';').next()?.trim();
        if let Some((byte, count)) = code.split_once(" × ") {
            let byte = u8::from_str_radix(byte, 16).ok()?;
            bytes.resize(bytes.len() + count.parse::<usize>().ok()?, byte);
        } else {
            for byte in code.split_whitespace() {
                bytes.push(u8::from_str_radix(byte, 16).ok()?);
            }
        }
    }
    Some(bytes)
}

/// Compares by lines of sixteen, so that a failure shows where the page is wrong.
fn assert_is_example(name: &str, bytes: &[u8]) {
    let dump = |bytes: &[u8]| -> Vec<String> {
        let rows = bytes.chunks(16).enumerate();
        rows.map(|(row, bytes)| format!("{:06x} {bytes:02x?}", row * 16)).collect()
    };
    let found = example(name).map(|bytes| dump(&bytes));
    assert_eq!(found, Some(dump(bytes)), "example {name}: page left, encoder right");
}

fn pointer() -> BlockPtr {
    BlockPtr { sector: 4096, sectors: 8, crc: 0xa1b2_c3d4, generation: Generation(300) }
}

#[test]
fn numbers() {
    let mut bytes = Vec::new();
    for number in [0, 127, 128, 300, u64::MAX] {
        put_varint(&mut bytes, number);
    }
    assert_is_example("varint", &bytes);
}

#[test]
fn block_pointer() {
    let mut bytes = Vec::new();
    pointer().encode(&mut bytes);
    assert_is_example("pointer", &bytes);
    assert_eq!(BlockPtr::decode(&mut Reader::new(&bytes)).unwrap(), pointer());
}

#[test]
fn bloom_filter() {
    let hashes: Vec<u64> = [b"ada", b"bob", b"eve"].map(|key| filter::hash(key)).to_vec();
    let mut bytes = Vec::new();
    filter::build(&hashes, filter::BITS_PER_KEY, &mut bytes);
    assert_is_example("filter", &bytes);
    assert_eq!(filter::hash(b"ada"), HASH_OF_ADA);
}

/// The beginning of 2030, UTC.
const UNTIL: Moment = Moment(1_893_456_000_000);

/// Written in the page's text.
const HASH_OF_ADA: u64 = 0x691d_4463_952c_802f;

#[test]
fn entries() {
    let mut filter = Vec::new();
    filter::build(&[filter::hash(b"ada")], filter::BITS_PER_KEY, &mut filter);
    let fence = Fence { ptr: pointer(), puts: 1, tombstones: 0, filter: &filter };
    let until = Payload::PutUntil(UNTIL, b"1815");
    let cases = [
        ("put", Entry { suffix: b"ada", seq: Seq(1007), payload: Payload::Put(b"1815") }),
        ("put until", Entry { suffix: b"ada", seq: Seq(1007), payload: until }),
        ("operand", Entry { suffix: b"ada", seq: Seq(1009), payload: Payload::Operand(b"+1") }),
        ("delete", Entry { suffix: b"bob", seq: Seq(1000), payload: Payload::Delete }),
        ("fence", Entry { suffix: b"a", seq: Seq::MAX, payload: Payload::Fence(fence) }),
    ];
    for (name, entry) in cases {
        let mut bytes = Vec::new();
        entry.encode(Seq(1000), &mut bytes);
        assert_is_example(name, &bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(Entry::decode(&mut reader, Seq(1000)).unwrap(), entry);
        reader.finish().unwrap();
    }
}

#[test]
fn block() {
    let identity = BlockIdentity {
        store: STORE,
        keyspace: KeyspaceId(3),
        sector: 4096,
        generation: Generation(300),
    };
    let mut builder = BlockBuilder::new(4096);
    builder.push(b"user/ada", Seq(1007), &Payload::Put(b"1815"));
    builder.push(b"user/bob", Seq(1000), &Payload::Delete);
    let mut bytes = vec![0xee; builder.block_bytes()];
    let finished = builder.finish(identity, &mut bytes);
    assert_is_example("block", &bytes);
    let layout = BlockLayout::verify(&bytes, identity, finished.crc).unwrap();
    let view = BlockView::new(&bytes, layout);
    let found = view.find(b"user/ada", Seq::MAX).unwrap().unwrap();
    assert_eq!((found.seq, found.payload), (Seq(1007), Payload::Put(b"1815")));
}

#[test]
fn block_of_rows() {
    let identity = BlockIdentity {
        store: STORE,
        keyspace: KeyspaceId(3),
        sector: 4096,
        generation: Generation(300),
    };
    let mut builder = BlockBuilder::new(4096);
    builder.push(b"user/ada", Seq(1007), &Payload::Put(b"1815"));
    builder.push(b"user/eve", Seq(1000), &Payload::Put(b"1990"));
    let mut bytes = vec![0xee; builder.block_bytes()];
    let finished = builder.finish(identity, &mut bytes);
    assert_is_example("rows", &bytes);
    let layout = BlockLayout::verify(&bytes, identity, finished.crc).unwrap();
    let view = BlockView::new(&bytes, layout);
    let found = view.find(b"user/ada", Seq::MAX).unwrap().unwrap();
    assert_eq!((found.seq, found.payload), (Seq(1007), Payload::Put(b"1815")));
}

#[test]
fn compressed_block() {
    let identity = BlockIdentity {
        store: STORE,
        keyspace: KeyspaceId(3),
        sector: 4096,
        generation: Generation(300),
    };
    let mut builder = BlockBuilder::new(4096);
    builder.push(b"user/ada", Seq(1007), &Payload::Put(&[b'1'; 500]));
    builder.push(b"user/eve", Seq(1000), &Payload::Put(&[b'2'; 500]));
    let mut packer = Packer::new(Codec::Lz4);
    let mut bytes = vec![0xee; builder.pack(&mut packer)];
    let finished = builder.finish_packed(identity, &packer, &mut bytes);
    assert_is_example("compressed block", &bytes);
    let layout = BlockLayout::verify(&bytes, identity, finished.crc).unwrap();
    let mut plain = Vec::new();
    layout.unpack(&bytes, &mut Unpacker::default(), &mut plain).unwrap();
    let view = BlockView::new(&plain, layout);
    let found = view.find(b"user/eve", Seq::MAX).unwrap().unwrap();
    assert_eq!((found.seq, found.payload), (Seq(1000), Payload::Put(&[b'2'; 500])));
}

fn index_meta() -> IndexMeta {
    let tree = |top: u64| TreeMeta {
        top: vec![BlockPtr {
            sector: top,
            sectors: 8,
            crc: 0xa1b2_c3d4,
            generation: Generation(9),
        }],
        top_extents: vec![Extent { start: top / 8, units: 1 }],
        levels: vec![LevelMeta {
            rank: 1,
            counts: LevelCounts {
                blocks: 2,
                sectors: 16,
                puts: 50,
                tombstones: 1,
                put_bytes: 6000,
                tombstone_bytes: 20,
                fences: 0,
                kept_for_snapshots: 0,
            },
            seqs: (Seq(1), Seq(51)),
            extents: vec![Extent { start: 4, units: 2 }],
        }],
    };
    IndexMeta {
        flushed_seq: Seq(51),
        shape: Shape { b_quarters: 8, k: 1, t: 5, kappa0_bytes: 4096 },
        main: tree(8),
        sorted_runs: Vec::new(),
        merges: 1,
        merge: None,
        removed: Arc::default(),
        kind: KindMeta::FdTree,
        history: IndexHistory::default(),
    }
}

#[test]
fn index() {
    let mut bytes = Vec::new();
    index_meta().encode(&mut bytes);
    assert_is_example("index", &bytes);
    let mut reader = Reader::new(&bytes);
    assert_eq!(IndexMeta::decode(&mut reader).unwrap(), index_meta());
    reader.finish().unwrap();
}

/// The tree of [`index_meta`] is merged with a sorted run of the same counts; "ada" is the last
/// key that has been written.
fn merge_progress() -> MergeProgress {
    let level = |counts, seqs, start, units| LevelMeta {
        rank: 1,
        counts,
        seqs,
        extents: vec![Extent { start, units }],
    };
    let zero = LevelCounts::default();
    let fences = LevelCounts { blocks: 1, sectors: 8, fences: 1, ..zero };
    let data = LevelCounts { blocks: 2, sectors: 16, puts: 32, put_bytes: 3840, ..zero };
    let tail = |key: &[u8], sector, puts, filter: &[u8]| TailFence {
        key: key.to_vec(),
        seq: Seq::MAX,
        ptr: BlockPtr { sector, sectors: 8, crc: 0xa1b2_c3d4, generation: Generation(9) },
        puts,
        tombstones: 0,
        filter: filter.to_vec(),
    };
    MergeProgress {
        frozen: (Seq(51), Seq(60)),
        wavefront: b"ada".to_vec(),
        scope: MergeScope::Full,
        levels: 1,
        sorted_runs: 1,
        shape: Shape { b_quarters: 8, k: 1, t: 5, kappa0_bytes: 4096 },
        new: TreeMeta {
            top: Vec::new(),
            top_extents: Vec::new(),
            levels: vec![
                level(fences, (Seq(0), Seq(0)), 6, 1),
                level(data, (Seq(1), Seq(48)), 7, 2),
            ],
        },
        tails: vec![vec![tail(b"", 48, 0, b"")], vec![tail(b"a", 64, 1, &[0x48, 0xa6])]],
        last_key: b"ada".to_vec(),
        last_data: Some(Seq(48)),
        plast: None,
        inputs: vec![
            InputProgress { entries: 15, blocks: 1 },
            InputProgress { entries: 17, blocks: 0 },
        ],
    }
}

#[test]
fn merge_under_way() {
    let mut index = index_meta();
    index.sorted_runs.push(index.main.clone());
    let mut before = Vec::new();
    index.encode(&mut before);
    assert_eq!(before.pop(), Some(0), "no merge");
    index.merge = Some(Box::new(merge_progress()));
    let mut bytes = Vec::new();
    index.encode(&mut bytes);
    let (trees, merge) = bytes.split_at(before.len());
    assert_eq!(trees, before);
    assert_is_example("merge", merge);
    let mut reader = Reader::new(&bytes);
    assert_eq!(IndexMeta::decode(&mut reader).unwrap(), index);
    reader.finish().unwrap();
}

#[test]
fn value_reference() {
    let run = |start, units| Extent { start, units };
    let value = ValueRef {
        until: None,
        bytes: 300_000,
        generation: Generation(300),
        crc: 0xa1b2_c3d4,
        runs: vec![run(512, 32), run(1000, 42)],
    };
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    assert_is_example("value reference", &bytes);
    assert_eq!(ValueRef::decode(&bytes).unwrap(), value);
}

#[test]
fn value_piece() {
    let identity = PieceIdentity { store: STORE, generation: Generation(300), number: 0 };
    let mut piece = vec![0; 4096];
    piece[40..44].copy_from_slice(b"1815");
    value_piece::seal(&mut piece, identity, 0, 4);
    assert_is_example("value piece", &piece);
    assert_eq!(value_piece::open(&piece, identity).unwrap().0, b"1815");
}

#[test]
fn segment_header() {
    let header = SegmentHeader { store: STORE, id: SegmentId(7), first_seq: Seq(1000) };
    let bytes = header.encode();
    assert_is_example("segment header", &bytes);
    assert_eq!(SegmentHeader::decode(&bytes).unwrap(), header);
}

#[test]
fn log_record() {
    let mut batch = BatchBuilder::default();
    batch.put(KeyspaceId(3), b"ada", b"1815");
    batch.delete(KeyspaceId(3), b"bob");
    let seal = Seal::new(STORE, FrameKind::Log, 7);
    let mut bytes = Vec::new();
    batch.finish().unwrap().write_frame(&mut bytes, seal, Seq(1000), Seq(990));
    assert_is_example("log record", &bytes);

    let header = FrameHeader::decode(&bytes, seal).unwrap();
    assert_eq!((header.number, header.count, header.mark), (1000, 2, 990));
    let body = &bytes[FRAME_HEADER_BYTES..];
    header.check_body(body).unwrap();
    let ops: Vec<_> = decode_ops(&header, body).collect::<Result<_, _>>().unwrap();
    let op = |key, data| LogOp { keyspace: KeyspaceId(3), action: WriteOp::Point(key, data) };
    assert_eq!(ops, [op(&b"ada"[..], Data::Put(b"1815")), op(&b"bob"[..], Data::Delete)]);
}

#[test]
fn removal_of_a_range() {
    let action = WriteOp::DeleteRange(KeyRange { begin: b"ada", end: Some(b"bob") });
    let mut batch = BatchBuilder::default();
    batch.push(KeyspaceId(3), &action);
    let seal = Seal::new(STORE, FrameKind::Log, 7);
    let mut bytes = Vec::new();
    batch.finish().unwrap().write_frame(&mut bytes, seal, Seq(1000), Seq(990));
    let header = FrameHeader::decode(&bytes, seal).unwrap();
    let body = &bytes[FRAME_HEADER_BYTES..];
    assert_is_example("remove range", &body[..header.body_bytes as usize]);
    let ops: Vec<_> = decode_ops(&header, body).collect::<Result<_, _>>().unwrap();
    assert_eq!(ops, [LogOp { keyspace: KeyspaceId(3), action }]);
}

/// The bytes that removed ranges add to the end of an index.
#[test]
fn removed_ranges() {
    let range = |begin: &[u8], end: Option<&[u8]>, seqs: &[u64]| RemovedRange {
        begin: begin.into(),
        end: end.map(Arc::from),
        seqs: seqs.iter().copied().map(Seq).collect(),
    };
    let removed = [range(b"ada", Some(b"bob"), &[50, 12]), range(b"eve", None, &[12])];
    let index = IndexMeta { removed: removed.into(), ..index_meta() };
    let (mut plain, mut bytes) = (Vec::new(), Vec::new());
    index_meta().encode(&mut plain);
    index.encode(&mut bytes);
    assert_eq!(bytes[..plain.len() - 2], plain[..plain.len() - 2]);
    assert_is_example("removed ranges", &bytes[plain.len() - 2..]);
    assert_eq!(IndexMeta::decode(&mut Reader::new(&bytes)).unwrap(), index);
}

/// An index of one run, of which some is gone, and one level.
#[test]
fn lsm_index() {
    let gone = KeyRangeBuf { begin: b"ada".to_vec(), end: Some(b"bob".to_vec()) };
    let mut tree = index_meta().main;
    tree.top_extents.clear();
    tree.levels[0].extents.clear();
    let level = LsmLevel { tree, units: 2, node_units: 1, cursor: b"cat".to_vec() };
    let (levels, gone) = (vec![level], vec![vec![gone]]);
    let lsm = LsmMeta { levels, gone, cursor: b"bob".to_vec(), learnt: None };
    let main = index_meta();
    let index = IndexMeta {
        sorted_runs: vec![main.main.clone()],
        main: TreeMeta::default(),
        kind: KindMeta::Lsm(Box::new(lsm)),
        ..main
    };
    let mut bytes = Vec::new();
    index.encode(&mut bytes);
    let mut without = Vec::new();
    IndexMeta { kind: KindMeta::FdTree, ..index.clone() }.encode(&mut without);
    assert_is_example("lsm index", &bytes[without.len() - 4..]);
    assert_eq!(IndexMeta::decode(&mut Reader::new(&bytes)).unwrap(), index);
}

#[test]
fn what_a_policy_has_learnt() {
    let learnt = LearntMeta {
        last: 3,
        mu: Real::new(0.125),
        window_records: 500,
        phase: 3,
        level: 0,
        step: 0,
        cost: Some(Real::new(0.25)),
        records: 300,
        found: vec![Real::new(0.5)],
        learnt: vec![Real::new(0.0)],
        is_last_full: true,
        reference: Some((Real::new(1.5), 7)),
    };
    let lsm = LsmMeta { learnt: Some(learnt), ..LsmMeta::default() };
    let index = IndexMeta { kind: KindMeta::Lsm(Box::new(lsm.clone())), ..IndexMeta::default() };
    let mut bytes = Vec::new();
    index.encode(&mut bytes);
    let mut without = Vec::new();
    let kind = KindMeta::Lsm(Box::new(LsmMeta { learnt: None, ..lsm }));
    IndexMeta { kind, ..IndexMeta::default() }.encode(&mut without);
    // Behind it: no range tombstones, and no merge.
    assert_is_example("learnt", &bytes[without.len() - 2..bytes.len() - 2]);
    assert_eq!(IndexMeta::decode(&mut Reader::new(&bytes)).unwrap(), index);
}

fn edits() -> Vec<Edit> {
    let (id, name) = (KeyspaceId(3), "users".to_string());
    let segment = SegmentRef {
        id: SegmentId(7),
        file: 2,
        first_seq: Seq(1000),
        bytes: 1 << 22,
        end_seq: None,
    };
    vec![
        Edit::KeyspaceCreate { id, name, memtable_bytes: None },
        Edit::KeyspaceDrop { id: KeyspaceId(2) },
        Edit::Index { id, index: Arc::new(IndexMeta::default()) },
        Edit::SegmentAdd(segment),
        Edit::SegmentClose { id: SegmentId(6), end_seq: Seq(999) },
        Edit::SegmentRemove { id: SegmentId(5) },
        Edit::CleanClose { seq: Seq(1001) },
        Edit::NextKeyspace { id: KeyspaceId(4) },
        Edit::KeyspaceCodec { id, codec: Codec::Lz4 },
        Edit::KeyspaceOperator { id, name: "esker.add".to_string() },
        Edit::KeyspaceHistory {
            id: KeyspaceId(1),
            history: HistoryMeta {
                retention: Retention::All,
                share_millionths: MILLIONTHS,
                from: Seq(900),
                expires: false,
            },
        },
        Edit::Pin { name: "audit".to_string(), version: Seq(950) },
        Edit::Unpin { name: "draft".to_string() },
    ]
}

#[test]
fn manifest_record() {
    let (edits, next_generation) = (edits(), Generation(301));
    let body = RecordBody::encode(&edits, next_generation);
    let body_bytes = body.len();
    let seal = Seal::new(STORE, FrameKind::Manifest, 2);
    let bytes = encode_frame(body, edits.len(), 12, 999, seal, MANIFEST_GRAIN_BYTES).unwrap();
    assert_is_example("manifest record", &bytes);

    let found = FrameHeader::decode(&bytes, seal).unwrap();
    found.check_body(&bytes[FRAME_HEADER_BYTES..]).unwrap();
    let body = &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + body_bytes];
    let decoded = RecordBody::decode(body, found.count).unwrap();
    assert_eq!(decoded, RecordBody { next_generation, edits });
}

/// The tree of [`index_meta`] and its range tombstones became a past index when what was live at 51
/// was copied.
#[test]
fn past_index() {
    let past = PastIndex {
        from: Seq(0),
        until: Seq(51),
        main: index_meta().main,
        sorted_runs: Vec::new(),
        removed: Arc::default(),
    };
    let edits = vec![Edit::Past { id: KeyspaceId(3), edit: PastEdit::Index(Arc::new(past)) }];
    let body = RecordBody::encode(&edits, Generation(301));
    assert_is_example("past index", &body);
    assert_eq!(RecordBody::decode(&body, 1).unwrap().edits, edits);

    let history =
        IndexHistory { from: Seq(51), replaced_millionths: MILLIONTHS, splits_next: true };
    let index = IndexMeta { history, ..index_meta() };
    let (mut bytes, mut before) = (Vec::new(), Vec::new());
    index.encode(&mut bytes);
    index_meta().encode(&mut before);
    assert_eq!(before.pop(), Some(0), "no parts");
    assert!(bytes.starts_with(&before));
    assert_is_example("index with history", &bytes[before.len()..]);
    let mut reader = Reader::new(&bytes);
    assert_eq!(IndexMeta::decode(&mut reader).unwrap(), index);
}

#[test]
fn superblock() {
    let superblock = Superblock {
        store: STORE,
        epoch: Epoch(2),
        region_bytes: 65_536,
        features: FEATURE_COMPRESSION,
    };
    let bytes = superblock.encode();
    assert_is_example("superblock", &bytes);
    assert_eq!(Superblock::decode(&bytes).unwrap(), superblock);
}

#[test]
fn backup() {
    let piece = Piece { sector: 4096, sectors: 16, generation: Generation(300), place: 24 };
    let segment = SegmentId(7);
    let chunk = LogChunk { segment, offset: 0, bytes: 4152, crc: 0xa1b2_c3d4, place: 5 };
    let edits = vec![Edit::NextKeyspace { id: KeyspaceId(4) }];
    let catalog = Catalog {
        store: STORE,
        features: FEATURE_EXPIRY,
        run: 3,
        seq: Seq(1001),
        record: RecordBody { next_generation: Generation(301), edits },
        pieces: vec![piece],
        chunks: vec![chunk],
    };
    let bytes = catalog.encode();
    let (half, again) = bytes.split_at(bytes.len() / 2);
    assert_is_example("backup", half);
    assert_eq!(half, again);
    assert_eq!(Catalog::decode(half).unwrap(), catalog);
}

#[test]
fn every_example_of_the_page_is_compared() {
    // Those of the page store are its own to compare.
    let tests = [include_str!("golden.rs"), include_str!("../../pages/tests/format.rs")].concat();
    let names: Vec<&str> = PAGES.lines().filter_map(|line| line.strip_prefix("```hex ")).collect();
    assert!(!names.is_empty());
    for name in names {
        assert!(tests.contains(&format!("\"{name}\"")), "no test compares {name}");
    }
}
