//! Backups at every step of merges: of blocks of every codec, which begin and end anywhere in a
//! unit where there is one, of entries of all sizes, and of both kinds of index.

use std::sync::Arc;

use esker::{Compression, IndexKind};
use esker_device::Device;
use esker_device::memory::MemoryDevice;

use super::{Source, judge_backup};
use crate::config::Config;
use crate::counts::{Counts, budget};
use crate::history::{self, By, Op, keyspace_name};
use crate::model::{Change, Write};
use crate::random::Random;
use crate::recovery::Depth;
use crate::violation::Verdict;

/// Backups of one store at budget 1.
const BACKUPS: u64 = 24;
/// Writes between two of them, each with one step of a merge.
const WRITES: usize = 3;
/// Bytes that a store has before the first one.
const BYTES_BEFORE: usize = 400_000;
/// Bytes of values, at most.
const VALUE_BYTES: [usize; 4] = [100, 1_000, 3_000, 9_000];
/// Values of this many bytes and more are blobs.
const INLINE_BYTES: [Option<u64>; 2] = [None, Some(2_500)];

/// [`of_one_store`] of all kinds.
///
/// # Errors
/// The first difference.
pub fn at_every_step(counts: &mut Counts) -> Verdict {
    let mut seed = 0;
    for index in IndexKind::ALL {
        for compression in Compression::ALL {
            for value_bytes in VALUE_BYTES {
                let inline = INLINE_BYTES.get(seed as usize % INLINE_BYTES.len());
                let inline_bytes_max = inline.copied().flatten();
                let config =
                    Config { seed, index, compression, inline_bytes_max, ..Config::default() };
                of_one_store(&config, value_bytes, counts).map_err(|violation| {
                    violation.at(format!("{index:?}, {compression:?}, values of {value_bytes}"))
                })?;
                seed += 1;
            }
        }
    }
    Ok(())
}

/// Backups into one folder, of a store in which merges are under way.
///
/// # Errors
/// The first difference.
pub fn of_one_store(config: &Config, value_bytes: usize, counts: &mut Counts) -> Verdict {
    let config = Config { memtable_bytes: 16 << 10, ..config.clone() };
    let random = Random::new(config.seed);
    let mut source = Source::new(&config)?;
    source.apply(&[Op::Create(keyspace_name(0))])?;
    let keys = (BYTES_BEFORE / value_bytes) as u64;
    source.apply(&writes(&random, BYTES_BEFORE / value_bytes, (keys, value_bytes)))?;
    let folder: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    for round in 0..BACKUPS * budget() {
        source.apply(&writes(&random, WRITES, (keys, value_bytes)))?;
        let (held, report) = source.must_backup(&folder, &[])?;
        counts.add("backups", 1);
        counts.add("bytes reused", report.bytes_reused);
        judge_backup(&config, &folder, &held, Depth::Once)
            .map_err(|violation| violation.at(format!("backup {round}")))?;
    }
    Ok(())
}

/// Random bytes with text between them, so that blocks shrink to any length.
fn writes(random: &Random, count: usize, (keys, value_bytes): (u64, usize)) -> Vec<Op> {
    let write = |_| {
        let len = random.within(&(value_bytes / 2..=value_bytes));
        let mut value = random.bytes(len / 3);
        value.resize(len, b' ');
        let write = Write::Put(value.into());
        let key = history::key(random.below(keys));
        let changes = vec![Change { keyspace: keyspace_name(0), key, write }];
        Op::Commit { changes, durability: None, by: By::Single }
    };
    (0..count).map(write).collect()
}
