//! Regions of keys that are removed and written again, with other keys: nodes lose children, also
//! their first, and those that stay take over their keys.

use esker_harness::random::Random;
use esker_latree::{Buffering, Error, Options, Scan};

use crate::common::{Tree, chip, options, small_pages};
use crate::history::{Model, compare};

/// The `fine`th key after the key of `number`, in its region.
fn key(number: u64, fine: u64) -> Vec<u8> {
    let mut key = (number as u32).to_be_bytes().to_vec();
    if fine > 0 {
        key.push(fine as u8);
    }
    key
}

fn regions(options: Options, seed: u64) -> Result<(), String> {
    let random = Random::new(seed);
    let text = |error: Error| error.to_string();
    let (mut tree, mut model) =
        (Tree::create(small_pages(96), options).map_err(text)?, Model::new());
    for number in 0..2000 {
        tree.put(&key(number, 0), b"first").map_err(text)?;
        model.insert(key(number, 0), b"first".to_vec());
    }
    for round in 0..12 {
        let (from, count) = (random.below(2000), 20 + random.below(400));
        let gone: Vec<_> =
            model.range(key(from, 0)..key(from + count, 0)).map(|entry| entry.0.clone()).collect();
        for key in gone {
            tree.remove(&key).map_err(text)?;
            model.remove(&key);
        }
        compare(&mut tree, &model).map_err(|what| format!("round {round}, removed: {what}"))?;
        for _ in 0..2 * count {
            let key = key(from + random.below(count), random.below(4));
            let value = random.bytes(random.index(30));
            tree.put(&key, &value).map_err(text)?;
            model.insert(key, value);
        }
        compare(&mut tree, &model).map_err(|what| format!("round {round}, written: {what}"))?;
    }
    Ok(())
}

#[test]
fn a_region_that_was_removed_is_written_again() {
    for levels in 1..=3 {
        for buffering in [Buffering::Adaptive, Buffering::Fixed(1024), Buffering::Off] {
            for seed in 0..3 {
                let options = options(48 << 10, levels, Scan::Sorted, buffering);
                regions(options, seed)
                    .unwrap_or_else(|what| panic!("{levels} levels, {buffering:?}: {what}"));
            }
        }
    }
}

/// Fills a chip with keys of many lengths, and removes all of them in their order.
fn emptied(options: Options, seed: u64) -> Result<(), String> {
    let random = Random::new(seed);
    let mut tree = Tree::create(chip(50, 8, 512), options).map_err(|error| error.to_string())?;
    let mut model = Model::new();
    for _ in 0..2000 {
        let key = random.bytes(random.index(tree.entry_bytes_max()));
        match tree.put(&key, b"") {
            Ok(()) => drop(model.insert(key, Vec::new())),
            Err(Error::Full | Error::Subtrees { .. }) => break,
            Err(error) => return Err(error.to_string()),
        }
    }
    let keys: Vec<_> = model.keys().cloned().collect();
    for key in keys {
        match tree.remove(&key) {
            Ok(()) => drop(model.remove(&key)),
            Err(Error::Full) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    compare(&mut tree, &model)
}

#[test]
fn subtrees_without_keys_are_removed_while_blocks_are_collected() {
    for seed in 0..60 {
        let memory_bytes = 20_000 + 400 * seed as usize;
        let options = options(memory_bytes, 1, Scan::Sorted, Buffering::Adaptive);
        emptied(options, seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}
