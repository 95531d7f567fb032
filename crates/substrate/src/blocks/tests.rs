//! Space of a device that is full.

use esker_device::sim::SimDevice;

use super::*;

const STORE: StoreId = StoreId(7);

fn device() -> (Arc<SimDevice>, Arc<dyn Device>) {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    (sim, device)
}

/// The units of the device that are in use when a store with 50 units in use has been opened, and
/// has discarded its free space.
fn used_after_opening() -> u64 {
    let (sim, device) = device();
    let blocks = BlockStore::create(&device, STORE, 1 << 16).unwrap();
    let allocate = || blocks.allocate(1, 1, Purpose::Merge, None).unwrap();
    let extents: Vec<_> = (0..100).map(|_| allocate()).collect();
    drop(blocks);
    // Every second one is in use, and the last one.
    let used = extents.into_iter().skip(1).step_by(2);
    let blocks = BlockStore::open(&device, STORE, 1 << 16, used, Generation(1)).unwrap();
    blocks.discard_free().unwrap();
    sim.used_bytes() / UNIT_BYTES
}

#[test]
fn an_opened_store_discards_what_an_earlier_run_had_allocated() {
    assert_eq!(used_after_opening(), 50 + room::MARGIN_UNITS);
}

#[cfg(feature = "_planted")]
#[test]
fn free_space_that_stays_allocated_is_found() {
    assert!(planted::with(Bug::UnknownNotDiscarded, used_after_opening) > 90);
}

#[test]
fn what_is_kept_is_taken_from_others_as_far_as_there_is_any() {
    const CAPACITY_BYTES: u64 = 100 * UNIT_BYTES;
    let (sim, device) = device();
    sim.set_capacity_bytes(CAPACITY_BYTES);
    let blocks = BlockStore::create(&device, STORE, 1 << 16).unwrap();
    blocks.keep(Reserve { merge_bytes: CAPACITY_BYTES, delete_bytes: 0 });
    let refused = blocks.claim_room(1, Claim::Values);
    assert!(matches!(refused, Err(Error::Full { .. })));
    assert_eq!(sim.used_bytes(), CAPACITY_BYTES);
}

#[test]
fn a_refused_write_does_not_take_back_what_is_lent() {
    let (sim, device) = device();
    let blocks = BlockStore::create(&device, STORE, 1 << 16).unwrap();
    blocks.keep(Reserve { merge_bytes: 64 * UNIT_BYTES, delete_bytes: 0 });
    drop(blocks.claim_room(1, Claim::Values).unwrap());
    sim.set_capacity_bytes(sim.used_bytes());
    let lending = blocks.lending();
    blocks.lend(32 * UNIT_BYTES).unwrap();
    let lent = sim.used_bytes();
    for claim in [Claim::Values, Claim::Deletes] {
        let refused = blocks.claim_room(1, claim);
        assert!(matches!(refused, Err(Error::Full { .. })));
        assert_eq!(sim.used_bytes(), lent);
    }
    drop(lending);
    blocks.refill().unwrap();
    assert!(sim.used_bytes() > lent);
}

/// A store on a device that is full: every second unit of the data file is free.
fn in_pieces(units: u64) -> (Arc<SimDevice>, BlockStore) {
    let (sim, device) = device();
    sim.set_capacity_bytes(units * UNIT_BYTES);
    let blocks = BlockStore::create(&device, STORE, 1 << 16).unwrap();
    let allocate = |_| blocks.allocate(1, 1, Purpose::Flush, None).unwrap();
    let extents: Vec<_> = (0..units).map(allocate).collect();
    extents.into_iter().step_by(2).for_each(|extent| blocks.give_back(extent).unwrap());
    (sim, blocks)
}

#[test]
fn free_units_of_a_full_device_are_made_adjacent() {
    let (sim, blocks) = in_pieces(100);
    let mut taken = Vec::new();
    for units in [4, 7, 4, 4, 16, 15] {
        let extent = blocks.allocate(2 * units, units, Purpose::Flush, None).unwrap();
        assert_eq!(extent.units, units);
        taken.push(extent);
    }
    assert_eq!(sim.used_bytes(), 100 * UNIT_BYTES);
    let refused = blocks.allocate(1, 1, Purpose::Flush, None);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    let end = blocks.end();
    // What has been given back is used again, and the file does not become longer.
    for _ in 0..20 {
        taken.iter().for_each(|extent| blocks.give_back(*extent).unwrap());
        for extent in &mut taken {
            let units = extent.units;
            *extent = blocks.allocate(units, units, Purpose::Flush, None).unwrap();
        }
    }
    assert_eq!(blocks.end(), end);
}

#[test]
fn units_are_made_adjacent_only_of_those_that_are_not_kept() {
    let (sim, blocks) = in_pieces(100);
    blocks.owe(40 * UNIT_BYTES);
    let refused = blocks.allocate(11, 11, Purpose::Flush, None);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    let lending = blocks.lending();
    let refused = blocks.allocate(10, 10, Purpose::Flush, None);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    drop(lending);
    assert_eq!((sim.used_bytes(), blocks.end()), (100 * UNIT_BYTES, 100));
    blocks.allocate(10, 10, Purpose::Flush, None).unwrap();
    assert_eq!((sim.used_bytes(), blocks.end()), (100 * UNIT_BYTES, 110));
    assert_eq!(blocks.space().backed_units(), 40);
}

/// Units 0 to 49 are in use, those behind them are free, and so are some before them: an extent at
/// the end of what is in use is made longer only where no long one begins at a lower place.
#[test]
fn an_extent_is_made_longer_where_no_lower_place_is_as_good() {
    let (sim, device) = device();
    sim.set_capacity_bytes(100 * UNIT_BYTES);
    let blocks = BlockStore::create(&device, STORE, 1 << 16).unwrap();
    let all = blocks.allocate(100, 100, Purpose::Flush, None).unwrap();
    let part = |start, units| Extent { start: all.start + start, units };
    blocks.give_back(part(50, 50)).unwrap();
    let last = part(40, 10);
    let behind = |units, least, purpose| blocks.allocate_behind(last, units, least, purpose, None);
    let back = |extent: Option<Extent>| blocks.give_back(extent.unwrap()).unwrap();
    assert_eq!(behind(51, 51, Purpose::Flush), None, "there are 50");
    let found = behind(16, 1, Purpose::Flush);
    assert_eq!(found, Some(part(50, 16)));
    back(found);
    // Merges take a quarter of the spare space at once, unless they need more.
    let found = behind(16, 1, Purpose::Merge);
    assert_eq!(found, Some(part(50, 8)));
    back(found);
    blocks.owe(10 * UNIT_BYTES);
    assert_eq!(behind(50, 41, Purpose::Flush), None, "what is owed is kept");
    let found = behind(50, 40, Purpose::Flush);
    assert_eq!(found, Some(part(50, 40)));
    back(found);
    blocks.give_back(part(10, 3)).unwrap();
    assert_eq!(behind(16, 1, Purpose::Flush), Some(part(50, 16)), "three units are too few");
    blocks.give_back(part(50, 16)).unwrap();
    blocks.give_back(part(13, 13)).unwrap();
    assert_eq!(behind(16, 1, Purpose::Flush), None, "as allocate, which goes to the lower place");
    assert_eq!(behind(64, 1, Purpose::Flush), Some(part(50, 32)), "for which 16 are too few");
}
