//! A manifest on a memory device and on a simulated disk, against a list of states.

use std::collections::BTreeMap;

use esker_device::memory::MemoryDevice;
use esker_device::sim::{
    CrashCounts, CrashOptions, Effect, Failure, Fault, FaultPlan, OpKind, SimDevice, Trace,
};
use esker_format::ids::{KeyspaceId, SegmentId};
use esker_format::manifest_edit::SegmentRef;
use esker_format::meta::{IndexMeta, TreeMeta};
use esker_format::ptr::Extent;

use super::*;
use crate::fault::{Fault as Injected, POINTS};

mod crash;
mod damage;
mod room;

const STORE: StoreId = StoreId(0x5eed);
/// Regions of 4 KiB: eight records, so that epochs change often.
const SMALL: ManifestOptions = ManifestOptions { region_bytes_min: 4096 };

fn no_faults() -> (Arc<Poison>, Arc<FaultPoints>) {
    Default::default()
}

fn create(device: &Arc<dyn Device>) -> Result<Arc<Manifest>> {
    let (poison, faults) = no_faults();
    Manifest::create(device, STORE, SMALL, &poison, &faults)
}

fn open(device: &Arc<dyn Device>) -> Result<(Arc<Manifest>, Vec<Problem>)> {
    let (poison, faults) = no_faults();
    Manifest::open(device, SMALL, &poison, &faults)
}

/// The `n`-th edit of a history that touches every kind of edit.
fn nth_edit(n: u64) -> Vec<Edit> {
    let keyspace = KeyspaceId(n as u32 / 6 + 1);
    let segment = SegmentRef {
        id: SegmentId(n),
        file: n as u32,
        first_seq: Seq(n),
        bytes: 4096,
        end_seq: Some(Seq(n)),
    };
    match n % 6 {
        0 => vec![Edit::KeyspaceCreate {
            id: keyspace,
            name: format!("keyspace {n}"),
            memtable_bytes: n.is_multiple_of(4).then_some(n + 1),
        }],
        1 | 2 => {
            // Long enough for a record to tear.
            let extents = (0..n * 37 % 300).map(|at| Extent { start: at + n, units: 1 }).collect();
            let main = TreeMeta { top_extents: extents, ..TreeMeta::default() };
            let index = IndexMeta { flushed_seq: Seq(n), merges: n, main, ..IndexMeta::default() };
            vec![Edit::Index { id: keyspace, index: Arc::new(index) }]
        }
        3 => vec![Edit::SegmentAdd(segment)],
        4 if n > 12 => vec![
            Edit::SegmentRemove { id: SegmentId(n - 7) },
            Edit::KeyspaceDrop { id: KeyspaceId(keyspace.0 - 1) },
        ],
        4 => vec![Edit::SegmentRemove { id: SegmentId(77) }],
        _ => vec![Edit::CleanClose { seq: Seq(n) }],
    }
}

fn commit_nth(manifest: &Manifest, n: u64) -> Result<()> {
    manifest.commit(&nth_edit(n), Seq(n), Generation(n))
}

/// The states after 0, 1, … commits of the history.
fn states(count: u64) -> Vec<ManifestState> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let manifest = create(&device).unwrap();
    let mut states = vec![ManifestState::clone(&manifest.state())];
    for n in 0..count {
        commit_nth(&manifest, n).unwrap();
        states.push(ManifestState::clone(&manifest.state()));
    }
    states
}

#[test]
fn what_is_committed_is_there_after_opening_again() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    assert_eq!(probe(device.as_ref()).unwrap(), Presence::Empty);
    drop(create(&device).unwrap());
    assert_eq!(probe(device.as_ref()).unwrap(), Presence::Store);
    let states = states(60);
    for (n, state) in (0..).zip(&states) {
        let (manifest, problems) = open(&device).unwrap();
        assert_eq!((&*manifest.state(), problems), (state, vec![]), "after {n} commits");
        assert_eq!(manifest.verify(), []);
        assert_eq!(manifest.store(), STORE);
        commit_nth(&manifest, n).unwrap();
        assert_eq!(manifest.verify(), []);
    }
    let (manifest, _) = open(&device).unwrap();
    assert!(manifest.epoch() > Epoch(2), "{}", manifest.epoch());
    let manifests =
        device.list().unwrap().iter().filter(|name| manifest_epoch(name).is_some()).count();
    assert_eq!(manifests, 1);
}

#[test]
fn a_commit_costs_two_writes_and_one_sync() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let manifest = create(&device).unwrap();
    sim.set_faults(FaultPlan::new());
    commit_nth(&manifest, 0).unwrap();
    assert_eq!(sim.op_count(), 3);
}

#[test]
fn opening_writes_nothing() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    commit_nth(&create(&device).unwrap(), 0).unwrap();
    sim.record();
    let (manifest, _) = open(&device).unwrap();
    assert_eq!(manifest.verify(), []);
    assert!(sim.take_trace().unwrap().is_empty());
    manifest.retry_last_record().unwrap();
    let ops = sim.op_count();
    manifest.retry_last_record().unwrap();
    assert_eq!(sim.op_count(), ops);
}

#[test]
fn a_record_larger_than_a_region_gets_a_larger_region() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let manifest = create(&device).unwrap();
    let edits: Vec<_> = (1..200)
        .map(|id| Edit::KeyspaceCreate {
            id: KeyspaceId(id),
            name: format!("{id:0>100}"),
            memtable_bytes: None,
        })
        .collect();
    manifest.commit(&edits, Seq(0), Generation(0)).unwrap();
    assert!(manifest.bytes() > 64 * 1024);
    let (again, _) = open(&device).unwrap();
    assert_eq!(again.state(), manifest.state());
    assert_eq!(again.state().keyspaces.len(), 199);
}

#[test]
fn an_edit_that_does_not_fit_changes_nothing() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let manifest = create(&device).unwrap();
    let before = manifest.state();
    let edits = [nth_edit(0), vec![Edit::KeyspaceDrop { id: KeyspaceId(9) }]].concat();
    let error = manifest.commit(&edits, Seq(5), Generation(5)).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert_eq!(manifest.state(), before);
    commit_nth(&manifest, 0).unwrap();
}

#[test]
fn numbers_never_go_back() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let manifest = create(&device).unwrap();
    manifest.commit(&nth_edit(0), Seq(9), Generation(9)).unwrap();
    manifest.commit(&nth_edit(1), Seq(3), Generation(0)).unwrap();
    let state = manifest.state();
    assert_eq!((state.durable_seq, state.next_generation), (Seq(9), Generation(9)));
}

#[test]
fn another_stores_manifest_is_refused() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    commit_nth(&create(&device).unwrap(), 0).unwrap();
    let other: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let (poison, faults) = no_faults();
    Manifest::create(&other, StoreId(1), SMALL, &poison, &faults).unwrap();
    let name = manifest_name(Epoch(1));
    let from = other.open(&name, Open::Existing, Caching::Buffered).unwrap();
    let to = device.open(&name, Open::Existing, Caching::Buffered).unwrap();
    let mut bytes = vec![0; from.len().unwrap() as usize];
    from.read_at(0, &mut bytes, Purpose::Check).unwrap();
    to.write_at(0, &bytes, Purpose::Manifest).unwrap();
    assert!(matches!(open(&device), Err(Error::Corrupt { .. })));
}

#[test]
fn a_full_device_refuses_an_epoch_and_nothing_else() {
    let sim = Arc::new(SimDevice::new());
    let device: Arc<dyn Device> = sim.clone();
    let (poison, faults) = no_faults();
    let manifest = Manifest::create(&device, STORE, SMALL, &poison, &faults).unwrap();
    sim.set_capacity_bytes(SUPERBLOCK_FILE_BYTES + 2 * 4096 + 4096);
    let mut done = 0;
    let error = loop {
        match commit_nth(&manifest, done) {
            Ok(()) => done += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert_eq!(poison.reason(), None);
    let before = manifest.state();
    assert_eq!(*open(&device).unwrap().0.state(), *before);
    sim.set_capacity_bytes(1 << 30);
    commit_nth(&manifest, done).unwrap();
    assert_eq!(*open(&device).unwrap().0.state(), states(done + 1)[done as usize + 1]);
}

#[test]
fn every_fault_point_poisons_and_loses_nothing_acknowledged() {
    let states = states(30);
    for point in POINTS {
        let sim = Arc::new(SimDevice::new());
        let device: Arc<dyn Device> = sim.clone();
        let (poison, faults) = no_faults();
        let manifest = Manifest::create(&device, STORE, SMALL, &poison, &faults).unwrap();
        faults.arm(point, 2, Injected::Io, false);
        let failed = (0..30).find(|n| commit_nth(&manifest, *n).is_err());
        assert_eq!(failed.is_some(), !point.starts_with("log."), "{point}");
        let Some(failed) = failed else { continue };
        assert!(matches!(commit_nth(&manifest, failed), Err(Error::Poisoned { .. })), "{point}");
        assert_eq!(*manifest.state(), states[failed as usize]);
        let (again, problems) = open(&device).unwrap();
        assert_eq!(problems, []);
        let n = failed as usize;
        assert!([&states[n], &states[n + 1]].contains(&&*again.state()), "{point}");
    }
}
