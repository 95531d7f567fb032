//! Threads, and processes, that read while one writes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use esker_device::file::FileDevice;
use esker_device::forked::{Child, Ended};
use esker_device::shared::SharedFile;
use esker_device::sim::{SimDevice, SimShared};
use esker_device::{Caching, Device, Open};

use super::tests::{WORDS, budget, count_up, counted, options};
use super::*;
use crate::{Durability, Error, MEETING_BYTES};

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

fn open_in(folder: &Path) -> Arc<dyn DeviceFile> {
    let device = FileDevice::open(folder).unwrap();
    let file = device.open("pages", Open::Existing, Caching::Buffered);
    file.or_else(|_| device.open("pages", Open::CreateNew, Caching::Buffered)).unwrap()
}

#[test]
fn readers_in_processes_see_what_was_committed_before_they_began() {
    const COMMITTED: usize = WORDS - 1;
    let commits = 3000 * budget() as u32;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("meeting");
    let open = || open_in(folder.path());
    let follow = || {
        let shared = Arc::new(SharedFile::open(&path, MEETING_BYTES).unwrap());
        let opened = (0..10_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
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
            if least >= commits {
                return if reads > 10 { 0 } else { 3 };
            }
        }
    };
    let children: Vec<_> = (0..3).map(|_| Child::run(60 * budget() as u32, follow)).collect();
    let shared = Arc::new(SharedFile::open(&path, MEETING_BYTES).unwrap());
    let leader = PageStore::open_leader(open(), options(), Arc::clone(&shared) as _).unwrap();
    for number in 1..=commits {
        count_up(&leader, number);
        shared.store(COMMITTED, number.into());
    }
    for child in children {
        assert_eq!(child.wait(), Ended::Answer(0));
    }
    assert!(leader.check().unwrap().accounted);
}

/// A process that counts: each adds one to the number in page 0, and says how often it has.
struct Counting<'a> {
    folder: &'a Path,
    shared: Arc<SharedFile>,
    store: PageStore,
    word: usize,
}

impl<'a> Counting<'a> {
    fn shared(folder: &Path) -> Arc<SharedFile> {
        Arc::new(SharedFile::open(&folder.join("meeting"), MEETING_BYTES).unwrap())
    }

    /// Opens the store for writing when no process writes it or reads a version.
    fn lead(folder: &'a Path, word: usize) -> Self {
        let shared = Self::shared(folder);
        let store = (0..60_000).find_map(|_| {
            let leader =
                PageStore::open_leader(open_in(folder), options(), Arc::clone(&shared) as _);
            if leader.is_err() {
                std::thread::sleep(Duration::from_micros(100));
            }
            leader.ok()
        });
        let store = store.unwrap();
        Self { folder, shared, store, word }
    }

    /// Adds one, if this process may write now. Fails when the store must be opened anew.
    fn add(&self) -> Result<bool> {
        if !self.store.try_lead(open_in(self.folder))? {
            return Ok(false);
        }
        let base = self.store.pin();
        let number = counted(&base)?.unwrap() + 1;
        let mut writer = self.store.begin(&base)?;
        (0..6).try_for_each(|page| writer.write(page, 0, &number.to_le_bytes()))?;
        drop((base, writer.commit(Durability::Relaxed)?));
        self.shared.store(self.word, self.shared.load(self.word) + 1);
        assert!(self.store.step_down()?);
        Ok(true)
    }

    /// What a child does until it is killed.
    fn child(folder: &'a Path, word: usize) -> u8 {
        loop {
            let shared = Self::shared(folder);
            let opened =
                PageStore::open_follower(open_in(folder), options(), Arc::clone(&shared) as _);
            if let Ok(store) = opened {
                let counting = Self { folder, shared, store, word };
                while !matches!(counting.add(), Err(Error::Poisoned | Error::Corrupt { .. })) {
                    std::thread::sleep(Duration::from_micros(300));
                }
                return 1;
            }
        }
    }
}

/// Processes that write alternately, of which one is killed at any moment: no commit is lost, and
/// no number is given twice.
#[test]
fn writers_in_processes_that_are_killed_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let word = |at: usize| WORDS - 1 - at;
    let mut ours = Counting::lead(folder.path(), word(0));
    assert!(ours.add().unwrap());
    let start = |at: usize| Child::run(60, || Counting::child(folder.path(), word(at)));
    let mut children: Vec<_> = (1..4).map(start).collect();
    let (mut starts, mut reopened) = (3, 0);
    let begun = Instant::now();
    for turn in 0.. {
        let until = Instant::now() + Duration::from_millis(20 + turn * 7 % 30);
        let mut is_stuck = true;
        while Instant::now() < until {
            let added = ours.add();
            assert!(matches!(added, Ok(_) | Err(Error::Locked { .. })), "{added:?}");
            is_stuck &= !matches!(added, Ok(true));
            std::thread::sleep(Duration::from_micros(300));
        }
        if is_stuck {
            // All that knew which slots are free have died.
            let (folder, word) = (ours.folder, ours.word);
            drop(ours);
            ours = Counting::lead(folder, word);
            reopened += 1;
        }
        let at = 1 + turn as usize % 3;
        children.swap(at - 1, 2);
        children.pop().unwrap().kill();
        children.push(start(at));
        children.swap(at - 1, 2);
        starts += 1;
        if begun.elapsed() > Duration::from_millis(1500) {
            break;
        }
    }
    children.into_iter().for_each(Child::kill);
    let (folder, own) = (ours.folder, ours.word);
    drop(ours);
    let ours = Counting::lead(folder, own);
    let found = u64::from(counted(&ours.store.pin()).unwrap().unwrap());
    let said: u64 = (0..4).map(|at| ours.shared.load(word(at))).sum();
    let by_children = said - ours.shared.load(own);
    println!("{found} commits, {by_children} by children, {starts} starts, {reopened} opened anew");
    assert!((said..=said + starts).contains(&found), "{found} of {said}");
    assert!(ours.store.check().unwrap().accounted);
}
