//! Tests that every kind of index must pass.
//!
//! They are compiled once for each kind: `tests/kinds_<name>.rs` has these modules for the kind of
//! that name, which `common::kind` finds in the name of the crate. A test about one kind alone
//! asks `common::only_for`, with the reason. `tests/kinds_history.rs` has them for keyspaces with
//! history, but for those about merge operators; a test that is not about such keyspaces asks
//! `common::without_history`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backups;
mod bad_inputs;
mod during_merges;
mod expiry;
mod generations;
mod large_values;
mod limits;
mod operands;
mod queues;
mod ranges;
mod removals;
mod snapshots;
mod stats;
mod threads;
mod transactions;

/// The names of the files in a folder of this crate, without `.rs`.
fn stems(folder: &str) -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name());
    let mut stems: Vec<String> =
        names.filter_map(|name| Some(name.to_str()?.strip_suffix(".rs")?.to_owned())).collect();
    stems.sort();
    stems
}

#[test]
fn every_kind_of_index_has_its_tests() {
    let files = stems("tests").into_iter().filter(|stem| stem.starts_with("kinds_"));
    let mut expected: Vec<_> =
        esker::IndexKind::ALL.iter().map(|kind| format!("kinds_{kind}")).collect();
    expected.push("kinds_history".to_owned());
    expected.sort();
    assert!(files.eq(expected));
}

#[test]
fn every_file_is_a_module() {
    let lines = include_str!("mod.rs").lines();
    let modules = lines.filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    let files = stems("tests/kinds").into_iter().filter(|stem| stem != "mod");
    assert!(files.eq(modules.map(str::to_owned)));
}
