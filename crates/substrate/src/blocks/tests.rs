//! Space of a device that is full.

use esker_device::sim::SimDevice;

use super::*;

const STORE: StoreId = StoreId(7);

fn device() -> (Arc<SimDevice>, Arc<dyn Device>) {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = Arc::clone(&sim) as _;
    (sim, device)
}

#[test]
fn an_opened_store_discards_what_an_earlier_run_had_allocated() {
    let (sim, device) = device();
    let blocks = BlockStore::create(&device, STORE, 1 << 16).unwrap();
    let allocate = || blocks.allocate(1, 1, Purpose::Merge, None).unwrap();
    let extents: Vec<_> = (0..100).map(|_| allocate()).collect();
    drop(blocks);
    // Every second one is in use, and the last one.
    let used = extents.into_iter().skip(1).step_by(2);
    let blocks = BlockStore::open(&device, STORE, 1 << 16, used, Generation(1)).unwrap();
    blocks.discard_free().unwrap();
    assert_eq!(sim.used_bytes(), (50 + room::MARGIN_UNITS) * UNIT_BYTES);
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
