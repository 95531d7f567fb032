//! Merges on a device with hardly any space.

use esker_device::sim::SimDevice;
use esker_substrate::error::Result;
use esker_substrate::planted::{self, Bug};

use super::*;

const ENTRIES: u64 = 12_000;
/// Units that are kept for the manifest, and the units left in addition: a part of what merges
/// write. Where blocks stay that is fences.
const MANIFEST_UNITS: u64 = 16;
const SCATTERED: (fn(u64) -> Vec<u8>, u64) = (scattered, 60);
const ASCENDING: (fn(u64) -> Vec<u8>, u64) = (ascending, 24);

/// Neighbours one after the other: then full merges keep most blocks where they are.
fn ascending(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

fn scattered(number: u64) -> Vec<u8> {
    ascending(number * 7919 % ENTRIES)
}

/// A merge of everything that begins with enough space and then loses it to others; returns the
/// least number of free units when it was recorded.
fn merged_without_room((key, left_units): (fn(u64) -> Vec<u8>, u64)) -> Result<u64> {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    let mut subject = Subject::on(device, IndexMeta::default(), options(1 << 20), 16 << 20);
    for number in 0..ENTRIES {
        subject.write(&key(number), Some(&[number as u8; 1000]));
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
fn a_merge_with_hardly_any_room_lets_go_of_old_space() {
    for order in [SCATTERED, ASCENDING] {
        merged_without_room(order).unwrap();
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
