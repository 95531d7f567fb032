//! How fast a full merge moves entries, in memory: one core, no device.

use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_format::ids::{KeyspaceId, Seq, StoreId};
use esker_format::meta::IndexMeta;
use esker_index::fdtree::{Env, FdTree, Work};
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::Budget;

const BELOW: u64 = 1_000_000;
const ABOVE: u64 = 100_000;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn tree() -> FdTree {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let blocks = BlockStore::create(&device, StoreId(1), 1 << 20).unwrap();
    let env = Arc::new(Env {
        blocks: Arc::new(blocks),
        snapshots: Arc::default(),
        faults: Arc::default(),
        budget: Arc::new(Budget::new(1 << 30)),
        poison: Arc::default(),
    });
    let mut tree = FdTree::open(env, KeyspaceId(1), IndexMeta::default(), 1 << 30).unwrap();
    insert(&tree, 0..BELOW);
    tree.run(Work::MergeFull, &mut |_| Ok(())).unwrap();
    insert(&tree, BELOW..BELOW + ABOVE);
    tree
}

fn insert(tree: &FdTree, numbers: std::ops::Range<u64>) {
    for number in numbers {
        tree.insert(&key(number), Seq(number + 1), Some(&[number as u8; 100]));
    }
}

fn merge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merge");
    group.throughput(Throughput::Elements(BELOW + ABOVE)).sample_size(10);
    group.bench_function("full, 1 M entries below, 100 k above", |bencher| {
        bencher.iter_batched(
            tree,
            |mut tree| {
                tree.run(Work::MergeFull, &mut |_| Ok(())).unwrap();
                tree
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, merge);
criterion_main!(benches);
