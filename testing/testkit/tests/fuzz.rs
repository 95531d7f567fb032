//! Every decoder takes any bytes: the committed inputs and seeded mutations of them.

use std::path::{Path, PathBuf};

use esker_testkit::counts::budget;
use esker_testkit::fuzz;

const MUTATIONS: u64 = 10_000;
/// Opening a whole store costs a hundred times what decoding a record does.
const STORE_MUTATIONS: u64 = 1_500;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

fn replay(name: &str, mutations: u64) {
    let (_, target) = fuzz::TARGETS.into_iter().find(|(known, _)| *known == name).unwrap();
    match fuzz::replay(name, target, &corpus(name), mutations * budget()) {
        Ok(counts) => counts.record().unwrap(),
        Err(violation) => panic!("{}", violation.at(name)),
    }
}

macro_rules! targets {
    ($($name:ident: $mutations:expr,)*) => {
        $(#[test] fn $name() { replay(stringify!($name), $mutations); })*

        #[test]
        fn every_target_is_replayed_and_has_a_corpus() {
            let names: Vec<&str> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!([$(stringify!($name)),*], names[..]);
            for name in names {
                let files = std::fs::read_dir(corpus(name)).unwrap().count();
                assert!(files > 0, "{name}");
            }
        }
    };
}

targets! {
    block: MUTATIONS,
    entry: MUTATIONS,
    filter: MUTATIONS,
    frame: MUTATIONS,
    index_meta: MUTATIONS,
    log_record: MUTATIONS,
    manifest_edit: MUTATIONS,
    superblock: MUTATIONS,
    store_image: STORE_MUTATIONS,
}

#[test]
fn mutation_finds_the_canary() {
    let found = fuzz::replay("canary", fuzz::canary, &corpus("canary"), MUTATIONS);
    assert!(found.unwrap_err().to_string().contains("63616e617279"), "its input is shown");
}

/// Writes the inputs made from the encoders to the corpus, after a change of the format.
#[test]
#[ignore = "changes files of the repository"]
fn write_seeds_to_the_corpus() {
    for name in fuzz::TARGETS.map(|(name, _)| name).into_iter().chain(["canary"]) {
        std::fs::create_dir_all(corpus(name)).unwrap();
        for (number, input) in fuzz::seeds(name).iter().enumerate() {
            std::fs::write(corpus(name).join(format!("seed-{number:02}")), input).unwrap();
        }
    }
}
