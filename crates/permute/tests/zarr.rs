//! Arrays in chunks: what is read and written how often, in which memory, and what an end in the
//! middle leaves. That the bytes are those of other programs is tested from Python, next to theirs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

use esker_permute::job::{Job, Report, Request};

/// The item at an index of an array of (rows, columns).
fn item(index: usize) -> [u8; 4] {
    u32::try_from(index).unwrap().wrapping_mul(2_654_435_761).to_le_bytes()
}

fn make(path: &Path, rows: usize, columns: usize) {
    let bytes: Vec<u8> = (0..rows * columns).flat_map(item).collect();
    fs::write(path, bytes).unwrap();
}

fn request(folder: &Path, from: &str, pattern: &str, to: &str, memory: u64) -> Request {
    let mut request = Request::new(folder.join(from), pattern, folder.join(to));
    request.memory = memory;
    request.force = true;
    request
}

/// From bare items to chunks.
fn cut(folder: &Path, sizes: [usize; 2], chunks: [u64; 2], compressor: &str) {
    let mut request = request(folder, "from.raw", "h w -> h w", "from.zarr", 32 << 20);
    request.shape = Some(sizes.map(|size| size as u64).to_vec());
    request.dtype = Some("<u4".to_owned());
    request.chunks = Some(chunks.to_vec());
    request.compressor = Some(compressor.to_owned());
    run(&Job::new(request).unwrap(), 32 << 20);
}

fn run(job: &Job, memory: u64) -> Report {
    let report = job.run(&mut |_| true).unwrap();
    assert!(report.peak_buffer_bytes <= memory, "{report:?}");
    for pass in &report.passes {
        assert_eq!(pass.read_bytes, job.payload_bytes(), "{report:?}");
        assert_eq!(pass.written_bytes, job.payload_bytes(), "{report:?}");
    }
    report
}

/// Whether the array in a folder is that of `make`, turned; answers nothing else.
fn check_turned(folder: &Path, from: &str, rows: usize, columns: usize) {
    let job = Job::new(request(folder, from, "w h -> w h", "back.raw", 8 << 20)).unwrap();
    run(&job, 8 << 20);
    let found = fs::read(folder.join("back.raw")).unwrap();
    let expected: Vec<u8> = (0..columns)
        .flat_map(|column| (0..rows).flat_map(move |row| item(row * columns + column)))
        .collect();
    assert!(found == expected, "{from}");
}

#[test]
fn chunks_are_read_and_written_once_where_memory_holds_both() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (sizes, chunks, to, compressor, memory) in [
        // Chunks of whole blocks; edge chunks; odd sizes; compressed.
        ([512, 512], [128, 16], [8, 256], "none", 2 << 20),
        ([500, 401], [128, 16], [8, 256], "none", 2 << 20),
        ([333, 77], [50, 7], [14, 25], "none", 1 << 20),
        ([512, 512], [128, 16], [8, 256], "zstd", 4 << 20),
        ([500, 401], [128, 16], [8, 256], "blosc", 4 << 20),
    ] {
        make(&folder.join("from.raw"), sizes[0], sizes[1]);
        cut(folder, sizes, chunks, compressor);
        let mut request = request(folder, "from.zarr", "h w -> w h", "to.zarr", memory);
        request.chunks = Some(to.to_vec());
        let report = run(&Job::new(request).unwrap(), memory);
        assert_eq!(report.passes.len(), 1, "{sizes:?} {compressor}");
        check_turned(folder, "to.zarr", sizes[0], sizes[1]);
    }
}

#[test]
fn what_does_not_fit_goes_through_flat_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sizes = [700, 512];
    make(&folder.join("from.raw"), sizes[0], sizes[1]);
    for (chunks, to, compressor, memory, least) in [
        // Neither size is a multiple of the other.
        ([100, 16], [16, 150], "none", 1 << 20, 2),
        ([100, 16], [16, 150], "gzip", 2 << 20, 2),
        // Memory holds a chunk of each, but not all that both touch.
        ([700, 16], [16, 700], "zstd", 1 << 20, 1),
        ([1, 512], [1, 700], "zstd", 512 << 10, 2),
        ([1, 512], [1, 700], "none", 128 << 10, 1),
    ] {
        cut(folder, sizes, chunks, compressor);
        let mut request = request(folder, "from.zarr", "h w -> w h", "to.zarr", memory);
        request.chunks = Some(to.to_vec());
        let report = run(&Job::new(request).unwrap(), memory);
        assert!(report.passes.len() >= least, "{chunks:?} {to:?} {}", report.passes.len());
        check_turned(folder, "to.zarr", sizes[0], sizes[1]);
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_and_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(&folder.join("from.raw"), 700, 512);
    cut(folder, [700, 512], [100, 16], "gzip");
    let mut request = request(folder, "from.zarr", "h w -> w h", "to.zarr", 2 << 20);
    request.chunks = Some(vec![16, 150]);
    let job = Job::new(request).unwrap();
    run(&job, 2 << 20);
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    // Everything is read and written at least once; the last question comes when all is written.
    let all = 2 * 700 * 512 * 4;
    for patience in [0, all / 5, all / 2, all - 1] {
        let outcome = job.run(&mut |moved| moved < patience);
        assert_eq!(outcome.unwrap_err().to_string(), "interrupted", "{patience}");
        assert_eq!(names(), before, "{patience}");
    }
    check_turned(folder, "to.zarr", 700, 512);
}

#[test]
fn memory_that_holds_no_chunk_is_refused_with_what_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    make(&folder.join("from.raw"), 700, 512);
    cut(folder, [700, 512], [700, 512], "gzip");
    let wanted = |memory| Job::new(request(folder, "from.zarr", "h w -> w h", "to.npy", memory));
    let error = wanted(2 << 20).unwrap_err().to_string();
    let needed = error.rsplit("--memory ").next().and_then(|text| text.strip_suffix("MiB"));
    let needed: u64 = needed.unwrap().parse().unwrap();
    run(&wanted(needed << 20).unwrap(), needed << 20);
    assert!(fs::metadata(folder.join("to.npy")).unwrap().len() > 700 * 512 * 4);
}

#[test]
fn metadata_of_arrays_larger_than_the_world_is_no_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("a.zarr");
    fs::create_dir(&source).unwrap();
    let job = |shape: &str, chunks: &str| {
        let text = format!(
            "{{\"zarr_format\": 2, \"shape\": {shape}, \"chunks\": {chunks}, \"dtype\": \"|u1\", \
             \"order\": \"C\", \"compressor\": {{\"id\": \"gzip\"}}, \"filters\": null, \
             \"fill_value\": 0}}"
        );
        fs::write(source.join(".zarray"), text).unwrap();
        let mut request = request(folder.path(), "a.zarr", "h w -> w h", "b.zarr", 1 << 20);
        request.chunks = Some(vec![1, 1]);
        Job::new(request).map(|job| job.payload_bytes())
    };
    assert!(job("[4611686018427387904, 4]", "[1, 1]").is_err());
    assert!(job("[9, 4]", "[4611686018427387904, 4]").is_err());
    assert!(job("[9, 4]", "[3037000499, 3037000499]").is_err());
    assert_eq!(job("[3037000499, 3037000499]", "[10, 10]").ok(), Some(3_037_000_499_u64.pow(2)));
}
