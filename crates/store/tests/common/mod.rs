//! Shared parts of the integration tests: small stores, copies of a device, and a model.
#![allow(dead_code, reason = "each test binary uses its part")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{
    Backup, BackupReport, Db, DbBuilder, Device, History, IndexKind, Keyspace, KeyspaceOptions,
    Scheme,
};
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Open, Purpose};

/// The entries that a keyspace should have.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The kind of index that the test is about: the one that the crate `kinds_<name>` names, the
/// default in other crates and in that of keyspaces with history.
pub fn kind() -> IndexKind {
    let name = env!("CARGO_CRATE_NAME").strip_prefix("kinds_").filter(|_| !keeps_history());
    name.map_or_else(IndexKind::default, |name| name.parse().unwrap())
}

/// Whether the test is about keyspaces that keep all of their history.
pub fn keeps_history() -> bool {
    env!("CARGO_CRATE_NAME") == "kinds_history"
}

/// Whether a test runs that is not about histories: not in the crate of keyspaces with history,
/// where its output is the reason.
#[must_use]
pub fn without_history(reason: &str) -> bool {
    if keeps_history() {
        println!("not for history: {reason}");
    }
    !keeps_history()
}

/// Whether a test runs that is about `kind` alone: not in a crate of another kind, where its output
/// is the reason.
#[must_use]
pub fn only_for(kind: IndexKind, reason: &str) -> bool {
    let runs = kind == self::kind();
    if !runs {
        println!("only for {kind}: {reason}");
    }
    runs
}

/// Options of a keyspace with the kind of index that the test is about.
pub fn options() -> KeyspaceOptions {
    let options = KeyspaceOptions::default().index(kind());
    if keeps_history() { options.history(History::All) } else { options }
}

/// The merge schemes that the index of the test knows of: an LSM index has one.
pub fn schemes() -> Vec<Scheme> {
    match kind() {
        IndexKind::Lsm => vec![Scheme::default()],
        _ => Scheme::ALL.to_vec(),
    }
}

/// A builder with the least memory and the shortest log segments, so that little data makes much
/// maintenance, all of it done when a write returns.
pub fn small(device: &MemoryDevice) -> DbBuilder {
    threaded(device).inline_merges(0)
}

/// The same with flushes and merges in threads.
pub fn threaded(device: &MemoryDevice) -> DbBuilder {
    Db::builder_on(Arc::new(device.clone())).memory_budget(256 << 10).log_segment_bytes(16 << 10)
}

/// A keyspace whose memtable is written out every few kilobytes.
pub fn tiny(db: &Db, name: &str) -> Keyspace {
    db.keyspace(name, options().memtable_bytes(Some(4 << 10))).unwrap()
}

/// All files by name.
pub fn files(device: &MemoryDevice) -> BTreeMap<String, Vec<u8>> {
    let contents = |name: &String| {
        let file = device.open(name, Open::Existing, Caching::Buffered).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes, Purpose::Check).unwrap();
        bytes
    };
    let names = device.list().unwrap();
    names.into_iter().map(|name| (name.clone(), contents(&name))).collect()
}

/// A copy of all files: what a process that is killed now leaves behind.
pub fn copy(device: &MemoryDevice) -> MemoryDevice {
    device.copy()
}

/// Makes a backup of the store, or brings the one in `folder` up to date.
pub fn back_up(db: &Db, folder: &MemoryDevice) -> esker::Result<BackupReport> {
    db.backup_on(Arc::new(folder.clone()), &mut |_| ControlFlow::Continue(()))
}

/// A store of what the backup in `folder` has, which must be sound.
pub fn restored(folder: &MemoryDevice) -> MemoryDevice {
    let backup = Backup::open_on(Arc::new(folder.clone())).unwrap();
    let report = backup.check().unwrap();
    assert!(report.is_ok(), "{:#?}", report.problems);
    let device = MemoryDevice::new();
    let to: Arc<dyn Device> = Arc::new(device.clone());
    backup.restore_on(to, &mut |_| ControlFlow::Continue(())).unwrap();
    device
}

/// The features that a version must support to open the store: the lowest eight bits in the
/// superblock, without that of the kind of index that the test is about.
pub fn required_features(device: &MemoryDevice) -> u8 {
    let file = device.open("superblock", Open::Existing, Caching::Buffered).unwrap();
    let slot = |at: u64| {
        let mut bytes = [0; 12];
        file.read_at(at * (64 << 10), &mut bytes, Purpose::Check).unwrap();
        bytes[8]
    };
    let of_lsm = 1 << 7;
    let required = (0..4).map(slot).fold(0, |all, bits| all | bits);
    assert_eq!(required & of_lsm != 0, kind() == IndexKind::Lsm);
    required & !of_lsm
}

/// Everything in a keyspace.
pub fn contents(keyspace: &Keyspace) -> Model {
    keyspace.iter().unwrap().map(Result::unwrap).collect()
}

/// Fails unless `check` finds nothing.
pub fn assert_sound(db: &Db) {
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{:#?}", report.problems);
}
