//! One key: is there an order of its reads, puts and deletes that a single register would show?
//!
//! The search of Wing and Gong (1993) as G. Lowe makes it (*Testing for linearizability*, 2017):
//! events are taken in the order of the clock, and operations are put into the order as late as
//! possible, when one of them returns. What is kept is the set of all configurations that fit so
//! far: the register's value, and which of the operations under way have happened already. Reads
//! change nothing, so that one which fits is taken at once.
//!
//! Cost: with few threads there are few configurations. In a build for tests an operation takes
//! about a microsecond where threads seldom meet, six where eight of them write five keys; at
//! worst 2^n for n writes to one key under way at once.

use std::collections::HashSet;

use super::{Key, Span, Version};
use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Most operations on one key under way at once.
const SLOTS: usize = 64;

/// The effect of an operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It was read, and this was found.
    Read(Version),
    /// This was put, or it was deleted.
    Write(Version),
}

/// Something done to a key.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// When. What never returned may have happened, or may yet.
    pub span: Span,
    /// Its effect.
    pub action: Action,
}

/// A state that is possible at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Config {
    value: Version,
    /// The operations under way that have happened, by slot.
    happened: u64,
}

/// The operations under way.
struct Pending {
    slots: [Option<Action>; SLOTS],
}

impl Pending {
    /// Puts an operation into a free slot.
    fn enter(&mut self, action: Action) -> Option<usize> {
        let slot = self.slots.iter().position(Option::is_none)?;
        *self.slots.get_mut(slot)? = Some(action);
        Some(slot)
    }

    fn leave(&mut self, slot: usize) {
        if let Some(left) = self.slots.get_mut(slot) {
            *left = None;
        }
    }

    fn under_way(&self) -> impl Iterator<Item = (usize, Action)> {
        self.slots.iter().enumerate().filter_map(|(slot, action)| Some((slot, (*action)?)))
    }

    /// With every read that fits taken.
    fn settled(&self, mut config: Config) -> Config {
        for (slot, action) in self.under_way() {
            if action == Action::Read(config.value) {
                config.happened |= 1 << slot;
            }
        }
        config
    }

    /// The configurations that one more write leads to.
    fn after_a_write(&self, config: Config) -> impl Iterator<Item = Config> {
        self.under_way().filter_map(move |(slot, action)| match action {
            Action::Write(value) if config.happened >> slot & 1 == 0 => {
                let happened = config.happened | 1 << slot;
                Some(self.settled(Config { value, happened }))
            }
            _ => None,
        })
    }

    /// The configurations in which the operation in `slot` has happened, with as few others
    /// before it as it takes.
    fn with(&self, slot: usize, configs: Vec<Config>) -> Vec<Config> {
        let mut seen: HashSet<Config> = HashSet::new();
        let mut open = configs;
        let mut done = Vec::new();
        while let Some(config) = open.pop() {
            if config.happened >> slot & 1 == 1 {
                let without = Config { happened: config.happened & !(1 << slot), ..config };
                if !done.contains(&without) {
                    done.push(without);
                }
            } else if seen.insert(config) {
                open.extend(self.after_a_write(config));
            }
        }
        done
    }
}

/// Checks the operations on `key`, which held `initial` before.
///
/// # Errors
/// [`Oracle::Linearizable`] at the first return that no order explains; [`Oracle::Harness`] when
/// more than 64 operations are under way at once.
pub fn check(key: Key, initial: Version, operations: &[Operation]) -> Verdict {
    let mut events: Vec<(u64, usize)> = Vec::with_capacity(2 * operations.len());
    for (index, operation) in operations.iter().enumerate() {
        events.push((operation.span.invoked, 2 * index));
        if operation.span.returned != Span::NEVER {
            events.push((operation.span.returned, 2 * index + 1));
        }
    }
    events.sort_unstable();
    let mut pending = Pending { slots: [None; SLOTS] };
    let mut slots = vec![0; operations.len()];
    let mut configs = vec![Config { value: initial, happened: 0 }];
    for (_, event) in events {
        let index = event / 2;
        let (Some(operation), Some(slot)) = (operations.get(index), slots.get_mut(index)) else {
            continue;
        };
        if event % 2 == 0 {
            let full = || Violation::new(Oracle::Harness, "too many operations at once");
            *slot = pending.enter(operation.action).ok_or_else(full)?;
            for config in &mut configs {
                *config = pending.settled(*config);
            }
            continue;
        }
        configs = pending.with(*slot, configs);
        ensure(!configs.is_empty(), Oracle::Linearizable, || describe(key, operation))?;
        pending.leave(*slot);
    }
    Ok(())
}

fn describe(key: Key, operation: &Operation) -> String {
    let Span { invoked, returned } = operation.span;
    let action = operation.action;
    format!("key {key}: no order explains {action:?}, called at {invoked}, returned at {returned}")
}
