//! Named workloads that bring a small store into every state that durability depends on.
//!
//! A scenario has a part before the interesting one (`prepare`, which is not examined) and the
//! part that is examined. Both are plain operations, so that a scenario is the same everywhere.

mod values;

use esker::{Compression, Durability, History, IndexKind, Merge, Scheme};

use crate::config::Config;
use crate::history::{self, By, KeyOrder, Op, Profile, Weights, generate, keyspace_name};
use crate::model::{Change, Write};
use crate::random::Random;

pub use values::{blobs, blobs_full, blobs_synced, operands, retention, splits, versions};

/// A named workload.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in reports.
    pub name: &'static str,
    /// The options with which the store is opened.
    pub config: Config,
    /// Room on the device, in bytes; `None` for no limit.
    pub capacity_bytes: Option<u64>,
    /// Operations that lead up to it.
    pub prepare: Vec<Op>,
    /// Operations that are examined.
    pub ops: Vec<Op>,
}

impl Scenario {
    fn new(name: &'static str, prepare: Vec<Op>, ops: Vec<Op>) -> Self {
        Self { name, config: Config::default(), capacity_bytes: None, prepare, ops }
    }
}

/// A kind of workload; the seed gives another of the same kind. Seeds are multiples of
/// [`SEED_STEP`].
pub type Make = fn(u64) -> Scenario;

/// Distance between seeds: a workload draws several histories, from numbers that follow its seed.
pub const SEED_STEP: u64 = 100;

/// Lengths of values of which few fit a block.
pub const LONG_VALUES: [usize; 5] = [300, 1_000, 2_100, 4_000, 5_000];

/// Every trace of the crash suite.
pub const CRASH_TRACES: [Make; 28] = [
    creation,
    load,
    appends,
    overwrite,
    deletes,
    overflow,
    snapshots,
    log_recycling,
    manifest_roll,
    keyspaces,
    closing,
    large_values,
    full_device,
    transactions,
    expiry,
    ranges,
    ranges_over_ranges,
    compressed,
    compressed_appends,
    blobs,
    blobs_full,
    blobs_synced,
    operands,
    slices,
    versions,
    splits,
    retention,
    mixed,
];

/// The workloads of the fault suite.
#[must_use]
pub fn fault_workloads() -> Vec<Scenario> {
    let part = |make: Make, name, ops| {
        let mut scenario = make(0);
        scenario.name = name;
        // Opened again, a store that was poisoned is not.
        scenario.ops.retain(|op| !matches!(op, Op::Reopen | Op::Abandon));
        scenario.ops.truncate(ops);
        scenario
    };
    vec![
        part(load, "load", 300),
        part(overwrite, "overwrite and merge", 240),
        part(deletes, "delete and underflow merge", 300),
        part(snapshots, "snapshot and merge", 240),
        part(keyspaces, "create and drop keyspaces", 160),
        part(transactions, "transactions", 120),
        part(expiry, "expiry", 240),
        part(ranges, "removed ranges", 240),
        part(compressed, "compressed blocks", 240),
        part(blobs, "blobs", 160),
        part(operands, "operands", 200),
        part(versions, "versions", 80),
        part(splits, "splits", 120),
        part(retention, "retention", 120),
    ]
}

/// A store comes into being and takes its first writes.
#[must_use]
pub fn creation(seed: u64) -> Scenario {
    let profile = Profile { ops: 20, keys: 40, synced_percent: 40, ..Profile::default() };
    let mut ops = generate(&profile, 1 + seed);
    ops.push(Op::Reopen);
    ops.extend(generate(&profile, 2 + seed));
    Scenario::new("creation", Vec::new(), ops)
}

/// Ascending keys fill memtables, sorted runs and levels of growing depth.
#[must_use]
pub fn load(seed: u64) -> Scenario {
    let weights = Weights { insert: 30, persist: 1, ..Weights::default() };
    let profile = Profile {
        ops: 600,
        keys: 600,
        order: KeyOrder::Ascending,
        value_bytes: 30..=130,
        synced_percent: 4,
        weights,
        ..Profile::default()
    };
    Scenario::new("load", Vec::new(), generate(&profile, 3 + seed))
}

/// Ascending keys behind those of a settled bottom, and a few in front of them: full merges keep
/// most of its blocks.
#[must_use]
pub fn appends(seed: u64) -> Scenario {
    let profile = Profile {
        ops: 560,
        keys: 600,
        order: KeyOrder::Ascending,
        value_bytes: 200..=300,
        synced_percent: 4,
        weights: Weights { insert: 40, persist: 1, ..Weights::default() },
        ..Profile::default()
    };
    let mut prepare = generate(&profile, 21 + seed);
    let mut behind = prepare.split_off(440);
    prepare.extend([Op::Flush, Op::Compact, Op::Reopen]);
    let mut ops: Vec<_> = behind.drain(..60).collect();
    ops.extend(generate(&Profile { ops: 40, ..profile }, 22 + seed));
    ops.push(Op::Compact);
    ops.extend(behind);
    ops.push(Op::Compact);
    Scenario::new("appends", prepare, ops)
}

/// Random overwrites, with merges of every depth and full ones.
#[must_use]
pub fn overwrite(seed: u64) -> Scenario {
    let weights =
        Weights { insert: 30, remove: 4, batch: 4, persist: 1, compact: 1, ..Weights::default() };
    let profile = Profile {
        ops: 320,
        keys: 250,
        order: KeyOrder::Skewed,
        synced_percent: 4,
        weights,
        ..Profile::default()
    };
    let prepare = filled(250, 4 + seed);
    Scenario::new("overwrite", prepare, generate(&profile, 5 + seed))
}

/// Most of a store is deleted, until an underflow merge shrinks it.
#[must_use]
pub fn deletes(seed: u64) -> Scenario {
    let weights = Weights { insert: 1, remove: 20, batch: 2, persist: 1, ..Weights::default() };
    let profile = Profile { ops: 500, keys: 300, synced_percent: 4, weights, ..Profile::default() };
    Scenario::new("deletes", filled(300, 6 + seed), generate(&profile, 7 + seed))
}

/// Batches larger than the memtable and flushes with nothing between them.
#[must_use]
pub fn overflow(seed: u64) -> Scenario {
    let weights = Weights { insert: 2, batch: 6, flush: 2, persist: 1, ..Weights::default() };
    let profile = Profile {
        ops: 60,
        keys: 200,
        batch_changes: 20..=60,
        value_bytes: 20..=200,
        synced_percent: 15,
        weights,
        ..Profile::default()
    };
    Scenario::new("overflow", filled(100, 8 + seed), generate(&profile, 9 + seed))
}

/// Snapshots are open while merges rewrite what they see.
#[must_use]
pub fn snapshots(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 30,
        remove: 8,
        snapshot: 2,
        compact: 1,
        flush: 1,
        persist: 1,
        ..Weights::default()
    };
    let profile = Profile { ops: 300, keys: 120, synced_percent: 4, weights, ..Profile::default() };
    Scenario::new("snapshots", filled(120, 10 + seed), generate(&profile, 11 + seed))
}

/// Values as large as the log's segments: they are switched, retired and used again all the time.
#[must_use]
pub fn log_recycling(seed: u64) -> Scenario {
    let weights = Weights { insert: 10, batch: 2, persist: 1, ..Weights::default() };
    let profile = Profile {
        ops: 120,
        keys: 30,
        value_bytes: 500..=4000,
        batch_changes: 2..=9,
        synced_percent: 30,
        weights,
        ..Profile::default()
    };
    let mut scenario = Scenario::new("log recycling", Vec::new(), generate(&profile, 12 + seed));
    scenario.config.memtable_bytes = 8 << 10;
    scenario
}

/// Enough commits of the manifest that it is written anew.
#[must_use]
pub fn manifest_roll(seed: u64) -> Scenario {
    let weights = Weights { insert: 6, flush: 5, keyspace: 1, compact: 1, ..Weights::default() };
    let profile = Profile {
        ops: 700,
        keys: 60,
        value_bytes: 4..=20,
        keyspaces: 12,
        synced_percent: 4,
        weights,
        ..Profile::default()
    };
    Scenario::new("manifest roll", Vec::new(), generate(&profile, 13 + seed))
}

/// Keyspaces come and go, with batches across them.
#[must_use]
pub fn keyspaces(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 8,
        remove: 2,
        batch: 8,
        keyspace: 4,
        flush: 1,
        persist: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 220,
        keys: 60,
        keyspaces: 4,
        synced_percent: 10,
        weights,
        ..Profile::default()
    };
    Scenario::new("keyspaces", Vec::new(), generate(&profile, 14 + seed))
}

/// A store is closed and opened, cleanly and not, with little in between.
#[must_use]
pub fn closing(seed: u64) -> Scenario {
    let weights =
        Weights { insert: 10, remove: 2, batch: 2, flush: 1, reopen: 4, ..Weights::default() };
    let profile = Profile { ops: 160, keys: 60, synced_percent: 10, weights, ..Profile::default() };
    Scenario::new("closing", filled(60, 15 + seed), generate(&profile, 16 + seed))
}

/// Values of many blocks next to small ones, and one record longer than a log segment.
#[must_use]
pub fn large_values(seed: u64) -> Scenario {
    let weights = Weights { insert: 10, remove: 2, batch: 1, compact: 1, ..Weights::default() };
    let profile = Profile {
        ops: 40,
        keys: 12,
        value_bytes: 4..=24_000,
        batch_changes: 1..=4,
        synced_percent: 20,
        weights,
        ..Profile::default()
    };
    let mut scenario = Scenario::new("large values", Vec::new(), generate(&profile, 17 + seed));
    scenario.config.memtable_bytes = 16 << 10;
    scenario
}

/// The device fills up; deletes and merges make room again.
#[must_use]
pub fn full_device(seed: u64) -> Scenario {
    let mut ops = load(seed).ops;
    ops.extend((0..400).map(|number| {
        let (keyspace, key) = (keyspace_name(0), history::key(number));
        let changes = vec![Change { keyspace, key, write: Write::Delete }];
        Op::Commit { changes, durability: None, by: By::Single }
    }));
    ops.push(Op::Compact);
    ops.extend(filled(40, 18 + seed));
    let mut scenario = Scenario::new("full device", Vec::new(), ops);
    scenario.capacity_bytes = Some(FULL_DEVICE_BYTES);
    scenario
}

/// Room for the files of an empty store, for its next manifest, and for some of what [`load`]
/// writes.
const FULL_DEVICE_BYTES: u64 = 645 << 10;

/// Transactions over several keyspaces, most of them small, each concurrently with one that is
/// refused.
#[must_use]
pub fn transactions(seed: u64) -> Scenario {
    let weights =
        Weights { insert: 4, batch: 20, keyspace: 2, flush: 1, persist: 1, ..Weights::default() };
    let profile = Profile {
        ops: 180,
        keys: 60,
        keyspaces: 3,
        batch_changes: 1..=6,
        synced_percent: 20,
        weights,
        ..Profile::default()
    };
    let mut ops = generate(&profile, 23 + seed);
    for op in &mut ops {
        if let Op::Commit { by: by @ By::Batch, .. } = op {
            *by = By::Transaction;
        }
    }
    Scenario::new("transactions", filled(60, 24 + seed), ops)
}

/// Values with a time to live over older ones, snapshots from before it ended, and merges that meet
/// what has expired.
#[must_use]
pub fn expiry(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 40,
        remove: 3,
        batch: 2,
        pass: 12,
        snapshot: 2,
        compact: 1,
        flush: 2,
        persist: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 420,
        keys: 100,
        expiring: (50, 120),
        synced_percent: 4,
        weights,
        ..Profile::default()
    };
    Scenario::new("expiry", filled(100, 25 + seed), generate(&profile, 26 + seed))
}

/// Ranges are removed, from among keys that everybody sees and from under snapshots, and written
/// again; merges of every depth pass over them, and some retire them.
#[must_use]
pub fn ranges(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 36,
        remove: 3,
        batch: 2,
        remove_range: 8,
        read: 2,
        snapshot: 3,
        compact: 1,
        flush: 2,
        persist: 1,
        reopen: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 360,
        keys: 160,
        expiring: (5, 1000),
        synced_percent: 4,
        weights,
        ..Profile::default()
    };
    Scenario::new("removed ranges", filled(160, 60 + seed), generate(&profile, 61 + seed))
}

/// Ranges are removed over and over while merges go on, so that one makes another unnecessary that
/// is still to be recorded.
#[must_use]
pub fn ranges_over_ranges(seed: u64) -> Scenario {
    let weights = Weights { insert: 30, remove_range: 20, persist: 1, ..Weights::default() };
    let profile = Profile {
        ops: 400,
        keys: 24,
        value_bytes: 60..=300,
        synced_percent: 2,
        weights,
        ..Profile::default()
    };
    let ops = generate(&profile, 64 + seed);
    let mut scenario = Scenario::new("ranges over ranges", Vec::new(), ops);
    scenario.config.memtable_bytes = 2 << 10;
    scenario
}

/// Overwrites of a level that is merged with in many slices, so that runs lose their keys, and
/// their space, a part at a time. The index is an LSM index under every suite.
#[must_use]
pub fn slices(seed: u64) -> Scenario {
    let weights = Weights { insert: 30, remove: 3, batch: 3, persist: 1, ..Weights::default() };
    let profile = Profile {
        ops: 900,
        keys: 900,
        value_bytes: 60..=160,
        synced_percent: 2,
        weights,
        ..Profile::default()
    };
    let mut scenario =
        Scenario::new("slices", filled(900, 70 + seed), generate(&profile, 71 + seed));
    scenario.config.index = IndexKind::Lsm;
    scenario.config.memtable_bytes = 8 << 10;
    scenario
}

/// Everything at once.
#[must_use]
pub fn mixed(seed: u64) -> Scenario {
    Scenario::new("mixed", Vec::new(), generate(&mixed_profile(260), 19 + seed))
}

/// Blocks with a codec, overwritten and deleted, in merges of every depth; opened again with the
/// other codec.
#[must_use]
pub fn compressed(seed: u64) -> Scenario {
    let weights = Weights {
        insert: 30,
        remove: 6,
        batch: 4,
        persist: 1,
        compact: 1,
        reopen: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: 320,
        keys: 250,
        value_bytes: 8..=600,
        synced_percent: 4,
        weights,
        ..Profile::default()
    };
    let ops = generate(&profile, 50 + seed);
    with_codec(Scenario::new("compressed blocks", filled(120, 51 + seed), ops), seed)
}

/// [`appends`], where the blocks that full merges keep have a codec.
#[must_use]
pub fn compressed_appends(seed: u64) -> Scenario {
    let scenario = Scenario { name: "compressed appends", ..appends(1 + seed) };
    with_codec(scenario, seed)
}

/// The scenario with data blocks that are compressed, by turns of the seed.
fn with_codec(mut scenario: Scenario, seed: u64) -> Scenario {
    let is_even = (seed / SEED_STEP).is_multiple_of(2);
    scenario.config.compression = if is_even { Compression::Lz4 } else { Compression::Zstd };
    scenario
}

/// A profile in which every kind of operation occurs.
#[must_use]
pub fn mixed_profile(ops: usize) -> Profile {
    let weights = Weights {
        insert: 40,
        remove: 12,
        batch: 10,
        read: 4,
        persist: 2,
        flush: 2,
        compact: 1,
        snapshot: 4,
        keyspace: 2,
        reopen: 1,
        ..Weights::default()
    };
    Profile { ops, keys: 150, keyspaces: 3, synced_percent: 8, weights, ..Profile::default() }
}

/// A workload in which everything, sizes included, follows from `seed`.
#[must_use]
pub fn random(seed: u64) -> Scenario {
    let random = Random::new(seed);
    let mut profile = mixed_profile(random.within(&(40..=400)));
    profile.keys = 1 << random.within(&(2..=9));
    profile.keyspaces = random.within(&(1..=5));
    profile.order = [KeyOrder::Random, KeyOrder::Ascending, KeyOrder::Skewed][random.index(3) % 3];
    profile.value_bytes = 4..=1 << random.within(&(3..=12));
    profile.synced_percent = [0, 3, 10, 50][random.index(4) % 4];
    let weights = &mut profile.weights;
    weights.remove = [0, 4, 12, 60][random.index(4) % 4];
    weights.batch = [0, 4, 20][random.index(3) % 3];
    weights.flush = [0, 1, 8][random.index(3) % 3];
    weights.compact = [0, 1, 4][random.index(3) % 3];
    weights.keyspace = [0, 2, 8][random.index(3) % 3];
    weights.reopen = [0, 1, 3][random.index(3) % 3];
    // The first thousand are histories that once failed.
    if seed >= 1000 {
        weights.remove_range = [0, 0, 2, 12][Random::new(!seed).index(4) % 4];
        weights.pass = [0, 4, 12][random.index(3) % 3];
        profile.expiring = ([0, 10, 60][random.index(3) % 3], 150);
        profile.appending_percent = [0, 0, 40][Random::new(seed ^ !0xa).index(3) % 3];
        if seed % 4 == 3 {
            let longest = Random::new(seed ^ !0xc).pick(&LONG_VALUES).copied().unwrap_or(300);
            profile.value_bytes = longest - 100..=longest;
        }
    }
    let keys = [0, 100, 300][random.index(3) % 3];
    let prepare = if keys > 0 { filled(keys, seed) } else { Vec::new() };
    let mut ops = generate(&profile, seed);
    ops.push(Op::Compare);
    let mut scenario = Scenario::new("random", prepare, ops);
    scenario.config.memtable_bytes = 1 << random.within(&(10..=13));
    scenario.config.log_segment_bytes = 1 << random.within(&(14..=16));
    scenario.config.seed = seed;
    if seed >= 1000 {
        scenario.config.scheme = random.pick(&Scheme::ALL).copied().unwrap_or_default();
        scenario.config.compression = random.pick(&Compression::ALL).copied().unwrap_or_default();
        scenario.config.inline_bytes_max = [None, None, Some(40)][random.index(3) % 3];
        scenario.config.merge = (profile.appending_percent > 0).then_some(Merge::Append);
        let is_plain = profile.appending_percent == 0 && profile.expiring.0 == 0;
        let kept = [None, None, Some(History::All), Some(History::Newest(30))];
        let kept = kept[Random::new(seed ^ !0xb).index(4) % 4];
        scenario.config.history = kept.filter(|_| is_plain);
    }
    scenario
}

/// Loads `keys` keys, closes and opens the store.
fn filled(keys: u64, seed: u64) -> Vec<Op> {
    let profile = Profile {
        ops: usize::try_from(keys).unwrap_or(0),
        keys,
        order: KeyOrder::Ascending,
        synced_percent: 0,
        ..Profile::default()
    };
    let mut ops = generate(&profile, seed);
    ops.extend([Op::Flush, Op::Reopen]);
    ops
}

/// One synced write, for tests that need an acknowledgement at a known place.
#[must_use]
pub fn synced(key: &[u8], value: &[u8]) -> Op {
    let (keyspace, key) = (keyspace_name(0), key.to_vec());
    let changes = vec![Change { keyspace, key, write: Write::Put(value.into()) }];
    Op::Commit { changes, durability: Some(Durability::Synced), by: By::Single }
}
