//! Scans in key order, in both directions, one batch at a time.
//!
//! A scan is a snapshot number and a key to continue from. A batch merges all runs from there and
//! holds nothing when it returns: no lock, no view, no block.
//!
//! While a merge is under way a batch stays on one side of its wavefront, and the next one
//! continues behind it, with a view of its own.

mod sources;

use std::ops::Bound;

use esker_format::data::{Data, DataBuf, Value};
use esker_format::ids::Seq;
use esker_format::ptr::BlockPtr;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Race};
use esker_substrate::snapshots::At;

use crate::read::heat::Heat;
use crate::read::operands::{Operator, Stack};
use crate::read::range_tombstones::RangeTombstones;
use crate::run::cursor::Target;
use crate::run::data_cursor::{CursorResult, DataCursor, Unreadable};

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
    /// Keys and values, or the blobs' references, in the direction of the scan.
    pub entries: Vec<(Vec<u8>, Value)>,
    /// The damaged ranges that were passed over.
    pub damaged: Vec<DamagedRange>,
    /// The bound to continue from: the lower one, or the upper one of a reverse scan. `None` when
    /// the scan is complete.
    pub resume: Option<Bound<Vec<u8>>>,
}

/// A batch looks at no more versions than this, so that a desert of tombstones does not hold the
/// tree for long.
const VERSIONS_MAX: usize = 1 << 16;

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
    /// In order from the newest run to the oldest.
    sources: Vec<Source<'s>>,
    /// The range tombstones.
    removed: &'r RangeTombstones,
    operator: &'r Operator,
    changed: Option<Changed<'r>>,
    /// Where its reads for runs are noted.
    heat: Option<&'r Heat>,
    batch: ScanBatch,
    bytes: usize,
    versions: usize,
    /// Backwards, the versions of the current key in one source from the last visible one on,
    /// oldest first.
    turned: Vec<DataBuf>,
}

fn start(source: &mut Source<'_>, request: &ScanRequest<'_>) -> CursorResult<()> {
    match request.target() {
        Target::At(key, seq) => source.seek(key, seq),
        Target::Before(key, seq) => source.seek_back(Some((key, seq))),
        Target::Last => source.seek_back(None),
    }
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
    ) -> Self {
        let (batch, turned) = (ScanBatch::default(), Vec::new());
        Self {
            request,
            sources,
            removed,
            operator,
            changed: None,
            heat: None,
            batch,
            bytes: 0,
            versions: 0,
            turned,
        }
    }

    /// Reads the batch.
    ///
    /// # Errors
    /// The first unreadable block, unless damage is to be skipped.
    fn run(mut self) -> Result<ScanBatch> {
        let request = self.request;
        self.announce();
        for index in 0..self.sources.len() {
            self.attempt(index, |source| start(source, request))?;
        }
        self.note_heat();
        let mut last: Option<Vec<u8>> = None;
        while let Some(index) = self.next_source() {
            let Some(source) = self.sources.get(index) else { break };
            let (key, head) = (&source.key, source.head);
            if beyond_end(key, self.request) {
                break;
            }
            if source.is_bound {
                self.attempt(index, |source| source.enter())?;
                continue;
            }
            // Content in the wrong order must not send a scan round in circles.
            let turned_back = last
                .as_ref()
                .is_some_and(|last| if self.request.reverse { key >= last } else { key <= last });
            if turned_back || before_start(key, self.request) {
                return Err(out_of_order());
            }
            let mut here = last.take().unwrap_or_default();
            here.clone_from(key);
            let value = match self.take(index, head, &here) {
                // The error is returned to the next call, after the entries before it have been
                // taken.
                Err(Error::Operator { .. }) if !self.batch.entries.is_empty() => {
                    self.batch.resume = Some(Bound::Included(here));
                    break;
                }
                taken => taken?,
            };
            if let Some(value) = value
                && !self.is_out_of_reach(&here)
            {
                self.bytes += here.len() + value.stored_len();
                self.batch.entries.push((here.clone(), value));
            }
            let full = self.batch.entries.len() >= self.request.entries_max
                || self.bytes >= self.request.bytes_max
                || self.versions >= VERSIONS_MAX;
            if full {
                self.batch.resume = Some(Bound::Excluded(here));
                break;
            }
            last = Some(here);
        }
        Ok(self.batch)
    }

    /// Notes the blocks that the batch reads from the device for runs, and levels above the last,
    /// with keys in its range: at most one each. A scan backwards is not noted: the key of a source
    /// before its range does not tell whether it has keys there.
    fn note_heat(&self) {
        let Some(heat) = self.heat.filter(|_| !self.request.reverse) else { return };
        let first = match self.request.lower {
            Bound::Unbounded => &[],
            Bound::Included(key) | Bound::Excluded(key) => key,
        };
        heat.note(first, |end| {
            let meets = |source: &&Source<'_>| {
                let key = source.key().filter(|_| source.is_missed);
                key.is_some_and(|key| end.is_none_or(|end| key < end))
            };
            let above_last = self.sources.split_last().map_or(&[][..], |(_, above)| above);
            above_last.iter().filter(meets).count() as u64
        });
    }

    /// What the batch has of `key`: its value, if it has one, or that it was changed.
    fn take(&mut self, first: usize, head: u64, key: &[u8]) -> Result<Option<Value>> {
        if self.changed.is_none() {
            return self.take_group(first, head, key);
        }
        let is_changed = self.take_versions(first, head, key)?;
        Ok(is_changed.then(|| Value::Inline(Vec::new())))
    }

    /// Has the blocks that the batch begins with read at once, rather than one behind the other.
    fn announce(&mut self) {
        let cursors = self.sources.iter().filter_map(Source::cursor);
        let total_entries = cursors.map(DataCursor::data_entries).sum();
        let (entries, forward) = (self.request.entries_max, !self.request.reverse);
        let (target, mut ptrs, mut reader) = (self.request.target(), Vec::new(), None);
        for source in &mut self.sources {
            let Some(cursor) = source.cursor() else { continue };
            let first = ptrs.len();
            cursor.expect(target, forward, entries, total_entries, &mut ptrs);
            let is_read = |ptr: &BlockPtr| !cursor.reader().is_cached(ptr);
            let is_missed = self.heat.is_some() && ptrs.get(first).is_some_and(is_read);
            reader = Some(cursor.reader());
            source.is_missed = is_missed;
        }
        if let Some(reader) = reader.filter(|_| ptrs.len() > 1) {
            reader.announce(&ptrs);
        }
    }

    /// The first of the sources whose current key is the next in the direction of the scan.
    fn next_source(&self) -> Option<usize> {
        let sources = self.sources.iter().enumerate();
        let next = sources.min_by(|(_, a), (_, b)| a.compare(b, self.request.reverse));
        next.filter(|(_, source)| source.has_key).map(|(index, _)| index)
    }

    /// Whether a key is in a range where damage was passed over.
    fn is_out_of_reach(&self, key: &[u8]) -> bool {
        let reaches = |range: &DamagedRange| {
            range.from.as_slice() <= key && range.to.as_ref().is_none_or(|to| key < to.as_slice())
        };
        self.batch.damaged.iter().any(reaches)
    }

    /// The value of `key` as of the scan's number, if it has one; moves all sources past the key,
    /// of which that with number `first` is the first.
    fn take_group(&mut self, first: usize, head: u64, key: &[u8]) -> Result<Option<Value>> {
        let mut answer: Option<Result<Option<Value>>> = None;
        let mut stack = Stack::new(key, self.operator);
        let mut turned = std::mem::take(&mut self.turned);
        let (At { seq, now }, reverse) = (self.request.at, self.request.reverse);
        let removed = if self.removed.is_empty() {
            Seq(0)
        } else {
            self.removed.newest(key, self.request.at.seq)
        };
        for index in first..self.sources.len() {
            while self.sources.get(index).is_some_and(|source| source.is_on(head, key)) {
                self.versions += 1;
                self.attempt(index, |source| {
                    if let Some((found, data)) = source.version()?
                        && found <= seq
                        && answer.is_none()
                    {
                        let data = if found >= removed { data.as_of(now) } else { Data::Delete };
                        if !reverse {
                            answer = stack.push(data);
                        } else {
                            if !data.is_operand() {
                                turned.clear();
                            }
                            turned.push(data.into());
                        }
                    }
                    source.step(reverse)
                })?;
            }
            for data in turned.drain(..).rev() {
                answer = answer.or_else(|| stack.push_owned(data));
            }
        }
        let value = answer.unwrap_or_else(|| Ok(stack.end()));
        self.turned = turned;
        value
    }

    /// Whether `key` has a version among those that the batch looks for; moves all sources past the
    /// key, of which that with number `first` is the first.
    fn take_versions(&mut self, first: usize, head: u64, key: &[u8]) -> Result<bool> {
        let Some(Changed { since, removed }) = self.changed else { return Ok(false) };
        let up_to = self.request.at.seq;
        let removal = removed.iter().map(|removed| removed.newest(key, up_to)).max();
        let was_removed = removal.is_some_and(|removal| removal > since);
        let mut is_changed = false;
        for index in first..self.sources.len() {
            while self.sources.get(index).is_some_and(|source| source.is_on(head, key)) {
                self.versions += 1;
                self.attempt(index, |source| {
                    let found = source.version()?.map(|(found, _)| found);
                    let found = found.filter(|found| *found <= up_to);
                    is_changed |= found.is_some_and(|found| found > since || was_removed);
                    source.step(false)
                })?;
            }
        }
        Ok(is_changed)
    }

    /// Moves a source; if it meets damage and the request allows it, notes the damage and moves the
    /// source past it.
    fn attempt(
        &mut self,
        index: usize,
        action: impl FnOnce(&mut Source<'_>) -> CursorResult<()>,
    ) -> Result<()> {
        let Some(source) = self.sources.get_mut(index) else { return Ok(()) };
        let mut met: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        let mut outcome = action(source);
        while let Err(Unreadable { from, to, error }) = outcome {
            let skippable = self.request.skip_damaged && matches!(error, Error::Corrupt { .. });
            if !skippable {
                return Err(error);
            }
            let was = source.key().map(<[u8]>::to_vec);
            source.has_key = false;
            // Each step past damage must make progress, regardless of the fences; if it does not,
            // nothing more of this run can be reached.
            let (from, to) = match met.contains(&(from.clone(), to.clone())) {
                false => (from, to),
                true if self.request.reverse => (Vec::new(), to),
                true => (from, None),
            };
            met.push((from.clone(), to.clone()));
            // A duplicate fence (I2) may have led over the damage already: entries returned beyond
            // it are not returned again.
            outcome = match (&to, self.request.reverse) {
                (Some(to), false) => match &was {
                    Some(was) if was >= to => source.seek(was, Seq(0)),
                    _ => source.seek(to, Seq::MAX),
                },
                (None, false) => Ok(()),
                (_, true) if from.is_empty() => Ok(()),
                (_, true) => {
                    let before = was.filter(|was| *was < from).unwrap_or_else(|| from.clone());
                    source.seek_back(Some((&before, Seq::MAX)))
                }
            };
            // Two runs may lose the same keys, as when one leads to the other.
            if !self.batch.damaged.iter().any(|known| known.from == from && known.to == to) {
                self.batch.damaged.push(DamagedRange { from, to, error });
            }
        }
        Ok(())
    }
}
