//! A machine on which SQLite runs in virtual time: connections, a file system, and a device.
//!
//! ```text
//!   connection 1   connection 2   …        SQLite, unmodified, each on a thread
//!        │              │
//!        ▼              ▼                  turns: one runs at a time, the one with the least time
//!   ┌──────────────────────────────────┐
//!   │ files: the VFS; locks            │   vfs, cached, direct, locks
//!   ├──────────────────────────────────┤
//!   │ ext4 in ordered mode: page       │   filesystem, journal
//!   │ cache, journal; or direct I/O    │
//!   ├──────────────────────────────────┤
//!   │ device: commands, buffer,        │   disk
//!   │ barriers                         │
//!   ├──────────────────────────────────┤
//!   │ translation layer, NAND, clock   │   esker-flash
//!   └──────────────────────────────────┘
//! ```
//!
//! **Time of the host.** A call of the VFS takes 2 µs, and an instruction of SQLite's virtual
//! machine [`INSTRUCTION_NS`], which a progress handler counts. The paper's host is an Intel
//! i5-3470, on which a statement takes some 10 µs. A sleep of SQLite's busy handler passes in
//! virtual time. Nothing else takes time, so one seed gives the same times everywhere.
//!
//! Reading order: [`turns`], [`disk`], [`journal`], [`filesystem`], [`locks`], [`mode`], `state`,
//! `cached`, `direct`, `vfs`; [`store`] (our page store on the same machine).

pub mod board;
pub mod disk;
pub mod filesystem;
pub mod journal;
pub mod locks;
pub mod mode;
pub mod recorder;
pub mod store;
pub mod turns;

mod cached;
mod direct;
mod state;
mod vfs;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_flash::ftl::Wear;
use esker_flash::nand::Counters;
use esker_flash::trace::TraceWriter;
use esker_pages::DeviceFile;
use esker_sqlite::Registered;
use esker_sqlite::open_stores::Access;
use esker_sqlite::test_mount::{self, Mounted};
use esker_workload::Random;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use self::disk::{Disk, HostWrites};
use self::filesystem::FileSystem;
use self::mode::{Mode, System};
use self::recorder::Recorder;
use self::state::{State, Versions, lock};
use self::store::StoreFile;
use self::turns::Work;
use crate::{Error, Result};

pub use self::state::{CALL_NS, DATABASE};

/// The time of an instruction of SQLite's virtual machine.
pub const INSTRUCTION_NS: u64 = 50;
/// Instructions between two looks at the time.
const INSTRUCTIONS: i32 = 500;

/// Pages that a connection caches: the default of the paper's SQLite (3.7.13).
const CACHE_PAGES: u32 = 2_000;

/// The machine.
#[derive(Debug)]
pub struct Machine {
    mode: Mode,
    state: Arc<Mutex<State>>,
    name: String,
    /// When the last run ended.
    time_ns: AtomicU64,
    _registered: Registered,
    /// The folder that represents the machine, where our VFS finds the page store.
    mounted: Option<(TempDir, Mounted)>,
}

/// What a machine has counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// What the host has written.
    pub host: HostWrites,
    /// The operations on flash.
    pub flash: Counters,
    /// The erase counts.
    pub wear: Wear,
    /// The most mappings of transactions at the end of one.
    pub entries_max: u64,
    /// The most pages of a transaction.
    pub largest: u64,
    /// Writes that were refused.
    pub refused: u64,
}

/// An error of flash.
fn flash(error: esker_flash::Error) -> Error {
    Error::Run(error.to_string())
}

/// Has our VFS find the page store of a machine.
fn mount(mode: Mode, state: &Arc<Mutex<State>>) -> Result<(TempDir, Mounted)> {
    esker_sqlite::link().map_err(|why| Error::Run(format!("cannot register the VFS: {why}")))?;
    let folder = tempfile::tempdir().map_err(Error::system("make a folder"))?;
    let path = folder.path().canonicalize().map_err(Error::system("find the folder"))?;
    let state = Arc::clone(state);
    let open = move |_: &str, _: Access| {
        let file: Arc<dyn DeviceFile> = Arc::new(StoreFile::open(&state));
        Ok((file, store::options(mode == Mode::PageStore)))
    };
    let mounted = test_mount::mount(&path, Arc::new(open));
    Ok((folder, mounted))
}

impl Machine {
    /// A machine with an empty device of so many MiB on each of eight dies.
    ///
    /// # Errors
    /// A device that is too small.
    pub fn new(system: System, mib_per_die: u32, seed: u64) -> Result<Self> {
        let System { mode, board } = system;
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let disk = Disk::new(mode.layer(), board, mib_per_die).map_err(flash)?;
        let state = Arc::new(Mutex::new(State {
            fs: FileSystem::new(disk),
            locks: BTreeMap::new(),
            shm: BTreeMap::new(),
            next_holder: 1,
            versions: Versions::default(),
            random: Random::new(seed),
        }));
        let name = format!("machine-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let files = Arc::new(vfs::Host::new(mode, Arc::clone(&state)));
        let registered = esker_sqlite::register(&name, files)
            .map_err(|why| Error::Run(format!("cannot register a VFS: {why}")))?;
        let mounted = if mode.is_store() { Some(mount(mode, &state)?) } else { None };
        let time_ns = AtomicU64::new(0);
        Ok(Self { mode, state, name, time_ns, _registered: registered, mounted })
    }

    /// Puts a database there, whose bytes are those of a file of SQLite.
    ///
    /// # Errors
    /// A device that is full.
    pub fn install(&self, bytes: &[u8]) -> Result<()> {
        if self.mode.is_store() {
            return self.alone(|| self.import(bytes));
        }
        let mut state = lock(&self.state);
        let at = state.fs.install(DATABASE, bytes, !self.mode.is_transactional()).map_err(flash)?;
        state.versions.installed(bytes.len() as u64);
        self.time_ns.fetch_max(at, Ordering::Relaxed);
        Ok(())
    }

    /// Copies a database into the page store.
    fn import(&self, bytes: &[u8]) -> Result<()> {
        let folder = tempfile::tempdir().map_err(Error::system("make a folder"))?;
        let path = folder.path().join(DATABASE);
        std::fs::write(&path, bytes).map_err(Error::system("write the database"))?;
        let copy = || {
            let connection = Connection::open(&path)?;
            connection.execute("VACUUM INTO ?1", [self.uri()]).map(drop)
        };
        copy().map_err(|error| Error::Run(format!("cannot copy the database: {error}")))
    }

    /// The database of the page store, for our VFS.
    fn uri(&self) -> String {
        let folder = self.mounted.as_ref().map(|(folder, _)| folder.path().to_owned());
        let folder = folder.and_then(|folder| folder.canonicalize().ok()).unwrap_or_default();
        format!("file:{}?vfs=esker", folder.join(DATABASE).display())
    }

    /// Records what the host does on the device, from now on.
    pub fn record(&self, writer: TraceWriter) {
        lock(&self.state).fs.disk.record(Recorder::new(writer));
    }

    /// Ends the trace; the number of its operations, 0 without one.
    ///
    /// # Errors
    /// The first error of a write.
    pub fn finish_record(&self) -> Result<u64> {
        let recorder = lock(&self.state).fs.disk.take_record();
        let finish = |of: Recorder| of.finish().map_err(|error| Error::Run(error.to_string()));
        recorder.map_or(Ok(0), finish)
    }

    /// Runs actors, each on a thread with its own connections; what they answer.
    ///
    /// # Errors
    /// The first error of an actor, or a panic.
    pub fn run<'a, T: Send>(&self, actors: Vec<Work<'a, Result<T>>>) -> Result<Vec<T>> {
        let (answers, end) = turns::run(self.time_ns.load(Ordering::Relaxed), actors);
        self.time_ns.fetch_max(end, Ordering::Relaxed);
        let panicked = || Err(Error::Run("a thread of the machine failed".to_owned()));
        answers.into_iter().map(|answer| answer.unwrap_or_else(panicked)).collect()
    }

    /// Runs one actor.
    ///
    /// # Errors
    /// Those of the actor.
    pub fn alone<T: Send>(&self, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let answers = self.run(vec![Box::new(body) as Work<'_, Result<T>>])?;
        answers.into_iter().next().ok_or_else(|| Error::Run("no actor ran".to_owned()))
    }

    /// Opens a connection, which belongs to the actor that opens it. It waits for locks for
    /// `patience` of virtual time.
    ///
    /// # Errors
    /// Those of SQLite.
    pub fn open(&self, patience: Duration) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = if self.mode.is_store() {
            Connection::open_with_flags(self.uri(), flags | OpenFlags::SQLITE_OPEN_URI)?
        } else {
            Connection::open_with_flags_and_vfs(DATABASE, flags, self.name.as_str())?
        };
        connection.busy_timeout(patience)?;
        let pages = format!(
            "PRAGMA page_size = {}; PRAGMA cache_size = {CACHE_PAGES}; PRAGMA temp_store = MEMORY",
            disk::PAGE_BYTES
        );
        connection.execute_batch(&pages)?;
        connection.execute_batch(self.mode.pragmas())?;
        let spend = || {
            turns::wait(INSTRUCTION_NS * u64::from(INSTRUCTIONS.unsigned_abs()));
            false
        };
        connection.progress_handler(INSTRUCTIONS, Some(spend))?;
        Ok(connection)
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = lock(&self.state);
        let disk = &state.fs.disk;
        let (entries_max, largest) = disk.entries();
        Counts {
            host: disk.writes(),
            flash: disk.flash(),
            wear: disk.layer().as_ftl().wear(),
            entries_max,
            largest,
            refused: disk.layer().refused(),
        }
    }

    /// Checks the invariants of the layer.
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<()> {
        lock(&self.state).fs.disk.layer().as_ftl().check().map_err(flash)
    }
}

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;
