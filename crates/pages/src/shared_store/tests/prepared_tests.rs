//! Transactions over two stores that processes share: the owner dies, or the power goes out, at any
//! moment, and the transaction took place in both stores or in neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use esker_device::sim::{SimDevice, SimShared};
use esker_device::{Caching, Device, DeviceFile, Open};
use esker_harness::counts::{Counts, budget};
use esker_harness::crash;
use esker_harness::planted::hunt;
use esker_harness::violation::without_panic;

use super::{Mortal, WORDS, count_up, counted, options};
use crate::engine::Turns;
use crate::log::joining::{open_first, open_next};
use crate::planted::{Bug, with};
use crate::{Durability, Error, Options, PageStore, Result};

const FILES: [&str; 2] = ["one", "two"];
/// The file whose removal is the commit.
const DECIDER: &str = "decider";

/// One of the two stores, as the owner and another process have it open.
struct Side {
    owner: PageStore,
    process: Arc<SimShared>,
    other: PageStore,
}

/// Two stores on one device, and the file that decides.
struct Pair {
    device: SimDevice,
    sides: Vec<Side>,
    /// Whether the file that decides is there, as the processes see it.
    is_there: AtomicBool,
}

fn impatient() -> Options {
    let mut options = options();
    options.busy_timeout = Duration::from_millis(1);
    options
}

fn take_turns(file: &Arc<dyn DeviceFile>) -> Turns {
    Turns::new(Some(Arc::clone(file)))
}

impl Pair {
    /// The owner dies after some changes of each file.
    fn new(device: SimDevice, changes: [u64; 2]) -> Self {
        let side = |(name, changes): (&str, u64)| {
            let file = device.open(name, Open::CreateNew, Caching::Buffered).unwrap();
            device.sync_dir().unwrap();
            let shared = SimShared::new(WORDS);
            let process = Arc::new(shared.another());
            let mortal = Arc::new(Mortal::new(&file, &process, u64::MAX));
            let owner = open_first(
                Arc::clone(&mortal) as _,
                impatient(),
                Arc::clone(&process) as _,
                take_turns(&(Arc::clone(&mortal) as _)),
            );
            let owner = PageStore::over(owner.unwrap());
            count_up(&owner, 1);
            let meeting = Arc::new(shared.another());
            let other = open_next(Arc::clone(&file), impatient(), meeting, take_turns(&file));
            mortal.live_for(changes);
            Side { owner, process, other: PageStore::over(other.unwrap()) }
        };
        let sides = FILES.into_iter().zip(changes).map(side).collect();
        device.record();
        device.mark(1);
        Self { device, sides, is_there: AtomicBool::new(false) }
    }

    fn is_dead(&self) -> bool {
        self.sides.iter().any(|side| side.process.is_dead())
    }

    /// The owner dies in both stores.
    fn die(&self) {
        self.sides.iter().for_each(|side| side.process.die_after(0));
    }

    fn put_decider(&self) {
        self.device.open(DECIDER, Open::CreateNew, Caching::Buffered).unwrap();
        self.device.sync_dir().unwrap();
        self.is_there.store(true, Ordering::SeqCst);
    }

    fn remove_decider(&self) {
        self.is_there.store(false, Ordering::SeqCst);
        self.device.remove(DECIDER).unwrap();
        self.device.sync_dir().unwrap();
        self.device.mark(2);
    }

    /// The owner's transaction, as far as it lives; `at` is called between its steps.
    fn transact(&self, mut at: impl FnMut(&Self)) -> Result<()> {
        let check = || if self.is_dead() { Err(Error::Poisoned) } else { Ok(()) };
        let mut writers = Vec::new();
        for side in &self.sides {
            let mut writer = side.owner.begin(&side.owner.pin())?;
            (0..6).try_for_each(|page| writer.write(page, 0, &2_u32.to_le_bytes()))?;
            writers.push(writer);
        }
        self.put_decider();
        for writer in &mut writers {
            writer.prepare(DECIDER.as_bytes())?;
            check()?;
            at(self);
            check()?;
        }
        self.remove_decider();
        for writer in writers {
            at(self);
            drop(writer.commit(Durability::Full)?);
            check()?;
        }
        Ok(())
    }

    /// Another process decides what it finds, and gives the numbers that it then has.
    fn decided(&self) -> Vec<Option<u32>> {
        let each = self.sides.iter().map(|side| {
            drop(side.other.begin_read().unwrap());
            side.other.decide_in_doubt(|name| Ok(self.decide(name))).unwrap();
            counted(&side.other.begin_read().unwrap()).unwrap()
        });
        each.collect()
    }

    fn decide(&self, name: &[u8]) -> bool {
        assert_eq!(name, DECIDER.as_bytes());
        !self.is_there.load(Ordering::SeqCst)
    }
}

/// The owner dies after some changes of one of the files; the others go on. Says whether it died,
/// and whether the transaction took place.
fn run(changes: [u64; 2]) -> (bool, bool) {
    let pair = Pair::new(SimDevice::new(), changes);
    let done = pair.transact(|pair| {
        // While the owner lives no other process writes, decides, or sees anything of it.
        for side in pair.sides.iter().filter(|side| side.owner.has_writer()) {
            assert!(matches!(side.other.begin(&side.other.pin()), Err(Error::Busy)));
            side.other.decide_in_doubt(|_| panic!("the owner lives")).unwrap();
            assert_eq!(counted(&side.other.begin_read().unwrap()).unwrap(), Some(1));
        }
    });
    let died = pair.is_dead();
    assert_eq!(done.is_ok(), !died);
    pair.die();
    let found = pair.decided();
    assert!(found == [Some(1); 2] || found == [Some(2); 2], "{found:?}");
    assert!(died || found == [Some(2); 2]);
    for side in &pair.sides {
        assert!(!side.other.may_be_in_doubt());
        count_up(&side.other, 3);
        side.other.checkpoint().unwrap();
        assert!(side.other.check().unwrap().accounted);
    }
    (died, found == [Some(2); 2])
}

#[test]
fn a_transaction_over_stores_whose_owner_dies_took_place_in_all_or_in_none() {
    let (mut runs, mut committed) = (0, 0);
    for at in 0..FILES.len() {
        for changes in 0.. {
            let mut limits = [u64::MAX; 2];
            limits[at] = changes;
            let (died, has_committed) = run(limits);
            (runs, committed) = (runs + 1, committed + u32::from(has_committed));
            if !died {
                break;
            }
        }
    }
    println!("{runs} runs, {committed} committed");
    assert!(committed > 3 && runs > committed + 2, "{runs}, {committed}");
}

/// The numbers of both stores after a power cut.
fn recovered(device: &SimDevice) -> Vec<Option<u32>> {
    let is_there = device.list().unwrap().iter().any(|name| name == DECIDER);
    let each = FILES.into_iter().map(|name| {
        let file = device.open(name, Open::Existing, Caching::Buffered).unwrap();
        let store = PageStore::open(file, options()).unwrap();
        if store.prepared().is_some() {
            store.decide(!is_there).unwrap();
        }
        assert!(store.check().unwrap().accounted);
        counted(&store.pin()).unwrap()
    });
    each.collect()
}

#[test]
fn a_transaction_over_stores_is_whole_after_a_power_cut() {
    let mut judged = 0;
    for seed in 0..20 * budget() {
        let device = SimDevice::new();
        // With an odd seed the owner dies, and others decide before the power goes out.
        let lives = if seed.is_multiple_of(2) { u64::MAX } else { seed / 2 };
        let pair = Pair::new(device.clone(), [u64::MAX, lives]);
        let _died = pair.transact(|_| {});
        if pair.is_dead() {
            pair.die();
            pair.decided();
        }
        let trace = device.take_trace().unwrap();
        let crashes = crash::each(&trace, &crash::limited(seed, 200), |state, device| {
            let Some(least) = state.acknowledged() else { return Ok(()) };
            judged += 1;
            without_panic(|| {
                let found = recovered(device);
                let wanted = u32::try_from(least).unwrap();
                let is_whole = found == [Some(1); 2] || found == [Some(2); 2];
                assert!(is_whole && found[0] >= Some(wanted), "{found:?} after {least}");
                Ok(())
            })
        });
        crashes.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    println!("{judged} judged");
    assert!(judged > 100, "{judged}");
}

/// A process looks for the file that decides. Before it writes down what it has found the owner
/// removes that file, and dies.
fn decided_while_the_owner_lives() {
    let pair = Pair::new(SimDevice::new(), [u64::MAX; 2]);
    let mut found = Vec::new();
    let _died = pair.transact(|pair| {
        pair.sides.iter().for_each(|side| drop(side.other.begin_read().unwrap()));
        let are_all_prepared = pair.sides.iter().all(|side| side.other.may_be_in_doubt());
        if !are_all_prepared || !found.is_empty() {
            return;
        }
        let go_on = || {
            pair.remove_decider();
            pair.die();
        };
        let decide = |name: &[u8]| {
            let commit = pair.decide(name);
            go_on();
            Ok(commit)
        };
        pair.sides[0].other.decide_in_doubt(decide).unwrap();
        if !pair.is_dead() {
            go_on();
        }
        found = pair.decided();
    });
    assert_eq!(found, [Some(2); 2], "the transaction took place in one store");
}

#[test]
fn no_process_decides_while_the_owner_lives() {
    decided_while_the_owner_lives();
    let attempt = |_: &u64, counts: &mut Counts| {
        counts.add("judged", 1);
        decided_while_the_owner_lives();
        Ok(())
    };
    let with_bug = |body: &mut dyn FnMut() -> _| with(Bug::PreparedDecidedByOther, body);
    let found = hunt(0..1_u64, with_bug, attempt);
    found.unwrap_or_else(|violation| panic!("{violation}"));
}
