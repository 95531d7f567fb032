//! Filling a memtable compared with filling one skip list, then looking up and walking.

use std::cmp::Ordering;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_skiplist::SkipSet;
use esker_format::data::Data;
use esker_format::ids::Seq;
use esker_format::key::{compare, long_head};
use esker_substrate::memtable::Memtable;

const ENTRIES: u64 = 180_000;
const VALUE: [u8; 100] = [7; 100];

/// The former form of a memtable, without leaves: one set, the first key bytes in the node.
type Single = SkipSet<Node>;

struct Node {
    head: u64,
    seq: Seq,
    bytes: Box<[u8]>,
}

impl Node {
    fn new(key: &[u8], seq: Seq) -> Self {
        Self { head: long_head(key), seq, bytes: [key, &VALUE].concat().into() }
    }

    fn key(&self) -> &[u8] {
        self.bytes.get(..16).unwrap_or_default()
    }
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        let heads = self.head.cmp(&other.head);
        heads.then_with(|| compare((self.key(), self.seq), (other.key(), other.seq)))
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Node {}

/// The 16-byte keys of a load, by the number of the entry.
type Load = fn(u64) -> [u8; 16];

fn key(high: u64, low: u64) -> [u8; 16] {
    ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
}

fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

const LOADS: [(&str, Load); 5] = [
    ("random", |number| key(scattered(number), number)),
    ("random, eight bytes shared", |number| key(7, scattered(number))),
    ("ascending", |number| key(number, 0)),
    ("descending", |number| key(ENTRIES - number, 0)),
    ("one key", |_| key(0, 0)),
];

fn filled(load: Load) -> Memtable {
    let memtable = Memtable::default();
    for number in 0..ENTRIES {
        memtable.insert(&load(number), Seq(number + 1), Data::Put(&VALUE));
    }
    memtable
}

fn fill(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fill");
    group.throughput(Throughput::Elements(ENTRIES)).sample_size(10);
    for (name, load) in LOADS {
        group.bench_function(format!("memtable, {name}"), |bencher| {
            bencher.iter_with_large_drop(|| filled(load));
        });
        group.bench_function(format!("one skip list, {name}"), |bencher| {
            bencher.iter_with_large_drop(|| {
                let single = Single::new();
                for number in 0..ENTRIES {
                    single.insert(Node::new(&load(number), Seq(number + 1)));
                }
                single
            });
        });
    }
    group.finish();
}

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    for (name, load) in LOADS {
        let memtable = filled(load);
        let mut number = 0;
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("get, {name}"), |bencher| {
            bencher.iter(|| {
                number = (number + 7919) % ENTRIES;
                memtable.get(&load(number), Seq(number + 1))
            });
        });
        group.throughput(Throughput::Elements(ENTRIES));
        group.bench_function(format!("walk, {name}"), |bencher| {
            bencher.iter(|| {
                memtable.leaves().iter().map(|place| black_box(place.key()).len()).sum::<usize>()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, fill, read);
criterion_main!(benches);
