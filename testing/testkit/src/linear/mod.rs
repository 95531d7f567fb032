//! Linearizability: every operation seems to happen at one moment between its call and its
//! return, batches and scans included.
//!
//! Reading order: this file (what a history is), [`register`] (one key at a time, by search),
//! [`serial`] (everything at once, in the order of the store's own numbers), [`stacks`] (values
//! that are merged), [`drive`] (threads that make a history on a real store).
//!
//! Two checks, because each sees what the other cannot:
//! * [`register::check`] knows nothing of numbers. It searches for an order of the reads, puts
//!   and deletes of one key, so it would find a store that gives numbers out in a wrong order.
//! * [`serial::Serial`] takes the numbers as correct. They give the order of all commits, and then
//!   everything else follows without a search: the order must fit the clock, each read must find,
//!   whole, the state after some commit that is not too old and not too new, and reads must not go
//!   back in time.
//!
//! Invariants of a history:
//! * Stamps come from one [`Clock`]; none is used twice.
//! * No version is written twice. So what a read saw names the write that it saw.

pub mod drive;
pub mod register;
pub mod serial;
pub mod stacks;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

pub use register::{Action, Operation};
pub use serial::{Cut, Serial};

/// A key, by its place in the order of keys.
pub type Key = u32;

/// A value, by a number of its own.
pub type Version = u64;

/// The version that is found where there is no value.
pub const ABSENT: Version = 0;

/// Keys of a range that are looked at one by one by the check of single keys.
const PROJECTED_MAX: usize = 64;

/// Stamps in the order in which they are taken.
#[derive(Debug, Default)]
pub struct Clock(AtomicU64);

impl Clock {
    /// The next stamp.
    pub fn stamp(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// Makes a call; answers when it was made and what it answered.
    pub fn during<T>(&self, call: impl FnOnce() -> T) -> (Span, T) {
        let invoked = self.stamp();
        let answer = call();
        (Span { invoked, returned: self.stamp() }, answer)
    }
}

/// From a call to its return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When it was called.
    pub invoked: u64,
    /// When it returned; [`Span::NEVER`] when it did not.
    pub returned: u64,
}

impl Span {
    /// The return of a call that did not return.
    pub const NEVER: u64 = u64::MAX;
}

/// Writes that become visible together. No key occurs twice.
#[derive(Clone, Debug)]
pub struct Commit {
    /// When.
    pub span: Span,
    /// The sequence number of its last write, where the store answered it.
    pub number: Option<u64>,
    /// Whether it waited for the device.
    pub synced: bool,
    /// The versions that it wrote; [`ABSENT`] deletes.
    pub writes: Vec<(Key, Version)>,
    /// The keys are those of one range that was removed: that takes one number.
    pub is_range: bool,
}

/// Which keys a read asked for.
#[derive(Clone, Debug)]
pub enum Asked {
    /// One.
    One(Key),
    /// Each of these.
    Each(Vec<Key>),
    /// All that there are.
    Within(Range<Key>),
}

/// A read of one moment, of one key or many.
#[derive(Clone, Debug)]
pub struct Read {
    /// When the moment was chosen. Of a scan or a snapshot that is when it was opened: entries
    /// may be fetched much later.
    pub span: Span,
    /// The number of the moment, where the store tells.
    pub number: Option<u64>,
    /// The keys that were asked for.
    pub asked: Asked,
    /// The versions that were found, in the order of keys, without those that are absent.
    pub seen: Vec<(Key, Version)>,
}

/// The operations on a store between two moments when nothing was under way.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Everything written.
    pub commits: Vec<Commit>,
    /// Everything read.
    pub reads: Vec<Read>,
}

/// The contents of a store before a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The number of its last write.
    pub number: u64,
    /// The values.
    pub state: BTreeMap<Key, Version>,
}

impl Commit {
    /// The number of sequence numbers that it takes.
    #[must_use]
    pub const fn numbers(&self) -> u64 {
        if self.is_range { 1 } else { self.writes.len() as u64 }
    }
}

impl Read {
    /// The version of a key that was asked for.
    #[must_use]
    pub fn version(&self, key: Key) -> Version {
        match self.seen.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(at) => self.seen.get(at).map_or(ABSENT, |(_, version)| *version),
            Err(_) => ABSENT,
        }
    }

    /// The keys that were asked for, with what was found. Each costs a search of `seen`.
    pub fn answers(&self) -> impl Iterator<Item = (Key, Version)> {
        let (one, each, within) = match &self.asked {
            Asked::One(key) => (Some(*key), None, None),
            Asked::Each(keys) => (None, Some(keys.iter().copied()), None),
            Asked::Within(range) => (None, None, Some(range.clone())),
        };
        let keys = one.into_iter().chain(each.into_iter().flatten());
        let keys = keys.chain(within.into_iter().flatten());
        keys.map(|key| (key, self.version(key)))
    }

    /// The number of keys that were asked for.
    #[must_use]
    pub fn width(&self) -> usize {
        match &self.asked {
            Asked::One(_) => 1,
            Asked::Each(keys) => keys.len(),
            Asked::Within(range) => range.len(),
        }
    }
}

impl History {
    /// Adds what another thread saw.
    pub fn absorb(&mut self, other: Self) {
        self.commits.extend(other.commits);
        self.reads.extend(other.reads);
    }

    /// The number of operations, each write of a batch counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reads.len() + self.commits.iter().map(|commit| commit.writes.len()).sum::<usize>()
    }

    /// Whether nothing happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.reads.is_empty()
    }

    /// The operations on each key, as if keys had nothing to do with each other. Wide ranges are
    /// left out: they would make a read of every key.
    #[must_use]
    pub fn by_key(&self) -> BTreeMap<Key, Vec<Operation>> {
        let mut keys: BTreeMap<Key, Vec<Operation>> = BTreeMap::new();
        let mut add = |key, span, action| {
            keys.entry(key).or_default().push(Operation { span, action });
        };
        for commit in &self.commits {
            for (key, version) in &commit.writes {
                add(*key, commit.span, Action::Write(*version));
            }
        }
        for read in self.reads.iter().filter(|read| read.width() <= PROJECTED_MAX) {
            for (key, version) in read.answers() {
                add(key, read.span, Action::Read(version));
            }
        }
        keys
    }
}
