//! Histories of an imaginary store, sound ones and ones with a planted bug.

use std::collections::BTreeMap;

use super::*;
use crate::random::Random;
use crate::violation::{Oracle, Verdict, Violation};

const KEYS: Key = 10;
const THREADS: usize = 6;

/// The mistake that the imaginary store makes, in the middle of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// A read finds what had been overwritten before it was called.
    StaleRead,
    /// A commit is acknowledged and forgotten.
    LostUpdate,
    /// A read finds a part of a batch.
    HalfBatch,
    /// A scan answers, whole, what was true long before.
    TimeTravel,
    /// A snapshot's number is newer than what it shows.
    WrongNumber,
    /// Two commits have their numbers in the wrong order.
    NumbersSwapped,
}

/// A call under way.
enum Call {
    Write { invoked: u64, writes: Vec<(Key, Version)>, number: Option<u64> },
    Read { invoked: u64, floor: usize, read: Option<Read>, asked: Asked, numbered: bool },
}

/// The imaginary store: its states after each commit.
struct Store {
    random: Random,
    clock: Clock,
    versions: Version,
    states: Vec<(u64, BTreeMap<Key, Version>)>,
    /// Writes that have returned.
    puts: Vec<(Key, Version, Span)>,
    /// The newest state that a read called now must see.
    floor: usize,
    bug: Option<Bug>,
    planted: bool,
    history: History,
}

impl Store {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        Self {
            random: Random::new(seed),
            clock: Clock::default(),
            versions: 0,
            states: vec![(0, BTreeMap::new())],
            puts: Vec::new(),
            floor: 0,
            bug,
            planted: false,
            history: History::default(),
        }
    }

    /// Whether the bug strikes now, if it can.
    fn strikes(&self, bug: Bug) -> bool {
        self.bug == Some(bug) && !self.planted && self.states.len() > 60
    }

    fn call(&mut self, single: bool) -> Call {
        if self.random.percent(50) {
            let mut writes = BTreeMap::new();
            for _ in 0..if single { 1 } else { 1 + self.random.below(4) } {
                self.versions += 1;
                let version = if self.random.percent(25) { ABSENT } else { self.versions };
                writes.insert(self.random.below(KEYS.into()) as Key, version);
            }
            let writes = writes.into_iter().collect();
            return Call::Write { invoked: self.clock.stamp(), writes, number: None };
        }
        let key = self.random.below(KEYS.into()) as Key;
        let asked = match self.random.below(4) {
            0 | 1 => Asked::One(key),
            2 => Asked::Each(vec![key, key + 1, key + 3]),
            _ => Asked::Within(key / 2..KEYS),
        };
        let numbered = self.random.percent(30);
        let (invoked, floor) = (self.clock.stamp(), self.floor);
        Call::Read { invoked, floor, read: None, asked, numbered }
    }

    /// The moment at which a call happens.
    fn happen(&mut self, call: &mut Call) {
        match call {
            Call::Write { writes, number, .. } => {
                let (last, state) = self.states.last().unwrap();
                let mut state = state.clone();
                state.extend(writes.iter().copied());
                state.retain(|_, version| *version != ABSENT);
                // Some are overwritten before any read.
                let lost = self.states.len().is_multiple_of(20) && self.states.len() > 60;
                if self.bug == Some(Bug::LostUpdate) && lost {
                    self.planted = true;
                    state = self.states.last().unwrap().1.clone();
                }
                let next = last + writes.len() as u64;
                *number = Some(next);
                self.states.push((next, state));
            }
            Call::Read { invoked, read, asked, numbered, floor } => {
                *read = Some(self.read(*invoked, asked.clone(), *numbered, *floor));
            }
        }
    }

    fn read(&mut self, invoked: u64, asked: Asked, numbered: bool, floor: usize) -> Read {
        let (number, state) = self.states.last().unwrap().clone();
        let mut found = of_state(&asked, &state);
        let single = matches!(asked, Asked::One(_)) && !numbered;
        let recent = |found: &Vec<_>| {
            self.states[floor..].iter().any(|(_, state)| of_state(&asked, state) == *found)
        };
        let since = floor.saturating_sub(5);
        let old = of_state(&asked, &self.states[since].1);
        // A checker of one key alone must know that the old version was followed by another
        // before the read was called.
        let written = |version| self.puts.iter().find(|(_, of, _)| *of == version);
        let first = old.first().and_then(|(_, version)| written(*version));
        let known = first.is_some_and(|(key, _, span)| {
            let later = |other: &Span| span.returned < other.invoked && other.returned < invoked;
            self.puts.iter().any(|(of, _, other)| of == key && later(other))
        });
        // That nothing is there may come to be true again; a version never does.
        let stale = self.strikes(Bug::StaleRead) && single && known && !old.is_empty();
        let travels = self.strikes(Bug::TimeTravel) && !single && !numbered;
        let wrong = self.strikes(Bug::WrongNumber) && numbered;
        if (stale || travels) && !recent(&old) {
            self.planted = true;
            found = old;
        } else if wrong && of_state(&asked, &self.states[self.states.len() - 2].1) != found {
            self.planted = true;
            found = of_state(&asked, &self.states[self.states.len() - 2].1);
        } else if self.strikes(Bug::HalfBatch) && !single && !numbered {
            // A key from the newest state and the others from the one before.
            let mut half = self.states[self.states.len() - 2].1.clone();
            let changed = state.iter().find(|(key, version)| half.get(key) != Some(version));
            half.extend(changed.map(|(key, version)| (*key, *version)));
            let half = of_state(&asked, &half);
            if !recent(&half) {
                self.planted = true;
                found = half;
            }
        }
        let number = numbered.then_some(number);
        let span = Span { invoked: 0, returned: 0 };
        Read { span, number, asked, seen: found }
    }

    fn finish(&mut self, call: Call, single: bool) {
        match call {
            Call::Write { invoked, writes, number } => {
                let at = self.states.iter().position(|(of, _)| Some(*of) == number).unwrap();
                let span = Span { invoked, returned: self.clock.stamp() };
                self.puts.extend(writes.iter().map(|(key, version)| (*key, *version, span)));
                self.floor = self.floor.max(at);
                let number = number.filter(|_| !single);
                self.history.commits.push(Commit {
                    span,
                    number,
                    synced: false,
                    writes,
                    is_range: false,
                });
            }
            Call::Read { invoked, read, .. } => {
                let mut read = read.unwrap();
                read.span = Span { invoked, returned: self.clock.stamp() };
                self.history.reads.push(read);
            }
        }
    }

    /// Two commits of equal length, one before the other, exchange their numbers.
    fn swap_numbers(&mut self) {
        let commits = &mut self.history.commits;
        for (a, b) in (0..commits.len()).flat_map(|a| (a + 1..commits.len()).map(move |b| (a, b))) {
            let (left, right) = (&commits[a], &commits[b]);
            let ordered = left.span.returned < right.span.invoked;
            let alike = left.writes.len() == right.writes.len();
            if ordered && alike && left.number.is_some() && right.number.is_some() {
                let (left, right) = (left.number, right.number);
                (commits[a].number, commits[b].number) = (right, left);
                self.planted = true;
                return;
            }
        }
    }
}

fn of_state(asked: &Asked, state: &BTreeMap<Key, Version>) -> Vec<(Key, Version)> {
    let seen = state.iter().map(|(key, version)| (*key, *version)).collect();
    let all =
        Read { span: Span { invoked: 0, returned: 0 }, number: None, asked: asked.clone(), seen };
    all.answers().filter(|(_, version)| *version != ABSENT).collect()
}

/// Draws a history; whether the bug found a place in it.
fn history(seed: u64, bug: Option<Bug>) -> (History, bool) {
    let mut store = Store::new(seed, bug);
    // Per thread: the call under way, and whether it has happened.
    let mut calls: Vec<Option<(Call, bool)>> = (0..THREADS).map(|_| None).collect();
    for _ in 0..2400 {
        let thread = store.random.index(THREADS);
        match calls[thread].take() {
            None => calls[thread] = Some((store.call(thread == 0), false)),
            Some((mut call, false)) => {
                store.happen(&mut call);
                calls[thread] = Some((call, true));
            }
            Some((call, true)) => store.finish(call, thread == 0),
        }
    }
    for (thread, call) in calls.into_iter().enumerate() {
        let Some((mut call, happened)) = call else { continue };
        if !happened {
            store.happen(&mut call);
        }
        store.finish(call, thread == 0);
    }
    if bug == Some(Bug::NumbersSwapped) {
        store.swap_numbers();
    }
    (store.history, store.planted)
}

fn by_numbers(history: &History) -> Verdict {
    Serial::check(&Base::default(), history).map(drop)
}

fn by_key(history: &History) -> Verdict {
    let keys = history.by_key();
    keys.iter().try_for_each(|(key, operations)| register::check(*key, ABSENT, operations))
}

#[test]
fn sound_histories_pass() {
    for seed in 0..200 {
        let (history, _) = history(seed, None);
        assert!(history.len() > 600);
        by_numbers(&history).unwrap_or_else(|v| panic!("seed {seed}: {v}"));
        by_key(&history).unwrap_or_else(|v| panic!("seed {seed}: {v}"));
    }
}

fn found(bug: Bug, check: fn(&History) -> Verdict) -> Vec<Violation> {
    let mut violations = Vec::new();
    for seed in 0..40 {
        let (history, planted) = history(seed, Some(bug));
        assert!(planted, "{bug:?} found no place in history {seed}");
        match check(&history) {
            Ok(()) => panic!("{bug:?} of history {seed} was not found"),
            Err(violation) => violations.push(violation),
        }
    }
    violations
}

#[test]
fn stale_reads_are_found_by_both_checks() {
    for check in [by_numbers, by_key] {
        let violations = found(Bug::StaleRead, check);
        assert!(violations.iter().all(|found| found.oracle == Oracle::Linearizable));
    }
}

#[test]
fn lost_updates_are_found_by_both_checks() {
    found(Bug::LostUpdate, by_numbers);
    found(Bug::LostUpdate, by_key);
}

#[test]
fn half_batches_are_found() {
    found(Bug::HalfBatch, by_numbers);
}

#[test]
fn scans_that_travel_in_time_are_found() {
    found(Bug::TimeTravel, by_numbers);
}

#[test]
fn snapshots_of_another_number_are_found() {
    found(Bug::WrongNumber, by_numbers);
}

#[test]
fn numbers_in_the_wrong_order_are_found() {
    found(Bug::NumbersSwapped, by_numbers);
}

const fn at(invoked: u64, returned: u64) -> Span {
    Span { invoked, returned }
}

fn commit(span: Span, number: u64, writes: &[(Key, Version)]) -> Commit {
    let writes = writes.to_vec();
    Commit { span, number: Some(number), synced: true, writes, is_range: false }
}

fn scan(span: Span, seen: &[(Key, Version)]) -> Read {
    Read { span, number: None, asked: Asked::Within(0..9), seen: seen.to_vec() }
}

/// Two scans during one commit: the later one must not see less than the earlier one.
#[test]
fn reads_do_not_go_back_in_time() {
    let commits = vec![commit(at(1, 20), 2, &[(1, 11), (2, 12)])];
    let (with, without) = (scan(at(2, 3), &[(1, 11), (2, 12)]), scan(at(4, 5), &[]));
    let reads = vec![with.clone(), without.clone()];
    let back = by_numbers(&History { commits: commits.clone(), reads }).unwrap_err();
    assert_eq!(back.oracle, Oracle::Linearizable);
    let forward = vec![Read { span: at(6, 7), ..with }, without];
    by_numbers(&History { commits, reads: forward }).unwrap();
}

/// A commit without a reported number gets a place where a number is left.
#[test]
fn single_writes_have_the_numbers_that_are_left() {
    let single = |span, write| Commit { number: None, ..commit(span, 0, &[write]) };
    let mut commits = vec![
        commit(at(5, 6), 3, &[(1, 11), (2, 12)]),
        single(at(1, 2), (1, 10)),
        single(at(7, 8), (1, 13)),
    ];
    let reads = vec![scan(at(9, 10), &[(1, 13), (2, 12)])];
    by_numbers(&History { commits: commits.clone(), reads: reads.clone() }).unwrap();
    // The batch's numbers leave a hole for two.
    commits[0].number = Some(4);
    let hole = by_numbers(&History { commits: commits.clone(), reads: reads.clone() });
    assert_eq!(hole.unwrap_err().oracle, Oracle::Linearizable, "the third write was called later");
    commits[0].number = Some(9);
    let hole = by_numbers(&History { commits, reads }).unwrap_err();
    assert_eq!(hole.oracle, Oracle::CommitsAreWhole);
}

#[test]
fn what_a_crash_leaves_is_bounded_on_both_sides() {
    let mut commits = vec![
        commit(at(1, 2), 2, &[(1, 11), (2, 12)]),
        commit(at(3, 9), 3, &[(1, 13)]),
        commit(at(10, 11), 4, &[(2, ABSENT)]),
    ];
    commits[1].synced = false;
    let history = History { commits, reads: Vec::new() };
    let base = Base::default();
    let serial = Serial::check(&base, &history).unwrap();
    let cut = Cut { before: 5, after: 6, durable: 0, keeps_all: false };
    let state = |number| serial.cut_off(number, &cut).map(|base| base.state);
    assert_eq!(state(2).unwrap(), BTreeMap::from([(1, 11), (2, 12)]));
    assert_eq!(state(3).unwrap(), BTreeMap::from([(1, 13), (2, 12)]));
    let oracle = |number, cut: Cut| serial.cut_off(number, &cut).unwrap_err().oracle;
    assert_eq!(oracle(0, cut), Oracle::AcknowledgedIsThere);
    assert_eq!(oracle(1, cut), Oracle::CommitsAreWhole);
    assert_eq!(oracle(4, cut), Oracle::Linearizable, "it was called after the crash");
    assert_eq!(oracle(2, Cut { durable: 3, ..cut }), Oracle::AcknowledgedIsThere);
    let killed = Cut { before: 9, after: 10, keeps_all: true, ..cut };
    assert!(serial.cut_off(2, &killed).is_ok(), "it returned at the moment of the crash");
    assert_eq!(oracle(2, Cut { before: 10, ..killed }), Oracle::AcknowledgedIsThere);
}

/// Every order of a few operations, tried one by one.
fn some_order_fits(value: Version, left: &[Operation]) -> bool {
    let first_return = left.iter().map(|operation| operation.span.returned).min();
    left.iter().all(|operation| operation.span.returned == Span::NEVER)
        || left.iter().enumerate().any(|(at, next)| {
            let mut rest = left.to_vec();
            rest.remove(at);
            let early = first_return.is_none_or(|first| next.span.invoked < first);
            early
                && match next.action {
                    Action::Read(found) => found == value && some_order_fits(value, &rest),
                    Action::Write(written) => some_order_fits(written, &rest),
                }
        })
}

#[test]
fn the_search_answers_what_trying_everything_answers() {
    let random = Random::new(7);
    let mut answers = [0, 0];
    for case in 0..20_000 {
        let count = 2 + random.index(5);
        let mut stamps: Vec<u64> = (0..2 * count as u64).collect();
        let operations: Vec<_> = (1..=count as u64)
            .map(|version| {
                let mut draw = || stamps.swap_remove(random.index(stamps.len()));
                let (a, b) = (draw(), draw());
                let returned = if random.percent(10) { Span::NEVER } else { a.max(b) };
                let action = match random.below(5) {
                    0..3 => Action::Read(random.below(count as u64)),
                    3 => Action::Write(version),
                    _ => Action::Write(ABSENT),
                };
                Operation { span: Span { invoked: a.min(b), returned }, action }
            })
            .collect();
        let expected = some_order_fits(ABSENT, &operations);
        let found = register::check(1, ABSENT, &operations).is_ok();
        assert_eq!(found, expected, "case {case}: {operations:?}");
        answers[usize::from(expected)] += 1;
    }
    assert!(answers.iter().all(|count| *count > 2_000), "{answers:?}");
}

#[test]
fn an_operand_applies_to_the_version_before() {
    let commit = |number: u64, writes: &[(Key, Version)]| Commit {
        span: Span { invoked: 2 * number, returned: 2 * number + 1 },
        number: Some(number),
        synced: false,
        writes: writes.to_vec(),
        is_range: false,
    };
    let base = Base { number: 7, state: [(1, 70)].into() };
    let commits = [commit(8, &[(1, 71)]), commit(9, &[(1, ABSENT)]), commit(10, &[(1, 72)])];
    let history = History { commits: commits.into(), reads: Vec::new() };
    let serial = Serial::check(&base, &history).unwrap();
    let fits = |key, on, version| serial.stacks_fit(&[stacks::Stood { key, on, version }]).is_ok();
    assert!(fits(1, 70, 71) && fits(1, ABSENT, 72));
    assert!(!fits(1, ABSENT, 71) && !fits(1, 71, 72) && !fits(1, 69, 71) && !fits(2, 70, 71));
    assert!(fits(1, 69, 70), "what was there before has been looked at before");
}
