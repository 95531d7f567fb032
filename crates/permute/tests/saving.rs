//! The amount of memory that would save a pass.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;

use esker_permute::job::{Job, Request};

/// A transposition of `rows` by `columns` items of eight bytes, planned and not done.
fn job(rows: u64, columns: u64, memory: u64) -> Job {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from.raw");
    File::create(&from).unwrap().set_len(8 * rows * columns).unwrap();
    let mut request = Request::new(&from, "h w -> w h", folder.path().join("to.raw"));
    request.shape = Some(vec![rows, columns]);
    request.dtype = Some("<f8".to_owned());
    request.memory = memory;
    Job::new(request).unwrap()
}

#[test]
fn with_the_memory_that_saves_a_pass_there_are_fewer() {
    for (rows, columns) in [(20_000, 20_000), (1 << 18, 1 << 9)] {
        let small = job(rows, columns, 2 << 20);
        let passes = small.passes().len();
        assert!(passes > 1, "{rows} by {columns}");
        let memory = small.memory_that_saves_a_pass().unwrap();
        assert!(memory > 2 << 20);
        assert!(job(rows, columns, memory).passes().len() < passes);
        // It is the least, to an eighth.
        let less = memory - memory / 8 - (1 << 20);
        assert_eq!(job(rows, columns, less).passes().len(), passes, "{less} of {memory}");
        let lines = small.describe();
        assert!(lines.last().unwrap().contains("fewer passes"), "{lines:?}");
    }
}

#[test]
fn one_pass_cannot_be_saved() {
    let large = job(1000, 1000, 64 << 20);
    assert_eq!((large.passes().len(), large.memory_that_saves_a_pass()), (1, None));
}
