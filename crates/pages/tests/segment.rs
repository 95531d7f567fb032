//! Allocation by segments: the cost of a commit, the pages that garbage collection moves, and the
//! readers that see it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Duration;

use common::*;
use esker_device::sim::OpKind;
use esker_harness::counts::budget;
use esker_pages::{Allocation, Durability, Options, PageStore, Snapshot, Versioned};

fn segments() -> Options {
    Options::new().allocation(Allocation::Segment)
}

fn commit(store: &PageStore, pages: impl Iterator<Item = u32>, byte: u8) -> Snapshot {
    let mut writer = store.begin(&store.pin()).unwrap();
    let bytes = vec![byte; writer.page_size() as usize];
    for page in pages {
        writer.write(page, 0, &bytes).unwrap();
    }
    writer.commit(Durability::Full).unwrap()
}

/// Pages that are anywhere in the database, and their record: one write, one sync.
#[test]
fn a_commit_is_one_write_and_one_sync() {
    let device = disk();
    let options = Options { delta_bytes: 0, ..segments() };
    let store = open(&device, &options).unwrap();
    commit(&store, 0..40, 1);
    let counts = || (device.op_count_of(OpKind::Write), device.op_count_of(OpKind::Sync));
    let (writes, syncs) = counts();
    commit(&store, (0..40).step_by(7), 2);
    assert_eq!(counts(), (writes + 1, syncs + 1));
    let written = store.stats().written;
    assert_eq!((written.pages, written.moved), (46 * 4096, 0));
}

/// The allocation is the file's, whatever is asked for when it is opened again.
#[test]
fn the_allocation_is_kept_in_the_file() {
    for (made, asked) in
        [(Allocation::Slot, Allocation::Segment), (Allocation::Segment, Allocation::Slot)]
    {
        let device = disk();
        let store = open(&device, &Options::new().allocation(made)).unwrap();
        commit(&store, 0..3, 1);
        store.close().unwrap();
        let store = open(&device, &Options::new().allocation(asked)).unwrap();
        commit(&store, 0..3, 2);
        store.close().unwrap();
        let file = device.image().files().remove(FILE).unwrap();
        assert_eq!(file[16], 1 + u8::from(made == Allocation::Segment));
    }
}

/// Behind a reader that stays the file grows by what changed once, and the reader reads on.
#[test]
fn the_file_is_bounded_behind_a_reader_that_stays() {
    for relaxed_interval in [None, Some(Duration::from_millis(1))] {
        let options = Options { delta_bytes: 0, relaxed_interval, spare_percent: 25, ..small() };
        let device = disk();
        let store = open(&device, &options.allocation(Allocation::Segment)).unwrap();
        let held = commit(&store, 0..800, 1);
        store.pin_named("first").unwrap();
        let random = Random::new(1);
        let mut most = 0;
        for round in 0..6_000 {
            commit(&store, std::iter::once(random.below(800) as u32), round as u8 | 2);
            most = most.max(store.stats().file_bytes);
        }
        let stats = store.stats();
        assert_eq!((stats.held_pages, stats.versions), (800, 2));
        assert!(stats.moved_pages > 1000, "{stats:?}");
        // Twice what lives and a quarter of it, the map, and some segments.
        assert!(most < (800 + 800) * 512 * 5 / 4 + 30 * 16 * 1024, "{most}: {stats:?}");
        assert!(read_all(&held).unwrap().pages.iter().flatten().all(|byte| *byte == 1));
        let named = store.at_named("first").unwrap();
        assert!(read_all(&named).unwrap().pages.iter().flatten().all(|byte| *byte == 1));
    }
}

/// Readers read while pages move under them.
#[test]
fn readers_and_garbage_collection_never_meet() {
    let options = Options { delta_bytes: 0, ..small_of(1) };
    let options = Options { relaxed_interval: Some(Duration::from_millis(1)), ..options };
    let store = open(&disk(), &options).unwrap();
    commit(&store, 0..400, 1);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let over = || is_over.load(std::sync::atomic::Ordering::Relaxed);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over() {
                    let snapshot = store.pin();
                    let first = read_all(&snapshot).unwrap();
                    assert_eq!(read_all(&snapshot).unwrap(), first);
                }
            });
        }
        let random = Random::new(7);
        for round in 0..3_000 {
            let page = random.below(400) as u32;
            commit(&store, page..(page + 3).min(400), round as u8);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(store.stats().moved_pages > 100);
    store.check().unwrap();
}

/// A random history through the trait alone gives what lists of pages give.
fn judge_versioned<V: Versioned<Durability = Durability>>(store: &V, seed: u64) {
    let random = Random::new(seed);
    let mut newest: Vec<u8> = Vec::new();
    let mut held: Vec<(V::Snapshot, Vec<u8>)> = Vec::new();
    for _ in 0..300 {
        let mut working = newest.clone();
        let mut transaction = store.begin().unwrap();
        for _ in 0..1 + random.below(4) {
            let (page, byte) = (random.below(50) as usize, random.bits() as u8);
            store.write(&mut transaction, page as u32, 0, &[byte; 512]).unwrap();
            working.resize(working.len().max(page + 1), 0);
            working[page] = byte;
        }
        if random.below(4) == 0 {
            store.abort(transaction);
            continue;
        }
        let committed = store.commit(transaction, Durability::Relaxed).unwrap();
        newest = working;
        held.push((committed, newest.clone()));
        held.push((store.snapshot(), newest.clone()));
        while held.len() > 6 {
            let (snapshot, model) = held.swap_remove(random.below(held.len() as u64) as usize);
            for (page, byte) in (0..).zip(model) {
                let mut read = [0; 512];
                store.read(&snapshot, page, 0, &mut read).unwrap();
                assert_eq!(read, [byte; 512], "seed {seed}, page {page}");
            }
            store.purge(snapshot);
        }
    }
}

#[test]
fn versions_by_the_trait_alone() {
    for seed in 0..8 * budget() {
        judge_versioned(&open(&disk(), &small_of(seed)).unwrap(), seed);
    }
}
