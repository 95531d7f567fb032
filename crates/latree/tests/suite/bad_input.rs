//! Chips that are not ours, options that do not fit, entries that are too long, a full chip.

use esker_flash::Nand;
use esker_flash::nand::{BlockId, Cause, Lpn, PageKind, Ppn, Spare};
use esker_harness::random::Random;
use esker_latree::{Buffering, Direction, Error, LaTree, Options, Scan};

use crate::common::{Flash, Tree, large_pages, options, small_pages};
use crate::history::{Model, compare};

fn small() -> Options {
    options(24 << 10, 2, Scan::Sorted, Buffering::Adaptive)
}

fn refusal(chip: Flash, options: Options) -> Error {
    Tree::open(chip, options).map(drop).unwrap_err()
}

/// A chip of which the first page of some blocks has these bytes.
fn with_pages(page: &[u8]) -> Flash {
    let mut chip = small_pages(40);
    let spare = Spare { lpn: Lpn::NONE, kind: PageKind::Data, seq: 0 };
    for block in [0, 7] {
        chip.0.program(Ppn(block * 32), page, spare, Cause::Host).unwrap();
    }
    chip
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
    let whole = tree.into_chip();
    let random = Random::new(9);
    for block in (0..40).cycle().take(120) {
        let mut chip = whole.clone();
        // The block is programmed again with a byte of one page changed.
        let mut pages = Vec::new();
        for page in block * 32..block * 32 + 32 {
            let mut bytes = vec![0; 512];
            match chip.0.read(Ppn(page), &mut bytes, Cause::Host) {
                Ok(spare) => pages.push((Ppn(page), bytes, spare)),
                Err(_) => break,
            }
        }
        let Some(chosen) = random.pick(&pages).map(|page| page.0) else { continue };
        chip.0.erase(BlockId(block), Cause::Host).unwrap();
        for (page, mut bytes, spare) in pages {
            if page == chosen {
                bytes[random.index(512)] ^= 1 << random.index(8);
            }
            chip.0.program(page, &bytes, spare, Cause::Host).unwrap();
        }
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
