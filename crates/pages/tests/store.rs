//! The guarantees of the handles: permission to write, refused calls, the cost of a commit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use esker_device::memory::MemoryDevice;
use esker_device::sim::{Effect, Failure, Fault, FaultPlan, OpKind, SimDevice};
use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use esker_pages::{Durability, Error, Options, PageStore, Snapshot};

const FULL: Durability = Durability::Full;

fn memory(bytes: &[u8]) -> Arc<dyn DeviceFile> {
    let device = MemoryDevice::new();
    let file = device.open(FILE, Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(0, bytes, Purpose::User).unwrap();
    file
}

fn commit(store: &PageStore, page: u32, offset: u32, bytes: &[u8]) -> Snapshot {
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(page, offset, bytes).unwrap();
    writer.commit(FULL).unwrap()
}

#[test]
fn one_writer_and_only_on_the_newest_version() {
    let store = open(&disk(), &small()).unwrap();
    let old = store.pin();
    let writer = store.begin(&old).unwrap();
    assert!(store.has_writer());
    assert!(matches!(store.begin(&old), Err(Error::Busy)));
    drop(writer);
    assert!(!store.has_writer());
    let newest = commit(&store, 3, 0, b"abc");
    assert_eq!((old.pages(), newest.pages(), newest.version()), (0, 4, 1));
    assert!(matches!(store.begin(&old), Err(Error::Stale { base: 0, newest: 1 })));
    store.begin(&newest).unwrap().abort();
    assert!(!store.has_writer());
}

#[test]
fn what_lies_outside_is_refused() {
    let store = open(&disk(), &small()).unwrap();
    let mut writer = store.begin(&store.pin()).unwrap();
    let is_refused = |outcome: esker_pages::Result<()>| {
        assert!(matches!(outcome, Err(Error::InvalidArgument(_))));
    };
    is_refused(writer.write(0, 510, b"abc"));
    is_refused(writer.write(0, u32::MAX, b"a"));
    is_refused(writer.write(u32::MAX, 0, b"a"));
    is_refused(writer.read(0, 0, &mut [0]));
    for bytes in [0, 256, 513, 32 * 1024, 128 * 1024, u32::MAX] {
        is_refused(writer.set_page_size(bytes));
    }
    writer.write(1, 0, b"a").unwrap();
    let snapshot = writer.commit(FULL).unwrap();
    is_refused(snapshot.read(2, 0, &mut [0]));
    is_refused(snapshot.read(0, 512, &mut [0]));
    is_refused(store.pin_named("").map(drop));
    is_refused(store.pin_named(&"n".repeat(256)).map(drop));
    is_refused(store.unpin_named("nobody"));
    is_refused(store.at_named("nobody").map(drop));
    is_refused(store.decide(true));
    let other = open(&disk(), &small()).unwrap();
    is_refused(other.begin(&store.pin()).map(drop));
    let options = Options::new().page_size(1000);
    is_refused(PageStore::open(memory(&[]), options).map(drop));
    let options = Options::new().segment_bytes(8192);
    is_refused(PageStore::open(memory(&[]), options).map(drop));
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let cases: [(&[u8], &str); 3] = [
        (b"SQLite format 3\0and so on", "esker sqlite import"),
        (b"some text", "no page store"),
        (b"Esker page store\x09\0\0\0", "format 9"),
    ];
    for (bytes, expected) in cases {
        let file = memory(bytes);
        let error = PageStore::open(Arc::clone(&file), Options::new()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let mut after = vec![0; bytes.len()];
        file.read_at(0, &mut after, Purpose::User).unwrap();
        assert_eq!((file.len().unwrap(), &after[..]), (bytes.len() as u64, bytes));
    }
}

#[test]
fn a_commit_that_changes_nothing_writes_nothing() {
    let device = disk();
    let store = open(&device, &small()).unwrap();
    let before = commit(&store, 1, 0, &[7; 512]);
    let writes = device.op_count_of(OpKind::Write) + device.op_count_of(OpKind::Sync);
    for bytes in [&[][..], &[7; 512], &[7; 3]] {
        let mut writer = store.begin(&before).unwrap();
        writer.write(1, 0, bytes).unwrap();
        assert_eq!(writer.commit(FULL).unwrap().version(), before.version());
    }
    let after = device.op_count_of(OpKind::Write) + device.op_count_of(OpKind::Sync);
    assert_eq!((writes, store.stats().empty_commits), (after, 3));
}

#[test]
fn a_commit_is_one_write_a_run_and_one_sync() {
    let device = disk();
    let options = Options::new();
    let store = open(&device, &options).unwrap();
    commit(&store, 40, 0, &[1; 4096]);
    let count = |kind| device.op_count_of(kind);
    let (writes, syncs) = (count(OpKind::Write), count(OpKind::Sync));
    let mut writer = store.begin(&store.pin()).unwrap();
    for page in 0..40 {
        writer.write(page, 0, &[page as u8 + 1; 4096]).unwrap();
    }
    writer.commit(FULL).unwrap();
    // The pages, side by side; and the record.
    assert_eq!((count(OpKind::Write) - writes, count(OpKind::Sync) - syncs), (2, 1));
    // A counter that every transaction moves is 12 bytes of a record, not a page.
    let before = store.stats().written;
    let counter = 77u32.to_be_bytes();
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(0, 24, &counter).unwrap();
    writer.write(0, 92, &counter).unwrap();
    writer.commit(FULL).unwrap();
    let after = store.stats().written;
    assert_eq!((after.pages, after.records - before.records), (before.pages, 512));
    let mut read = [0; 4];
    store.pin().read(0, 92, &mut read).unwrap();
    assert_eq!(read, counter);
}

#[test]
fn pages_of_every_size_in_one_store_after_another() {
    let store = PageStore::open(memory(&[]), Options::new()).unwrap();
    let mut held = Vec::new();
    for shift in [0, 7, 3, 5, 1, 6, 2, 4, 0] {
        let bytes = 512 << shift;
        let mut writer = store.begin(&store.pin()).unwrap();
        writer.set_page_size(bytes).unwrap();
        for page in 0..5 {
            writer.write(page, 0, &vec![shift + 1; bytes as usize]).unwrap();
        }
        let snapshot = writer.commit(FULL).unwrap();
        assert_eq!((snapshot.page_size(), snapshot.pages()), (bytes, 5));
        held.push((snapshot, shift + 1));
        store.checkpoint().unwrap();
    }
    for (snapshot, byte) in &held {
        assert!(read_all(snapshot).unwrap().pages.iter().flatten().all(|read| read == byte));
    }
    assert!(store.check().unwrap().accounted);
}

#[test]
fn a_large_transaction_spills_and_may_be_aborted() {
    let device = disk();
    let store = open(&device, &small()).unwrap();
    let fill = |round: u32| {
        let mut writer = store.begin(&store.pin()).unwrap();
        for page in 0..500u32 {
            writer.write(page, 0, &(page + round).to_le_bytes().repeat(128)).unwrap();
        }
        // What was spilled is read, and written again.
        for page in (0..500u32).step_by(7) {
            let mut read = [0; 4];
            writer.read(page, 8, &mut read).unwrap();
            assert_eq!(u32::from_le_bytes(read), page + round);
            writer.write(page, 8, b"new!").unwrap();
        }
        writer
    };
    fill(1).abort();
    assert_eq!((store.pin().pages(), store.stats().used_bytes < 16 * 1024), (0, true));
    let snapshot = fill(2).commit(FULL).unwrap();
    let contents = read_all(&snapshot).unwrap();
    for (page, bytes) in (0..).zip(&contents.pages) {
        let mut expected = (page + 2u32).to_le_bytes().repeat(128);
        if page % 7 == 0 {
            expected[8..12].copy_from_slice(b"new!");
        }
        assert_eq!(*bytes, expected, "{page}");
    }
    assert!(store.stats().spilled_pages > 900);
    drop(snapshot);
    drop(store);
    let store = open(&device, &small()).unwrap();
    assert_eq!(read_all(&store.pin()).unwrap(), contents);
    assert!(store.check().unwrap().accounted);
}

/// The file holds what is live and what changed since each live snapshot, however long it is held.
#[test]
fn an_old_reader_holds_what_changed_once() {
    let options = Options { delta_bytes: 0, ..small() };
    let store = PageStore::open(memory(&[]), options).unwrap();
    let mut writer = store.begin(&store.pin()).unwrap();
    for page in 0..200 {
        writer.write(page, 0, &[1; 512]).unwrap();
    }
    let held = writer.commit(FULL).unwrap();
    let random = Random::new(1);
    let mut most = 0;
    for round in 0..20_000 {
        let page = random.below(200) as u32;
        commit(&store, page, 0, &[round as u8 | 2; 512]);
        most = most.max(store.stats().file_bytes);
    }
    let stats = store.stats();
    assert_eq!((stats.held_pages, stats.versions), (200, 2));
    // Live, held, a quarter dead or a segment, the map, two logs, and what is set aside.
    assert!(most < (200 + 200 + 50) * 512 + 16 * 16 * 1024, "{most}");
    assert!(read_all(&held).unwrap().pages.iter().flatten().all(|byte| *byte == 1));
    drop(held);
    store.checkpoint().unwrap();
    assert_eq!((store.stats().held_pages, store.stats().dead_pages), (0, 0));
    assert!(store.check().unwrap().accounted);
}

#[test]
fn relaxed_commits_are_durable_in_time() {
    let device = disk();
    let mut options = Options::new().segment_bytes(16 * 1024);
    options.relaxed_interval = Some(Duration::from_millis(5));
    let store = open(&device, &options).unwrap();
    commit(&store, 0, 0, b"first");
    let syncs = device.op_count_of(OpKind::Sync);
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(0, 0, b"second").unwrap();
    writer.commit(Durability::Relaxed).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while device.op_count_of(OpKind::Sync) == syncs {
        assert!(std::time::Instant::now() < deadline, "nobody synced");
        std::thread::sleep(Duration::from_millis(1));
    }
    while device.pending_units() > 0 {
        assert!(std::time::Instant::now() < deadline, "something is not durable");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Ended by the last handle; a snapshot that outlives it still reads.
    let snapshot = store.pin();
    drop(store);
    let mut read = [0; 6];
    snapshot.read(0, 0, &mut read).unwrap();
    assert_eq!(&read, b"second");
}

/// Every snapshot is one version: the pages of a commit belong together, while a writer commits,
/// checkpoints are taken and slots are used again.
#[test]
fn readers_and_the_writer_never_meet() {
    let store = PageStore::open(memory(&[]), small()).unwrap();
    let mut writer = store.begin(&store.pin()).unwrap();
    for page in 0..32 {
        writer.write(page, 0, &[0; 8]).unwrap();
    }
    writer.write(0, 500, b"x").unwrap();
    writer.commit(FULL).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (store, is_over) = (&store, &is_over);
            scope.spawn(move || {
                let random = Random::new(thread);
                let mut last = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let snapshot = store.pin();
                    assert!(snapshot.version() >= last);
                    last = snapshot.version();
                    let of_page = |page| {
                        let mut read = [0; 8];
                        snapshot.read(page, 0, &mut read).unwrap();
                        u64::from_le_bytes(read)
                    };
                    let first = of_page(0);
                    for _ in 0..10 {
                        assert_eq!(of_page(random.below(32) as u32), first);
                    }
                }
            });
        }
        let random = Random::new(9);
        for round in 1..3000u64 {
            let mut writer = store.begin(&store.pin()).unwrap();
            for page in 0..32 {
                let whole = random.below(3) == 0;
                let bytes = round.to_le_bytes().repeat(if whole { 60 } else { 1 });
                writer.write(page, 0, &bytes).unwrap();
            }
            let how = if round % 8 == 0 { FULL } else { Durability::Relaxed };
            writer.commit(how).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(store.stats().checkpoints > 3);
    assert!(store.check().unwrap().accounted);
}

#[test]
fn names_survive_and_are_few() {
    let device = disk();
    let store = open(&device, &small()).unwrap();
    for n in 0..32u8 {
        commit(&store, 0, 0, &[n; 512]);
        assert_eq!(store.pin_named(&name(n)).unwrap(), u64::from(n) + 1);
    }
    assert!(matches!(store.pin_named("more"), Err(Error::InvalidArgument(_))));
    store.close().unwrap();
    let store = open(&device, &small()).unwrap();
    for n in 0..32u8 {
        let contents = read_all(&store.at_named(&name(n)).unwrap()).unwrap();
        assert_eq!(contents.pages, [[n; 512]]);
    }
    let versions = store.versions();
    assert_eq!((versions.len(), &versions[3].names[..]), (32, &[name(3)][..]));
    for n in 0..32u8 {
        store.unpin_named(&name(n)).unwrap();
    }
    assert_eq!(store.versions().len(), 1);
    assert!(store.check().unwrap().accounted);
}

/// A record that may be there or not is for the next opening to find; closing says so.
#[test]
fn closing_a_poisoned_store_is_an_error() {
    let device = disk();
    let store = open(&device, &small()).unwrap();
    commit(&store, 0, 0, b"a first difference, and room is set aside for more");
    commit(&store, 0, 0, b"the record is all that the next commit writes");
    let fault = Fault::new(Effect::ShortWrite { bytes: 512, failure: Failure::Io });
    device.set_faults(FaultPlan::new().with(fault.on(OpKind::Write)));
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(0, 0, b"abc").unwrap();
    assert!(matches!(writer.commit(FULL), Err(Error::Device(_))));
    assert_eq!(store.pin().version(), 2);
    assert!(matches!(store.begin(&store.pin()), Err(Error::Poisoned)));
    assert!(matches!(store.close(), Err(Error::Poisoned)));
    let store = open(&device, &small()).unwrap();
    assert_eq!(store.pin().version(), 3);
}

#[test]
fn a_closed_store_opens_without_a_write() {
    let device = disk();
    let store = open(&device, &small()).unwrap();
    commit(&store, 5, 0, b"abc");
    store.close().unwrap();
    let image = device.image();
    let device = SimDevice::from_image(&image);
    let store = open(&device, &small()).unwrap();
    let mut read = [0; 3];
    store.pin().read(5, 0, &mut read).unwrap();
    drop(store);
    assert_eq!(&read, b"abc");
    let written = [OpKind::Write, OpKind::Sync].map(|kind| device.op_count_of(kind));
    assert_eq!(written, [0, 0]);
}

#[test]
fn a_small_store_takes_little() {
    let store = PageStore::open(memory(&[]), Options::new()).unwrap();
    for round in 1..20 {
        for page in 0..100 {
            commit(&store, page, 0, &[round; 4096]);
        }
    }
    // The first segment, the log, and what is set aside for a checkpoint.
    let bytes = store.stats().file_bytes;
    assert!(bytes <= 4 << 20, "{bytes}");
}
