//! Load, overwrite and mix over random keys: the plainest workloads, and the hardest for a store
//! that orders its keys, because no two neighbouring requests have neighbouring keys.
//!
//! - *load*: every number once, ascending, which is a random order of keys;
//! - *overwrite*: numbers drawn evenly from those loaded;
//! - *mix*: half overwrites of live numbers drawn evenly, a quarter new numbers, a quarter
//!   deletions of live numbers drawn evenly. The number of live entries stays about the same.

use crate::random::Random;
use crate::request::Request;

/// Every number below `entries` once.
pub fn load(entries: u64) -> impl Iterator<Item = Request> {
    (0..entries).map(|number| Request::put(number, 0))
}

/// Overwrites without end of numbers below `entries`. The versions ascend from 1.
#[derive(Clone, Debug)]
pub struct Overwrite {
    random: Random,
    entries: u64,
    version: u64,
}

impl Overwrite {
    /// Overwrites of what [`load`] put.
    #[must_use]
    pub const fn new(seed: u64, entries: u64) -> Self {
        Self { random: Random::new(seed), entries, version: 0 }
    }
}

impl Iterator for Overwrite {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.version += 1;
        (self.entries > 0).then(|| Request::put(self.random.below(self.entries), self.version))
    }
}

/// Lookups without end of numbers below `entries`.
pub fn lookups(seed: u64, entries: u64) -> impl Iterator<Item = Request> {
    let mut random = Random::new(seed);
    std::iter::repeat_with(move || Request::lookup(random.below(entries)))
}

/// The mix, without end.
///
/// Invariant: the bit of a number below `issued` is set exactly while the number is live, and
/// `live` counts the set bits. Memory: one bit for each number ever issued.
#[derive(Clone, Debug)]
pub struct Mix {
    random: Random,
    bits: Vec<u64>,
    issued: u64,
    live: u64,
    version: u64,
}

impl Mix {
    /// A mix that begins with the entries that [`load`] put.
    #[must_use]
    pub fn new(seed: u64, entries: u64) -> Self {
        let mut mix =
            Self { random: Random::new(seed), bits: Vec::new(), issued: 0, live: 0, version: 0 };
        for _ in 0..entries {
            mix.issue();
        }
        mix
    }

    /// Entries that are there after the requests so far.
    #[must_use]
    pub const fn live(&self) -> u64 {
        self.live
    }

    /// Whether a number is there after the requests so far.
    #[must_use]
    pub fn is_live(&self, number: u64) -> bool {
        let word = self.bits.get((number / 64) as usize).copied().unwrap_or(0);
        word >> (number % 64) & 1 == 1
    }

    fn issue(&mut self) -> u64 {
        let number = self.issued;
        self.issued += 1;
        if number.is_multiple_of(64) {
            self.bits.push(0);
        }
        if let Some(word) = self.bits.last_mut() {
            *word |= 1 << (number % 64);
        }
        self.live += 1;
        number
    }

    /// A live number. Deletions take as many as insertions bring, so that the share of live
    /// numbers falls only as slowly as the stream grows: a few draws find one.
    fn draw(&mut self) -> Option<u64> {
        while self.live > 0 {
            let number = self.random.below(self.issued);
            if self.is_live(number) {
                return Some(number);
            }
        }
        None
    }

    fn forget(&mut self, number: u64) {
        if let Some(word) = self.bits.get_mut((number / 64) as usize) {
            *word &= !(1 << (number % 64));
            self.live -= 1;
        }
    }
}

impl Iterator for Mix {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.version += 1;
        let choice = self.random.below(4);
        let request = match (choice, self.draw()) {
            (2, _) | (_, None) => Request::put(self.issue(), self.version),
            (3, Some(number)) => {
                self.forget(number);
                Request::delete(number)
            }
            (_, Some(number)) => Request::put(number, self.version),
        };
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_mix_agrees_with_a_set(seed: u64, entries in 0u64..200) {
            let mut model: BTreeSet<u64> = (0..entries).collect();
            let mut mix = Mix::new(seed, entries);
            for _ in 0..400 {
                let request = mix.next().unwrap();
                match request.kind {
                    Kind::Delete => prop_assert!(model.remove(&request.number)),
                    _ => {
                        let new = request.number >= entries
                            && model.iter().next_back().is_none_or(|last| request.number > *last);
                        prop_assert!(new || model.contains(&request.number) || model.is_empty());
                        model.insert(request.number);
                    }
                }
                prop_assert_eq!(mix.live(), model.len() as u64);
            }
            prop_assert!((0..mix.issued).all(|n| mix.is_live(n) == model.contains(&n)));
        }
    }

    #[test]
    fn the_mix_has_its_shares() {
        let mut mix = Mix::new(11, 1000);
        let (mut deletes, mut new) = (0, 0);
        for _ in 0..10_000 {
            let issued = mix.issued;
            let request = mix.next().unwrap();
            deletes += u32::from(request.kind == Kind::Delete);
            new += u32::from(mix.issued > issued);
        }
        assert!((2300..=2700).contains(&deletes), "{deletes}");
        assert!((2300..=2700).contains(&new), "{new}");
    }

    #[test]
    fn a_load_puts_each_number_once_and_overwrites_stay_within() {
        let loaded: Vec<_> = load(3).map(|request| request.number).collect();
        assert_eq!(loaded, [0, 1, 2]);
        let versions: Vec<_> = Overwrite::new(1, 3).take(50).collect();
        assert!(versions.iter().all(|request| request.number < 3));
        assert!(versions.windows(2).all(|pair| pair[0].version < pair[1].version));
        assert_eq!(Overwrite::new(1, 0).next(), None);
        assert!(lookups(1, 5).take(50).all(|request| request.number < 5));
    }
}
