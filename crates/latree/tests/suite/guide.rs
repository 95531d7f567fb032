//! The driver of the guide is the one of the documentation, which is compiled and run.

const PAGE: &str = include_str!("../../../../docs/guide/firmware.md");
const CHIP: &str = include_str!("../../src/chip.rs");

#[test]
fn the_driver_of_the_guide_is_that_of_the_documentation() {
    let (_, rest) = PAGE.split_once("```rust\n").unwrap();
    let (guide, _) = rest.split_once("```").unwrap();
    let (_, rest) = CHIP.split_once("/// ```\n").unwrap();
    let (documented, _) = rest.split_once("/// ```").unwrap();
    let lines =
        documented.lines().map(|line| line.trim_start_matches("///").trim_start_matches(' '));
    let lines = lines.filter(|line| !line.starts_with("# "));
    let guide = guide.lines().map(str::trim_start);
    assert!(lines.map(str::trim_start).eq(guide));
}
