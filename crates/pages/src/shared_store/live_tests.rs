//! Threads, and processes, that read while one writes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use esker_device::file::FileDevice;
use esker_device::forked::{Child, Ended};
use esker_device::shared::SharedFile;
use esker_device::sim::{SimDevice, SimShared};
use esker_device::{Caching, Device, Open};

use super::tests::{WORDS, count_up, counted, options};
use super::*;
use crate::MEETING_BYTES;

#[test]
fn readers_in_threads_see_what_was_committed_before_they_began() {
    let file = SimDevice::new().open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    let shared = SimShared::new(WORDS);
    let leader =
        PageStore::open_leader(Arc::clone(&file), options(), Arc::new(shared.another())).unwrap();
    let (committed, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let shared = Arc::new(shared.another());
            let follower = PageStore::open_follower(Arc::clone(&file), options(), shared).unwrap();
            let (committed, is_over) = (&committed, &is_over);
            scope.spawn(move || {
                let mut held = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    let least = committed.load(Ordering::SeqCst);
                    let snapshot = follower.begin_read().unwrap();
                    let number = counted(&snapshot).unwrap().unwrap();
                    assert!(number >= least, "{number} is before {least}");
                    held.push((snapshot, number));
                    if held.len() > 7 {
                        let (snapshot, number) = held.swap_remove(number as usize % 7);
                        assert_eq!(counted(&snapshot).unwrap(), Some(number));
                    }
                }
            });
        }
        for number in 1..20_000 {
            count_up(&leader, number);
            committed.store(number, Ordering::SeqCst);
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(leader.check().unwrap().accounted);
    assert!(leader.stats().checkpoints > 50);
}

#[test]
fn readers_in_processes_see_what_was_committed_before_they_began() {
    const COMMITTED: usize = WORDS - 1;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let open = || {
        let device = FileDevice::open(folder.path()).unwrap();
        let file = device.open("pages", Open::Existing, Caching::Buffered);
        file.or_else(|_| device.open("pages", Open::CreateNew, Caching::Buffered)).unwrap()
    };
    let follow = || {
        let shared = Arc::new(SharedFile::open(&path, MEETING_BYTES).unwrap());
        let opened = (0..10_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            PageStore::open_follower(open(), options(), Arc::clone(&shared) as _).ok()
        });
        let Some(follower) = opened else { return 2 };
        let mut reads = 0;
        loop {
            let least = shared.load(COMMITTED) as u32;
            let snapshot = follower.begin_read().unwrap();
            let number = counted(&snapshot).unwrap();
            if number.is_none_or(|number| number < least) {
                return 1;
            }
            reads += 1;
            if least >= 3000 {
                return if reads > 10 { 0 } else { 3 };
            }
        }
    };
    let children: Vec<_> = (0..3).map(|_| Child::run(60, follow)).collect();
    let shared = Arc::new(SharedFile::open(&path, MEETING_BYTES).unwrap());
    let leader = PageStore::open_leader(open(), options(), Arc::clone(&shared) as _).unwrap();
    for number in 1..=3000 {
        count_up(&leader, number);
        shared.store(COMMITTED, number.into());
    }
    for child in children {
        assert_eq!(child.wait(), Ended::Answer(0));
    }
    assert!(leader.check().unwrap().accounted);
}
