//! A merge that goes on after a crash, with a level of nothing but fences that is empty at first:
//! the fences to the new blocks are in the tail alone.

use std::sync::Arc;

use crate::runner::schedules;
use crate::subject::{FULL_ALONE, Subject, concurrently};
use esker_index::{BackgroundJob, Step, Work};

/// So many blocks that their fences are given a level.
const BLOCKS: u8 = 110;
/// An entry fills a block.
const VALUE_BYTES: usize = 3900;

/// Lookups on both sides of a wavefront that goes on from where a crash left it.
pub fn lookups_during_a_resumed_merge() {
    let mut subject = Subject::empty(VALUE_BYTES);
    (0..BLOCKS).for_each(|key| subject.put(key));
    // Nothing is merged before, so that the sizes are those of an empty index.
    subject.complete(Work::Flush);
    assert!(subject.begin(FULL_ALONE));
    while subject.tree.meta().merge.is_none() {
        assert_eq!(subject.step(BackgroundJob::Merge), Step::More);
    }
    let levels = subject.tree.meta().merge.as_ref().unwrap().new.levels.len();
    assert_eq!(levels, 2, "a level of fences and one of data");
    subject.reopen();
    subject.tree.resume().unwrap();
    let subject = Arc::new(subject);
    let merge =
        concurrently(&subject, |subject| while subject.step(BackgroundJob::Merge) == Step::More {});
    for key in [1, 100, 0, 40] {
        assert_eq!(subject.get(key), Some(u64::from(key) + 1), "key {key}");
    }
    assert_eq!(subject.get(BLOCKS), None);
    merge.join().unwrap();
}

#[test]
fn a_resumed_merge_is_read_through_its_tails() {
    schedules("lookups during a resumed merge", 500, lookups_during_a_resumed_merge);
}
