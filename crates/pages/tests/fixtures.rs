//! Page stores that earlier versions have written: this and every later version opens them.
//!
//! `tests/fixtures` has, for each allocation, a store that was closed and one whose process was
//! killed with a prepared transaction, under gzip, and in `expected.tsv` what is in them: store,
//! version, pages, CRC-32C of all pages. A version that changes the format adds a folder; nothing
//! is ever removed or made again.
//!
//! `ESKER_MAKE_FIXTURES=1 cargo test -p esker-pages --test fixtures` writes the folder where there
//! is none.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use esker_harness::fixtures;
use esker_pages::{Allocation, Durability, Options, PageStore, Snapshot};

const NAMES: [&str; 2] = ["empty", "half"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn options(allocation: Allocation) -> Options {
    let mut options = Options::new().page_size(512).segment_bytes(16 * 1024).allocation(allocation);
    options.spill_bytes = 24 * 512;
    options.checkpoint_bytes = 24 * 1024;
    options.relaxed_interval = None;
    options
}

fn file_of(bytes: &[u8]) -> Arc<dyn DeviceFile> {
    let file = MemoryDevice::new().open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    file.write_at(0, bytes, Purpose::User).unwrap();
    file
}

fn bytes_of(file: &dyn DeviceFile) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes, Purpose::Check).unwrap();
    bytes
}

/// Writes whole pages where `n` says so, else some bytes of each.
fn write(store: &PageStore, n: u32, pages: impl Iterator<Item = u32>) -> Snapshot {
    let mut writer = store.begin(&store.pin()).unwrap();
    for page in pages {
        let byte = (n + page) as u8;
        if n.is_multiple_of(3) {
            writer.write(page, 0, &[byte; 512]).unwrap();
        } else {
            writer.write(page, n * 7 % 400, &[byte; 20]).unwrap();
        }
    }
    writer.commit(Durability::Full).unwrap()
}

/// Whole pages and deltas, transactions that spill, named versions, a file that was longer.
fn fill(store: &PageStore) {
    store.pin_named(NAMES[0]).unwrap();
    for n in 0..60 {
        write(store, n, (0..1 + n % 9).map(|page| page * 13 % 90));
        if n == 30 {
            write(store, 3, 0..120);
            store.pin_named(NAMES[1]).unwrap();
        }
    }
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.truncate(100).unwrap();
    writer.commit(Durability::Full).unwrap();
    store.checkpoint().unwrap();
    for n in 60..75 {
        write(store, n, (0..4).map(|page| page * 29 % 100));
    }
}

/// What is in the newest version and the named ones.
fn described(name: &str, store: &PageStore) -> String {
    let named = NAMES.iter().map(|name| (*name, store.at_named(name).unwrap()));
    let mut text = String::new();
    for (version, snapshot) in std::iter::once(("newest", store.pin())).chain(named) {
        let mut crc = 0;
        let mut page = vec![0; snapshot.page_size() as usize];
        for number in 0..snapshot.pages() {
            snapshot.read(number, 0, &mut page).unwrap();
            crc = crc32c::crc32c_append(crc, &page);
        }
        writeln!(text, "{name}\t{version}\t{}\t{crc:08x}", snapshot.pages()).unwrap();
    }
    text
}

fn path(name: &str) -> PathBuf {
    folder().join(format!("{name}.gz"))
}

/// Writes the fixtures of an allocation; returns what is in them.
fn make(allocation: Allocation) -> String {
    let (closed, killed) =
        (format!("{}-closed", allocation.name()), format!("{}-killed", allocation.name()));
    let file = file_of(&[]);
    let store = PageStore::open(Arc::clone(&file), options(allocation)).unwrap();
    fill(&store);
    let mut expected = described(&closed, &store);
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(5, 0, b"prepared").unwrap();
    writer.prepare(b"the decision").unwrap();
    fixtures::write(&path(&killed), &bytes_of(&*file)).unwrap();
    expected += &described(&killed, &store);
    writer.abort();
    store.close().unwrap();
    fixtures::write(&path(&closed), &bytes_of(&*file)).unwrap();
    expected
}

fn make_missing() {
    if folder().exists() {
        return;
    }
    fs::create_dir_all(folder()).unwrap();
    let expected = [Allocation::Slot, Allocation::Segment].map(make).concat();
    fs::write(folder().join("expected.tsv"), expected).unwrap();
}

/// Opens a store, compares it, decides what is prepared, writes, and opens it again.
fn assert_opens(name: &str, expected: &str) {
    let file = file_of(&fixtures::read(&path(name)).unwrap());
    let store = PageStore::open(Arc::clone(&file), Options::new()).unwrap();
    assert_eq!(described(name, &store), expected);
    let prepared = store.prepared();
    assert_eq!(prepared.is_some(), name.ends_with("killed"));
    if prepared.is_some_and(|name| name == b"the decision") {
        store.decide(true).unwrap();
        let mut page = [0; 8];
        store.pin().read(5, 0, &mut page).unwrap();
        assert_eq!(&page, b"prepared");
    }
    let report = store.check().unwrap();
    assert!(report.accounted && report.versions == 3, "{report:?}");
    write(&store, 90, 0..110);
    store.checkpoint().unwrap();
    let after = described(name, &store);
    store.close().unwrap();
    let again = PageStore::open(file, Options::new()).unwrap();
    assert_eq!(described(name, &again), after);
}

#[test]
fn what_earlier_versions_wrote_is_opened() {
    if std::env::var_os("ESKER_MAKE_FIXTURES").is_some() {
        make_missing();
    }
    let expected = fs::read_to_string(folder().join("expected.tsv")).unwrap();
    let mut names: Vec<_> = expected.lines().filter_map(|line| line.split('\t').next()).collect();
    names.dedup();
    assert_eq!(names.len(), fs::read_dir(folder()).unwrap().count() - 1);
    for name in names {
        let lines = expected.lines().filter(|line| line.split('\t').next() == Some(name));
        let expected: String = lines.map(|line| format!("{line}\n")).collect();
        assert_opens(name, &expected);
    }
}
