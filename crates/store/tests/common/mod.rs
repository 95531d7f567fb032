//! What the integration tests share: small stores, copies of a device, and a model.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{Db, DbBuilder, Device, Keyspace, KeyspaceOptions};
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Open, Purpose};

/// What a keyspace should hold.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A builder with the least memory and the shortest log segments, so that little data makes much
/// maintenance, all of it done when a write returns.
pub fn small(device: &MemoryDevice) -> DbBuilder {
    threaded(device).inline_merges(0)
}

/// The same with spills and merges in threads.
pub fn threaded(device: &MemoryDevice) -> DbBuilder {
    Db::builder_on(Arc::new(device.clone())).memory_budget(256 << 10).log_segment_bytes(16 << 10)
}

/// A keyspace whose memtable is written out every few kilobytes.
pub fn tiny(db: &Db, name: &str) -> Keyspace {
    db.keyspace(name, KeyspaceOptions::default().memtable_bytes(Some(4 << 10))).unwrap()
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
    let copy = MemoryDevice::new();
    for (name, bytes) in files(device) {
        let to = copy.open(&name, Open::CreateNew, Caching::Buffered).unwrap();
        to.write_at(0, &bytes, Purpose::Check).unwrap();
    }
    copy
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

/// Numbers that follow from a seed (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
