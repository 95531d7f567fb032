//! A file that is made shorter: its length afterwards, and the readers that notice.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::ops::ControlFlow;
use std::time::Duration;

use common::*;
use esker_device::sim::SimDevice;
use esker_pages::{Allocation, Compacted, Durability, Options, PageStore, Snapshot};

const SEGMENT: u64 = 16 * 1024;

fn both() -> [Options; 2] {
    [Allocation::Slot, Allocation::Segment].map(|allocation| {
        // Pages of zeros that are not written early take no place.
        let spill_bytes = 64 << 20;
        Options { delta_bytes: 0, spill_bytes, ..small().allocation(allocation) }
    })
}

fn commit(store: &PageStore, pages: impl Iterator<Item = u32>, byte: u8) -> Snapshot {
    let mut writer = store.begin(&store.pin()).unwrap();
    for page in pages {
        writer.write(page, 0, &[byte; 512]).unwrap();
    }
    writer.commit(Durability::Full).unwrap()
}

fn compact(store: &PageStore) -> Compacted {
    let done = store.compact(&mut |_, _| ControlFlow::Continue(())).unwrap();
    assert!(store.check().unwrap().accounted);
    assert_eq!(store.stats().file_bytes, done.after_bytes);
    done
}

fn file_bytes(device: &SimDevice) -> u64 {
    device.image().files()[FILE].len() as u64
}

/// Pages of which nine of ten become zeros, which need no place, all over the file.
fn sparse(device: &SimDevice, options: &Options, pages: u32) -> PageStore {
    let store = open(device, options).unwrap();
    commit(&store, 0..pages, 1);
    commit(&store, (0..pages).filter(|page| page % 10 > 0), 0);
    store
}

/// What lives, the map, the log, a sixteenth that is not worth its moving, and a few segments that
/// are partly free.
fn bound(store: &PageStore) -> u64 {
    let stats = store.stats();
    stats.used_bytes / 16 * 17 + 12 * SEGMENT
}

#[test]
fn the_file_becomes_as_short_as_what_lives() {
    for options in both() {
        for interval in [None, Some(Duration::from_millis(1))] {
            let device = disk();
            let options = Options { relaxed_interval: interval, ..options.clone() };
            let store = sparse(&device, &options, 8_000);
            let expected = read_all(&store.pin()).unwrap();
            let done = compact(&store);
            assert_eq!(file_bytes(&device), done.after_bytes);
            let live = store.stats().live_pages * 512;
            assert!(done.after_bytes <= bound(&store), "{done:?} for {live}");
            assert!(done.after_bytes < done.before_bytes / 4, "{done:?} for {live}");
            assert!(done.moved_pages <= 2 * 800, "{done:?}");
            assert_eq!(read_all(&store.pin()).unwrap(), expected);
            // Once more gains nothing, moves little, and costs nothing.
            let again = compact(&store);
            assert!(again.after_bytes <= done.after_bytes, "{again:?} after {done:?}");
            commit(&store, 0..50, 7);
            store.close().unwrap();
            let store = open(&device, &options).unwrap();
            assert_eq!(store.pin().version(), 3);
            assert!(store.check().unwrap().accounted);
        }
    }
}

/// Versions with names are read on from where they have moved to.
#[test]
fn named_versions_move_along() {
    for options in both() {
        let device = disk();
        let store = open(&device, &options).unwrap();
        commit(&store, 0..2_000, 1);
        let first = commit(&store, 0..100, 2);
        store.pin_named("first").unwrap();
        let expected = read_all(&first).unwrap();
        drop(first);
        for byte in 3..9 {
            commit(&store, 0..2_000, byte);
        }
        let mut writer = store.begin(&store.pin()).unwrap();
        writer.truncate(10).unwrap();
        writer.commit(Durability::Full).unwrap();
        let done = compact(&store);
        assert!(done.after_bytes <= bound(&store), "{done:?}: {:?}", store.stats());
        assert_eq!(read_all(&store.at_named("first").unwrap()).unwrap(), expected);
        store.unpin_named("first").unwrap();
        let done = compact(&store);
        assert!(done.after_bytes <= 20 * SEGMENT, "{done:?}");
        store.close().unwrap();
        let store = open(&device, &options).unwrap();
        assert_eq!(store.pin().pages(), 10);
    }
}

/// A snapshot reads on whatever moves; with single slots the file ends behind what it has.
#[test]
fn a_reader_is_neither_waited_for_nor_disturbed() {
    for options in both() {
        let device = disk();
        let store = open(&device, &options).unwrap();
        let held = commit(&store, 0..4_000, 1);
        commit(&store, 0..4_000, 2);
        let mut writer = store.begin(&store.pin()).unwrap();
        writer.truncate(40).unwrap();
        writer.commit(Durability::Full).unwrap();
        let first = compact(&store);
        assert!(read_all(&held).unwrap().pages.iter().flatten().all(|byte| *byte == 1));
        drop(held);
        let second = compact(&store);
        assert!(second.after_bytes < first.after_bytes, "{second:?} after {first:?}");
        assert!(second.after_bytes <= bound(&store), "{second:?}");
    }
}

/// Between the steps anything may be committed, and a writer that has begun goes on.
#[test]
fn commits_go_on_between_the_steps() {
    for options in both() {
        let device = disk();
        let store = sparse(&device, &options, 40_000);
        let mut model = read_all(&store.pin()).unwrap();
        let random = Random::new(5);
        let mut writer = Some(store.begin(&store.pin()).unwrap());
        let mut steps = 0;
        for _ in 0..3 {
            let mut between = |_, _| {
                let mut begun = writer.take().unwrap();
                for _ in 0..50 {
                    let (page, byte) = (random.below(40_000) as u32 / 10 * 10, random.bits() as u8);
                    begun.write(page, 0, &[byte; 512]).unwrap();
                    model.write(page, 0, &[byte; 512]);
                }
                let snapshot = begun.commit(Durability::Full).unwrap();
                assert_eq!(read_all(&snapshot).unwrap(), model);
                writer = Some(store.begin(&snapshot).unwrap());
                steps += 1;
                ControlFlow::Continue(())
            };
            store.compact(&mut between).unwrap();
        }
        drop(writer);
        assert!(steps > 5, "{steps}");
        let done = compact(&store);
        assert!(done.after_bytes <= bound(&store), "{done:?}");
        store.close().unwrap();
        assert_eq!(read_all(&open(&device, &options).unwrap().pin()).unwrap(), model);
    }
}

/// Ending it early keeps what was done.
#[test]
fn it_can_be_ended_early() {
    for options in both() {
        let device = disk();
        let store = sparse(&device, &options, 40_000);
        let expected = read_all(&store.pin()).unwrap();
        let mut told = Vec::new();
        let done = store.compact(&mut |moved, left| {
            told.push((moved, left));
            ControlFlow::Break(())
        });
        let done = done.unwrap();
        assert!(done.after_bytes <= done.before_bytes && told.len() == 1, "{done:?} {told:?}");
        assert_eq!(read_all(&store.pin()).unwrap(), expected);
        assert!(store.check().unwrap().accounted);
    }
}

/// On a full device too: it needs no more room than a checkpoint.
#[test]
fn a_full_device_is_made_room_on() {
    for options in both() {
        let device = disk();
        let store = open(&device, &options).unwrap();
        commit(&store, 0..4_000, 1);
        commit(&store, (0..4_000).filter(|page| page % 10 > 0), 0);
        device.set_capacity_bytes(file_bytes(&device));
        let done = compact(&store);
        assert!(done.after_bytes < done.before_bytes / 2, "{done:?}");
        let pages = store.stats().live_pages;
        commit(&store, 0..2_000, 3);
        assert!(store.stats().live_pages > pages);
    }
}
