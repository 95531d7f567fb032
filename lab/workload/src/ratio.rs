//! G_R: lookups, insertions and deletions in a given ratio (Thonangi's thesis, Remark 8).
//!
//! An index holds the numbers 1 to `preload`. Of N requests N_i, in proportion, may bring keys
//! of the range from `preload + 1` to `preload + N_i`. Each request is drawn by itself:
//! - a lookup of any key that is there;
//! - an insertion of the smallest key of the range that is not there;
//! - a deletion of any key inserted at least [`DELETE_AGE`] requests before.
//!
//! Where the drawn kind is impossible (nothing to delete yet, the range is used up) the request
//! is a lookup, and where nothing is there to look up, an insertion; with neither, the stream
//! ends.
//!
//! Memory: eight bytes for each key that is there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::random::Random;
use crate::request::Request;

/// Requests between a key's insertion and the first that may delete it.
pub const DELETE_AGE: u64 = 100;

/// The ratio W_l : W_i : W_d.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// W_l.
    pub lookups: u32,
    /// W_i.
    pub inserts: u32,
    /// W_d.
    pub deletes: u32,
}

impl Ratio {
    fn total(self) -> u64 {
        u64::from(self.lookups) + u64::from(self.inserts) + u64::from(self.deletes)
    }

    /// N_i of N requests, rounded up.
    fn inserts_of(self, requests: u64) -> u64 {
        let share = u128::from(requests) * u128::from(self.inserts);
        share.div_ceil(u128::from(self.total().max(1))) as u64
    }
}

/// The stream.
///
/// Invariant: a key that is there is in exactly one of `old` (may be deleted) and `young`
/// (ascending by the request that inserted it); a key of the range that was deleted is in `gaps`.
#[derive(Clone, Debug)]
pub struct Requests {
    random: Random,
    ratio: Ratio,
    requests: u64,
    made: u64,
    old: Vec<u64>,
    young: VecDeque<(u64, u64)>,
    gaps: BinaryHeap<Reverse<u64>>,
    next_key: u64,
    last_key: u64,
    preload: u64,
}

impl Requests {
    /// `requests` requests in `ratio` over an index that holds the numbers 1 to `preload`.
    #[must_use]
    pub fn new(seed: u64, preload: u64, requests: u64, ratio: Ratio) -> Self {
        Self {
            random: Random::new(seed),
            ratio,
            requests,
            made: 0,
            old: (1..=preload).collect(),
            young: VecDeque::new(),
            gaps: BinaryHeap::new(),
            next_key: preload.saturating_add(1),
            last_key: preload.saturating_add(ratio.inserts_of(requests)),
            preload,
        }
    }

    /// The puts that make the index that the stream expects.
    pub fn preload(&self) -> impl Iterator<Item = Request> + use<> {
        (1..=self.preload).map(|number| Request::put(number, 0))
    }

    fn lookup(&mut self) -> Option<Request> {
        let there = self.old.len() + self.young.len();
        let index = self.random.below(there as u64) as usize;
        let old = self.old.get(index).copied();
        let young = || self.young.get(index - self.old.len()).map(|(_, key)| *key);
        old.or_else(|| if there > 0 { young() } else { None }).map(Request::lookup)
    }

    fn insert(&mut self) -> Option<Request> {
        let key = match self.gaps.pop() {
            Some(Reverse(key)) => key,
            None if self.next_key <= self.last_key => {
                self.next_key += 1;
                self.next_key - 1
            }
            None => return None,
        };
        self.young.push_back((self.made, key));
        Some(Request::put(key, self.made))
    }

    fn delete(&mut self) -> Option<Request> {
        if self.old.is_empty() {
            return None;
        }
        let key = self.old.swap_remove(self.random.below(self.old.len() as u64) as usize);
        if key > self.preload {
            self.gaps.push(Reverse(key));
        }
        Some(Request::delete(key))
    }

    fn age(&mut self) {
        while let Some((inserted, key)) = self.young.front().copied() {
            if self.made - inserted < DELETE_AGE {
                break;
            }
            self.young.pop_front();
            self.old.push(key);
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.made >= self.requests {
            return None;
        }
        self.made += 1;
        self.age();
        let drawn = self.random.below(self.ratio.total());
        let inserts_from = u64::from(self.ratio.lookups);
        let deletes_from = inserts_from + u64::from(self.ratio.inserts);
        let first = if drawn < inserts_from {
            None
        } else if drawn < deletes_from {
            self.insert()
        } else {
            self.delete()
        };
        first.or_else(|| self.lookup()).or_else(|| self.insert())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Kind;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn judge(seed: u64, preload: u64, requests: u64, ratio: Ratio) -> [u64; 3] {
        let stream = Requests::new(seed, preload, requests, ratio);
        let mut there: BTreeMap<u64, u64> = stream.preload().map(|put| (put.number, 0)).collect();
        let last = preload + ratio.inserts_of(requests);
        let mut counts = [0; 3];
        for (made, request) in (1..).zip(stream) {
            counts[request.kind as usize] += 1;
            match request.kind {
                Kind::Lookup => assert!(there.contains_key(&request.number)),
                Kind::Put => {
                    let smallest = (preload + 1..=last).find(|key| !there.contains_key(key));
                    assert_eq!(Some(request.number), smallest);
                    there.insert(request.number, made);
                }
                Kind::Delete => {
                    let inserted = there.remove(&request.number).unwrap();
                    assert!(inserted == 0 || made - inserted >= DELETE_AGE);
                }
            }
        }
        counts
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_request_is_one_that_the_remark_allows(
            seed: u64, preload in 0u64..50, requests in 0u64..600,
            lookups in 0u32..4, inserts in 0u32..4, deletes in 0u32..4,
        ) {
            judge(seed, preload, requests, Ratio { lookups, inserts, deletes });
        }
    }

    #[test]
    fn the_ratio_is_kept() {
        let ratio = Ratio { lookups: 2, inserts: 1, deletes: 1 };
        let [lookups, inserts, deletes] = judge(9, 2000, 4000, ratio);
        assert_eq!(lookups + inserts + deletes, 4000);
        assert!((1900..=2100).contains(&lookups), "{lookups}");
        assert!((900..=1100).contains(&inserts), "{inserts}");
        assert!((900..=1100).contains(&deletes), "{deletes}");
    }

    #[test]
    fn insertions_alone_are_the_numbers_in_order() {
        let ratio = Ratio { lookups: 0, inserts: 1, deletes: 0 };
        let numbers: Vec<_> = Requests::new(1, 3, 4, ratio).map(|put| put.number).collect();
        assert_eq!(numbers, [4, 5, 6, 7]);
    }

    #[test]
    fn with_nothing_to_do_the_stream_ends() {
        let ratio = Ratio { lookups: 1, inserts: 0, deletes: 1 };
        assert_eq!(Requests::new(1, 0, 5, ratio).next(), None);
    }
}
