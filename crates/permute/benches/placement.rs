//! The cost of putting records in their places, next to two copies of the same bytes.
//!
//! A load of 48 MiB is filled from batches as readers have them: some rows of the input after
//! another. The target is the sum of two memcpys from memory to memory.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use esker_device::AlignedBuf;
use esker_permute::copy::Program;
use esker_permute::scatter::{Dim, Piece};

const LOAD_BYTES: usize = 48 << 20;

fn filled(len: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::in_huge_pages(len);
    for (number, byte) in (0_usize..).zip(buffer.iter_mut()) {
        *byte = number as u8;
    }
    buffer
}

/// Batches of `rows` rows of `columns` records, transposed to columns of `height` records.
fn transpose(load: &mut [u8], batch: &[u8], record: usize, columns: u64, rows: u64) {
    let height = (LOAD_BYTES / record) as u64 / columns;
    let dims = vec![
        Dim { count: rows, from: columns as i64, to: 1 },
        Dim { count: columns, from: 1, to: height as i64 },
    ];
    for first in (0..height - rows + 1).step_by(rows as usize) {
        let piece = Piece { from: 0, to: first as i64, dims: dims.clone() };
        Program::new(&piece, record, 0, 0).run(batch, load);
    }
}

fn placement(criterion: &mut Criterion) {
    let mut load = filled(LOAD_BYTES);
    let from = filled(LOAD_BYTES);
    let mut group = criterion.benchmark_group("placement of 48 MiB");
    group.throughput(Throughput::Bytes(LOAD_BYTES as u64));
    group.sample_size(10);
    group.bench_function("two memcpys", |bencher| {
        bencher.iter(|| {
            load.copy_from_slice(&from);
            load.copy_from_slice(&from);
        });
    });
    for (record, columns, rows) in [
        (8, 2500, 8),
        (8, 2500, 16),
        (8, 2500, 32),
        (8, 11_677, 8),
        (8, 11_677, 32),
        (4, 5000, 16),
        (2, 5000, 32),
        (16, 1250, 8),
        (1, 5000, 64),
    ] {
        let name = format!("records of {record}, {columns} columns, {rows} rows a batch");
        let batch = filled(record * columns * rows);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| transpose(&mut load, &batch, record, columns as u64, rows as u64));
        });
    }
    group.finish();
    assert_eq!(load.len(), u64::try_from(LOAD_BYTES).unwrap() as usize);
}

criterion_group!(benches, placement);
criterion_main!(benches);
