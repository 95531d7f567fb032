//! Merges on a device with hardly any space.

use esker_device::sim::SimDevice;
use esker_substrate::blocks::{Claim, Reserve};
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Bug};

use super::*;
use crate::lsm::policy::{Params, Policy};

const ENTRIES: u64 = 12_000;
/// Bytes of values that are merged in every case.
const CASE_BYTES: usize = 12_000_000;
/// Units that are kept for the manifest, and the units left in addition: a part of what merges
/// write. Where blocks stay that is fences.
const MANIFEST_UNITS: u64 = 16;
const SCATTERED: Case = Case { key: scattered, left_units: 60, value_len: 1000 };
const ASCENDING: Case = Case { key: ascending, left_units: 24, value_len: 1000 };
/// Lengths of values: of 1,000 bytes four fit a unit; blocks of the longer ones are whole sectors.
const VALUE_LENS: [usize; 4] = [1000, 2100, 4100, 5000];

/// What is merged, and the units left for it.
#[derive(Clone, Copy)]
struct Case {
    key: fn(u64) -> Vec<u8>,
    left_units: u64,
    value_len: usize,
}

/// Neighbours one after the other: then full merges keep most blocks where they are.
fn ascending(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn scattered(number: u64) -> Vec<u8> {
    ascending(number * 7919 % ENTRIES)
}

/// A merge of everything that begins with enough space and then loses it to others; returns the
/// least number of free units when it was recorded.
fn merged_without_room(case: Case) -> Result<u64> {
    let Case { key, left_units, value_len } = case;
    let value = |number: u64| vec![number as u8; value_len];
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let mut subject = Subject::on(device, IndexMeta::default(), options(1 << 20), 16 << 20);
    for number in 0..(CASE_BYTES / value_len) as u64 {
        subject.write(&key(number), Some(&value(number)));
        if number % 1000 == 999 {
            subject.maintain();
        }
    }
    subject.run(Ask::Full);
    (0..200).for_each(|number| subject.write(&key(number), None));
    let blocks = Arc::clone(&subject.env.blocks);
    blocks.keep_for_manifest(MANIFEST_UNITS << 12);
    subject.begin(Ask::Full);
    sim.set_capacity_bytes(sim.used_bytes());
    let mut taken = Vec::new();
    while blocks.space().free_units() > MANIFEST_UNITS + left_units {
        taken.push(blocks.allocate(1, 1, Purpose::Flush, None)?);
    }
    let mut least = u64::MAX;
    // Old space is free when the record is durable.
    let mut record = |_: &_, _: &_| {
        least = least.min(blocks.space().free_units());
        Ok(())
    };
    while subject.tree.step(BackgroundJob::Merge, &mut record)? != Step::Done {}
    taken.into_iter().try_for_each(|extent| blocks.give_back(extent))?;
    subject.check();
    subject.verify_all();
    Ok(least)
}

#[test]
fn a_merge_with_little_space_frees_old_space() {
    for order in [SCATTERED, ASCENDING] {
        for value_len in VALUE_LENS {
            let merged = merged_without_room(Case { value_len, ..order });
            assert!(merged.is_ok(), "{merged:?}, with values of {value_len} bytes");
        }
        let hunt = || planted::with(Bug::ShortMergeNotRecorded, || merged_without_room(order));
        assert!(matches!(hunt(), Err(esker_substrate::Error::Full { .. })));
    }
}

#[test]
fn merges_leave_the_manifest_its_room() {
    let of_the_bug = || planted::with(Bug::ManifestRoomTaken, || merged_without_room(SCATTERED));
    assert!(merged_without_room(SCATTERED).unwrap() >= MANIFEST_UNITS);
    assert!(of_the_bug().unwrap() < MANIFEST_UNITS);
}

/// The units that sorted runs take, and those of the level that a merge makes of them which drops
/// nothing and finds hardly any space. `versions`: of each key.
fn merged_in_short_steps(
    (value_len, versions, codec): (usize, u64, Codec),
    bug: Option<Bug>,
) -> Result<[u64; 2]> {
    const KEYS: u64 = 4_000;
    /// A merge begins with less than it wants.
    const LEFT_UNITS: u64 = 24;
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let mut subject =
        Subject::on(device, IndexMeta::default(), Options { codec, ..options(32 << 10) }, 16 << 20);
    for number in 0..KEYS {
        let key = (number / versions * 7919 % KEYS).to_be_bytes();
        subject.write(&key, Some(&vec![7; value_len]));
        subject.snapshots.push(subject.env.snapshots.register());
        if number % 500 == 499 {
            subject.tree.run(Ask::Flush.work(), &gate, &mut |_, _| Ok(()))?;
        }
    }
    let units = || subject.tree.meta().extents().map(|extent| extent.units).sum();
    let before = units();
    let blocks = Arc::clone(&subject.env.blocks);
    blocks.discard_free()?;
    let left_bytes = LEFT_UNITS.saturating_sub(blocks.space().backed_units()) << 12;
    sim.set_capacity_bytes(sim.used_bytes() + left_bytes);
    let merge = || subject.tree.run(Ask::Full.work(), &gate, &mut |_, _| Ok(()));
    bug.map_or_else(merge, |bug| planted::with(bug, merge))?;
    subject.check();
    Ok([before, units()])
}

#[test]
fn a_merge_with_little_space_takes_no_more_than_it_frees() {
    let sizes = [(8, 1), (200, 1), (200, 8), (700, 1), (1_000, 2), (30, 100)];
    for (value_len, versions) in sizes {
        for codec in [Codec::None, Codec::Lz4] {
            let result = merged_in_short_steps((value_len, versions, codec), None);
            let [before, after] = result.unwrap();
            assert!(after <= before, "{value_len}, {codec:?}: {before} units, and then {after}");
        }
    }
    let hunt =
        |value_len| merged_in_short_steps((value_len, 1, Codec::None), Some(Bug::UnitsLeftEmpty));
    let [before, after] = hunt(8).unwrap();
    assert!(after > before);
    assert!(matches!(hunt(30), Err(esker_substrate::Error::Full { .. })));
}

/// The free units before and after merges of an LSM index without space beyond the reserve. Keys
/// come late, one here and one there: the blocks that slices leave in the level are emptier than
/// those of the runs.
fn merged_into_emptier_blocks(may_use_reserve: bool) -> (u64, u64) {
    const VALUE: [u8; 1000] = [7; 1000];
    const RUN: usize = 128;
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let meta = crate::empty(IndexKind::Lsm);
    // With this growth factor there is one level.
    let params = Params { gamma: 200.0, ..Params::DEFAULT };
    let compaction = Compaction { policy: Policy::RoundRobin, params, ..Compaction::DEFAULT };
    let options = Options { compaction, ..options(128 << 10) };
    let mut subject = Subject::on(device, meta, options, 16 << 20);
    let (late, early): (Vec<_>, Vec<_>) = (0..ENTRIES).partition(|number| number % 3 == 0);
    early.into_iter().for_each(|number| subject.write(&ascending(number), Some(&VALUE)));
    subject.run(Ask::Flush);
    subject.run(Ask::Full);
    for run in 0..4 {
        let part = (0..RUN).map(|at| late[(run * RUN + at) * 791 % late.len()]);
        part.for_each(|number| subject.write(&ascending(number), Some(&VALUE)));
        subject.run(Ask::Flush);
    }
    let blocks = Arc::clone(&subject.env.blocks);
    blocks.keep(Reserve { merge_bytes: 512 << 10, delete_bytes: 512 << 10 });
    // The file grows by the reserve, and then no more.
    drop(blocks.claim_room(1, Claim::Values));
    blocks.discard_free().unwrap();
    sim.set_capacity_bytes(sim.used_bytes());
    let before = blocks.space().backed_units();
    let _allowed = may_use_reserve.then(|| subject.tree.allow_reserve());
    subject.tree.begin(Ask::MergeAlone.work(), &gate).unwrap();
    loop {
        match subject.tree.step(BackgroundJob::Merge, &mut |_, _| Ok(())) {
            Ok(Step::More) => {}
            Ok(_) | Err(esker_substrate::Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    subject.check();
    subject.verify_all();
    (before, blocks.space().backed_units())
}

#[test]
fn slices_leave_the_reserve_to_those_who_make_room() {
    let lost = |(before, after): (u64, u64)| before.saturating_sub(after);
    assert_eq!(lost(merged_into_emptier_blocks(false)), 0);
    assert!(lost(merged_into_emptier_blocks(true)) > 0);
    let hunt = || planted::with(Bug::ReserveMerged, || merged_into_emptier_blocks(false));
    assert!(lost(hunt()) > 0);
}

/// Merges the runs of an LSM index to a level for a caller that makes room, on a full device.
fn merged_to_make_room() -> Result<()> {
    const VALUE: [u8; 1200] = [7; 1200];
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let meta = crate::empty(IndexKind::Lsm);
    let mut subject = Subject::on(device, meta, options(4 << 20), 32 << 20);
    for part in 0..8 {
        let numbers = (part..ENTRIES).step_by(8);
        numbers.for_each(|number| subject.write(&ascending(number), Some(&VALUE)));
        subject.run(Ask::Flush);
    }
    let blocks = Arc::clone(&subject.env.blocks);
    blocks.keep(Reserve { merge_bytes: 256 << 10, delete_bytes: 256 << 10 });
    drop(blocks.claim_room(1, Claim::Values));
    blocks.discard_free().unwrap();
    sim.set_capacity_bytes(sim.used_bytes());
    // More than there is.
    blocks.keep(Reserve { merge_bytes: 512 << 10, delete_bytes: 512 << 10 });
    let _allowed = subject.tree.allow_reserve();
    subject.tree.run(Ask::Full.work(), &gate, &mut |_, _| Ok(()))?;
    subject.check();
    subject.verify_all();
    Ok(())
}

#[test]
fn a_level_takes_no_more_than_its_runs_where_room_is_made() {
    merged_to_make_room().unwrap();
    let hunt = || planted::with(Bug::FullLevelsNotPacked, merged_to_make_room);
    assert!(matches!(hunt(), Err(esker_substrate::Error::Full { .. })));
}

/// The units that merges leave free while range tombstones have no record, and those that they
/// leave free after the same ones have been recorded.
fn left_with_range_tombstones(count: u64) -> (u64, u64) {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let mut subject = Subject::on(device, IndexMeta::default(), options(16 << 20), 64 << 20);
    for number in 0..count {
        subject.remove_range(&ascending(2 * number), Some(&ascending(2 * number + 1)));
    }
    let left = |subject: &Subject| {
        let blocks = &subject.env.blocks;
        sim.set_capacity_bytes(8 << 20);
        let take = || blocks.allocate(1, 1, Purpose::Merge, None).ok();
        let taken: Vec<_> = std::iter::from_fn(take).collect();
        let left = blocks.space().free_units() - subject.tree.owed_bytes().div_ceil(4096);
        taken.into_iter().for_each(|extent| blocks.give_back(extent).unwrap());
        left
    };
    let before = left(&subject);
    subject.run(Ask::Flush);
    (before, left(&subject))
}

#[test]
fn range_tombstones_leave_the_manifest_its_room() {
    const COUNT: u64 = 900;
    // Two keys each, in a file that is eight times as large as its content.
    let least_units = (COUNT * 2 * 9 * 8) >> 12;
    let (before, after) = left_with_range_tombstones(COUNT);
    assert!(before >= after + least_units, "{before} units are left, and then {after}");
    let hunt = planted::with(Bug::TombstonesNotKept, || left_with_range_tombstones(COUNT));
    assert_eq!(hunt.0, hunt.1);
}

/// The bytes that the device has in use when free space beyond the reserve has been discarded.
fn used_after_discarding() -> u64 {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let subject = Subject::on(device, IndexMeta::default(), options(1 << 20), 16 << 20);
    let blocks = &subject.env.blocks;
    blocks.keep(Reserve { merge_bytes: 512 << 10, delete_bytes: 512 << 10 });
    drop(blocks.claim_room(1, Claim::Values));
    blocks.discard_free().unwrap();
    sim.used_bytes()
}

#[test]
fn the_reserve_is_not_discarded() {
    assert!(used_after_discarding() >= 1 << 20);
    assert!(planted::with(Bug::ReserveDiscarded, used_after_discarding) < 1 << 20);
}
