//! Chips that are not ours, options that do not fit, entries that are too long, a full chip.

use esker_flash::Nand;
use esker_flash::nand::{BlockId, Cause, Lpn, PageKind, Ppn, Spare};
use esker_harness::random::Random;
use esker_latree::{Buffering, Direction, Error, LaTree, Options, Scan};

use crate::common::{Flash, Tree, chip, large_pages, options, small_pages};
use crate::history::{Model, compare};

fn small() -> Options {
    options(24 << 10, 2, Scan::Sorted, Buffering::Adaptive)
}

fn refusal(chip: Flash, options: Options) -> Error {
    Tree::open(chip, options).map(drop).unwrap_err()
}

const SPARE: Spare = Spare { lpn: Lpn::NONE, kind: PageKind::Data, seq: 0 };

/// A chip of which the first page of some blocks has these bytes.
fn with_pages(page: &[u8]) -> Flash {
    let mut chip = small_pages(40);
    for block in [0, 7] {
        chip.0.program(Ppn(block * 32), page, SPARE, Cause::Host).unwrap();
    }
    chip
}

/// The bytes of a page that was programmed.
fn page(chip: &mut Flash, page: u32) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 512];
    chip.0.read(Ppn(page), &mut bytes, Cause::Host).is_ok().then_some(bytes)
}

/// The chip with a bit of one page changed: its block is programmed again.
fn with_damage(chip: &Flash, damaged: u32, byte: usize) -> Flash {
    let mut chip = chip.clone();
    let block = damaged / 32;
    let pages: Vec<_> = (block * 32..).map_while(|at| page(&mut chip, at)).take(32).collect();
    chip.0.erase(BlockId(block), Cause::Host).unwrap();
    for (at, mut bytes) in (block * 32..).zip(pages) {
        if at == damaged {
            bytes[byte] ^= 1;
        }
        chip.0.program(Ppn(at), &bytes, SPARE, Cause::Host).unwrap();
    }
    chip
}

/// A page with a header as the tree writes it.
fn forged(kind: u8, level: u8, owner: u32, seq: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x4C, 0x54, 1, kind, level, 0];
    bytes.extend((payload.len() as u16).to_le_bytes());
    bytes.extend(seq.to_le_bytes());
    bytes.extend([owner.to_le_bytes(), [0; 4]].concat());
    let crc = crc32fast::hash(&[&bytes, payload].concat());
    bytes.extend(crc.to_le_bytes());
    bytes.extend(payload);
    bytes.resize(512, 0xFF);
    bytes
}

/// The only page of a checkpoint: of a chip of 40 blocks of 32 pages of 512 bytes, and a tree of
/// one level in a subtree whose one subtree has its root at the first page of block 7.
fn forged_checkpoint(level: u8) -> Vec<u8> {
    let mut stream = vec![0, 0, 0, 0, 1];
    for number in [512_u32, 32, 40] {
        stream.extend(number.to_le_bytes());
    }
    stream.push(1);
    for number in [0_u32, 0, 1] {
        stream.extend(number.to_le_bytes());
    }
    stream.push(level);
    stream.extend((7 * 32_u32).to_le_bytes());
    // No fragments, no operations.
    stream.extend([0; 6]);
    forged(3, 0, 5, 9, &stream)
}

#[test]
fn a_subtree_below_itself_is_damage() {
    // Children of a key without bytes and this subtree's number.
    let child = [0, 0, 4, 0, 0, 0, 0, 0];
    for level in [2, 255] {
        let mut chip = small_pages(40);
        chip.0.program(Ppn(0), &forged_checkpoint(level), SPARE, Cause::Host).unwrap();
        let node = forged(1, level, 0, 8, &child);
        chip.0.program(Ppn(7 * 32), &node, SPARE, Cause::Host).unwrap();
        let options = Options { subtree_levels: 1, ..small() };
        assert!(matches!(refusal(chip, options), Error::Damaged { .. }), "level {level}");
    }
}

#[test]
fn the_greatest_numbers_of_pages_are_no_overflow() {
    for (kind, owner, seq) in
        [(3, u32::MAX, 1), (4, u32::MAX, 1), (3, 1, u64::MAX), (1, 0, u64::MAX)]
    {
        let chip = with_pages(&forged(kind, 1, owner, seq, &[0, 0, 0, 0, 0]));
        assert!(Tree::open(chip.clone(), small()).is_err());
        if let Ok(mut tree) = Tree::create(chip, small()) {
            tree.put(b"key", b"value").unwrap();
            tree.sync().unwrap();
            let mut tree = Tree::open(tree.into_chip(), small()).unwrap();
            assert_eq!(tree.get(b"key").unwrap().unwrap(), b"value");
        }
    }
}

/// The number of a checkpoint or log page, its index, and whether it is a checkpoint's.
fn meta(bytes: &[u8]) -> Option<(u32, u32, bool)> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    matches!(bytes[3], 3 | 4).then(|| (number(16), number(28), bytes[3] == 3))
}

#[test]
fn a_damaged_checkpoint_or_log_is_no_reason_to_open_an_older_state() {
    let (mut tree, mut number) = (Tree::create(small_pages(60), small()).unwrap(), 0_u32);
    for rounds in 0..6 {
        let before = tree.stats().checkpoints;
        while tree.stats().checkpoints < before + 1 + rounds % 2 {
            number += 1;
            let key = number.wrapping_mul(0x9E37_79B9).to_be_bytes();
            tree.put(&key, &number.to_be_bytes()).unwrap();
        }
        for synced in 0..3_u8 {
            tree.put(b"last", &[synced]).unwrap();
            tree.sync().unwrap();
        }
        let mut chip = tree.chip().clone();
        let found: Vec<_> =
            (0..60 * 32).filter_map(|at| Some((meta(&page(&mut chip, at)?)?, at))).collect();
        let newest = found.iter().filter(|((.., is_checkpoint), _)| *is_checkpoint).max();
        let newest = newest.unwrap().0.0;
        let logged = found
            .iter()
            .filter(|((number, _, is_checkpoint), _)| *number == newest && !is_checkpoint);
        let last = logged.map(|((_, index, _), _)| *index).max().unwrap();
        assert!(last >= 2, "{last}");
        for ((number, index, is_checkpoint), at) in found {
            // The last page of a log that is damaged cannot be told from one that was cut.
            if number == newest && (is_checkpoint || index < last) {
                let opened = Tree::open(with_damage(&chip, at, 8), small()).map(drop);
                assert!(matches!(opened, Err(Error::Damaged { .. })), "page {index}: {opened:?}");
            }
        }
    }
}

#[test]
fn much_memory_for_a_small_chip_is_no_full_chip() {
    for memory_bytes in [1 << 20, 64 << 20, usize::MAX] {
        let options = Options { memory_bytes, ..small() };
        let (mut tree, mut model) =
            (Tree::create(small_pages(40), options.clone()).unwrap(), Model::new());
        for number in 0..4000_u32 {
            let (key, value) = (number.wrapping_mul(0x9E37_79B9).to_be_bytes(), [7; 20]);
            tree.put(&key, &value)
                .unwrap_or_else(|error| panic!("{memory_bytes} bytes, {number} keys: {error}"));
            model.insert(key.to_vec(), value.to_vec());
        }
        compare(&mut tree, &model).unwrap();
        tree.sync().unwrap();
        compare(&mut Tree::open(tree.into_chip(), options).unwrap(), &model).unwrap();
    }
}

#[test]
fn chips_without_a_tree_are_refused_with_one_clear_error_each() {
    assert_eq!(refusal(small_pages(40), small()), Error::Blank);
    assert_eq!(refusal(with_pages(&[0x55; 512]), small()), Error::Foreign);
    let mut newer = [0xFF; 512];
    newer[..4].copy_from_slice(&[0x4C, 0x54, 9, 3]);
    assert_eq!(refusal(with_pages(&newer), small()), Error::Newer { version: 9 });
    let mut torn = newer;
    torn[2] = 1;
    assert_eq!(refusal(with_pages(&torn), small()), Error::Foreign);
    for error in [Error::Blank, Error::Foreign, Error::Newer { version: 9 }, Error::Unfinished] {
        let message = error.to_string();
        assert!(message.contains(": ") && !message.contains('\n'), "{message}");
    }
}

#[test]
fn another_geometry_is_refused_with_both() {
    let mut tree = Tree::create(small_pages(40), small()).unwrap();
    tree.put(b"key", b"value").unwrap();
    tree.sync().unwrap();
    let chip = tree.into_chip();
    let other = Options { subtree_levels: 3, ..small() };
    let error = refusal(chip.clone(), other);
    assert!(matches!(&error, Error::Geometry(what) if what.contains("2 levels")), "{error}");
    let mut more = small_pages(48);
    for page in 0..40 * 32 {
        let mut bytes = vec![0; 512];
        let mut from = chip.clone();
        if let Ok(spare) = from.0.read(Ppn(page), &mut bytes, Cause::Host) {
            more.0.program(Ppn(page), &bytes, spare, Cause::Host).unwrap();
        }
    }
    let error = refusal(more, small());
    assert!(matches!(&error, Error::Geometry(what) if what.contains("48")), "{error}");
    assert_eq!(Tree::open(chip, small()).unwrap().get(b"key").unwrap().unwrap(), b"value");
}

#[test]
fn too_little_memory_says_how_much_works() {
    for chip in [small_pages(40), large_pages(40)] {
        let little = Options { memory_bytes: 1000, ..small() };
        let error = LaTree::create(chip.clone(), little).map(drop).unwrap_err();
        let Error::Memory { needed_bytes, given_bytes: 1000 } = error else { panic!("{error}") };
        let enough = Options { memory_bytes: needed_bytes, ..small() };
        let mut tree = LaTree::create(chip, enough).unwrap();
        for key in 0..3000_u32 {
            tree.put(&key.to_le_bytes(), &key.to_be_bytes()).unwrap();
        }
        assert_eq!(tree.range(&[], None, Direction::Forward).count(), 3000);
        tree.check().unwrap();
    }
    let wrong = Options { subtree_levels: 4, ..small() };
    assert!(matches!(LaTree::create(small_pages(40), wrong), Err(Error::Options(_))));
}

#[test]
fn long_keys_and_values_fit_up_to_a_quarter_of_a_page() {
    let mut tree = Tree::create(small_pages(96), small()).unwrap();
    let limit = tree.entry_bytes_max();
    assert_eq!(limit, 111);
    let mut model = Model::new();
    for number in 0..500_u32 {
        let mut key = vec![b'k'; if number % 2 == 0 { limit } else { limit - 30 }];
        key[20..24].copy_from_slice(&number.wrapping_mul(0x9E37_79B9).to_be_bytes());
        let value = vec![b'v'; limit - key.len()];
        tree.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    compare(&mut tree, &model).unwrap();
    let error = tree.put(&vec![b'k'; limit], b"v").unwrap_err();
    assert_eq!(error, Error::TooLong { found: limit + 1, limit });
    assert!(tree.remove(&vec![b'k'; limit + 1]).is_err());
    compare(&mut tree, &model).unwrap();
}

#[test]
fn a_full_chip_refuses_puts_and_still_removes() {
    for seed in 0..3 {
        let random = Random::new(seed);
        let (mut tree, mut model) = (Tree::create(small_pages(40), small()).unwrap(), Model::new());
        for round in 0..4 {
            let error = loop {
                let (key, value) = (random.bytes(8), random.bytes(20));
                match tree.put(&key, &value) {
                    Ok(()) => drop(model.insert(key, value)),
                    Err(error) => break error,
                }
            };
            assert_eq!(error, Error::Full);
            assert!(model.len() > 6000, "full with {} keys in round {round}", model.len());
            compare(&mut tree, &model).unwrap();
            let keys: Vec<_> = model.keys().filter(|_| random.percent(40)).cloned().collect();
            for key in keys {
                let removed = tree.remove(&key);
                removed.unwrap_or_else(|e| panic!("round {round}: {e}; {:?}", tree.stats()));
                model.remove(&key);
            }
            compare(&mut tree, &model).unwrap();
        }
        tree.sync().unwrap();
        let mut tree = Tree::open(tree.into_chip(), small()).unwrap();
        compare(&mut tree, &model).unwrap();
    }
}

#[test]
fn a_full_chip_of_small_blocks_is_not_worn_by_what_is_refused() {
    for levels in 2..=3 {
        let options = Options { subtree_levels: levels, memory_bytes: 78 << 10, ..small() };
        let random = Random::new(levels.into());
        let mut tree = Tree::create(chip(150, 8, 512), options).unwrap();
        let mut model = Model::new();
        for _ in 0..12_000 {
            let (key, value) = (random.bytes(8), random.bytes(random.index(60)));
            match tree.put(&key, &value) {
                Ok(()) => drop(model.insert(key, value)),
                Err(error) => assert_eq!(error, Error::Full),
            }
            let known = model.keys().nth(random.index(100)).unwrap_or(&vec![]).clone();
            assert_eq!(tree.get(&known).unwrap().as_ref(), model.get(&known));
        }
        compare(&mut tree, &model).unwrap();
        let stats = tree.stats();
        assert!(model.len() > 4000, "{levels} levels: full with {} keys", model.len());
        assert!(stats.flash.erases < 5000, "{levels} levels: {stats:?}");
    }
}

#[test]
fn after_an_error_of_the_chip_the_tree_is_poisoned() {
    let mut tree = Tree::create(small_pages(40), small()).unwrap();
    tree.put(b"key", b"value").unwrap();
    tree.chip_mut().0.cut_after(0, esker_flash::nand::Cut::Torn);
    assert!(matches!(tree.sync(), Err(Error::Chip(_))));
    assert_eq!(tree.get(b"key"), Err(Error::Poisoned));
    assert_eq!(tree.put(b"key", b"value"), Err(Error::Poisoned));
}

#[test]
fn damaged_pages_are_found_or_do_not_matter() {
    let mut tree = Tree::create(small_pages(40), small()).unwrap();
    let mut model = Model::new();
    for number in 0..2000_u32 {
        let key = number.wrapping_mul(0x9E37_79B9).to_be_bytes().to_vec();
        tree.put(&key, &number.to_be_bytes()).unwrap();
        model.insert(key, number.to_be_bytes().to_vec());
    }
    tree.sync().unwrap();
    let mut whole = tree.into_chip();
    let random = Random::new(9);
    for block in (0..40).cycle().take(120) {
        let pages: Vec<_> = (block * 32..block * 32 + 32)
            .take_while(|at| page(&mut whole, *at).is_some())
            .collect();
        let Some(chosen) = random.pick(&pages) else { continue };
        let chip = with_damage(&whole, *chosen, random.index(512));
        if let Ok(mut tree) = Tree::open(chip, small()) {
            let found: Result<Vec<_>, _> = tree.range(&[], None, Direction::Forward).collect();
            if let Ok(found) = found {
                // An older state, of which all is as it was written.
                assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
            }
        }
    }
}

#[test]
fn too_many_subtrees_for_the_memory_refuse_puts_and_lose_nothing() {
    let options = options(24 << 10, 1, Scan::Sorted, Buffering::Adaptive);
    let (mut tree, mut model) =
        (Tree::create(small_pages(400), options.clone()).unwrap(), Model::new());
    let refused = (0..40_000_u64).find_map(|number| {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
        match tree.put(&key, &number.to_le_bytes()) {
            Ok(()) => {
                model.insert(key, number.to_le_bytes().to_vec());
                None
            }
            Err(error) => Some(error),
        }
    });
    let Some(Error::Subtrees { needed_bytes, given_bytes }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(given_bytes, 24 << 10);
    let message = refused.unwrap().to_string();
    assert!(message.contains("more levels") && !message.contains('\n'), "{message}");
    let gone: Vec<_> = model.keys().step_by(3).cloned().collect();
    for key in gone {
        tree.remove(&key).unwrap();
        model.remove(&key);
    }
    compare(&mut tree, &model).unwrap();
    tree.sync().unwrap();
    let more = Options { memory_bytes: needed_bytes, ..options };
    let mut tree = Tree::open(tree.into_chip(), more).unwrap();
    compare(&mut tree, &model).unwrap();
    tree.put(b"another", b"value").unwrap();
}
