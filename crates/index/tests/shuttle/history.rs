//! What threads did to single keys, and whether one order explains it.
//!
//! A history is linearizable when its operations can be put into one order that respects real
//! time (what returned before another was called comes before it) and in which every read finds
//! what the last write left. The search is that of Wing and Gong, key by key, with the states
//! that were tried remembered (Lowe); histories are short.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use crate::runner::Clock;

/// What an operation did: values are unique, `None` is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Left this.
    Wrote(Option<u64>),
    /// Found this.
    Read(Option<u64>),
}

/// An operation on one key.
#[derive(Clone, Copy, Debug)]
struct Op {
    called: u64,
    returned: u64,
    did: Did,
}

/// The operations of all threads.
#[derive(Debug, Default)]
pub struct History {
    clock: Clock,
    ops: Mutex<BTreeMap<u8, Vec<Op>>>,
}

impl History {
    /// Does an operation on `key` and notes it.
    pub fn note(&self, key: u8, operation: impl FnOnce() -> Did) {
        let called = self.clock.tick();
        let did = operation();
        let op = Op { called, returned: self.clock.tick(), did };
        self.ops.lock().unwrap().entry(key).or_default().push(op);
    }

    /// # Panics
    /// When no order explains what was seen of a key that began without a value.
    pub fn assert_linearizable(&self) {
        for (key, ops) in self.ops.lock().unwrap().iter() {
            assert!(is_linearizable(ops), "no order explains what was seen of key {key}: {ops:#?}");
        }
    }
}

fn is_linearizable(ops: &[Op]) -> bool {
    assert!(ops.len() <= 64, "histories are short");
    let all = u64::MAX.checked_shr(64 - ops.len() as u32).unwrap_or(0);
    let mut tried = BTreeSet::new();
    let mut open = vec![(0u64, None)];
    while let Some((done, value)) = open.pop() {
        if done == all {
            return true;
        }
        if !tried.insert((done, value)) {
            continue;
        }
        let left = || ops.iter().enumerate().filter(|(index, _)| done & (1 << index) == 0);
        let first_returned = left().map(|(_, op)| op.returned).min().unwrap_or(u64::MAX);
        for (index, op) in left().filter(|(_, op)| op.called < first_returned) {
            match op.did {
                Did::Wrote(next) => open.push((done | 1 << index, next)),
                Did::Read(found) if found == value => open.push((done | 1 << index, value)),
                Did::Read(_) => {}
            }
        }
    }
    false
}

/// Histories by hand.
#[test]
fn an_order_is_found_exactly_when_there_is_one() {
    let op = |called, returned, did| Op { called, returned, did };
    let (one, two) = (Did::Wrote(Some(1)), Did::Wrote(Some(2)));
    let read = |value| Did::Read(value);
    assert!(is_linearizable(&[]));
    assert!(is_linearizable(&[op(0, 1, read(None)), op(2, 3, one), op(4, 5, read(Some(1)))]));
    // Beside the write both answers are right, but not the old one after the new one.
    assert!(is_linearizable(&[op(0, 9, one), op(1, 2, read(None)), op(3, 4, read(Some(1)))]));
    assert!(!is_linearizable(&[op(0, 9, one), op(1, 2, read(Some(1))), op(3, 4, read(None))]));
    // Stale, lost and never written values.
    assert!(!is_linearizable(&[op(0, 1, one), op(2, 3, two), op(4, 5, read(Some(1)))]));
    assert!(!is_linearizable(&[op(0, 1, one), op(2, 3, read(None))]));
    assert!(!is_linearizable(&[op(0, 1, one), op(2, 3, read(Some(2)))]));
    // Two writes at once may be in either order, but in one.
    let both = [op(0, 5, one), op(1, 6, two)];
    let seen = |a, b| [both[0], both[1], op(7, 8, read(Some(a))), op(9, 10, read(Some(b)))];
    assert!(is_linearizable(&seen(1, 1)) && is_linearizable(&seen(2, 2)));
    assert!(!is_linearizable(&seen(1, 2)));
    assert!(!is_linearizable(&[
        op(0, 1, one),
        op(2, 3, Did::Wrote(None)),
        op(4, 5, read(Some(1)))
    ]));
}
