use proptest::prelude::*;

use super::*;
use crate::entry::Payload;
use crate::fence::Fence;
use crate::ids::{Moment, Seq};
use crate::ptr::{BlockPtr, SECTOR_BYTES, UNIT_BYTES};

#[derive(Clone, Debug)]
struct Item {
    key: Vec<u8>,
    seq: Seq,
    payload: Owned,
}

#[derive(Clone, Debug)]
enum Owned {
    Delete,
    Put(Vec<u8>),
    PutUntil(u64, Vec<u8>),
    Operand(Vec<u8>),
    Fence(Vec<u8>),
}

fn identity() -> BlockIdentity {
    BlockIdentity {
        store: StoreId(7),
        keyspace: KeyspaceId(3),
        sector: 4096,
        generation: Generation(11),
    }
}

fn ptr() -> BlockPtr {
    BlockPtr { sector: 99, sectors: 8, crc: 0xdead_beef, generation: Generation(5) }
}

fn payload(owned: &Owned) -> Payload<'_> {
    match owned {
        Owned::Delete => Payload::Delete,
        Owned::Put(value) => Payload::Put(value),
        Owned::PutUntil(until, value) => Payload::PutUntil(Moment(*until), value),
        Owned::Operand(operand) => Payload::Operand(operand),
        Owned::Fence(filter) => {
            Payload::Fence(Fence { ptr: ptr(), puts: 3, tombstones: 1, filter })
        }
    }
}

fn order(item: &Item) -> (Vec<u8>, core::cmp::Reverse<Seq>, bool) {
    let data = !matches!(item.payload, Owned::Fence(_));
    (item.key.clone(), core::cmp::Reverse(item.seq), data)
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let key = prop_oneof![
        proptest::collection::vec(0u8..4, 0..4),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|mut tail| {
            tail.splice(0..0, *b"/usr/share/");
            tail
        }),
        proptest::collection::vec(any::<u8>(), 200..3000),
    ];
    let payload = prop_oneof![
        Just(Owned::Delete),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Owned::Put),
        (any::<u64>(), proptest::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(until, value)| Owned::PutUntil(until, value)),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Owned::Operand),
        proptest::collection::vec(any::<u8>(), 60_000..70_000).prop_map(Owned::Put),
        proptest::collection::vec(any::<u8>(), 0..60).prop_map(Owned::Fence),
    ];
    let seq = prop_oneof![1u64..20, Just(u64::MAX - 1), any::<u64>()];
    let item = (key, seq, payload).prop_map(|(key, seq, payload)| {
        // Data entries have a real number; only fences reach to infinity.
        let seq = if matches!(payload, Owned::Fence(_)) { seq } else { seq % 1_000_000 };
        Item { key, seq: Seq(seq), payload }
    });
    proptest::collection::vec(item, 1..40).prop_map(|mut items| {
        items.sort_by_key(order);
        items.dedup_by_key(|item| order(item));
        items
    })
}

/// Puts whose keys have one length and whose values have one length, and at most one item that
/// does not fit in with them.
fn even_items() -> impl Strategy<Value = Vec<Item>> {
    let lens = (1usize..300, 0usize..200);
    let rows = lens.prop_flat_map(|(key_len, value_len)| {
        let key = proptest::collection::vec(0u8..3, key_len);
        let value = proptest::collection::vec(any::<u8>(), value_len);
        let seq = prop_oneof![1u64..3, 1u64..1_000_000, 1u64..u64::MAX];
        let item = (key, seq, value);
        proptest::collection::vec(item, 1..60)
    });
    (rows, proptest::option::weighted(0.2, any::<prop::sample::Index>())).prop_map(|(rows, odd)| {
        let item = |(key, seq, value)| Item { key, seq: Seq(seq), payload: Owned::Put(value) };
        let mut items: Vec<_> = rows.into_iter().map(item).collect();
        if let Some(odd) = odd {
            let at = odd.index(items.len());
            items[at].payload = Owned::Delete;
        }
        items.sort_by_key(order);
        items.dedup_by_key(|item| order(item));
        items
    })
}

/// Packs items until the block is full, returns their number and the block.
fn build(items: &[Item], target: usize) -> (usize, Vec<u8>, Finished) {
    let mut builder = BlockBuilder::new(target);
    let mut count = 0;
    for item in items {
        if !builder.try_push(&item.key, item.seq, &payload(&item.payload)) {
            break;
        }
        count += 1;
    }
    let mut bytes = vec![0xaa; builder.block_bytes()];
    let finished = builder.finish(identity(), &mut bytes);
    assert!(builder.is_empty());
    (count, bytes, finished)
}

/// The block with a codec, and what a view reads of it.
fn build_packed(
    items: &[Item],
    target: usize,
    packer: &mut Packer,
) -> (usize, Vec<u8>, Finished, BlockLayout, Vec<u8>) {
    let mut builder = BlockBuilder::new(target);
    let fits = |item: &&Item| builder.try_push(&item.key, item.seq, &payload(&item.payload));
    let count = items.iter().take_while(fits).count();
    let mut bytes = vec![0xaa; builder.pack(packer)];
    let finished = builder.finish_packed(identity(), packer, &mut bytes);
    assert!(builder.is_empty());
    let layout = BlockLayout::verify(&bytes, identity(), finished.crc).unwrap();
    let mut plain = bytes.clone();
    if layout.is_packed() {
        layout.unpack(&bytes, &mut Unpacker::default(), &mut plain).unwrap();
    }
    (count, bytes, finished, layout, plain)
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)]
}

fn is_found(items: &[Item], view: BlockView<'_>) -> Result<(), TestCaseError> {
    prop_assert_eq!(view.len(), items.len());
    for (index, item) in items.iter().enumerate() {
        let entry = view.entry(index).unwrap();
        let mut key = Vec::new();
        view.append_key(entry.suffix, &mut key);
        prop_assert_eq!(&key, &item.key);
        prop_assert_eq!(entry.seq, item.seq);
        prop_assert_eq!(entry.payload, payload(&item.payload));
    }
    Ok(())
}

proptest! {
    /// With every codec the entries are the same, whether a block shrinks or not; it never takes
    /// more sectors than without, and is stored with a codec where that saves one or more.
    #[test]
    fn what_is_compressed_is_found(
        items in prop_oneof![items(), even_items()],
        large: bool,
        codec in codecs(),
        repeated in proptest::option::of(0usize..4000),
    ) {
        let mut items = items;
        if let Some(len) = repeated {
            let text = b"the quick brown fox ".repeat(len / 20 + 1);
            let puts = items.iter_mut().filter(|item| matches!(item.payload, Owned::Put(_)));
            puts.for_each(|item| item.payload = Owned::Put(text[..len].to_vec()));
        }
        let target = if large { 1 << 20 } else { 4096 };
        let (_, plain_block, _) = build(&items, target);
        let mut packer = Packer::new(codec);
        let (count, bytes, _, layout, plain) = build_packed(&items, target, &mut packer);
        is_found(&items[..count], BlockView::new(&plain, layout))?;
        prop_assert!(bytes.len() <= plain_block.len());
        prop_assert_eq!(bytes.len() % 512, 0);
        if codec == Codec::None && bytes.len() == plain_block.len() {
            prop_assert_eq!(&bytes, &plain_block);
        } else if codec == Codec::None {
            let empty = plain_block.len() - (bytes.len() - 511);
            prop_assert!(empty * 4 > plain_block.len(), "{} bytes", bytes.len());
        }
        if layout.is_packed() {
            prop_assert_eq!(layout.codec, codec);
            prop_assert!(bytes.len() + 512 <= (layout.plain_bytes() + 4).next_multiple_of(512));
        }
    }

    /// Any bytes in the place of the compressed ones, with any lengths, under a fitting checksum:
    /// errors or other entries, no panic, and never more memory than a block.
    #[test]
    fn no_compressed_bytes_panic(
        flips in proptest::collection::vec((72usize..2000, any::<u8>()), 0..4),
        noise in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..400)),
        used in proptest::option::of(any::<u32>()),
        codec in 1u8..3,
    ) {
        let item = |n: u32| Item {
            key: format!("key{n:05}").into_bytes(),
            seq: Seq(9),
            payload: Owned::Put(b"as ever ".repeat((n % 9) as usize)),
        };
        let items: Vec<_> = (0..80).map(item).collect();
        let codec = Codec::from_number(codec).unwrap();
        let (_, mut bytes, ..) = build_packed(&items, 4096, &mut Packer::new(codec));
        for (at, byte) in flips {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        if let Some(noise) = noise {
            let len = noise.len().min(bytes.len() - 88);
            bytes[84..84 + len].copy_from_slice(&noise[..len]);
        }
        if let Some(used) = used {
            bytes[72..76].copy_from_slice(&(used >> (used % 24)).to_le_bytes());
        }
        let end = bytes.len() - 4;
        let crc = crc32c::crc32c(&bytes[..end]);
        bytes[end..].copy_from_slice(&crc.to_le_bytes());
        let mut plain = Vec::new();
        if let Ok(layout) = BlockLayout::parse(&bytes) {
            let unpacked = layout.unpack(&bytes, &mut Unpacker::default(), &mut plain);
            prop_assert!(plain.capacity() <= BLOCK_BYTES_MAX);
            if unpacked.is_ok() {
                let view = BlockView::new(&plain, layout);
                for index in 0..view.len().min(plain.len()) {
                    let _ = view.entry(index);
                }
                let _ = view.find(b"key", Seq(3));
            }
        }
    }

    #[test]
    fn what_is_packed_is_found(items in prop_oneof![items(), even_items()], large: bool) {
        let (count, bytes, finished) = build(&items, if large { 1 << 20 } else { 4096 });
        let layout = BlockLayout::verify(&bytes, identity(), finished.crc).unwrap();
        is_found(&items[..count], BlockView::new(&bytes, layout))?;
    }

    #[test]
    fn searches_agree_with_a_scan(
        (items, probes) in prop_oneof![(items(), items()), (even_items(), even_items())],
    ) {
        let (count, bytes, finished) = build(&items, 1 << 20);
        let layout = BlockLayout::verify(&bytes, identity(), finished.crc).unwrap();
        let view = BlockView::new(&bytes, layout);
        let packed = &items[..count];
        for probe in probes.iter().chain(packed) {
            let at = (probe.key.as_slice(), probe.seq);
            let behind = |item: &Item| crate::key::compare((&item.key, item.seq), at).is_ge();
            let expected = packed.iter().position(behind).unwrap_or(count);
            prop_assert_eq!(view.lower_bound(at.0, at.1).unwrap(), expected);
            let data = packed.iter().find(|item| {
                item.key == probe.key && item.seq <= probe.seq
                    && !matches!(item.payload, Owned::Fence(_))
            });
            let found = view.find(at.0, at.1).unwrap();
            prop_assert_eq!(found.map(|e| e.payload), data.map(|item| payload(&item.payload)));
            let fence = packed.iter().rposition(|item| {
                matches!(item.payload, Owned::Fence(_))
                    && crate::key::compare((&item.key, item.seq), at).is_le()
            });
            prop_assert_eq!(view.fence_index(at.0, at.1).unwrap(), fence);
        }
    }

    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = BlockLayout::parse(&bytes);
        let mut sealed = bytes;
        sealed.resize(512, 0);
        let crc = crc32c::crc32c(&sealed[..508]);
        sealed[508..].copy_from_slice(&crc.to_le_bytes());
        let _ = BlockLayout::verify(&sealed, identity(), crc);
    }

    /// Hostile content under a fitting checksum: errors, not panics.
    #[test]
    fn no_header_panics(
        fields in proptest::collection::vec(any::<u8>(), 60),
        kind in 1u8..3,
        form in prop_oneof![Just([0; 3]), (0..10u8, 0..40u8).prop_map(|(n, s)| [1, n, s])],
    ) {
        let mut bytes = vec![0; 512];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = 1;
        bytes[5] = kind;
        bytes[20..24].copy_from_slice(&512u32.to_le_bytes());
        bytes[56..116].copy_from_slice(&fields);
        bytes[66..68].fill(0);
        bytes[70..72].fill(0);
        bytes[72..77].copy_from_slice(&[252, 1, 0, 0, 0]);
        bytes[77..80].copy_from_slice(&form);
        let crc = crc32c::crc32c(&bytes[..508]);
        bytes[508..].copy_from_slice(&crc.to_le_bytes());
        if let Ok(layout) = BlockLayout::parse(&bytes) {
            let view = BlockView::new(&bytes, layout);
            for index in 0..view.len() {
                let _ = view.entry(index);
            }
            let _ = view.find(b"key", Seq(3));
            let _ = view.fence_index(b"key", Seq(3));
        }
    }
}

/// By hand: 84 bytes around the entries, and the prefix `user0`; a row is 2 bytes of key, 1 of
/// number and 100 of value. (4096 - 89) / 103 = 38.9. Slotted, a put takes 6 + 1 + 1 + 2 + 1 + 2 +
/// 100, and a delete, which makes all so, 6 + 1 + 1 + 2 + 2: (4096 - 89 - 12) / 113 = 35.4.
#[test]
fn even_entries_are_rows() {
    let item = |number: u64| Item {
        key: format!("user{number:03}").into_bytes(),
        seq: Seq(1000 + number),
        payload: Owned::Put(vec![7; 100]),
    };
    let mut items: Vec<_> = (0..100).map(item).collect();
    let (count, bytes, _) = build(&items, 4096);
    assert_eq!((count, bytes.len(), &bytes[77..80]), (38, 4096, &[1, 1, 2][..]));
    items[20].payload = Owned::Delete;
    let (count, bytes, _) = build(&items, 4096);
    assert_eq!((count, &bytes[77..80]), (36, &[0, 0, 0][..]));
    // One number for all takes no space; a key that is all prefix takes none either.
    let single = Item { key: b"k".to_vec(), seq: Seq(4), payload: Owned::Put(vec![9; 10]) };
    let (_, bytes, _) = build(&[single], 4096);
    assert_eq!((&bytes[72..76], &bytes[77..80]), (&[91, 0, 0, 0][..], &[1, 0, 0][..]));
}

#[test]
fn every_flipped_byte_is_noticed() {
    let rows = [Item { key: b"k".to_vec(), seq: Seq(4), payload: Owned::Put(vec![9; 2000]) }];
    let slotted = [Item { key: b"k".to_vec(), seq: Seq(4), payload: Owned::Delete }];
    for items in [rows, slotted] {
        every_flip_is_noticed(&items);
    }
}

fn every_flip_is_noticed(items: &[Item]) {
    for codec in Codec::ALL {
        let (_, mut bytes, finished, ..) = build_packed(items, 4096, &mut Packer::new(codec));
        for at in 0..bytes.len() {
            for mask in [0x01, 0x80, 0xff] {
                bytes[at] ^= mask;
                let verified = BlockLayout::verify(&bytes, identity(), finished.crc);
                assert!(verified.is_err(), "byte {at}");
                bytes[at] ^= mask;
            }
        }
    }
}

/// By hand: 100 rows of 2 + 1 + 100 bytes behind a prefix of 5, of which 38 fit 4 KiB. What does
/// not shrink is stored without a codec, in the sectors that it needs.
#[test]
fn a_block_is_compressed_where_that_saves_a_sector() {
    let item = |number: u64, value: Vec<u8>| Item {
        key: format!("user{number:03}").into_bytes(),
        seq: Seq(1000 + number),
        payload: Owned::Put(value),
    };
    let noise = |seed: u64| -> Vec<u8> {
        let hashes = (0..13).map(|at| xxhash_rust::xxh3::xxh3_64_with_seed(&[at], seed));
        hashes.flat_map(u64::to_le_bytes).take(100).collect()
    };
    let same: Vec<_> = (0..100).map(|number| item(number, vec![7; 100])).collect();
    let random: Vec<_> = (0..100).map(|number| item(number, noise(number))).collect();
    for codec in [Codec::Lz4, Codec::Zstd] {
        let packer = &mut Packer::new(codec);
        let (count, bytes, _, layout, _) = build_packed(&same, 4096, packer);
        assert_eq!((count, layout.codec, layout.plain_bytes()), (38, codec, 80 + 5 + 38 * 103));
        assert!(bytes.len() <= 1024, "{codec:?}: {}", bytes.len());
        let (count, bytes, _, layout, _) = build_packed(&random, 4096, packer);
        assert_eq!((count, layout.codec, bytes.len()), (38, Codec::None, 4096));
        let (_, bytes, _, layout, _) = build_packed(&random[..3], 4096, packer);
        assert_eq!((layout.codec, bytes.len()), (Codec::None, 512));
    }
}

/// By hand: with around 90 bytes in addition, three values of 1,000 bytes leave a quarter of a unit
/// empty, eight almost nothing of two; of values of 1,200 bytes three leave a tenth of one, and ten
/// a fiftieth of three; one of 4,000 bytes leaves half of two empty, a second almost nothing.
/// Values of 100 bytes fill a unit.
#[test]
fn blocks_of_long_entries_grow_until_they_are_full() {
    let entries = |value_len: usize, grows_above: Option<usize>| {
        let builder = BlockBuilder::new(UNIT_BYTES as usize);
        let mut builder = match grows_above {
            Some(parts) => builder.growing(parts),
            None => builder,
        };
        let value = vec![7; value_len];
        let mut count = 0u64;
        while builder.try_push(&u128::from(count).to_be_bytes(), Seq(9), &Payload::Put(&value)) {
            count += 1;
        }
        assert!(builder.block_bytes() <= GROWN_BYTES_MAX.max(BLOCK_BYTES_MAX));
        assert!(builder.is_full(), "{count} values of {value_len} bytes");
        (count, builder.block_bytes() as u64 / UNIT_BYTES)
    };
    let three = |value_len| [None, Some(7), Some(14)].map(|parts| entries(value_len, parts));
    assert_eq!(three(1_000), [(3, 1), (8, 2), (8, 2)]);
    assert_eq!(three(1_200), [(3, 1), (3, 1), (10, 3)]);
    assert_eq!(three(4_000), [(1, 2), (2, 2), (2, 2)]);
    assert_eq!(three(100), [entries(100, None); 3]);
    assert_eq!(entries(100_000, Some(7)), (1, 25), "one fits always");
}

/// By hand: with around 90 bytes in addition, two values of 1,400 bytes take six sectors, one of
/// 2,100 five and one of 4,000 nine. Three values of 1,000 bytes leave less than a quarter of a
/// unit empty. Blocks of short entries are whole units, and so are those that end before they are
/// full.
#[test]
fn blocks_of_long_entries_are_as_long_as_they_have_to_be() {
    let entries = |value_len: usize| {
        let mut builder = BlockBuilder::new(UNIT_BYTES as usize);
        let value = vec![7; value_len];
        let mut count = 0u64;
        while builder.try_push(&u128::from(count).to_be_bytes(), Seq(9), &Payload::Put(&value)) {
            count += 1;
        }
        assert!(builder.is_full(), "{count} values of {value_len} bytes");
        let (mut packer, used) = (Packer::default(), builder.bytes_at_most());
        let mut bytes = vec![0; builder.pack(&mut packer)];
        let finished = builder.finish_packed(identity(), &packer, &mut bytes);
        BlockLayout::verify(&bytes, identity(), finished.crc).unwrap();
        assert!(
            bytes.len() - used < 512 || bytes.len().is_multiple_of(4096),
            "{value_len}: {used}"
        );
        (count, bytes.len() as u64 / SECTOR_BYTES)
    };
    assert_eq!(entries(1_000), (3, 8));
    assert_eq!(entries(1_400), (2, 6));
    assert_eq!(entries(2_100), (1, 5));
    assert_eq!(entries(3_900), (1, 8));
    assert_eq!(entries(4_000), (1, 9));
    assert_eq!(entries(100), (39, 8));
    for value_len in (20..12_000).step_by(37) {
        let (_, sectors) = entries(value_len);
        assert!(value_len > 500 || sectors.is_multiple_of(8), "{value_len}: {sectors} sectors");
    }
    let mut builder = BlockBuilder::new(UNIT_BYTES as usize);
    builder.push(b"key", Seq(9), &Payload::Put(&[7; 1_000]));
    assert_eq!(builder.pack(&mut Packer::default()), UNIT_BYTES as usize);
    let mut packer = Packer::default();
    packer.set_in_sectors();
    assert_eq!(builder.pack(&mut packer), 3 * SECTOR_BYTES as usize);
    // No entry fits any more where a longer one did not.
    assert!(!builder.try_push(b"other", Seq(9), &Payload::Put(&[7; 3_500])));
    assert_eq!(builder.pack(&mut Packer::default()), 3 * SECTOR_BYTES as usize);
    let mut bytes = vec![0; 3 * SECTOR_BYTES as usize];
    builder.finish_packed(identity(), &packer, &mut bytes);
    builder.push(b"key", Seq(9), &Payload::Put(&[7; 1_000]));
    assert_eq!(builder.pack(&mut Packer::default()), UNIT_BYTES as usize);
}

#[test]
fn a_stale_or_misdirected_block_is_refused() {
    let items = [Item { key: b"k".to_vec(), seq: Seq(4), payload: Owned::Delete }];
    let (_, bytes, finished) = build(&items, 4096);
    let good = identity();
    assert!(BlockLayout::verify(&bytes, good, finished.crc).is_ok());
    let wrong = [
        BlockIdentity { store: StoreId(8), ..good },
        BlockIdentity { keyspace: KeyspaceId(4), ..good },
        BlockIdentity { sector: 4104, ..good },
        BlockIdentity { generation: Generation(12), ..good },
    ];
    for identity in wrong {
        assert!(BlockLayout::verify(&bytes, identity, finished.crc).is_err());
    }
    assert!(BlockLayout::verify(&bytes, good, finished.crc ^ 1).is_err());
}

#[test]
fn the_largest_entry_and_its_fence_fit_a_block() {
    let mut builder = BlockBuilder::new(4096);
    let key = vec![0xab; crate::KEY_BYTES_MAX];
    let value = vec![1; crate::VALUE_BYTES_MAX];
    let fence = Fence { ptr: ptr(), puts: 1, tombstones: 0, filter: &[1, 2] };
    builder.push_fence(&key, Seq::MAX, &fence);
    builder.push(&key, Seq(1), &Payload::Put(&value));
    let mut bytes = vec![0; builder.block_bytes()];
    assert!(bytes.len() < BLOCK_BYTES_MAX);
    let finished = builder.finish(identity(), &mut bytes);
    BlockLayout::verify(&bytes, identity(), finished.crc).unwrap();
}
