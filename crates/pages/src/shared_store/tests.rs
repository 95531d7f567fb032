//! Processes that die while others go on, and the power that goes out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_device::sim::{SimDevice, SimShared};
use esker_device::{
    Caching, Device, DeviceError, Open, Operation, Purpose, Result as DeviceResult,
};
use esker_harness::counts::Counts;
pub(super) use esker_harness::counts::budget;
use esker_harness::crash;
use esker_harness::planted::hunt;
use esker_harness::random::Random;
use esker_harness::violation::{Verdict, without_panic};

mod joining_tests;
mod poison_tests;
mod prepared_tests;
mod unlisted_tests;
mod unsaid_tests;

use super::turn_tests::a_checkpoint_that_was_not_ended;
use super::*;
use crate::meeting::layout::MEETING_BYTES;
use crate::planted::{Bug, with};
use crate::{Durability, Error};

pub(super) const WORDS: usize = MEETING_BYTES / 8;

type Contents = Vec<Vec<u8>>;

/// The file of a process that dies at an operation that would change it, or when it has died
/// already: half of the bytes of that write may be there.
#[derive(Debug)]
pub(super) struct Mortal {
    file: Arc<dyn DeviceFile>,
    process: Arc<SimShared>,
    left: AtomicU64,
}

impl Mortal {
    /// It dies after this many changes.
    pub(super) fn new(file: &Arc<dyn DeviceFile>, process: &Arc<SimShared>, left: u64) -> Self {
        Self { file: Arc::clone(file), process: Arc::clone(process), left: left.into() }
    }

    /// It dies after this many changes from now on.
    pub(super) fn live_for(&self, left: u64) {
        self.left.store(left, Ordering::SeqCst);
    }

    fn change(&self) -> DeviceResult<()> {
        let was = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        if was == Ok(0) {
            self.process.die_after(0);
        }
        if !self.process.is_dead() {
            return Ok(());
        }
        let source = std::io::Error::other("the process has died");
        Err(DeviceError::new(Operation::Write, self.name(), 0, source))
    }
}

impl DeviceFile for Mortal {
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
        let was_dead = self.process.is_dead();
        let changed = self.change();
        if changed.is_err() && !was_dead {
            self.file.write_at(offset, &buf[..buf.len() / 2], purpose)?;
        }
        changed?;
        self.file.write_at(offset, buf, purpose)
    }

    fn sync(&self, purpose: Purpose) -> DeviceResult<()> {
        self.change()?;
        self.file.sync(purpose)
    }

    fn preallocate(&self, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.change()?;
        self.file.preallocate(len, purpose)
    }

    fn allocate(&self, offset: u64, len: u64, purpose: Purpose) -> DeviceResult<()> {
        self.change()?;
        self.file.allocate(offset, len, purpose)
    }

    fn truncate(&self, len: u64) -> DeviceResult<()> {
        self.change()?;
        self.file.truncate(len)
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.change()?;
        self.file.discard(offset, len)
    }
}

pub(super) fn options() -> Options {
    let mut options = Options::new().page_size(512).segment_bytes(16 * 1024);
    options.spill_bytes = 12 * 512;
    options.checkpoint_bytes = 12 * 1024;
    options.relaxed_interval = None;
    options
}

fn contents(snapshot: &Snapshot) -> Contents {
    let page = |page| {
        let mut bytes = vec![0; 512];
        snapshot.read(page, 0, &mut bytes).unwrap();
        bytes
    };
    (0..snapshot.pages()).map(page).collect()
}

/// A leader that may die, and two followers.
struct World {
    device: SimDevice,
    file: Arc<dyn DeviceFile>,
    shared: SimShared,
    leader: Option<PageStore>,
    process: Option<Arc<SimShared>>,
    followers: Vec<(PageStore, Vec<Snapshot>)>,
    /// All versions that were made or tried, and the last whose commit has returned.
    versions: BTreeMap<u64, Contents>,
    acknowledged: u64,
    taken_over: u64,
    /// All that was ever tried: after a death there may be two versions with one number.
    tried: Vec<(u64, Contents)>,
    hands_over: bool,
    /// Whether a process opens the store anew after a death, although another could write on.
    opens_anew: bool,
}

impl World {
    fn new() -> Self {
        let device = SimDevice::new();
        let file = device.open("pages", Open::CreateNew, Caching::Buffered).unwrap();
        device.sync_dir().unwrap();
        Self {
            device,
            file,
            shared: SimShared::new(WORDS),
            leader: None,
            process: None,
            followers: Vec::new(),
            versions: BTreeMap::from([(0, Contents::new())]),
            acknowledged: 0,
            taken_over: 0,
            tried: vec![(0, Contents::new())],
            hands_over: false,
            opens_anew: false,
        }
    }

    /// Opens a leader that dies after some changes of the file, or some stores.
    fn lead(&mut self, changes: u64, stores: u64) -> Result<()> {
        let process = Arc::new(self.shared.another());
        process.die_after(stores);
        self.process = Some(Arc::clone(&process));
        let file = Arc::new(Mortal::new(&self.file, &process, changes));
        self.leader = Some(PageStore::open_leader(file, options(), process)?);
        Ok(())
    }

    fn follow(&mut self) {
        let (file, shared) = (Arc::clone(&self.file), Arc::new(self.shared.another()));
        let store = PageStore::open_follower(file, options(), shared).unwrap();
        self.followers.push((store, Vec::new()));
    }

    fn commit(&mut self, random: &Random) -> Result<()> {
        let leader = self.leader.as_ref().unwrap();
        let base = leader.pin();
        let mut next = self.versions[&base.version()].clone();
        let mut writer = leader.begin(&base)?;
        for _ in 0..1 + random.below(20) {
            let (page, len) = (random.index(24), 1 + random.index(512));
            let bytes = random.bytes(len);
            writer.write(page as u32, 0, &bytes)?;
            next.resize(next.len().max(page + 1), vec![0; 512]);
            next[page][..len].copy_from_slice(&bytes);
        }
        self.tried.push((base.version() + 1, next.clone()));
        self.versions.insert(base.version() + 1, next);
        let made = writer.commit(Durability::Full)?;
        self.check_alive()?;
        self.acknowledged = made.version();
        self.device.mark(self.acknowledged);
        Ok(())
    }

    /// What a dead process has done was not seen by others.
    fn check_alive(&self) -> Result<()> {
        let is_dead = self.process.as_ref().is_some_and(|process| process.is_dead());
        if is_dead { Err(Error::Poisoned) } else { Ok(()) }
    }

    fn step(&mut self, random: &Random) -> Result<()> {
        self.check_alive()?;
        match random.below(12) {
            0..5 => self.commit(random)?,
            5 => self.leader.as_ref().unwrap().checkpoint()?,
            6 => {
                let leader = self.leader.as_ref().unwrap();
                let mut unfinished = leader.begin_checkpoint()?;
                unfinished.save()?;
                self.commit(random)?;
                unfinished.finish()?;
            }
            7 if self.followers.len() < 2 => self.follow(),
            8 | 9 if self.hands_over => self.hand_over()?,
            at => self.read(random, at % 2 == 0),
        }
        Ok(())
    }

    /// A follower writes from now on, if one can.
    fn hand_over(&mut self) -> Result<()> {
        let leader = self.leader.as_ref().unwrap();
        assert!(leader.step_down()?);
        for (store, _) in &mut self.followers {
            if store.try_lead(Arc::clone(&self.file))? {
                self.taken_over += 1;
                std::mem::swap(self.leader.as_mut().unwrap(), store);
                return Ok(());
            }
        }
        assert!(self.leader.as_ref().unwrap().try_lead(Arc::clone(&self.file))?);
        Ok(())
    }

    fn read(&mut self, random: &Random, keeps: bool) {
        let at = random.index(self.followers.len());
        let Some((store, pins)) = self.followers.get_mut(at) else { return };
        let snapshot = store.begin_read().unwrap();
        assert!(snapshot.version() >= self.acknowledged);
        assert_eq!(contents(&snapshot), self.versions[&snapshot.version()]);
        if keeps {
            pins.push(snapshot);
        } else if !pins.is_empty() {
            drop(pins.swap_remove(random.index(pins.len())));
        }
        for pin in pins {
            assert_eq!(contents(pin), self.versions[&pin.version()]);
        }
    }

    /// A follower that knows which slots are free writes from now on.
    fn take_over(&mut self) -> Option<usize> {
        let mut leads = |(at, (store, _)): (usize, &(PageStore, Vec<Snapshot>))| {
            store.try_lead(Arc::clone(&self.file)).unwrap().then_some(at)
        };
        self.followers.iter().enumerate().find_map(&mut leads)
    }

    /// One of the followers writes on: all that is held stays as it was, for it and for others.
    fn go_on_with(&mut self, at: usize, random: &Random) {
        self.taken_over += 1;
        let (leader, pins) = self.followers.swap_remove(at);
        let newest = leader.pin();
        assert!(newest.version() >= self.acknowledged, "a commit is gone");
        assert_eq!(contents(&newest), self.versions[&newest.version()]);
        self.acknowledged = newest.version();
        drop(newest);
        self.leader = Some(leader);
        for turn in 0..3 {
            (0..3).for_each(|_| self.commit(random).unwrap());
            self.read(random, true);
            if turn == 0 {
                // All die: what was written on is there.
                let image = SimDevice::from_image(&self.device.image());
                judge(&self.tried, self.acknowledged, &image);
            }
            self.leader.as_ref().unwrap().checkpoint().unwrap();
            self.read(random, true);
        }
        for pin in &pins {
            assert_eq!(contents(pin), self.versions[&pin.version()]);
        }
        drop(pins);
        self.leader.as_ref().unwrap().checkpoint().unwrap();
        assert!(self.leader.as_ref().unwrap().check().unwrap().accounted);
    }

    /// The leader has died: all that is read stays, and the next leader has all that was promised.
    fn go_on(&mut self, random: &Random) {
        // Dropping is what the test has to do with the memory of a dead process.
        self.process.take().unwrap().die_after(0);
        self.leader = None;
        if !self.opens_anew
            && let Some(at) = self.take_over()
        {
            return self.go_on_with(at, random);
        }
        let mut is_read = false;
        for (store, pins) in &self.followers {
            for pin in pins {
                assert_eq!(contents(pin), self.versions[&pin.version()]);
            }
            is_read |= !pins.is_empty();
            let snapshot = store.begin_read().unwrap();
            assert!(snapshot.version() >= self.acknowledged);
            assert_eq!(contents(&snapshot), self.versions[&snapshot.version()]);
        }
        if is_read {
            let refused = self.lead(u64::MAX, u64::MAX).unwrap_err();
            assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        }
        self.followers.iter_mut().for_each(|(_, pins)| pins.clear());
        self.lead(u64::MAX, u64::MAX).unwrap();
        let newest = self.leader.as_ref().unwrap().pin();
        assert!(newest.version() >= self.acknowledged, "a commit is gone");
        assert_eq!(contents(&newest), self.versions[&newest.version()]);
        self.acknowledged = newest.version();
        drop(newest);
        for _ in 0..4 {
            self.commit(random).unwrap();
            (0..3).for_each(|at| self.read(random, at > 0));
        }
        self.leader.as_ref().unwrap().checkpoint().unwrap();
        self.read(random, false);
        assert!(self.leader.as_ref().unwrap().check().unwrap().accounted);
        for (store, _) in &self.followers {
            store.check().unwrap();
        }
    }
}

/// Runs a history whose leader dies, after which a follower writes, or with an odd seed another
/// process that opens the store anew. Says whether it did, and whether another took over at once.
fn run(seed: u64, changes: u64, stores: u64) -> (bool, u64) {
    let random = Random::new(seed);
    let mut world = World::new();
    world.opens_anew = !seed.is_multiple_of(2);
    let opened = world.lead(changes, stores);
    let _ended = opened.and_then(|()| (0..30).try_for_each(|_| world.step(&random)));
    let died = world.process.as_ref().unwrap().is_dead();
    world.go_on(&random);
    (died, world.taken_over)
}

#[test]
fn others_go_on_when_the_writer_dies_at_any_change() {
    let (mut runs, mut taken_over) = (0, 0);
    for seed in 0..3 * budget() {
        for changes in 0.. {
            runs += 1;
            let mut died = false;
            let verdict = without_panic(|| {
                let (has_died, has_taken_over) = run(seed, changes, u64::MAX);
                died = has_died;
                taken_over += has_taken_over;
                Ok(())
            });
            verdict.unwrap_or_else(|violation| panic!("seed {seed}, {changes}: {violation}"));
            if !died {
                break;
            }
        }
    }
    let mut counts = Counts::new("page-store", "a writing process dies, and others go on");
    counts.add("runs", runs);
    counts.record().unwrap();
    println!("{runs} runs, {taken_over} taken over");
    assert!(runs > 300 && taken_over > 50, "{runs}, {taken_over}");
}

#[test]
fn others_go_on_when_the_writer_dies_at_any_store_to_the_meeting() {
    for seed in 0..2 * budget() {
        // Making the meeting takes as many stores as it has words.
        let all = (0..WORDS as u64).step_by(977).chain(WORDS as u64..WORDS as u64 + 400);
        for stores in all {
            let verdict = without_panic(|| {
                run(seed, u64::MAX, stores);
                Ok(())
            });
            verdict.unwrap_or_else(|violation| panic!("seed {seed}, {stores}: {violation}"));
        }
    }
}

/// What a power cut leaves of a store that several processes had open.
fn judge(tried: &[(u64, Contents)], least: u64, device: &SimDevice) {
    let file = device.open("pages", Open::Existing, Caching::Buffered).unwrap();
    let store = PageStore::open(Arc::clone(&file), options()).unwrap();
    let newest = store.pin();
    assert!(newest.version() >= least, "{} is before {least}", newest.version());
    let found = (newest.version(), contents(&newest));
    assert!(tried.contains(&found), "version {} was never made", found.0);
    assert!(store.check().unwrap().accounted);
    drop((newest, store));
    let shared = SimShared::new(WORDS);
    let meeting = || Arc::new(shared.another());
    let leader = PageStore::open_leader(Arc::clone(&file), options(), meeting()).unwrap();
    let follower = PageStore::open_follower(file, options(), meeting()).unwrap();
    let held = follower.begin_read().unwrap();
    assert_eq!((held.version(), contents(&held)), found);
    count_up(&leader, 7);
    leader.checkpoint().unwrap();
    assert_eq!(counted(&follower.begin_read().unwrap()).unwrap(), Some(7));
    assert_eq!(contents(&held), found.1);
    assert!(leader.check().unwrap().accounted && follower.check().unwrap().accounted);
}

/// Cuts the power in a history, and judges some of what that may leave.
fn cut_power(seed: u64, history: impl FnOnce(&mut World, &Random)) -> (u64, u64) {
    let random = Random::new(seed);
    let mut world = World::new();
    world.device.record();
    world.device.mark(0);
    history(&mut world, &random);
    let trace = world.device.take_trace().unwrap();
    let mut judged = 0;
    let crashes = crash::each(&trace, &crash::limited(seed, 120), |state, device| {
        // Before there is a store nothing was promised.
        if let Some(least) = state.acknowledged().filter(|least| *least > 0) {
            judged += 1;
            judge(&world.tried, least, device);
        }
        Ok(())
    });
    crashes.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    (judged, world.taken_over)
}

#[test]
fn a_power_cut_of_all_leaves_what_was_promised() {
    let mut counts = Counts::new("page-store", "a power cut of all processes of a store");
    let mut add = |(judged, taken_over)| {
        counts.add("runs", 1);
        counts.add("judged", judged);
        counts.add("others write", taken_over);
    };
    for seed in 0..8 * budget() {
        // Processes hand the writing over.
        add(cut_power(seed, |world, random| {
            world.hands_over = true;
            world.lead(u64::MAX, u64::MAX).unwrap();
            (0..60).for_each(|_| world.step(random).unwrap());
        }));
        // One dies, and another takes over.
        add(cut_power(seed, |world, random| {
            let opened = world.lead(30 + random.below(60), u64::MAX);
            let _died = opened.and_then(|()| (0..60).try_for_each(|_| world.step(random)));
            world.go_on(random);
        }));
    }
    counts.record().unwrap();
    let least = [("judged", 800), ("others write", 10)];
    assert!(least.iter().all(|(name, least)| counts.get(name) > *least), "{counts:?}");
}

#[test]
fn planted_bugs_of_takeovers_are_found() {
    let attempt = |changes: &u64, counts: &mut Counts| {
        counts.add("judged", 1);
        run(0, *changes, u64::MAX);
        Ok(())
    };
    let with_bug = |body: &mut dyn FnMut() -> Verdict| with(Bug::DeadWritersLogWrittenOn, body);
    let found = hunt(20..400, with_bug, attempt);
    found.unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_checkpoint_that_is_taken_for_another_is_found() {
    let attempt = |_: &u64, counts: &mut Counts| {
        counts.add("judged", 1);
        a_checkpoint_that_was_not_ended();
        Ok(())
    };
    let found = hunt(0..1_u64, |body| with(Bug::LaggardNotReloaded, body), attempt);
    found.unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn what_a_dead_reader_held_is_free_after_a_checkpoint() {
    let random = Random::new(5);
    let mut world = World::new();
    world.lead(u64::MAX, u64::MAX).unwrap();
    world.commit(&random).unwrap();
    let process = Arc::new(world.shared.another());
    let (file, shared) = (Arc::clone(&world.file), Arc::clone(&process) as _);
    let follower = PageStore::open_follower(file, options(), shared).unwrap();
    let held = follower.begin_read().unwrap();
    (0..9).for_each(|_| world.commit(&random).unwrap());
    let leader = world.leader.as_ref().unwrap();
    leader.checkpoint().unwrap();
    assert_eq!(leader.stats().versions, 2);
    process.die_after(0);
    leader.checkpoint().unwrap();
    assert_eq!(leader.stats().versions, 1);
    drop((held, follower));
}

#[test]
fn one_writes_and_a_noisy_meeting_is_none() {
    let mut world = World::new();
    let (file, shared) = (Arc::clone(&world.file), Arc::new(world.shared.another()));
    assert!(matches!(
        PageStore::open_follower(Arc::clone(&file), options(), shared),
        Err(Error::Locked { .. })
    ));
    world.lead(u64::MAX, u64::MAX).unwrap();
    let first = world.leader.take().unwrap();
    assert!(matches!(world.lead(u64::MAX, u64::MAX), Err(Error::Locked { .. })));
    let refused = first.compact(&mut |_, _| std::ops::ControlFlow::Continue(()));
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    world.leader = Some(first);
    world.follow();
    let (store, _) = &world.followers[0];
    let refused = store.begin(&store.pin()).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly { .. }));
    let random = Random::new(3);
    (0..WORDS).for_each(|at| world.shared.store(at, random.bits()));
    assert!(matches!(store.begin_read(), Err(Error::Locked { .. })));
    let unheld = store.pin();
    assert!(unheld.pages() == 0 && unheld.read(0, 0, &mut [0; 512]).is_err());
    let few = Arc::new(SimShared::new(100));
    let refused = PageStore::open_follower(file, options(), few).map(drop);
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
}

/// Commits `number` to some pages.
pub(super) fn count_up(leader: &PageStore, number: u32) {
    let mut writer = leader.begin(&leader.pin()).unwrap();
    for page in 0..6 {
        let len = if (number + page).is_multiple_of(3) { 512 } else { 4 };
        let bytes: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(len).collect();
        writer.write(page, 0, &bytes).unwrap();
    }
    writer.commit(Durability::Relaxed).unwrap();
}

/// The number in all pages of a version; `None` where they differ.
pub(super) fn counted(snapshot: &Snapshot) -> Result<Option<u32>> {
    let mut found = [0; 6];
    for (page, number) in (0..snapshot.pages()).zip(&mut found) {
        let mut bytes = [0; 4];
        snapshot.read(page, 0, &mut bytes)?;
        *number = u32::from_le_bytes(bytes);
    }
    Ok(found.iter().all(|number| *number == found[0]).then_some(found[0]))
}
