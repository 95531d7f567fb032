//! G_U and G_N of R. Thonangi's thesis (section 5.5): insertions up to a size, and from then on
//! alternating insertions and deletions, so that the size stays.
//!
//! The keys of insertions are drawn by a [`Law`]: G_U evenly, G_N around a mean that moves after
//! every group. Deletions are of entries drawn evenly from the live ones, whatever the law, as in
//! the thesis. No live entry is inserted again: a number that is live is drawn anew, and where a
//! narrow law has no other, the next one that is free is taken.

use std::collections::HashSet;

use crate::law::{DOMAIN, Draws, Law};
use crate::random::{Random, mixed};
use crate::request::Request;

/// Draws before the next free number is taken.
const DRAWS_MAX: u32 = 8;

/// The requests, without end.
///
/// Invariant: `live` and `is_live` have the same numbers.
#[derive(Clone, Debug)]
pub struct Steady {
    draws: Draws,
    victims: Random,
    live: Vec<u64>,
    is_live: HashSet<u64>,
    entries: u64,
    version: u64,
}

impl Steady {
    /// The requests of a seed, which keep `entries` entries live, at most half of the domain.
    /// `u64::MAX`: insertions without end.
    #[must_use]
    pub fn new(seed: u64, law: Law, entries: u64) -> Self {
        Self {
            draws: Draws::new(seed, law),
            victims: Random::new(mixed(seed)),
            live: Vec::new(),
            is_live: HashSet::new(),
            entries,
            version: 0,
        }
    }

    /// Entries that are there after the requests so far.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.len() as u64
    }

    /// Whether a number is there after the requests so far.
    #[must_use]
    pub fn is_live(&self, number: u64) -> bool {
        self.is_live.contains(&number)
    }

    fn insert(&mut self) -> Request {
        let mut number = self.draws.draw();
        for _ in 1..DRAWS_MAX {
            if !self.is_live.contains(&number) {
                break;
            }
            number = self.draws.draw();
        }
        while !self.is_live.insert(number) {
            number = (number + 1) % DOMAIN;
        }
        self.live.push(number);
        self.version += 1;
        Request::put(number, self.version)
    }

    fn delete(&mut self) -> Option<Request> {
        let index = self.victims.below(self.live.len() as u64) as usize;
        (index < self.live.len()).then(|| {
            let number = self.live.swap_remove(index);
            self.is_live.remove(&number);
            Request::delete(number)
        })
    }
}

impl Iterator for Steady {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let deleted = if self.live() >= self.entries { self.delete() } else { None };
        Some(deleted.unwrap_or_else(|| self.insert()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const NORMAL: Law = Law::Normal { sigma: 0.001, group: 50 };

    proptest! {
        #[test]
        fn the_live_ones_are_those_of_a_set(seed: u64, entries in 1u64..100, is_even: bool) {
            let law = if is_even { Law::Uniform } else { NORMAL };
            let mut model = BTreeSet::new();
            let mut steady = Steady::new(seed, law, entries);
            for number in 0..3 * entries {
                let request = steady.next().unwrap();
                match request.kind {
                    Kind::Delete => prop_assert!(model.remove(&request.number)),
                    _ => prop_assert!(model.insert(request.number)),
                }
                prop_assert!(request.number < DOMAIN);
                prop_assert_eq!(steady.live(), model.len() as u64);
                let grows = number < entries;
                let turn = (number + 1 + entries) % 2;
                let expected = if grows { number + 1 } else { entries - turn };
                prop_assert_eq!(steady.live(), expected);
            }
            prop_assert!(model.iter().all(|number| steady.is_live(*number)));
        }
    }

    #[test]
    fn a_law_with_few_numbers_takes_those_during_them() {
        let law = Law::Normal { sigma: 1e-9, group: u64::MAX };
        let requests: Vec<_> = Steady::new(1, law, u64::MAX).take(1000).collect();
        let numbers: BTreeSet<_> = requests.iter().map(|request| request.number).collect();
        assert_eq!(numbers.len(), 1000);
        let span = numbers.last().unwrap() - numbers.first().unwrap();
        assert!(span < 1100, "{span}");
    }

    #[test]
    fn deletions_are_spread_evenly_whatever_the_law() {
        let law = Law::Normal { sigma: 0.001, group: 1000 };
        let mut steady = Steady::new(5, law, 20_000);
        let built: BTreeSet<_> =
            steady.by_ref().take(20_000).map(|request| request.number).collect();
        let ranks: Vec<_> = built.iter().copied().collect();
        let deleted = steady.take(8000).filter(|request| request.kind == Kind::Delete);
        let mut quarters = [0u32; 4];
        for rank in deleted.filter_map(|request| ranks.binary_search(&request.number).ok()) {
            quarters[rank * 4 / ranks.len()] += 1;
        }
        assert!(quarters.iter().all(|count| (780..=1050).contains(count)), "{quarters:?}");
    }

    #[test]
    fn the_requests_follow_from_the_seed() {
        let requests = |seed| Steady::new(seed, NORMAL, 10).take(100).collect::<Vec<_>>();
        assert_eq!(requests(1), requests(1));
        assert_ne!(requests(1), requests(2));
    }
}
