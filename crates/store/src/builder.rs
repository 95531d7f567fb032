//! The builder that opens a store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker_device::Device;
use esker_device::readonly::ReadOnlyDevice;
use esker_substrate::runtime::{Runtime, SystemRuntime};

use crate::compaction::Compaction;
use crate::db::Db;
use crate::error::Result;
use crate::open;
use crate::options::{Durability, Settings};
use crate::work_queue::Mode;

/// A builder that opens a store with options; made by [`Db::builder`] and [`Db::builder_on`].
#[must_use = "a builder does nothing until `open` is called"]
pub struct DbBuilder {
    place: Place,
    settings: Settings,
    runtime: Option<Arc<dyn Runtime>>,
}

/// The folder or the device of the store.
enum Place {
    Folder(PathBuf),
    Device(Arc<dyn Device>),
}

impl fmt::Debug for DbBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = match &self.place {
            Place::Folder(path) => path.display().to_string(),
            Place::Device(device) => device.location(),
        };
        f.debug_struct("DbBuilder")
            .field("location", &location)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl DbBuilder {
    pub(crate) fn in_folder(path: &Path) -> Self {
        Self::at(Place::Folder(path.to_path_buf()))
    }

    pub(crate) fn on_device(device: Arc<dyn Device>) -> Self {
        Self::at(Place::Device(device))
    }

    fn at(place: Place) -> Self {
        Self { place, settings: Settings::default(), runtime: None }
    }

    /// Whether the store is created if it does not exist; `true` by default. If it is `false`,
    /// [`open`](Self::open) returns [`Error::NoStore`](crate::Error::NoStore) for a missing store.
    pub const fn create(mut self, yes: bool) -> Self {
        self.settings.create = yes;
        self
    }

    /// Whether the store is opened read-only; `false` by default. A read-only store writes nothing:
    /// the log is replayed into memory, no merge runs, and every write returns
    /// [`Error::ReadOnly`](crate::Error::ReadOnly). It can be on read-only media or in a folder
    /// without write permission. The store must exist, regardless of [`create`](Self::create).
    ///
    /// If no process has the store open for writing, none can open it so meanwhile; any number may
    /// have it open read-only. If one has, this one follows it: see [`follow`](Self::follow).
    ///
    /// The contents of the log must fit in the [`memory_budget`](Self::memory_budget): otherwise
    /// opening the store returns [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// ```
    /// # fn main() -> esker::Result<()> {
    /// # let folder = std::env::temp_dir().join(format!("esker-doc-ro-{}", std::process::id()));
    /// # esker::Db::open(&folder)?.keyspace("users", Default::default())?.insert("ada", "1815")?;
    /// let db = esker::Db::builder(&folder).read_only(true).open()?;
    /// let users = db.keyspace("users", Default::default())?;
    /// assert_eq!(users.get("ada")?.as_deref(), Some(b"1815".as_slice()));
    /// assert!(matches!(users.insert("ada", "1816"), Err(esker::Error::ReadOnly)));
    /// # db.close()?;
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn read_only(mut self, yes: bool) -> Self {
        self.settings.read_only = yes;
        self
    }

    /// Whether the store is opened read-only and without a lock, as a follower of the process that
    /// writes it, whether there is one now or not; `false` by default. A follower keeps no process
    /// from opening the store for writing, and none waits for it. It sees what the writer had
    /// passed on to the operating system when the store was opened, or at the last
    /// [`Db::refresh`](crate::Db::refresh); [`refresh_every`](Self::refresh_every) does that from
    /// time to time. When the writer closes or dies, the follower reads on, and follows the next
    /// one.
    ///
    /// The writer keeps the versions that the follower sees, as for a snapshot, until the follower
    /// is refreshed or closed or its process ends. That needs write permission for the file
    /// `followers` of the store, on a local file system, and a place for it: 63 followers have one,
    /// with snapshots of 61 different numbers each. Otherwise snapshots and scans end with
    /// [`Error::TooOld`](crate::Error::TooOld) when the writer's merges have overtaken them.
    pub const fn follow(mut self, yes: bool) -> Self {
        self.settings.follow = yes;
        self.settings.read_only |= yes;
        self
    }

    /// The interval at which a follower catches up with the writer by itself, in a thread of its
    /// own; `None`, the default, for never. An interval of 0 is one of a millisecond.
    pub fn refresh_every(mut self, interval: Option<Duration>) -> Self {
        let least = Duration::from_millis(1);
        self.settings.refresh_every = interval.map(|interval| interval.max(least));
        self
    }

    /// The memory for memtables, fences, filters and cached blocks together: 128 KiB to 16 TiB, 64
    /// MiB by default. Half of it is for memtables. It is a hard limit.
    pub const fn memory_budget(mut self, bytes: u64) -> Self {
        self.settings.memory_budget_bytes = bytes;
        self
    }

    /// The length of new log segments: 16 KiB to 1 GiB, 4 MiB by default. Longer segments are
    /// switched less often, but recovery from them takes longer.
    pub const fn log_segment_bytes(mut self, bytes: u64) -> Self {
        self.settings.log_segment_bytes = bytes;
        self
    }

    /// The durability of writes that do not name their own; [`Durability::Buffered`] by default.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.settings.durability = durability;
        self
    }

    /// The compaction policy of the store's LSM indexes and its parameters;
    /// [`CompactionPolicy::Pull`](crate::CompactionPolicy) by default. The setting applies while
    /// the store is open.
    pub const fn compaction(mut self, compaction: Compaction) -> Self {
        self.settings.compaction = compaction;
        self
    }

    /// The source of time and randomness; the system's by default. Simulations, and tests in which
    /// values expire, use another one, for example [`SimRuntime`](crate::SimRuntime).
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The mode for simulations: no background threads. Each write then runs the given number of
    /// steps of the merges under way, or all of them if the number is 0. A history repeats from its
    /// seed.
    #[doc(hidden)]
    pub const fn inline_merges(mut self, steps: u32) -> Self {
        self.settings.mode = Mode::Inline(steps);
        self
    }

    /// The scheme by which merges run concurrently with reads and writes; for comparisons of the
    /// schemes of the paper.
    #[cfg(feature = "_baselines")]
    #[doc(hidden)]
    pub const fn scheme(mut self, scheme: crate::Scheme) -> Self {
        self.settings.scheme = scheme;
        self
    }

    /// The papers' level sizes: κi = growth^i κ0, without sorted runs.
    #[cfg(feature = "_baselines")]
    #[doc(hidden)]
    pub const fn fixed_growth(mut self, growth: u16) -> Self {
        self.settings.sizes = esker_index::fdtree::Sizes::Fixed { growth };
        self
    }

    /// Opens the store: reads the manifest and replays the log. This also recovers the store after
    /// a crash.
    ///
    /// # Errors
    /// [`Invalid`](crate::Error::Invalid) for an option out of range,
    /// [`Locked`](crate::Error::Locked) when the store is already open,
    /// [`NoStore`](crate::Error::NoStore), [`NotAStore`](crate::Error::NotAStore),
    /// [`TooNew`](crate::Error::TooNew), [`Damaged`](crate::Error::Damaged) and
    /// [`Io`](crate::Error::Io).
    pub fn open(self) -> Result<Db> {
        self.settings.validate()?;
        let runtime = self.runtime.unwrap_or_else(|| Arc::new(SystemRuntime::default()));
        let device = match self.place {
            Place::Device(device) if self.settings.read_only => {
                Arc::new(ReadOnlyDevice::new(device))
            }
            Place::Device(device) => device,
            Place::Folder(path) if self.settings.read_only => open::read_only_folder(&path)?,
            Place::Folder(path) => open::folder(&path, self.settings.create)?,
        };
        open::open(device, &self.settings, &runtime).map(Db::new)
    }
}
