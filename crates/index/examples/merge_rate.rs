//! The number of entries that a full merge moves in a second of one core's time, in memory:
//!
//! ```text
//! cargo run --release -p esker-index --example merge_rate [fdtree|lsm]
//! ```
//!
//! Each round overwrites 100,000 of a million entries by way of ten runs and merges everything.
//! The rate is over the processor time of the thread (Linux), so that a busy machine does not
//! change what is measured. The first round also pays for the memory that stands for the device.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use esker_device::Device;
use esker_device::memory::MemoryDevice;
use esker_format::block::Codec;
use esker_format::data::Data;
use esker_format::ids::{KeyspaceId, Seq, StoreId};
use esker_index::fdtree::Sizes;
use esker_index::lsm::Compaction;
use esker_index::{Env, Index, IndexKind, Options, Scheme, Work};
use esker_substrate::blocks::BlockStore;
use esker_substrate::budget::Budget;

const BELOW: u64 = 1_000_000;
const ABOVE: u64 = 100_000;
const RUNS: u64 = 10;

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

fn main() -> Result<(), Box<dyn Error>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let env = Env {
        blocks: Arc::new(BlockStore::create(&device, StoreId(1), 1 << 20)?),
        snapshots: Arc::default(),
        faults: Arc::default(),
        budget: Arc::new(Budget::new(1 << 30)),
        poison: Arc::default(),
    };
    let kind = std::env::args().nth(1).map_or(Ok(IndexKind::FdTree), |name| name.parse())?;
    let tree = Index::open(Arc::new(env), KeyspaceId(1), esker_index::empty(kind), OPTIONS);
    insert(&tree, 0..BELOW, 0);
    tree.run(Work::Flush, &|body| body(), &mut |_, _| Ok(()))?;
    tree.run(FULL, &|body| body(), &mut |_, _| Ok(()))?;
    for round in 1..=8 {
        for run in 0..RUNS {
            insert(&tree, run * (ABOVE / RUNS)..(run + 1) * (ABOVE / RUNS), round * BELOW);
            tree.run(Work::Flush, &|body| body(), &mut |_, _| Ok(()))?;
        }
        let before = processor_seconds()?;
        tree.run(FULL, &|body| body(), &mut |_, _| Ok(()))?;
        let took = processor_seconds()? - before;
        let rate = (BELOW + ABOVE) as f64 / took / 1e6;
        println!("round {round}: {took:.3} s, {rate:.2} million entries a second");
    }
    Ok(())
}

fn insert(tree: &Index, numbers: Range<u64>, seq: u64) {
    for number in numbers {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        key[8..].copy_from_slice(&number.to_be_bytes());
        tree.insert(&key, Seq(seq + number + 1), Data::Put(&[number as u8; 100]));
    }
}

fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds = schedstat.split(' ').next().ok_or("schedstat is empty")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}
