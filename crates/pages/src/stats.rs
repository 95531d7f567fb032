//! Statistics of a store, for users and for experiments that count bytes.

use crate::counters::named;
use crate::engine::Engine;
use crate::options::Allocation;
use crate::store::PageStore;

/// Bytes written since the store was opened, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Pages, at their commit.
    pub pages: u64,
    /// Pages, before their commit.
    pub spilled: u64,
    /// Commit records, page lists and byte deltas.
    pub records: u64,
    /// Nodes of the map, by checkpoints.
    pub map: u64,
    /// Superblocks.
    pub superblocks: u64,
    /// Zeros where the file grew.
    pub filled: u64,
    /// Pages that garbage collection or [`crate::PageStore::compact`] moved.
    pub moved: u64,
}

impl Written {
    /// The fields by name.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, u64); 7] {
        named!(self, Written { pages, spilled, records, map, superblocks, filled, moved })
    }

    /// The sum of all kinds.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let named = self.records + self.map + self.superblocks;
        self.pages + self.spilled + self.moved + named + self.filled
    }

    /// Bytes of pages that were written for each byte of pages that commits wrote: 1 where nothing
    /// is moved, or nothing was written.
    #[must_use]
    pub fn amplification(&self) -> f64 {
        let committed = self.pages + self.spilled;
        if committed == 0 { 1.0 } else { 1.0 + self.moved as f64 / committed as f64 }
    }
}

/// A readable version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its number; 0 is the empty database of a new store.
    pub version: u64,
    /// The names that it is kept by.
    pub names: Vec<String>,
    /// Live snapshots of it, a writer's base included.
    pub snapshots: u64,
    /// Pages that this version has and the next kept version has not. They would be free at the
    /// next checkpoint if no older version needed them and this one were released.
    pub held_pages: u64,
    /// Pages of the database.
    pub pages: u32,
    /// Bytes of a page.
    pub page_size: u32,
}

impl Version {
    /// The fields by name, except [`Version::names`].
    #[must_use]
    pub fn fields(&self) -> [(&'static str, u64); 5] {
        named!(self, Version { version, page_size, pages, held_pages, snapshots } without names)
    }
}

/// Counts since the store was opened, and its present contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The place to which changed pages are written, as chosen when the store was created.
    pub allocation: Allocation,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the file that are in use: pages of all versions, nodes of the map, dead pages.
    pub used_bytes: u64,
    /// Pages of the newest version that take a slot; others are zeros, or differ from zeros by
    /// a delta.
    pub live_pages: u64,
    /// Pages that no version needs, which the next checkpoint frees.
    pub dead_pages: u64,
    /// Pages that only older versions need; [`Version::held_pages`] has them for each version.
    pub held_pages: u64,
    /// Bytes of deltas that the newest version keeps in memory.
    pub delta_bytes: u64,
    /// Bytes of commit records since the last checkpoint.
    pub log_bytes: u64,
    /// Commits that changed something.
    pub commits: u64,
    /// Commits that changed nothing, and wrote nothing.
    pub empty_commits: u64,
    /// Transactions that were dropped.
    pub aborts: u64,
    /// Syncs of the file.
    pub syncs: u64,
    /// Checkpoints taken.
    pub checkpoints: u64,
    /// Checkpoints that were due and could not be taken.
    pub checkpoints_failed: u64,
    /// Changed pages that were written whole.
    pub whole_pages: u64,
    /// Changed pages that were written as byte deltas.
    pub delta_pages: u64,
    /// Pages that were written before their commit.
    pub spilled_pages: u64,
    /// Pages that garbage collection or [`crate::PageStore::compact`] moved.
    pub moved_pages: u64,
    /// Segments that garbage collection emptied.
    pub emptied_segments: u64,
    /// Versions that are readable.
    pub versions: u64,
    /// Bytes written, by kind.
    pub written: Written,
}

impl Stats {
    /// The numbers by name, except [`Stats::written`]: first present contents, then counts.
    #[must_use]
    pub fn fields(&self) -> [(&'static str, u64); 19] {
        named!(self, Stats {
            file_bytes, used_bytes, versions, live_pages, held_pages, dead_pages, delta_bytes,
            log_bytes, commits, empty_commits, aborts, whole_pages, delta_pages, spilled_pages,
            syncs, checkpoints, checkpoints_failed, moved_pages, emptied_segments
        } without allocation, written)
    }
}

impl Engine {
    pub(crate) fn stats(&self) -> Stats {
        let is_read = self.is_read();
        let core = self.core.lock();
        let versions = self.versions.lock();
        let kept = versions.read(is_read);
        let counters = &self.counters;
        let written = Written {
            pages: counters.pages.get(),
            spilled: counters.spilled.get(),
            records: counters.records.get(),
            map: counters.map.get(),
            superblocks: counters.superblocks.get(),
            filled: counters.filled.get(),
            moved: counters.moved.get(),
        };
        Stats {
            allocation: self.allocation.kind(),
            file_bytes: core.space.segment_offset(core.space.segment_count()),
            used_bytes: core.space.used_bytes(),
            live_pages: core.live_slots.max(0) as u64,
            dead_pages: (core.dead.len() + versions.dead_count() + core.retired_count()) as u64,
            held_pages: kept.iter().map(|kept| kept.held_slots).sum(),
            delta_bytes: core.delta_bytes.max(0) as u64,
            log_bytes: core.log.bytes,
            commits: counters.commits.get(),
            empty_commits: counters.empty_commits.get(),
            aborts: counters.aborts.get(),
            syncs: counters.syncs.get(),
            checkpoints: counters.checkpoints.get(),
            checkpoints_failed: counters.checkpoints_failed.get(),
            whole_pages: counters.whole_pages.get(),
            delta_pages: counters.delta_pages.get(),
            spilled_pages: counters.spilled_pages.get(),
            moved_pages: counters.moved_pages.get(),
            emptied_segments: counters.emptied_segments.get(),
            versions: kept.len() as u64,
            written,
        }
    }
}

impl PageStore {
    /// Counts since the store was opened, and its present contents. Waits for a commit that is
    /// being written. No I/O.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// The versions that are readable: those with names, those with live snapshots, and the newest,
    /// which is the last. Where processes share the store, those that others read are there too,
    /// without snapshots. No I/O.
    #[must_use]
    pub fn versions(&self) -> Vec<Version> {
        let is_read = self.engine().is_read();
        let core = self.engine().core.lock();
        let kept = self.engine().versions.lock().read(is_read);
        let named = |version: u64| {
            let names = core.named.iter().filter(move |(_, at)| **at == version);
            names.map(|(name, _)| name.to_string()).collect::<Vec<_>>()
        };
        let versions = kept.into_iter().map(|kept| {
            let names = named(kept.version);
            let snapshots = kept.readers.saturating_sub(names.len() as u64);
            let (version, held_pages) = (kept.version, kept.held_slots);
            let (pages, page_size) = (kept.pages, kept.page_size);
            Version { version, names, snapshots, held_pages, pages, page_size }
        });
        versions.collect()
    }
}
