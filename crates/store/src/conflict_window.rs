//! Recent writes, with which transactions compare their reads.
//!
//! While a transaction is live, every write leaves its keys here, or the range that it removes, in
//! the order of its numbers; except a write that replaces operands by their value, which changes no
//! result of a read. A transaction that commits searches the writes since its snapshot for keys
//! that it has read: most of them before it takes the write mutex, the rest under it.
//!
//! Thread safety: everything may be called from any thread; [`Recent::note`] and
//! [`Recent::check_rest`] are called under the write mutex.
//!
//! Invariant: while `recording`, every write above `floor` that changes what is read is in the
//! window; those of `sealed` come before those of `open`, each in the order of numbers.
//! Invariant: `recording` is set under the write mutex and the window's, and cleared under both
//! when no transaction but the one that commits is live. A thread that begins a transaction sees it
//! set under the window's: then no write above the transaction's number is missing, since one that
//! runs at that moment has left its keys, or will find the transaction.
//! Invariant: what is dropped is at or below the oldest live transaction's number, or the window is
//! over its maximum. `floor` shows this to transactions that are older.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use esker_format::action::{KeyRange, WriteOp};
use esker_format::ids::{KeyspaceId, Seq};
use esker_substrate::budget::{Budget, Lease, Part};
use esker_substrate::planted::{self, Race};
use esker_substrate::snapshots::{SnapshotGuard, Snapshots};
use esker_substrate::sync::Mutex;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Entries that may be looked at under the write mutex: more are sealed before, if there is time.
const REST_MAX: usize = 64;
/// The number of times that a transaction checks, without the write mutex, the writes made since
/// its last check.
const ROUNDS_MAX: u32 = 4;
const SEGMENT_BYTES: (u64, u64) = (4 << 10, 64 << 10);

/// The writes with which live transactions may have to compare their reads.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Read without the window's lock by every write, under the write mutex.
    recording: AtomicBool,
    window: Mutex<Window>,
    conflicts: AtomicU64,
    budget: Arc<Budget>,
    bytes_max: u64,
}

#[derive(Debug, Default)]
struct Window {
    /// Live transactions, by their numbers.
    starts: BTreeMap<Seq, usize>,
    floor: Seq,
    sealed: VecDeque<Arc<Segment>>,
    /// Keys of `sealed`, in bytes.
    sealed_bytes: u64,
    open: Segment,
}

/// Keys of consecutive numbers.
#[derive(Debug, Default)]
struct Segment {
    /// The number before the first one.
    after: Seq,
    entries: Vec<Entry>,
    keys: Vec<u8>,
    _counted: Option<Lease>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    keyspace: KeyspaceId,
    /// The offset in `keys` at which the key ends; it begins at the end of the one before.
    end: u32,
    /// For a removed range, the offset at which its first key ends. Its end key follows; it is
    /// empty if the range has no end.
    range: Option<u32>,
}

/// The reason why a transaction cannot be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// Something that it read from this keyspace has been written since.
    Written(KeyspaceId),
    /// Unknown: too much has been written since for the window to remember it.
    Forgotten,
}

/// The key that was written, or the range that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written<'a> {
    Key(&'a [u8]),
    Range(KeyRange<'a>),
}

/// The keys and ranges that a transaction has read.
pub(crate) trait Footprint {
    /// Whether a write of `keys` changes what was read.
    fn has(&self, keyspace: KeyspaceId, keys: Written<'_>) -> bool;
}

impl Segment {
    fn last(&self) -> Seq {
        Seq(self.after.0.saturating_add(self.entries.len() as u64))
    }

    fn bytes(&self) -> u64 {
        (self.keys.len() + self.entries.len() * size_of::<Entry>()) as u64
    }

    fn push(&mut self, keyspace: KeyspaceId, action: &WriteOp<'_>) {
        let range = match action {
            WriteOp::Point(key, _) => {
                self.keys.extend_from_slice(key);
                None
            }
            WriteOp::DeleteRange(keys) => {
                self.keys.extend_from_slice(keys.begin);
                let middle = self.end();
                self.keys.extend_from_slice(keys.end.unwrap_or_default());
                Some(middle)
            }
        };
        let end = self.end();
        self.entries.push(Entry { keyspace, end, range });
    }

    fn end(&self) -> u32 {
        // A segment is sealed long before.
        u32::try_from(self.keys.len()).unwrap_or(u32::MAX)
    }

    /// The writes above `seq`.
    fn above(&self, seq: Seq) -> impl Iterator<Item = (KeyspaceId, Written<'_>)> {
        let skipped = usize::try_from(seq.0.saturating_sub(self.after.0)).unwrap_or(usize::MAX);
        let entries = self.entries.get(skipped..).unwrap_or_default();
        let before = skipped.checked_sub(1).and_then(|at| self.entries.get(at));
        let mut begin = before.map_or(0, |entry| entry.end as usize);
        entries.iter().map(move |entry| {
            let (from, to) = (begin, entry.end as usize);
            let bytes = |from: usize, to: usize| self.keys.get(from..to).unwrap_or_default();
            begin = to;
            let written = match entry.range.map(|middle| middle as usize) {
                None => Written::Key(bytes(from, to)),
                Some(middle) => {
                    let end = Some(bytes(middle, to)).filter(|end| !end.is_empty());
                    Written::Range(KeyRange { begin: bytes(from, middle), end })
                }
            };
            (entry.keyspace, written)
        })
    }

    fn check(&self, above: Seq, reads: &impl Footprint) -> Result<(), Stale> {
        let mut writes = self.above(above);
        let met = writes.find(|(keyspace, written)| reads.has(*keyspace, *written));
        met.map_or(Ok(()), |(keyspace, _)| Err(Stale::Written(keyspace)))
    }
}

impl Window {
    fn enter(&mut self, snapshots: &Arc<Snapshots>) -> SnapshotGuard {
        let snapshot = snapshots.register();
        *self.starts.entry(snapshot.seq()).or_insert(0) += 1;
        snapshot
    }

    fn leave(&mut self, start: Seq) {
        if let Some(count) = self.starts.get_mut(&start) {
            *count -= 1;
            if *count == 0 {
                self.starts.remove(&start);
            }
        }
    }

    fn live(&self) -> usize {
        // Three suffice to tell one from more.
        self.starts.values().take(3).sum()
    }

    /// Begins with nothing remembered: every write up to `floor` is in the trees.
    fn restart(&mut self, floor: Seq) {
        self.floor = floor;
        self.sealed = VecDeque::new();
        self.sealed_bytes = 0;
        self.open = Segment { after: floor, ..Segment::default() };
    }

    /// Prepares for a next entry with the number `first`: a gap before it begins a new segment.
    fn go_on_at(&mut self, first: Seq, recent: &Recent, snapshots: &Snapshots) {
        if self.open.last().next() != first {
            self.seal(&recent.budget);
            self.open.after = Seq(first.0.saturating_sub(1));
            self.trim(snapshots, recent.bytes_max);
        }
    }

    fn seal(&mut self, budget: &Arc<Budget>) {
        let next = Segment { after: self.open.last(), ..Segment::default() };
        let mut full = std::mem::replace(&mut self.open, next);
        full._counted = Some(budget.lease(Part::Cache, full.bytes()));
        self.sealed_bytes += full.bytes();
        self.sealed.push_back(Arc::new(full));
    }

    /// Drops the keys that no live transaction needs, and those over the maximum.
    fn trim(&mut self, snapshots: &Snapshots, bytes_max: u64) {
        let oldest = self.oldest(snapshots);
        while let Some(first) = self.sealed.front() {
            let last = first.last();
            if last > oldest && self.sealed_bytes <= bytes_max {
                return;
            }
            self.sealed_bytes = self.sealed_bytes.saturating_sub(first.bytes());
            self.floor = last;
            self.sealed.pop_front();
        }
    }

    fn oldest(&self, snapshots: &Snapshots) -> Seq {
        // The next transaction begins at the visible number or above it.
        self.starts.keys().next().copied().unwrap_or_else(|| snapshots.visible())
    }

    fn covers(&self, checked: Seq) -> Result<(), Stale> {
        if checked < self.floor { Err(Stale::Forgotten) } else { Ok(()) }
    }

    fn sealed_above(&self, checked: Seq) -> impl Iterator<Item = &Arc<Segment>> {
        let known = self.sealed.partition_point(|segment| segment.last() <= checked);
        self.sealed.range(known..)
    }
}

impl Recent {
    pub fn new(budget: Arc<Budget>, bytes_max: u64) -> Self {
        Self {
            recording: false.into(),
            window: Mutex::default(),
            conflicts: 0.into(),
            budget,
            bytes_max,
        }
    }

    /// A transaction begins, and takes a snapshot. `order` is the write mutex.
    pub fn enter(&self, snapshots: &Arc<Snapshots>, order: &Mutex<()>) -> SnapshotGuard {
        {
            let mut window = self.window.lock();
            if self.recording.load(Ordering::Relaxed) {
                return window.enter(snapshots);
            }
        }
        // A write that runs now leaves nothing: the snapshot is taken when it is done.
        let _order = (!planted::is(Race::BegunBesideWrite)).then(|| order.lock());
        let mut window = self.window.lock();
        if !self.recording.load(Ordering::Relaxed) {
            window.restart(snapshots.visible());
            self.recording.store(true, Ordering::Relaxed);
        }
        window.enter(snapshots)
    }

    /// A transaction that began at `seq` has ended.
    pub fn leave(&self, snapshots: &Snapshots, seq: Seq) {
        let mut window = self.window.lock();
        window.leave(seq);
        if !window.sealed.is_empty() {
            window.trim(snapshots, self.bytes_max);
        }
    }

    /// Remembers writes whose numbers begin with `first`, while a transaction may ask for them.
    /// `own`: they are those of a live transaction, which does not ask.
    pub fn note<'a>(
        &self,
        snapshots: &Snapshots,
        first: Seq,
        own: bool,
        writes: impl Iterator<Item = (KeyspaceId, WriteOp<'a>)>,
    ) {
        if !self.recording.load(Ordering::Relaxed) {
            return;
        }
        let mut window = self.window.lock();
        if window.live() <= usize::from(own) {
            window.restart(first);
            self.recording.store(false, Ordering::Relaxed);
            return;
        }
        window.go_on_at(first, self, snapshots);
        let segment_bytes = (self.bytes_max / 8).clamp(SEGMENT_BYTES.0, SEGMENT_BYTES.1);
        for (keyspace, action) in writes {
            window.open.push(keyspace, &action);
            if window.open.bytes() >= segment_bytes {
                window.seal(&self.budget);
                window.trim(snapshots, self.bytes_max);
            }
        }
    }

    /// Checks the writes above `checked`, without the write mutex, until few are left. Returns the
    /// number of the last write that was checked.
    pub fn check_ahead(&self, mut checked: Seq, reads: &impl Footprint) -> Result<Seq, Stale> {
        for _ in 0..ROUNDS_MAX {
            let sealed = {
                let mut window = self.window.lock();
                window.covers(checked)?;
                if window.open.above(checked).count() > REST_MAX {
                    window.seal(&self.budget);
                }
                window.sealed_above(checked).cloned().collect::<Vec<_>>()
            };
            if sealed.is_empty() {
                break;
            }
            for segment in sealed {
                segment.check(checked, reads)?;
                checked = segment.last();
            }
        }
        Ok(checked)
    }

    /// Looks through the rest of the writes above `checked`.
    pub fn check_rest(&self, checked: Seq, reads: &impl Footprint) -> Result<(), Stale> {
        let window = self.window.lock();
        window.covers(checked)?;
        window.sealed_above(checked).try_for_each(|segment| segment.check(checked, reads))?;
        window.open.check(checked, reads)
    }

    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    pub fn count_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// Commits refused since the store was opened.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Live transactions, and the bytes of what is remembered for them.
    pub fn held(&self) -> (u64, u64) {
        let window = self.window.lock();
        let live: usize = window.starts.values().sum();
        (live as u64, window.sealed_bytes + window.open.bytes())
    }
}
