//! Processes that come after others have died, while one that does nothing has the store open.

use std::sync::Arc;

use esker_device::sim::{SimDevice, SimShared};
use esker_device::{Caching, Device, DeviceFile, Open};
use esker_harness::counts::Counts;
use esker_harness::planted::hunt;

use super::unsaid_tests::add;
use super::{Mortal, WORDS, count_up, counted, options};
use crate::engine::Turns;
use crate::log::joining::{open_first, open_next};
use crate::planted::{Bug, with};
use crate::{Options, PageStore};

fn impatient() -> Options {
    Options { busy_timeout: std::time::Duration::ZERO, ..options() }
}

fn join(file: &Arc<dyn DeviceFile>, shared: &SimShared, may_write: bool) -> PageStore {
    let turns = Turns::new(may_write.then(|| Arc::clone(file)));
    let opened = open_next(Arc::clone(file), impatient(), Arc::new(shared.another()), turns);
    PageStore::over(opened.unwrap())
}

/// Two processes come one after the other; each dies after some changes of the file. A third comes
/// while one that does nothing has the store open. Says how many have died.
fn run(changes: [u64; 2], may_write: bool) -> usize {
    let device = SimDevice::new();
    let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    device.sync_dir().unwrap();
    let shared = SimShared::new(WORDS);
    let turns = Turns::new(Some(Arc::clone(&file)));
    let meeting = Arc::new(shared.another());
    let first = open_first(Arc::clone(&file), impatient(), meeting, turns).unwrap();
    let first = PageStore::over(first);
    count_up(&first, 1);
    let idle = join(&file, &shared, true);
    let held = idle.begin_read().unwrap();
    first.close().unwrap();
    let (mut acknowledged, mut died) = (1, 0);
    for changes in changes {
        let process = Arc::new(shared.another());
        let mortal = Arc::new(Mortal::new(&file, &process, u64::MAX));
        let turns = Turns::new(Some(Arc::clone(&mortal) as _));
        let meeting = Arc::clone(&process) as _;
        let store = open_next(Arc::clone(&mortal) as _, impatient(), meeting, turns);
        // It takes a checkpoint when it comes if the one before it has died.
        let store = PageStore::over(store.unwrap());
        mortal.live_for(changes);
        for _ in 0..2 {
            let done = add(&store).and_then(|number| store.checkpoint().map(|()| number));
            if let Ok(number) = done
                && !process.is_dead()
            {
                acknowledged = number;
            }
        }
        died += usize::from(process.is_dead());
        process.die_after(0);
    }
    let third = join(&file, &shared, may_write);
    let found = counted(&third.begin_read().unwrap()).unwrap().unwrap();
    assert!(found >= acknowledged, "{found} after {acknowledged}");
    assert_eq!(counted(&held).unwrap(), Some(1));
    for store in [&idle, &third, &idle] {
        if !store.is_read_only() {
            acknowledged = add(store).unwrap();
            assert!(acknowledged > found);
        }
        for store in [&idle, &third] {
            assert_eq!(counted(&store.begin_read().unwrap()).unwrap(), Some(acknowledged));
        }
        assert_eq!(counted(&held).unwrap(), Some(1));
    }
    idle.checkpoint().unwrap();
    assert!(idle.check().unwrap().accounted);
    died
}

fn all_deaths() {
    let mut deaths = [0; 3];
    for may_write in [true, false] {
        for first in 0..24 {
            for second in 0..24 {
                deaths[run([first, second], may_write)] += 1;
            }
        }
    }
    println!("{deaths:?}");
    assert!(deaths[2] > 200, "{deaths:?}");
}

#[test]
fn who_comes_after_any_deaths_opens_the_store_beside_an_idle_process() {
    all_deaths();
}

#[test]
fn a_checkpoint_that_was_not_said_is_looked_for() {
    let attempt = |_: &u64, counts: &mut Counts| {
        counts.add("judged", 1);
        all_deaths();
        Ok(())
    };
    let found = hunt(0..1_u64, |body| with(Bug::UnsaidNotSaid, body), attempt);
    found.unwrap_or_else(|violation| panic!("{violation}"));
}
