//! Gaps: stretches of keys in which nothing is live, behind which scans begin.
//!
//! A queue is emptied from its front: each scan for its first entry would pass the tombstones of
//! all entries that were removed before. The second of two scans from the same key that pass many
//! versions before their first entry leaves a gap: a reader that is not older begins behind it. A
//! scan that begins in a gap, or at its end, extends it. A put in a gap ends it there.
//!
//! Gaps are in memory alone. Their keys are cut after [`KEY_BYTES`]: a beginning of a key is not
//! above it, so that a gap ends too early at worst.
//!
//! Invariant (nothing is live): as of every number from `known.at.seq` on, at every moment from
//! `known.at.now` on, no key from `begin` up to `known.end` has a value. Removals, expiry and
//! merges keep that, and a put is noted. A key with an operand has a value: an operand is a put.
//! Invariant (nothing is missed): every put of a key from `begin` on whose number is above `from`
//! has been noted in `least`, or will be. Its number is in `newest_seq` before [`Gaps::note`] looks
//! whether puts are noted; `from` is that number after they are. A put with a number up to `from`
//! was seen by each scan whose number is not below `from`, because that number was visible when
//! it was registered.
//! Invariant (ends at what was noted): `known.end` is not above `least`. So a put from `least` on
//! changes nothing.
//!
//! Thread safety: everything may be called from any thread. A put becomes visible after it was
//! noted: a reader that may see it finds no gap with its key.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Bound;

use esker_format::ids::Seq;
use esker_substrate::planted::{self, Bug, Race};
use esker_substrate::snapshots::At;
use esker_substrate::sync::RwLock;
use esker_substrate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::read::scan::{ScanBatch, ScanRequest};

/// Versions that a scan passes before its first entry, from which on it is worth a gap.
const PASSED_MIN: usize = 32;
/// Stretches that are watched at once. That of which scans have not begun for the most puts makes
/// room for another.
const WATCHED_MAX: usize = 8;
/// Keys that are known from one scan that passed many versions.
const SEEN_MAX: usize = 8;
/// Puts after which a stretch in which no scan has begun is watched no more.
const UNASKED_MAX: u64 = 1 << 14;
/// Bytes of a key that are kept.
const KEY_BYTES: usize = 256;

/// The gaps of an index.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// Puts are noted. Each put reads it.
    are_watched: AtomicBool,
    /// Puts that were noted.
    puts: AtomicU64,
    stretches: RwLock<Stretches>,
}

#[derive(Debug, Default)]
struct Stretches {
    watched: Vec<Watched>,
    /// The first keys of scans that passed many versions, the newest last. They cost puts nothing.
    seen: VecDeque<Vec<u8>>,
}

/// Keys from `begin` on.
#[derive(Debug)]
struct Watched {
    begin: Vec<u8>,
    from: Seq,
    /// The least of the keys that were noted.
    least: End,
    known: Option<Known>,
    /// How many puts had been noted when a scan last began here.
    asked: AtomicU64,
}

/// No key before `end` is live for a reader of this number and moment, or later ones.
#[derive(Clone, Debug)]
struct Known {
    end: End,
    at: At,
}

/// The end of a stretch of keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// Before this key.
    At(Vec<u8>),
    /// Behind all keys.
    Last,
}

impl Gaps {
    /// Notes a put of `key`, whose number is in the index's `newest_seq` already, and which is not
    /// visible yet. One load where nothing is watched. Where something is, a put behind another
    /// one shares the lock with readers, and only one nearer to the front has it alone.
    pub fn note(&self, key: &[u8]) {
        if !self.are_watched.load(Ordering::SeqCst) || planted::is(Bug::GapNotClosed) {
            return;
        }
        let puts = self.puts.fetch_add(1, Ordering::Relaxed);
        if self.stretches.read().watched.iter().all(|of| of.is_unchanged(key, puts)) {
            return;
        }
        let watched = &mut self.stretches.write().watched;
        watched.retain(|of| !of.is_unasked(puts));
        watched.iter_mut().for_each(|of| of.note(key));
        if watched.is_empty() {
            self.are_watched.store(false, Ordering::SeqCst);
        }
    }

    /// Where a scan may begin instead: behind its lower bound.
    pub fn skip(&self, request: &ScanRequest<'_>) -> Option<End> {
        if request.reverse || !self.are_watched.load(Ordering::SeqCst) {
            return None;
        }
        let lower = first_key(request.lower);
        let stretches = self.stretches.read();
        let gaps =
            stretches.watched.iter().filter_map(|of| Some((of, of.gap(&lower, request.at)?)));
        let (of, end) = gaps.max_by_key(|(_, end)| *end)?;
        of.ask(self.puts.load(Ordering::Relaxed));
        Some(end.clone())
    }

    /// Notes what a batch of a scan has passed, after [`Gaps::skip`] for the same request.
    /// `newest_seq` is that of the index.
    pub fn learn(&self, request: &ScanRequest<'_>, batch: &ScanBatch, newest_seq: &AtomicU64) {
        if batch.passed < PASSED_MIN || request.reverse || !batch.damaged.is_empty() {
            return;
        }
        let end = match (batch.entries.first_key(), &batch.resume) {
            (Some(key), _) => End::at(&key),
            (None, Some(Bound::Included(key) | Bound::Excluded(key))) => End::at(key),
            (None, Some(Bound::Unbounded)) => return,
            (None, None) => End::behind(request.upper),
        };
        self.passed((request.lower, request.at), &end, newest_seq);
    }

    /// Notes that a scan from `lower` as of `at` has found nothing before `end`.
    fn passed(&self, (lower, at): (Bound<&[u8]>, At), end: &End, newest_seq: &AtomicU64) {
        let begin = first_key(lower);
        if begin.len() > KEY_BYTES {
            return;
        }
        let newest = || Seq(newest_seq.load(Ordering::SeqCst));
        let puts = self.puts.load(Ordering::Relaxed);
        let Stretches { watched, seen } = &mut *self.stretches.write();
        let mut is_watched = false;
        for of in watched.iter_mut().filter(|of| of.goes_on_at(&begin)) {
            is_watched = true;
            of.ask(puts);
            of.learn(end, at);
            if of.least < *end && at.seq >= of.from {
                (of.least, of.from) = (End::Last, newest());
            }
        }
        if is_watched {
            return;
        }
        let Some(place) = seen.iter().position(|key| **key == *begin) else {
            if seen.len() >= SEEN_MAX {
                seen.pop_front();
            }
            return seen.push_back(begin.into_owned());
        };
        seen.remove(place);
        if watched.len() >= WATCHED_MAX
            && let Some(place) = longest_unasked(watched)
        {
            watched.remove(place);
        }
        let early = newest();
        self.are_watched.store(true, Ordering::SeqCst);
        let from = if planted::is(Race::WatchedTooLate) { early } else { newest() };
        let mut of = Watched::new(begin.into_owned(), from, puts);
        of.learn(end, at);
        watched.push(of);
    }
}

/// What is left of `request` behind the gap that its lower bound is in, if it is in one; `None`
/// where nothing is.
pub(crate) fn rest<'a>(request: &ScanRequest<'a>, end: Option<&'a End>) -> Option<ScanRequest<'a>> {
    let Some(end) = end else { return Some(*request) };
    let End::At(key) = end else { return None };
    let is_empty = match request.upper {
        Bound::Unbounded => false,
        Bound::Included(upper) => upper < key.as_slice(),
        Bound::Excluded(upper) => upper <= key.as_slice(),
    };
    (!is_empty).then_some(ScanRequest { lower: Bound::Included(key), ..*request })
}

impl Watched {
    const fn new(begin: Vec<u8>, from: Seq, puts: u64) -> Self {
        Self { begin, from, least: End::Last, known: None, asked: AtomicU64::new(puts) }
    }

    /// Notes that a scan begins here.
    fn ask(&self, puts: u64) {
        if self.asked.load(Ordering::Relaxed) != puts {
            self.asked.store(puts, Ordering::Relaxed);
        }
    }

    /// Whether no scan has begun here for many puts.
    fn is_unasked(&self, puts: u64) -> bool {
        puts.saturating_sub(self.asked.load(Ordering::Relaxed)) > UNASKED_MAX
    }

    /// Whether a put of `key` changes nothing here.
    fn is_unchanged(&self, key: &[u8], puts: u64) -> bool {
        // Most puts are at the end of a queue.
        (!self.least.is_above(key) || key < self.begin.as_slice()) && !self.is_unasked(puts)
    }

    /// Notes a put.
    fn note(&mut self, key: &[u8]) {
        if key < self.begin.as_slice() || !self.least.is_above(key) {
            return;
        }
        self.least = End::at(key);
        if let Some(known) = &mut self.known
            && known.end > self.least
        {
            known.end.clone_from(&self.least);
        }
    }

    /// The end of the gap, where it has `key` for a reader as of `at`.
    fn gap(&self, key: &[u8], at: At) -> Option<&End> {
        let known = self.known.as_ref()?;
        let is_older = at.seq < known.at.seq || at.now < known.at.now;
        let has_key = self.begin.as_slice() <= key && known.end.is_above(key);
        let is_for = !is_older || planted::is(Bug::GapForOlder);
        (has_key && is_for).then_some(&known.end)
    }

    /// Whether what a scan from `key` passes belongs to the stretch.
    fn goes_on_at(&self, key: &[u8]) -> bool {
        let is_in_gap = |known: &Known| known.end.is_above(key) || known.end == End::at(key);
        let is_behind = self.begin.as_slice() < key;
        self.begin == key || (is_behind && self.known.as_ref().is_some_and(is_in_gap))
    }

    /// Takes in that a scan that goes on here found nothing before `end`, as far as no put may have
    /// been missed.
    fn learn(&mut self, end: &End, at: At) {
        let end = end.min(&self.least);
        if at.seq < self.from || self.known.as_ref().is_some_and(|known| known.end >= *end) {
            return;
        }
        // What lies before holds as of the older of the two only.
        let at = match &self.known {
            Some(Known { at: known, .. }) => {
                At { seq: at.seq.max(known.seq), now: at.now.max(known.now) }
            }
            None => at,
        };
        self.known = Some(Known { end: end.clone(), at });
    }
}

impl End {
    /// Before `key`, or earlier.
    fn at(key: &[u8]) -> Self {
        Self::At(key.get(..KEY_BYTES).unwrap_or(key).to_vec())
    }

    /// Behind the last key within `upper`, or earlier.
    fn behind(upper: Bound<&[u8]>) -> Self {
        match upper {
            Bound::Unbounded => Self::Last,
            Bound::Included(key) | Bound::Excluded(key) => Self::at(key),
        }
    }

    /// Whether `key` is before the end.
    fn is_above(&self, key: &[u8]) -> bool {
        match self {
            Self::At(end) => key < end.as_slice(),
            Self::Last => true,
        }
    }
}

/// The stretch that makes room for another.
fn longest_unasked(watched: &[Watched]) -> Option<usize> {
    let asked = |of: &Watched| of.asked.load(Ordering::Relaxed);
    watched.iter().enumerate().min_by_key(|(_, of)| asked(of)).map(|(place, _)| place)
}

/// The least key within `lower`.
fn first_key(lower: Bound<&[u8]>) -> Cow<'_, [u8]> {
    match lower {
        Bound::Unbounded => Cow::Borrowed(&[]),
        Bound::Included(key) => Cow::Borrowed(key),
        Bound::Excluded(key) => Cow::Owned([key, &[0]].concat()),
    }
}

#[cfg(test)]
mod tests;
