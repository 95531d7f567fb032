//! Stores and backups that earlier versions have written: this and every later version opens them.
//!
//! `tests/fixtures/format-N` has what the first version of format N wrote, each file under gzip,
//! and `expected.tsv` with what is in it: keyspace, entries, CRC-32C of all keys and values.
//! `format-N-history` has keyspaces with history, whose versions have lines of their own. A version
//! that changes the format adds folders; none is ever removed or made again.
//!
//! `ESKER_MAKE_FIXTURES=1 cargo test -p esker --test fixtures` writes the folders of the present
//! format that are missing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::{
    Backup, Compression, Db, DbBuilder, Device, History, IndexKind, Keyspace, KeyspaceOptions,
    Merge,
};
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Open, Purpose};
use esker_harness::fixtures;

/// The format that this version writes.
const FORMAT: u32 = esker_format::FORMAT_VERSION;

/// Far enough that no test sees it pass.
const CENTURIES: Duration = Duration::from_secs(500 * 365 * 86_400);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Merges advance by some steps after each write, so that a copy finds them under way.
fn builder(device: &MemoryDevice) -> DbBuilder {
    Db::builder_on(Arc::new(device.clone()))
        .memory_budget(256 << 10)
        .log_segment_bytes(16 << 10)
        .inline_merges(3)
}

fn options(kind: IndexKind) -> KeyspaceOptions {
    KeyspaceOptions::default().index(kind).memtable_bytes(Some(8 << 10))
}

/// A value whose length and bytes follow from its number.
fn value(n: u64, len: usize) -> Vec<u8> {
    format!("value {n}: ").into_bytes().into_iter().cycle().take(len).collect()
}

/// Every feature in keyspaces of both kinds, from number `from` on.
fn write(db: &Db, from: u64) {
    for kind in IndexKind::ALL {
        let name = |what: &str| format!("{what} {kind}");
        for (codec, compression) in
            [("plain", Compression::None), ("lz4", Compression::Lz4), ("zstd", Compression::Zstd)]
        {
            let keyspace = db.keyspace(&name(codec), options(kind).compression(compression));
            let keyspace = keyspace.unwrap();
            for n in from..from + 400 {
                keyspace.insert(format!("key {:05}", n * 7919 % 1000), value(n, 90)).unwrap();
            }
            for n in (from..from + 400).step_by(5) {
                keyspace.remove(format!("key {:05}", n * 7919 % 1000)).unwrap();
            }
        }
        let blobs = db.keyspace(&name("blobs"), options(kind).inline_bytes_max(500)).unwrap();
        for n in from..from + 30 {
            blobs
                .insert(format!("blob {:03}", n % 50), value(n, 300 + 97 * n as usize % 9_000))
                .unwrap();
        }
        let expiring = db.keyspace(&name("expiring"), options(kind)).unwrap();
        for n in from..from + 60 {
            expiring.insert_with_ttl(format!("kept {n}"), value(n, 50), CENTURIES).unwrap();
            expiring.insert_with_ttl(format!("gone {n}"), b"", Duration::from_nanos(1)).unwrap();
        }
        for merge in Merge::ALL {
            let keyspace = db.keyspace(&name(merge.name()), options(kind).merge(merge)).unwrap();
            for n in from..from + 100 {
                keyspace.merge(format!("key {}", n % 7), n.to_le_bytes()).unwrap();
            }
        }
        let ranges = db.keyspace(&name("ranges"), options(kind)).unwrap();
        for n in from..from + 300 {
            ranges.insert(format!("{:04}", n % 500), value(n, 60)).unwrap();
        }
        for n in 0..10 {
            ranges.remove_range(format!("{:04}", n * 50)..format!("{:04}", n * 50 + 9)).unwrap();
        }
    }
}

/// The keyspaces with history, of which one keeps all, one the newest versions, and one began to.
fn histories(db: &Db) -> [Keyspace; 3] {
    let options = || options(IndexKind::default());
    let all = options().history(History::All).inline_bytes_max(500);
    let newest = options().history(History::Newest(300)).history_share(0.3);
    [("all", all), ("newest", newest), ("begun", options())].map(|(name, options)| {
        let there = db.open_keyspace(name).unwrap();
        there.unwrap_or_else(|| db.keyspace(name, options).unwrap())
    })
}

/// Overwrites, expiries, blobs, removals and range tombstones with history, from number `from` on.
fn write_histories(db: &Db, from: u64) {
    let keyspaces = histories(db);
    for n in from..from + 900 {
        let key = |keys: u64| format!("key {:03}", n * 7919 % keys);
        for keyspace in &keyspaces {
            match n % 20 {
                3 => keyspace.remove(key(60)).unwrap(),
                7 => keyspace.insert(key(60), value(n, 600 + 13 * n as usize % 4_000)).unwrap(),
                11 => keyspace.insert_with_ttl(key(60), value(n, 70), CENTURIES).unwrap(),
                17 => {
                    let ttl = Duration::from_nanos(1);
                    keyspace.insert_with_ttl(key(60), b"", ttl).unwrap();
                }
                19 if n % 3 == 0 => keyspace.remove_range(key(50)..key(60)).unwrap(),
                _ => keyspace.insert(key(60), value(n, 40 + n as usize % 90)).unwrap(),
            }
        }
    }
    // What expires after a nanosecond is gone when it is looked at.
    std::thread::sleep(Duration::from_millis(20));
}

/// A store with named versions, of which some entries are in past indexes and some in the log.
fn fill_histories(device: &MemoryDevice) -> Db {
    let db = builder(device).open().unwrap();
    write_histories(&db, 0);
    histories(&db)[2].set_history(History::All).unwrap();
    db.pin("first", db.version()).unwrap();
    db.pin("second", db.version()).unwrap();
    write_histories(&db, 1_000);
    db.pin("third", db.version()).unwrap();
    db.unpin("second").unwrap();
    histories(&db)[0].erase(["key 007"]).unwrap();
    write_histories(&db, 2_000);
    db
}

/// A store with all of it, in which a snapshot keeps range tombstones and old versions, some
/// flushed and some in the log alone.
fn fill(device: &MemoryDevice) -> Db {
    let db = builder(device).open().unwrap();
    db.keyspace("dropped", KeyspaceOptions::default()).unwrap().insert("key", "value").unwrap();
    write(&db, 0);
    let snapshot = db.snapshot();
    db.drop_keyspace("dropped").unwrap();
    write(&db, 1_000);
    db.flush().unwrap();
    write(&db, 2_000);
    drop(snapshot);
    db
}

/// What is in a store, a line for each keyspace, for some versions of each history, and for names.
fn described(db: &Db) -> String {
    let mut text = String::new();
    for name in db.keyspaces().unwrap() {
        let keyspace = db.open_keyspace(&name).unwrap().unwrap();
        text += &format!("{name}\t{}\n", entries(keyspace.iter().unwrap()));
    }
    for keyspace in db.stats().unwrap().keyspaces {
        let (Some(oldest), Some(history)) =
            (keyspace.history_from, db.open_keyspace(&keyspace.name).unwrap())
        else {
            continue;
        };
        for version in (1..db.version()).step_by(97).filter(|version| *version >= oldest) {
            let entries = entries(history.at(version).unwrap().iter().unwrap());
            text += &format!("{} at {version}\t{entries}\n", keyspace.name);
        }
    }
    for named in db.named_versions().unwrap() {
        text += &format!("{}\t{}\n", named.name, named.version);
    }
    text
}

/// The number of entries, and the checksum of their keys and values.
fn entries(all: impl Iterator<Item = esker::Result<esker::Entry>>) -> String {
    let (mut entries, mut crc) = (0, 0);
    for entry in all {
        let (key, value) = entry.unwrap();
        entries += 1;
        for part in [&key[..], &value[..]] {
            crc = crc32c::crc32c_append(crc, &(part.len() as u64).to_le_bytes());
            crc = crc32c::crc32c_append(crc, part);
        }
    }
    format!("{entries}\t{crc:08x}")
}

fn files(device: &MemoryDevice) -> BTreeMap<String, Vec<u8>> {
    let contents = |name: String| {
        let file = device.open(&name, Open::Existing, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes, Purpose::Check).unwrap();
        (name, bytes)
    };
    device.list().unwrap().into_iter().map(contents).collect()
}

fn keep(device: &MemoryDevice, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for (name, bytes) in files(device) {
        fixtures::write(&to.join(format!("{name}.gz")), &bytes).unwrap();
    }
}

fn load(from: &Path) -> MemoryDevice {
    let device = MemoryDevice::new();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let file = device.open(&name, Open::CreateNew, Caching::Buffered).unwrap();
        file.write_at(0, &fixtures::read(&path).unwrap(), Purpose::User).unwrap();
    }
    device
}

/// Writes fixtures of the present format: a store that was closed, one whose process was killed
/// with merges under way, and two backups into one folder. `keyspace` is one of those of `fill`.
fn make(to: &Path, fill: fn(&MemoryDevice) -> Db, keyspace: &str) {
    let (clean, backup) = (MemoryDevice::new(), MemoryDevice::new());
    let db = fill(&clean);
    let expected = described(&db);
    let mut written = 0;
    while !db.stats().unwrap().keyspaces.iter().any(|keyspace| keyspace.merge.is_some()) {
        let keyspace = db.open_keyspace(keyspace).unwrap().unwrap();
        let key = format!("key {:05}", 2_399 * 7919 % 1000);
        let value = keyspace.get(&key).unwrap();
        keyspace.insert(&key, value.unwrap_or_default()).unwrap();
        written += 1;
        assert!(written < 10_000, "no merge begins");
    }
    keep(&clean.copy(), &to.join("killed"));
    let expected = if written == 0 { expected } else { described(&db) };
    let target: Arc<dyn Device> = Arc::new(backup.clone());
    db.backup_on(Arc::clone(&target), &mut |_| ControlFlow::Continue(())).unwrap();
    db.compact().unwrap();
    db.backup_on(target, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(described(&db), expected);
    db.close().unwrap();
    keep(&clean, &to.join("closed"));
    keep(&backup, &to.join("backup"));
    fs::write(to.join("expected.tsv"), expected).unwrap();
}

/// Opens a store, compares it, writes to it, and opens it again.
fn assert_opens(device: &MemoryDevice, expected: &str) {
    let db = builder(device).open().unwrap();
    assert_eq!(described(&db), expected);
    assert!(db.check().unwrap().is_ok());
    let has_history = db.keyspaces().unwrap().iter().any(|name| name == "begun");
    if has_history {
        write_histories(&db, 3_000)
    } else {
        write(&db, 3_000)
    }
    db.compact().unwrap();
    let after = described(&db);
    assert!(db.check().unwrap().is_ok());
    db.close().unwrap();
    assert_eq!(described(&builder(device).open().unwrap()), after);
}

#[test]
fn what_earlier_versions_wrote_is_opened() {
    let newest = folder().join(format!("format-{FORMAT}"));
    let history = folder().join(format!("format-{FORMAT}-history"));
    let makes = std::env::var_os("ESKER_MAKE_FIXTURES").is_some();
    if makes && !newest.exists() {
        make(&newest, fill, "plain fdtree");
    }
    if makes && !history.exists() {
        make(&history, fill_histories, "all");
    }
    let is_there = newest.exists() && history.exists();
    assert!(is_there, "the present format has no fixtures: see the head of this file");
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let expected = fs::read_to_string(path.join("expected.tsv")).unwrap();
        assert_opens(&load(&path.join("closed")), &expected);
        assert_opens(&load(&path.join("killed")), &expected);
        let backup = Backup::open_on(Arc::new(load(&path.join("backup")))).unwrap();
        assert!(backup.check().unwrap().is_ok());
        let restored = MemoryDevice::new();
        let to: Arc<dyn Device> = Arc::new(restored.clone());
        backup.restore_on(to, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_opens(&restored, &expected);
    }
}
