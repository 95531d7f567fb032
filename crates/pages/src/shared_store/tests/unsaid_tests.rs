//! Processes that read a store before any of them has written it, and the first that writes, which
//! dies at any moment.

use std::sync::Arc;

use esker_device::sim::{SimDevice, SimShared};
use esker_device::{Caching, Device, DeviceFile, Open};

use super::{Mortal, WORDS, count_up, counted, options};
use crate::engine::Turns;
use crate::log::joining::open_next;
use crate::log::unsaid::open_unsaid;
use crate::meeting::state::has_no_state;
use crate::{Durability, Options, PageStore, Result};

fn open(
    file: &Arc<dyn DeviceFile>,
    shared: &Arc<SimShared>,
    has_others: bool,
    may_write: bool,
) -> PageStore {
    let options = Options { busy_timeout: std::time::Duration::ZERO, ..options() };
    let turns = Turns::new(may_write.then(|| Arc::clone(file)));
    let (file, meeting) = (Arc::clone(file), Arc::clone(shared) as _);
    let is_said = has_others && !has_no_state(&**shared);
    PageStore::over(if is_said {
        open_next(file, options, meeting, turns).unwrap()
    } else {
        open_unsaid(file, options, meeting, turns, has_others).unwrap().unwrap()
    })
}

pub(super) fn add(store: &PageStore) -> Result<u32> {
    let base = store.begin_read()?;
    let number = counted(&base)?.unwrap() + 1;
    let mut writer = store.begin(&base)?;
    (0..6).try_for_each(|page| {
        let len = if (page + number).is_multiple_of(2) { 4 } else { 512 };
        let bytes: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(len).collect();
        writer.write(page, 0, &bytes)
    })?;
    drop(base);
    writer.commit(Durability::Full)?;
    Ok(number)
}

/// A store as a process leaves it that dies, or closed.
fn left(device: &SimDevice, is_closed: bool) -> Arc<dyn DeviceFile> {
    let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    device.sync_dir().unwrap();
    let store = PageStore::open(Arc::clone(&file), options()).unwrap();
    for number in 0..3 {
        count_up(&store, number);
        store.checkpoint().unwrap();
    }
    count_up(&store, 0);
    store.pin_named("zero").unwrap();
    count_up(&store, 1);
    if is_closed {
        store.close().unwrap();
        return file;
    }
    let image = SimDevice::from_image(&device.image());
    image.open("pages", Open::Existing, Caching::Buffered).unwrap()
}

/// The first that writes dies after some changes of the file. Says whether it did.
fn run(is_closed: bool, changes: u64) -> bool {
    let device = SimDevice::new();
    let file = left(&device, is_closed);
    let shared = SimShared::new(WORDS);
    let another = || Arc::new(shared.another());
    let readers = [open(&file, &another(), false, false), open(&file, &another(), true, false)];
    let held = readers[0].begin_read().unwrap();
    let named = readers[1].at_named("zero").unwrap();
    let is_kept = || {
        assert_eq!(counted(&held).unwrap(), Some(1));
        assert_eq!(counted(&named).unwrap(), Some(0));
    };
    let process = another();
    let mortal = Arc::new(Mortal::new(&file, &process, u64::MAX));
    let first = open(&(Arc::clone(&mortal) as _), &process, true, true);
    assert_eq!(counted(&first.begin_read().unwrap()).unwrap(), Some(1));
    mortal.live_for(changes);
    let mut acknowledged = 1;
    for _ in 0..5 {
        let done = add(&first).and_then(|number| first.checkpoint().map(|()| number));
        let Ok(number) = done else { break };
        if !process.is_dead() {
            acknowledged = number;
            assert_eq!(counted(&readers[1].begin_read().unwrap()).unwrap(), Some(number));
        }
        is_kept();
    }
    let died = process.is_dead();
    assert_eq!(acknowledged == 6, !died);
    process.die_after(0);
    drop(first);
    is_kept();
    let second = open(&file, &another(), true, true);
    for _ in 0..5 {
        let number = add(&second).unwrap();
        assert!(number > acknowledged, "{number} after {acknowledged}");
        second.checkpoint().unwrap();
        for reader in &readers {
            assert_eq!(counted(&reader.begin_read().unwrap()).unwrap(), Some(number));
        }
        is_kept();
    }
    drop((held, named));
    second.unpin_named("zero").unwrap();
    (0..2).for_each(|_| second.checkpoint().unwrap());
    for reader in &readers {
        drop(reader.begin_read().unwrap());
        assert!(reader.check().unwrap().accounted);
    }
    assert!(second.check().unwrap().accounted);
    died
}

#[test]
fn who_reads_before_anyone_writes_keeps_what_it_reads_and_sees_what_comes() {
    for is_closed in [true, false] {
        let lived = (0..).find(|changes| !run(is_closed, *changes));
        assert!(lived.is_some_and(|changes| changes > 20), "{lived:?}");
    }
}

#[test]
fn what_readers_cannot_share_is_left_alone() {
    let device = SimDevice::new();
    let file = device.open("none", Open::CreateNew, Caching::Buffered).unwrap();
    let shared = SimShared::new(WORDS);
    let tried = |file: &Arc<dyn DeviceFile>| {
        let meeting = Arc::new(shared.another());
        open_unsaid(Arc::clone(file), options(), meeting, Turns::new(None), false).unwrap()
    };
    assert!(tried(&file).is_none());
    let prepared = device.open("prepared", Open::CreateNew, Caching::Buffered).unwrap();
    let store = PageStore::open(Arc::clone(&prepared), options()).unwrap();
    let mut writer = store.begin(&store.pin()).unwrap();
    writer.write(0, 0, &[1; 512]).unwrap();
    writer.prepare(b"a decision").unwrap();
    let before = device.files();
    assert!(tried(&prepared).is_none());
    assert!(device.files() == before, "something was written");
    writer.abort();
}
