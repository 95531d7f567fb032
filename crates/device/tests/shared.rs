//! A mapped file and its byte locks, between openings and processes. In a test of its own: children
//! close what their parent has locked, whose numbers other tests may count on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use esker_device::forked::{Child, Ended};
use esker_device::shared::{Shared, SharedFile};

const BYTES: usize = 64 * 1024;

/// Held by each test: a child has the locks of its parent's other threads for a moment.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn openings_share_words_and_exclude_each_other_from_bytes() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let (one, other) =
        (SharedFile::open(&path, BYTES).unwrap(), SharedFile::open(&path, BYTES).unwrap());
    assert_eq!((one.words(), one.load(8191), one.load(8192)), (8192, 0, 0));
    one.store(8191, 7);
    one.store(8192, 7);
    assert_eq!(other.load(8191), 7);
    assert!(one.try_lock(3).unwrap() && one.try_lock(3).unwrap());
    assert!(!other.try_lock(3).unwrap() && other.try_lock(4).unwrap());
    assert!(other.is_locked(3).unwrap() && !one.is_locked(3).unwrap());
    one.unlock(3).unwrap();
    assert!(!other.is_locked(3).unwrap());
    drop(other);
    assert!(one.try_lock(4).unwrap());
    assert_eq!(SharedFile::open(&path, BYTES).unwrap().load(8191), 7, "it was emptied");
    assert_eq!(path.metadata().unwrap().len(), BYTES as u64);
    assert!(one.try_lock(1 << 61).is_err());
}

#[test]
fn a_lock_ends_with_its_process_and_is_not_a_childs() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let ours = SharedFile::open(&path, BYTES).unwrap();
    assert!(ours.try_lock(1).unwrap());
    let child = Child::run(10, || {
        // What the parent opened is not the child's.
        ours.store(0, 9);
        let refused = ours.try_lock(1).is_err() && ours.is_locked(1).is_err();
        let Ok(own) = SharedFile::open(&path, BYTES) else { return 1 };
        own.store(1, 5);
        let is_excluded = own.try_lock(1).is_ok_and(|is_locked| !is_locked);
        let is_locked = own.try_lock(2).unwrap_or(false);
        std::mem::forget(own);
        u8::from(!(refused && is_excluded && is_locked))
    });
    assert_eq!(child.wait(), Ended::Answer(0));
    assert_eq!((ours.load(0), ours.load(1)), (0, 5));
    assert!(!ours.is_locked(2).unwrap() && ours.try_lock(2).unwrap());
}

#[test]
fn who_waits_for_a_word_is_woken_by_another_opening() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared");
    let [ours, other] = [(), ()].map(|()| SharedFile::open(&path, BYTES).unwrap());
    let long = Duration::from_secs(60);
    // The word is another already.
    ours.wait(33, 1, long);
    ours.wait(8192, 0, long);
    let began = Instant::now();
    ours.wait(33, 0, Duration::from_millis(20));
    assert!(began.elapsed() >= Duration::from_millis(20), "nothing has woken it");
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            while ours.load(33) == 0 {
                ours.wait(33, 0, long);
            }
        });
        thread::sleep(Duration::from_millis(20));
        other.store(33, 1 << 32);
        other.wake(33);
        other.store(33, 5);
        other.wake(33);
        waits.join().unwrap();
    });
    assert!(began.elapsed() < long, "it slept to the end");
}

#[test]
fn a_lock_ends_with_its_process_although_a_child_lives() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared");
    let ours = SharedFile::open(&path, BYTES).unwrap();
    let locks = Child::run(60, || {
        let Ok(own) = SharedFile::open(&path, BYTES) else { return 1 };
        if !own.try_lock(1).unwrap_or(false) {
            return 2;
        }
        let lives = Child::run(5, || {
            thread::sleep(Duration::from_secs(60));
            0
        });
        own.store(5, lives.number().map_or(0, |number| number as u64));
        thread::sleep(Duration::from_secs(60));
        3
    });
    while ours.load(5) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(ours.is_locked(1).unwrap());
    locks.kill();
    assert!(!ours.is_locked(1).unwrap() && ours.try_lock(1).unwrap());
    let child = format!("/proc/{}/stat", ours.load(5));
    assert!(std::fs::read_to_string(child).is_ok_and(|stat| !stat.contains(") Z")));
}

#[test]
fn a_file_that_was_removed_or_replaced_is_not_in_place() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared");
    let ours = SharedFile::open(&path, BYTES).unwrap();
    assert!(ours.is_in_place());
    std::fs::remove_file(&path).unwrap();
    assert!(!ours.is_in_place());
    let next = SharedFile::open(&path, BYTES).unwrap();
    assert!(!ours.is_in_place() && next.is_in_place());
}
