//! The locks of a database file, as SQLite takes them from a Unix system (`os_unix.c`), and those
//! of a write-ahead log's shared memory. Pure state: who holds what, and who is refused.
//!
//! L1: while a connection has `Pending` or `Exclusive`, no other one gets `Shared`. L2: at most one
//! has `Reserved` or more. L3: `Exclusive` is for the only connection that has a lock; one that is
//! refused because of readers keeps `Pending`.

use std::collections::BTreeMap;

use esker_sqlite::hosted::{Level, ShmRange};

/// A connection to a file.
pub type Holder = u64;

/// The locks of one file.
#[derive(Clone, Debug, Default)]
pub struct Locks {
    /// Connections with a lock.
    levels: BTreeMap<Holder, Level>,
}

impl Locks {
    /// The lock that a connection has.
    #[must_use]
    pub fn level(&self, holder: Holder) -> Level {
        self.levels.get(&holder).copied().unwrap_or_default()
    }

    /// The highest lock of other connections.
    fn of_others(&self, holder: Holder) -> Level {
        let others = self.levels.iter().filter(|(other, _)| **other != holder);
        others.map(|(_, level)| *level).max().unwrap_or_default()
    }

    /// Raises a lock; whether that was possible.
    pub fn raise(&mut self, holder: Holder, to: Level) -> bool {
        let (has, others) = (self.level(holder), self.of_others(holder));
        if to <= has {
            return true;
        }
        let is_granted = match to {
            Level::None => true,
            Level::Shared => others < Level::Pending,
            Level::Reserved => others < Level::Reserved,
            Level::Pending | Level::Exclusive => {
                if others >= Level::Reserved {
                    return false;
                }
                if has == Level::Reserved {
                    self.levels.insert(holder, Level::Pending);
                }
                others == Level::None
            }
        };
        if is_granted {
            self.levels.insert(holder, to);
        }
        is_granted
    }

    /// Lowers a lock.
    pub fn lower(&mut self, holder: Holder, to: Level) {
        if to == Level::None {
            self.levels.remove(&holder);
        } else if let Some(level) = self.levels.get_mut(&holder) {
            *level = to.min(*level);
        }
    }

    /// Whether a connection has `Reserved` or more.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        self.levels.values().any(|level| *level >= Level::Reserved)
    }
}

/// The locks of shared memory: eight, each of which one connection has alone or several share.
#[derive(Clone, Debug, Default)]
pub struct ShmLocks {
    /// By connection: the locks that it shares, and those that it has alone, as bits.
    held: BTreeMap<Holder, (u8, u8)>,
}

impl ShmLocks {
    /// The bits of a range; none for one that does not exist.
    fn bits(range: ShmRange) -> u8 {
        let ones = 1_u16.checked_shl(range.count.into()).unwrap_or(0).wrapping_sub(1);
        let bits = ones.checked_shl(range.first.into()).unwrap_or(0);
        (bits & 0xff) as u8
    }

    /// Takes locks, all or none; whether that was possible.
    pub fn take(&mut self, holder: Holder, range: ShmRange) -> bool {
        let bits = Self::bits(range);
        let others = self.held.iter().filter(|(other, _)| **other != holder);
        let (shared, alone) =
            others.fold((0, 0), |(shared, alone), (_, held)| (shared | held.0, alone | held.1));
        let in_the_way = if range.is_exclusive { shared | alone } else { alone };
        if bits & in_the_way != 0 {
            return false;
        }
        let held = self.held.entry(holder).or_default();
        if range.is_exclusive {
            held.1 |= bits;
        } else {
            held.0 |= bits;
        }
        true
    }

    /// Gives up locks.
    pub fn give_up(&mut self, holder: Holder, range: ShmRange) {
        let bits = Self::bits(range);
        if let Some(held) = self.held.get_mut(&holder) {
            held.0 &= !bits;
            held.1 &= !bits;
        }
    }

    /// Gives up everything that a connection has.
    pub fn leave(&mut self, holder: Holder) {
        self.held.remove(&holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_and_one_writer() {
        let mut locks = Locks::default();
        assert!(locks.raise(1, Level::Shared) && locks.raise(2, Level::Shared));
        assert!(locks.raise(1, Level::Reserved) && !locks.raise(2, Level::Reserved));
        assert!(locks.raise(3, Level::Shared), "a reader beside a reserved lock");
        assert!(!locks.raise(1, Level::Exclusive));
        assert_eq!(locks.level(1), Level::Pending);
        assert!(!locks.raise(4, Level::Shared), "no reader while one is pending");
        locks.lower(2, Level::None);
        locks.lower(3, Level::None);
        assert!(locks.raise(1, Level::Exclusive) && locks.has_writer());
        locks.lower(1, Level::Shared);
        assert!(!locks.has_writer() && locks.raise(4, Level::Shared));
    }

    #[test]
    fn a_rollback_of_another_takes_the_lock_at_once() {
        let mut locks = Locks::default();
        assert!(locks.raise(1, Level::Shared) && locks.raise(2, Level::Shared));
        assert!(!locks.raise(1, Level::Exclusive));
        assert_eq!(locks.level(1), Level::Shared, "it was not reserved");
        locks.lower(2, Level::None);
        assert!(locks.raise(1, Level::Exclusive));
    }

    #[test]
    fn shared_memory_has_eight_locks() {
        let range = |first, count, is_exclusive| ShmRange { first, count, is_exclusive };
        let mut locks = ShmLocks::default();
        assert!(locks.take(1, range(3, 1, false)) && locks.take(2, range(3, 1, false)));
        assert!(!locks.take(3, range(0, 8, true)));
        assert!(locks.take(3, range(0, 3, true)) && !locks.take(1, range(1, 1, false)));
        locks.give_up(1, range(3, 1, false));
        assert!(!locks.take(3, range(3, 1, true)));
        locks.leave(2);
        assert!(locks.take(3, range(3, 5, true)) && !locks.take(1, range(7, 1, true)));
        assert!(locks.take(1, range(9, 1, true)), "there is no such lock");
    }
}
