//! Files rearranged, compared with the definition: each record looked up by its index.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod oracle;

use std::fs;
use std::path::Path;
use std::thread;

use esker_permute::error::Error;
use esker_permute::exec::Counters as Moved;
use esker_permute::job::{Job, Report, Request};
use esker_permute::npy::Header;
use esker_permute::plan::price::{Mode, Profile};
use oracle::{Case, Random};

/// What was tried.
#[derive(Debug, Default)]
struct Counts {
    cases: u64,
    multi_pass: u64,
    filtered: u64,
    ragged: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.multi_pass += other.multi_pass;
        self.filtered += other.filtered;
        self.ragged += other.ragged;
    }
}

/// How much is tried: `ESKER_TEST_BUDGET`, 1 by default.
fn budget() -> u64 {
    let value = std::env::var("ESKER_TEST_BUDGET").ok().and_then(|value| value.parse().ok());
    value.unwrap_or(1)
}

fn run(folder: &Path, case: &Case, memory: u64, mode: Mode, counts: &mut Counts) -> Report {
    let (from, to) = (folder.join("from.npy"), folder.join(case.output_name()));
    let bytes = case.items();
    let header = case.header();
    fs::write(&from, [header.encode(), bytes.clone()].concat()).unwrap();
    let mut request = Request::new(&from, case.pattern(), &to);
    request.memory = memory;
    request.sizes = case.sizes();
    request.force = true;
    request.mode = mode;
    if case.has_short_tiles() {
        let array = Request { output: folder.join("to.npy"), ..request.clone() };
        let refused = Job::new(array).map(|job| job.shape().map(<[u64]>::to_vec));
        assert!(matches!(refused, Err(Error::Pattern(_))), "{case:?}: {refused:?}");
    }
    let job = Job::new(request).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    let report = job.run(&mut |_| true).unwrap_or_else(|error| panic!("{case:?}: {error}"));
    assert!(report.peak_buffer_bytes <= memory, "{case:?} {report:?}");
    for pass in &report.passes {
        assert_eq!(pass.written_bytes, bytes.len() as u64, "{case:?}");
    }
    let filtered = job.figures().0.iter().any(|figures| figures.waste > 1);
    if !filtered {
        let once = |pass: &Moved| pass.read_bytes == bytes.len() as u64;
        assert!(report.passes.iter().all(once), "{case:?}");
    }
    counts.cases += 1;
    counts.multi_pass += u64::from(report.passes.len() > 1);
    counts.filtered += u64::from(filtered);
    counts.ragged += u64::from(
        job.passes().iter().any(|pass| pass.space.trees.iter().any(|tree| !tree.is_exact())),
    );
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
    report
}

/// A folder in memory where there is one: thousands of small files are each made durable.
fn light_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

const SECONDS: Mode = Mode::Seconds(Profile::NVME);

fn small_arrays(random: &mut Random, folder: &Path, counts: &mut Counts) {
    for _ in 0..1300 * budget() {
        let case = Case::random(random, 6000);
        let memory = (1 << (16 + random.below(5))) + random.below(4096);
        run(folder, &case, memory, SECONDS, counts);
    }
}

fn large_arrays(random: &mut Random, folder: &Path, counts: &mut Counts) {
    for number in 0..350 * budget() {
        let is_turned = number % 2 == 0;
        let case = if is_turned { Case::turned } else { Case::random }(random, 300_000);
        let memory = (64 << 10) + random.below(60_000);
        run(folder, &case, memory, SECONDS, counts);
    }
}

/// Where reads cost next to nothing, they are filtered.
fn where_reads_are_free(random: &mut Random, folder: &Path, counts: &mut Counts) {
    for _ in 0..350 * budget() {
        let case = Case::turned(random, 1_000_000);
        let memory = 130_000 + random.below(60_000);
        run(folder, &case, memory, Mode::Blocks { alpha: 0.0001 }, counts);
    }
}

/// Two thousand arrays and more; of each kind that matters enough.
#[test]
fn random_arrays_are_rearranged_as_the_pattern_says() {
    type Kind = fn(&mut Random, &Path, &mut Counts);
    let kinds: [(&str, Kind); 3] = [
        ("small arrays", small_arrays),
        ("large arrays", large_arrays),
        ("where reads are free", where_reads_are_free),
    ];
    let count = |(seed, (name, kind)): (u64, (&str, Kind))| {
        let (mut random, folder) = (Random::new(seed), light_folder());
        let mut counts = Counts::default();
        kind(&mut random, folder.path(), &mut counts);
        println!("{name}: {counts:?}");
        counts
    };
    let mut counts = Counts::default();
    thread::scope(|scope| {
        let started = (17..).zip(kinds).map(|seeded| scope.spawn(move || count(seeded)));
        let started: Vec<_> = started.collect();
        for kind in started {
            counts.add(&kind.join().unwrap());
        }
    });
    println!("together: {counts:?}");
    assert!(counts.cases >= 2000 * budget(), "{counts:?}");
    assert!(counts.multi_pass >= 200 * budget(), "{counts:?}");
    assert!(counts.filtered >= 100 * budget(), "{counts:?}");
    assert!(counts.ragged >= 200 * budget(), "{counts:?}");
}

#[test]
fn a_matrix_is_transposed_in_any_memory() {
    let folder = tempfile::tempdir().unwrap();
    for (rows, columns, item) in [(701, 1013, 8), (1024, 512, 4), (1, 90_000, 2), (333, 777, 3)] {
        let case = Case::transpose(rows, columns, item);
        for memory in [64 << 10, 100_000, 300_000, 1 << 20, 64 << 20] {
            run(folder.path(), &case, memory, SECONDS, &mut Counts::default());
        }
    }
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::transpose(1500, 1300, 8);
    let (from, to) = (folder.path().join("from.npy"), folder.path().join("to.npy"));
    fs::write(&from, [case.header().encode(), case.items()].concat()).unwrap();
    let mut request = Request::new(&from, case.pattern(), &to);
    request.memory = 100_000;
    let job = Job::new(request).unwrap();
    for patience in 0..4 {
        let mut asked = 0;
        let outcome = job.run(&mut |_| {
            asked += 1;
            asked <= patience
        });
        if outcome.is_ok() {
            assert!(asked <= patience + 1);
            fs::remove_file(&to).unwrap();
            break;
        }
        let error = outcome.unwrap_err().to_string();
        assert_eq!(error, "interrupted");
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "after {patience} questions");
    }
}

#[test]
fn an_input_cut_while_it_is_read_is_named_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::transpose(1500, 1300, 8);
    let (from, to) = (folder.path().join("from.npy"), folder.path().join("to.npy"));
    fs::write(&from, [case.header().encode(), case.items()].concat()).unwrap();
    let job = Job::new(Request::new(&from, case.pattern(), &to)).unwrap();
    fs::File::options().write(true).open(&from).unwrap().set_len(1_000_000).unwrap();
    let error = job.run(&mut |_| true).unwrap_err().to_string();
    assert!(error.contains("ends early"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
