//! Everything at once: commits in the order of the store's numbers, and every read at one place
//! between them.
//!
//! A *position* p is the state after the first p commits. Writes and reads of a store
//! that is linearizable with its numbers as the order have positions such that
//! * R1: numbers are dense: each write takes the next one, those of a commit follow each other;
//! * R2: a commit that returned before another was called has the lower number;
//! * R3: a read's position is at or behind every commit, and every read, that returned before the
//!   read was called, and before every commit that was called after it returned;
//! * R4: what the read found is, whole, the state at its position;
//! * R5: a version that was merged has as its base the one that its key had before.
//!
//! R3 asks of reads only that they are not too early, so taking them in the order of their calls
//! and giving each the least position that fits finds positions if there are any. No search.
//!
//! A single put or delete does not answer its number. What was made by one thread at a time has
//! the numbers that are left over, in order.
//!
//! Cost: O(n log n); in a build for tests one or two microseconds an operation, with the keys of
//! its ranges.

use std::collections::HashMap;

use super::stacks::{self, Stood};
use super::{ABSENT, Base, Commit, History, Key, Read, Version};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// A moment at which a store was cut off, as an image of its device.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// A stamp before the image was taken.
    pub before: u64,
    /// A stamp after it was taken.
    pub after: u64,
    /// A number that the store said to be durable before.
    pub durable: u64,
    /// Whether everything survived that was handed to the system: then it is a process that was
    /// killed, and not a power cut.
    pub keeps_all: bool,
}

/// A history whose commits are in order.
#[derive(Debug)]
pub struct Serial<'a> {
    base: &'a Base,
    /// The commits by their numbers.
    commits: Vec<(u64, &'a Commit)>,
    /// The versions of each key, each with the position from which on the key held it.
    timelines: HashMap<Key, Vec<(usize, Version)>>,
    /// The key and the position at which each version was written.
    origins: HashMap<Version, (Key, usize)>,
}

impl<'a> Serial<'a> {
    /// Checks a whole history that began at `base`.
    ///
    /// # Errors
    /// The first of R1 to R4 that does not hold.
    pub fn check(base: &'a Base, history: &'a History) -> Verdict<Self> {
        let serial = Self::order(base, history)?;
        serial.commits_fit_the_clock()?;
        serial.reads_fit(&history.reads)?;
        Ok(serial)
    }

    /// R1.
    fn order(base: &'a Base, history: &'a History) -> Verdict<Self> {
        let commits = numbered(base.number, &history.commits)?;
        let mut timelines: HashMap<Key, Vec<(usize, Version)>> = HashMap::new();
        let mut origins = HashMap::new();
        for (key, version) in &base.state {
            timelines.insert(*key, vec![(0, *version)]);
            origins.insert(*version, (*key, 0));
        }
        for (position, (_, commit)) in (1..).zip(&commits) {
            for (key, version) in &commit.writes {
                let timeline = timelines.entry(*key).or_insert_with(|| vec![(0, ABSENT)]);
                timeline.push((position, *version));
                let twice = *version != ABSENT && origins.contains_key(version);
                ensure(!twice, Oracle::Harness, || format!("version {version} written twice"))?;
                origins.insert(*version, (*key, position));
            }
        }
        Ok(Self { base, commits, timelines, origins })
    }

    /// R2.
    fn commits_fit_the_clock(&self) -> Verdict {
        let mut latest = (0, self.base.number);
        for (number, commit) in &self.commits {
            let (called, before) = latest;
            ensure(commit.span.returned > called, Oracle::Linearizable, || {
                format!("commit {number} had returned when {before} was called: {commit:?}")
            })?;
            latest = latest.max((commit.span.invoked, *number));
        }
        Ok(())
    }

    /// R3 and R4.
    fn reads_fit(&self, reads: &[Read]) -> Verdict {
        let mut by_call: Vec<usize> = (0..reads.len()).collect();
        by_call.sort_unstable_by_key(|at| reads.get(*at).map(|read| read.span.invoked));
        // What had returned when, and the least position from then on.
        let returned = (1..).zip(&self.commits).map(|(at, (_, commit))| (commit.span.returned, at));
        let mut floors: Vec<(u64, usize)> = returned.collect();
        floors.sort_unstable();
        let mut floors = floors.into_iter().peekable();
        let mut past_reads = std::collections::BinaryHeap::new();
        let ceilings = self.ceilings();
        let mut floor = 0;
        for read in by_call.iter().filter_map(|at| reads.get(*at)) {
            while let Some((_, at)) = floors.next_if(|(time, _)| *time < read.span.invoked) {
                floor = floor.max(at);
            }
            while let Some(std::cmp::Reverse((time, at))) = past_reads.peek().copied()
                && time < read.span.invoked
            {
                floor = floor.max(at);
                past_reads.pop();
            }
            let later = ceilings.partition_point(|(called, _)| *called < read.span.returned);
            let ceiling = ceilings.get(later).map_or(self.commits.len(), |(_, most)| *most);
            let position = self.position(read, floor, ceiling)?;
            past_reads.push(std::cmp::Reverse((read.span.returned, position)));
        }
        Ok(())
    }

    /// R5, of what was written in this history.
    ///
    /// # Errors
    /// The first that has another base.
    pub fn stacks_fit<'s>(&self, stood: impl IntoIterator<Item = &'s Stood>) -> Verdict {
        for stood in stood {
            let Some((key, position)) = self.origins.get(&stood.version) else { continue };
            ensure(*key == stood.key, Oracle::NothingFromNowhere, || {
                format!("version {} of key {key} is found under key {}", stood.version, stood.key)
            })?;
            let timeline = self.timelines.get(key).map_or(&[][..], Vec::as_slice);
            let at = timeline.partition_point(|(at, _)| at < position);
            if let Some((_, before)) = at.checked_sub(1).and_then(|at| timeline.get(at)) {
                stacks::compare(stood, *before)?;
            }
        }
        Ok(())
    }

    /// By the time of their calls: the last position before each commit and all called later.
    fn ceilings(&self) -> Vec<(u64, usize)> {
        let called = self.commits.iter().enumerate();
        let mut called: Vec<_> =
            called.map(|(before, (_, commit))| (commit.span.invoked, before)).collect();
        called.sort_unstable();
        let mut least = self.commits.len();
        for (_, before) in called.iter_mut().rev() {
            least = least.min(*before);
            *before = least;
        }
        called
    }

    /// The least position within the bounds at which everything is as the read found it.
    fn position(&self, read: &Read, floor: usize, ceiling: usize) -> Verdict<usize> {
        let mut position = floor;
        if let Some(number) = read.number {
            position = self.position_of(number)?;
            ensure(position >= floor, Oracle::Linearizable, || {
                let least = self.number_at(floor);
                format!("number {number} was read when {least} had been seen: {}", brief(read))
            })?;
        }
        let least = position;
        loop {
            let before = position;
            for (key, version) in read.answers() {
                let next = self.next(key, version, position);
                position = next.ok_or_else(|| self.broken(read, key, version, position))?;
            }
            if position == before {
                break;
            }
        }
        let most = if read.number.is_some() { least } else { ceiling };
        ensure(position <= most.min(ceiling), Oracle::Linearizable, || {
            let (from, to) = (self.number_at(least), self.number_at(most.min(ceiling)));
            format!("no state from {from} to {to} is what was found: {}", brief(read))
        })?;
        // Entries that were found outside of what was asked for.
        let asked = read.answers().filter(|(_, version)| *version != ABSENT).count();
        ensure(asked == read.seen.len(), Oracle::NothingFromNowhere, || brief(read))?;
        Ok(position)
    }

    /// The first position from `from` on at which `key` has `version`.
    fn next(&self, key: Key, version: Version, from: usize) -> Option<usize> {
        let Some(timeline) = self.timelines.get(&key) else {
            return (version == ABSENT).then_some(from);
        };
        let since = timeline.partition_point(|(at, _)| *at <= from);
        let now = timeline.get(since.checked_sub(1)?..)?;
        if now.first()?.1 == version {
            return Some(from);
        }
        if version == ABSENT {
            return now.iter().find(|(_, found)| *found == ABSENT).map(|(at, _)| *at);
        }
        let (of, at) = self.origins.get(&version)?;
        (*of == key && *at >= from).then_some(*at)
    }

    fn broken(&self, read: &Read, key: Key, version: Version, from: usize) -> Violation {
        let origin = self.origins.get(&version).filter(|(of, _)| version == ABSENT || *of == key);
        if version != ABSENT && origin.is_none() {
            let detail = format!("version {version} of key {key} was never written");
            return Violation::new(Oracle::NothingFromNowhere, detail);
        }
        let from = self.number_at(from);
        let detail = format!("key {key} has version {version} nowhere from {from} on: ");
        Violation::new(Oracle::Linearizable, detail + &brief(read))
    }

    fn position_of(&self, number: u64) -> Verdict<usize> {
        if number == self.base.number {
            return Ok(0);
        }
        let found = self.commits.binary_search_by_key(&number, |(number, _)| *number);
        found.map(|at| at + 1).map_err(|_| {
            let detail = format!("number {number} is not the end of a commit");
            Violation::new(Oracle::CommitsAreWhole, detail)
        })
    }

    fn number_at(&self, position: usize) -> u64 {
        let last = position.checked_sub(1).and_then(|at| self.commits.get(at));
        last.map_or(self.base.number, |(number, _)| *number)
    }

    /// The number of the last commit.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.number_at(self.commits.len())
    }

    /// The contents of a store that was opened from an image and recovered to `number`.
    ///
    /// # Errors
    /// When that is not what the commits before and after the image allow.
    pub fn cut_off(&self, number: u64, cut: &Cut) -> Verdict<Base> {
        let position = self.position_of(number)?;
        ensure(number >= cut.durable, Oracle::AcknowledgedIsThere, || {
            format!("{number} is the last one there, {} was durable", cut.durable)
        })?;
        for (at, (of, commit)) in (1..).zip(&self.commits) {
            let promised = commit.span.returned < cut.before && (commit.synced || cut.keeps_all);
            ensure(at <= position || !promised, Oracle::AcknowledgedIsThere, || {
                format!("{number} is the last one there, {of} was acknowledged")
            })?;
            ensure(at > position || commit.span.invoked < cut.after, Oracle::Linearizable, || {
                format!("commit {of} is there, which was called after the image was taken")
            })?;
        }
        Ok(Base { number, state: self.state_at(position) })
    }

    fn state_at(&self, position: usize) -> std::collections::BTreeMap<Key, Version> {
        let at = |timeline: &[(usize, Version)]| {
            let since = timeline.partition_point(|(at, _)| *at <= position);
            timeline.get(since.checked_sub(1)?).map(|(_, version)| *version)
        };
        let found = self.timelines.iter().filter_map(|(key, line)| Some((*key, at(line)?)));
        found.filter(|(_, version)| *version != ABSENT).collect()
    }
}

/// The commits by their numbers, with the unreported ones filled in.
fn numbered(base: u64, commits: &[Commit]) -> Verdict<Vec<(u64, &Commit)>> {
    let mut known: Vec<(u64, &Commit)> = Vec::with_capacity(commits.len());
    known.extend(commits.iter().filter_map(|commit| Some((commit.number?, commit))));
    known.sort_unstable_by_key(|(number, _)| *number);
    let mut unknown: Vec<_> = commits.iter().filter(|commit| commit.number.is_none()).collect();
    unknown.sort_unstable_by_key(|commit| commit.span.invoked);
    let overlap = |pair: &[&Commit]| matches!(pair, [a, b] if a.span.returned > b.span.invoked);
    ensure(!unknown.windows(2).any(overlap), Oracle::Harness, || {
        "writes without numbers overlap".into()
    })?;
    let mut unknown = unknown.into_iter().peekable();
    let mut all = Vec::with_capacity(commits.len());
    let mut last = base;
    for (number, commit) in known {
        let first = number.saturating_sub(commit.numbers()) + 1;
        // A hole is for the next of the commits without a reported number.
        while last + 1 < first
            && let Some(other) = unknown.next()
        {
            last += other.numbers();
            all.push((last, other));
        }
        ensure(last + 1 == first, Oracle::CommitsAreWhole, || {
            format!("the commit {number} should begin at {}: {commit:?}", last + 1)
        })?;
        last = number;
        all.push((number, commit));
    }
    for other in unknown {
        last += other.numbers();
        all.push((last, other));
    }
    Ok(all)
}

/// A read, shortened.
fn brief(read: &Read) -> String {
    let text = format!("{read:?}");
    let head: String = text.chars().take(400).collect();
    if head.len() < text.len() { head + "…" } else { head }
}
