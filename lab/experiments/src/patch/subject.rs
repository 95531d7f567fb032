//! What is measured: a tree, or the LSM index of the product, under a workload of rows.
//!
//! Both are in a folder of their own, and every byte is counted that the device is given, from the
//! end of the warm-up on: pages, indexes, the catalogue, records and maps of the page store, the
//! log. Reads write nothing; one scan in [`Plan::scan_one_in`] is made, to count pages.

use std::path::Path;
use std::sync::Arc;

use esker::{Db, IndexKind, Keyspace, KeyspaceOptions, LsmStats, Stats};
use esker_device::count::CountingDevice;
use esker_device::file::FileDevice;
use esker_device::{Caching, Device, Open};
use esker_lab_result::Metrics;
use esker_workload::row::Row;

use super::block::Record;
use super::error::device;
use super::tree::{Options, Tree, Written};
use crate::experiment::{Watch, go_on, metric};
use crate::{Error, Result};

/// Bytes that the device was given, in 10^9.
pub const GIGABYTES: &str = "written_gb";
/// The same for each byte of keys and values that was written.
pub const PER_BYTE: &str = "written_per_byte";
/// The part of that which is the log.
pub const LOG: &str = "log_per_byte";
/// Of blocks by flushes.
pub const FLUSHED: &str = "flushed_per_byte";
/// Of blocks by rewriting.
pub const REWRITTEN: &str = "rewritten_per_byte";
/// Of blocks by patching.
pub const PATCHED: &str = "patched_per_byte";
/// Of indexes of tables.
pub const INDEX: &str = "index_per_byte";
/// The rest: the catalogue, records and maps of the page store.
pub const REST: &str = "rest_per_byte";
/// Tables patched, of those that were patched or rewritten.
pub const PATCHES: &str = "patches_percent";
/// The weight of dead records over that of live ones, at the end.
pub const DEAD: &str = "dead_percent";
/// Bytes of used pages over the weight of live records, at the end.
pub const SPACE: &str = "space_per_live";
/// Pages that a scan read, on average.
pub const SCAN_PAGES: &str = "pages_per_scan";
/// Sorted runs, on average: tables of level 0 or runs, and levels that are not empty.
pub const RUNS: &str = "sorted_runs";

/// Requests between two looks at whether to stop, and at the sorted runs.
const LOOK: u64 = 1 << 12;
/// The name of the keyspace.
const KEYSPACE: &str = "rows";

/// A workload, as far as it goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Requests that are not counted, behind the load.
    pub warm_up: u64,
    /// Requests that are.
    pub requests: u64,
    /// One scan in this many is made.
    pub scan_one_in: u64,
}

/// A store that is measured.
pub trait Subject {
    /// Fills the empty store with rows in the order of keys.
    ///
    /// # Errors
    /// Those of the store.
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Result<()>;

    /// Writes a row, or removes it.
    ///
    /// # Errors
    /// Those of the store.
    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()>;

    /// Scans, and says how many pages it read, if it knows.
    ///
    /// # Errors
    /// Those of the store.
    fn scan(&mut self, from: &[u8], to: &[u8], most: u32) -> Result<Option<u64>>;

    /// The number of sorted runs now.
    ///
    /// # Errors
    /// Those of the store.
    fn sorted_runs(&self) -> Result<usize>;

    /// Everything is written that was handed over; what is counted begins here.
    ///
    /// # Errors
    /// Those of the store.
    fn begin(&mut self) -> Result<()>;

    /// The metrics of what it wrote since then.
    ///
    /// # Errors
    /// Those of the store.
    fn end(&mut self) -> Result<Metrics>;
}

/// Loads a store, warms it up and measures requests.
///
/// # Errors
/// Those of the store; [`Error::Interrupted`].
pub fn measure(
    subject: &mut dyn Subject,
    plan: &Plan,
    rows: &mut dyn Iterator<Item = Row>,
    requests: &mut dyn Iterator<Item = Vec<Row>>,
    watch: &dyn Watch,
) -> Result<Metrics> {
    subject.load(rows)?;
    let mut seen = Seen::default();
    perform(subject, requests, plan.warm_up, u64::MAX, &mut seen, watch)?;
    subject.begin()?;
    let mut seen = Seen::default();
    perform(subject, requests, plan.requests, plan.scan_one_in, &mut seen, watch)?;
    let mut metrics = subject.end()?;
    metric(&mut metrics, RUNS, seen.runs as f64 / seen.looks.max(1) as f64);
    if seen.pages > 0 {
        metric(&mut metrics, SCAN_PAGES, seen.pages as f64 / seen.scans.max(1) as f64);
    }
    Ok(metrics)
}

/// What was seen between requests.
#[derive(Debug, Default)]
struct Seen {
    asked: u64,
    scans: u64,
    pages: u64,
    runs: u64,
    looks: u64,
}

fn perform(
    subject: &mut dyn Subject,
    requests: &mut dyn Iterator<Item = Vec<Row>>,
    count: u64,
    scan_one_in: u64,
    seen: &mut Seen,
    watch: &dyn Watch,
) -> Result<()> {
    for at in 0..count {
        if at % LOOK == 0 {
            go_on(watch)?;
            seen.runs += subject.sorted_runs()? as u64;
            seen.looks += 1;
        }
        for row in requests.next().unwrap_or_default() {
            match row {
                Row::Put { key, value } => subject.write(&key, Some(&value))?,
                Row::Delete { key } => subject.write(&key, None)?,
                Row::Get { .. } => {}
                Row::Scan { from, to, most } => {
                    seen.asked += 1;
                    if seen.asked.is_multiple_of(scan_one_in) {
                        seen.pages += subject.scan(&from, &to, most)?.unwrap_or(0);
                        seen.scans += 1;
                    }
                }
            }
        }
    }
    Ok(())
}

/// A tree, and what had been written when the count began.
#[derive(Debug)]
pub struct TreeSubject {
    device: CountingDevice,
    tree: Tree,
    before: (u64, u64, Written),
}

impl TreeSubject {
    /// A tree in an empty folder.
    ///
    /// # Errors
    /// Those of the device.
    pub fn create(folder: &Path, options: Options) -> Result<Self> {
        let inner = FileDevice::create(folder.join("tree")).map_err(device)?;
        let counted = CountingDevice::new(Arc::new(inner));
        let file = |name| counted.open(name, Open::CreateNew, Caching::Buffered).map_err(device);
        let tree = Tree::open(file("tables")?, file("log")?, options)?;
        Ok(Self { device: counted, tree, before: (0, 0, Written::default()) })
    }
}

impl Subject for TreeSubject {
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Result<()> {
        let mut records = rows.filter_map(|row| match row {
            Row::Put { key, value } => Some(Ok::<Record, Error>((key, Some(value)))),
            _ => None,
        });
        self.tree.load(&mut records)
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.tree.write(key, value)
    }

    fn scan(&mut self, from: &[u8], to: &[u8], most: u32) -> Result<Option<u64>> {
        let (mut view, mut left) = (self.tree.view(), most);
        view.scan(from, &mut |(key, _)| {
            left = left.saturating_sub(1);
            left > 0 && key.as_slice() < to
        })?;
        Ok(Some(view.pages_read()))
    }

    fn sorted_runs(&self) -> Result<usize> {
        let (runs, levels) = self.tree.levels().split_at(1);
        let levels = levels.iter().filter(|level| !level.is_empty()).count();
        Ok(runs.iter().map(Vec::len).sum::<usize>() + levels)
    }

    fn begin(&mut self) -> Result<()> {
        self.tree.sync()?;
        let bytes = self.device.counts().total().bytes_written;
        self.before = (bytes, self.tree.log_bytes(), *self.tree.written());
        Ok(())
    }

    fn end(&mut self) -> Result<Metrics> {
        self.tree.sync()?;
        let bytes = self.device.counts().total().bytes_written - self.before.0;
        let log = self.tree.log_bytes() - self.before.1;
        let (now, before) = (*self.tree.written(), self.before.2);
        let user = (now.user_bytes - before.user_bytes).max(1) as f64;
        let since = |of: fn(&Written) -> u64| of(&now) - of(&before);
        let parts = [
            (LOG, log),
            (FLUSHED, since(|written| written.flushed.data)),
            (REWRITTEN, since(|written| written.compacted.rewritten.data)),
            (PATCHED, since(|written| written.compacted.patched.data)),
            (INDEX, since(Written::index_bytes)),
        ];
        let mut metrics = Metrics::new();
        let known: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
        for (name, bytes) in parts {
            metric(&mut metrics, name, bytes as f64 / user);
        }
        // Pages that change little are written as their changes: the rest may be less than nothing.
        metric(&mut metrics, REST, (bytes as f64 - known as f64) / user);
        metric(&mut metrics, GIGABYTES, bytes as f64 / 1e9);
        metric(&mut metrics, PER_BYTE, bytes as f64 / user);
        let patches = since(|written| written.compacted.patches) as f64;
        let rewrites = since(|written| written.compacted.rewrites) as f64;
        metric(&mut metrics, PATCHES, 100.0 * patches / (patches + rewrites).max(1.0));
        let tables = || self.tree.levels().iter().flatten();
        let live = tables().map(|table| table.live()).sum::<u64>().max(1) as f64;
        let weight: u64 = tables().map(|table| table.weight()).sum();
        metric(&mut metrics, DEAD, 100.0 * (weight as f64 / live - 1.0));
        let pages = self.tree.pager().used() * self.tree.pager().page_bytes() as u64;
        metric(&mut metrics, SPACE, pages as f64 / live);
        Ok(metrics)
    }
}

/// The LSM index of the product, under its default policy.
pub struct PullSubject {
    db: Db,
    keyspace: Keyspace,
    before: (u64, u64, u64),
}

impl PullSubject {
    /// A store in an empty folder; merges run in the writing thread.
    ///
    /// # Errors
    /// Those of the store.
    pub fn create(folder: &Path, memtable_bytes: u64) -> Result<Self> {
        let db = Db::builder(folder.join("pull")).inline_merges(0).open()?;
        let options = KeyspaceOptions::default().index(IndexKind::Lsm);
        let keyspace = db.keyspace(KEYSPACE, options.memtable_bytes(Some(memtable_bytes)))?;
        Ok(Self { db, keyspace, before: (0, 0, 0) })
    }

    fn lsm(&self) -> Result<LsmStats> {
        let lsm = self.db.stats()?.keyspaces.into_iter().find_map(|keyspace| keyspace.lsm);
        lsm.ok_or_else(|| Error::Input("the store has no LSM index".to_owned()))
    }

    /// Bytes written in all, by the log, and by users.
    fn counts(&self) -> Result<(u64, u64, u64)> {
        let stats: Stats = self.db.stats()?;
        let all = stats.io.iter().map(|io| io.bytes_written).sum();
        let log = stats.io.iter().filter(|io| io.purpose == "log").map(|io| io.bytes_written);
        Ok((all, log.sum(), stats.user_bytes_written))
    }
}

impl Subject for PullSubject {
    fn load(&mut self, rows: &mut dyn Iterator<Item = Row>) -> Result<()> {
        for row in rows {
            if let Row::Put { key, value } = row {
                self.keyspace.insert(key, value)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        match value {
            Some(value) => self.keyspace.insert(key, value)?,
            None => self.keyspace.remove(key)?,
        }
        Ok(())
    }

    fn scan(&mut self, _: &[u8], _: &[u8], _: u32) -> Result<Option<u64>> {
        Ok(None)
    }

    fn sorted_runs(&self) -> Result<usize> {
        let lsm = self.lsm()?;
        let levels = lsm.levels.iter().filter(|level| level.blocks > 0).count();
        Ok(lsm.runs.len() + levels)
    }

    fn begin(&mut self) -> Result<()> {
        self.before = self.counts()?;
        Ok(())
    }

    fn end(&mut self) -> Result<Metrics> {
        let (now, before) = (self.counts()?, self.before);
        let user = (now.2 - before.2).max(1) as f64;
        let mut metrics = Metrics::new();
        metric(&mut metrics, GIGABYTES, (now.0 - before.0) as f64 / 1e9);
        metric(&mut metrics, PER_BYTE, (now.0 - before.0) as f64 / user);
        metric(&mut metrics, LOG, (now.1 - before.1) as f64 / user);
        Ok(metrics)
    }
}
