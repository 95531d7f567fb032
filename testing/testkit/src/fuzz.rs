//! Bodies of the fuzz targets: any bytes go in, nothing panics, hangs, takes longer than its length
//! allows or asks for memory without bound, and what is accepted is written again as it was.
//!
//! The crate `testing/fuzz` gives these to libFuzzer; [`replay`] runs the committed inputs and
//! seeded mutations of them in an ordinary test.

mod image;
pub mod mutate;
mod seeds;

pub use image::{edited_store, store_image};
pub use seeds::seeds;

use std::path::Path;

use esker_format::block::{BlockLayout, BlockView, Unpacker};
use esker_format::bytes::Reader;
use esker_format::entry::Entry;
use esker_format::fence::Fence;
use esker_format::filter;
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader};
use esker_format::ids::Seq;
use esker_format::log_record::{BatchBuilder, SegmentHeader, decode_ops};
use esker_format::manifest_edit::RecordBody;
use esker_format::meta::IndexMeta;
use esker_format::ptr::BLOCK_BYTES_MAX;
use esker_format::superblock::{SLOT_BYTES, Superblock};
use esker_format::value_ref::ValueRef;

use crate::counts::Counts;
use crate::violation::{Oracle, Verdict, Violation, without_panic};
use crate::work::Deadline;

/// A target's body.
pub type Target = fn(&[u8]);

/// All targets by name, the canary left out.
pub const TARGETS: [(&str, Target); 9] = [
    ("block", block),
    ("entry", entry),
    ("filter", may_contain),
    ("frame", frame),
    ("index_meta", index_meta),
    ("log_record", log_record),
    ("manifest_edit", manifest_edit),
    ("superblock", superblock),
    ("store_image", store_image),
];

/// A block whose checksum is made to fit, so that what lies behind the checksum is reached; the
/// first byte says how many sectors of input are the block.
pub fn block(input: &[u8]) {
    let Some((sectors, rest)) = input.split_first() else { return };
    let mut bytes = rest.to_vec();
    bytes.resize(512 * usize::from((*sectors).max(1)), 0);
    fix_block(&mut bytes);
    let Ok(layout) = BlockLayout::parse(&bytes) else { return };
    // Regardless of what was read, a block of another identity is refused or verifies without a
    // panic.
    let _either = BlockLayout::verify(&bytes, layout.identity, 0);
    if layout.is_packed() {
        let mut plain = Vec::new();
        let unpacked = layout.unpack(&bytes, &mut Unpacker::default(), &mut plain);
        assert!(plain.capacity() <= BLOCK_BYTES_MAX, "{} bytes", plain.capacity());
        if unpacked.is_err() {
            return;
        }
        bytes = plain;
    }
    let view = BlockView::new(&bytes, layout);
    let mut key = Vec::new();
    for index in 0..view.len().min(bytes.len()) {
        let Ok(entry) = view.entry(index) else { break };
        key.clear();
        view.append_key(entry.suffix, &mut key);
        let _any = (view.find(&key, Seq::MAX), view.lower_bound(&key, entry.seq));
        let _any = (view.fence(index), view.fence_before(index), view.fence_from(index));
    }
    for key in [&[][..], &[0], &[0xff; 9], rest.get(..4).unwrap_or_default()] {
        let _any = (view.find(key, Seq(1)), view.fence_index(key, Seq::MAX));
    }
}

/// Makes a block's checksum and length fit its bytes.
pub(crate) fn fix_block(bytes: &mut [u8]) {
    let len = (bytes.len() as u32).to_le_bytes();
    put(bytes, 20, &len);
    fix_checksum(bytes);
}

/// Makes the CRC in the last four bytes fit the rest.
pub(crate) fn fix_checksum(bytes: &mut [u8]) {
    if let Some((covered, crc)) = bytes.split_last_chunk_mut::<4>() {
        *crc = crc32c::crc32c(covered).to_le_bytes();
    }
}

pub(crate) fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at.saturating_add(part.len())) {
        place.copy_from_slice(part);
    }
}

/// An entry, a fence and a value reference at the start of the input.
pub fn entry(input: &[u8]) {
    let mut reader = Reader::new(input);
    if let Ok(entry) = Entry::decode(&mut reader, Seq(3)) {
        let mut again = Vec::new();
        entry.encode(Seq(3), &mut again);
        assert_eq!(again, input.get(..reader.offset()).unwrap_or_default(), "{entry:?}");
    }
    let _any = Entry::decode_key(&mut Reader::new(input), Seq(u64::MAX));
    let mut reader = Reader::new(input);
    if let Ok(fence) = Fence::decode(&mut reader) {
        let mut again = Vec::new();
        fence.encode(&mut again);
        assert_eq!(again.len(), fence.encoded_len());
        assert_eq!(again, input.get(..reader.offset()).unwrap_or_default(), "{fence:?}");
    }
    if let Ok(reference) = ValueRef::decode(input) {
        let mut again = Vec::new();
        reference.encode(&mut again);
        assert_eq!(again, input, "{reference:?}");
        let places = (0..reference.pieces()).filter_map(|number| reference.piece(number));
        assert_eq!(places.count() as u64, reference.pieces());
    }
}

/// A filter of any bytes answers any hash.
pub fn may_contain(input: &[u8]) {
    let (hash, filter) = input.split_first_chunk::<8>().unwrap_or((&[0; 8], input));
    let _either = filter::may_contain(filter, u64::from_le_bytes(*hash));
    let hashes: Vec<u64> = input
        .chunks_exact(8)
        .filter_map(|c| c.first_chunk().copied())
        .map(u64::from_le_bytes)
        .collect();
    let mut built = Vec::new();
    filter::build(&hashes, filter::BITS_PER_KEY, &mut built);
    for hash in hashes {
        assert!(filter::may_contain(&built, hash), "a filter denies what it was built from");
    }
}

/// The header of a log or manifest record, and of a log segment.
pub fn frame(input: &[u8]) {
    if let Ok(header) = FrameHeader::decode_unchecked(input) {
        assert!(header.frame_bytes(512) >= FRAME_HEADER_BYTES as u64);
        let _either = header.check_body(input.get(FRAME_HEADER_BYTES..).unwrap_or_default());
    }
    let mut segment = input.to_vec();
    segment.resize(4096, 0);
    fix_checksum(&mut segment);
    if let Ok(header) = SegmentHeader::decode(&segment) {
        let _bytes = header.encode();
    }
}

/// The manifest's record of an index.
pub fn index_meta(input: &[u8]) {
    let mut reader = Reader::new(input);
    if let Ok(meta) = IndexMeta::decode(&mut reader) {
        let mut again = Vec::new();
        meta.encode(&mut again);
        assert_eq!(again, input.get(..reader.offset()).unwrap_or_default(), "{meta:?}");
    }
}

/// The operations of a log record, behind its checksums.
pub fn log_record(input: &[u8]) {
    let Some((count, padded)) = input.split_first_chunk::<2>() else { return };
    let padding = padded.iter().rev().take_while(|byte| **byte == 0).count().min(7);
    let header = FrameHeader {
        body_crc: 0,
        body_bytes: (padded.len() - padding) as u32,
        count: u32::from(u16::from_le_bytes(*count)).max(1),
        number: 1,
        mark: 0,
    };
    let ops: Result<Vec<_>, _> = decode_ops(&header, padded).collect();
    let Ok(ops) = ops else { return };
    assert_eq!(ops.len(), header.count as usize);
    let mut batch = BatchBuilder::default();
    for op in &ops {
        batch.push(op.keyspace, &op.action);
    }
    assert_eq!(batch.body_bytes(), header.body_bytes as usize);
}

/// The edits of a manifest record, behind its checksums.
pub fn manifest_edit(input: &[u8]) {
    let Some((count, body)) = input.split_first() else { return };
    let Ok(record) = RecordBody::decode(body, u32::from(*count)) else { return };
    let again = RecordBody::encode(&record.edits, record.next_generation);
    if record.edits.len() == usize::from(*count) {
        assert_eq!(again, body, "{record:?}");
    }
}

/// A slot of the superblock whose checksum is made to fit.
pub fn superblock(input: &[u8]) {
    let mut slot = input.to_vec();
    slot.resize(SLOT_BYTES, 0);
    let _either = Superblock::decode(&slot);
    fix_checksum(&mut slot);
    if let Ok(superblock) = Superblock::decode(&slot) {
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
}

/// Fails on one input that mutation must find: proof that the fuzzing finds anything.
pub fn canary(input: &[u8]) {
    assert!(!input.starts_with(b"canary"), "the canary sings");
}

/// Runs the committed inputs of a target, the ones made from the encoders, and `mutations`
/// seeded changes of them.
///
/// # Errors
/// The first input that panics, in hexadecimal.
pub fn replay(name: &str, target: Target, corpus: &Path, mutations: u64) -> Verdict<Counts> {
    let mut counts = Counts::new("fuzz", name);
    let mut inputs = seeds(name);
    let mut files: Vec<_> = std::fs::read_dir(corpus).into_iter().flatten().flatten().collect();
    files.sort_by_key(std::fs::DirEntry::path);
    for file in files {
        let bytes = std::fs::read(file.path());
        let read = |error: std::io::Error| Violation::new(Oracle::Harness, error.to_string());
        inputs.push(bytes.map_err(read)?);
    }
    for input in &inputs {
        run(target, input)?;
    }
    counts.add("inputs", inputs.len() as u64);
    for seed in 0..mutations {
        run(target, &mutate::mutated(&inputs, seed)).map_err(|v| v.at(format!("seed {seed}")))?;
    }
    counts.add("mutations", mutations);
    Ok(counts)
}

fn run(target: Target, input: &[u8]) -> Verdict {
    without_panic(|| {
        let deadline = Deadline::of(input.len());
        target(input);
        deadline.check()
    })
    .map_err(|violation| {
        let hex: String = input.iter().take(200).map(|byte| format!("{byte:02x}")).collect();
        violation.at(format!("input of {} bytes: {hex}", input.len()))
    })
}
