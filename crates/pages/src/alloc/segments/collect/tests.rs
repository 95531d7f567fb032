//! Segment allocation over a device that insists on what raw flash insists on.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, DeviceFile, Open, Purpose};
use parking_lot::Mutex;

use super::{Goal, Mover, Pass};
use crate::log::opening;
use crate::media::{FileMedia, Geometry, Media};
use crate::store::PageStore;
use crate::{Allocation, Durability, Options, Snapshot};

const SEGMENT: u32 = 16 * 1024;

/// A device that checks how far each block is programmed.
#[derive(Debug)]
struct Strict {
    file: FileMedia,
    programmed: Mutex<BTreeMap<u64, u64>>,
}

impl Strict {
    fn over(file: &Arc<dyn DeviceFile>, block_bytes: u32) -> Arc<dyn Media> {
        let file = FileMedia::new(Arc::clone(file), block_bytes);
        Arc::new(Self { file, programmed: Mutex::default() })
    }
}

impl Media for Strict {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn bytes(&self) -> esker_device::Result<u64> {
        self.file.bytes()
    }

    fn geometry(&self) -> esker_device::Result<Geometry> {
        self.file.geometry()
    }

    fn read(&self, at: u64, buf: &mut [u8], purpose: Purpose) -> esker_device::Result<()> {
        self.file.read(at, buf, purpose)
    }

    fn write(&self, at: u64, bytes: &[u8], purpose: Purpose) -> esker_device::Result<()> {
        self.file.write(at, bytes, purpose)
    }

    fn program(&self, at: u64, bytes: &[u8], purpose: Purpose) -> esker_device::Result<()> {
        let (block, start) = (at / u64::from(SEGMENT), at % u64::from(SEGMENT));
        let end = start + bytes.len() as u64;
        let mut programmed = self.programmed.lock();
        let before = programmed.insert(block, end).unwrap();
        assert!(before <= start && end <= SEGMENT.into(), "{before}, {start}, {end}");
        self.file.program(at, bytes, purpose)
    }

    fn erase(&self, block: u32) -> esker_device::Result<()> {
        // The old contents are lost.
        let bytes = vec![0xff; SEGMENT as usize];
        self.file.program(u64::from(block) * u64::from(SEGMENT), &bytes, Purpose::Gc)?;
        self.programmed.lock().insert(block.into(), 0);
        self.file.erase(block)
    }

    fn flush(&self, purpose: Purpose) -> esker_device::Result<()> {
        self.file.flush(purpose)
    }

    fn truncate(&self, bytes: u64) -> esker_device::Result<()> {
        self.file.truncate(bytes)
    }
}

fn options() -> Options {
    let options = Options::new().page_size(512).segment_bytes(SEGMENT);
    Options {
        allocation: Allocation::Segment,
        delta_bytes: 0,
        spill_bytes: 16 * 512,
        checkpoint_bytes: 64 * 1024,
        relaxed_interval: None,
        ..options
    }
}

fn store() -> PageStore {
    let file = MemoryDevice::new().open("pages", Open::CreateNew, Caching::Buffered).unwrap();
    PageStore::over(opening::open_on(file, options(), Strict::over).unwrap())
}

/// Writes these pages whole, with one byte.
fn commit(store: &PageStore, pages: impl Iterator<Item = u32>, byte: u8) -> Snapshot {
    let mut writer = store.begin(&store.pin()).unwrap();
    for page in pages {
        writer.write(page, 0, &[byte; 512]).unwrap();
    }
    writer.commit(Durability::Full).unwrap()
}

fn is_all(snapshot: &Snapshot, byte: impl Fn(u32) -> u8) -> bool {
    (0..snapshot.pages()).all(|page| {
        let mut read = [0; 512];
        snapshot.read(page, 0, &mut read).unwrap();
        read == [byte(page); 512]
    })
}

/// In every case, blocks are programmed in order, each page once between two erases, and an erased
/// block holds nothing that is needed.
#[test]
fn blocks_are_programmed_in_order_and_erased_before() {
    let store = store();
    let mut model = vec![0; 300];
    let mut held = Vec::new();
    for round in 1..600_u32 {
        let byte = round as u8 | 1;
        let (first, count) = (round * 37 % 300, [1, 3, 40, 2][round as usize % 4]);
        let pages = (0..count).map(|n| (first + n * 7) % 300);
        let snapshot = commit(&store, pages.clone(), byte);
        pages.for_each(|page| model[page as usize] = byte);
        if round % 50 == 0 {
            let pages = snapshot.pages() as usize;
            held.push((snapshot, model[..pages].to_vec()));
        }
        if round % 120 == 0 {
            held.remove(0);
            store.collect().unwrap();
        }
    }
    let stats = store.stats();
    assert!(stats.moved_pages > 1000 && stats.emptied_segments > 100, "{stats:?}");
    for (snapshot, model) in &held {
        assert!(is_all(snapshot, |page| model[page as usize]));
    }
    assert!(is_all(&store.pin(), |page| model[page as usize]));
    assert!(store.check().unwrap().accounted);
}

/// A reader keeps the old places unchanged for as long as it reads.
#[test]
fn an_old_place_waits_for_whoever_reads_there() {
    let store = store();
    commit(&store, 0..64, 7);
    let held = commit(&store, (0..64).step_by(2), 9);
    let before = held.root();
    let place = before.map.get(1);
    assert!(store.collect().unwrap() > 0);
    assert_ne!(held.root().map.get(1).entry.slot, place.entry.slot);
    for byte in 0..40 {
        commit(&store, 100..140, byte);
        store.collect().unwrap();
    }
    // Of this root all: what moves later was at the same places in it.
    for number in 0..64 {
        let mut page = [0; 512];
        let mapping = before.map.get(number);
        store.engine().read_mapping(&mapping, &mut page, Purpose::User).unwrap();
        assert_eq!(page, [if number % 2 == 0 { 9 } else { 7 }; 512], "{number}");
    }
    drop(before);
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let core = store.engine().core.lock();
    assert!(core.retired.iter().all(|retired| !retired.places.contains(&place.entry.slot)));
    assert_eq!(core.space.slot_bytes(place.entry.slot), 0);
    drop(core);
    assert!(is_all(&held, |page| if page % 2 == 0 { 9 } else { 7 }));
}

/// A page that cannot be read stays where it is: its readers get the error, and no other reader
/// does.
#[test]
fn a_damaged_page_is_not_moved() {
    let store = store();
    let first = commit(&store, 0..32, 7);
    let place = first.root().map.get(5).entry.slot;
    drop(first);
    commit(&store, (0..32).filter(|page| *page != 5 && *page != 6), 9);
    let engine = store.engine();
    engine.media.write(place.offset() + 9, &[1], Purpose::User).unwrap();
    store.collect().unwrap();
    let now = store.pin();
    assert_eq!(now.root().map.get(5).entry.slot, place);
    assert!(now.read(5, 0, &mut [0; 512]).is_err());
    let mut page = [0; 512];
    now.read(6, 0, &mut page).unwrap();
    assert_eq!(page, [7; 512]);
}

/// Commits that are faster than the concurrent collection collect for themselves, and neither
/// disturbs the other.
#[test]
fn the_file_is_bounded_while_the_collection_is_slow() {
    let store = store();
    let engine = store.engine();
    commit(&store, 0..300, 1);
    let mut model = vec![1; 300];
    let mut most = 0;
    for round in 0..20_u32 {
        let load = {
            let mut core = engine.core.lock();
            core.mover = Mover::Collector(None);
            let goal = Goal { free: u32::MAX, live_bytes_max: u64::MAX };
            let candidates = core.space.candidates().into_iter();
            let mut pass = Pass { goal, candidates, emptied: 0 };
            let load = engine.next_load(&mut core, &mut pass);
            core.mover = Mover::Collector(load.as_ref().and_then(|load| load.row));
            load
        };
        for step in 0..300 {
            let page = (round * 37 + step * step * 7) % 300;
            commit(&store, std::iter::once(page), step as u8);
            model[page as usize] = step as u8;
            most = most.max(store.stats().file_bytes);
        }
        if let Some(load) = load {
            let copied = engine.copy(&load);
            engine.finish_load(&mut engine.core.lock(), load, &copied);
        }
        engine.core.lock().mover = Mover::None;
    }
    assert!(is_all(&store.pin(), |page| model[page as usize]));
    assert!(store.check().unwrap().accounted);
    // What lives, a quarter more by default, and some segments.
    assert!(most < 300 * 512 * 5 / 4 + 30 * u64::from(SEGMENT), "{most}");
}
