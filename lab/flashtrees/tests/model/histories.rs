//! Random histories, compared with a map.

use std::collections::BTreeMap;

use esker_flashtrees::{Error, FlashTree, KeyRange, Order, Result};
use esker_workload::Random;

/// Runs random histories of so many operations, on trees of `make`, which gets a number from which
/// the chip follows.
pub fn histories(make: impl Fn(u64) -> Result<Box<dyn FlashTree>>, operations: u64) {
    for seed in 0..3 {
        let first = history(make(seed).unwrap().as_mut(), seed, operations);
        let again = history(make(seed).unwrap().as_mut(), seed, operations);
        assert_eq!(first, again, "seed {seed}: the same history is another run");
    }
}

/// Puts, removals, lookups and ranges compared with a map; answers what the chip did.
fn history(tree: &mut dyn FlashTree, seed: u64, operations: u64) -> String {
    let name = tree.name();
    let mut random = Random::new(seed ^ 0x5eed);
    let mut map = BTreeMap::new();
    // Keys that are near to each other, and far: nodes split in all places.
    let spread = [1, 1 << 20, u64::MAX / 1_500][seed as usize % 3];
    for step in 0..operations {
        let key = random.below(1_400).wrapping_mul(spread);
        // Phases of growth and of removal, so that nodes merge.
        let removals = if (step / 8_000).is_multiple_of(2) { 30 } else { 65 };
        match random.below(100) {
            draw if draw < removals => {
                tree.remove(key).unwrap();
                map.remove(&key);
            }
            0..90 => {
                let value = random.bits();
                tree.put(key, value).unwrap();
                map.insert(key, value);
            }
            90..98 => {
                assert_eq!(tree.get(key).unwrap(), map.get(&key).copied(), "{name} {seed} {step}");
            }
            _ => compare(tree, &map, key, random.below(60).wrapping_mul(spread), step),
        }
        let memory = tree.memory();
        assert!(memory.used() <= memory.budget, "{name}: {memory:?} at step {step}");
    }
    for key in (0..1_400).map(|key: u64| key.wrapping_mul(spread)) {
        assert_eq!(tree.get(key).unwrap(), map.get(&key).copied(), "{name} {seed}: key {key}");
    }
    compare(tree, &map, 0, u64::MAX, operations);
    tree.flush().unwrap();
    assert_eq!(tree.check().unwrap(), map.len() as u64, "{name} {seed}");
    let chip = tree.chip();
    let total = chip.counters.total();
    let blocks = u64::from(chip.geometry.blocks());
    assert!(total.erases > 3 * blocks, "{name} {seed}: {} erases of {blocks}", total.erases);
    format!("{total:?} {} {:?}", chip.end_ns, tree.memory())
}

fn compare(tree: &mut dyn FlashTree, map: &BTreeMap<u64, u64>, from: u64, width: u64, step: u64) {
    let to = from.saturating_add(width);
    let mut expected: Vec<_> = map.range(from..=to).map(|(key, value)| (*key, *value)).collect();
    for order in [Order::Ascending, Order::Descending] {
        let mut found = Vec::new();
        let mut visit = |key, value| {
            found.push((key, value));
            found.len() < 200_000
        };
        tree.range(KeyRange { from, to, order }, &mut visit).unwrap();
        assert_eq!(found, expected, "{} at step {step}: {from}..={to} {order:?}", tree.name());
        expected.reverse();
    }
    let mut first = None;
    let mut visit = |key, value| {
        assert!(first.is_none(), "visited after the end");
        first = Some((key, value));
        false
    };
    tree.range(KeyRange { from, to, order: Order::Ascending }, &mut visit).unwrap();
    assert_eq!(first, expected.first().copied());
}

/// Fills a chip: the error is clear, nothing is lost, and removals make room.
pub fn fills(tree: &mut dyn FlashTree) {
    let mut random = Random::new(9);
    let mut map = BTreeMap::new();
    let message = loop {
        let (key, value) = (random.bits(), random.bits());
        match tree.put(key, value) {
            Ok(()) => _ = map.insert(key, value),
            Err(error) => {
                assert!(matches!(error, Error::Full(_)), "{}: {error}", tree.name());
                break error.to_string();
            }
        }
        assert!(map.len() < 100_000, "the chip does not fill");
    };
    assert!(message.starts_with("the chip is full"), "{message}");
    let full = map.len();
    for (key, value) in &map {
        assert_eq!(tree.get(*key).unwrap(), Some(*value), "{} lost {key}", tree.name());
    }
    let removed: Vec<_> = map.keys().copied().take(full * 3 / 4).collect();
    for key in removed {
        tree.remove(key).unwrap();
        map.remove(&key);
    }
    for _ in 0..full / 4 {
        let (key, value) = (random.bits(), random.bits());
        tree.put(key, value).unwrap();
        map.insert(key, value);
    }
    compare(tree, &map, 0, u64::MAX, 0);
    assert_eq!(tree.check().unwrap(), map.len() as u64);
}
