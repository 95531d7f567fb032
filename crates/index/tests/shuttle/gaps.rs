//! Scans from the first key while what they pass changes: gaps are learnt, used and closed.

use std::sync::Arc;

use crate::runner::schedules;
use crate::subject::{Subject, concurrently};

/// So many versions that a scan which passes them leaves a gap.
const PASSED: usize = 33;

/// Compares scans with what was written, as of the newest number each time.
fn scan_again_and_again(subject: &Subject) {
    for _ in 0..3 {
        let visible = subject.snapshots().visible();
        assert_eq!(subject.scan(visible), subject.expected(visible), "as of {visible:?}");
    }
}

/// A key behind many removed versions is removed; then one is put before it.
pub fn scans_of_a_front_that_moves() {
    let subject = Arc::new(Subject::empty(8));
    (0..PASSED).for_each(|_| subject.put(0));
    subject.delete(0);
    subject.put(5);
    let writer = concurrently(&subject, |subject| {
        subject.put(7);
        subject.delete(5);
        subject.put(2);
        subject.delete(2);
        subject.put(1);
    });
    let reader = concurrently(&subject, scan_again_and_again);
    scan_again_and_again(&subject);
    writer.join().unwrap();
    reader.join().unwrap();
    scan_again_and_again(&subject);
    subject.assert_sound();
}

#[test]
fn scans_begin_at_what_is_live() {
    schedules("scans of a front that moves", 8_000, scans_of_a_front_that_moves);
}
