use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write, pipe};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use super::*;
use crate::forked::{Child, Ended};

const LONG: Duration = Duration::from_secs(30);

fn open(path: &Path) -> LockFile {
    let open = || OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from);
    LockFile::open(open).unwrap()
}

fn file() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

#[test]
fn one_has_it_alone_or_several_together() {
    let file = file();
    let [first, second] = [open(file.path()), open(file.path())];
    assert!(first.try_lock(Lock::Shared).unwrap() && second.try_lock(Lock::Shared).unwrap());
    assert!(!first.try_lock(Lock::Exclusive).unwrap());
    drop(second);
    assert!(first.try_lock(Lock::Exclusive).unwrap());
    let third = open(file.path());
    assert!(!third.try_lock(Lock::Shared).unwrap());
    drop(first);
    assert!(third.try_lock(Lock::Shared).unwrap());
}

/// Whether a child that was forked while a lock was held keeps it when its parent closes.
fn is_kept_by_a_child() -> bool {
    let file = file();
    let held = open(file.path());
    assert!(held.try_lock(Lock::Exclusive).unwrap());
    let (mut told, mut tells) = pipe().unwrap();
    let child = Child::run(60, || {
        tells.write_all(b"x").unwrap();
        thread::sleep(LONG);
        0
    });
    told.read_exact(&mut [0]).unwrap();
    drop(held);
    let is_kept = !open(file.path()).try_lock(Lock::Exclusive).unwrap();
    child.kill();
    is_kept
}

#[test]
fn a_child_keeps_nothing() {
    assert!(!is_kept_by_a_child());
    assert!(planted::with(Bug::LockInherited, is_kept_by_a_child), "the bug was not found");
}

#[test]
fn a_child_takes_nothing_from_its_parent() {
    let file = file();
    let held = open(file.path());
    assert!(held.try_lock(Lock::Exclusive).unwrap());
    let mut inherited = Some(held);
    let child = Child::run(20, || {
        let held = inherited.take().unwrap();
        let is_refused = held.try_lock(Lock::Shared) == Err(Errno::BADF);
        // What has its number now is not closed with it.
        // Lower numbers are free too, if other tests had locks when this child was forked.
        let others: Vec<_> = (0..64).map(|_| File::open(file.path()).unwrap()).collect();
        let number = held.as_fd().as_raw_fd();
        assert!(others.iter().any(|other| other.as_raw_fd() == number));
        drop(held);
        assert!(others.iter().all(|other| other.metadata().is_ok()));
        u8::from(!is_refused || open(file.path()).try_lock(Lock::Shared).unwrap())
    });
    assert_eq!(child.wait(), Ended::Answer(0));
    assert!(!open(file.path()).try_lock(Lock::Shared).unwrap());
}

/// Threads that open files while others fork: no child keeps the lock of one.
#[test]
fn no_fork_comes_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let children: Mutex<Vec<Child>> = Mutex::default();
    thread::scope(|scope| {
        for number in 0..2 {
            let path = folder.path().join(number.to_string());
            scope.spawn(move || {
                File::create(&path).unwrap();
                for turn in 0..400 {
                    let held = open(&path);
                    assert!(
                        held.try_lock(Lock::Exclusive).unwrap(),
                        "turn {turn}: kept by a child"
                    );
                }
            });
        }
        for _ in 0..40 {
            children.lock().unwrap().push(Child::run(60, || {
                thread::sleep(LONG);
                0
            }));
        }
    });
    // Nor one that is not closed, but taken from a process that dies: here, by the last opening.
    for number in 0..2 {
        assert!(open(&folder.path().join(number.to_string())).try_lock(Lock::Exclusive).unwrap());
    }
}

#[test]
fn who_waits_has_it_when_the_other_is_gone() {
    let file = file();
    for lock in [Lock::Shared, Lock::Exclusive] {
        let held = open(file.path());
        assert!(held.try_lock(Lock::Exclusive).unwrap());
        let waiting = open(file.path());
        assert_eq!(waiting.lock_within(lock, Duration::ZERO), Ok(Waited::Refused));
        let begun = Instant::now();
        let short = Duration::from_millis(20);
        assert_eq!(waiting.lock_within(lock, short), Ok(Waited::Refused));
        assert!(begun.elapsed() >= short);
        assert!(!held.is_waited_for(None).unwrap(), "it left its ticket behind");
        thread::scope(|scope| {
            let waited = scope.spawn(|| waiting.lock_within(lock, LONG));
            while !held.is_waited_for(None).unwrap() {
                thread::yield_now();
            }
            drop(held);
            assert_eq!(waited.join().unwrap(), Ok(Waited::Locked));
        });
    }
}

/// The order in which waiters get the lock that came in the order of their numbers, while one takes
/// it again and again.
fn order_of_turns() -> Vec<usize> {
    const WAITERS: usize = 5;
    let file = file();
    let path = file.path();
    let turns: Mutex<Vec<usize>> = Mutex::default();
    let is_planted = planted::is(Bug::QueueJumped);
    thread::scope(|scope| {
        let mut held = Some(open(path));
        assert!(held.as_ref().unwrap().try_lock(Lock::Exclusive).unwrap());
        for number in 0..WAITERS {
            let turns = &turns;
            scope.spawn(move || {
                let wait = || {
                    let waiting = open(path);
                    assert_eq!(waiting.lock_within(Lock::Exclusive, LONG), Ok(Waited::Locked));
                    turns.lock().unwrap().push(number);
                };
                if is_planted { planted::with(Bug::QueueJumped, wait) } else { wait() }
            });
            // Until it waits.
            thread::sleep(Duration::from_millis(20));
        }
        // It leaves, and comes back immediately, at the end of the queue.
        drop(held.take());
        let again = open(path);
        assert_eq!(again.lock_within(Lock::Exclusive, LONG), Ok(Waited::Locked));
        turns.lock().unwrap().push(WAITERS);
    });
    turns.into_inner().unwrap()
}

#[test]
fn who_came_first_comes_first() {
    assert_eq!(order_of_turns(), [0, 1, 2, 3, 4, 5]);
    let planted = (0..5).map(|_| planted::with(Bug::QueueJumped, order_of_turns));
    assert!(planted.into_iter().any(|order| order != [0, 1, 2, 3, 4, 5]), "the bug was not found");
}

#[test]
fn a_process_that_dies_waits_no_more() {
    let file = file();
    let held = open(file.path());
    assert!(held.try_lock(Lock::Exclusive).unwrap());
    let path = file.path().to_owned();
    let child = Child::run(60, || {
        u8::from(open(&path).lock_within(Lock::Exclusive, LONG) != Ok(Waited::Locked))
    });
    while !held.is_waited_for(None).unwrap() {
        thread::yield_now();
    }
    child.kill();
    assert!(!held.is_waited_for(None).unwrap());
}

/// In a child, which has its own signals: with a handler that restarts system calls, and with one
/// that does not.
#[test]
fn a_signal_ends_the_wait_of_who_wants_that() {
    extern "C" fn heard(_: libc::c_int) {}
    let file = file();
    let held = open(file.path());
    assert!(held.try_lock(Lock::Exclusive).unwrap());
    for (flags, expected) in [(0, Waited::Interrupted), (libc::SA_RESTART, Waited::Refused)] {
        let child = Child::run(60, || {
            // SAFETY: a structure of numbers, for which zeros are right.
            let mut action = unsafe { mem::zeroed::<libc::sigaction>() };
            action.sa_sigaction = heard as *const () as libc::sighandler_t;
            action.sa_flags = flags;
            // SAFETY: the handler does nothing, and the timer is this process's.
            unsafe {
                libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
                let soon = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
                // Again and again: one that comes between two sleeps ends none.
                let often = libc::itimerval { it_interval: soon, it_value: soon };
                libc::setitimer(libc::ITIMER_REAL, &raw const often, std::ptr::null_mut());
            }
            let waited = open(file.path()).lock_within(Lock::Exclusive, Duration::from_secs(2));
            u8::from(waited != Ok(expected))
        });
        assert_eq!(child.wait(), Ended::Answer(0), "{expected:?}");
    }
    assert!(fs::metadata(file.path()).is_ok());
}
