//! Scans in key order, in both directions, one batch at a time.
//!
//! A scan is a snapshot number and a key to continue from. A batch merges all runs from there and
//! holds no lock, no view and no space when it returns. Some blocks in memory may be kept for the
//! next batch ([`HeldBlocks`]).
//!
//! While a merge is under way a batch stays on one side of its wavefront, and the next one
//! continues behind it, with a view of its own.

mod entries;
mod jump;
mod merge;
mod sources;
#[cfg(test)]
mod tests;

use std::ops::Bound;

use esker_format::data::{Data, DataBuf};
use esker_format::ids::Seq;
use esker_format::ptr::BlockPtr;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Race};
use esker_substrate::snapshots::At;

use crate::read::heat::{Excess, Heat};
use crate::read::operands::{Operator, Stack};
use crate::read::range_tombstones::RangeTombstones;
use crate::run::cursor::Target;
use crate::run::data_cursor::{DataCursor, Expected};
use crate::run::held_blocks::HeldBlocks;

pub use entries::{Entries, IntoIter as EntriesIter};
use jump::{Jump, Seen};
use merge::Merge;
pub use sources::Source;
pub(crate) use sources::Sources;

/// The parameters of a scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanRequest<'a> {
    /// The sequence number and moment of the scan; the number is registered.
    pub at: At,
    /// The lower bound of the keys.
    pub lower: Bound<&'a [u8]>,
    /// The upper bound of the keys.
    pub upper: Bound<&'a [u8]>,
    /// From the upper end down.
    pub reverse: bool,
    /// Most entries in the batch.
    pub entries_max: usize,
    /// The batch ends when its keys and values reach this many bytes.
    pub bytes_max: usize,
    /// Pass over keys whose blocks cannot be read, instead of failing.
    pub skip_damaged: bool,
}

/// Keys that could not be read.
#[derive(Clone, Debug)]
pub struct DamagedRange {
    /// First key out of reach.
    pub from: Vec<u8>,
    /// First key within reach again; `None`: to the end.
    pub to: Option<Vec<u8>>,
    /// The reason.
    pub error: Error,
}

/// A piece of a scan.
#[derive(Debug, Default)]
pub struct ScanBatch {
    /// The entries, in the direction of the scan.
    pub entries: Entries,
    /// The damaged ranges that were passed over.
    pub damaged: Vec<DamagedRange>,
    /// Versions that were looked at before the first entry. A jump over a deleted range counts for
    /// those that take as long.
    pub passed: usize,
    /// The bound to continue from: the lower one, or the upper one of a reverse scan. `None` when
    /// the scan is complete.
    pub resume: Option<Bound<Vec<u8>>>,
}

/// The part of the memory budget that blocks may take which a batch reads before it needs them.
const AHEAD_SHARE: u64 = 16;

/// A batch looks at no more versions than this, so that a desert of tombstones does not hold the
/// tree for long.
const VERSIONS_MAX: usize = 1 << 16;

/// Versions that take as long as a jump, at least.
const JUMP_VERSIONS: usize = 64;

/// The part of a request that is on one side of a merge's wavefront.
pub(crate) struct Clipped<'a> {
    pub request: ScanRequest<'a>,
    /// The new side; else the old one.
    pub passed: bool,
    /// The begin of the rest, if there is one.
    pub rest: Option<Bound<&'a [u8]>>,
}

impl<'a> ScanRequest<'a> {
    /// The position at which the scan enters every run. Numbers of data begin at 1: (key, 0) is
    /// behind all versions of a key.
    const fn target(&self) -> Target<'a> {
        match (self.reverse, self.lower, self.upper) {
            (false, Bound::Unbounded, _) => Target::At(&[], Seq::MAX),
            (false, Bound::Included(key), _) => Target::At(key, Seq::MAX),
            (false, Bound::Excluded(key), _) => Target::At(key, Seq(0)),
            (true, _, Bound::Unbounded) => Target::Last,
            (true, _, Bound::Included(key)) => Target::Before(key, Seq(0)),
            (true, _, Bound::Excluded(key)) => Target::Before(key, Seq::MAX),
        }
    }

    pub(crate) fn clipped(self, wavefront: Option<&'a [u8]>) -> Clipped<'a> {
        let Some(wavefront) = wavefront else {
            return Clipped { request: self, passed: false, rest: None };
        };
        let starts_passed = match self.lower {
            Bound::Unbounded => true,
            Bound::Included(key) => key <= wavefront,
            Bound::Excluded(key) => key < wavefront,
        };
        let ends_behind = match self.upper {
            Bound::Unbounded => true,
            Bound::Included(key) | Bound::Excluded(key) => key > wavefront,
        };
        if starts_passed && planted::is(Race::ScanPastWavefront) {
            return Clipped { request: self, passed: true, rest: None };
        }
        let (until, from) = (Bound::Included(wavefront), Bound::Excluded(wavefront));
        match (starts_passed, ends_behind) {
            // Reversed bounds have neither: nothing is there.
            (true, false) | (false, false) => Clipped { request: self, passed: true, rest: None },
            (false, true) => Clipped { request: self, passed: false, rest: None },
            (true, true) if self.reverse => {
                let request = Self { lower: from, ..self };
                Clipped { request, passed: false, rest: Some(until) }
            }
            (true, true) => {
                let request = Self { upper: until, ..self };
                Clipped { request, passed: true, rest: Some(from) }
            }
        }
    }
}

/// The keys that a scan for changes returns, without their values: those with a version newer than
/// `since`, up to the scan's number.
#[derive(Clone, Copy)]
pub(crate) struct Changed<'r> {
    pub since: Seq,
    /// The range tombstones of all indexes that are read.
    pub removed: &'r [&'r RangeTombstones],
}

/// A batch in the making.
struct Scan<'r, 's> {
    request: &'r ScanRequest<'r>,
    merge: Merge<'r, 's>,
    removed: Seen<'r>,
    operator: &'r Operator,
    changed: Option<Changed<'r>>,
    /// Where its reads for runs are noted, and the number of the first sources, which a merge for
    /// scans takes together.
    heat: Option<(&'r Heat, usize)>,
    /// Blocks of the batch before this one.
    held: &'r mut HeldBlocks,
    entries: Entries,
    versions: usize,
    /// Backwards, the versions of the current key in one source from the last visible one on,
    /// oldest first.
    turned: Vec<DataBuf>,
}

fn below(key: &[u8], lower: Bound<&[u8]>) -> bool {
    match lower {
        Bound::Unbounded => false,
        Bound::Included(lower) => key < lower,
        Bound::Excluded(lower) => key <= lower,
    }
}

fn above(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => false,
        Bound::Included(upper) => key > upper,
        Bound::Excluded(upper) => key >= upper,
    }
}

fn beyond_end(key: &[u8], request: &ScanRequest<'_>) -> bool {
    if request.reverse { below(key, request.lower) } else { above(key, request.upper) }
}

fn before_start(key: &[u8], request: &ScanRequest<'_>) -> bool {
    if request.reverse { above(key, request.upper) } else { below(key, request.lower) }
}

fn out_of_order() -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: 0,
        what: "keys are out of order: run check to find the block".into(),
    }
}

impl<'r, 's> Scan<'r, 's> {
    fn new(
        request: &'r ScanRequest<'r>,
        sources: Vec<Source<'s>>,
        removed: &'r RangeTombstones,
        operator: &'r Operator,
        held: &'r mut HeldBlocks,
    ) -> Self {
        Self {
            request,
            merge: Merge::new(request, sources),
            removed: Seen::new(removed, request.at.seq),
            operator,
            changed: None,
            heat: None,
            held,
            entries: Entries::expecting(request.entries_max),
            versions: 0,
            turned: Vec::new(),
        }
    }

    /// Reads the batch.
    ///
    /// # Errors
    /// The first unreadable block, unless damage is to be skipped.
    fn run(mut self) -> Result<ScanBatch> {
        self.enter_by_jumps();
        self.read_ahead();
        self.merge.start()?;
        self.note_heat();
        let (mut key, mut last, mut last_head) = (Vec::new(), None, 0);
        let (mut resume, mut passed) = (None, 0);
        while let Some((index, source)) = self.merge.first() {
            if beyond_end(&source.key, self.request) {
                break;
            }
            if source.is_bound {
                self.merge.enter(index)?;
                continue;
            }
            let head = source.head;
            key.clear();
            key.extend_from_slice(&source.key);
            if let Some(jump) = self.jump(index, &key) {
                // Many ranges may be behind each other.
                self.versions += JUMP_VERSIONS;
                if self.entries.is_empty() {
                    passed = self.versions;
                }
                if self.versions >= VERSIONS_MAX {
                    resume = Some(Bound::Included(key));
                    break;
                }
                self.merge.jump(index, &jump)?;
                continue;
            }
            if !self.is_next(last.as_deref(), last_head, &key, head) {
                return Err(out_of_order());
            }
            last_head = head;
            match self.take(index, head, &key) {
                // The error is returned to the next call, after the entries before it have been
                // taken.
                Err(Error::Operator { .. }) if !self.entries.is_empty() => {
                    resume = Some(Bound::Included(key));
                    break;
                }
                taken => taken?,
            }
            if self.entries.is_empty() {
                passed = self.versions;
            }
            if self.is_full() {
                resume = Some(Bound::Excluded(key));
                break;
            }
            key = last.replace(key).unwrap_or_default();
        }
        let (entries, damaged) = (self.entries, self.merge.damaged);
        if resume.is_some() {
            // The current blocks of sources come first: they are certain to be wanted.
            let sources = self.merge.sources.into_iter();
            let ahead: Vec<_> = sources.map(|source| source.release(self.held)).collect();
            ahead.into_iter().for_each(|blocks| self.held.extend(blocks));
        }
        Ok(ScanBatch { entries, damaged, passed, resume })
    }

    /// Has each source begin where the first versions are that range tombstones do not hide in it.
    fn enter_by_jumps(&mut self) {
        let removed = self.removed.all();
        if removed.is_empty() {
            return;
        }
        for source in &mut self.merge.sources {
            let numbers = source.numbers.as_deref();
            source.entry =
                numbers.and_then(|numbers| jump::at_start(self.request, removed, numbers));
        }
    }

    /// The jump of a source at `key` over what range tombstones hide in it.
    #[inline]
    fn jump(&mut self, index: usize, key: &[u8]) -> Option<Jump> {
        let newest = self.removed.newest(key);
        if newest == Seq(0) {
            return None;
        }
        let numbers = self.merge.sources.get(index)?.numbers.as_deref()?;
        jump::from_key(self.request, self.removed.all(), numbers, key)
    }

    /// Whether `key` may come behind `last`, or be the first key. Content in the wrong order must
    /// not send a scan round in circles.
    #[inline]
    fn is_next(&self, last: Option<&[u8]>, last_head: u64, key: &[u8], head: u64) -> bool {
        let Some(last) = last else { return !before_start(key, self.request) };
        let order = head.cmp(&last_head).then_with(|| key.cmp(last));
        if self.request.reverse { order.is_lt() } else { order.is_gt() }
    }

    const fn is_full(&self) -> bool {
        self.entries.len() >= self.request.entries_max
            || self.entries.bytes() >= self.request.bytes_max
            || self.versions >= VERSIONS_MAX
    }

    /// Notes the blocks that the batch reads from the device for runs, and levels above the last,
    /// with keys in its range: at most one each. A scan backwards is not noted: the key of a source
    /// before its range does not tell whether it has keys there.
    fn note_heat(&self) {
        let Some((heat, merged)) = self.heat.filter(|_| !self.request.reverse) else { return };
        let first = match self.request.lower {
            Bound::Unbounded => &[],
            Bound::Included(key) | Bound::Excluded(key) => key,
        };
        heat.note(first, |end| {
            let meets = |source: &&Source<'_>| {
                let is_in = |key: &[u8]| end.is_none_or(|end| key < end);
                source.cursor().is_some() && source.key().is_some_and(is_in)
            };
            let merged = self.merge.sources.iter().take(merged).filter(meets);
            let missed = merged.clone().filter(|source| source.is_missed).count() as u64;
            let bytes = merged.filter_map(Source::cursor).map(DataCursor::data_bytes).sum();
            // What they are merged into is read then.
            Excess { blocks: missed.saturating_sub(1), bytes }
        });
    }

    /// Adds `key` to the batch if it has a value, or was changed; moves all sources past the key,
    /// of which that with number `first` is the first.
    fn take(&mut self, first: usize, head: u64, key: &[u8]) -> Result<()> {
        let before = self.entries.len();
        match self.changed {
            None => self.take_group(first, head, key)?,
            Some(changed) => {
                if self.take_versions(changed, first, head, key)? {
                    self.entries.push(key, Data::Put(&[]));
                }
            }
        }
        if !self.merge.damaged.is_empty() && self.merge.is_out_of_reach(key) {
            self.entries.truncate(before);
        }
        Ok(())
    }

    /// Reads the blocks that the batch is expected to take, neighbours in one read, and has the
    /// device begin with the others at once, rather than one behind the other.
    fn read_ahead(&mut self) {
        let request = self.request;
        let cursors = || self.merge.sources.iter().filter_map(Source::cursor);
        let memory = cursors().next().map_or(0, |cursor| cursor.reader().budget.total_bytes());
        let expected = Expected {
            entries: request.entries_max,
            bytes: request.bytes_max.min((memory / AHEAD_SHARE) as usize),
            total_entries: cursors().map(DataCursor::data_entries).sum(),
            total_bytes: cursors().map(DataCursor::data_bytes).sum(),
            forward: !request.reverse,
            end: if request.reverse { request.lower } else { request.upper },
        };
        let (mut ptrs, mut reader) = (Vec::new(), None);
        let mut read_until = Vec::with_capacity(self.merge.sources.len());
        for source in &mut self.merge.sources {
            let first = ptrs.len();
            let entry = source.entry.take();
            let target = entry.as_ref().map_or_else(|| Some(request.target()), Jump::target);
            if let (Some(cursor), Some(target)) = (source.cursor_mut(), target) {
                cursor.expect(target, &expected, &mut ptrs);
                reader = Some(cursor.reader());
            }
            source.entry = entry;
            read_until.push(ptrs.len());
            let held = &*self.held;
            let is_read = |ptr: &BlockPtr| {
                !held.has(ptr) && reader.is_some_and(|reader| !reader.is_cached(ptr))
            };
            source.is_missed = self.heat.is_some() && ptrs.get(first).is_some_and(is_read);
        }
        let Some(reader) = reader else { return };
        let mut held = self.held.take_all();
        let missing: Vec<_> = ptrs.iter().filter(|ptr| !held.has(ptr)).copied().collect();
        if missing.len() > 1 {
            reader.read_ahead(missing, &mut held);
            self.held.lose_those_of(&held);
        }
        let mut ptrs = ptrs.into_iter().enumerate().peekable();
        for (source, until) in self.merge.sources.iter_mut().zip(read_until) {
            if let Some(cursor) = source.cursor_mut() {
                cursor.lose_those_of(&held);
            }
            while let Some((_, ptr)) = ptrs.next_if(|(at, _)| *at < until) {
                if let (Some(cursor), Some(block)) = (source.cursor_mut(), held.take(&ptr)) {
                    cursor.hold(ptr, block);
                }
            }
        }
    }

    /// Adds the value of `key` as of the scan's number, if it has one; moves all sources past the
    /// key, of which that with number `first` is the first.
    fn take_group(&mut self, first: usize, head: u64, key: &[u8]) -> Result<()> {
        let Self { merge, entries, turned, .. } = self;
        let At { seq, now } = self.request.at;
        let removed = self.removed.newest(key);
        let mut stack = Stack::new(key, self.operator);
        let (mut is_answered, mut index) = (false, first);
        loop {
            while let Some(source) = merge.sources.get(index) {
                self.versions += 1;
                let is_wanted = source.seq <= seq && !is_answered;
                let data = match is_wanted.then(|| source.data()) {
                    None => None,
                    Some(Ok(_)) if source.seq < removed => Some(Data::Delete),
                    Some(Ok(data)) => Some(data.as_of(now)),
                    Some(Err(unreadable)) => {
                        merge.pass_damage(index, unreadable)?;
                        if merge.is_on(index, head, key) { continue } else { break }
                    }
                };
                match data {
                    Some(data) if self.request.reverse => {
                        if !data.is_operand() {
                            turned.clear();
                        }
                        turned.push(data.into());
                    }
                    Some(data) => is_answered = answer(&mut stack, data, key, entries)?,
                    None => {}
                }
                merge.step(index)?;
                if !merge.is_on(index, head, key) {
                    break;
                }
            }
            while !is_answered && let Some(data) = turned.pop() {
                is_answered = answer(&mut stack, data.as_data(), key, entries)?;
            }
            merge.moved(index);
            let Some(next) = merge.first_on(head, key) else { break };
            index = next;
        }
        if !is_answered && let Some(value) = stack.end() {
            entries.push_value(key, &value);
        }
        Ok(())
    }

    /// Whether `key` has a version among those that the batch looks for; moves all sources past the
    /// key, of which that with number `first` is the first.
    fn take_versions(
        &mut self,
        Changed { since, removed }: Changed<'_>,
        first: usize,
        head: u64,
        key: &[u8],
    ) -> Result<bool> {
        let up_to = self.request.at.seq;
        let removal = removed.iter().map(|removed| removed.newest(key, up_to)).max();
        let was_removed = removal.is_some_and(|removal| removal > since);
        let (mut is_changed, mut next) = (false, Some(first));
        while let Some(index) = next {
            while let Some(source) = self.merge.sources.get(index)
                && source.is_on(head, key)
            {
                self.versions += 1;
                is_changed |= source.seq <= up_to && (source.seq > since || was_removed);
                self.merge.step(index)?;
            }
            self.merge.moved(index);
            next = self.merge.first_on(head, key);
        }
        Ok(is_changed)
    }
}

/// Adds `key` if `data`, of the next older version that the scan sees, completes its value; whether
/// it does.
#[inline]
fn answer(
    stack: &mut Stack<'_>,
    data: Data<'_>,
    key: &[u8],
    entries: &mut Entries,
) -> Result<bool> {
    if stack.is_empty() && !data.is_operand() {
        entries.push(key, data);
        return Ok(true);
    }
    let Some(value) = stack.push(data) else { return Ok(false) };
    if let Some(value) = value? {
        entries.push_value(key, &value);
    }
    Ok(true)
}
