//! Gaps by hand: what scans leave, and what puts change.

use esker_format::ids::Moment;

use super::*;

const fn at(seq: u64) -> At {
    At { seq: Seq(seq), now: Moment(5) }
}

fn end(key: &[u8]) -> End {
    End::at(key)
}

fn request<'a>(lower: Bound<&'a [u8]>, upper: Bound<&'a [u8]>, seq: u64) -> ScanRequest<'a> {
    ScanRequest {
        at: at(seq),
        lower,
        upper,
        reverse: false,
        entries_max: 1,
        bytes_max: usize::MAX,
        skip_damaged: false,
    }
}

/// The gaps of an index, and its `newest_seq`.
#[derive(Default)]
struct Subject {
    gaps: Gaps,
    newest: AtomicU64,
}

impl Subject {
    /// A scan from `lower` that passes many versions.
    fn scan(&self, lower: Bound<&[u8]>, seq: u64, found: &End) {
        self.gaps.passed((lower, at(seq)), found, &self.newest);
    }

    fn put(&self, key: &[u8], seq: u64) {
        self.newest.store(seq, Ordering::SeqCst);
        self.gaps.note(key);
    }

    fn skipped(&self, lower: Bound<&[u8]>, seq: u64) -> Option<End> {
        self.gaps.skip(&request(lower, Bound::Unbounded, seq))
    }

    /// Scans of everything as of these numbers, with a put between them.
    fn learnt(first: u64, put: Option<(&[u8], u64)>, second: u64, found: &[u8]) -> Self {
        let subject = Self::default();
        subject.newest.store(first, Ordering::SeqCst);
        subject.scan(Bound::Unbounded, first, &end(b"a"));
        subject.scan(Bound::Unbounded, 0, &end(b"a"));
        if let Some((key, seq)) = put {
            subject.put(key, seq);
        }
        subject.scan(Bound::Unbounded, second, &end(found));
        subject
    }

    fn watched(&self) -> usize {
        self.gaps.stretches.read().watched.len()
    }
}

#[test]
fn the_second_scan_leaves_a_gap_for_those_that_are_not_older() {
    let subject = Subject::default();
    subject.newest.store(10, Ordering::SeqCst);
    subject.scan(Bound::Unbounded, 10, &end(b"m"));
    assert_eq!(subject.skipped(Bound::Unbounded, 10), None);
    assert!(!subject.gaps.are_watched.load(Ordering::SeqCst));
    subject.scan(Bound::Unbounded, 10, &end(b"m"));
    assert_eq!(subject.skipped(Bound::Unbounded, 10), Some(end(b"m")));
    assert_eq!(subject.skipped(Bound::Excluded(b"c"), 99), Some(end(b"m")));
    assert_eq!(subject.skipped(Bound::Included(b"m"), 10), None);
    assert_eq!(subject.skipped(Bound::Unbounded, 9), None);
    let earlier = At { seq: Seq(10), now: Moment(4) };
    let all = request(Bound::Unbounded, Bound::Unbounded, 10);
    assert_eq!(subject.gaps.skip(&ScanRequest { at: earlier, ..all }), None);
    assert_eq!(subject.gaps.skip(&ScanRequest { reverse: true, ..all }), None);
}

#[test]
fn a_put_that_a_scan_may_have_missed_ends_the_gap() {
    let gap = |key: &[u8], seen| {
        let subject = Subject::learnt(10, Some((key, 11)), seen, b"m");
        subject.skipped(Bound::Unbounded, 11)
    };
    // The scan as of 11 has seen it, and says that it is not live any more: but that is not known
    // of what is noted.
    assert_eq!((gap(b"c", 10), gap(b"c", 11)), (Some(end(b"c")), Some(end(b"c"))));
    assert_eq!((gap(b"m", 10), gap(b"z", 11)), (Some(end(b"m")), Some(end(b"m"))));
    // A scan that is older than what was noted.
    assert_eq!(gap(b"z", 9), None);
}

/// The scan that a put limits begins the notes anew: the next one is not limited.
#[test]
fn a_put_that_is_passed_later_limits_one_scan() {
    let subject = Subject::learnt(10, Some((b"c", 11)), 11, b"m");
    subject.scan(Bound::Unbounded, 10, &end(b"m"));
    assert_eq!(subject.skipped(Bound::Unbounded, 12), Some(end(b"c")), "older than the put");
    subject.scan(Bound::Unbounded, 11, &end(b"m"));
    assert_eq!(subject.skipped(Bound::Unbounded, 12), Some(end(b"m")));
}

#[test]
fn a_put_in_the_gap_ends_it_there_and_others_do_not() {
    let subject = Subject::learnt(10, None, 10, b"m");
    subject.put(b"z", 11);
    subject.put(b"m", 12);
    assert_eq!(subject.skipped(Bound::Unbounded, 12), Some(end(b"m")));
    subject.put(b"c", 13);
    assert_eq!(subject.skipped(Bound::Unbounded, 13), Some(end(b"c")));
    assert_eq!(subject.skipped(Bound::Included(b"c"), 13), None);
    subject.put(b"", 14);
    assert_eq!(subject.skipped(Bound::Unbounded, 14), None);
}

/// What lies before the end is known as of the first scan, what is behind as of the second.
#[test]
fn a_scan_in_a_gap_extends_it_for_readers_of_both() {
    let subject = Subject::learnt(10, None, 10, b"d");
    subject.scan(Bound::Included(b"d"), 12, &end(b"m"));
    assert_eq!(subject.skipped(Bound::Unbounded, 12), Some(end(b"m")));
    assert_eq!(subject.skipped(Bound::Unbounded, 11), None);
    // A scan behind the end tells nothing of what is between.
    subject.scan(Bound::Included(b"n"), 12, &end(b"z"));
    assert_eq!(subject.skipped(Bound::Unbounded, 12), Some(end(b"m")));
    // As of an older number, but one that is not before what is noted.
    subject.scan(Bound::Included(b"c"), 10, &end(b"p"));
    assert_eq!(subject.skipped(Bound::Unbounded, 11), None);
    assert_eq!(subject.skipped(Bound::Unbounded, 12), Some(end(b"p")));
}

#[test]
fn a_key_that_a_scan_excludes_is_in_no_gap() {
    let subject = Subject::default();
    for _ in 0..2 {
        subject.scan(Bound::Excluded(b"c"), 1, &end(b"m"));
    }
    assert_eq!(subject.skipped(Bound::Included(b"c"), 1), None);
    assert_eq!(subject.skipped(Bound::Excluded(b"c"), 1), Some(end(b"m")));
}

#[test]
fn a_scan_that_finds_nothing_leaves_a_gap_up_to_its_end() {
    let subject = Subject::default();
    let batch = ScanBatch { passed: PASSED_MIN, ..ScanBatch::default() };
    let prefix = request(Bound::Included(b"b"), Bound::Excluded(b"c"), 1);
    for _ in 0..2 {
        subject.gaps.learn(&prefix, &batch, &subject.newest);
    }
    let found = subject.gaps.skip(&prefix);
    assert_eq!(found, Some(end(b"c")));
    assert!(rest(&prefix, found.as_ref()).is_none());
    let longer = ScanRequest { upper: Bound::Included(b"c"), ..prefix };
    assert_eq!(rest(&longer, found.as_ref()).unwrap().lower, Bound::Included(&b"c"[..]));
    let all = ScanRequest { upper: Bound::Unbounded, ..prefix };
    subject.gaps.learn(&all, &batch, &subject.newest);
    assert_eq!(subject.gaps.skip(&all), Some(End::Last));
    assert!(rest(&all, Some(&End::Last)).is_none());
    subject.put(b"x", 2);
    assert_eq!(subject.gaps.skip(&all), Some(end(b"x")));
}

#[test]
fn what_passes_few_versions_or_damage_or_goes_back_leaves_nothing() {
    let subject = Subject::default();
    let all = request(Bound::Unbounded, Bound::Unbounded, 1);
    let many = || ScanBatch { passed: PASSED_MIN, ..ScanBatch::default() };
    let error = esker_substrate::Error::Invalid { what: String::new() };
    let damage = crate::read::scan::DamagedRange { from: Vec::new(), to: None, error };
    let few = ScanBatch { passed: PASSED_MIN - 1, ..many() };
    let damaged = ScanBatch { damaged: vec![damage], ..many() };
    for _ in 0..3 {
        subject.gaps.learn(&all, &few, &subject.newest);
        subject.gaps.learn(&all, &damaged, &subject.newest);
        subject.gaps.learn(&ScanRequest { reverse: true, ..all }, &many(), &subject.newest);
    }
    assert_eq!((subject.watched(), subject.skipped(Bound::Unbounded, 1)), (0, None));
    assert!(subject.gaps.stretches.read().seen.is_empty());
}

/// A beginning of the key is before it: the gap ends earlier, and a put behind the cut too.
#[test]
fn long_keys_are_cut_so_that_gaps_are_shorter() {
    let long = |last| [&[b'k'; KEY_BYTES][..], &[last]].concat();
    let subject = Subject::learnt(10, None, 10, &long(b'm'));
    assert_eq!(subject.skipped(Bound::Unbounded, 10), Some(End::At(vec![b'k'; KEY_BYTES])));
    assert_eq!(subject.skipped(Bound::Included(&long(b'a')), 10), None);
    for _ in 0..3 {
        subject.scan(Bound::Included(&long(b'a')), 10, &End::Last);
    }
    assert_eq!(subject.watched(), 1, "nothing is watched from a long key on");
}

#[test]
fn what_was_not_asked_for_lately_makes_room() {
    let subject = Subject::default();
    let learn = |begin: u8| {
        for _ in 0..2 {
            subject.scan(Bound::Included(&[begin]), 1, &end(&[begin, 9]));
        }
    };
    let is_there = |begin: u8| subject.skipped(Bound::Included(&[begin]), 9).is_some();
    for begin in 0..WATCHED_MAX as u8 {
        learn(begin * 2);
        subject.put(&[200], 1);
    }
    assert!(is_there(0), "and is asked for by this");
    learn(100);
    assert_eq!(subject.watched(), WATCHED_MAX);
    assert!(is_there(0) && is_there(100) && !is_there(2) && is_there(4));
}

/// Scans from many keys are no queues, and cost puts nothing.
#[test]
fn scans_from_other_keys_each_time_are_not_watched() {
    let subject = Subject::default();
    for begin in 0..=255 {
        subject.scan(Bound::Included(&[begin]), 1, &end(&[begin, 9]));
    }
    assert_eq!((subject.watched(), subject.gaps.stretches.read().seen.len()), (0, SEEN_MAX));
    assert!(!subject.gaps.are_watched.load(Ordering::SeqCst));
}

#[test]
fn what_is_not_asked_for_is_watched_no_more() {
    let subject = Subject::learnt(10, None, 10, b"m");
    for seq in 0..UNASKED_MAX {
        subject.put(b"z", 11 + seq);
    }
    assert!(subject.skipped(Bound::Unbounded, u64::MAX).is_some());
    for seq in 0..=UNASKED_MAX {
        assert_eq!(subject.watched(), 1);
        subject.put(b"z", UNASKED_MAX + 11 + seq);
    }
    subject.put(b"z", 3 * UNASKED_MAX);
    assert_eq!(subject.watched(), 0);
    assert!(!subject.gaps.are_watched.load(Ordering::SeqCst));
}
