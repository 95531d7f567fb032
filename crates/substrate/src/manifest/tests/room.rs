//! A device with little space for the next epoch.

use super::*;

const KEYSPACES: u32 = 300;

fn create_keyspaces(manifest: &Manifest) {
    for id in (1..=KEYSPACES).map(KeyspaceId) {
        let name = format!("keyspace {id}");
        let edit = Edit::KeyspaceCreate { id, name, memtable_bytes: None };
        manifest.commit(&[edit], Seq(0), Generation(0)).unwrap();
    }
}

/// Bytes of their state, as the first record of an epoch has it.
fn state_bytes() -> u64 {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let manifest = create(&device).unwrap();
    create_keyspaces(&manifest);
    let edits = manifest.state().to_edits();
    let seal = records::seal(STORE, Epoch(1));
    records::encode(seal, 1, Seq(0), Generation(0), &edits).unwrap().len() as u64
}

/// The least space with which the next epoch begins, in bytes. With less it is refused, and nothing
/// has changed.
fn least_room_bytes() -> u64 {
    const STEP_BYTES: u64 = 4096;
    let begins_with = |room_bytes: u64| {
        let sim = Arc::new(SimDevice::new());
        let device: Arc<dyn Device> = sim.clone();
        let (poison, faults) = no_faults();
        let manifest = Manifest::create(&device, STORE, SMALL, &poison, &faults).unwrap();
        create_keyspaces(&manifest);
        let before = manifest.state();
        sim.set_capacity_bytes(sim.used_bytes() + room_bytes);
        let required = manifest.require(1);
        assert_eq!((manifest.state(), poison.reason()), (before, None));
        match required {
            Ok(()) => true,
            Err(Error::Full { .. }) => false,
            Err(error) => panic!("{room_bytes} bytes: {error}"),
        }
    };
    let mut tried = (0..).map(|steps| steps * STEP_BYTES);
    tried.find(|room_bytes| begins_with(*room_bytes)).unwrap()
}

/// Two regions of the power of two that holds `times` times the state.
fn room_of(times: u64) -> u64 {
    2 * (times * state_bytes()).next_power_of_two()
}

#[test]
fn an_epoch_begins_where_there_is_room_for_the_state_twice() {
    let least = least_room_bytes();
    assert!(least <= room_of(2), "{least} of {}", room_of(2));
}

#[cfg(feature = "_planted")]
#[test]
fn an_epoch_that_wants_as_much_room_as_ever_is_found() {
    use crate::planted::{Bug, with};
    let least = with(Bug::RegionNotMadeSmaller, least_room_bytes);
    assert!(least > room_of(2), "{least} of {}", room_of(2));
}
