//! Files rearranged, compared with the definition: each record looked up by its index.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod oracle;

use std::fs;
use std::path::Path;

use esker_permute::job::{Job, Request};
use esker_permute::npy::Header;
use oracle::{Case, Random};

fn run(folder: &Path, case: &Case, memory: u64) -> (Vec<u8>, esker_permute::job::Report) {
    let (from, to) = (folder.join("from.npy"), folder.join(case.output_name()));
    let bytes = case.items();
    let header = case.header();
    fs::write(&from, [header.encode(), bytes.clone()].concat()).unwrap();
    let mut request = Request::new(&from, case.pattern(), &to);
    request.memory = memory;
    request.sizes = case.sizes();
    request.force = true;
    let job = Job::new(request).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let report = job.run(&mut |_| true).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    assert!(report.peak_buffer_bytes <= memory, "{case:?} {report:?}");
    let found = fs::read(&to).unwrap();
    let names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("part")), "{names:?}");
    let expected = case.expected(&bytes);
    let found = match case.shape() {
        None => found,
        Some(shape) => {
            let (header, start) = Header::parse(&found).unwrap();
            assert_eq!((header.shape, header.is_fortran), (shape, false), "{case:?}");
            assert_eq!(header.descr, case.header().descr);
            found[usize::try_from(start).unwrap()..].to_vec()
        }
    };
    assert!(found == expected, "{case:?}, {memory} bytes of memory");
    (found, report)
}

#[test]
fn random_arrays_are_rearranged_as_the_pattern_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(17);
    for _ in 0..400 {
        let case = Case::random(&mut random, 6000);
        let memory = 1 << (16 + random.below(5));
        run(folder.path(), &case, memory + random.below(4096));
    }
}

#[test]
fn arrays_larger_than_the_memory_are_rearranged() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(18);
    for _ in 0..60 {
        let case = Case::random(&mut random, 600_000);
        run(folder.path(), &case, (64 << 10) + random.below(200_000));
    }
}

#[test]
fn a_matrix_is_transposed_in_any_memory() {
    let folder = tempfile::tempdir().unwrap();
    for (rows, columns, item) in [(701, 1013, 8), (1024, 512, 4), (1, 90_000, 2), (333, 777, 3)] {
        let case = Case::transpose(rows, columns, item);
        for memory in [64 << 10, 100_000, 300_000, 1 << 20, 64 << 20] {
            let (_, report) = run(folder.path(), &case, memory);
            let bytes = rows * columns * item;
            for pass in &report.passes {
                assert_eq!((pass.read_bytes, pass.written_bytes), (bytes, bytes));
            }
        }
    }
}
