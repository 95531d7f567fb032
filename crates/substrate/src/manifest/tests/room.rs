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

/// Bytes of their state, as in the first record of an epoch.
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

fn index_of(extents: u64) -> Edit {
    let extents = (0..extents).map(|at| Extent { start: 2 * at, units: 1 }).collect();
    let main = TreeMeta { top_extents: extents, ..TreeMeta::default() };
    let index = IndexMeta { main, ..IndexMeta::default() };
    Edit::Index { id: KeyspaceId(1), index: Arc::new(index) }
}

/// Begins an epoch on a full device, as a store does: it returns kept space to the device, first as
/// much as the present file takes, then twice that amount, and so on.
fn begin_epoch_with(sim: &SimDevice, manifest: &Manifest, kept_bytes: u64) {
    let lent = std::iter::successors(Some(manifest.file_bytes()), |bytes| Some(2 * bytes));
    let used_bytes = sim.used_bytes();
    for bytes in lent {
        sim.set_capacity_bytes(used_bytes + bytes.min(kept_bytes));
        match manifest.begin_epoch(&mut manifest.writer.lock(), 0, 0) {
            Err(Error::Full { .. }) if bytes < kept_bytes => {}
            begun => {
                begun.unwrap();
                break;
            }
        }
    }
    sim.set_capacity_bytes(u64::MAX);
}

/// The space that is kept covers the next file for every state, regardless of its records, also
/// when it has grown since the last epoch began; when it has shrunk, so does the file.
#[test]
fn what_is_kept_for_the_next_file_follows_the_state() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let manifest = create(&device).unwrap();
    let commit = |edit: Edit| manifest.commit(&[edit], Seq(0), Generation(0)).unwrap();
    let (id, name) = (KeyspaceId(1), "keyspace".to_string());
    commit(Edit::KeyspaceCreate { id, name, memtable_bytes: None });
    for extents in [0, 10, 100, 200, 300, 400, 800, 1600, 3200] {
        commit(index_of(extents));
        let kept_bytes = manifest.next_bytes();
        let used_bytes = sim.used_bytes();
        begin_epoch_with(&sim, &manifest, kept_bytes);
        // The file after that one is kept, too.
        let left_bytes = used_bytes + kept_bytes - sim.used_bytes();
        assert!(manifest.next_bytes() <= left_bytes, "{extents}: {left_bytes}");
        let frame_bytes = records::encode(
            records::seal(STORE, Epoch(1)),
            1,
            Seq(0),
            Generation(0),
            &manifest.state().to_edits(),
        );
        let most = KEPT_TIMES * frame_bytes.unwrap().len() as u64;
        assert!(kept_bytes <= 2 * most.max(SMALL.region_bytes_min), "{extents}: {kept_bytes}");
    }
    let long_bytes = manifest.file_bytes();
    manifest.shrink().unwrap();
    assert_eq!(manifest.file_bytes(), long_bytes);
    commit(index_of(0));
    manifest.shrink().unwrap();
    assert_eq!(manifest.file_bytes(), 2 * SMALL.region_bytes_min);
    assert!(long_bytes > manifest.file_bytes());
    let state = manifest.state();
    drop(manifest);
    assert_eq!(open(&device).unwrap().0.state(), state);
}
