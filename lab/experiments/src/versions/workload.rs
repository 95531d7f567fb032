//! The workload: each key once, then overwrites of keys drawn evenly, in commits of so many puts.
//!
//! Puts are numbered. The value of a put begins with its number and follows from it, so that an
//! answer says which put it is, and cannot be anything else. Some keys, a few next to each other in
//! each quarter of the key space, are watched: all their changes are kept, as what the answers for
//! them must be.

use std::collections::BTreeMap;

use esker_peers::versions::Put;
use esker_workload::random::mixed;
use esker_workload::{Random, entry, uniform};

/// Moments in the second half of the load at which the present is read.
pub const MOMENTS: u64 = 24;
/// Ages at which the past is read, in percent of the overwrites.
pub const AGES: [u64; 3] = [10, 50, 90];
/// Commits, drawn evenly, whose answers are checked, besides those at the ages.
const CHECKED: u64 = 8;
/// Watched keys of each quarter of the key space, about.
const WATCHED: u64 = 128;
/// Where keys begin in a quarter of the key space.
const QUARTER: u64 = u64::MAX >> 2;

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Keys.
    pub keys: u64,
    /// Overwrites of each key, on average.
    pub overwrites: u64,
    /// Puts of a commit.
    pub batch: u64,
    /// The seed.
    pub seed: u64,
}

impl Workload {
    /// Its name among the parts of a comparison.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} overwrites", self.overwrites)
    }

    /// Puts in all.
    #[must_use]
    pub const fn puts(&self) -> u64 {
        self.keys.saturating_mul(self.overwrites + 1)
    }

    /// Commits in all, which are numbered from 1.
    #[must_use]
    pub const fn commits(&self) -> u64 {
        self.puts().div_ceil(self.batch)
    }

    /// The commit of a put.
    #[must_use]
    pub const fn commit_of(&self, put: u64) -> u64 {
        put / self.batch + 1
    }

    /// The key numbers of all puts.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let requests =
            uniform::load(self.keys).chain(uniform::Overwrite::new(self.seed, self.keys));
        requests.map(|request| request.number)
    }

    /// A put.
    #[must_use]
    pub fn put(&self, number: u64, put: u64) -> Put {
        let mut value = entry::value(self.seed, number, put);
        if let Some(head) = value.first_chunk_mut() {
            *head = put.to_le_bytes();
        }
        (entry::key(number), value)
    }

    /// The put that gave `value` to `key`; `None` if none did.
    #[must_use]
    pub fn put_of(&self, key: &[u8], value: &[u8]) -> Option<u64> {
        let number = u64::from_be_bytes(*key.last_chunk()?);
        let put = u64::from_le_bytes(*value.first_chunk()?);
        let (its_key, its_value) = self.put(number, put);
        (its_key == key && its_value == value).then_some(put)
    }

    /// The commit at which so many percent of the overwrites were made.
    #[must_use]
    pub const fn commit_at(&self, percent: u64) -> u64 {
        let overwrites = self.keys * self.overwrites;
        self.commit_of(self.keys + (overwrites as u128 * percent as u128 / 100) as u64)
    }

    /// The commits after which the present is read: one at random in each of the equal parts of the
    /// second half.
    #[must_use]
    pub fn moments(&self) -> Vec<u64> {
        let (mut random, half) = (Random::new(self.seed ^ 0x6d6f), self.puts() / 2);
        let length = (half / MOMENTS).max(1);
        let of =
            |moment| self.commit_of(self.puts() - half + moment * length + random.below(length));
        (0..MOMENTS).map(of).collect()
    }

    /// The commits whose answers are checked.
    #[must_use]
    pub fn checked(&self) -> Vec<u64> {
        let mut random = Random::new(self.seed ^ 0x6368);
        let drawn = (0..CHECKED).map(|_| 1 + random.below(self.commits()));
        drawn.chain(AGES.map(|age| self.commit_at(age))).collect()
    }
}

/// A change of a watched key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The commit.
    pub commit: u64,
    /// Its version in the store.
    pub version: u64,
    /// The put.
    pub put: u64,
}

/// Watched keys, and what was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// Keys of a quarter are watched below this.
    width: u64,
    /// The changes of each watched key, oldest first, at most one of a commit.
    pub changes: BTreeMap<[u8; entry::KEY_BYTES], Vec<Change>>,
    /// The versions of the commits that are read or checked later.
    pub versions: BTreeMap<u64, u64>,
}

impl Written {
    /// Nothing is written yet.
    #[must_use]
    pub fn new(work: &Workload) -> Self {
        let checked = work.checked().into_iter().map(|commit| (commit, 0));
        let width = (u64::MAX / work.keys.max(1)).saturating_mul(WATCHED).min(QUARTER);
        Self { width, changes: BTreeMap::new(), versions: checked.collect() }
    }

    /// Whether a key is watched.
    #[must_use]
    pub const fn is_watched(&self, number: u64) -> bool {
        mixed(number) & QUARTER < self.width
    }

    /// Watched keys that are next to each other begin here.
    pub fn starts() -> impl Iterator<Item = [u8; entry::KEY_BYTES]> {
        (0..4u128).map(|quarter| (quarter << 126).to_be_bytes())
    }

    /// The watched keys from a start on.
    pub fn from(
        &self,
        start: [u8; entry::KEY_BYTES],
    ) -> impl Iterator<Item = (&[u8; entry::KEY_BYTES], &Vec<Change>)> {
        let quarter = |key: &[u8; entry::KEY_BYTES]| u128::from_be_bytes(*key) >> 126;
        self.changes.range(start..).take_while(move |(key, _)| quarter(key) == quarter(&start))
    }

    /// Keeps what a commit changed.
    pub fn note(&mut self, commit: u64, version: u64, watched: &[(u64, u64)]) {
        if let Some(known) = self.versions.get_mut(&commit) {
            *known = version;
        }
        for (number, put) in watched {
            let changes = self.changes.entry(entry::key(*number)).or_default();
            changes.retain(|change| change.commit != commit);
            changes.push(Change { commit, version, put: *put });
        }
    }
}

/// The change of a key that a commit sees, of all of its changes.
#[must_use]
pub fn seen_by(changes: &[Change], commit: u64) -> Option<&Change> {
    changes.iter().rfind(|change| change.commit <= commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Workload = Workload { keys: 3_000, overwrites: 3, batch: 7, seed: 5 };

    #[test]
    fn a_value_tells_its_put_and_nothing_else_does() {
        let (key, value) = WORK.put(9, 77);
        assert_eq!(WORK.put_of(&key, &value), Some(77));
        let (other, mut damaged) = (entry::key(10), value);
        assert_eq!(WORK.put_of(&other, &value), None);
        assert_eq!(WORK.put_of(&key, &value[..99]), None);
        damaged[99] ^= 1;
        assert_eq!(WORK.put_of(&key, &damaged), None);
    }

    #[test]
    fn moments_are_in_the_second_half_and_ages_in_the_overwrites() {
        let moments = WORK.moments();
        assert_eq!(moments.len() as u64, MOMENTS);
        assert!(moments.is_sorted_by(|a, b| a < b), "{moments:?}");
        assert!(moments[0] >= WORK.commits() / 2 && moments[23] <= WORK.commits(), "{moments:?}");
        let ages = AGES.map(|age| WORK.commit_at(age));
        assert!(ages[0] > 3_000 / 7 && ages[2] < WORK.commits(), "{ages:?}");
        assert!(WORK.checked().iter().all(|commit| (1..=WORK.commits()).contains(commit)));
    }

    #[test]
    fn watched_keys_are_next_to_each_other() {
        let mut written = Written::new(&WORK);
        for (put, number) in WORK.numbers().take(3_000).enumerate() {
            if written.is_watched(number) {
                written.note(1, 1, &[(number, put as u64)]);
            }
        }
        let all: Vec<_> = (0..3_000).map(entry::key).collect();
        for start in Written::starts() {
            let watched: Vec<_> = written.from(start).map(|(key, _)| *key).collect();
            assert!((90..=170).contains(&watched.len()), "{}", watched.len());
            let last = watched[watched.len() - 1];
            let between = all.iter().filter(|key| (start..=last).contains(key));
            assert_eq!(between.count(), watched.len());
        }
    }

    #[test]
    fn a_commit_sees_the_last_change_up_to_it() {
        let mut written = Written::new(&WORK);
        written.note(2, 20, &[(1, 5), (1, 6)]);
        written.note(4, 40, &[(1, 9)]);
        let changes = &written.changes[&entry::key(1)];
        let seen = |commit| seen_by(changes, commit).map(|change| change.put);
        assert_eq!([seen(1), seen(2), seen(3), seen(4)], [None, Some(6), Some(6), Some(9)]);
    }
}
