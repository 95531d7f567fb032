//! Every decoder takes any bytes: the committed inputs and seeded mutations of them.

use std::path::{Path, PathBuf};

use esker_testkit::counts::{assert_passes, budget};
use esker_testkit::fuzz;

const MUTATIONS: u64 = 10_000;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
}

fn replay(name: &str) {
    for (target, body) in fuzz::TARGETS {
        if target == name {
            assert_passes(fuzz::replay(name, body, &corpus(name), MUTATIONS * budget()));
        }
    }
}

macro_rules! targets {
    ($($name:ident,)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

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
    block,
    entry,
    filter,
    frame,
    index_meta,
    log_record,
    manifest_edit,
    superblock,
    store_image,
}

#[test]
fn mutation_finds_the_canary() {
    let found = fuzz::replay("canary", fuzz::canary, &corpus("canary"), MUTATIONS);
    assert!(found.unwrap_err().to_string().contains("63616e617279"), "its input is shown");
}

/// Hostile stores must get past opening often enough to try what lies behind it, and be refused
/// often enough to try that.
#[test]
fn edited_stores_open_and_are_refused() {
    let inputs = fuzz::seeds("store_image");
    let opens = |seed| fuzz::edited_store(&fuzz::mutate::mutated(&inputs, seed)).unwrap().is_ok();
    let opened = (0..1_000).filter(|seed| opens(*seed)).count();
    assert!((100..900).contains(&opened), "{opened} of 1000 open");
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
