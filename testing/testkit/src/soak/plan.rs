//! The plan of a round, from a seed: the same in the process that runs it and in the one that
//! judges.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::{Compression, Db, IndexKind, KeyspaceOptions, Merge, Runtime, SystemRuntime};
use esker_device::Device;
use esker_device::file::FileDevice;

use crate::history::{By, KeyOrder, Op, Profile, Weights, generate, keyspace_name};
use crate::model::{Change, Write};
use crate::random::Random;
use crate::violation::Verdict;

/// Threads that write.
pub const WORKERS: usize = 3;
/// Keyspaces that all workers write to; each has the same number of its own.
const SHARED: usize = 2;
/// Operations of a worker in a round.
const OPS: usize = 900;
/// Milliseconds that pass between two rounds: some values expire then.
const ROUND_MILLIS: u64 = 1_000;

/// A round of a campaign, and those before it.
#[derive(Clone, Debug)]
pub struct Plan {
    seed: u64,
    folder: PathBuf,
    /// Of each round before: how many operations of each worker were done.
    done: Vec<Vec<usize>>,
}

impl Plan {
    /// The first round of a campaign.
    #[must_use]
    pub fn new(seed: u64, folder: &Path) -> Self {
        Self { seed, folder: folder.to_path_buf(), done: Vec::new() }
    }

    pub(super) fn next_round(&mut self, done: Vec<usize>) {
        self.done.push(done);
    }

    /// As text: the child gets it in its environment.
    pub(super) fn encode(&self) -> String {
        let counts = |counts: &Vec<usize>| counts.iter().map(usize::to_string).collect::<Vec<_>>();
        let done: Vec<_> = self.done.iter().map(|round| counts(round).join(",")).collect();
        format!("{}|{}|{}", self.seed, done.join(";"), self.folder.display())
    }

    pub(super) fn decode(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '|');
        let seed = parts.next()?.parse().ok()?;
        let rounds = parts.next()?.split(';').filter(|round| !round.is_empty());
        let counts = |round: &str| round.split(',').map(|count| count.parse().ok()).collect();
        let done = rounds.map(counts).collect::<Option<Vec<_>>>()?;
        Some(Self { seed, folder: parts.next()?.into(), done })
    }

    fn seed_of(&self, round: usize) -> u64 {
        self.seed.wrapping_mul(1_000).wrapping_add(round as u64)
    }

    /// The seed of the round.
    pub(super) fn round_seed(&self) -> u64 {
        self.seed_of(self.done.len())
    }

    /// The rounds before this one: their number, and how many operations of `worker` were done.
    pub(super) fn rounds_before(&self, worker: usize) -> impl Iterator<Item = (usize, usize)> {
        let count = move |round: &Vec<usize>| round.get(worker).copied().unwrap_or(0);
        self.done.iter().map(count).enumerate()
    }

    /// The time of a round, in milliseconds.
    pub(super) const fn now(round: usize) -> u64 {
        round as u64 * ROUND_MILLIS
    }

    /// A path next to the store.
    pub(super) fn sibling(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The store's folder, as a device.
    pub(super) fn file_device(&self) -> Verdict<Arc<dyn Device>> {
        let path = self.sibling("store");
        std::fs::create_dir_all(&path).map_err(super::harness)?;
        let device = FileDevice::open(&path).map_err(super::harness)?;
        Ok(Arc::new(device))
    }

    /// Opens the store on `device`, in sizes that follow from the round.
    pub(super) fn open(&self, device: Arc<dyn Device>) -> esker::Result<Db> {
        let random = Random::new(!self.round_seed());
        let runtime = Arc::new(Clock { real: SystemRuntime::default(), round: self.done.len() });
        Db::builder_on(device)
            .memory_budget([128 << 10, 1 << 20][random.index(2) % 2])
            .log_segment_bytes([16 << 10, 64 << 10][random.index(2) % 2])
            .runtime(runtime)
            .open()
    }

    /// The operations of a worker in this round.
    pub(super) fn ops(&self, worker: usize) -> Vec<Op> {
        self.ops_of(self.done.len(), worker)
    }

    /// The operations of a worker in a round.
    pub(super) fn ops_of(&self, round: usize, worker: usize) -> Vec<Op> {
        let seed = self.seed_of(round).wrapping_mul(16).wrapping_add(worker as u64);
        let random = Random::new(!seed);
        let ops = generate(&profile(&random), seed).into_iter();
        ops.map(|op| owned(op, worker, &random)).collect()
    }

    fn acknowledged_path(&self) -> PathBuf {
        self.sibling("acknowledged")
    }

    pub(super) fn clear_acknowledged(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        std::fs::write(self.acknowledged_path(), vec![0; WORKERS * 8])
    }

    /// Says what was acknowledged to each worker. What a killed process has written is there.
    pub(super) fn acknowledger(
        &self,
        worker: usize,
    ) -> io::Result<impl Fn(usize) -> io::Result<()>> {
        let file = OpenOptions::new().write(true).open(self.acknowledged_path())?;
        Ok(move |count: usize| file.write_all_at(&(count as u64).to_le_bytes(), worker as u64 * 8))
    }

    pub(super) fn acknowledged(&self) -> io::Result<Vec<usize>> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.acknowledged_path())?.read_to_end(&mut bytes)?;
        let (counts, _) = bytes.as_chunks::<8>();
        Ok(counts.iter().map(|count| u64::from_le_bytes(*count) as usize).collect())
    }
}

/// The real clock, and the time of day of the round.
#[derive(Debug)]
struct Clock {
    real: SystemRuntime,
    round: usize,
}

impl Runtime for Clock {
    fn now(&self) -> Duration {
        self.real.now()
    }

    fn unix_time(&self) -> Duration {
        Duration::from_millis(Plan::now(self.round))
    }

    fn random(&self) -> u64 {
        self.real.random()
    }
}

/// The options of a keyspace follow from its name.
pub(super) fn options(name: &str) -> KeyspaceOptions {
    let options = KeyspaceOptions::default().merge(Merge::Append);
    let number = name.bytes().last().unwrap_or_default();
    match number.wrapping_sub(b'0') {
        0 => options.memtable_bytes(Some(16 << 10)).inline_bytes_max(2_000),
        1 => options
            .index(IndexKind::Lsm)
            .compression(Compression::Lz4)
            .inline_bytes_max(300)
            .memtable_bytes(Some(8 << 10)),
        2 => options.index(IndexKind::Lsm).inline_bytes_max(0).memtable_bytes(Some(4 << 10)),
        _ => options
            .compression(Compression::Zstd)
            .inline_bytes_max(100)
            .memtable_bytes(Some(4 << 10)),
    }
}

/// The keyspaces that all workers write to.
pub(super) fn shared_names() -> impl Iterator<Item = String> {
    (0..SHARED).map(keyspace_name)
}

/// The first byte of all keys of a worker. That of the next worker is the first key behind them.
pub(super) const fn prefix(worker: usize) -> [u8; 1] {
    [b'A' + worker as u8]
}

fn profile(random: &Random) -> Profile {
    let weights = Weights {
        insert: 40,
        remove: 8,
        batch: 14,
        remove_range: 3,
        read: 8,
        persist: 2,
        flush: 1,
        compact: 1,
        snapshot: 5,
        keyspace: 3,
        ..Weights::default()
    };
    Profile {
        ops: OPS,
        keys: [40, 150, 600][random.index(3) % 3],
        order: [KeyOrder::Random, KeyOrder::Ascending, KeyOrder::Skewed][random.index(3) % 3],
        value_bytes: 4..=[120, 1_500, 1_500, 12_000][random.index(4) % 4],
        batch_changes: 1..=8,
        keyspaces: 2 * SHARED,
        expiring: (8, 2 * ROUND_MILLIS),
        appending_percent: 15,
        synced_percent: [0, 3, 20][random.index(3) % 3],
        weights,
    }
}

/// An operation on a worker's own keys and keyspaces. A shared keyspace is not dropped: what the
/// worker has there is removed.
fn owned(op: Op, worker: usize, random: &Random) -> Op {
    let is_shared = |name: &str| shared_names().any(|shared| shared == name);
    let name = |name: String| match is_shared(&name) {
        true => name,
        false => format!("of-{worker}-{name}"),
    };
    let key = |key: Vec<u8>| [&prefix(worker)[..], &key].concat();
    match op {
        Op::Commit { changes, durability, by } => {
            let own = |change: Change| Change {
                keyspace: name(change.keyspace),
                key: key(change.key),
                write: match change.write {
                    Write::DeleteUpTo(None) => Write::DeleteUpTo(Some(prefix(worker + 1).to_vec())),
                    Write::DeleteUpTo(Some(end)) => Write::DeleteUpTo(Some(key(end))),
                    other => other,
                },
            };
            let by = if random.percent(20) { By::Transaction } else { by };
            Op::Commit { changes: changes.into_iter().map(own).collect(), durability, by }
        }
        Op::Drop(dropped) if is_shared(&dropped) => {
            let write = Write::DeleteUpTo(Some(prefix(worker + 1).to_vec()));
            let change = Change { keyspace: dropped, key: prefix(worker).to_vec(), write };
            Op::Commit { changes: vec![change], durability: None, by: By::Single }
        }
        Op::Drop(dropped) => Op::Drop(name(dropped)),
        Op::Create(created) => Op::Create(name(created)),
        Op::CompactKeyspace(compacted) => Op::CompactKeyspace(name(compacted)),
        Op::Read { .. } if random.percent(20) => Op::Compare,
        Op::Read { keyspace, keys } => {
            Op::Read { keyspace: name(keyspace), keys: keys.into_iter().map(key).collect() }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_text() {
        let mut plan = Plan::new(7, Path::new("/a|b"));
        plan.next_round(vec![1, 2, 3]);
        plan.next_round(vec![4, 5, 6]);
        let read = Plan::decode(&plan.encode()).unwrap();
        assert_eq!(format!("{plan:?}"), format!("{read:?}"));
        assert_eq!(format!("{:?}", plan.ops(1)), format!("{:?}", read.ops(1)));
    }
}
