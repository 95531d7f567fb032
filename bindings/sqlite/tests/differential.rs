//! Random scripts say and leave the same in SQLite over the VFS as in a plain SQLite: rows, codes
//! of errors, counters, and all that is in the files, also after they were closed and opened.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/differential/mod.rs"]
mod differential;

use esker_harness::counts::{Counts, budget};
use esker_harness::minimise::shorten;
use esker_sqlite::planted::{self, Bug};

use differential::pair::Pair;
use differential::script::{Main, Setup, Step};

/// Runs a script on both sides; how many copies were made.
fn run(setup: &Setup, steps: &[Step]) -> Result<u64, String> {
    let mut pair = Pair::new(setup);
    steps.iter().try_for_each(|step| pair.apply(step))?;
    pair.finish()?;
    Ok(pair.copied)
}

/// Runs the script of a seed; one that differs is reported in its shortest form.
fn judge(setup: &Setup) -> Result<[u64; 2], String> {
    let steps = setup.steps();
    let first = match run(setup, &steps) {
        Ok(copied) => return Ok([steps.len() as u64, copied]),
        Err(first) => first,
    };
    let short = shorten(&steps, 400, |steps| run(setup, steps).is_err());
    let differs = run(setup, &short).err().unwrap_or(first);
    let steps: Vec<_> = short.iter().map(|step| format!("  {step:?}")).collect();
    Err(format!("{differs}\n{setup:?}\n{}", steps.join("\n")))
}

fn check_all(name: &str, scripts: u64, files: usize, connections: usize) {
    check_all_with(name, scripts, |seed| Setup::new(seed, files, connections));
}

fn check_all_with(name: &str, scripts: u64, setup: impl Fn(u64) -> Setup) {
    let mut counts = Counts::new("sqlite-differential", name);
    for seed in 0..scripts * budget() {
        let [steps, copied] = judge(&setup(seed)).unwrap_or_else(|differs| {
            panic!("{name}, seed {seed}: {differs}");
        });
        counts.add("scripts", 1);
        counts.add("steps", steps);
        counts.add("copies", copied);
    }
    counts.record().unwrap();
    if setup(0).has_copies {
        assert!(counts.get("copies") > counts.get("scripts"), "{counts:?}");
    }
}

#[test]
fn one_file() {
    check_all("one file", 900, 1, 1);
}

#[test]
fn two_files() {
    check_all("two files", 1200, 2, 1);
}

#[test]
fn three_files() {
    check_all("three files", 600, 3, 1);
}

#[test]
fn several_connections() {
    check_all("several connections", 500, 1, 3);
}

#[test]
fn several_connections_to_several_files() {
    check_all("several connections to several files", 600, 2, 2);
}

#[test]
fn main_is_an_ordinary_file() {
    check_all_with("main is an ordinary file", 120, |seed| {
        Setup::new(seed, 3, 1).with_main(Main::Plain).with_copies()
    });
}

#[test]
fn main_is_in_memory() {
    check_all_with("main is in memory", 120, |seed| {
        Setup::new(seed, 3, 1).with_main(Main::Memory).with_copies()
    });
}

#[test]
fn databases_that_come_and_go() {
    check_all_with("databases that come and go", 150, |seed| Setup::new(seed, 2, 1).with_copies());
}

#[test]
fn threads_by_turns() {
    check_all_with("threads that take turns", 100, |seed| Setup::new(seed, 2, 2).with_threads());
}

/// A suite that cannot fail proves nothing.
#[test]
fn planted_bugs_are_found() {
    for (bug, files) in [(Bug::CutRefused, 2), (Bug::CommittedAtSync, 1)] {
        let differs = |seed: &u64| judge(&Setup::new(*seed, files, 1)).is_err();
        let found = planted::with(bug, || (0..200).find(differs));
        let seed = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
        let mut counts = Counts::new("sqlite-planted", format!("{bug:?}"));
        counts.add("scripts until found", seed + 1);
        counts.record().unwrap();
    }
}
