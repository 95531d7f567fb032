//! Every check of the house, as an ordinary test.

use xtask::{CHECKS, Tree};

#[test]
fn the_house_is_in_order() {
    let tree = Tree::of_this_repository().unwrap();
    let mut report = Vec::new();
    for check in CHECKS {
        let findings = (check.run)(&tree).unwrap();
        report.extend(findings.iter().map(|finding| format!("{}: {finding}", check.name)));
    }
    assert!(report.is_empty(), "\n{}", report.join("\n"));
}

#[test]
fn the_checks_look_at_something() {
    let tree = Tree::of_this_repository().unwrap();
    assert!(tree.ending_in(&[".rs"]).count() > 20);
    assert!(tree.text("Cargo.toml").is_some());
    assert!(tree.files().all(|file| !file.path.starts_with("target/")));
}
