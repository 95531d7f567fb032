//! A reader that holds an old version while processes come, write every page again, and go: what is
//! in use is too long to be listed. No writer waits, and the file stays bounded.

use std::sync::Arc;
use std::time::Duration;

use esker_device::sim::{SimDevice, SimShared};
use esker_device::{Caching, Device, DeviceFile, Open};
use esker_harness::counts::Counts;
use esker_harness::planted::hunt;

use super::{Mortal, WORDS, options};
use crate::engine::Turns;
use crate::log::joining::{open_first, open_next};
use crate::planted::{Bug, with};
use crate::{Durability, Options, PageStore, Snapshot};

const PAGES: u32 = 1500;
const PAGE: u64 = 512;
const ROUNDS: u32 = 24;

struct World {
    file: Arc<dyn DeviceFile>,
    shared: SimShared,
}

impl World {
    fn options() -> Options {
        // Far less than what lists all pages.
        Options { checkpoint_bytes: 16 * 1024, busy_timeout: Duration::ZERO, ..options() }
    }

    fn turns(file: &Arc<dyn DeviceFile>) -> Turns {
        Turns::new(Some(Arc::clone(file)))
    }

    fn new() -> (Self, PageStore) {
        let device = SimDevice::new();
        let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
        let shared = SimShared::new(WORDS);
        let (turns, meeting) = (Self::turns(&file), Arc::new(shared.another()));
        let first = open_first(Arc::clone(&file), Self::options(), meeting, turns).unwrap();
        (Self { file, shared }, PageStore::over(first))
    }

    fn join(&self) -> PageStore {
        let (file, meeting) = (Arc::clone(&self.file), Arc::new(self.shared.another()));
        let turns = Self::turns(&self.file);
        PageStore::over(open_next(file, Self::options(), meeting, turns).unwrap())
    }

    /// A process that dies after it has written `number` to all pages.
    fn write_and_die(&self, number: u32) {
        let process = Arc::new(self.shared.another());
        let mortal = Arc::new(Mortal::new(&self.file, &process, u64::MAX)) as Arc<dyn DeviceFile>;
        let (turns, meeting) = (Self::turns(&mortal), Arc::clone(&process) as _);
        let store = open_next(mortal, Self::options(), meeting, turns).unwrap();
        let store = PageStore::over(store);
        write_all(&store, number);
        process.die_after(0);
    }
}

/// Writes a number to all pages, in some transactions.
fn write_all(store: &PageStore, number: u32) {
    for first in (0..PAGES).step_by(150) {
        let mut writer = store.begin(&store.begin_read().unwrap()).unwrap();
        for page in first..PAGES.min(first + 150) {
            let bytes: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(512).collect();
            writer.write(page, 0, &bytes).unwrap();
        }
        writer.commit(Durability::Full).unwrap();
    }
}

fn is_all(snapshot: &Snapshot, number: u32) {
    assert_eq!(snapshot.pages(), PAGES);
    for page in 0..PAGES {
        let mut bytes = [0; 4];
        snapshot.read(page, 0, &mut bytes).unwrap();
        assert_eq!(u32::from_le_bytes(bytes), number, "page {page}");
    }
}

fn is_complete(store: &PageStore) -> bool {
    store.engine().core.lock().shared.as_ref().unwrap().is_complete
}

/// Every round another process comes, writes all pages, and goes. Returns the largest file, in
/// multiples of what is live, and how many did not know all that was in use.
fn hold(dies: bool) -> (f64, u32) {
    let (world, first) = World::new();
    write_all(&first, 1);
    let reader = world.join();
    let held = reader.begin_read().unwrap();
    let (mut largest, mut bound, mut incomplete) = (0, 0, 0);
    for number in 2..2 + ROUNDS {
        if dies && number == 9 {
            world.write_and_die(number);
        } else {
            let store = world.join();
            incomplete += u32::from(!is_complete(&store));
            write_all(&store, number);
            // Those who stay know it all, and write as well.
            if number % 4 == 0 {
                write_all(&first, number);
            }
        }
        largest = largest.max(world.file.len().unwrap());
        if number == 12 {
            bound = largest;
        }
        is_all(&held, 1);
        is_all(&first.begin_read().unwrap(), number);
    }
    assert_eq!(largest, bound, "it grows with every process");
    // The reader is gone: what it held is used again, and all know the same.
    drop(held);
    let store = world.join();
    (0..3).for_each(|_| store.checkpoint().unwrap());
    assert!(is_complete(&store) && is_complete(&world.join()));
    write_all(&store, 99);
    (0..2).for_each(|_| store.checkpoint().unwrap());
    assert!(store.check().unwrap().accounted);
    let used = store.engine().core.lock().space.used_bytes();
    assert!(used < 2 * u64::from(PAGES) * PAGE, "{used} bytes are in use");
    assert!(world.file.len().unwrap() <= largest, "nothing is used again");
    (largest as f64 / (u64::from(PAGES) * PAGE) as f64, incomplete)
}

#[test]
fn no_writer_waits_for_a_reader_and_the_file_stays_bounded() {
    for (dies, most) in [(false, 7.0), (true, 10.0)] {
        let (times, incomplete) = hold(dies);
        println!("at most {times:.2} times what is live, {incomplete} processes did not know all");
        assert!(times < most, "{times}");
        assert!(incomplete > 10, "{incomplete}");
    }
}

#[test]
fn slots_that_are_not_listed_are_not_taken() {
    let attempt = |_: &u64, counts: &mut Counts| {
        counts.add("judged", 1);
        hold(false);
        Ok(())
    };
    let found = hunt(0..1_u64, |body| with(Bug::UnlistedReused, body), attempt);
    found.unwrap_or_else(|violation| panic!("{violation}"));
}
