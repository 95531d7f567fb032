//! The cell of this process: the versions that it reads, for the process that frees to see.
//!
//! Invariants: a version with a count in `counts` is in the cell: in the word that `words` has for
//! it, or within the range. The range has all versions that found no free word, and is not made
//! shorter before the last of them is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use esker_device::Result;
use esker_device::process::Process;
use esker_device::shared::Shared;
use esker_format::ids::StoreId;
use parking_lot::{Mutex, MutexGuard};

use crate::meeting::cells::{self, empty};
use crate::meeting::layout::{CELLS, PINS, WRITE_LOCK, cell_lock, encode, pin, range, tag};
use crate::meeting::queue::Waiting;
use crate::planted::{self, Bug};

/// The part of this process in the meeting, until it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    shared: Arc<dyn Shared>,
    store: StoreId,
    cell: usize,
    pins: Mutex<Pins>,
    /// A child by `fork` shares the memory and has no part in it.
    process: Process,
    /// Whether the process writes the store: then it has the lock of who does.
    leads: AtomicBool,
    /// Held while that changes: the lock is the process's, and does not keep its threads apart.
    turn: Mutex<()>,
    /// The wait of this process to write.
    pub(super) waiting: Mutex<Waiting>,
    /// When it last began to lead.
    led_since: Mutex<Instant>,
    /// Whether it has ended a transaction since.
    has_used_turn: AtomicBool,
    /// How often it has begun to change something.
    uses: AtomicU64,
}

#[derive(Debug)]
struct Pins {
    /// The number of readers of each version.
    counts: BTreeMap<u64, u64>,
    /// The version in each word.
    words: [Option<u64>; PINS],
    /// The number of versions in the range, and its ends.
    others: usize,
    ends: [u64; 2],
}

impl Member {
    /// Takes a free cell; `None` when 120 processes have one each.
    ///
    /// # Errors
    /// The locks failed.
    pub(crate) fn take(
        shared: Arc<dyn Shared>,
        store: StoreId,
        process: Process,
        is_writer: bool,
    ) -> Result<Option<Self>> {
        for cell in 0..CELLS {
            if !shared.try_lock(cell_lock(cell))? {
                continue;
            }
            empty(&*shared, cell);
            shared.store(tag(cell), 1);
            let counts = BTreeMap::new();
            let pins = Pins { counts, words: [None; PINS], others: 0, ends: [0, 0] };
            return Ok(Some(Self {
                shared,
                store,
                cell,
                pins: Mutex::new(pins),
                process,
                leads: AtomicBool::new(is_writer),
                turn: Mutex::new(()),
                waiting: Mutex::default(),
                led_since: Mutex::new(Instant::now()),
                has_used_turn: AtomicBool::new(false),
                uses: AtomicU64::new(0),
            }));
        }
        Ok(None)
    }

    /// The number of its cell.
    pub(crate) fn cell(&self) -> usize {
        self.cell
    }

    /// What the processes share.
    pub(crate) fn shared(&self) -> &dyn Shared {
        &*self.shared
    }

    /// The store that they have open.
    pub(crate) fn store(&self) -> StoreId {
        self.store
    }

    /// Whether this process writes the store.
    pub(crate) fn leads(&self) -> bool {
        self.leads.load(Ordering::SeqCst)
    }

    /// Keeps other threads from changing who writes.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Takes the lock of who writes, if no other process has it.
    ///
    /// # Errors
    /// The locks failed.
    pub(crate) fn lock_lead(&self) -> Result<bool> {
        self.shared.try_lock(WRITE_LOCK)
    }

    /// From now on this process writes. It has the lock.
    pub(crate) fn begin_lead(&self) {
        *self.led_since.lock() = Instant::now();
        self.has_used_turn.store(false, Ordering::SeqCst);
        self.leads.store(true, Ordering::SeqCst);
    }

    /// From now on this process does not write.
    pub(crate) fn end_lead(&self) {
        self.leads.store(false, Ordering::SeqCst);
        // Where it fails the lock ends with the process.
        let _unlocked = self.shared.unlock(WRITE_LOCK);
        self.say_stopped();
    }

    /// For how long this process has written.
    pub(crate) fn has_led_for(&self) -> Duration {
        self.led_since.lock().elapsed()
    }

    /// A transaction has ended.
    pub(crate) fn use_turn(&self) {
        self.has_used_turn.store(true, Ordering::SeqCst);
    }

    /// Whether this process has ended a transaction since it leads.
    pub(crate) fn has_used_turn(&self) -> bool {
        self.has_used_turn.load(Ordering::SeqCst)
    }

    /// The number of changes that this process has begun.
    pub(crate) fn uses(&self) -> u64 {
        self.uses.load(Ordering::SeqCst)
    }

    /// Counts a change that begins.
    pub(crate) fn count_use(&self) {
        self.uses.fetch_add(1, Ordering::SeqCst);
    }

    /// Adds a reader of a version, in the cell. Says whether the process that frees sees it: if
    /// not, the reader is added all the same, and must be taken away.
    pub(crate) fn pin(&self, version: u64) -> bool {
        let mut pins = self.pins.lock();
        if !planted::is(Bug::PinNotSeen) {
            pins.add(version, &*self.shared, self.store, self.cell);
        }
        drop(pins);
        cells::is_seen(&*self.shared, self.store, version)
    }

    /// Takes a reader of a version away.
    pub(crate) fn unpin(&self, version: u64) {
        self.pins.lock().remove(version, &*self.shared, self.cell);
    }
}

impl Pins {
    fn add(&mut self, version: u64, shared: &dyn Shared, store: StoreId, cell: usize) {
        let count = self.counts.entry(version).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        let word = encode(store, version);
        let free = self.words.iter().position(Option::is_none);
        // A version that fits no word is never reached: it holds all others.
        if let (Some(at), Some(word)) = (free, word) {
            if let Some(known) = self.words.get_mut(at) {
                *known = Some(version);
            }
            shared.store(pin(cell, at), word);
            return;
        }
        let [first, last] = if self.others == 0 { [version, version] } else { self.ends };
        self.others += 1;
        self.ends = [first.min(version), last.max(version)];
        for (at, end) in range(cell).into_iter().zip(self.ends) {
            // What is no version holds all.
            shared.store(at, encode(store, end).unwrap_or(u64::MAX));
        }
    }

    fn remove(&mut self, version: u64, shared: &dyn Shared, cell: usize) {
        let Some(count) = self.counts.get_mut(&version) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.counts.remove(&version);
        if let Some(at) = self.words.iter().position(|known| *known == Some(version)) {
            if let Some(known) = self.words.get_mut(at) {
                *known = None;
            }
            shared.store(pin(cell, at), 0);
            return;
        }
        self.others = self.others.saturating_sub(1);
        if self.others == 0 {
            range(cell).into_iter().for_each(|at| shared.store(at, 0));
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        empty(&*self.shared, self.cell);
        // Where it fails the lock ends with the process.
        let _unlocked = self.shared.unlock(cell_lock(self.cell));
        if self.leads() {
            let _unlocked = self.shared.unlock(WRITE_LOCK);
        }
    }
}
