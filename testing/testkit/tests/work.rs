//! Work is in proportion to the input, and the suite would see it if it were not.

use esker_substrate::planted::{Bug, with};
use esker_testkit::counts::{Counts, assert_passes, budget};
use esker_testkit::violation::{Oracle, Verdict};
use esker_testkit::work::{SHAPES, Shape, judge};

fn judged(shapes: &[Shape]) -> Verdict<Counts> {
    let mut counts = Counts::new("work", "shapes");
    for shape in shapes {
        // More of it with a larger budget: what hides behind a large constant shows then.
        let size = shape.size.saturating_mul(u32::try_from(budget()).unwrap_or(u32::MAX));
        judge(&Shape { size, ..*shape }, &mut counts)?;
    }
    Ok(counts)
}

#[test]
fn work_is_in_proportion_to_what_is_read() {
    assert_passes(judged(&SHAPES));
}

#[test]
fn a_look_at_all_keyspaces_for_each_operation_is_found() {
    let beyond: Vec<_> = SHAPES.into_iter().filter(|it| it.name.contains("in memory")).collect();
    assert_eq!(beyond.len(), 1);
    let judged = with(Bug::MemoryLookedAtEachTime, || judged(&beyond));
    let violation = judged.expect_err("the planted bug is found");
    assert_eq!(violation.oracle, Oracle::WorkIsBounded, "{violation}");
}

#[test]
fn a_search_through_all_names_for_each_name_is_found() {
    let judged = with(Bug::NamesSearchedOneByOne, || judged(&SHAPES[..2]));
    let violation = judged.expect_err("the planted bug is found");
    assert_eq!(violation.oracle, Oracle::WorkIsBounded, "{violation}");
}
