use super::*;
use crate::patch::fences::NOWHERE;
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, Open};
use esker_workload::Random;
use std::collections::BTreeSet;

mod crash;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn small(dead_share: Option<f64>) -> Options {
    Options {
        page_bytes: 512,
        memtable_bytes: 2_000,
        runs: 3,
        level_1_bytes: 6_000,
        ratio: 4,
        settings: Settings { dead_share, table_bytes: 3_000 },
    }
}

fn open(device: &dyn Device, options: Options) -> Tree {
    let file = |name| {
        let existing = device.open(name, Open::Existing, Caching::Buffered);
        existing.or_else(|_| device.open(name, Open::CreateNew, Caching::Buffered)).unwrap()
    };
    Tree::open(file("tables"), file("log"), options).unwrap()
}

/// A number of 600 as a key; neighbours share all but the last byte or two.
fn key(number: u64) -> Vec<u8> {
    format!("key {number:03}").into_bytes()
}

/// One write of a history.
fn step(random: &mut Random) -> (Vec<u8>, Option<Vec<u8>>) {
    // Half of the writes are for a tenth of the keys.
    let number = if random.below(2) == 0 { random.below(60) } else { random.below(600) };
    let bytes = if random.below(50) == 0 { 700 } else { random.below(40) };
    let value = (random.below(4) > 0).then(|| vec![random.bits() as u8; bytes as usize]);
    (key(number), value)
}

fn contents(view: &mut View) -> Map {
    let mut all = Map::new();
    view.scan(&[], &mut |(key, value)| {
        let value = value.unwrap();
        assert!(all.last_key_value().is_none_or(|(last, _)| *last < key));
        all.insert(key, value);
        true
    })
    .unwrap();
    all
}

/// Every page has one owner, fences and blocks agree, levels ascend, and the dead are as many as is
/// recorded and no more than the bound.
fn check(tree: &Tree) {
    let mut owned = BTreeSet::from_iter(Catalogue::SPAN.all());
    let mut reader = Reader::new(tree.pager.store().pin());
    for (at, level) in tree.levels().iter().enumerate() {
        if at > 0 {
            let is_before = |pair: &[Arc<Table>]| pair[0].last.as_slice() < pair[1].first();
            assert!(level.windows(2).all(is_before), "level {at}");
        }
        for table in level {
            assert!(table.spans().flat_map(Span::all).all(|page| owned.insert(page)));
            check_table(table, &mut reader);
            if let Some(share) = tree.options.settings.dead_share {
                let dead = table.weight() - table.live();
                assert!(dead as f64 <= share * table.live() as f64, "{dead} of {}", table.live());
            } else {
                assert_eq!(table.weight(), table.live());
            }
        }
    }
    assert_eq!(owned.len() as u64, tree.pager.used());
    tree.pager.store().check().unwrap();
}

fn check_table(table: &Table, reader: &mut Reader) {
    let fences = &table.fences;
    let mut live = vec![0; table.blocks.len()];
    for at in 0..fences.len() {
        assert!(at == 0 || fences.key(at - 1) < fences.key(at));
        if fences.block(at) == NOWHERE {
            continue;
        }
        let number = fences.block(at) as usize;
        let records = reader.block(&table.blocks[number]).unwrap();
        let shown = crate::patch::fences::between(&records, fences.key(at), fences.end(at));
        assert!(shown.iter().all(|record| record.0 <= table.last));
        live[number] += shown.iter().map(weight_of).sum::<u64>();
    }
    for (block, live) in table.blocks.iter().zip(live) {
        let records = reader.block(block).unwrap();
        assert_eq!(block.weight, records.iter().map(weight_of).sum::<u64>());
        assert_eq!(block.live, live);
        assert!(live > 0, "a dead block is kept");
    }
    let again = Table::decode(&table.encode(), table.number, table.slot, table.index).unwrap();
    assert_eq!(again, *table);
}

/// A tree beside a map, with views that are held for a while.
fn history(seed: u64, dead_share: Option<f64>, steps: u64) -> Tree {
    let device = MemoryDevice::new();
    let mut tree = open(&device, small(dead_share));
    let (mut map, mut random) = (Map::new(), Random::new(seed));
    let mut held: Vec<(View, Map)> = Vec::new();
    for at in 0..steps {
        let (written, value) = step(&mut random);
        let flushes = tree.written.flushes;
        tree.write(&written, value.as_deref()).unwrap();
        match value {
            Some(value) => map.insert(written, value),
            None => map.remove(&written),
        };
        if tree.written.flushes > flushes {
            assert_eq!(contents(&mut tree.view()), map, "step {at}");
            held.push((tree.view(), map.clone()));
            if held.len() > 3 {
                let at = random.below(held.len() as u64) as usize;
                let (mut view, then) = held.swap_remove(at);
                assert_eq!(contents(&mut view), then);
            }
            check(&tree);
        }
        if at % 7 == 0 {
            let some = key(random.below(600));
            assert_eq!(tree.get(&some).unwrap().as_ref(), map.get(&some));
        }
        if at % 611 == 610 {
            tree.sync().unwrap();
            held.clear();
            drop(tree);
            tree = open(&device, small(dead_share));
            check(&tree);
            for number in 0..600 {
                let some = key(number);
                assert_eq!(tree.get(&some).unwrap().as_ref(), map.get(&some), "step {at}");
            }
        }
    }
    tree
}

fn budget() -> u64 {
    std::env::var("ESKER_TEST_BUDGET").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn a_tree_is_a_map_however_it_compacts() {
    let (mut patches, mut rewrites) = (0, 0);
    for seed in 0..6 * budget() {
        history(seed, None, 1_500);
        for share in [0.1, 0.5, 3.0] {
            let tree = history(seed, Some(share), 1_500);
            patches += tree.written.compacted.patches;
            rewrites += tree.written.compacted.rewrites;
        }
    }
    assert!(patches > 20 && rewrites > 20, "{patches} {rewrites}");
}

#[test]
fn what_is_loaded_is_the_last_level() {
    for dead_share in [None, Some(0.5)] {
        let device = MemoryDevice::new();
        let mut tree = open(&device, small(dead_share));
        let rows = (0..600).map(|number| Ok((key(number), Some(vec![7; 30]))));
        tree.load(&mut rows.into_iter()).unwrap();
        check(&tree);
        assert!(tree.levels[2].is_empty() && tree.levels[3].len() > 5);
        let mut map: Map = (0..600).map(|number| (key(number), vec![7; 30])).collect();
        let mut random = Random::new(4);
        for _ in 0..1_500 {
            let (key, value) = step(&mut random);
            tree.write(&key, value.as_deref()).unwrap();
            match value {
                Some(value) => map.insert(key, value),
                None => map.remove(&key),
            };
        }
        for number in 0..600 {
            assert_eq!(tree.get(&key(number)).unwrap().as_ref(), map.get(&key(number)));
        }
        check(&tree);
        assert!(tree.load(&mut std::iter::empty()).is_err());
    }
}

#[test]
fn what_is_too_long_is_refused() {
    let mut tree = open(&MemoryDevice::new(), small(None));
    assert!(matches!(tree.write(&[1; 251], None), Err(Error::Input(_))));
    assert!(tree.write(&[1; 250], Some(&[2; 9_000])).is_ok());
    assert_eq!(tree.get(&[1; 250]).unwrap(), Some(vec![2; 9_000]));
}

/// Updates spread over few keys of many write less where they are patched.
#[test]
fn patches_write_less() {
    let written = |dead_share| {
        let device = esker_device::count::CountingDevice::new(Arc::new(MemoryDevice::new()));
        let mut options = small(dead_share);
        (options.memtable_bytes, options.page_bytes) = (8_000, 4096);
        (options.level_1_bytes, options.ratio) = (32_000, 10);
        options.settings.table_bytes = 16_000;
        let mut tree = open(&device, options);
        let rows =
            (0..6_000).map(|number: u32| Ok((number.to_be_bytes().to_vec(), Some(vec![7; 60]))));
        tree.load(&mut rows.into_iter()).unwrap();
        let (before, mut random) = (device.counts().total().bytes_written, Random::new(9));
        for _ in 0..20_000 {
            let key = (random.below(6_000) as u32).to_be_bytes();
            tree.write(&key, Some(&[8; 60])).unwrap();
        }
        device.counts().total().bytes_written - before
    };
    let (rewriting, patching) = (written(None), written(Some(0.5)));
    assert!(patching < rewriting * 9 / 10, "{patching} {rewriting}");
}
