//! Random histories of a writer and of two followers that come when they come.

use std::collections::BTreeMap;

use esker_device::sim::{SimDevice, SimShared};
use esker_device::{Caching, Device, DeviceFile, Open};
use esker_harness::counts::{Counts, budget};
use esker_harness::planted::hunt;
use esker_harness::random::Random;
use esker_harness::violation::without_panic;

use super::*;
use crate::log::concurrent_checkpoint::Unfinished;
use crate::log::joining::{open_follower, open_leader};
use crate::meeting::layout::MEETING_BYTES;
use crate::planted::with;
use crate::writer::Dirty;
use crate::{Allocation as Kind, Durability, Options, PageStore, Snapshot, Writer};

type Contents = Vec<Vec<u8>>;

fn options(seed: u64) -> Options {
    let mut options = Options::new().page_size(512).segment_bytes(16 * 1024);
    options.spill_bytes = 24 * 512;
    options.checkpoint_bytes = 24 * 1024;
    options.delta_bytes = 64 * 1024 * (seed % 3);
    options.relaxed_interval = None;
    options
}

fn read_all(snapshot: &Snapshot) -> Result<Contents> {
    let page = |page| {
        let mut bytes = vec![0; snapshot.page_size() as usize];
        snapshot.read(page, 0, &mut bytes).map(|()| bytes)
    };
    (0..snapshot.pages()).map(page).collect()
}

/// A process that follows.
struct Follower {
    store: PageStore,
    pins: Vec<Snapshot>,
}

impl Follower {
    fn loaded(&self) -> u64 {
        self.store.engine().core.lock().shared.as_ref().unwrap().loaded
    }
}

/// A writer, its followers, and what every version holds.
struct Processes {
    file: Arc<dyn DeviceFile>,
    shared: Arc<SimShared>,
    options: Options,
    writer: PageStore,
    open: Option<Writer>,
    unfinished: Option<Unfinished>,
    working: Contents,
    versions: BTreeMap<u64, Contents>,
    followers: Vec<Follower>,
    /// How often free slots were the same, and how often a follower had come too late.
    compared: u64,
    reloaded: u64,
    handed_over: u64,
    writers_pins: Vec<Snapshot>,
}

impl Processes {
    fn new(seed: u64) -> Self {
        let device = SimDevice::new();
        let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
        let options = options(seed);
        let shared = Arc::new(SimShared::new(MEETING_BYTES / 8));
        let leader =
            open_leader(Arc::clone(&file), options.clone(), Arc::clone(&shared) as _, None);
        let writer = PageStore::over(leader.unwrap());
        let versions = BTreeMap::from([(0, Vec::new())]);
        let mut processes = Self {
            file,
            shared,
            options,
            writer,
            open: None,
            unfinished: None,
            working: Vec::new(),
            versions,
            followers: Vec::new(),
            compared: 0,
            reloaded: 0,
            handed_over: 0,
            writers_pins: Vec::new(),
        };
        let followers = [processes.follower(), processes.follower()];
        processes.followers = followers.into();
        processes
    }

    fn follower(&self) -> Follower {
        let shared = Arc::new(self.shared.another());
        let opened = open_follower(Arc::clone(&self.file), self.options.clone(), shared, None);
        Follower { store: PageStore::over(opened.unwrap()), pins: Vec::new() }
    }

    fn newest(&self) -> u64 {
        *self.versions.keys().next_back().unwrap()
    }

    fn transaction(&mut self) -> &mut Writer {
        if self.open.is_none() {
            self.working = self.versions[&self.newest()].clone();
            self.open = Some(self.writer.begin(&self.writer.pin()).unwrap());
        }
        self.open.as_mut().unwrap()
    }

    fn write(&mut self, page: u32, offset: usize, bytes: &[u8]) {
        self.transaction().write(page, offset as u32, bytes).unwrap();
        let pages = self.working.len().max(page as usize + 1);
        self.working.resize(pages, vec![0; 512]);
        self.working[page as usize][offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn commit(&mut self, random: &Random) {
        let Some(mut writer) = self.open.take() else { return };
        if random.percent(15) {
            writer.prepare(b"a decision").unwrap();
            if random.percent(50) {
                self.writer.checkpoint().unwrap();
            }
            self.follow_one(random);
            if random.percent(50) {
                return writer.abort();
            }
        }
        let made = writer.commit(Durability::Full).unwrap();
        self.versions.insert(made.version(), self.working.clone());
    }

    /// Another process writes from now on, if the one that does can stop.
    fn hand_over(&mut self, random: &Random) {
        let is_busy = self.open.is_some() || self.unfinished.is_some();
        assert_eq!(self.writer.step_down().unwrap(), !is_busy);
        if is_busy {
            return;
        }
        assert!(matches!(self.writer.begin(&self.writer.pin()), Err(Error::ReadOnly { .. })));
        let at = random.index(self.followers.len());
        let Follower { store, pins } = &mut self.followers[at];
        let is_complete = store.engine().core.lock().shared.as_ref().unwrap().is_complete;
        let leads = store.try_lead(Arc::clone(&self.file)).unwrap();
        assert!(leads, "what it does not know keeps it from writing");
        std::mem::swap(store, &mut self.writer);
        std::mem::swap(pins, &mut self.writers_pins);
        self.handed_over += u64::from(is_complete);
        assert!(!self.followers[at].store.try_lead(Arc::clone(&self.file)).unwrap());
    }

    fn step(&mut self, random: &Random) {
        match random.below(100) {
            0..30 => {
                let len = 1 + random.index(12);
                let (page, offset) = (random.below(60) as u32, random.index(512 - len));
                self.write(page, offset, &random.bytes(len));
            }
            30..42 => self.write(random.below(60) as u32, 0, &random.bytes(512)),
            42..44 => (0..35).for_each(|page| self.write(page, 0, &random.bytes(512))),
            44..46 => {
                let pages = random.below(60) as u32;
                self.transaction().truncate(pages).unwrap();
                self.working.resize(pages as usize, vec![0; 512]);
            }
            46..66 => self.commit(random),
            66 => drop(self.open.take()),
            67..70 => drop(self.writer.pin_named(&random.below(3).to_string())),
            70..72 => drop(self.writer.unpin_named(&random.below(3).to_string())),
            72 => self.writer.checkpoint().unwrap(),
            73..76 if self.unfinished.is_none() => {
                let mut unfinished = Unfinished::begin(self.writer.engine()).unwrap();
                unfinished.save().unwrap();
                self.unfinished = Some(unfinished);
            }
            76..79 => {
                let unfinished = self.unfinished.take();
                unfinished.map_or(Ok(false), Unfinished::finish).unwrap();
            }
            79 => {
                let at = random.index(self.followers.len());
                self.followers[at] = self.follower();
            }
            80..84 => {
                let at = random.index(self.followers.len());
                let pins = &mut self.followers[at].pins;
                if !pins.is_empty() {
                    drop(pins.swap_remove(random.index(pins.len())));
                }
            }
            84..88 => self.follow_one(random),
            _ => self.commit(random),
        }
    }

    /// One of the followers catches up, and is judged.
    fn follow_one(&mut self, random: &Random) {
        let at = random.index(self.followers.len());
        let follower = &mut self.followers[at];
        let loaded = follower.loaded();
        let snapshot = follower.store.begin_read().unwrap();
        self.reloaded += u64::from(follower.loaded() != loaded);
        assert_eq!(snapshot.version(), *self.versions.keys().next_back().unwrap());
        for pin in follower.pins.iter().chain([&snapshot]) {
            assert_eq!(read_all(pin).unwrap(), self.versions[&pin.version()], "{pin:?}");
        }
        if random.percent(30) {
            follower.pins.push(snapshot);
        }
        for name in 0..3 {
            let name = name.to_string();
            let (theirs, ours) = (follower.store.at_named(&name), self.writer.at_named(&name));
            let theirs = theirs.map(|at| (at.version(), read_all(&at).unwrap())).ok();
            assert_eq!(theirs, ours.map(|at| (at.version(), read_all(&at).unwrap())).ok());
        }
        follower.store.check().unwrap();
        self.compare_space(at);
    }

    /// Every process has the same free slots; or knows that it does not, and takes none for free
    /// that are in use for what it knows.
    fn compare_space(&mut self, at: usize) {
        let theirs = self.followers[at].store.engine().core.lock();
        let ours = self.writer.engine().core.lock();
        let (used, needed) = (ours.space.used(), theirs.space.used());
        let is_spilled = |dirty: &Dirty| matches!(dirty, Dirty::Spilled(_));
        let has_spilled = |open: &Writer| open.dirty.values().any(is_spilled);
        if !ours.shared.as_ref().unwrap().is_complete {
            return;
        }
        let is_quiet = !self.open.as_ref().is_some_and(has_spilled) && !ours.is_saving;
        if is_quiet && theirs.shared.as_ref().unwrap().is_complete {
            let differ = |one: &BTreeMap<_, _>, other: &BTreeMap<_, u64>| {
                let places = one.iter().filter(|place| other.get(place.0) != Some(place.1));
                places.map(|(at, _)| *at).collect::<Vec<Sector>>()
            };
            let (here, there) = (differ(&used, &needed), differ(&needed, &used));
            assert!((&here, &there) == (&vec![], &vec![]), "{here:?} only here, {there:?} there");
            let dead = |core: &Core| {
                let mut dead = core.dead.clone();
                dead.sort_unstable();
                dead
            };
            assert_eq!(dead(&theirs), dead(&ours));
            self.compared += 1;
        }
        assert!(needed.iter().all(|(at, bytes)| used.get(at) == Some(bytes)), "{at}");
    }
}

/// How often free slots were the same, a follower had come too late, and another process wrote.
fn run(seed: u64) -> [u64; 3] {
    let random = Random::new(seed);
    let mut processes = Processes::new(seed);
    // Some followers are seldom late, and some always.
    let percent = [5, 20, 50][random.index(3)];
    for _ in 0..300 {
        processes.step(&random);
        if random.percent(10) {
            processes.hand_over(&random);
        }
        if random.percent(percent) {
            processes.follow_one(&random);
        }
    }
    for pin in &processes.writers_pins {
        assert_eq!(read_all(pin).unwrap(), processes.versions[&pin.version()], "{pin:?}");
    }
    let Processes { compared, reloaded, handed_over, writer, open, unfinished, .. } = processes;
    drop((open, unfinished));
    writer.close().unwrap();
    [compared, reloaded, handed_over]
}

#[test]
fn followers_have_what_the_writer_has() {
    let mut sums = [0; 3];
    for seed in 0..60 * budget() {
        let verdict = without_panic(|| {
            sums.iter_mut().zip(run(seed)).for_each(|(sum, count)| *sum += count);
            Ok(())
        });
        verdict.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    let mut counts = Counts::new("page-store", "processes that follow a log");
    counts.add("runs", 60 * budget());
    counts.add("judged", sums[0]);
    counts.record().unwrap();
    println!("{sums:?}");
    let least = [100, 20, 20];
    assert!(sums.iter().zip(least).all(|(sum, least)| *sum > least * budget()), "{sums:?}");
}

#[test]
fn planted_bugs_of_followers_are_found() {
    for bug in [
        Bug::HeldForgotten,
        Bug::PinNotSeen,
        Bug::CarriedAppliedTwice,
        Bug::NodesNotAdopted,
        Bug::FollowerFreesNewerDead,
    ] {
        let attempt = |seed: &u64, counts: &mut Counts| {
            counts.add("judged", run(*seed)[0]);
            Ok(())
        };
        let found = hunt(0..60_u64, |body| with(bug, body), attempt);
        found.unwrap_or_else(|violation| panic!("{bug:?}: {violation}"));
    }
}

#[test]
fn a_store_whose_pages_move_is_not_shared() {
    let file = SimDevice::new().open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    let options = options(0).allocation(Kind::Segment);
    let shared = Arc::new(SimShared::new(MEETING_BYTES / 8));
    assert!(matches!(open_leader(file, options, shared, None), Err(Error::InvalidArgument(_))));
}
