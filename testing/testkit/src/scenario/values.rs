//! Values that are more than bytes in a block: blobs and merge operands.

use esker::{History, Merge};

use super::{FULL_DEVICE_BYTES, Scenario, filled};
use crate::history::{self, By, KeyOrder, Op, Profile, Weights, generate, keyspace_name};
use crate::model::{Change, Write};

/// Separate values next to short ones, written over, removed and expiring, under snapshots, in
/// merges of every depth.
#[must_use]
pub fn blobs(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 30,
        remove: 6,
        batch: 3,
        remove_range: 1,
        snapshot: 2,
        pass: 3,
        persist: 1,
        flush: 1,
        compact: 1,
        keyspace: 1,
        reopen: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 160,
        keys: 60,
        keyspaces: 2,
        order: KeyOrder::Skewed,
        value_bytes: 4..=5000,
        batch_changes: 1..=3,
        expiring: (10, 100),
        appending_percent: 0,
        synced_percent: 10,
        weights,
    };
    let mut scenario = Scenario::new("blobs", Vec::new(), generate(&profile, 60 + seed));
    scenario.config.memtable_bytes = 1 << 10;
    scenario.config.inline_bytes_max = Some(60);
    scenario
}

/// Blobs that the log alone refers to, half of them synced: no merge comes in between.
#[must_use]
pub fn blobs_synced(seed: u64) -> Scenario {
    let weights = Weights { insert: 30, remove: 2, batch: 6, reopen: 1, ..Weights::default() };
    let profile = Profile {
        ops: 60,
        keys: 40,
        value_bytes: 30..=9000,
        batch_changes: 1..=3,
        synced_percent: 50,
        weights,
        ..Profile::default()
    };
    let ops = generate(&profile, 63 + seed);
    let mut scenario = Scenario::new("blobs in the log alone", Vec::new(), ops);
    scenario.config.inline_bytes_max = Some(60);
    scenario
}

/// Values that are appended to, on values of every kind, on what was removed and on nothing,
/// between snapshots, in merges of every depth.
#[must_use]
pub fn operands(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 40,
        remove: 4,
        batch: 4,
        remove_range: 1,
        snapshot: 4,
        pass: 3,
        persist: 1,
        flush: 2,
        compact: 1,
        reopen: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 300,
        keys: 60,
        order: KeyOrder::Skewed,
        value_bytes: 4..=60,
        batch_changes: 1..=6,
        expiring: (15, 100),
        appending_percent: 70,
        synced_percent: 6,
        weights,
        ..Profile::default()
    };
    let mut ops = generate(&profile, 70 + seed);
    for (number, op) in ops.iter_mut().enumerate() {
        if let Op::Commit { by: by @ By::Batch, .. } = op
            && number.is_multiple_of(3)
        {
            *by = By::Transaction;
        }
    }
    // Enough on one key that their value is put in their place.
    let many = |seed| {
        let appended = |number| Change {
            keyspace: keyspace_name(0),
            key: history::key(7),
            write: Write::Append(history::value(number, 5).into()),
        };
        let changes = (seed..seed + 70).map(appended).collect();
        Op::Commit { changes, durability: None, by: By::Batch }
    };
    ops.insert(ops.len() / 3, many(1_000_000));
    ops.insert(ops.len() / 2, many(2_000_000));
    let mut scenario = Scenario::new("operands", filled(60, 71 + seed), ops);
    scenario.config.merge = Some(Merge::Append);
    scenario.config.inline_bytes_max = Some(200);
    scenario
}

/// Blobs fill the device; deletes and merges make room again.
#[must_use]
pub fn blobs_full(seed: u64) -> Scenario {
    let weights = Weights { insert: 30, batch: 1, persist: 1, ..Weights::default() };
    let profile = Profile {
        ops: 120,
        keys: 100,
        value_bytes: 1000..=9000,
        batch_changes: 2..=3,
        synced_percent: 10,
        weights,
        ..Profile::default()
    };
    let mut ops = generate(&profile, 61 + seed);
    ops.extend((0..100).map(|number| {
        let (keyspace, key) = (keyspace_name(0), history::key(number));
        let changes = vec![Change { keyspace, key, write: Write::Delete }];
        Op::Commit { changes, durability: None, by: By::Single }
    }));
    ops.push(Op::Compact);
    ops.extend(generate(&Profile { ops: 20, ..profile }, 62 + seed));
    let mut scenario = Scenario::new("blobs on a full device", Vec::new(), ops);
    scenario.capacity_bytes = Some(FULL_DEVICE_BYTES);
    scenario.config.inline_bytes_max = Some(60);
    scenario
}

/// Keyspaces that keep history: keys are overwritten and removed, also by ranges, in merges of
/// every depth, and opened again.
#[must_use]
pub fn versions(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 30,
        remove: 6,
        batch: 8,
        remove_range: 3,
        read: 1,
        snapshot: 2,
        persist: 1,
        flush: 2,
        compact: 1,
        keyspace: 1,
        reopen: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 200,
        keys: 40,
        keyspaces: 2,
        order: KeyOrder::Skewed,
        value_bytes: 4..=160,
        synced_percent: 8,
        weights,
        ..Profile::default()
    };
    let mut scenario = Scenario::new("versions", Vec::new(), generate(&profile, 80 + seed));
    // Both sizes: what merges of one and of many memtables leave.
    scenario.config.memtable_bytes = if seed.is_multiple_of(200) { 1 << 10 } else { 8 << 10 };
    scenario.config.inline_bytes_max = Some(120);
    scenario.config.history = Some(History::All);
    scenario
}

/// A keyspace that keeps history and is overwritten all the time: full merges copy what is live,
/// and leave what they have copied from.
#[must_use]
pub fn splits(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 30,
        remove: 4,
        batch: 4,
        remove_range: 1,
        read: 1,
        snapshot: 1,
        persist: 1,
        flush: 1,
        reopen: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 240,
        keys: 40,
        // So long that a copy has several steps, and records of its progress.
        value_bytes: 200..=400,
        synced_percent: 6,
        weights,
        ..Profile::default()
    };
    let mut scenario = Scenario::new("splits", Vec::new(), generate(&profile, 85 + seed));
    scenario.config.memtable_bytes = 2 << 10;
    scenario.config.inline_bytes_max = Some(390);
    scenario.config.history = Some(History::All);
    scenario
}

/// The same with a history of the newest versions: what is older is given up, and its space used
/// again.
#[must_use]
pub fn retention(seed: u64) -> Scenario {
    let mut scenario = splits(seed + 5);
    scenario.name = "retention";
    scenario.config.history = Some(History::Newest(40));
    scenario
}
