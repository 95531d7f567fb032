//! The inputs: what a manifest, a log or a backup can hold many of.

use std::sync::Arc;

use esker::{Backup, Db, KeyspaceOptions};
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use esker_format::frame::encode_frame;
use esker_format::frame::{FrameKind, Seal};
use esker_format::ids::{Epoch, Generation, KeyspaceId, SegmentId, Seq, StoreId};
use esker_format::log_record::SegmentHeader;
use esker_format::manifest_edit::{Edit, MANIFEST_GRAIN_BYTES, RecordBody, SegmentRef};
use esker_format::meta::{IndexMeta, TreeMeta};
use esker_format::ptr::Extent;
use esker_format::superblock::{COPIES, SUPERBLOCK_FILE_BYTES, Superblock, slot_offset};
use esker_substrate::Error as Inner;
use esker_substrate::log::segment_name;
use esker_substrate::manifest::ManifestState;

use super::{Shape, Task};

/// All of them.
pub const SHAPES: [Shape; 13] = [
    Shape { name: "keyspaces of one manifest record", size: 1_500, prepare: keyspaces },
    Shape { name: "manifest records", size: 1_000, prepare: records },
    Shape { name: "log segments that the manifest names", size: 250, prepare: segments },
    Shape { name: "segments as edits", size: 4_000, prepare: segment_edits },
    Shape { name: "extents of an index", size: 500, prepare: extents },
    Shape { name: "runs of values", size: 4_000, prepare: runs },
    Shape { name: "keyspaces in the log", size: 500, prepare: logged },
    Shape { name: "operations of a log that does not fit in memory", size: 250, prepare: beyond },
    Shape { name: "keyspaces created", size: 500, prepare: created },
    Shape { name: "keyspaces flushed", size: 250, prepare: flushed },
    Shape { name: "keyspaces checked and counted", size: 500, prepare: checked },
    Shape { name: "keyspaces dropped", size: 250, prepare: dropped },
    Shape { name: "log segments of a backup", size: 60, prepare: backed_up },
];

const STORE: StoreId = StoreId(7);
const EPOCH: Epoch = Epoch(1);

fn keyspace(number: u32) -> Edit {
    let name = format!("{number:07}");
    Edit::KeyspaceCreate { id: KeyspaceId(number), name, memtable_bytes: None }
}

fn closed_segment(number: u32) -> SegmentRef {
    let seq = Seq(u64::from(number));
    let id = SegmentId(u64::from(number));
    SegmentRef { id, file: number, first_seq: seq, bytes: 4096, end_seq: Some(seq) }
}

fn new_file(device: &dyn Device, name: &str, len: u64) -> esker::Result<Arc<dyn DeviceFile>> {
    let file = device.open(name, Open::CreateNew, Caching::Buffered)?;
    file.preallocate(len, Purpose::Manifest)?;
    Ok(file)
}

/// The files of a store whose manifest has these records.
fn store(records: &[Vec<Edit>], data_bytes: u64) -> esker::Result<Arc<dyn Device>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    new_file(device.as_ref(), "data", data_bytes)?;
    let seal = Seal::new(STORE, FrameKind::Manifest, EPOCH.0);
    let mut frames = Vec::new();
    for (edits, number) in records.iter().zip(1..) {
        let body = RecordBody::encode(edits, Generation(1));
        let frame = encode_frame(body, edits.len(), number, 0, seal, MANIFEST_GRAIN_BYTES);
        frames.extend(frame.map_err(|error| Inner::Invalid { what: error.to_string() })?);
    }
    let region_bytes = (frames.len() as u64 * 2).next_power_of_two().max(4096);
    let manifest = new_file(device.as_ref(), "manifest-00000001", 2 * region_bytes)?;
    for region in [0, region_bytes] {
        manifest.write_at(region, &frames, Purpose::Manifest)?;
    }
    let superblock = Superblock { store: STORE, epoch: EPOCH, region_bytes, features: 0 };
    let superblocks = new_file(device.as_ref(), "superblock", SUPERBLOCK_FILE_BYTES)?;
    for copy in 0..COPIES {
        let slot = superblock.encode();
        superblocks.write_at(slot_offset(EPOCH, copy), &slot, Purpose::Manifest)?;
    }
    Ok(device)
}

/// Opens a store; it is closed when it has been measured.
fn opening(device: Arc<dyn Device>) -> Task {
    Box::new(move || {
        let opened = Db::builder_on(device).create(false).open();
        assert!(opened.is_ok(), "{}", opened.map_or_else(|e| e.to_string(), |_| String::new()));
    })
}

fn keyspaces(size: u32) -> esker::Result<Task> {
    Ok(opening(store(&[(1..=size).map(keyspace).collect()], 0)?))
}

fn records(size: u32) -> esker::Result<Task> {
    let records: Vec<_> = (1..=size).map(|number| vec![keyspace(number)]).collect();
    Ok(opening(store(&records, 0)?))
}

fn segments(size: u32) -> esker::Result<Task> {
    let edits = (1..=size).map(|number| Edit::SegmentAdd(closed_segment(number)));
    let create = vec![keyspace(1)];
    let device = store(&[create, edits.collect()], 0)?;
    for number in 1..=size {
        let SegmentRef { id, first_seq, .. } = closed_segment(number);
        let header = SegmentHeader { store: STORE, id, first_seq }.encode();
        let file = new_file(device.as_ref(), &segment_name(number), 4096)?;
        file.write_at(0, &header, Purpose::Log)?;
    }
    // There is no record in them: that is found, in time.
    Ok(Box::new(move || assert!(Db::builder_on(device).create(false).open().is_err())))
}

fn applied(edits: Vec<Edit>) -> Task {
    let record = RecordBody { next_generation: Generation(1), edits };
    Box::new(move || assert!(ManifestState::of_record(&record, Seq(0)).is_ok()))
}

fn segment_edits(size: u32) -> esker::Result<Task> {
    Ok(applied((1..=size).map(|number| Edit::SegmentAdd(closed_segment(number))).collect()))
}

fn extents(size: u32) -> esker::Result<Task> {
    let extents = (0..u64::from(size)).map(|at| Extent { start: 2 * at, units: 1 });
    let main = TreeMeta { top_extents: extents.collect(), ..TreeMeta::default() };
    let index = Arc::new(IndexMeta { main, ..IndexMeta::default() });
    let edits = vec![keyspace(1), Edit::Index { id: KeyspaceId(1), index }];
    Ok(opening(store(&[edits], u64::from(size) * 2 * 4096)?))
}

fn runs(size: u32) -> esker::Result<Task> {
    let one = |at| Edit::OwnedSpace {
        id: KeyspaceId(1),
        taken: vec![Extent { start: 2 * at, units: 1 }],
        freed: Vec::new(),
    };
    let runs = (0..u64::from(size)).map(one);
    Ok(applied(std::iter::once(keyspace(1)).chain(runs).collect()))
}

/// A store in which each keyspace has one entry, in the log.
fn filled(size: u32) -> esker::Result<Db> {
    let db = Db::builder_on(Arc::new(MemoryDevice::new())).open()?;
    fill(&db, size)?;
    Ok(db)
}

fn fill(db: &Db, size: u32) -> esker::Result<()> {
    for number in 0..size {
        let keyspace = db.keyspace(&format!("{number:07}"), KeyspaceOptions::default())?;
        keyspace.insert("key", "value")?;
    }
    Ok(())
}

fn logged(size: u32) -> esker::Result<Task> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let db = Db::builder_on(Arc::clone(&device)).open()?;
    fill(&db, size)?;
    db.close()?;
    Ok(opening(device))
}

/// Each keyspace has the same number of operations in the log, one of each in turn, and the
/// memtables may hold a third of them: of a larger log more, so that it is written out in the same
/// number of parts.
fn beyond(size: u32) -> esker::Result<Task> {
    const OPERATIONS: u32 = 12;
    const VALUE: [u8; 100] = [7; 100];
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let db = Db::builder_on(Arc::clone(&device)).memory_budget(1 << 30).open()?;
    let names = (0..size).map(|number| format!("{number:07}"));
    let keyspaces: esker::Result<Vec<_>> =
        names.map(|name| db.keyspace(&name, KeyspaceOptions::default())).collect();
    let keyspaces = keyspaces?;
    for number in 0..OPERATIONS {
        keyspaces.iter().try_for_each(|keyspace| keyspace.insert(number.to_be_bytes(), VALUE))?;
    }
    drop(keyspaces);
    db.close()?;
    let memory_budget = u64::from(size) * 2048;
    let builder = Db::builder_on(device).create(false).memory_budget(memory_budget);
    Ok(Box::new(move || assert!(builder.open().is_ok())))
}

fn created(size: u32) -> esker::Result<Task> {
    let db = Db::builder_on(Arc::new(MemoryDevice::new())).open()?;
    Ok(Box::new(move || assert!(fill(&db, size).is_ok())))
}

fn flushed(size: u32) -> esker::Result<Task> {
    let db = filled(size)?;
    Ok(Box::new(move || assert!(db.flush().is_ok())))
}

fn checked(size: u32) -> esker::Result<Task> {
    let db = filled(size)?;
    Ok(Box::new(move || {
        assert!(db.check().is_ok_and(|report| report.problems.is_empty()));
        assert!(db.stats().is_ok_and(|stats| stats.keyspaces.len() == size as usize));
    }))
}

fn dropped(size: u32) -> esker::Result<Task> {
    let db = filled(size)?;
    Ok(Box::new(move || {
        for number in 0..size {
            assert!(db.drop_keyspace(&format!("{number:07}")).is_ok_and(|was| was));
        }
    }))
}

fn backed_up(size: u32) -> esker::Result<Task> {
    let backup: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    // Room for all of it in memory: what is measured is the log.
    let db = Db::builder_on(device).log_segment_bytes(16 << 10).memory_budget(1 << 30).open()?;
    let keyspace = db.keyspace("keyspace", KeyspaceOptions::default())?;
    for number in 0..size {
        keyspace.insert(number.to_le_bytes(), vec![7; 9 << 10])?;
    }
    db.backup_on(Arc::clone(&backup), &mut |_| std::ops::ControlFlow::Continue(()))?;
    let backup = Backup::open_on(backup)?;
    let restored: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    Ok(Box::new(move || {
        let done = backup.restore_on(restored, &mut |_| std::ops::ControlFlow::Continue(()));
        assert!(done.is_ok());
        assert!(backup.check().is_ok_and(|report| report.problems.is_empty()));
    }))
}
