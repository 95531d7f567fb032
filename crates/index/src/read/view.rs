//! Views: the immutable state that readers see, replaced as merges proceed.
//!
//! Thread safety: any number of threads load views and read through them, without waiting; views
//! are replaced under one mutex. A replaced view is kept until its last reader has dropped it:
//! then, and not earlier, the space that only older views refer to may be reused. The last reader
//! only decrements a counter; the thread that merges frees.
//!
//! Invariant: the parts of a view, newest first, hold disjoint, descending ranges of sequence
//! numbers, and so do the inputs of a moving part; only therefore may a lookup stop at the
//! first visible version.
//! Invariant: a view with a greater number never refers to the contents of an extent tagged with a
//! smaller or equal number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use esker_format::data::{Data, Value};
use esker_format::ids::{Moment, Seq};
use esker_format::meta::PastIndex;
use esker_format::ptr::{BlockPtr, Extent, UNIT_BYTES};
use esker_substrate::blocks::BlockStore;
use esker_substrate::error::Result;
use esker_substrate::memtable::Memtable;
use esker_substrate::planted::{self, Bug};
use esker_substrate::sync::{Loaded, Mutex, Swap};

use crate::job::BackgroundJob;
use crate::read::heat::Heat;
use crate::read::moving::Moving;
use crate::read::operands::{Operator, Stack};
use crate::read::past::PastIndexes;
use crate::read::range_tombstones::RangeTombstones;
use crate::read::scan::{Clipped, ScanBatch, ScanRequest, Sources};
use crate::read::source::{Part, Run, find};
use crate::run::consumed::Consumed;
use crate::run::held_blocks::HeldBlocks;
use crate::run::lookup::{Found, Probe};
use crate::run::tree::{BlockReader, Tree};

/// A state of the index.
#[derive(Debug)]
pub struct View {
    number: u64,
    /// Takes new entries.
    pub(crate) memtable: Arc<Memtable>,
    /// Newest first. The last one is the main tree, perhaps empty, or the merge that replaces it.
    pub(crate) parts: Vec<Part>,
    /// The range tombstones.
    pub(crate) removed: Arc<RangeTombstones>,
    /// The past indexes, where the keyspace keeps history.
    pub(crate) past: Arc<PastIndexes>,
    /// Memory of frozen memtables, in bytes: every write asks for it.
    frozen_bytes: u64,
}

/// The value to which a key's operands fold.
pub(crate) struct Folded {
    pub value: Option<Value>,
    /// Their base does not expire.
    pub lasts: bool,
}

impl Folded {
    fn of(mut stack: Stack<'_>, data: Data<'_>, now: impl FnOnce() -> Moment) -> Result<Self> {
        let data = if data.until().is_some() { data.as_of(now()) } else { data };
        let lasts = data.until().is_none();
        let value = stack.push(data).transpose()?.flatten();
        Ok(Self { value, lasts })
    }

    fn end(stack: Stack<'_>) -> Self {
        Self { value: stack.end(), lasts: true }
    }
}

impl View {
    /// A state without a number: that is given when it is published.
    pub(crate) fn new(
        memtable: Arc<Memtable>,
        parts: Vec<Part>,
        removed: Arc<RangeTombstones>,
        past: Arc<PastIndexes>,
    ) -> Self {
        let moving = parts.iter().filter_map(Moving::of);
        let frozen_bytes = moving.map(|moving| moving.frozen_bytes).sum();
        Self { number: 0, memtable, parts, removed, past, frozen_bytes }
    }

    /// The same with another memtable and other parts.
    pub(crate) fn with_parts(&self, memtable: Arc<Memtable>, parts: Vec<Part>) -> Self {
        Self::new(memtable, parts, Arc::clone(&self.removed), Arc::clone(&self.past))
    }

    /// The same with other range tombstones.
    pub(crate) fn with_removed(&self, removed: RangeTombstones) -> Self {
        let (memtable, past) = (Arc::clone(&self.memtable), Arc::clone(&self.past));
        Self::new(memtable, self.parts.clone(), Arc::new(removed), past)
    }

    /// The same without the past indexes that end at `until` or before.
    pub(crate) fn without_past(&self, until: Seq) -> Self {
        self.with_past(self.past.without(until))
    }

    /// The same with `new` in the place of the past index with the same versions.
    pub(crate) fn with_replaced_past(&self, new: &Arc<PastIndex>) -> Self {
        self.with_past(self.past.replaced(new))
    }

    fn with_past(&self, past: PastIndexes) -> Self {
        let (memtable, removed) = (Arc::clone(&self.memtable), Arc::clone(&self.removed));
        Self::new(memtable, self.parts.clone(), removed, Arc::new(past))
    }

    /// The newest range tombstone of `key` that `seq` sees: older versions are hidden. 0 if there
    /// is none.
    pub(crate) fn removal(&self, key: &[u8], seq: Seq) -> Seq {
        if self.removed.is_empty() { Seq(0) } else { self.removed.newest(key, seq) }
    }

    /// The newest version that `probe` may see.
    pub(crate) fn get(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Found> {
        let found = match self.past.at(reader, probe.seq)? {
            Some(past) => past.get(reader, probe)?,
            None => {
                let probe = &probe.behind(self.removal(probe.key, probe.seq));
                self.get_any(reader, probe)?
            }
        };
        Ok(found.unwrap_or(Found { seq: Seq(0), data: Data::Delete.into() }))
    }

    /// The newest version in the index of now that `probe`, which knows the range tombstones, may
    /// see.
    pub(crate) fn get_any(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Option<Found>> {
        match self.memtable.get(probe.key, probe.seq) {
            Some(version) => Ok(Some(probe.found(version.seq(), version.data()))),
            None => find(&self.parts, reader, probe),
        }
    }

    /// The newest version that there is of `key` up to `seq`, where history is kept: its number,
    /// and that of the newest range tombstone that hides it, or 0. One lookup in the index that
    /// answers `seq`; a copy in it has the number of what it copies. Where the key is not in it, it
    /// had no value when that index began, and may have been deleted before: one lookup more for
    /// each index before that one, until a version is found.
    pub(crate) fn version(
        &self,
        reader: &BlockReader,
        key: &[u8],
        seq: Seq,
    ) -> Result<(Option<Found>, Seq)> {
        let probe = Probe::new(key, seq);
        let mut past = self.past.at(reader, seq)?;
        if past.is_none() {
            let removal = self.removal(key, seq);
            let found = self.get_any(reader, &probe)?;
            if found.is_some() {
                return Ok((found, removal));
            }
            // What a split under way has copied from is not a past index yet.
            if let Some(split) = self.split() {
                let found = split.get_in_whole(reader, &probe)?;
                if found.is_some() {
                    return Ok((found, removal));
                }
            }
            past = self.past.last(reader);
        }
        while let Some(here) = past {
            let found = here.get_any(reader, &probe)?;
            if found.is_some() {
                return Ok((found, here.removed.newest(key, seq)));
            }
            past = self.past.before(reader, here.meta.from);
        }
        Ok((None, Seq(0)))
    }

    /// The value that `probe` sees, whose number is registered, as of the moment that `now`
    /// returns; `now` is called last and only where it matters. One lookup, and one more for each
    /// operand outside the memtable.
    pub(crate) fn value(
        &self,
        reader: &BlockReader,
        probe: &Probe<'_>,
        operator: &Swap<Operator>,
        now: impl FnOnce() -> Moment,
    ) -> Result<Option<Value>> {
        let found = self.get(reader, probe)?;
        if !found.data.is_operand() {
            return Ok(found.data.into_value(now));
        }
        Ok(self.fold(reader, probe, &operator.load(), now)?.value)
    }

    /// The value of a key whose newest version that `probe` sees is an operand.
    pub(crate) fn fold(
        &self,
        reader: &BlockReader,
        probe: &Probe<'_>,
        operator: &Operator,
        now: impl FnOnce() -> Moment,
    ) -> Result<Folded> {
        let mut probe = probe.behind(self.removal(probe.key, probe.seq));
        let mut stack = Stack::new(probe.key, operator);
        let leaves = self.memtable.leaves();
        let mut place = leaves.lower_bound(probe.key, probe.seq);
        while let Some(here) = place.take().filter(|here| here.key() == probe.key) {
            let data = probe.as_seen(here.seq(), here.data());
            if !data.is_operand() {
                return Folded::of(stack, data, now);
            }
            if let Some(Err(error)) = stack.push(data) {
                return Err(error);
            }
            let Some(older) = probe.before(here.seq()) else { return Ok(Folded::end(stack)) };
            (probe, place) = (older, here.next());
        }
        while let Some(found) = find(&self.parts, reader, &probe)? {
            if !found.data.is_operand() {
                return Folded::of(stack, found.data.as_data(), now);
            }
            if let Some(Err(error)) = stack.push(found.data.as_data()) {
                return Err(error);
            }
            let Some(older) = probe.before(found.seq) else { break };
            probe = older;
        }
        Ok(Folded::end(stack))
    }

    /// One batch of a scan.
    pub(crate) fn scan(
        &self,
        reader: &BlockReader,
        request: &ScanRequest<'_>,
        operator: &Operator,
        heat: &Heat,
        held: &mut HeldBlocks,
    ) -> Result<ScanBatch> {
        let at = request.at.seq;
        if let Some(past) = self.past.at(reader, at)? {
            let mut sources = Sources::without_memtable(reader);
            past.parts.iter().for_each(|part| part.scan(&mut sources));
            return sources.scan(request, &past.removed, operator, None, held);
        }
        let merge = self.moving(BackgroundJob::Merge).map(|(_, merge)| merge);
        let merge = merge.filter(|merge| merge.shows_result(at));
        let wavefront = merge.and_then(|merge| merge.wavefront.as_deref());
        let Clipped { request, passed, rest } = request.clipped(wavefront);
        let floor = wavefront.filter(|_| !passed);
        let active = self.memtable.leaves_arc();
        let mut sources = Sources::new(reader, &active, passed, floor);
        let staying = heat.staying();
        let heat = staying.map(|_| heat);
        let merged = self.parts.len().saturating_sub(staying.unwrap_or_default());
        let (upper, lower) = self.parts.split_at(merged);
        upper.iter().for_each(|part| part.scan(&mut sources));
        sources.those_below_stay();
        lower.iter().for_each(|part| part.scan(&mut sources));
        let mut batch = sources.scan(&request, &self.removed, operator, heat, held)?;
        if batch.resume.is_none() {
            batch.resume = rest.map(|bound| bound.map(<[u8]>::to_vec));
        }
        Ok(batch)
    }

    /// The blocks that a lookup of `probe` would read as far as fences in memory tell.
    pub(crate) fn candidates(
        &self,
        reader: &BlockReader,
        probe: &Probe<'_>,
        out: &mut Vec<BlockPtr>,
    ) {
        match self.past.at(reader, probe.seq) {
            Ok(Some(past)) => past.parts.iter().for_each(|part| part.candidates(probe, out)),
            Ok(None) => self.parts.iter().for_each(|part| part.candidates(probe, out)),
            // The lookup says why.
            Err(_) => {}
        }
    }

    /// The moving part of `which`, and its place.
    pub(crate) fn moving(&self, which: BackgroundJob) -> Option<(usize, &Moving)> {
        let parts = self.parts.iter().enumerate();
        let mut moving = parts.filter_map(|(place, part)| Some((place, Moving::of(part)?)));
        moving.find(|(_, moving)| moving.which == which)
    }

    /// The split under way.
    pub(crate) fn split(&self) -> Option<&Moving> {
        let merge = self.moving(BackgroundJob::Merge).map(|(_, merge)| merge);
        merge.filter(|merge| merge.splits_at.is_some())
    }

    /// Memory of frozen memtables, in bytes.
    pub(crate) const fn frozen_bytes(&self) -> u64 {
        self.frozen_bytes
    }

    /// The same with another state of the part that `moving` moves.
    pub(crate) fn with_moving(&self, moving: Moving) -> Self {
        let part = self.moving(moving.which).map(|(index, _)| index);
        let mut parts = self.parts.clone();
        let place = part.and_then(|index| parts.get_mut(index));
        if let Some(place) = place {
            *place = Arc::new(moving);
        }
        self.with_parts(Arc::clone(&self.memtable), parts)
    }

    /// The same with the part that `which` moved replaced by its result, which has no keys
    /// `outside`, and without the range tombstones that are retired by it; with what a split
    /// leaves.
    pub(crate) fn with_result(
        &self,
        which: BackgroundJob,
        tree: Tree,
        outside: Consumed,
        retired: Seq,
        past: Option<Arc<PastIndex>>,
    ) -> Self {
        let mut parts = self.parts.clone();
        let part = self.moving(which).map(|(index, _)| index);
        let place = part.and_then(|index| parts.get_mut(index));
        if let Some(place) = place {
            *place = Arc::new(Run { tree: Arc::new(tree), consumed: outside });
        }
        let retires = retired > Seq(0) && !self.removed.is_empty();
        let removed =
            if retires { self.removed.above(retired).into() } else { Arc::clone(&self.removed) };
        let past = match past {
            Some(past) => Arc::new(self.past.with(past)),
            None => Arc::clone(&self.past),
        };
        Self::new(Arc::clone(&self.memtable), parts, removed, past)
    }
}

/// The current view, the replaced ones that are still read, and the space that waits for them.
#[derive(Debug)]
pub struct Views {
    current: Swap<View>,
    past: Mutex<Past>,
}

#[derive(Debug, Default)]
struct Past {
    /// The number of the current view.
    number: u64,
    /// Replaced views, oldest first.
    views: VecDeque<Arc<View>>,
    /// Space that may be reused when every view with a number below the tag has been dropped; tags
    /// ascend.
    quarantine: VecDeque<(u64, Vec<Extent>)>,
    /// Views whose space is kept although they have no readers, with the number of pins on each.
    pins: BTreeMap<u64, usize>,
}

impl Past {
    /// The number of the oldest view whose space is kept.
    fn oldest(&mut self) -> u64 {
        let read = self.oldest_read();
        self.pins.keys().next().map_or(read, |pinned| read.min(*pinned))
    }

    /// Drops views without readers; returns the number of the oldest that is left.
    fn oldest_read(&mut self) -> u64 {
        while self.views.front().is_some_and(|view| Arc::strong_count(view) == 1) {
            self.views.pop_front();
        }
        self.views.front().map_or(self.number, |view| view.number)
    }
}

impl Views {
    /// Begins with `view`.
    pub(crate) fn new(view: View) -> Self {
        Self { current: Swap::new(Arc::new(view)), past: Mutex::default() }
    }

    /// The current view. Never waits.
    pub(crate) fn load(&self) -> Loaded<View> {
        self.current.load()
    }

    /// Replaces the current view by what `change` makes of it.
    pub(crate) fn publish(&self, change: impl FnOnce(&View) -> View) {
        let mut past = self.past.lock();
        let mut view = change(&self.current.load());
        past.number += 1;
        view.number = past.number;
        let old = self.current.swap(Arc::new(view));
        past.views.push_back(old);
        past.oldest();
    }

    /// Puts extents to which no view leads from the current one on into quarantine.
    pub(crate) fn quarantine(&self, blocks: &BlockStore, extents: Vec<Extent>) -> Result<()> {
        blocks.retire(&extents)?;
        let mut past = self.past.lock();
        let tag = past.number;
        past.quarantine.push_back((tag, extents));
        Ok(())
    }

    /// Frees what no view leads to any more.
    ///
    /// # Errors
    /// When an extent was free already.
    pub(crate) fn collect(&self, blocks: &BlockStore) -> Result<()> {
        let mut past = self.past.lock();
        let oldest = past.oldest();
        let free = |tag: u64| oldest >= tag || planted::is(Bug::QuarantineIgnored);
        while past.quarantine.front().is_some_and(|(tag, _)| free(*tag)) {
            if let Some((_, extents)) = past.quarantine.pop_front() {
                blocks.free(&extents)?;
            }
        }
        Ok(())
    }

    /// Keeps the space that the current view refers to, without the view; returns its number. Space
    /// that a record named when the view was published is kept with it: it is freed by a later
    /// record, which a later view precedes.
    pub(crate) fn pin(&self) -> u64 {
        let mut past = self.past.lock();
        let number = past.number;
        if !planted::is(Bug::BackupNotPinned) {
            *past.pins.entry(number).or_insert(0) += 1;
        }
        number
    }

    /// Releases what [`Views::pin`] kept.
    pub(crate) fn unpin(&self, number: u64) {
        let mut past = self.past.lock();
        if let Some(count) = past.pins.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                past.pins.remove(&number);
            }
        }
    }

    /// Whether replaced views are pinned.
    pub(crate) fn is_pinned(&self) -> bool {
        !self.past.lock().pins.is_empty()
    }

    /// Bytes of space that wait for their last reader.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        let past = self.past.lock();
        let extents = past.quarantine.iter().flat_map(|(_, extents)| extents);
        let units: u64 = extents.map(|extent| extent.units).sum();
        units.saturating_mul(UNIT_BYTES)
    }

    /// Whether no replaced view is read any more, and no space waits for one. Pinned space is left
    /// out: it waits for its pin to be dropped.
    pub(crate) fn is_quiescent(&self) -> bool {
        let mut past = self.past.lock();
        let is_free = past.quarantine.is_empty() || !past.pins.is_empty();
        past.oldest_read() == past.number && is_free
    }
}
