//! Stores on simulated disks, and a model of what they hold.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use esker_device::sim::SimDevice;
use esker_device::{Caching, Device, DeviceFile, Open};
use esker_harness::counts::Counts;
use esker_harness::planted::{self, Finding};
pub use esker_harness::random::Random;
use esker_harness::violation::Verdict;
use esker_pages::planted::{Bug, with};
use esker_pages::{Allocation, Durability, Options, PageStore, Result, Snapshot, Writer};

pub const FILE: &str = "pages";

/// Small segments and bounds, so that short histories meet checkpoints, spills and full segments.
pub fn small() -> Options {
    let mut options = Options::new().page_size(512).segment_bytes(16 * 1024);
    options.spill_bytes = 24 * 512;
    options.checkpoint_bytes = 24 * 1024;
    options.delta_bytes = 64 * 1024;
    options.relaxed_interval = None;
    options.relaxed_bytes = 64 * 1024;
    options
}

/// The same, with one and the other allocation alternately.
pub fn small_of(seed: u64) -> Options {
    let segment = Options { spare_percent: 10, ..small().allocation(Allocation::Segment) };
    if seed.is_multiple_of(2) { small() } else { segment }
}

pub fn file(device: &SimDevice) -> Result<Arc<dyn DeviceFile>> {
    let existing = device.open(FILE, Open::Existing, Caching::Buffered);
    Ok(existing.or_else(|_| device.open(FILE, Open::CreateNew, Caching::Buffered))?)
}

/// Counts what a suite did, for the page of counts: runs of a store, and stores or parts of them
/// that were judged.
pub fn count(case: &str, runs: u64, judged: u64) {
    let mut counts = Counts::new("page-store", case);
    counts.add("runs", runs);
    counts.add("judged", judged);
    counts.record().unwrap();
}

/// Looks for a planted bug, which an attempt must find.
pub fn hunt<T>(
    bug: Bug,
    attempts: impl IntoIterator<Item = T>,
    attempt: impl FnMut(&T, &mut Counts) -> Verdict,
) -> Finding {
    let found = planted::hunt(attempts, |body| with(bug, body), attempt);
    found.unwrap_or_else(|violation| panic!("{bug:?}: {violation}"))
}

/// A disk that holds an empty file whose name is durable.
pub fn disk() -> SimDevice {
    let device = SimDevice::new();
    file(&device).unwrap();
    device.sync_dir().unwrap();
    device
}

pub fn open(device: &SimDevice, options: &Options) -> Result<PageStore> {
    PageStore::open(file(device)?, options.clone())
}

pub fn open_read_only(device: &SimDevice, options: &Options) -> Result<PageStore> {
    PageStore::open_read_only(file(device)?, options.clone())
}

/// Opens a store to read it, and then to write it.
pub fn open_late(device: &SimDevice, options: &Options) -> Result<PageStore> {
    let store = open_read_only(device, options)?;
    let (seen, before) = (store.pin(), read_all(&store.pin())?);
    store.make_writable(file(device)?)?;
    assert_eq!((store.pin().version(), read_all(&seen)?), (seen.version(), before));
    Ok(store)
}

/// What a version holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub page_size: u32,
    pub pages: Vec<Vec<u8>>,
}

impl Contents {
    pub fn empty(page_size: u32) -> Self {
        Self { page_size, pages: Vec::new() }
    }

    pub fn write(&mut self, page: u32, offset: u32, bytes: &[u8]) {
        let (page, offset) = (page as usize, offset as usize);
        if page >= self.pages.len() {
            self.pages.resize(page + 1, vec![0; self.page_size as usize]);
        }
        self.pages[page][offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn truncate(&mut self, pages: u32) {
        self.pages.resize(pages as usize, vec![0; self.page_size as usize]);
    }
}

/// All that a snapshot holds.
pub fn read_all(snapshot: &Snapshot) -> Result<Contents> {
    let mut contents = Contents::empty(snapshot.page_size());
    for page in 0..snapshot.pages() {
        let mut bytes = vec![0; snapshot.page_size() as usize];
        snapshot.read(page, 0, &mut bytes)?;
        contents.pages.push(bytes);
    }
    Ok(contents)
}

/// All that a writer sees.
pub fn read_writer(writer: &Writer) -> Result<Contents> {
    let mut contents = Contents::empty(writer.page_size());
    for page in 0..writer.pages() {
        let mut bytes = vec![0; writer.page_size() as usize];
        writer.read(page, 0, &mut bytes)?;
        contents.pages.push(bytes);
    }
    Ok(contents)
}

/// What is done to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A part of a page.
    Write(u32, u32, Vec<u8>),
    Truncate(u32),
    PageSize(u32),
    Commit(Durability),
    Abort,
    Prepare,
    Pin,
    Unpin(usize),
    PinNamed(u8),
    UnpinNamed(u8),
    Sync,
    Checkpoint,
    /// The first part of a checkpoint concurrent with commits.
    BeginCheckpoint,
    FinishCheckpoint,
    Collect,
    Compact,
    /// The first part of a pass that makes the file shorter, one of its steps, and its end.
    BeginSqueeze,
    StepSqueeze,
    FinishSqueeze,
    Reopen,
}

/// A random history over at most `pages` pages.
pub fn history(seed: u64, len: usize, pages: u32) -> Vec<Op> {
    let random = Random::new(seed);
    let mut ops = Vec::with_capacity(len);
    while ops.len() < len {
        let op = match random.below(106) {
            0..40 => small_write(&random, pages),
            40..58 => whole_write(&random, pages),
            58..61 => {
                let first = random.below(pages.into()) as u32;
                for page in first..(first + 40).min(pages) {
                    let byte = random.bits() as u8;
                    ops.push(Op::Write(page, 0, vec![byte | 1; 2048]));
                }
                continue;
            }
            61..63 => Op::Truncate(random.below(u64::from(pages) + 4) as u32),
            63 => Op::PageSize(512 << random.below(3)),
            64..79 => Op::Commit(Durability::Full),
            79..82 => Op::BeginCheckpoint,
            82..86 => Op::Commit(Durability::Relaxed),
            86..88 => Op::Abort,
            88 => Op::Prepare,
            89..91 => Op::Pin,
            91..93 => Op::Unpin(random.bits() as usize),
            93 => Op::PinNamed(random.below(3) as u8),
            94 => Op::UnpinNamed(random.below(3) as u8),
            95 => Op::Sync,
            96 => Op::Checkpoint,
            97 => Op::Reopen,
            98 => Op::FinishCheckpoint,
            99 => Op::Collect,
            100 => Op::Compact,
            101 => Op::BeginSqueeze,
            102..104 => Op::StepSqueeze,
            _ => Op::FinishSqueeze,
        };
        ops.push(op);
    }
    ops
}

fn small_write(random: &Random, pages: u32) -> Op {
    let len = 1 + random.below(12) as usize;
    let offset = random.below(512 - len as u64) as u32;
    let byte = random.bits() as u8;
    Op::Write(random.below(pages.into()) as u32, offset, vec![byte; len])
}

fn whole_write(random: &Random, pages: u32) -> Op {
    let bytes = (0..256).flat_map(|_| random.bits().to_le_bytes()).collect();
    Op::Write(random.below(pages.into()) as u32, 0, bytes)
}

/// Named versions of a model: name, version, contents.
pub type Names = BTreeMap<u8, (u64, Contents)>;

pub fn name(n: u8) -> String {
    format!("name {n}")
}
