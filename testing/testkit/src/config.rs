//! The options with which the store under test is opened.

use std::sync::Arc;
use std::time::Duration;

use esker::{
    Compaction, Compression, Db, DbBuilder, History, IndexKind, KeyspaceOptions, Merge, Scheme,
};
use esker_device::Device;
use esker_substrate::runtime::SimRuntime;

use crate::another;

/// The options with which the store under test is opened: small, so that merges of all depths
/// happen soon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store's memory budget.
    pub memory_budget_bytes: u64,
    /// Length of log segments.
    pub log_segment_bytes: u64,
    /// Payload of a full memtable.
    pub memtable_bytes: u64,
    /// Seed of the store's own randomness.
    pub seed: u64,
    /// Steps of flushes and merges after each write; with 0, all of them. Nothing else runs them,
    /// so that every history repeats.
    pub merge_steps: u32,
    /// The scheme by which merges run concurrently with reads and writes. What is on the device is
    /// the same kind of store.
    pub scheme: Scheme,
    /// The compression of the data blocks of every keyspace: it changes with every opening, unless
    /// it is none.
    pub compression: Compression,
    /// Longer values are blobs, where given.
    pub inline_bytes_max: Option<u64>,
    /// The merge operator of every keyspace, if there is one.
    pub merge: Option<Merge>,
    /// The history that every keyspace keeps, if it has an FD+tree.
    pub history: Option<History>,
    /// The kind of index of every keyspace.
    pub index: IndexKind,
    /// The parameters of the merges of LSM indexes.
    pub compaction: Compaction,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memory_budget_bytes: 128 << 10,
            log_segment_bytes: 16 << 10,
            memtable_bytes: 2 << 10,
            seed: 1,
            merge_steps: 1,
            scheme: Scheme::Fc,
            compression: Compression::None,
            inline_bytes_max: None,
            merge: None,
            history: None,
            index: IndexKind::FdTree,
            compaction: Compaction::default(),
        }
    }
}

impl Config {
    /// The builder of the store on `device`, at the time 0.
    pub fn builder(&self, device: &Arc<dyn Device>) -> DbBuilder {
        self.builder_at(device, 0)
    }

    /// The builder of the store on `device`, for which it is always `now`.
    pub fn builder_at(&self, device: &Arc<dyn Device>, now: u64) -> DbBuilder {
        self.builder_with(device, &self.runtime(now))
    }

    pub(crate) fn runtime(&self, now: u64) -> Arc<SimRuntime> {
        let runtime = SimRuntime::new(self.seed);
        runtime.set_unix_time(Duration::from_millis(now));
        Arc::new(runtime)
    }

    pub(crate) fn builder_with(
        &self,
        device: &Arc<dyn Device>,
        runtime: &Arc<SimRuntime>,
    ) -> DbBuilder {
        Db::builder_on(Arc::clone(device))
            .memory_budget(self.memory_budget_bytes)
            .log_segment_bytes(self.log_segment_bytes)
            .runtime(Arc::clone(runtime) as _)
            .inline_merges(self.merge_steps)
            .scheme(self.scheme)
            .compaction(self.compaction)
    }

    /// Opens the store on `device`, creating it where there is none.
    ///
    /// # Errors
    /// The store's error.
    pub fn open(&self, device: &Arc<dyn Device>) -> esker::Result<Db> {
        self.builder(device).open()
    }

    /// Other sizes for the same store: nothing on the device may depend on them.
    #[must_use]
    pub(crate) fn another(&self) -> Self {
        let scheme = another::scheme(self.scheme);
        let compression = another::compression(self.compression);
        let other = Self { scheme, compression, ..self.clone() };
        match self.log_segment_bytes {
            0x4000 => Self { log_segment_bytes: 0xa000, memory_budget_bytes: 512 << 10, ..other },
            _ => Self { log_segment_bytes: 0x4000, memory_budget_bytes: 256 << 10, ..other },
        }
    }

    /// The history that every keyspace keeps.
    #[must_use]
    pub fn kept_history(&self) -> Option<History> {
        self.history.filter(|_| self.index == IndexKind::FdTree)
    }

    /// The options of every keyspace.
    #[must_use]
    pub fn keyspace_options(&self) -> KeyspaceOptions {
        let options = KeyspaceOptions::default().memtable_bytes(Some(self.memtable_bytes));
        let mut options = options.index(self.index);
        if let Some(bytes) = self.inline_bytes_max {
            options = options.inline_bytes_max(bytes);
        }
        if let Some(merge) = self.merge {
            options = options.merge(merge);
        }
        if let Some(history) = self.kept_history() {
            options = options.history(history);
        }
        let codec = Some(self.compression).filter(|codec| *codec != Compression::None);
        codec.map_or(options.clone(), |codec| options.compression(codec))
    }
}
