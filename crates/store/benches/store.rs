//! Loading, looking up and scanning through the public API, in memory and on a file system.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use esker::{Db, Durability, Keyspace, KeyspaceOptions};

const ENTRIES: u64 = 200_000;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn store(folder: &std::path::Path) -> (Db, Keyspace) {
    let db = Db::builder(folder).memory_budget(64 << 20).open().unwrap();
    let keyspace = db.keyspace("bench", KeyspaceOptions::default()).unwrap();
    (db, keyspace)
}

/// Puts between merges: a store of this size takes them all into one memtable.
fn put(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let (db, keyspace) = store(folder.path());
    let mut group = criterion.benchmark_group("put");
    group.throughput(Throughput::Elements(1));
    let mut number = 0;
    group.bench_function("buffered, 16 + 100 bytes", |bencher| {
        bencher.iter(|| {
            number += 1;
            keyspace.insert(key(number), [number as u8; 100]).unwrap();
        });
    });
    group.bench_function("synced, 16 + 100 bytes", |bencher| {
        bencher.iter(|| {
            number += 1;
            keyspace.insert_with(key(number), [number as u8; 100], Durability::Synced).unwrap();
        });
    });
    group.finish();
    drop(db);
}

/// Ten puts at once: what a transaction costs beyond a batch. Put again, so that no merge grows.
fn ten_puts(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let (db, keyspace) = store(folder.path());
    let mut group = criterion.benchmark_group("ten puts");
    group.throughput(Throughput::Elements(10));
    let mut number = 0;
    let mut ten = || {
        number = (number + 10) % 20_000;
        number..number + 10
    };
    for durability in [Durability::Buffered, Durability::Synced] {
        group.bench_function(format!("batch, {durability:?}"), |bencher| {
            bencher.iter(|| {
                let mut batch = db.batch();
                ten().for_each(|number| batch.insert(&keyspace, key(number), [number as u8; 100]));
                batch.commit_with(durability).unwrap()
            });
        });
        for reads in [false, true] {
            let name = if reads { "transaction that reads them" } else { "transaction" };
            group.bench_function(format!("{name}, {durability:?}"), |bencher| {
                bencher.iter(|| {
                    let mut tx = db.transaction().unwrap();
                    for number in ten() {
                        if reads {
                            tx.get(&keyspace, key(number)).unwrap();
                        }
                        tx.insert(&keyspace, key(number), [number as u8; 100]).unwrap();
                    }
                    tx.commit_with(durability).unwrap()
                });
            });
        }
    }
    let _live = db.transaction().unwrap();
    group.bench_function("batch with a transaction open, Buffered", |bencher| {
        bencher.iter(|| {
            let mut batch = db.batch();
            ten().for_each(|number| batch.insert(&keyspace, key(number), [number as u8; 100]));
            batch.commit().unwrap()
        });
    });
    group.finish();
}

fn read(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let (db, keyspace) = store(folder.path());
    for number in 0..ENTRIES {
        keyspace.insert(key(number), [number as u8; 100]).unwrap();
    }
    db.compact().unwrap();
    let mut group = criterion.benchmark_group("read");
    let mut number = 0;
    group.throughput(Throughput::Elements(1));
    group.bench_function("get, hit, cached", |bencher| {
        bencher.iter(|| {
            number = (number + 7919) % ENTRIES;
            keyspace.get(key(number)).unwrap()
        });
    });
    group.bench_function("get, miss", |bencher| {
        bencher.iter(|| {
            number += 1;
            keyspace.get(key(number + ENTRIES)).unwrap()
        });
    });
    group.throughput(Throughput::Elements(100));
    group.bench_function("scan of 100", |bencher| {
        bencher.iter(|| {
            number = (number + 7919) % ENTRIES;
            keyspace.range(key(number)..).unwrap().take(100).count()
        });
    });
    group.finish();
    drop(db);
}

criterion_group!(benches, put, ten_puts, read);
criterion_main!(benches);
