//! A store on a small file system that fills up: all of it can be deleted, compacting gives the
//! space back, and writing goes on; also when the process is killed at the moment of `Full`.
//!
//! The file system is ext4 on a loop device where this process may mount one; else a simulated disk
//! of the same size takes its place.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use esker::{Db, Error, IndexKind, Keyspace, KeyspaceOptions};
use esker_device::Device;
use esker_device::sim::SimDevice;
use esker_testkit::counts::{Counts, budget};
use esker_testkit::random::Random;

/// Tells the child what to fill.
const CHILD: &str = "ESKER_FULL_CHILD";
/// Refusals after which a store counts as full. Compactions run in the pauses between them, and
/// must leave deletes their space.
const REFUSALS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);
/// At this budget all stores of 300 MB are tried.
const BUDGET_OF_ALL: u64 = 10;

/// One store on one file system.
#[derive(Clone, Copy, Debug)]
struct Cell {
    fs_bytes: u64,
    index: IndexKind,
    value_bytes: usize,
    memory_budget_bytes: u64,
    log_segment_bytes: u64,
    keys: Keys,
    killed: bool,
    /// Range tombstones delete this many keys each; 0: keys are deleted one by one.
    range_keys: u64,
}

/// The order in which keys are written. They are deleted in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Scattered,
    /// Then full merges of an FD+tree keep their blocks, and what they write is fences.
    Ascending,
}

impl Keys {
    fn key(self, number: u64) -> String {
        match self {
            Self::Scattered => format!("key{:09}", number * 7919 % 1_000_000_007),
            Self::Ascending => format!("key{number:09}"),
        }
    }
}

impl Cell {
    const fn small(index: IndexKind, value_bytes: usize, killed: bool) -> Self {
        // The log's segments are no larger a part of the device than by default.
        let (memory_budget_bytes, log_segment_bytes) = (4 << 20, 512 << 10);
        Self {
            fs_bytes: 48 << 20,
            index,
            value_bytes,
            memory_budget_bytes,
            log_segment_bytes,
            keys: Keys::Scattered,
            killed,
            range_keys: 0,
        }
    }

    const fn large(index: IndexKind, value_bytes: usize, budget_mib: u64, killed: bool) -> Self {
        Self {
            fs_bytes: 300_000_000,
            memory_budget_bytes: budget_mib << 20,
            log_segment_bytes: 4 << 20,
            ..Self::small(index, value_bytes, killed)
        }
    }

    const fn by_ranges(self, range_keys: u64) -> Self {
        Self { range_keys, ..self.ascending() }
    }

    const fn ascending(self) -> Self {
        Self { keys: Keys::Ascending, ..self }
    }

    fn open(&self, place: &Place) -> (Db, Keyspace) {
        let builder = match place {
            Place::Folder { folder, .. } => Db::builder(folder.join("store")),
            Place::Simulated(device) => Db::builder_on(Arc::clone(device) as Arc<dyn Device>),
        };
        let builder = builder.memory_budget(self.memory_budget_bytes);
        let db = builder.log_segment_bytes(self.log_segment_bytes).open().unwrap();
        let options = KeyspaceOptions::default().index(self.index);
        let keyspace = db.keyspace("values", options).unwrap();
        (db, keyspace)
    }

    fn as_words(&self) -> String {
        let Self { fs_bytes, index, value_bytes, memory_budget_bytes, .. } = self;
        let (segment_bytes, ascending) = (self.log_segment_bytes, self.keys == Keys::Ascending);
        let ascending = u64::from(ascending);
        format!(
            "{fs_bytes} {index} {value_bytes} {memory_budget_bytes} {segment_bytes} {ascending}"
        )
    }

    fn of_words(words: &str) -> Self {
        let words: Vec<&str> = words.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        Self {
            fs_bytes: number(0),
            index: words[1].parse().unwrap(),
            value_bytes: number(2) as usize,
            memory_budget_bytes: number(3),
            log_segment_bytes: number(4),
            keys: if number(5) == 0 { Keys::Scattered } else { Keys::Ascending },
            killed: true,
            range_keys: 0,
        }
    }
}

/// The place of a store: a folder, mounted from an image if there is one, or a simulated device.
enum Place {
    Folder { folder: PathBuf, image: Option<PathBuf> },
    Simulated(Arc<SimDevice>),
}

impl Place {
    fn new(bytes: u64, scratch: &Path) -> Self {
        Self::mounted(bytes, scratch).unwrap_or_else(|| {
            let device = Arc::new(SimDevice::new());
            device.set_capacity_bytes(bytes);
            Self::Simulated(device)
        })
    }

    fn mounted(bytes: u64, scratch: &Path) -> Option<Self> {
        let (image, folder) = (scratch.join("image"), scratch.join("mounted"));
        fs::create_dir(&folder).ok()?;
        fs::File::create(&image).ok()?.set_len(bytes).ok()?;
        let run = |command: &mut Command| {
            let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            status.ok().filter(|status| status.success())
        };
        run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&folder))?;
        Some(Self::Folder { folder, image: Some(image) })
    }

    fn used_bytes(&self) -> u64 {
        match self {
            Self::Folder { folder, .. } => {
                let files = fs::read_dir(folder.join("store")).unwrap();
                files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
            }
            Self::Simulated(device) => device.used_bytes(),
        }
    }

    const fn is_mounted(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Folder { folder, image: Some(_) } = self {
            // A process that another test starts has the folder's files for a moment.
            let is_unmounted = |_: u32| {
                std::thread::sleep(PAUSE);
                let umount = Command::new("umount").arg(&*folder).stderr(Stdio::null()).status();
                umount.is_ok_and(|status| status.success())
            };
            let _or_stays_mounted = (0..100).any(is_unmounted);
        }
    }
}

/// Puts until [`REFUSALS`] are refused; returns the number that were not.
fn fill(cell: &Cell, keyspace: &Keyspace, most: u64) -> u64 {
    let random = Random::new(7);
    let (mut written, mut refused) = (0, 0);
    while refused < REFUSALS && written < most {
        match keyspace.insert(cell.keys.key(written), random.bytes(cell.value_bytes)) {
            Ok(()) => written += 1,
            Err(Error::Full { .. }) => {
                refused += 1;
                std::thread::sleep(PAUSE);
            }
            Err(error) => panic!("filling: {error}"),
        }
    }
    written
}

/// Fills in a process of its own, which then ends without closing anything.
fn fill_and_die(cell: &Cell, folder: &Path) -> u64 {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "full_child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{}\n{}", cell.as_words(), folder.display()))
        .stderr(Stdio::null())
        .output()
        .unwrap();
    let lines = String::from_utf8_lossy(&child.stdout).into_owned();
    let written = lines.lines().find_map(|line| line.strip_prefix("WRITTEN ")?.parse().ok());
    assert!(!child.status.success(), "it dies");
    written.unwrap_or_else(|| panic!("the child has not filled the store: {lines}"))
}

#[test]
fn full_child() {
    let Ok(words) = std::env::var(CHILD) else { return };
    let (cell, folder) = words.split_once('\n').unwrap();
    let (cell, folder) = (Cell::of_words(cell), PathBuf::from(folder));
    let (_db, keyspace) = cell.open(&Place::Folder { folder, image: None });
    let written = fill(&cell, &keyspace, u64::MAX);
    println!("\nWRITTEN {written}");
    std::process::abort();
}

fn is_emptied(cell: &Cell, counts: &mut Counts) {
    let scratch = tempfile::tempdir().unwrap();
    let place = Place::new(cell.fs_bytes, scratch.path());
    let (db, keyspace, written) = match &place {
        Place::Folder { folder, .. } if cell.killed => {
            let written = fill_and_die(cell, folder);
            let (db, keyspace) = cell.open(&place);
            (db, keyspace, written)
        }
        _ => {
            let (db, keyspace) = cell.open(&place);
            let written = fill(cell, &keyspace, u64::MAX);
            (db, keyspace, written)
        }
    };
    let full_bytes = place.used_bytes();
    assert!(written * cell.value_bytes as u64 > cell.fs_bytes / 3, "{cell:?}: {written} written");
    for number in (0..written).step_by(cell.range_keys.max(1) as usize) {
        let key = |number| cell.keys.key(number);
        let deleted = match cell.range_keys {
            0 => keyspace.remove(key(number)),
            keys => keyspace.remove_range(key(number)..key(number + keys)),
        };
        deleted.unwrap_or_else(|error| panic!("{cell:?}, {number}: {error}"));
    }
    db.compact().unwrap_or_else(|error| panic!("{cell:?}, compacting: {error}"));
    let left_bytes = place.used_bytes();
    assert!(left_bytes <= full_bytes / 10, "{cell:?}: {left_bytes} of {full_bytes} bytes are left");
    assert!(keyspace.first().unwrap().is_none(), "{cell:?}");
    let again = fill(cell, &keyspace, written / 2);
    assert_eq!(again, written / 2, "{cell:?}: writing goes on");
    let report = db.check().unwrap();
    assert!(report.problems.is_empty(), "{cell:?}: {report:?}");
    db.close().unwrap();
    counts.add("stores", 1);
    counts.add("on a file system", place.is_mounted().into());
    counts.add("values", written);
    counts.add("bytes when full", full_bytes);
    counts.add("bytes when emptied", left_bytes);
}

fn are_emptied(case: &str, cells: &[Cell]) {
    let mut counts = Counts::new("full-device", case);
    for cell in cells {
        is_emptied(cell, &mut counts);
        println!("{cell:?}: {}", counts.line());
    }
    counts.record().unwrap();
}

const VALUES: [usize; 3] = [100, 1000, 300_000];

/// Small stores of both kinds.
fn small(killed: bool) -> Vec<Cell> {
    let cells = |index| VALUES.map(|value_bytes| Cell::small(index, value_bytes, killed));
    let mut all = IndexKind::ALL.map(cells).concat();
    all.extend(IndexKind::ALL.map(|index| Cell::small(index, 100, killed).ascending()));
    all
}

/// Small stores of both kinds that are emptied by ranges.
fn small_by_ranges(killed: bool) -> Vec<Cell> {
    // Many range tombstones take long: killed stores are emptied by few.
    let short: &[_] = if killed { &[] } else { &[(100, 20), (1000, 1)] };
    let ranges = short.iter().copied().chain([(1000, 20)]);
    let cells = |(value_bytes, range_keys)| {
        IndexKind::ALL.map(|index| Cell::small(index, value_bytes, killed).by_ranges(range_keys))
    };
    ranges.flat_map(cells).collect()
}

#[test]
fn small_devices_are_emptied() {
    are_emptied("48 MiB", &small(false));
}

#[test]
fn small_devices_are_emptied_by_ranges() {
    are_emptied("48 MiB, by ranges", &small_by_ranges(false));
}

#[test]
fn small_devices_are_emptied_after_a_kill() {
    are_emptied("48 MiB, killed when full", &small(true));
}

#[test]
fn small_devices_are_emptied_by_ranges_after_a_kill() {
    are_emptied("48 MiB, killed when full, by ranges", &small_by_ranges(true));
}

#[test]
fn devices_of_300_megabytes_are_emptied() {
    let mut cells = Vec::new();
    for index in IndexKind::ALL {
        for value_bytes in VALUES {
            for budget_mib in [16, 64] {
                let cell = |killed| Cell::large(index, value_bytes, budget_mib, killed);
                cells.extend([cell(false), cell(true)]);
            }
        }
        cells.extend(
            [16, 64].map(|budget_mib| Cell::large(index, 100, budget_mib, false).ascending()),
        );
    }
    if budget() < BUDGET_OF_ALL {
        // By default settings: one of large values for each kind of index, and the one whose slices
        // leave blocks emptier than they were.
        cells.retain(|cell| {
            let default = cell.memory_budget_bytes == 64 << 20;
            let is_lsm = cell.index == IndexKind::Lsm;
            match cell.value_bytes {
                300_000 => default && cell.killed == is_lsm,
                1000 => default && is_lsm && !cell.killed,
                _ => false,
            }
        });
    }
    are_emptied("300 MB", &cells);
}
