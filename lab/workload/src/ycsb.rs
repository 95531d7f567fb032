//! The core workloads A to F of YCSB (Cooper and others, SoCC 2010), as requests to numbers.
//!
//! | workload | requests | numbers |
//! |---|---|---|
//! | A | half lookups, half updates | Zipf |
//! | B | 95 % lookups, 5 % updates | Zipf |
//! | C | lookups | Zipf |
//! | D | 95 % lookups, 5 % insertions | the newest most often |
//! | E | 95 % scans of 1 to 100 entries, 5 % insertions | Zipf |
//! | F | half lookups, half lookups that are followed by an update | Zipf |
//!
//! As there, the constant of Zipf's law is 0.99, and popular numbers are scattered.

use crate::linkbench::draw::{Scatter, power, unit};
use crate::random::Random;

/// Zipf's s.
const SKEW: f64 = 0.99;
/// The most entries of a scan.
pub const SCAN_MAX: u64 = 100;

/// One of the core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Half lookups, half updates.
    A,
    /// Mostly lookups, some updates.
    B,
    /// Lookups alone.
    C,
    /// Lookups of what was inserted last, some insertions.
    D,
    /// Short scans, some insertions.
    E,
    /// Lookups, half of them followed by an update of what was read.
    F,
}

impl Workload {
    /// All of them, in the order in which YCSB's authors run them on one store.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::F, Self::D, Self::E];

    /// The letter.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
        }
    }

    /// Of a hundred requests, how many are not the workload's main kind.
    const fn others(self) -> u64 {
        match self {
            Self::A | Self::F => 50,
            Self::B | Self::D | Self::E => 5,
            Self::C => 0,
        }
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read the value of a number that is there.
    Lookup(u64),
    /// Set a number that is there to this version.
    Update(u64, u64),
    /// Add a number.
    Insert(u64),
    /// Read a number of entries, from this one on.
    Scan(u64, u64),
    /// Read a number, then set it to this version.
    Modify(u64, u64),
}

/// The requests of one of several threads, without end.
///
/// Invariant: every number that is read was there at the beginning, or was inserted by this thread
/// before.
#[derive(Clone, Debug)]
pub struct Requests {
    workload: Workload,
    random: Random,
    zipf: Zipf,
    scatter: Scatter,
    thread: u64,
    threads: u64,
    inserted: u64,
    version: u64,
}

impl Requests {
    /// The requests of thread `thread` of `threads` to the numbers of `zipf`, which are there.
    /// Threads insert different numbers.
    #[must_use]
    pub fn new(workload: Workload, zipf: Zipf, (thread, threads): (u64, u64), seed: u64) -> Self {
        Self {
            workload,
            random: Random::new(seed),
            zipf,
            scatter: Scatter::new(zipf.count, 0x7963_7362),
            thread,
            threads,
            inserted: 0,
            version: 0,
        }
    }

    fn popular(&mut self) -> u64 {
        self.scatter.of(self.zipf.rank(&mut self.random))
    }

    /// A number of this thread's, most often one of those inserted last.
    fn recent(&mut self) -> u64 {
        let age = self.zipf.rank(&mut self.random);
        match self.inserted.checked_sub(age + 1) {
            Some(place) => self.own(place),
            None => self.zipf.count + self.inserted - 1 - age,
        }
    }

    /// The number that this thread inserts after `place` others.
    const fn own(&self, place: u64) -> u64 {
        self.zipf.count + place * self.threads + self.thread
    }

    fn insert(&mut self) -> Request {
        self.inserted += 1;
        Request::Insert(self.own(self.inserted - 1))
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.version += 1;
        let is_other = self.random.below(100) < self.workload.others();
        Some(match self.workload {
            Workload::D | Workload::E if is_other => self.insert(),
            Workload::D => Request::Lookup(self.recent()),
            Workload::E => {
                let number = self.popular();
                Request::Scan(number, 1 + self.random.below(SCAN_MAX))
            }
            Workload::F if is_other => Request::Modify(self.popular(), self.version),
            _ if is_other => Request::Update(self.popular(), self.version),
            _ => Request::Lookup(self.popular()),
        })
    }
}

/// Ranks by Zipf's law with s = 0.99, drawn as YCSB draws them (Gray and others, "Quickly
/// generating billion-record synthetic databases", SIGMOD 1994).
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    /// The sum of r^-s over all ranks r from 1 on.
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Ranks below `count`, of at least two. Takes some 50 ns for each.
    #[must_use]
    pub fn new(count: u64) -> Self {
        let count = count.max(2);
        let inverse = |rank: u64| power(1.0 / rank as f64, SKEW);
        let zeta = (1..=count).map(inverse).sum();
        let rest = 1.0 - power(2.0 / count as f64, 1.0 - SKEW);
        Self { count, zeta, eta: rest / (1.0 - (1.0 + inverse(2)) / zeta) }
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let drawn = unit(random);
        let place = drawn * self.zeta;
        if place < 1.0 {
            return 0;
        }
        if place < 1.0 + power(0.5, SKEW) {
            return 1;
        }
        let share = power(self.eta.mul_add(drawn, 1.0 - self.eta), 1.0 / (1.0 - SKEW));
        ((self.count as f64 * share) as u64).min(self.count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    const ENTRIES: u64 = 20_000;

    fn requests(workload: Workload, thread: u64) -> Requests {
        Requests::new(workload, Zipf::new(ENTRIES), (thread, 2), 7 + thread)
    }

    /// The share of the most popular rank and of the ten most popular is that of the law.
    #[test]
    fn ranks_follow_zipfs_law() {
        let (zipf, mut random) = (Zipf::new(ENTRIES), Random::new(1));
        let mut drawn = BTreeMap::<u64, u32>::new();
        (0..100_000).for_each(|_| *drawn.entry(zipf.rank(&mut random)).or_default() += 1);
        let zeta: f64 = (1..=ENTRIES).map(|rank| (rank as f64).powf(-SKEW)).sum();
        assert!((zipf.zeta / zeta - 1.0).abs() < 1e-4, "{} {zeta}", zipf.zeta);
        for ranks in [1u64, 10, 1000] {
            let expected: f64 =
                (1..=ranks).map(|rank| (rank as f64).powf(-SKEW)).sum::<f64>() / zeta;
            let found = drawn.range(..ranks).map(|(_, times)| *times).sum::<u32>();
            let found = f64::from(found) / 1e5;
            assert!((found - expected).abs() < 0.02, "{ranks}: {found} {expected}");
        }
        assert!(drawn.keys().all(|rank| *rank < ENTRIES));
    }

    #[test]
    fn every_workload_has_its_mix() {
        for workload in Workload::ALL {
            let drawn: Vec<_> = requests(workload, 0).take(20_000).collect();
            let share = |of: fn(&Request) -> bool| {
                drawn.iter().filter(|request| of(request)).count() as f64 / drawn.len() as f64
            };
            let shares = [
                share(|it| matches!(it, Request::Lookup(_))),
                share(|it| matches!(it, Request::Update(..))),
                share(|it| matches!(it, Request::Insert(_))),
                share(|it| matches!(it, Request::Scan(..))),
                share(|it| matches!(it, Request::Modify(..))),
            ];
            let expected = match workload {
                Workload::A => [0.5, 0.5, 0.0, 0.0, 0.0],
                Workload::B => [0.95, 0.05, 0.0, 0.0, 0.0],
                Workload::C => [1.0, 0.0, 0.0, 0.0, 0.0],
                Workload::D => [0.95, 0.0, 0.05, 0.0, 0.0],
                Workload::E => [0.0, 0.0, 0.05, 0.95, 0.0],
                Workload::F => [0.5, 0.0, 0.0, 0.0, 0.5],
            };
            let near = shares.iter().zip(expected).all(|(is, of)| (is - of).abs() < 0.02);
            assert!(near, "{workload:?}: {shares:?}");
        }
    }

    #[test]
    fn what_is_read_is_there_and_threads_insert_different_numbers() {
        let mut there: BTreeSet<u64> = (0..ENTRIES).collect();
        for thread in 0..2 {
            let mut newest = 0;
            for request in requests(Workload::D, thread).take(5_000) {
                match request {
                    Request::Insert(number) => assert!(there.insert(number), "{number} twice"),
                    Request::Lookup(number) => {
                        assert!(there.contains(&number));
                        newest += u32::from(number >= ENTRIES);
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(newest > 1_000, "{newest} of what was inserted");
        }
        let lengths = requests(Workload::E, 0).take(10_000).filter_map(|it| match it {
            Request::Scan(number, entries) => Some((number, entries)),
            _ => None,
        });
        assert!(lengths.into_iter().all(|(at, of)| at < ENTRIES && (1..=SCAN_MAX).contains(&of)));
    }
}
