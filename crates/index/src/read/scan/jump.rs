//! Jumps: a scan does not walk through keys of a source that range tombstones hide.
//!
//! A version is hidden if a range tombstone of its key, which the scan sees, has a greater number.
//! Where no version of a source has as great a number as the tombstone ([`Numbers`]), the source is
//! moved to the other end of the range, and of those that touch it: by its fences, without reading
//! what is between. In any other source of the same keys the scan goes from version to version, and
//! compares the number of each.
//!
//! Invariant: a jump passes only versions that the walk would take for deleted ones.

use std::ops::Bound;

use esker_format::action::KeyRange;
use esker_format::ids::Seq;
use esker_substrate::planted::{self, Bug};

use super::ScanRequest;
use crate::read::range_tombstones::{RangeTombstones, newest_of};
use crate::run::cursor::Target;
use crate::run::numbers::Numbers;

/// Where a source is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Jump {
    /// Forward to this key.
    To(Vec<u8>),
    /// Back to what is before this key.
    Before(Vec<u8>),
    /// Nothing is left of it for the scan.
    Out,
}

impl Jump {
    /// The position to which a source is moved, unless it has nothing left.
    pub fn target(&self) -> Option<Target<'_>> {
        match self {
            Self::To(key) => Some(Target::At(key, Seq::MAX)),
            Self::Before(key) => Some(Target::Before(key, Seq::MAX)),
            Self::Out => None,
        }
    }

    /// Whether a source that was moved may be at `key`.
    pub fn allows(&self, key: &[u8]) -> bool {
        match self {
            Self::To(to) => to.as_slice() <= key,
            Self::Before(before) => key < before.as_slice(),
            Self::Out => false,
        }
    }
}

/// The range tombstones that a scan sees.
pub(super) struct Seen<'r> {
    all: &'r RangeTombstones,
    seq: Seq,
    /// Some keys around the last one, and the newest range tombstone of them all.
    last: Option<(KeyRange<'r>, Seq)>,
}

impl<'r> Seen<'r> {
    /// What a scan as of `seq` sees of `all`.
    pub const fn new(all: &'r RangeTombstones, seq: Seq) -> Self {
        Self { all, seq, last: None }
    }

    /// All range tombstones.
    pub const fn all(&self) -> &'r RangeTombstones {
        self.all
    }

    /// The newest of `key`; 0 if there is none. A search of the set where the last key has another
    /// one.
    #[inline]
    pub fn newest(&mut self, key: &[u8]) -> Seq {
        if self.all.is_empty() {
            return Seq(0);
        }
        match self.last {
            Some((keys, newest)) if keys.has(key) => newest,
            _ => self.search(key),
        }
    }

    fn search(&mut self, key: &[u8]) -> Seq {
        let (keys, range) = self.all.around(key);
        let newest = range.map_or(Seq(0), |range| newest_of(range, self.seq));
        self.last = Some((keys, newest));
        newest
    }
}

/// The jump with which a scan enters a source with these numbers, if it has one.
pub(super) fn at_start(
    request: &ScanRequest<'_>,
    removed: &RangeTombstones,
    numbers: &Numbers,
) -> Option<Jump> {
    match (request.reverse, request.lower, request.upper) {
        (false, Bound::Unbounded, _) => forward(request, removed, numbers, &[]),
        (false, Bound::Included(key) | Bound::Excluded(key), _) => {
            forward(request, removed, numbers, key)
        }
        (true, _, Bound::Unbounded) => back(request, removed, numbers, None),
        (true, _, Bound::Excluded(key)) => back(request, removed, numbers, Some(key)),
        (true, _, Bound::Included(key)) => {
            back(request, removed, numbers, Some(&[key, &[0]].concat()))
        }
    }
}

/// The jump of a source with these numbers at a removed `key`, if it has one.
pub(super) fn from_key(
    request: &ScanRequest<'_>,
    removed: &RangeTombstones,
    numbers: &Numbers,
    key: &[u8],
) -> Option<Jump> {
    match request.reverse {
        false => forward(request, removed, numbers, key),
        true => back(request, removed, numbers, Some(&[key, &[0]].concat())),
    }
}

/// Over the keys from `key` on that are hidden in a source.
fn forward(
    request: &ScanRequest<'_>,
    removed: &RangeTombstones,
    numbers: &Numbers,
    key: &[u8],
) -> Option<Jump> {
    // All from `key` up to here are hidden.
    let mut until = key;
    for range in removed.ranges_behind(key) {
        if &*range.begin > until {
            break;
        }
        let newest = newest_of(range, request.at.seq);
        let newer = first_newer(numbers, until, newest);
        match (range.end.as_deref(), newer) {
            (None, None) => return Some(Jump::Out),
            (Some(end), newer) if newer.is_none_or(|newer| end <= newer) => until = end,
            (_, newer) => {
                until = newer.unwrap_or(until);
                break;
            }
        }
    }
    if until <= key {
        return None;
    }
    let ends = match request.upper {
        Bound::Unbounded => false,
        Bound::Included(upper) => until > upper,
        Bound::Excluded(upper) => until >= upper,
    };
    Some(if ends { Jump::Out } else { Jump::To(until.to_vec()) })
}

/// Over the keys before `until`, or before the end of all, that are hidden in a source.
fn back(
    request: &ScanRequest<'_>,
    removed: &RangeTombstones,
    numbers: &Numbers,
    until: Option<&[u8]>,
) -> Option<Jump> {
    // All from here up to `until` are hidden.
    let mut from = until;
    for range in removed.ranges_before(until) {
        if range.end.as_deref().is_some_and(|end| from.is_none_or(|from| end < from)) {
            break;
        }
        let newest = newest_of(range, request.at.seq);
        let Some(newer) = last_newer(numbers, from, newest) else { break };
        from = Some(newer.max(&range.begin));
        if newer > &*range.begin {
            break;
        }
    }
    let from = from.filter(|from| until.is_none_or(|until| *from < until))?;
    let ends = match request.lower {
        Bound::Unbounded => from.is_empty(),
        Bound::Included(lower) | Bound::Excluded(lower) => from <= lower,
    };
    Some(if ends { Jump::Out } else { Jump::Before(from.to_vec()) })
}

/// [`Numbers::first_from`]; without a visible range tombstone, the key itself.
fn first_newer<'a>(numbers: &'a Numbers, from: &'a [u8], newest: Seq) -> Option<&'a [u8]> {
    match newest {
        Seq(0) => Some(from),
        _ if planted::is(Bug::JumpsOverNewer) => None,
        _ => numbers.first_from(from, newest),
    }
}

/// [`Numbers::last_until`]; without a visible range tombstone, nothing.
fn last_newer<'a>(numbers: &'a Numbers, until: Option<&[u8]>, newest: Seq) -> Option<&'a [u8]> {
    match newest {
        Seq(0) => None,
        _ if planted::is(Bug::JumpsOverNewer) => Some(&[]),
        _ => numbers.last_until(until, newest),
    }
}
