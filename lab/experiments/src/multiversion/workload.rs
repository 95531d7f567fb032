//! The requests of the experiments: transactions of insertions, or of insertions and deletions.
//!
//! The paper says "1000 insertions in five transactions", of entries of 24 bytes in pages of 4 KiB.
//! That is 1000 in all, which fit six pages, or 1000 in each. Both are measured ([`Shape`]), and
//! sizes at which an index does not fit memory.

use std::collections::HashMap;

use esker_workload::Random;

use super::Key;

/// How operations are divided among transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// 1000 in each.
    ThousandEach,
    /// All in this many.
    In(u64),
}

impl Shape {
    /// The paper's: five, eight and ten transactions.
    pub const ALL: [Self; 4] = [Self::ThousandEach, Self::In(5), Self::In(8), Self::In(10)];

    /// The name in the results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ThousandEach => "1000 each",
            Self::In(5) => "in five",
            Self::In(8) => "in eight",
            Self::In(10) => "in ten",
            Self::In(_) => "in some",
        }
    }

    /// The operations of the paper's measurements in this shape.
    #[must_use]
    pub const fn of_the_paper(self) -> &'static [u64] {
        match self {
            Self::ThousandEach => &[5000, 8000, 10_000],
            Self::In(_) => &[1000],
        }
    }

    /// Operations of a transaction, where this is the number of all.
    #[must_use]
    pub const fn transaction(self, operations: u64) -> u64 {
        match self {
            Self::ThousandEach => 1000,
            Self::In(transactions) => operations.div_ceil(transactions),
        }
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Insertions of new keys.
    Inserts,
    /// A quarter of the operations inserts; then every other one deletes a key that is there.
    InsertsAndDeletes,
}

/// A key to be written or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Writes it.
    Insert(Key),
    /// Deletes it.
    Delete(Key),
}

/// The keys that are there, each by chance.
#[derive(Clone, Debug, Default)]
pub struct Live {
    keys: Vec<Key>,
    places: HashMap<Key, usize>,
}

impl Live {
    /// Adds a key; says whether it is new.
    pub fn add(&mut self, key: Key) -> bool {
        let is_new = !self.places.contains_key(&key);
        if is_new {
            self.places.insert(key, self.keys.len());
            self.keys.push(key);
        }
        is_new
    }

    /// Removes any key.
    pub fn remove(&mut self, random: &mut Random) -> Option<Key> {
        let at = random.below(self.keys.len() as u64) as usize;
        if at >= self.keys.len() {
            return None;
        }
        let key = self.keys.swap_remove(at);
        self.places.remove(&key);
        if let Some(moved) = self.keys.get(at) {
            self.places.insert(*moved, at);
        }
        Some(key)
    }

    /// Any key.
    pub fn any(&self, random: &mut Random) -> Option<Key> {
        self.keys.get(random.below(self.keys.len() as u64) as usize).copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// A stream of requests that follows from its seed.
#[derive(Clone, Debug)]
pub struct Requests {
    random: Random,
    mix: Mix,
    operations: u64,
    done: u64,
    /// The keys that are there.
    pub live: Live,
}

impl Requests {
    /// This number of operations.
    #[must_use]
    pub fn new(seed: u64, mix: Mix, operations: u64) -> Self {
        Self { random: Random::new(seed), mix, operations, done: 0, live: Live::default() }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.done == self.operations {
            return None;
        }
        self.done += 1;
        let deletes = self.mix == Mix::InsertsAndDeletes && self.done > self.operations / 4;
        if deletes
            && self.done.is_multiple_of(2)
            && let Some(key) = self.live.remove(&mut self.random)
        {
            return Some(Request::Delete(key));
        }
        loop {
            let key = self.random.bits() >> 1;
            if self.live.add(key) {
                return Some(Request::Insert(key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn deletions_meet_keys_that_are_there() {
        let mut keys = BTreeSet::new();
        let mut deletions = 0;
        let mut requests = Requests::new(5, Mix::InsertsAndDeletes, 4000);
        for request in requests.by_ref() {
            match request {
                Request::Insert(key) => assert!(keys.insert(key)),
                Request::Delete(key) => {
                    deletions += 1;
                    assert!(keys.remove(&key));
                }
            }
        }
        assert_eq!((deletions, keys.len(), requests.live.len()), (1500, 1000, 1000));
        let any = requests.live.any(&mut Random::new(1)).unwrap();
        assert!(keys.contains(&any));
        let inserts = Requests::new(5, Mix::Inserts, 10);
        assert_eq!(inserts.filter(|of| matches!(of, Request::Insert(_))).count(), 10);
    }

    #[test]
    fn both_readings_of_the_paper_are_measured() {
        assert_eq!(Shape::ThousandEach.transaction(8000), 1000);
        assert_eq!(Shape::In(5).transaction(1000), 200);
        assert_eq!(Shape::ALL.map(Shape::name)[3], "in ten");
    }
}
