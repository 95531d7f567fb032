//! Every operation of the device fails, one at a time: once and from then on, with half of a write
//! landed, with a sync that loses what it should keep.
//!
//! Whatever fails: nothing panics; what was acknowledged stays readable; and after a restart, with
//! or without the power lost as well, everything durable is there, whole.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/session.rs"]
mod session;
#[path = "common/subject.rs"]
mod subject;

use common::*;
use esker_device::sim::{
    CrashModel, Effect, Failure, Fault, FaultPlan, OpKind, SimDevice, Survivors,
};
use esker_harness::counts::{Counts, budget};
use esker_harness::faults::{self, Workload};
use esker_pages::planted::Bug;
use esker_pages::{Allocation, Durability, Error, Options};
use session::Session;
use subject::{Case, nothing};

#[test]
fn whatever_fails_nothing_durable_is_lost() {
    let mut counts = Counts::new("page-store", "an operation of the device fails");
    for seed in 0..4 * budget() {
        let case = Case { options: small_of(seed), is_late: false };
        let (image, ops) = (disk().image(), history(seed, 120, 40));
        let workload =
            Workload::<Session> { case: &case, image: &image, base: &nothing(), ops: &ops };
        let verdict = faults::run(&workload, 20 * budget(), &mut counts);
        verdict.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
    assert!(counts.get("runs") > 800, "{counts:?}");
    counts.record().unwrap();
}

/// A transaction that was prepared and is committed has taken place elsewhere too: it is seen
/// although its decision cannot be written, and nothing is written after it.
#[test]
fn what_was_prepared_and_committed_is_seen_whatever_fails() {
    for kind in [OpKind::Write, OpKind::Sync] {
        for commits in [true, false] {
            let device = disk();
            let store = open(&device, &small()).unwrap();
            let mut writer = store.begin(&store.pin()).unwrap();
            writer.write(0, 0, &[7; 512]).unwrap();
            writer.prepare(b"name").unwrap();
            let fault = Fault::new(Effect::Fail(Failure::Io)).on(kind).sticky();
            device.set_faults(FaultPlan::new().with(fault));
            if commits {
                writer.commit(Durability::Full).unwrap();
            } else {
                writer.abort();
            }
            assert_eq!(store.pin().pages(), u32::from(commits));
            assert!(store.poisoned().is_some());
            assert!(matches!(store.begin(&store.pin()), Err(Error::Poisoned)));
            device.set_faults(FaultPlan::new());
            drop(store);
            let left = device.crash(&Survivors::nothing(), &CrashModel::default());
            let store = open(&SimDevice::from_image(&left), &small()).unwrap();
            assert_eq!(store.prepared().as_deref(), Some(&b"name"[..]));
            store.decide(commits).unwrap();
            assert_eq!(store.pin().pages(), u32::from(commits));
        }
    }
}

/// The room that commits leave on a full device is also a decision's, at every log position.
#[test]
fn a_decision_finds_room_on_a_full_disk() {
    for (commits, before) in (0..80).flat_map(|before| [(true, before), (false, before)]) {
        let device = disk();
        let options = Options { checkpoint_bytes: 1 << 20, ..small() };
        let store = open(&device, &options).unwrap();
        let write = |byte| {
            let mut writer = store.begin(&store.pin()).unwrap();
            writer.write(0, 0, &[byte; 5]).unwrap();
            writer
        };
        for byte in 0..before {
            write(byte).commit(Durability::Full).unwrap();
        }
        let mut writer = write(255);
        writer.prepare(b"name").unwrap();
        device.set_capacity_bytes(0);
        if commits {
            writer.commit(Durability::Full).unwrap();
        } else {
            writer.abort();
        }
        assert_eq!(store.poisoned(), None, "after {before} commits");
    }
}

/// Prepares on a device that is full, after `before` commits, and cuts and commits or aborts it.
/// The decision finds room; where the record of the cut finds none, nothing is cut, and it is the
/// same after a crash. Says whether it was cut; `None` where it was not prepared or not committed.
fn decide_on_a_full_disk(options: &Options, before: u8, commits: bool) -> Option<bool> {
    let device = disk();
    let store = open(&device, options).unwrap();
    let write = |page, byte| {
        let mut writer = store.begin(&store.pin()).unwrap();
        writer.write(page, 0, &vec![byte; options.page_size as usize]).unwrap();
        writer
    };
    device.set_capacity_bytes(40 * 16 * 1024);
    let mut pages = 0;
    while write(pages, 1).commit(Durability::Full).is_ok() {
        pages += 1;
    }
    for byte in 0..before {
        write(u32::from(byte) % 3, byte).commit(Durability::Full).unwrap();
    }
    let mut writer = write(0, 255);
    writer.prepare(b"name").ok()?;
    let is_cut = if commits {
        writer.truncate(4).unwrap();
        writer.commit(Durability::Full).unwrap().pages() == 4
    } else {
        writer.abort();
        false
    };
    assert_eq!(store.poisoned(), None, "after {before} commits, {options:?}");
    let seen = read_all(&store.pin()).unwrap();
    assert_eq!(seen.pages.len(), if is_cut { 4 } else { pages as usize });
    drop(store);
    let left = device.crash(&Survivors::nothing(), &CrashModel::default());
    let store = open(&SimDevice::from_image(&left), options).unwrap();
    assert_eq!(store.prepared(), None);
    assert_eq!(read_all(&store.pin()).unwrap(), seen, "after {before} commits");
    commits.then_some(is_cut)
}

fn decide_on_full_disks() -> [u32; 2] {
    let mut found = [0; 2];
    for allocation in [Allocation::Slot, Allocation::Segment] {
        for page_size in [512, 2048, 8192, 16384] {
            let options = Options { page_size, allocation, ..small() };
            for before in 0..40 {
                decide_on_a_full_disk(&options, before, false);
                if let Some(is_cut) = decide_on_a_full_disk(&options, before, true) {
                    found[usize::from(is_cut)] += 1;
                }
            }
        }
    }
    found
}

#[test]
fn a_decision_finds_room_where_a_cut_finds_none() {
    let mut found = [0; 2];
    hunt(Bug::DecisionFindsNoRoom, [()], |(), _| {
        found = decide_on_full_disks();
        Ok(())
    });
    assert!(found[0] > 0 && found[1] > 0, "{found:?}");
}

/// A disk that is full refuses what grows, and nothing else.
#[test]
fn a_full_disk_is_an_error_and_no_more() {
    let mut refused = 0;
    for seed in 0..10 {
        let device = disk();
        let mut session = Session::start(device.clone(), small_of(seed)).unwrap();
        device.set_capacity_bytes((7 + seed) * 16 * 1024);
        for op in history(seed, 400, 200) {
            match session.apply(&op) {
                Ok(()) => {}
                Err(Error::Full { .. }) => {
                    refused += 1;
                    session.writer = None;
                }
                Err(error) => panic!("seed {seed}, {op:?}: {error}"),
            }
        }
        session.writer = None;
        assert!(session.store().poisoned().is_none(), "{seed}");
        session.judge().unwrap();
        device.set_capacity_bytes(1 << 30);
        session.reopen().unwrap();
    }
    assert!(refused > 10, "{refused}");
    count("a full device", 10, 10);
}

/// A store that has filled its device goes on changing the pages that it has.
/// Nodes of the map grow with the differences that they keep, from one size of slot to the next.
#[test]
fn a_full_disk_takes_differences_that_grow() {
    takes_differences_that_grow(40, 100);
    takes_differences_that_grow(64, 300);
}

fn takes_differences_that_grow(segments: u64, least: u32) {
    let device = disk();
    let mut session = Session::start(device.clone(), small()).unwrap();
    device.set_capacity_bytes(segments * 16 * 1024);
    let mut pages = 0;
    while session.apply(&Op::Write(pages, 0, vec![1; 512])).is_ok()
        && session.apply(&Op::Commit(Durability::Full)).is_ok()
    {
        pages += 1;
    }
    session.writer = None;
    assert!(pages > least, "{pages}");
    for round in 0..800_u32 {
        let bytes = round.to_le_bytes().repeat(4);
        let page = round.wrapping_mul(2_654_435_761) % pages;
        session.apply(&Op::Write(page, round * 16 % 480, bytes)).unwrap();
        session.apply(&Op::Commit(Durability::Full)).unwrap_or_else(|e| panic!("{round}: {e}"));
    }
    session.judge().unwrap();
}

#[test]
fn a_full_disk_takes_what_does_not_grow() {
    takes_what_does_not_grow(&small(), 100);
    takes_what_does_not_grow(&small_of(1), 100);
}

fn takes_what_does_not_grow(options: &Options, least: u32) {
    let device = disk();
    let options = Options { delta_bytes: 0, ..options.clone() };
    let mut session = Session::start(device.clone(), options).unwrap();
    device.set_capacity_bytes(20 * 16 * 1024);
    let mut page = 0;
    loop {
        session.apply(&Op::Write(page, 0, vec![1; 512])).unwrap();
        match session.apply(&Op::Commit(Durability::Full)) {
            Ok(()) => page += 1,
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(page > least, "{page}");
    for round in 2..100 {
        for page in 0..8 {
            session.apply(&Op::Write(page, 0, vec![round; 512])).unwrap();
        }
        session.apply(&Op::Commit(Durability::Full)).unwrap();
    }
    session.judge().unwrap();
}
