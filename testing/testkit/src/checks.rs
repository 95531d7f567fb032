//! `check` at every step of merges: it says nothing of sound stores, nor of backups made then, and
//! names space that two entries have.
//!
//! Keys are as long as blocks, or longer, where the seed says so; values are blobs; some
//! batches say one value of two keys.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use esker::{Backup, Compression, Error, IndexKind, Merge};
use esker_device::Device;
use esker_device::memory::MemoryDevice;

use crate::config::Config;
use crate::counts::Counts;
use crate::history::{KeyOrder, Op, Profile, Weights, generate};
use crate::model::{Change, Model, Write};
use crate::random::Random;
use crate::session::{Outcome, Session};
use crate::verify;
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Lengths of long keys, in bytes.
const LONG_KEYS: [usize; 5] = [100, 3_000, 40_000, 65_535, esker::KEY_BYTES_MAX];

/// A backup is made and checked after one in this number of operations.
const BACKUP_EVERY: usize = 9;

/// Runs a history of `seed`, and checks the store after every operation.
///
/// # Errors
/// The first false alarm, or another broken promise.
pub fn at_every_step(index: IndexKind, seed: u64, counts: &mut Counts) -> Verdict {
    let random = Random::new(seed);
    let long_key_bytes = LONG_KEYS[random.index(LONG_KEYS.len()) % LONG_KEYS.len()];
    let ops = history(&random, seed, long_key_bytes);
    let config = Config {
        memtable_bytes: 1 << random.within(&(10..=12)),
        merge_steps: random.within(&(1..=3)) as u32,
        memory_budget_bytes: [128 << 10, 8 << 20][random.index(2) % 2],
        compression: random.pick(&Compression::ALL).copied().unwrap_or_default(),
        inline_bytes_max: [Some(0), Some(60), None][random.index(3) % 3],
        merge: Some(Merge::Append),
        seed,
        index,
        ..Config::default()
    };
    let place = format!("{index}, seed {seed}, keys up to {long_key_bytes} bytes");
    run(&config, &ops, counts).map_err(|violation| violation.at(place))
}

fn run(config: &Config, ops: &[Op], counts: &mut Counts) -> Verdict {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let session = Session::open(config, device, Model::default());
    let mut session =
        session.map_err(|error| Violation::new(Oracle::Harness, error.to_string()))?;
    let folder: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    for (number, op) in ops.iter().enumerate() {
        let place = || format!("operation {number}, {op:?}");
        if let Outcome::Failed(error) = session.apply(op).map_err(|v| v.at(place()))? {
            return Err(Violation::new(Oracle::WorksOn, error.to_string()).at(place()));
        }
        check(&session, counts).map_err(|violation| violation.at(place()))?;
        if number % BACKUP_EVERY == 0 {
            check_backup(&session, &folder, counts).map_err(|violation| violation.at(place()))?;
        }
    }
    session.compare()
}

/// Checks the store as it is.
fn check(session: &Session, counts: &mut Counts) -> Verdict {
    let Some(db) = session.db() else { return Ok(()) };
    let stats = db.stats().unwrap_or_default();
    let is_merging = stats.keyspaces.iter().any(|keyspace| keyspace.merge.is_some());
    counts.add("checks", 1);
    counts.add("checks during merges", u64::from(is_merging));
    verify::check(db).map(drop)
}

/// Brings the backup in `folder` up to date, and checks it.
fn check_backup(session: &Session, folder: &Arc<dyn Device>, counts: &mut Counts) -> Verdict {
    let Some(db) = session.db() else { return Ok(()) };
    let failed = |error: Error| Violation::new(Oracle::WorksOn, format!("a backup: {error}"));
    db.backup_on(Arc::clone(folder), &mut |_| ControlFlow::Continue(())).map_err(failed)?;
    let report = Backup::open_on(Arc::clone(folder)).and_then(|backup| backup.check());
    let report = report.map_err(failed)?;
    counts.add("backups checked", 1);
    ensure(report.is_ok(), Oracle::CheckIsClean, || {
        format!("of a backup: {:?}", report.problems.first())
    })
}

fn history(random: &Random, seed: u64, long_key_bytes: usize) -> Vec<Op> {
    let long_keys = long_key_bytes > 3_000;
    let weights = Weights {
        insert: 30,
        remove: 5,
        batch: 5,
        remove_range: 1,
        snapshot: 2,
        persist: 1,
        flush: 1,
        compact: 1,
        keyspace: 1,
        reopen: 1,
        ..Weights::default()
    };
    let profile = Profile {
        ops: if long_keys { 90 } else { 220 },
        keys: [24, 90, 400][random.index(3) % 3],
        order: [KeyOrder::Random, KeyOrder::Ascending, KeyOrder::Skewed][random.index(3) % 3],
        value_bytes: 8..=[120, 700, 6_000][random.index(3) % 3],
        batch_changes: 1..=6,
        keyspaces: 2,
        appending_percent: [0, 15][random.index(2) % 2],
        weights,
        ..Profile::default()
    };
    let mut ops = generate(&profile, seed);
    for op in &mut ops {
        let Op::Commit { changes, .. } = op else { continue };
        changes.iter_mut().for_each(|change| lengthen(change, long_key_bytes));
        if random.percent(30) {
            repeat_value(changes);
        }
    }
    ops
}

/// Makes one key in four as long as that.
fn lengthen(change: &mut Change, bytes: usize) {
    let sum: u32 = change.key.iter().map(|byte| u32::from(*byte)).sum();
    if !sum.is_multiple_of(4) || change.key.is_empty() {
        return;
    }
    if let Write::DeleteUpTo(_) = &change.write {
        return;
    }
    change.key.resize(change.key.len().max(bytes), b'k');
}

/// Says the first value of a batch of its other keys too.
fn repeat_value(changes: &mut [Change]) {
    let mut first = None;
    let mut keys = BTreeSet::new();
    for change in changes {
        let Write::Put(value) = &mut change.write else { continue };
        let first = first.get_or_insert_with(|| Arc::clone(value));
        if keys.insert((change.keyspace.clone(), change.key.clone())) {
            *value = Arc::clone(first);
        }
    }
}
