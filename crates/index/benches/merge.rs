//! The rate at which a full merge moves entries, in memory: one core, no device.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]

use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_format::block::Codec;
use esker_format::data::Data;
use esker_format::ids::{KeyspaceId, Seq, StoreId};
use esker_format::meta::IndexMeta;
use esker_index::fdtree::Sizes;
use esker_index::lsm::Compaction;
use esker_index::{Env, Index, Options, Scheme, Work};
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::Budget;

const BELOW: u64 = 1_000_000;
const ABOVE: u64 = 100_000;

const OPTIONS: Options = Options {
    memtable_bytes_max: 1 << 30,
    scheme: Scheme::Fc,
    sizes: Sizes::Cost,
    codec: Codec::None,
    compaction: Compaction::DEFAULT,
    history: None,
};
/// Memtable, runs and levels, to the end.
const FULL: Work = Work::Merge { full: true, with_memtable: true };

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn tree() -> Index {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let blocks = BlockStore::create(&device, StoreId(1), 1 << 20).unwrap();
    let env = Arc::new(Env {
        blocks: Arc::new(blocks),
        snapshots: Arc::default(),
        faults: Arc::default(),
        budget: Arc::new(Budget::new(1 << 30)),
        poison: Arc::default(),
    });
    let tree = Index::open(env, KeyspaceId(1), IndexMeta::default(), OPTIONS);
    insert(&tree, 0..BELOW, 0);
    tree.run(FULL, &|body| body(), &mut |_, _| Ok(())).unwrap();
    tree
}

fn insert(tree: &Index, numbers: std::ops::Range<u64>, seq: u64) {
    for number in numbers {
        tree.insert(&key(number), Seq(seq + number + 1), Data::Put(&[number as u8; 100]));
    }
}

/// Each round overwrites a tenth of the entries and merges it into the rest: once from a flush
/// run, which is the merge alone, and once from the memtable, which must also be taken apart.
fn merge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge");
    group.throughput(Throughput::Elements(BELOW + ABOVE)).sample_size(10);
    let tree = tree();
    let mut seq = 0;
    for (name, flushed) in [("100 k of a sorted run into 1 M", true), ("of a memtable", false)] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || {
                    seq += BELOW;
                    insert(&tree, 0..ABOVE, seq);
                    if flushed {
                        tree.run(Work::Flush, &|body| body(), &mut |_, _| Ok(())).unwrap();
                    }
                },
                |()| tree.run(FULL, &|body| body(), &mut |_, _| Ok(())).unwrap(),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, merge);
criterion_main!(benches);
