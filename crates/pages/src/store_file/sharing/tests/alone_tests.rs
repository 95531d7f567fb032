//! A shared store that is made shorter, by a process that has it for itself meanwhile.

use esker_harness::counts::Counts;
use esker_harness::planted::hunt;

use super::*;
use crate::planted::{Bug, with};

/// Pages move while one process has the store, and until none of its readers uses an old place.
fn make_shorter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let mut impatient = many();
    impatient.busy_timeout = Duration::from_millis(10);
    let share = || StoreFile::open(&path, Missing::Create, impatient.clone());
    let one = share().unwrap();
    let fill = |pages: std::ops::Range<u32>, byte: u8| {
        let mut writer = one.store.begin(&one.store.pin()).unwrap();
        pages.for_each(|page| writer.write(page, 0, &[byte; 512]).unwrap());
        writer.commit(Durability::Full).unwrap();
    };
    (0..20).for_each(|at| fill(at * 100..at * 100 + 100, at as u8));
    let compact = || one.store.compact(&mut |_, _| std::ops::ControlFlow::Continue(()));
    let other = share().unwrap();
    let refused = compact().unwrap_err();
    assert!(refused.to_string().contains("open in other processes"), "{refused}");
    other.close().unwrap();
    // What is in front is free, and what is behind is held.
    (0..15).for_each(|at| fill(at * 100..at * 100 + 100, 77));
    one.store.checkpoint().unwrap();
    let held = one.store.pin();
    let whole = |snapshot: &Snapshot| {
        for page in 0..2000 {
            let mut bytes = [0; 512];
            snapshot.read(page, 0, &mut bytes).unwrap();
            let byte = if page < 1500 { 77 } else { page / 100 };
            assert_eq!(bytes, [byte as u8; 512]);
        }
    };
    let done = compact().unwrap();
    assert!(done.after_bytes < done.before_bytes, "{done:?}");
    // Another process would take the old places for free.
    let early = share();
    if let Ok(early) = &early {
        let mut writer = early.store.begin(&early.store.begin_read().unwrap()).unwrap();
        (0..2000).for_each(|page| writer.write(page, 0, &[5; 512]).unwrap());
        drop(writer.commit(Durability::Full).unwrap());
    }
    whole(&held);
    assert!(matches!(early, Err(Error::Locked { .. })), "{early:?}");
    drop(held);
    let begun = Instant::now();
    let other = loop {
        match share() {
            Ok(other) => break other,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
    };
    whole(&other.store.begin_read().unwrap());
    add(&other.store, 1, Durability::Full).unwrap();
    assert_eq!(number_in(&one.store.begin_read().unwrap(), 1) & 0xff, 78);
    other.close().unwrap();
    compact().unwrap();
    assert!(one.store.check().unwrap().accounted);
    one.close().unwrap();
    assert!(!meeting_path(&path).exists());
}

#[test]
fn a_shared_store_is_made_shorter_by_a_process_that_is_alone() {
    make_shorter();
    let attempt = |_: &u64, counts: &mut Counts| {
        counts.add("judged", 1);
        make_shorter();
        Ok(())
    };
    let found = hunt(0..1_u64, |body| with(Bug::AloneTooShort, body), attempt);
    found.unwrap_or_else(|violation| panic!("{violation}"));
}
