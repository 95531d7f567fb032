//! Processes whose writes fail while others have the store open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_device::sim::{SimDevice, SimShared};
use esker_device::{
    Caching, Device, DeviceError, DeviceFile, Open, Operation, Purpose, Result as DeviceResult,
};
use esker_harness::counts::Counts;
use esker_harness::planted::hunt;

use super::unsaid_tests::add;
use super::{WORDS, count_up, counted, options};
use crate::engine::Turns;
use crate::log::joining::{open_first, open_next};
use crate::planted::{Bug, with};
use crate::{Durability, Error, Options, PageStore};

/// A file whose changes, or syncs alone, fail after some of them: once, or from then on.
#[derive(Debug)]
struct Failing {
    file: Arc<dyn DeviceFile>,
    left: AtomicU64,
    only_syncs: bool,
    is_once: bool,
}

impl Failing {
    fn change(&self, is_sync: bool) -> DeviceResult<()> {
        if self.only_syncs && !is_sync {
            return Ok(());
        }
        let next =
            |left: u64| if left == 0 && self.is_once { u64::MAX } else { left.saturating_sub(1) };
        let was =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(next(left)));
        if was != Ok(0) {
            return Ok(());
        }
        let source = std::io::Error::other("the device fails");
        Err(DeviceError::new(Operation::Write, self.name(), 0, source))
    }
}

impl DeviceFile for Failing {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> DeviceResult<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> DeviceResult<()> {
        self.file.read_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, buf: &[u8], purpose: Purpose) -> DeviceResult<()> {
        let changed = self.change(false);
        let bytes = if changed.is_ok() { buf } else { &buf[..buf.len() / 2] };
        self.file.write_at(offset, bytes, purpose)?;
        changed
    }

    fn sync(&self, purpose: Purpose) -> DeviceResult<()> {
        self.change(true)?;
        self.file.sync(purpose)
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.change(false)?;
        self.file.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.change(false)?;
        self.file.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> DeviceResult<()> {
        self.change(false)?;
        self.file.truncate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.change(false)?;
        self.file.discard(offset, len)
    }
}

/// A process whose device fails, and two others.
struct World {
    device: SimDevice,
    failing: Arc<Failing>,
    store: PageStore,
    others: Vec<PageStore>,
}

impl World {
    fn new(only_syncs: bool, is_once: bool, relaxed_interval: Option<Duration>) -> Self {
        let device = SimDevice::new();
        let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
        device.sync_dir().unwrap();
        let options = Options { busy_timeout: Duration::ZERO, relaxed_interval, ..options() };
        let shared = SimShared::new(WORDS);
        let left = AtomicU64::new(u64::MAX);
        let failing = Failing { file: Arc::clone(&file), left, only_syncs, is_once };
        let failing = Arc::new(failing);
        let its = Arc::clone(&failing) as Arc<dyn DeviceFile>;
        let (turns, meeting) = (Turns::new(Some(Arc::clone(&its))), Arc::new(shared.another()));
        let store = PageStore::over(open_first(its, options.clone(), meeting, turns).unwrap());
        count_up(&store, 1);
        let other = || {
            let (turns, meeting) =
                (Turns::new(Some(Arc::clone(&file))), Arc::new(shared.another()));
            let opened = open_next(Arc::clone(&file), options.clone(), meeting, turns);
            PageStore::over(opened.unwrap())
        };
        let others = vec![other(), other()];
        Self { device, failing, store, others }
    }

    fn fail_after(&self, changes: u64) {
        self.failing.left.store(changes, Ordering::SeqCst);
    }

    fn number(store: &PageStore) -> u32 {
        counted(&store.begin_read().unwrap()).unwrap().unwrap()
    }

    /// The number after a power cut that loses nothing.
    fn recovered(&self) -> u32 {
        let device = SimDevice::from_image(&self.device.image());
        let file = device.open("pages", Open::Existing, Caching::Buffered).unwrap();
        let store = PageStore::open(file, options()).unwrap();
        assert!(store.check().unwrap().accounted);
        counted(&store.pin()).unwrap().unwrap()
    }
}

/// Durable commits of a process that fails after some changes. Says whether its store was poisoned.
fn run(changes: u64, is_once: bool) -> bool {
    let world = World::new(false, is_once, None);
    let [one, two] = [0, 1].map(|at| &world.others[at]);
    let held = one.begin_read().unwrap();
    world.fail_after(changes);
    let mut acknowledged = 1;
    for _ in 0..4 {
        if let Ok(number) = add(&world.store) {
            acknowledged = number;
        }
        let _may_fail = world.store.checkpoint();
    }
    let is_poisoned = world.store.poisoned().is_some();
    let ours = world.store.begin_read().unwrap();
    let seen = counted(&ours).unwrap();
    // The others go on at once, with all that was promised.
    for store in [one, two, one] {
        let number = add(store).unwrap();
        assert!(number > acknowledged, "{number} after {acknowledged}");
        acknowledged = number;
        store.checkpoint().unwrap();
        assert_eq!(world.recovered(), number);
        assert_eq!(counted(&held).unwrap(), Some(1));
    }
    // It reads what they write, and what it held, and writes no more.
    assert_eq!(World::number(&world.store), acknowledged);
    assert_eq!(counted(&ours).unwrap(), seen);
    if is_poisoned {
        assert!(matches!(add(&world.store), Err(Error::Poisoned)));
        assert!(matches!(world.store.sync(), Err(Error::Poisoned)));
        assert!(matches!(world.store.checkpoint(), Err(Error::Poisoned)));
    }
    drop(ours);
    let World { store, .. } = &world;
    assert_eq!(store.clone().close().is_err(), is_poisoned);
    add(two).unwrap();
    two.checkpoint().unwrap();
    assert!(two.check().unwrap().accounted);
    is_poisoned
}

#[test]
fn others_go_on_when_a_write_of_one_process_fails() {
    let mut poisoned = 0;
    for is_once in [true, false] {
        for changes in 0..60 {
            poisoned += u32::from(run(changes, is_once));
        }
    }
    println!("{poisoned} poisoned");
    assert!(poisoned > 20, "{poisoned}");
}

/// A process whose sync has failed, after others have seen what it was to make durable.
fn doubtful() {
    // With a thread, so that it does not make each commit durable before others write.
    let world = World::new(true, true, Some(Duration::from_secs(60)));
    world.fail_after(0);
    let mut writer = world.store.begin(&world.store.pin()).unwrap();
    (0..6).try_for_each(|page| writer.write(page, 0, &2_u32.to_le_bytes())).unwrap();
    drop(writer.commit(Durability::Relaxed).unwrap());
    for other in &world.others {
        assert_eq!(World::number(other), 2);
    }
    assert!(world.store.sync().is_err());
    let is_refused = |store: &PageStore| {
        let busy_since = std::time::Instant::now();
        loop {
            match add(store) {
                Err(Error::Poisoned) => return,
                // Its thread lets go of the writing.
                Err(Error::Busy) if busy_since.elapsed() < Duration::from_secs(10) => {}
                outcome => panic!("{outcome:?}"),
            }
        }
    };
    is_refused(&world.store);
    for other in &world.others {
        is_refused(other);
        assert_eq!(World::number(other), 2);
    }
    // When all have closed it, the next opening finds out.
    let World { device, store, others, .. } = world;
    drop((store, others));
    let file = device.open("pages", Open::Existing, Caching::Buffered).unwrap();
    let store = PageStore::open(file, options()).unwrap();
    count_up(&store, 3);
    assert!(store.check().unwrap().accounted);
}

#[test]
fn no_process_writes_on_what_may_not_be_durable() {
    doubtful();
    let attempt = |_: &u64, counts: &mut Counts| {
        counts.add("judged", 1);
        doubtful();
        Ok(())
    };
    let with_bug = |body: &mut dyn FnMut() -> _| with(Bug::DoubtIgnored, body);
    let found = hunt(0..1_u64, with_bug, attempt);
    found.unwrap_or_else(|violation| panic!("{violation}"));
}
