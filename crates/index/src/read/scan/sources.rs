//! The sorted sequences of versions that a scan merges.

use std::borrow::Cow;
use std::cmp::Ordering;

use esker_format::data::Data;
use esker_format::ids::Seq;
use esker_format::key;
use esker_substrate::error::Result;
use esker_substrate::memtable::{Leaves, Place};

use super::jump::Jump;
use super::{Changed, Scan, ScanBatch, ScanRequest};
use crate::read::heat::Heat;
use crate::read::operands::Operator;
use crate::read::range_tombstones::RangeTombstones;
use crate::run::consumed::Consumed;
use crate::run::cursor::{ShortKey, Target};
use crate::run::data_cursor::{CursorResult, DataCursor};
use crate::run::held_blocks::HeldBlocks;
use crate::run::numbers::Numbers;
use crate::run::tree::{BlockReader, Tree};

/// The number of sources that memory is requested for at once.
const EXPECTED: usize = 16;

/// One run of versions, newest run first in the list of sources.
pub struct Source<'a> {
    run: Run<'a>,
    /// Whether the run has a current key.
    pub(super) has_key: bool,
    /// Whether the current key is only a bound: the run has none before it, and has not been
    /// entered there.
    pub(super) is_bound: bool,
    /// Whether the block that the scan begins with has to be read from the device.
    pub(super) is_missed: bool,
    /// The current key.
    pub(super) key: ShortKey,
    /// The key's first bytes as a number: most comparisons need no more.
    pub(super) head: u64,
    /// The number of the current version.
    pub(super) seq: Seq,
    /// The numbers of the run, where they are known.
    pub(super) numbers: Option<Cow<'a, Numbers>>,
    /// The jump with which the scan enters the run.
    pub(super) entry: Option<Jump>,
}

enum Run<'a> {
    Memory {
        leaves: &'a Leaves,
        at: Option<Place<'a>>,
        /// Keys up to this one are not looked for here: a flush has written them.
        passed: Option<&'a [u8]>,
    },
    Level(DataCursor<'a>),
}

impl<'a> Source<'a> {
    pub(crate) const fn memory(leaves: &'a Leaves) -> Self {
        Self::memory_behind(leaves, None)
    }

    /// Without the keys up to `passed`.
    pub(crate) const fn memory_behind(leaves: &'a Leaves, passed: Option<&'a [u8]>) -> Self {
        Self::standing_nowhere(Run::Memory { leaves, at: None, passed })
    }

    pub(crate) fn level(cursor: DataCursor<'a>) -> Self {
        let numbers = Some(cursor.numbers());
        Self { numbers, ..Self::standing_nowhere(Run::Level(cursor)) }
    }

    const fn standing_nowhere(run: Run<'a>) -> Self {
        Self {
            run,
            has_key: false,
            is_bound: false,
            is_missed: false,
            key: ShortKey::new_const(),
            head: 0,
            seq: Seq(0),
            numbers: None,
            entry: None,
        }
    }

    /// Moves to `target`; without one, nothing is left.
    pub(super) fn move_to(&mut self, target: Option<Target<'_>>) -> CursorResult<()> {
        match target {
            Some(Target::At(key, seq)) => self.seek(key, seq),
            Some(Target::Before(key, seq)) => self.seek_back(Some((key, seq))),
            Some(Target::Last) => self.seek_back(None),
            None => {
                (self.has_key, self.is_bound) = (false, false);
                Ok(())
            }
        }
    }

    /// The run's current key, if it has one.
    pub(super) fn key(&self) -> Option<&[u8]> {
        self.has_key.then_some(self.key.as_slice())
    }

    #[inline]
    pub(super) fn is_on(&self, head: u64, key: &[u8]) -> bool {
        self.has_key && self.head == head && *self.key == *key
    }

    /// A number that is less for keys that come first in a scan; of equal ranks,
    /// [`compare`](Self::compare) decides.
    #[inline]
    pub(super) const fn rank(&self, reverse: bool) -> u64 {
        match (self.has_key, reverse) {
            (true, false) => self.head,
            (true, true) => !self.head,
            (false, _) => u64::MAX,
        }
    }

    /// Keys in scan order, bounds before keys: runs without a current key are last.
    pub(super) fn compare(&self, other: &Self, reverse: bool) -> Ordering {
        match (self.has_key, other.has_key) {
            (true, true) => {
                let order = self.head.cmp(&other.head).then_with(|| self.key.cmp(&other.key));
                let order = if reverse { order.reverse() } else { order };
                order.then(other.is_bound.cmp(&self.is_bound))
            }
            (here, there) => there.cmp(&here),
        }
    }

    pub(super) const fn cursor(&self) -> Option<&DataCursor<'a>> {
        match &self.run {
            Run::Level(cursor) => Some(cursor),
            Run::Memory { .. } => None,
        }
    }

    pub(super) const fn cursor_mut(&mut self) -> Option<&mut DataCursor<'a>> {
        match &mut self.run {
            Run::Level(cursor) => Some(cursor),
            Run::Memory { .. } => None,
        }
    }

    /// Puts the source's current block into `held`. Returns the others that it has in memory.
    pub(super) fn release(self, held: &mut HeldBlocks) -> HeldBlocks {
        match self.run {
            Run::Level(cursor) => cursor.release(held),
            Run::Memory { .. } => HeldBlocks::default(),
        }
    }

    pub(super) fn seek(&mut self, key: &[u8], seq: Seq) -> CursorResult<()> {
        match &mut self.run {
            Run::Memory { leaves, at, passed } => {
                *at = match *passed {
                    // No data has number 0.
                    Some(passed) if key <= passed => leaves.lower_bound(passed, Seq(0)),
                    _ => leaves.lower_bound(key, seq),
                };
            }
            Run::Level(cursor) => {
                if !cursor.knows_first()
                    && let Some(gone) = cursor.consumed_at(key)
                {
                    self.wait_at(gone.end);
                    return Ok(());
                }
                cursor.seek(key, seq)?;
            }
        }
        self.note_key()
    }

    /// The run has no key before `bound`. It is not entered there before a scan comes to it.
    fn wait_at(&mut self, bound: Option<&[u8]>) {
        self.key.clear();
        self.key.extend_from_slice(bound.unwrap_or_default());
        self.head = key::long_head(&self.key);
        (self.has_key, self.is_bound) = (bound.is_some(), bound.is_some());
    }

    /// Enters the run at its bound.
    pub(super) fn enter(&mut self) -> CursorResult<()> {
        let bound = self.key.clone();
        self.is_bound = false;
        self.seek(&bound, Seq::MAX)
    }

    pub(super) fn seek_back(&mut self, before: Option<(&[u8], Seq)>) -> CursorResult<()> {
        match &mut self.run {
            Run::Memory { leaves, at, .. } => {
                *at = match before {
                    Some((key, seq)) => leaves.upper_bound(key, seq),
                    None => leaves.last(),
                };
            }
            Run::Level(cursor) => cursor.seek_back(before)?,
        }
        self.note_key()
    }

    pub(super) fn step(&mut self, reverse: bool) -> CursorResult<()> {
        match &mut self.run {
            Run::Memory { at, .. } => {
                *at = at.take().and_then(|at| if reverse { at.prev() } else { at.next() });
            }
            Run::Level(cursor) => {
                if let Some((prefix_len, suffix, seq)) = cursor.step_within(!reverse) {
                    // The block's common prefix is that of the entry before.
                    self.key.truncate(prefix_len);
                    self.key.extend_from_slice(suffix);
                    (self.head, self.seq) = (key::long_head(&self.key), seq);
                    return Ok(());
                }
                if reverse {
                    cursor.previous()?;
                } else {
                    cursor.next()?;
                }
            }
        }
        self.note_key()
    }

    fn note_key(&mut self) -> CursorResult<()> {
        (self.has_key, self.is_bound) = (false, false);
        let found: Option<([&[u8]; 2], Seq)> = match &self.run {
            Run::Memory { at, passed, .. } => {
                let is_left = |key: &[u8]| passed.is_none_or(|passed| passed < key);
                let at = at.as_ref().filter(|at| is_left(at.key()));
                at.map(|at| ([at.key(), &[]], at.seq()))
            }
            Run::Level(cursor) => {
                cursor.current()?.map(|(prefix, entry)| ([prefix, entry.suffix], entry.seq))
            }
        };
        if let Some((parts, seq)) = found {
            self.key.clear();
            parts.iter().for_each(|part| self.key.extend_from_slice(part));
            (self.has_key, self.head, self.seq) = (true, key::long_head(&self.key), seq);
        }
        Ok(())
    }

    /// The data of the current version.
    pub(super) fn data(&self) -> CursorResult<Data<'_>> {
        Ok(match &self.run {
            Run::Memory { at, .. } => at.as_ref().map_or(Data::Delete, |at| at.data()),
            Run::Level(cursor) => {
                let current = cursor.current()?;
                current.and_then(|(_, entry)| entry.payload.data()).unwrap_or(Data::Delete)
            }
        })
    }
}

/// What a scan merges: the sorted sequences of versions of all parts, newest first.
pub(crate) struct Sources<'a> {
    reader: &'a BlockReader,
    /// The scan is on the new side of the merge under way, at or before its wavefront.
    pub passed: bool,
    /// Of the old side, the wavefront: what is at or before it may not exist any more.
    pub floor: Option<&'a [u8]>,
    /// Levels that have only versions up to this one are left out.
    pub since: Seq,
    /// The number of the first sources, which a merge for scans takes together.
    merged: usize,
    all: Vec<Source<'a>>,
}

impl<'a> Sources<'a> {
    /// Those of the memtable that takes writes.
    pub fn new(
        reader: &'a BlockReader,
        memtable: &'a Leaves,
        passed: bool,
        floor: Option<&'a [u8]>,
    ) -> Self {
        let mut sources = Self { passed, floor, ..Self::without_memtable(reader) };
        sources.all.reserve(EXPECTED);
        sources.all.push(Source::memory(memtable));
        sources
    }

    /// Those of an index without a memtable.
    pub const fn without_memtable(reader: &'a BlockReader) -> Self {
        Self { reader, passed: false, floor: None, since: Seq(0), merged: 0, all: Vec::new() }
    }

    /// One batch, whose reads for runs are noted in `heat`; `held` has blocks of the batch before.
    ///
    /// # Errors
    /// The first unreadable block, unless damage is to be skipped.
    pub fn scan(
        self,
        request: &ScanRequest<'_>,
        removed: &RangeTombstones,
        operator: &Operator,
        heat: Option<&Heat>,
        held: &mut HeldBlocks,
    ) -> Result<ScanBatch> {
        let heat = heat.map(|heat| (heat, self.merged));
        let scan = Scan::new(request, self.all, removed, operator, held);
        Scan { heat, ..scan }.run()
    }

    /// One batch of changed keys, each with an empty value.
    ///
    /// # Errors
    /// The first unreadable block, unless damage is to be skipped.
    pub fn scan_changed(
        self,
        request: &ScanRequest<'_>,
        changed: Changed<'_>,
    ) -> Result<ScanBatch> {
        let (removed, operator) = (RangeTombstones::default(), Operator::default());
        let mut held = HeldBlocks::default();
        let scan = Scan::new(request, self.all, &removed, &operator, &mut held);
        Scan { changed: Some(changed), ..scan }.run()
    }

    /// A merge for scans leaves what is added from now on as it is.
    pub const fn those_below_stay(&mut self) {
        self.merged = self.all.len();
    }

    /// Adds the levels of a tree, of which nothing at or before `floor` may be read.
    pub fn add_levels(&mut self, tree: &'a Tree, floor: Option<&'a [u8]>) {
        for (level, meta) in tree.meta.levels.iter().enumerate() {
            if meta.counts.data_entries() > 0 && meta.seqs.1 > self.since {
                self.all.push(Source::level(DataCursor::new(tree, self.reader, level, floor)));
            }
        }
    }

    /// Adds a run without the keys that merges have consumed.
    pub fn add_rest(&mut self, tree: &'a Tree, consumed: &'a Consumed) {
        let level = tree.height().saturating_sub(1);
        let cursor = DataCursor::new(tree, self.reader, level, None);
        self.all.push(Source::level(cursor.without(consumed)));
    }

    /// Adds a frozen memtable, without the keys up to `passed`.
    pub fn add_memory(&mut self, leaves: &'a Leaves, passed: Option<&'a [u8]>) {
        self.all.push(Source::memory_behind(leaves, passed));
    }
}
