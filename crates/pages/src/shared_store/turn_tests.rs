//! Whose turn it is to write: openings that die, threads that change it, and followers that fail.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use esker_device::shared::Shared;
use esker_device::sim::{SimDevice, SimShared};
use esker_device::{
    Caching, Device, DeviceError, Open, Operation, Purpose, Result as DeviceResult,
};

use super::tests::{Mortal, WORDS, count_up, counted, options};
use super::*;
use crate::{Durability, Error};

fn new_file(device: &SimDevice) -> Arc<dyn DeviceFile> {
    let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    device.sync_dir().unwrap();
    file
}

fn lead(file: &Arc<dyn DeviceFile>, shared: &SimShared) -> Result<PageStore> {
    PageStore::open_leader(Arc::clone(file), options(), Arc::new(shared.another()))
}

fn follow(file: &Arc<dyn DeviceFile>, shared: &SimShared) -> PageStore {
    PageStore::open_follower(Arc::clone(file), options(), Arc::new(shared.another())).unwrap()
}

/// The number in a store that is opened after a power cut which lost nothing.
fn recovered(device: &SimDevice) -> Option<u32> {
    let device = SimDevice::from_image(&device.image());
    let file = device.open("pages", Open::Existing, Caching::Buffered).unwrap();
    let store = PageStore::open(file, options()).unwrap();
    assert!(store.check().unwrap().accounted);
    counted(&store.pin()).unwrap()
}

/// A process left in order. Another one opens the store for writing, and dies after some changes of
/// the file, or some stores to the meeting. A follower writes on. Returns whether the other died.
fn opening_that_dies(changes: u64, stores: u64) -> bool {
    let device = SimDevice::new();
    let file = new_file(&device);
    let shared = SimShared::new(WORDS);
    let first = lead(&file, &shared).unwrap();
    count_up(&first, 1);
    let follower = follow(&file, &shared);
    for number in 2..4 {
        count_up(&first, number);
        first.checkpoint().unwrap();
        drop(follower.begin_read().unwrap());
    }
    count_up(&first, 4);
    assert!(first.step_down().unwrap());
    drop(first);
    let process = Arc::new(shared.another());
    process.die_after(stores);
    let mortal = Arc::new(Mortal::new(&file, &process, changes));
    let opened = PageStore::open_leader(mortal, options(), Arc::clone(&process) as _);
    let died = process.is_dead();
    process.die_after(0);
    drop(opened);
    // There may be another checkpoint, and perhaps it was said.
    assert!(follower.try_lead(Arc::clone(&file)).unwrap());
    assert_eq!(recovered(&device), Some(4), "a commit is gone");
    count_up(&follower, 5);
    assert_eq!(recovered(&device), Some(5), "a commit is gone");
    assert_eq!(counted(&follower.begin_read().unwrap()).unwrap(), Some(5));
    follower.checkpoint().unwrap();
    assert!(follower.check().unwrap().accounted);
    died
}

#[test]
fn an_opening_that_dies_takes_no_commit_with_it() {
    let lived = (0..).find(|changes| !opening_that_dies(*changes, u64::MAX));
    assert!(lived.is_some_and(|changes| changes > 5), "{lived:?}");
    let lived = (0..200).find(|stores| !opening_that_dies(u64::MAX, *stores));
    assert!(lived.is_some_and(|stores| stores > 5), "{lived:?}");
}

/// A process died after it had prepared a transaction and before it said so. Another one opens the
/// store for writing, and dies after some changes of the file. Returns whether it did, and whether
/// a follower could write on.
fn opening_that_dies_after_a_preparation(changes: u64) -> (bool, bool) {
    let device = SimDevice::new();
    let file = new_file(&device);
    let shared = SimShared::new(WORDS);
    let process = Arc::new(shared.another());
    let meeting = Arc::clone(&process) as _;
    let first = PageStore::open_leader(Arc::clone(&file), options(), meeting).unwrap();
    count_up(&first, 1);
    let follower = follow(&file, &shared);
    for number in 2..4 {
        count_up(&first, number);
        first.checkpoint().unwrap();
        drop(follower.begin_read().unwrap());
    }
    let mut writer = first.begin(&first.pin()).unwrap();
    writer.write(0, 0, &[7; 512]).unwrap();
    process.die_after(0);
    writer.prepare(b"a decision").unwrap();
    drop((writer, first));
    let process = Arc::new(shared.another());
    let mortal = Arc::new(Mortal::new(&file, &process, changes));
    let opened = PageStore::open_leader(mortal, options(), Arc::clone(&process) as _);
    let died = process.is_dead();
    process.die_after(0);
    drop(opened);
    match follower.try_lead(Arc::clone(&file)) {
        Ok(true) => {
            assert_eq!(recovered(&device), Some(3), "a commit is gone");
            if let Some(name) = follower.prepared() {
                // The one that died had said that it found it.
                assert_eq!(name, b"a decision");
                follower.decide(false).unwrap();
            }
            count_up(&follower, 4);
            assert_eq!(recovered(&device), Some(4), "a commit is gone");
            (died, true)
        }
        // There is another checkpoint, and perhaps it was said.
        Ok(false) | Err(Error::Locked { .. }) => {
            let leader = lead(&file, &shared).unwrap();
            assert_eq!(leader.prepared().unwrap(), b"a decision");
            leader.decide(false).unwrap();
            count_up(&leader, 4);
            assert_eq!(recovered(&device), Some(4), "a commit is gone");
            (died, false)
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_opening_that_dies_leaves_no_record_for_another_log() {
    let mut seen = [0, 0];
    let has_lived = |changes| {
        let (died, leads) = opening_that_dies_after_a_preparation(changes);
        seen[usize::from(leads)] += 1;
        !died
    };
    assert!((0..).any(has_lived));
    assert!(seen.iter().all(|count| *count > 2), "{seen:?}");
}

/// A process dies while it takes a checkpoint, of which others have the beginning; then another one
/// takes a checkpoint. Those that follow do not take it for the one that has begun.
pub(super) fn a_checkpoint_that_was_not_ended() {
    let file = new_file(&SimDevice::new());
    let shared = SimShared::new(WORDS);
    let process = Arc::new(shared.another());
    let mortal = Arc::new(Mortal::new(&file, &process, u64::MAX));
    let first = PageStore::open_leader(mortal, options(), Arc::clone(&process) as _).unwrap();
    count_up(&first, 1);
    let (second, third) = (follow(&file, &shared), follow(&file, &shared));
    let unfinished = first.begin_checkpoint().unwrap();
    first.pin_named("kept").unwrap();
    for follower in [&second, &third] {
        assert_eq!(counted(&follower.begin_read().unwrap()).unwrap(), Some(1));
    }
    process.die_after(0);
    drop((unfinished, first));
    assert!(second.try_lead(Arc::clone(&file)).unwrap());
    count_up(&second, 2);
    for follower in [&second, &third] {
        assert_eq!(counted(&follower.begin_read().unwrap()).unwrap(), Some(2));
        assert_eq!(counted(&follower.at_named("kept").unwrap()).unwrap(), Some(1));
        assert!(follower.check().unwrap().accounted);
    }
}

#[test]
fn a_checkpoint_is_not_taken_for_another() {
    a_checkpoint_that_was_not_ended();
}

/// Adds one to the number, if this process may write now.
fn add(store: &PageStore, file: &Arc<dyn DeviceFile>) -> Result<bool> {
    if !store.try_lead(Arc::clone(file))? {
        return Ok(false);
    }
    let base = store.begin_read()?;
    let number = counted(&base)?.unwrap() + 1;
    let mut writer = store.begin(&base)?;
    (0..6).try_for_each(|page| writer.write(page, 0, &number.to_le_bytes()))?;
    writer.commit(Durability::Relaxed)?;
    Ok(true)
}

/// A meeting whose locks take their time, so that threads meet there.
#[derive(Debug)]
struct Slow(SimShared);

impl Shared for Slow {
    fn words(&self) -> usize {
        self.0.words()
    }

    fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }

    fn store(&self, at: usize, value: u64) {
        self.0.store(at, value);
    }

    fn try_lock(&self, byte: u64) -> DeviceResult<bool> {
        let locked = self.0.try_lock(byte);
        std::thread::sleep(Duration::from_micros(50));
        locked
    }

    fn unlock(&self, byte: u64) -> DeviceResult<()> {
        std::thread::sleep(Duration::from_micros(50));
        self.0.unlock(byte)
    }

    fn is_locked(&self, byte: u64) -> DeviceResult<bool> {
        self.0.is_locked(byte)
    }
}

/// Threads of two processes let their process write and stop to write, at any time: there is one
/// number for each commit.
#[test]
fn threads_that_change_who_writes_lose_nothing() {
    let file = new_file(&SimDevice::new());
    let shared = SimShared::new(WORDS);
    let mut with_thread = options();
    with_thread.relaxed_interval = Some(Duration::from_micros(50));
    let open = || (Arc::clone(&file), with_thread.clone(), Arc::new(Slow(shared.another())));
    let (leader, options, meeting) = open();
    let one = PageStore::open_leader(leader, options, meeting).unwrap();
    count_up(&one, 0);
    let (follower, options, meeting) = open();
    let other = PageStore::open_follower(follower, options, meeting).unwrap();
    for number in 0..2 {
        count_up(&one, number);
        one.checkpoint().unwrap();
        drop(other.begin_read().unwrap());
    }
    let (added, is_over) = (AtomicU32::new(1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (file, added, is_over) = (&file, &added, &is_over);
        for store in [&one, &one, &other, &other] {
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    match add(store, file) {
                        Ok(true) => drop(added.fetch_add(1, Ordering::SeqCst)),
                        Ok(false) => std::thread::yield_now(),
                        // Another thread of the process writes, or has it stop to write.
                        Err(Error::Busy | Error::Stale { .. } | Error::ReadOnly { .. }) => {}
                        Err(error) => {
                            is_over.store(true, Ordering::SeqCst);
                            panic!("{error}");
                        }
                    }
                    let _left = store.step_down().unwrap();
                    if added.load(Ordering::SeqCst) > 1000 {
                        is_over.store(true, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let added = added.load(Ordering::SeqCst);
    for store in [&one, &other] {
        assert_eq!(counted(&store.begin_read().unwrap()).unwrap(), Some(added));
        assert!(store.check().unwrap().accounted);
    }
}

/// A file whose length cannot be read once, after this many times.
#[derive(Debug)]
struct Unsteady {
    file: Arc<dyn DeviceFile>,
    left: AtomicU32,
}

impl DeviceFile for Unsteady {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> DeviceResult<u64> {
        if self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return self.file.len();
        }
        let source = std::io::Error::other("not now");
        Err(DeviceError::new(Operation::Read, self.name(), 0, source))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> DeviceResult<()> {
        self.file.read_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> DeviceResult<()> {
        self.file.write_at(offset, buf, purpose)
    }

    fn sync(&self, purpose: Purpose) -> DeviceResult<()> {
        self.file.sync(purpose)
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.file.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.file.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> DeviceResult<()> {
        self.file.truncate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.file.discard(offset, len)
    }
}

#[test]
fn a_follower_whose_reading_fails_reads_the_same_again() {
    let mut failures = 0;
    for fails_at in 0..8 {
        let file = new_file(&SimDevice::new());
        let shared = SimShared::new(WORDS);
        let leader = lead(&file, &shared).unwrap();
        count_up(&leader, 1);
        let unsteady = Arc::new(Unsteady { file: Arc::clone(&file), left: u32::MAX.into() });
        let meeting = Arc::new(shared.another());
        let follower = PageStore::open_follower(Arc::clone(&unsteady) as _, options(), meeting);
        let follower = follower.unwrap();
        for is_checkpointed in [false, true] {
            count_up(&leader, 2);
            count_up(&leader, 3);
            if is_checkpointed {
                leader.checkpoint().unwrap();
            }
            unsteady.left.store(fails_at, Ordering::SeqCst);
            failures += u32::from(follower.begin_read().is_err());
            unsteady.left.store(u32::MAX, Ordering::SeqCst);
            let read = follower.begin_read().unwrap();
            assert_eq!(read.version(), leader.pin().version());
            assert_eq!(counted(&read).unwrap(), Some(3), "{fails_at}");
        }
    }
    assert!(failures > 4, "{failures}");
}

/// A process whose pins are gone from the meeting learns it, and then neither reads nor writes.
#[test]
fn a_process_whose_pins_are_lost_does_nothing_more() {
    for has_led in [false, true] {
        let file = new_file(&SimDevice::new());
        let shared = SimShared::new(WORDS);
        let first = lead(&file, &shared).unwrap();
        let second = follow(&file, &shared);
        for number in 1..4 {
            count_up(&first, number);
            first.checkpoint().unwrap();
            drop(second.begin_read().unwrap());
        }
        let (writes, reads) = if has_led { (second, first) } else { (first, second) };
        if has_led {
            assert!(reads.step_down().unwrap() && writes.try_lead(Arc::clone(&file)).unwrap());
        }
        let held = reads.begin_read().unwrap();
        // The first version of each of the first two cells.
        [64 + 8, 64 + 64 + 8].into_iter().for_each(|word| shared.store(word, 0));
        count_up(&writes, 4);
        writes.checkpoint().unwrap();
        count_up(&writes, 5);
        assert!(matches!(reads.begin_read(), Err(Error::Corrupt { .. })));
        for _ in 0..3 {
            assert!(matches!(reads.begin_read(), Err(Error::Poisoned)));
            assert!(counted(&held).is_err() && counted(&reads.pin()).is_err());
        }
        assert!(writes.step_down().unwrap());
        assert!(matches!(reads.try_lead(Arc::clone(&file)), Err(Error::Poisoned)));
        assert!(writes.try_lead(Arc::clone(&file)).unwrap());
    }
}

/// A damaged record of the newest log is damage at once, and not a log that another one follows.
#[test]
fn a_damaged_log_is_not_waited_for() {
    let device = SimDevice::new();
    let file = new_file(&device);
    let shared = SimShared::new(WORDS);
    let process = Arc::new(shared.another());
    let meeting = Arc::clone(&process) as _;
    let leader = PageStore::open_leader(Arc::clone(&file), options(), meeting).unwrap();
    count_up(&leader, 1);
    leader.checkpoint().unwrap();
    let follower = follow(&file, &shared);
    let before = device.files();
    let mut writer = leader.begin(&leader.pin()).unwrap();
    writer.write(0, 0, &[9; 4]).unwrap();
    writer.commit(Durability::Full).unwrap();
    let changed = before["pages"].iter().zip(&device.files()["pages"]).position(|(a, b)| a != b);
    device.flip("pages", changed.unwrap() as u64, 1);
    assert!(matches!(follower.begin_read(), Err(Error::Corrupt { .. })));
    let open = || {
        let shared = Arc::new(shared.another());
        PageStore::open_follower(Arc::clone(&file), options(), shared).map(drop)
    };
    assert!(matches!(open(), Err(Error::Corrupt { .. })));
    // As after a power cut: what the meeting says is lost, and no process writes.
    process.die_after(0);
    assert!(matches!(open(), Err(Error::Locked { .. })));
    drop(leader);
}
