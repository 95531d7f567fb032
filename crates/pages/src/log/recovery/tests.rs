//! Files whose checksums are right and whose contents are not: an error or a store, never a panic.

use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, DeviceFile, Open};
use proptest::prelude::*;

use super::*;
use crate::log::superblock::{Found, SUPERBLOCKS_BYTES, find};
use crate::options::Options;
use crate::version::node::{decode_roots, encode_roots};
use crate::version::tree::NodeRef;
use crate::{Durability, PageStore};

const SEGMENT: u32 = 16 * 1024;

fn options() -> Options {
    let options = Options::new().page_size(512).segment_bytes(SEGMENT);
    Options { relaxed_interval: None, ..options }
}

fn file(bytes: &[u8]) -> Arc<dyn DeviceFile> {
    let file = MemoryDevice::new().open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(0, bytes, Purpose::User).unwrap();
    file
}

/// A store with two versions, deltas and some records, as bytes.
fn bytes() -> Vec<u8> {
    let file = file(&[]);
    let store = PageStore::open(Arc::clone(&file), options()).unwrap();
    for round in 0..6u8 {
        let mut writer = store.begin(&store.pin()).unwrap();
        for page in 0..12 {
            let len = if round == 0 { 512 } else { 5 };
            writer.write(page, 0, &vec![round + page as u8; len]).unwrap();
        }
        writer.commit(Durability::Full).unwrap();
        if round == 2 {
            store.pin_named("two").unwrap();
            store.checkpoint().unwrap();
        }
    }
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, Purpose::User).unwrap();
    bytes
}

/// The structure that is changed. All structures above it are mended.
#[derive(Clone, Copy, Debug)]
enum Place {
    Superblock,
    Roots,
    Leaf(usize),
    Record(usize),
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        Just(Place::Superblock),
        Just(Place::Roots),
        (0..2usize).prop_map(Place::Leaf),
        (0..3usize).prop_map(Place::Record),
    ]
}

/// Bytes that are put over others, or numbers that are likely to hurt.
fn damage() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..9),
        Just(vec![0xff; 4]),
        Just(vec![0xff; 8]),
        Just(vec![0; 4]),
        (0..40u32).prop_map(|n| n.to_le_bytes().to_vec()),
    ];
    (any::<usize>(), value)
}

fn put(target: &mut [u8], (at, value): &(usize, Vec<u8>)) {
    let at = at % target.len();
    let len = value.len().min(target.len() - at);
    target[at..at + len].copy_from_slice(&value[..len]);
}

fn slice(bytes: &mut [u8], at: NodeRef) -> &mut [u8] {
    &mut bytes[at.sector.offset() as usize..][..at.bytes as usize]
}

/// Puts damage somewhere and makes all checksums right again.
fn forge(bytes: &mut [u8], place: Place, damage: &(usize, Vec<u8>)) {
    let Found::Superblock(mut block) = find(&bytes[..SUPERBLOCKS_BYTES]) else {
        panic!("no superblock")
    };
    match place {
        Place::Superblock => {}
        Place::Roots => put(slice(bytes, block.roots), damage),
        Place::Leaf(which) => {
            let mut roots = decode_roots(slice(bytes, block.roots)).unwrap();
            let count = roots.len();
            let top = roots[which % count].top.as_mut().unwrap();
            put(slice(bytes, *top), damage);
            top.crc = crc32c::crc32c(slice(bytes, *top));
            let roots = encode_roots(&roots);
            slice(bytes, block.roots).copy_from_slice(&roots);
        }
        Place::Record(which) => return forge_record(bytes, &block, which, damage),
    }
    block.roots.crc = crc32c::crc32c(slice(bytes, block.roots));
    let mut encoded = block.encode().to_vec();
    if matches!(place, Place::Superblock) {
        put(&mut encoded[24..80], damage);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&encoded[..20]), &encoded[24..]);
        encoded[20..24].copy_from_slice(&crc.to_le_bytes());
    }
    for place in block.places() {
        bytes[place as usize..][..512].copy_from_slice(&encoded);
    }
}

fn forge_record(bytes: &mut [u8], block: &Superblock, which: usize, damage: &(usize, Vec<u8>)) {
    use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, Seal};
    let seal = Seal::new(block.store, FrameKind::Log, block.epoch << 24);
    let mut at = block.log[0] as usize * SEGMENT as usize;
    for _ in 0..which {
        let header = FrameHeader::decode(&bytes[at..], seal).unwrap();
        at += header.frame_bytes(512) as usize;
    }
    let mut header = FrameHeader::decode(&bytes[at..], seal).unwrap();
    let end = at + header.frame_bytes(512) as usize;
    let body = &mut bytes[at + FRAME_HEADER_BYTES..end];
    put(&mut body[..header.body_bytes as usize], damage);
    header.body_crc = crc32c::crc32c(body);
    bytes[at..at + FRAME_HEADER_BYTES].copy_from_slice(&header.encode(seal));
}

/// Opens and uses what may be there. Any error will do.
fn use_it(bytes: &[u8]) -> Result<()> {
    let store = PageStore::open(file(bytes), options())?;
    let snapshot = store.pin();
    for page in 0..snapshot.pages().min(40) {
        let mut read = vec![0; snapshot.page_size() as usize];
        snapshot.read(page, 0, &mut read)?;
    }
    store.check()?;
    for round in 0..3 {
        let mut writer = store.begin(&store.pin())?;
        for page in 0..20 {
            writer.write(page, 0, &[round; 512])?;
        }
        writer.commit(Durability::Full)?;
        store.checkpoint()?;
    }
    store.check()?;
    let _none = store.unpin_named("two");
    store.close()
}

#[test]
fn a_file_has_no_more_segments_than_addresses_reach() {
    const TIB: u64 = 1 << 40;
    assert_eq!(segments_in(5 * 16_384 + 1, SEGMENT), Some(5));
    assert_eq!(segments_in(2 * TIB - 1, SEGMENT), Some((1 << 27) - 1));
    for bytes in [2 * TIB, 3 * TIB, 1 << 62, u64::MAX] {
        assert_eq!(segments_in(bytes, SEGMENT), None, "{bytes}");
    }
}

#[test]
fn the_specimen_is_whole() {
    use_it(&bytes()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    #[test]
    fn forged_files_are_errors_or_stores(place in place(), damage in damage()) {
        let mut bytes = SPECIMEN.with(Clone::clone);
        forge(&mut bytes, place, &damage);
        let _any = use_it(&bytes);
    }
}

thread_local! {
    static SPECIMEN: Vec<u8> = bytes();
}
