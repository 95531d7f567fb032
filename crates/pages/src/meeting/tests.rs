//! Schedules of readers and of the process that frees, and files full of noise.

use std::sync::Arc;

use esker_device::Result;
use esker_device::process::Process;
use esker_device::shared::Shared;
use esker_device::sim::SimShared;
use esker_format::ids::StoreId;
use esker_harness::counts::Counts;
use esker_harness::planted::hunt;
use esker_harness::random::Random;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::cells::{held, is_seen};
use super::layout::{ASKED, CELLS, MEETING_BYTES, PINS, STATE, encode, is_of, make, pin, tag};
use super::member::Member;
use super::state::{Ending, State, heard, say};
use crate::log::record::Held;
use crate::log::shared::LogEnd;
use crate::planted::{Bug, with};

const STORE: StoreId = StoreId(0x1234_5678_9abc_def0);
const WORDS: usize = MEETING_BYTES / 8;

fn state(number: u64) -> State {
    let end = LogEnd { epoch: number + 1000, number };
    State {
        end,
        newest: number + 2000,
        ending: if number.is_multiple_of(2) { Ending::Left } else { Ending::None },
    }
}

fn covers(held: &[Held], version: u64) -> bool {
    held.iter().any(|held| (held.first..=held.last).contains(&version))
}

/// Words whose every access is a point at which another thread may run; locks are never free to
/// others.
#[derive(Debug)]
struct Scheduled(Vec<AtomicU64>);

impl Scheduled {
    fn new() -> Arc<Self> {
        Arc::new(Self((0..tag(2)).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl Shared for Scheduled {
    fn words(&self) -> usize {
        self.0.len()
    }

    fn load(&self, at: usize) -> u64 {
        self.0.get(at).map_or(0, |word| word.load(Ordering::SeqCst))
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value, Ordering::SeqCst);
        }
    }

    fn try_lock(&self, byte: u64) -> Result<bool> {
        // The member is taken before another thread looks at it.
        Ok(self.load(tag(0)) == 0 && byte > 0)
    }

    fn unlock(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn is_locked(&self, _: u64) -> Result<bool> {
        Ok(true)
    }
}

fn states_are_whole() {
    let shared = Scheduled::new();
    say(&*shared, STORE, state(1));
    let writer = Arc::clone(&shared);
    let writes = shuttle::thread::spawn(move || {
        (2..5).for_each(|number| say(&*writer, STORE, state(number)));
    });
    let mut last = 1;
    for _ in 0..2 {
        let found = heard(&*shared, STORE).unwrap();
        assert_eq!(found, state(found.end.number));
        assert!((last..5).contains(&found.end.number));
        last = found.end.number;
    }
    writes.join().unwrap();
    assert_eq!(heard(&*shared, STORE), Some(state(4)));
}

/// A reader of version 3, while the newest is 5 and all that is not read is freed.
fn a_pin_is_seen_or_the_reader_tries_again() {
    let shared = Scheduled::new();
    let member =
        Member::take(Arc::clone(&shared) as _, STORE, Process::current(), false).unwrap().unwrap();
    let is_freed = Arc::new(AtomicBool::new(false));
    let (freer, freed) = (Arc::clone(&shared), Arc::clone(&is_freed));
    let frees = shuttle::thread::spawn(move || {
        let held = held(&*freer, STORE, CELLS, 5).unwrap();
        if !covers(&held, 3) {
            freed.store(true, Ordering::SeqCst);
        }
    });
    if member.pin(3) {
        assert!(!is_freed.load(Ordering::SeqCst), "what is read was free");
        shuttle::thread::yield_now();
        assert!(!is_freed.load(Ordering::SeqCst), "what is read became free");
        frees.join().unwrap();
        assert!(!is_freed.load(Ordering::SeqCst), "what is read became free");
        member.unpin(3);
    } else {
        member.unpin(3);
        assert!(member.pin(5), "the newest is always there");
        frees.join().unwrap();
    }
}

fn schedules(work: fn()) {
    shuttle::check_random(work, 2000);
}

#[test]
fn schedules_of_states_and_pins() {
    schedules(states_are_whole);
    schedules(a_pin_is_seen_or_the_reader_tries_again);
}

#[test]
fn planted_bugs_are_found_by_schedules() {
    let pins: fn() = a_pin_is_seen_or_the_reader_tries_again;
    for (bug, work) in [
        (Bug::TornStateBelieved, states_are_whole as fn()),
        (Bug::PinNotSeen, pins),
        (Bug::AskedNotReread, pins),
        (Bug::AskedStoredLate, pins),
    ] {
        let attempt = |_: &u64, counts: &mut Counts| {
            counts.add("judged", 1);
            schedules(work);
            Ok(())
        };
        let found = hunt(0..1, |body| with(bug, body), attempt);
        found.unwrap_or_else(|violation| panic!("{bug:?}: {violation}"));
    }
}

#[test]
fn a_version_is_read_as_it_was_written_or_not_at_all() {
    let random = Random::new(1);
    let shared = SimShared::new(WORDS);
    make(&shared, STORE);
    assert!(is_of(&shared, STORE) && !is_of(&shared, StoreId(1)));
    let mut believed = 0;
    for _ in 0..200_000 {
        shared.store(ASKED, random.bits());
        believed += u32::from(is_seen(&shared, STORE, (1 << 48) - 3));
    }
    // One word in 65,536.
    assert!(believed < 20, "{believed}");
    for version in [0, 1, 255, 1 << 40, (1 << 48) - 3] {
        shared.store(ASKED, encode(STORE, version).unwrap());
        assert!(is_seen(&shared, STORE, version));
        assert!(version == 0 || !is_seen(&shared, STORE, version - 1));
    }
    assert_eq!(encode(STORE, (1 << 48) - 1), None);
}

/// What the cells say after random pins, in processes that come, go and die.
#[test]
fn all_that_is_read_is_held_and_what_is_left_is_not() {
    for seed in 0..200 {
        let random = Random::new(seed);
        let leader = SimShared::new(WORDS);
        make(&leader, STORE);
        let mut members: Vec<(Member, Vec<u64>, Arc<SimShared>)> = Vec::new();
        for _ in 0..random.below(400) {
            match random.below(20) {
                0 if members.len() < 5 => {
                    let process = Arc::new(leader.another());
                    let member =
                        Member::take(Arc::clone(&process) as _, STORE, Process::current(), false)
                            .unwrap()
                            .unwrap();
                    members.push((member, Vec::new(), process));
                }
                1 if !members.is_empty() => {
                    let (member, _, process) = members.swap_remove(random.index(members.len()));
                    // Half of them die: the cell stays as it is, and its lock is free.
                    if random.percent(50) {
                        process.die_after(0);
                    }
                    drop(member);
                }
                2..8 => {
                    let at = random.index(members.len());
                    if let Some((member, pins, _)) = members.get_mut(at)
                        && !pins.is_empty()
                    {
                        member.unpin(pins.swap_remove(random.index(pins.len())));
                    }
                }
                _ => {
                    let at = random.index(members.len());
                    if let Some((member, pins, _)) = members.get_mut(at) {
                        pins.push(random.below(120));
                        member.pin(*pins.last().unwrap());
                    }
                }
            }
        }
        let found = held(&leader, STORE, CELLS, 200).unwrap();
        let all: Vec<u64> = members.iter().flat_map(|(_, pins, _)| pins.clone()).collect();
        assert!(all.iter().all(|version| covers(&found, *version)), "seed {seed}");
        // A process with few pins holds nothing else.
        if members.iter().all(|(_, pins, _)| pins.len() <= PINS / 2) {
            assert!((0..200).all(|version| !covers(&found, version) || all.contains(&version)));
        }
        for (member, pins, _) in &mut members {
            pins.drain(..).for_each(|version| member.unpin(version));
        }
        assert_eq!(held(&leader, STORE, CELLS, 200).unwrap(), [], "seed {seed}");
    }
}

#[test]
fn a_process_that_dies_at_any_store_holds_nothing_for_long() {
    for stores in 0..80 {
        let leader = SimShared::new(WORDS);
        make(&leader, STORE);
        let process = Arc::new(leader.another());
        process.die_after(stores);
        if let Ok(Some(member)) =
            Member::take(Arc::clone(&process) as _, STORE, Process::current(), false)
        {
            (0..60).for_each(|version| {
                member.pin(version);
            });
            process.die_after(0);
            std::mem::forget(member);
        }
        // Whatever it left, the first look empties it.
        assert_eq!(held(&leader, STORE, CELLS, 90).unwrap(), [], "{stores}");
        let next = Member::take(Arc::new(leader.another()), STORE, Process::current(), false)
            .unwrap()
            .unwrap();
        assert_eq!(next.cell(), 0);
    }
}

#[test]
fn a_writer_that_dies_at_any_store_leaves_a_state() {
    for stores in 0..8 {
        let one = SimShared::new(WORDS);
        say(&one, STORE, state(1));
        let other = one.another();
        one.die_after(stores);
        say(&one, STORE, state(2));
        let found = heard(&other, STORE);
        assert_eq!(found, Some(state(if stores < 6 { 1 } else { 2 })), "{stores}");
        say(&other, STORE, state(3));
        assert_eq!(heard(&other, STORE), Some(state(3)));
    }
}

#[test]
fn noise_holds_everything_and_says_nothing() {
    for seed in 0..100 {
        let random = Random::new(seed);
        let shared = Arc::new(SimShared::new(WORDS));
        make(&*shared, STORE);
        say(&*shared, STORE, state(1));
        let member = Member::take(Arc::clone(&shared) as _, STORE, Process::current(), false)
            .unwrap()
            .unwrap();
        member.pin(17);
        if seed.is_multiple_of(2) {
            (0..WORDS).for_each(|at| shared.store(at, random.bits()));
            assert!(!is_of(&*shared, STORE) && heard(&*shared, STORE).is_none());
        } else {
            shared.store(pin(member.cell(), 0), random.bits() | 1);
            (1..4).for_each(|at| shared.store(STATE + 5 + at, random.bits()));
            assert!(heard(&*shared, STORE).is_none());
        }
        let found = held(&shared.another(), STORE, CELLS, 40).unwrap();
        assert!(covers(&found, 17), "seed {seed}: {found:?}");
    }
}

#[test]
fn there_are_as_many_members_as_cells() {
    let shared = SimShared::new(WORDS);
    let another =
        || Member::take(Arc::new(shared.another()), STORE, Process::current(), false).unwrap();
    let members: Vec<_> = (0..CELLS).map(|_| another().unwrap()).collect();
    assert_eq!(members.last().unwrap().cell(), CELLS - 1);
    assert!(another().is_none());
    drop(members);
    assert!(another().is_some());
}
