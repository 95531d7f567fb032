//! The tree against a sorted map of versions.

mod damage;
mod gaps;
mod lsm;
mod model;
mod operands;
mod owners;
mod places;
mod policies;
mod preserve;
mod removals;
mod reverse;
mod room;
mod scanned;
mod shapes;
mod slices;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use esker_device::count::CountingDevice;
use esker_device::memory::MemoryDevice;
use esker_device::{Caching, Device, Open, Purpose};
use esker_format::action::KeyRange;
use esker_format::block::Codec;
use esker_format::data::{Data, Value};
use esker_format::ids::{Generation, KeyspaceId, Seq, StoreId};
use esker_format::meta::IndexMeta;
use esker_substrate::blocks::{BlockStore, DATA_FILE};
use esker_substrate::budget::Budget;
use esker_substrate::runs::RunSet;
use esker_substrate::snapshots::{At, SnapshotGuard, Snapshots};

use crate::fdtree::Sizes;
use crate::lsm::Compaction;
use crate::read::operands::{BoxError, MergeOperator, Operator};
use crate::{
    BackgroundJob, CheckSink, Env, HeldBlocks, Index, IndexKind, Options, ScanRequest, Scheme,
    Step, Work,
};

/// Key and number, newest first.
type Version = (Vec<u8>, Reverse<u64>);

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn here(
    entries: impl IntoIterator<Item = (Vec<u8>, Value)>,
) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    entries.into_iter().filter_map(|(key, value)| Some((key, value.here()?)))
}
type Range = (Vec<u8>, Option<Vec<u8>>);

/// A tree, and every version that was ever written to it.
struct Subject {
    device: Arc<CountingDevice>,
    env: Arc<Env>,
    tree: Index,
    next_seq: u64,
    history: BTreeMap<Version, Option<Vec<u8>>>,
    /// Deleted ranges, and when they were deleted. The history has a delete of every key in them
    /// that existed before.
    removals: BTreeMap<u64, Range>,
    /// Operands; the history has the values that they made.
    operands: BTreeMap<u64, Vec<u8>>,
    /// Merges are not given the operator.
    is_blind: bool,
    snapshots: Vec<SnapshotGuard>,
    options: Options,
    /// Free space is overwritten whenever the index is checked, as if others had taken it.
    scribbles: bool,
}

/// The options of a test.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Flush,
    Merge,
    MergeAlone,
    Full,
}

impl Ask {
    const fn work(self) -> Work {
        match self {
            Self::Flush => Work::Flush,
            Self::Merge => Work::Merge { full: false, with_memtable: true },
            Self::MergeAlone => Work::Merge { full: false, with_memtable: false },
            Self::Full => Work::Merge { full: true, with_memtable: true },
        }
    }
}

fn options(memtable_bytes_max: u64) -> Options {
    let (scheme, sizes, codec) = (Scheme::Fc, Sizes::Cost, Codec::None);
    let (compaction, history) = (Compaction::DEFAULT, None);
    Options { memtable_bytes_max, scheme, sizes, codec, compaction, history }
}

/// In these tests nothing else assigns sequence numbers.
fn gate(body: &mut dyn FnMut()) {
    body();
}

const ID: KeyspaceId = KeyspaceId(9);

fn env(
    device: &Arc<CountingDevice>,
    meta: Option<(&IndexMeta, &RunSet, Generation)>,
    budget_bytes: u64,
) -> Arc<Env> {
    let store = StoreId(77);
    let device = &(Arc::clone(device) as Arc<dyn Device>);
    let blocks = match meta {
        None => BlockStore::create(device, store, 1 << 16),
        Some((meta, taken, floor)) => {
            let used: Vec<_> = meta.extents().copied().chain(taken.runs()).collect();
            BlockStore::open(device, store, 1 << 16, used, floor)
        }
    };
    Arc::new(Env {
        blocks: Arc::new(blocks.unwrap()),
        snapshots: Arc::default(),
        faults: Arc::default(),
        budget: Arc::new(Budget::new(budget_bytes)),
        poison: Arc::default(),
    })
}

impl Subject {
    /// With a small budget no express fences fit: lookups go through the levels.
    fn new(memtable_bytes: u64, budget_bytes: u64) -> Self {
        Self::with(options(memtable_bytes), budget_bytes)
    }

    fn with(options: Options, budget_bytes: u64) -> Self {
        Self::of(IndexMeta::default(), options, budget_bytes)
    }

    fn lsm(options: Options, budget_bytes: u64) -> Self {
        let meta = crate::empty(IndexKind::Lsm);
        Self::of(meta, options, budget_bytes)
    }

    fn of(meta: IndexMeta, options: Options, budget_bytes: u64) -> Self {
        Self::on(Arc::new(MemoryDevice::new()), meta, options, budget_bytes)
    }

    fn on(device: Arc<dyn Device>, meta: IndexMeta, options: Options, budget_bytes: u64) -> Self {
        let device = Arc::new(CountingDevice::new(device));
        let env = env(&device, None, budget_bytes);
        let tree = Index::open(Arc::clone(&env), ID, meta, options);
        Self {
            device,
            env,
            tree,
            next_seq: 1,
            history: BTreeMap::new(),
            removals: BTreeMap::new(),
            operands: BTreeMap::new(),
            is_blind: false,
            snapshots: Vec::new(),
            options,
            scribbles: false,
        }
    }

    fn snapshots(&self) -> &Arc<Snapshots> {
        &self.env.snapshots
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        let seq = self.next_seq;
        self.next_seq += 1;
        self.tree.insert(key, Seq(seq), value.into());
        self.history.insert((key.to_vec(), Reverse(seq)), value.map(<[u8]>::to_vec));
        self.snapshots().publish(Seq(seq));
    }

    /// Appends to the value of `key`.
    fn append(&mut self, key: &[u8], operand: &[u8]) {
        let older = self.expected(key, self.next_seq).unwrap_or_default();
        let seq = self.next_seq;
        self.next_seq += 1;
        self.tree.insert(key, Seq(seq), Data::Operand(operand));
        self.history.insert((key.to_vec(), Reverse(seq)), Some([&older, operand].concat()));
        self.operands.insert(seq, operand.to_vec());
        self.snapshots().publish(Seq(seq));
    }

    /// Gives the operator to reads, or to merges, if those are not blind.
    fn give_operator(&self, reads: bool) {
        let append = |_: &[u8], older: &[u8], newer: &[u8]| Ok([older, newer].concat());
        let append: Arc<dyn MergeOperator> =
            Arc::new(append as fn(&[u8], &[u8], &[u8]) -> Result<Vec<u8>, BoxError>);
        let function = Some(append).filter(|_| reads || !self.is_blind);
        let name = Some("append".into());
        self.tree.set_operator(Operator { name, keyspace: "subject".into(), function });
    }

    fn remove_range(&mut self, begin: &[u8], end: Option<&[u8]>) {
        let seq = self.next_seq;
        self.next_seq += 1;
        let keys = KeyRange { begin, end };
        self.tree.remove_ranges(&[(keys, Seq(seq))]);
        let within = self.history.keys().map(|(key, _)| key.clone()).filter(|key| keys.has(key));
        let gone: BTreeSet<_> = within.collect();
        self.history.extend(gone.into_iter().map(|key| ((key, Reverse(seq)), None)));
        self.removals.insert(seq, (begin.to_vec(), end.map(<[u8]>::to_vec)));
        self.snapshots().publish(Seq(seq));
    }

    fn run(&mut self, ask: Ask) {
        self.give_operator(false);
        self.tree.run(ask.work(), &gate, &mut |_, _| Ok(())).unwrap();
        self.check();
    }

    fn begin(&mut self, ask: Ask) {
        self.tree.begin(ask.work(), &gate).unwrap();
        self.check();
    }

    fn step(&mut self, which: BackgroundJob) -> Step {
        self.give_operator(false);
        let step = self.tree.step(which, &mut |_, _| Ok(())).unwrap();
        self.check();
        step
    }

    fn complete(&mut self) {
        self.give_operator(false);
        self.tree.complete(&mut |_, _| Ok(())).unwrap();
        self.check();
    }

    /// Does the work that is due, and checks the result.
    fn maintain(&mut self) {
        if self.tree.is_merging() || self.tree.is_flushing() {
            self.complete();
        }
        let mut works = 0;
        while let Some(work) = self.tree.due() {
            assert!(self.tree.begin(work, &gate).unwrap(), "{work:?} is due and does not begin");
            self.complete();
            works += 1;
            assert!(works < 5, "{work:?} is due for ever: {:#?}", self.tree.stats());
        }
    }

    /// Begins the work that is due, and continues the work under way for `steps` steps.
    fn go_on(&mut self, steps: u8) {
        if let Some(work) = self.tree.due() {
            self.tree.begin(work, &gate).unwrap();
        }
        for _ in 0..steps {
            if self.step(BackgroundJob::Flush) == Step::Idle
                && self.step(BackgroundJob::Merge) == Step::Idle
            {
                return;
            }
        }
    }

    fn check(&self) {
        let mut sink = CheckSink::default();
        let paused = self.tree.pause();
        paused.check(&mut sink);
        assert_eq!(sink.problems, [], "{:#?}", self.tree.stats());
        let space = self.env.blocks.space();
        let used = paused.extents().iter().map(|extent| extent.units).sum::<u64>();
        drop(paused);
        assert_eq!(used + space.retired_units() + space.free_units(), space.end(), "lost units");
        self.tree.collect().unwrap();
        assert_eq!(self.env.blocks.space().retired_units(), 0);
        if self.scribbles {
            self.scribble();
        }
    }

    /// Overwrites free space.
    fn scribble(&self) {
        let file = self.device.open(DATA_FILE, Open::Existing, Caching::Buffered).unwrap();
        let free: Vec<_> = self.env.blocks.space().free_runs().collect();
        for extent in free {
            let bytes = file.len().unwrap().saturating_sub(extent.offset()).min(extent.bytes());
            file.write_at(extent.offset(), &vec![0xa5; bytes as usize], Purpose::Check).unwrap();
        }
    }

    /// A crash that the whole log survives: the recorded state, with the log replayed.
    fn reopen_unchecked(&mut self) {
        self.reopen_with(self.env.budget.total_bytes());
    }

    /// The same with another memory budget.
    fn reopen_with(&mut self, budget_bytes: u64) {
        let meta = self.tree.meta();
        self.snapshots.clear();
        let floor = self.env.blocks.next_generation();
        let taken = self.tree.taken_runs();
        self.env = env(&self.device, Some((&meta, &taken, floor)), budget_bytes);
        self.tree = Index::open(Arc::clone(&self.env), ID, (*meta).clone(), self.options)
            .with_values(taken);
        let written = |seq: &u64| !self.removals.contains_key(seq);
        let mut log: Vec<_> = self.history.iter().filter(|((_, seq), _)| written(&seq.0)).collect();
        log.sort_by_key(|((_, seq), _)| seq.0);
        let mut removals = self.removals.iter().peekable();
        for ((key, seq), value) in log {
            while let Some((removal, (begin, end))) = removals.next_if(|(at, _)| **at < seq.0) {
                let keys = KeyRange { begin, end: end.as_deref() };
                self.tree.replay_removal(keys, Seq(*removal));
            }
            let data = match self.operands.get(&seq.0) {
                Some(operand) => Data::Operand(operand),
                None => value.as_deref().into(),
            };
            self.tree.replay(key, Seq(seq.0), data);
        }
        for (removal, (begin, end)) in removals {
            self.tree.replay_removal(KeyRange { begin, end: end.as_deref() }, Seq(*removal));
        }
        self.snapshots().publish(Seq(self.next_seq - 1));
        let _retried_later = self.tree.resume();
    }

    fn reopen(&mut self) {
        self.reopen_unchecked();
        self.check();
    }

    /// Another view of the same device, with nothing cached.
    fn reopened_from(other: &Self) -> Self {
        let mut subject = Self {
            device: Arc::clone(&other.device),
            env: Arc::clone(&other.env),
            tree: Index::open(
                Arc::clone(&other.env),
                ID,
                (*other.tree.meta()).clone(),
                other.options,
            )
            .with_values(other.tree.taken_runs()),
            next_seq: other.next_seq,
            history: other.history.clone(),
            removals: other.removals.clone(),
            operands: other.operands.clone(),
            is_blind: other.is_blind,
            snapshots: Vec::new(),
            options: other.options,
            scribbles: other.scribbles,
        };
        subject.reopen_unchecked();
        subject
    }

    /// The result of a scan that skips damage, ascending, and the ranges it names.
    fn scan_around_damage(&self, seq: u64, reverse: bool) -> (Entries, Vec<Range>) {
        let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
        let (mut all, mut ranges) = (Vec::new(), Vec::new());
        let mut held = HeldBlocks::default();
        loop {
            let request = ScanRequest {
                at: self.at(seq),
                lower: lower.as_ref().map(Vec::as_slice),
                upper: upper.as_ref().map(Vec::as_slice),
                reverse,
                entries_max: 100,
                bytes_max: 1 << 20,
                skip_damaged: true,
            };
            let found = self.tree.scan_on(&request, &mut held).unwrap();
            all.extend(here(found.entries));
            ranges.extend(found.damaged.into_iter().map(|range| (range.from, range.to)));
            match found.resume {
                None => break,
                Some(bound) if reverse => upper = bound,
                Some(bound) => lower = bound,
            }
        }
        if reverse {
            all.reverse();
        }
        ranges.dedup();
        (all, ranges)
    }

    fn at(&self, seq: u64) -> At {
        At { seq: Seq(seq), now: self.snapshots().now() }
    }

    fn visible(&self) -> u64 {
        self.snapshots().visible().0
    }

    fn expected(&self, key: &[u8], seq: u64) -> Option<Vec<u8>> {
        let mut versions = self.history.range((key.to_vec(), Reverse(seq))..);
        versions.next().filter(|((found, _), _)| found == key).and_then(|(_, value)| value.clone())
    }

    /// Keys and values as of `seq`.
    fn expected_all(&self, seq: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        let mut last: Option<&[u8]> = None;
        for ((key, number), value) in &self.history {
            if number.0 > seq || last == Some(key) {
                continue;
            }
            last = Some(key);
            if let Some(value) = value {
                all.push((key.clone(), value.clone()));
            }
        }
        all
    }

    fn verify_get(&self, key: &[u8]) {
        self.give_operator(true);
        for seq in self.snapshots.iter().map(|s| s.seq().0).chain([self.visible()]) {
            let found = self.tree.get_at(key, self.at(seq)).unwrap();
            let found = found.and_then(Value::here);
            assert_eq!(found, self.expected(key, seq), "key {key:?} at {seq}");
        }
        let visible = self.visible();
        let found = self.tree.get(key, || Seq(visible)).unwrap().and_then(Value::here);
        assert_eq!(found, self.expected(key, visible), "key {key:?} as it is now");
    }

    fn verify_all(&self) {
        let keys: Vec<&[u8]> = self.history.keys().map(|(key, _)| key.as_slice()).collect();
        keys.iter().for_each(|key| self.verify_get(key));
        let visible = self.visible();
        for (key, found) in keys.iter().zip(self.tree.multi_get(&keys, self.at(visible))) {
            assert_eq!(found.unwrap().and_then(Value::here), self.expected(key, visible));
        }
        for seq in self.snapshots.iter().map(|s| s.seq().0).chain([self.visible()]) {
            let all = self.expected_all(seq);
            assert_eq!(self.scan_all(seq, (Bound::Unbounded, Bound::Unbounded), false, 7), all);
            let mut reversed = self.scan_all(seq, (Bound::Unbounded, Bound::Unbounded), true, 5);
            reversed.reverse();
            assert_eq!(reversed, all);
        }
    }

    fn scan_all(
        &self,
        seq: u64,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        batch: usize,
    ) -> Entries {
        self.give_operator(true);
        let (mut lower, mut upper) = (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec));
        let (mut all, mut held) = (Vec::new(), HeldBlocks::default());
        loop {
            let request = ScanRequest {
                at: self.at(seq),
                lower: lower.as_ref().map(Vec::as_slice),
                upper: upper.as_ref().map(Vec::as_slice),
                reverse,
                entries_max: batch,
                bytes_max: 1 << 20,
                skip_damaged: false,
            };
            let found = self.tree.scan_on(&request, &mut held).unwrap();
            assert!(found.entries.len() <= batch);
            all.extend(here(found.entries));
            match found.resume {
                None => return all,
                Some(bound) if reverse => upper = bound,
                Some(bound) => lower = bound,
            }
        }
    }
}
