//! The operations of threads on single keys, to be explained by one order.
//!
//! Versions are unique, and [`ABSENT`] where there is none: so what was found names what was
//! written. The search for the order is [`register::check`].

use std::collections::BTreeMap;
use std::sync::Mutex;

use esker_testkit::linear::{ABSENT, Action, Clock, Key, Operation, Version, register};

/// The operations of all threads, by key.
#[derive(Debug, Default)]
pub struct History {
    clock: Clock,
    operations: Mutex<BTreeMap<Key, Vec<Operation>>>,
}

impl History {
    /// Leaves a version of `key`, which `write` answers; none when it deletes.
    pub fn write(&self, key: u8, write: impl FnOnce() -> Option<Version>) {
        let (span, version) = self.clock.during(write);
        self.add(key, Operation { span, action: Action::Write(version.unwrap_or(ABSENT)) });
    }

    /// Finds a version of `key`, or none.
    pub fn read(&self, key: u8, read: impl FnOnce() -> Option<Version>) -> Option<Version> {
        let (span, version) = self.clock.during(read);
        self.add(key, Operation { span, action: Action::Read(version.unwrap_or(ABSENT)) });
        version
    }

    fn add(&self, key: u8, operation: Operation) {
        self.operations.lock().unwrap().entry(key.into()).or_default().push(operation);
    }

    /// # Panics
    /// When no order explains what was seen of a key that began without a value.
    pub fn assert_linearizable(&self) {
        for (key, operations) in self.operations.lock().unwrap().iter() {
            if let Err(violation) = register::check(*key, ABSENT, operations) {
                panic!("{violation}: {operations:#?}");
            }
        }
    }
}
