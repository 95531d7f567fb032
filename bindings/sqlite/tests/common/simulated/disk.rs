//! Databases of SQLite on a simulated disk.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

use esker_device::sim::{SimDevice, SimImage};
use esker_device::wrap::{Hook, Step, StepKind, Wrapped};
use esker_device::{Caching, Device, Open};
use esker_harness::violation::{Oracle, Verdict, ensure};
use esker_pages::{Missing, Options, PageStore};
use esker_sqlite::open_stores::Access;
use esker_sqlite::test_mount::{self, Mounted};
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

/// Of marks that say which super-journals are there; the others number points.
pub const PRESENCE: u64 = 1 << 62;

/// Super-journals: their paths and what they hold. One is left over where a crash came before
/// SQLite removed it.
pub type SuperJournals = BTreeMap<PathBuf, Vec<u8>>;

/// Small segments and bounds, so that short traces meet checkpoints, spills and full segments.
pub fn small() -> Options {
    let mut options = Options::new().page_size(512).segment_bytes(16 * 1024);
    options.spill_bytes = 24 * 512;
    options.checkpoint_bytes = 24 * 1024;
    options.delta_bytes = 64 * 1024;
    options.relaxed_interval = None;
    options.relaxed_bytes = 64 * 1024;
    options
}

/// Notes in the trace when a super-journal, which is in the file system, came or went: just before
/// the disk's next event.
#[derive(Debug)]
struct Watch {
    disk: SimDevice,
    folder: PathBuf,
    history: Arc<Mutex<Vec<SuperJournals>>>,
    /// After how many syncs the super-journal goes; 0 for never.
    removes_after: Arc<AtomicU64>,
}

impl Hook for Watch {
    fn after(&self, step: Step) {
        let left = &self.removes_after;
        let counts = step.kind == StepKind::Sync && left.load(Ordering::Relaxed) > 0;
        if counts && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            put_super_journals(&self.folder, &SuperJournals::new());
        }
    }

    fn before(&self, step: Step) {
        if step.kind == StepKind::Read {
            return;
        }
        let now = super_journals(&self.folder);
        let mut history = self.history.lock().unwrap();
        if history.last() != Some(&now) {
            history.push(now);
            self.disk.mark(PRESENCE | (history.len() as u64 - 1));
        }
    }
}

/// A folder for databases, in memory where that is possible: SQLite syncs super-journals.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The super-journals that are in a folder.
pub fn super_journals(folder: &Path) -> SuperJournals {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains("-mj"))
    };
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap_or_default();
        (path, bytes)
    };
    paths.filter(is_one).map(read).collect()
}

/// Puts super-journals there, and takes away all others.
pub fn put_super_journals(folder: &Path, wanted: &SuperJournals) {
    for path in super_journals(folder).into_keys() {
        std::fs::remove_file(path).unwrap();
    }
    for (path, bytes) in wanted {
        std::fs::write(path, bytes).unwrap();
    }
}

/// A simulated disk whose databases SQLite finds in a folder while this lives.
#[derive(Debug)]
pub struct Disk {
    pub device: SimDevice,
    pub folder: PathBuf,
    /// The super-journals that were there at first, then whenever one came or went, as the marks
    /// number them.
    pub history: Arc<Mutex<Vec<SuperJournals>>>,
    /// After how many syncs the super-journal goes, as if SQLite had removed it and did not know.
    pub removes_after: Arc<AtomicU64>,
    options: Options,
    _mounted: Mounted,
}

impl Disk {
    pub fn mount(device: SimDevice, folder: &Path, options: &Options) -> Self {
        let history = Arc::new(Mutex::new(vec![super_journals(folder)]));
        let removes_after: Arc<AtomicU64> = Arc::default();
        let watch = Watch {
            removes_after: Arc::clone(&removes_after),
            disk: device.clone(),
            folder: folder.to_owned(),
            history: Arc::clone(&history),
        };
        let watched = Wrapped::around(Arc::new(device.clone()), watch);
        let (kept, options) = (options.clone(), options.clone());
        let open = move |name: &str, access: Access| {
            let is_there = watched.list()?.iter().any(|there| there == name);
            if is_there || access != Access::Write(Missing::Create) {
                let file = watched.open(name, Open::Existing, Caching::Buffered)?;
                return Ok((file, options.clone()));
            }
            let file = watched.open(name, Open::CreateNew, Caching::Buffered)?;
            watched.sync_dir()?;
            Ok((file, options.clone()))
        };
        let mounted = test_mount::mount(folder, Arc::new(open));
        let folder = folder.to_owned();
        Self { device, folder, history, removes_after, options: kept, _mounted: mounted }
    }

    pub fn of_image(image: &SimImage, folder: &Path, options: &Options) -> Self {
        Self::mount(SimDevice::from_image(image), folder, options)
    }

    /// Opens a store without SQLite.
    pub fn store(&self, name: &str) -> esker_pages::Result<PageStore> {
        let file = self.device.open(name, Open::Existing, Caching::Buffered)?;
        PageStore::open(file, self.options.clone())
    }

    /// Opens a database, or a version of it.
    pub fn open(&self, name: &str, version: Option<&str>) -> rusqlite::Result<Connection> {
        open(&uri(&self.folder.join(name), version))
    }

    /// Opens a database to read it.
    pub fn open_read_only(&self, name: &str) -> rusqlite::Result<Connection> {
        open(&read_only(&self.folder.join(name)))
    }
}

/// The path of a database for SQLite.
pub fn uri(path: &Path, version: Option<&str>) -> String {
    let version = version.map(|version| format!("&version={version}")).unwrap_or_default();
    format!("file:{}?vfs=esker{version}", path.display())
}

/// The same, to read it.
pub fn read_only(path: &Path) -> String {
    uri(path, None) + "&mode=ro"
}

fn open(uri: &str) -> rusqlite::Result<Connection> {
    esker_sqlite::link().unwrap();
    count_panics();
    let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.execute_batch("PRAGMA temp_store = memory")?;
    Ok(connection)
}

thread_local! {
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the panics of what is tested: the border to C makes errors of them.
fn count_panics() {
    static COUNTED: Once = Once::new();
    COUNTED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            if what.location().is_some_and(|place| !place.file().contains("tests")) {
                PANICS.set(PANICS.get() + 1);
            }
            usual(what);
        }));
    });
}

/// Fails where what is tested has panicked on this thread since the last call of this.
pub fn ensure_no_panics() -> Verdict {
    ensure(PANICS.take() == 0, Oracle::NoPanic, || "below SQLite".to_owned())
}
