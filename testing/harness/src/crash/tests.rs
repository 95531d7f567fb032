//! The walk over crashes finds what it should, in a list of bytes that is not always synced.

use super::*;
use crate::list::{List, Syncs, disk};

fn run(case: Syncs, counts: &mut Counts) -> Verdict {
    let disk = disk();
    let recording: Recording<List> = record(case, &disk, &0, &[(); 10])?;
    explore(&recording, &limited(0, 100), Some(3), counts, |_| {})
}

fn nothing() -> Counts {
    Counts::new("crash", "list")
}

#[test]
fn what_keeps_its_promise_passes() {
    let mut counts = nothing();
    run(Syncs::always(), &mut counts).unwrap();
    let [judged, again, within] =
        ["judged", "used and crashed again", "judged within them"].map(|name| counts.get(name));
    assert!(judged > 10 && again > 3 && within > again, "{counts:?}");
}

#[test]
fn a_broken_promise_is_found_with_its_state() {
    let violation = run(Syncs { now: false, ..Syncs::always() }, &mut nothing()).unwrap_err();
    assert_eq!(violation.oracle, Oracle::AcknowledgedIsThere);
    assert!(violation.place.starts_with("crash at position"), "{violation}");
}

#[test]
fn a_broken_promise_of_the_second_run_is_found() {
    let violation = run(Syncs { later: false, ..Syncs::always() }, &mut nothing()).unwrap_err();
    assert_eq!(violation.oracle, Oracle::AcknowledgedIsThere);
    assert!(violation.place.contains("then used: with seed"), "{violation}");
}
