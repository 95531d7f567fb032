//! What a device holds, and what it may hold after a power cut.

use std::collections::BTreeMap;

use crate::layer::{Isolation, LOGICAL};

/// An open transaction.
#[derive(Clone, Debug)]
pub struct Open {
    /// What it read when it began.
    pub snapshot: Vec<u64>,
    pub writes: BTreeMap<u32, u64>,
}

/// The pages of a device; 0 is one that is not mapped.
#[derive(Clone, Debug)]
pub struct Model {
    isolation: Isolation,
    /// What is committed or written outside of transactions.
    pub now: Vec<u64>,
    /// What is durable for certain.
    durable: Vec<u64>,
    /// What was written or trimmed since, and may be durable.
    perhaps: Vec<Vec<u64>>,
    /// By the place that the history gives it.
    pub open: BTreeMap<usize, Open>,
    last_value: u64,
}

impl Model {
    pub fn new(isolation: Isolation) -> Self {
        let pages = LOGICAL as usize;
        Self {
            isolation,
            now: vec![0; pages],
            durable: vec![0; pages],
            perhaps: vec![Vec::new(); pages],
            open: BTreeMap::new(),
            last_value: 0,
        }
    }

    /// After a power cut the device was found to hold this, and it is durable.
    pub fn restarted(&mut self, found: Vec<u64>) {
        self.durable.clone_from(&found);
        self.now = found;
        self.perhaps.iter_mut().for_each(Vec::clear);
        self.open.clear();
    }

    /// A value that was never written.
    pub fn fresh(&mut self) -> u64 {
        self.last_value += 1;
        self.last_value
    }

    /// The value that was fresh last.
    pub const fn last_value(&self) -> u64 {
        self.last_value
    }

    /// A plain write, or a trim with 0.
    pub fn write(&mut self, lpn: u32, value: u64) {
        self.now[lpn as usize] = value;
        self.perhaps[lpn as usize].push(value);
    }

    pub fn flush(&mut self) {
        self.durable.clone_from(&self.now);
        self.perhaps.iter_mut().for_each(Vec::clear);
    }

    pub fn begin(&mut self, slot: usize) {
        let open = Open { snapshot: self.now.clone(), writes: BTreeMap::new() };
        self.open.insert(slot, open);
    }

    pub fn write_in(&mut self, slot: usize, lpn: u32, value: u64) {
        self.open.get_mut(&slot).unwrap().writes.insert(lpn, value);
    }

    pub fn commit(&mut self, slot: usize) {
        for (lpn, value) in self.open.remove(&slot).unwrap().writes {
            let page = lpn as usize;
            (self.now[page], self.durable[page]) = (value, value);
            self.perhaps[page].clear();
        }
    }

    /// What a transaction reads.
    pub fn seen(&self, slot: usize, lpn: u32) -> u64 {
        let open = &self.open[&slot];
        let other = match self.isolation {
            Isolation::Snapshot => open.snapshot[lpn as usize],
            Isolation::None => self.now[lpn as usize],
        };
        open.writes.get(&lpn).copied().unwrap_or(other)
    }

    /// Whether a device that lost its power may hold `found`; if not, which page is wrong.
    pub fn allows(&self, found: &[u64]) -> Result<(), String> {
        for (lpn, found) in found.iter().enumerate() {
            let (durable, perhaps) = (self.durable[lpn], &self.perhaps[lpn]);
            if *found != durable && !perhaps.contains(found) {
                return Err(format!("page {lpn} has {found}, not {durable} or one of {perhaps:?}"));
            }
        }
        Ok(())
    }
}
