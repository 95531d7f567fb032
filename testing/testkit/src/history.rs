//! Random histories of public operations, from a seed and a profile.
//!
//! Invariants:
//! * A history is a plain list: any subsequence of it can be run (operations on a keyspace that
//!   does not exist are skipped), so that a failing history can be shortened.
//! * Every value is unique within a history and starts with its own number, so that a stale or
//!   misplaced value never passes for the right one.

use std::ops::RangeInclusive;
use std::sync::Arc;

use esker::Durability;

use crate::model::{Change, Write};
use crate::random::Random;

/// One public operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Changes that become visible together.
    Commit {
        /// The changes, in order; a later one of the same key wins.
        changes: Vec<Change>,
        /// The durability that the commit waits for; `None` leaves it to the store's default.
        durability: Option<Durability>,
        /// The way they take.
        by: By,
    },
    /// Everything acknowledged becomes durable.
    Persist,
    /// Memtables to the device.
    Flush,
    /// Full merges.
    Compact,
    /// Full merge of one keyspace.
    CompactKeyspace(String),
    /// Opens a snapshot and keeps it.
    OpenSnapshot,
    /// Reads the oldest open snapshot whole, compares it and closes it.
    CloseSnapshot,
    /// Creates a keyspace.
    Create(String),
    /// Drops a keyspace.
    Drop(String),
    /// Closes the store and opens it again.
    Reopen,
    /// Drops every handle without closing, and opens the store again.
    Abandon,
    /// Reads keys, and compares them.
    Read {
        /// The keyspace.
        keyspace: String,
        /// The keys.
        keys: Vec<Vec<u8>>,
    },
    /// Compares every keyspace whole.
    Compare,
    /// This number of milliseconds passes.
    Pass(u64),
}

/// Which operation of the store makes a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `insert` or `remove`, of one change; a batch, of several.
    Single,
    /// A batch.
    Batch,
    /// A transaction that reads what it writes. Another one, which reads the same before and
    /// writes other things after, is refused.
    Transaction,
}

/// The frequency of each kind of operation, relative to the others.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// Single puts.
    pub insert: u32,
    /// Single deletes.
    pub remove: u32,
    /// Batches.
    pub batch: u32,
    /// Ranges removed, by themselves or among other changes.
    pub remove_range: u32,
    /// Point reads.
    pub read: u32,
    /// Syncs of the log.
    pub persist: u32,
    /// Flushes.
    pub flush: u32,
    /// Full merges.
    pub compact: u32,
    /// Snapshots opened or closed.
    pub snapshot: u32,
    /// Keyspaces created or dropped.
    pub keyspace: u32,
    /// Reopening, cleanly or not.
    pub reopen: u32,
    /// Time passing, an eighth of the longest time to live at most.
    pub pass: u32,
}

/// In which order keys are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// Uniformly.
    Random,
    /// Ascending, wrapping around.
    Ascending,
    /// Half of all operations on a twentieth of the keys.
    Skewed,
}

/// The properties of a history.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Number of operations.
    pub ops: usize,
    /// Number of distinct keys of a keyspace.
    pub keys: u64,
    /// The order in which they are drawn.
    pub order: KeyOrder,
    /// Lengths of values, in bytes.
    pub value_bytes: RangeInclusive<usize>,
    /// Lengths of batches, in changes.
    pub batch_changes: RangeInclusive<usize>,
    /// Number of keyspaces that may be alive at once.
    pub keyspaces: usize,
    /// Puts with a time to live, in percent of all, and the longest, in milliseconds.
    pub expiring: (u32, u64),
    /// Puts that append instead, in percent of all.
    pub appending_percent: u32,
    /// Commits that wait for the device, in percent.
    pub synced_percent: u32,
    /// The frequency of each kind.
    pub weights: Weights,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            ops: 200,
            keys: 200,
            order: KeyOrder::Random,
            value_bytes: 8..=120,
            batch_changes: 1..=12,
            keyspaces: 1,
            expiring: (0, 100),
            appending_percent: 0,
            synced_percent: 10,
            weights: Weights { insert: 10, ..Weights::default() },
        }
    }
}

/// The name of the `index`-th keyspace of a history.
#[must_use]
pub fn keyspace_name(index: usize) -> String {
    format!("keyspace-{index}")
}

/// The `number`-th key: mostly of one shape, with the shapes in between that break indexes: the
/// empty key, keys that are prefixes of their neighbours, runs of 0xff, long common prefixes.
#[must_use]
pub fn key(number: u64) -> Vec<u8> {
    match number % 23 {
        0 if number == 0 => Vec::new(),
        1 => format!("user{:06}", number.saturating_sub(1)).into_bytes(),
        2 => format!("user{:06}\0", number.saturating_sub(2)).into_bytes(),
        3 => format!("user{:06}/{}", number, "deep/".repeat(12)).into_bytes(),
        4 => [&[0xff; 3][..], &number.to_be_bytes()].concat(),
        5 => vec![0xff; (number % 97) as usize],
        6 => number.to_be_bytes().to_vec(),
        _ => format!("user{number:06}").into_bytes(),
    }
}

/// A value of `len` bytes (at least 4) that carries `number`. Every other one shrinks when it is
/// compressed.
#[must_use]
pub fn value(number: u32, len: usize) -> Vec<u8> {
    let is_text = number.is_multiple_of(2);
    let number = number.to_le_bytes();
    if is_text {
        let text = b"a river, and a road beside it; ".iter().copied().cycle();
        return number.into_iter().chain(text).take(len.max(4)).collect();
    }
    let filler = number.iter().cycle().enumerate();
    let filler = filler.map(|(at, byte)| byte.wrapping_mul(31).wrapping_add(at as u8));
    number.into_iter().chain(filler).take(len.max(4)).collect()
}

/// Draws the history of `profile` and `seed`. It begins by creating the first keyspace.
#[must_use]
pub fn generate(profile: &Profile, seed: u64) -> Vec<Op> {
    let mut generator = Generator {
        profile,
        random: Random::new(seed),
        values: 0,
        drawn: 0,
        alive: vec![keyspace_name(0)],
        snapshots: 0,
    };
    let mut ops = vec![Op::Create(keyspace_name(0))];
    ops.extend((0..profile.ops).map(|_| generator.op()));
    ops
}

/// Draws one operation of a kind.
type MakeOp<'a> = fn(&mut Generator<'a>) -> Op;

struct Generator<'a> {
    profile: &'a Profile,
    random: Random,
    values: u32,
    drawn: u64,
    alive: Vec<String>,
    snapshots: usize,
}

impl<'a> Generator<'a> {
    fn op(&mut self) -> Op {
        let w = &self.profile.weights;
        let kinds: [(u32, MakeOp<'a>); 12] = [
            (w.insert, |g| g.commit(1..=1, 0, By::Single)),
            (w.remove, |g| g.commit(1..=1, 100, By::Single)),
            (w.batch, |g| g.commit(g.profile.batch_changes.clone(), 20, By::Batch)),
            (w.remove_range, Self::remove_range),
            (w.read, Self::read),
            (w.persist, |_| Op::Persist),
            (w.flush, |_| Op::Flush),
            (w.compact, Self::compact),
            (w.snapshot, Self::snapshot),
            (w.keyspace, Self::keyspace),
            (w.reopen, Self::reopen),
            (w.pass, |g| Op::Pass(1 + g.random.below(g.profile.expiring.1.div_ceil(8)))),
        ];
        let total: u32 = kinds.iter().map(|(weight, _)| weight).sum();
        let mut left = self.random.below(u64::from(total)) as u32;
        for (weight, make) in kinds {
            if left < weight {
                return make(self);
            }
            left -= weight;
        }
        Op::Persist
    }

    fn key(&mut self) -> Vec<u8> {
        let keys = self.profile.keys.max(1);
        let number = match self.profile.order {
            KeyOrder::Random => self.random.below(keys),
            KeyOrder::Ascending => self.drawn % keys,
            KeyOrder::Skewed if self.random.percent(50) => self.random.below(keys.div_ceil(20)),
            KeyOrder::Skewed => self.random.below(keys),
        };
        self.drawn += 1;
        key(number)
    }

    fn name(&self) -> String {
        self.random.pick(&self.alive).cloned().unwrap_or_else(|| keyspace_name(0))
    }

    fn commit(&mut self, count: RangeInclusive<usize>, remove_percent: u32, by: By) -> Op {
        let count = self.random.within(&count);
        let changes = (0..count).map(|_| self.change(remove_percent)).collect();
        let durability = match self.random.percent(self.profile.synced_percent) {
            true => Some(Durability::Synced),
            false if self.random.percent(50) => Some(Durability::Buffered),
            false => None,
        };
        Op::Commit { changes, durability, by }
    }

    fn change(&mut self, remove_percent: u32) -> Change {
        let keyspace = self.name();
        let key = self.key();
        if self.random.percent(remove_percent) {
            return Change { keyspace, key, write: Write::Delete };
        }
        self.values += 1;
        let len = self.random.within(&self.profile.value_bytes);
        let value = Arc::from(value(self.values, len));
        let appending = self.profile.appending_percent;
        if appending > 0 && self.random.percent(appending) {
            return Change { keyspace, key, write: Write::Append(value) };
        }
        let (percent, longest) = self.profile.expiring;
        let write = if percent > 0 && self.random.percent(percent) {
            Write::PutFor(value, 1 + self.random.below(longest))
        } else {
            Write::Put(value)
        };
        Change { keyspace, key, write }
    }

    /// The removal of a range, mostly of few keys, among changes of which some are within it.
    fn remove_range(&mut self) -> Op {
        let keys = self.profile.keys.max(1);
        let begin = self.random.below(keys);
        let len =
            1 + self.random.below(if self.random.percent(80) { keys.div_ceil(16) } else { keys });
        let name = |number: u64| format!("user{number:06}").into_bytes();
        let (key, end) = match self.random.below(20) {
            0 => (Vec::new(), Some(name(begin))),
            1 => (name(begin), None),
            _ => (name(begin), Some(name(begin + len))),
        };
        let keyspace = self.name();
        // Up to the empty key there is nothing.
        let write = Write::DeleteUpTo(end.filter(|end| *end > key));
        let mut changes = vec![Change { keyspace, key, write }];
        if self.random.percent(40) {
            changes.insert(0, self.change(20));
            changes.push(self.change(20));
        }
        let by = match changes.len() {
            1 if self.random.percent(70) => By::Single,
            _ if self.random.percent(70) => By::Batch,
            _ => By::Transaction,
        };
        Op::Commit { changes, durability: None, by }
    }

    fn read(&mut self) -> Op {
        let keyspace = self.name();
        let keys = (0..self.random.within(&(1..=4))).map(|_| self.key()).collect();
        Op::Read { keyspace, keys }
    }

    fn compact(&mut self) -> Op {
        if self.random.percent(50) { Op::Compact } else { Op::CompactKeyspace(self.name()) }
    }

    fn snapshot(&mut self) -> Op {
        if self.snapshots < 3 && self.random.percent(60) {
            self.snapshots += 1;
            return Op::OpenSnapshot;
        }
        self.snapshots = self.snapshots.saturating_sub(1);
        Op::CloseSnapshot
    }

    fn keyspace(&mut self) -> Op {
        let name = keyspace_name(self.random.index(self.profile.keyspaces));
        match self.alive.iter().position(|alive| *alive == name) {
            Some(_) if self.alive.len() == 1 => Op::Create(name),
            Some(at) => Op::Drop(self.alive.swap_remove(at)),
            None => {
                self.alive.push(name.clone());
                Op::Create(name)
            }
        }
    }

    fn reopen(&mut self) -> Op {
        self.snapshots = 0;
        if self.random.percent(50) { Op::Reopen } else { Op::Abandon }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn mixed() -> Profile {
        let weights = Weights {
            insert: 10,
            remove: 3,
            batch: 3,
            remove_range: 2,
            read: 2,
            persist: 1,
            flush: 1,
            compact: 1,
            snapshot: 2,
            keyspace: 1,
            reopen: 1,
            pass: 1,
        };
        Profile { ops: 2_000, keyspaces: 3, expiring: (20, 400), weights, ..Profile::default() }
    }

    #[test]
    fn a_seed_repeats_its_history() {
        let text = |seed| format!("{:?}", generate(&mixed(), seed));
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }

    #[test]
    fn values_are_unique_and_every_kind_occurs() {
        let ops = generate(&mixed(), 1);
        let kinds: HashSet<_> = ops.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 13, "all but Compare");
        let changes = ops.iter().filter_map(|op| match op {
            Op::Commit { changes, .. } => Some(changes),
            _ => None,
        });
        let values: Vec<_> = changes
            .flatten()
            .filter_map(|change| match &change.write {
                Write::Put(value) | Write::PutFor(value, _) => Some(value.clone()),
                Write::Append(_) | Write::Delete | Write::DeleteUpTo(_) => None,
            })
            .collect();
        let distinct: HashSet<_> = values.iter().map(|value| value[..4].to_vec()).collect();
        assert_eq!(distinct.len(), values.len());
    }

    #[test]
    fn keys_of_different_numbers_differ() {
        let distinct: HashSet<_> = (0..2_000).map(key).collect();
        assert!(distinct.len() > 1_900, "{}", distinct.len());
    }
}
