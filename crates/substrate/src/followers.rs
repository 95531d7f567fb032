//! What a writer and its followers tell each other: words and byte locks that they share.
//!
//! A follower is a process that reads a store which another one writes. It says which numbers it
//! reads, so that merges keep their versions. The words are hints: without them a follower reads
//! nothing wrong, but what an old number needs may be gone.
//!
//! | words | |
//! |---|---|
//! | 0 | the layout; another value: no process takes part |
//! | 1 | `asked`: the newest number that was visible when a merge last asked what is read |
//! | 2 | `passed`: the last number that the writer has passed on to the operating system |
//! | 3 | not 0: a follower has come |
//! | 64 (1 + i) to 64 (2 + i) | the cell of follower i |
//!
//! A cell has the earliest moment; 62 numbers, each one more than it is, 0 for none; and how many
//! of these words are in use. A follower has the lock of byte i + 1 as long as it has cell i. A
//! cell without its lock is that of a process that has died.
//!
//! Protocol: the writer raises `asked` and then reads the cells; a follower writes its cell and
//! then reads `asked`. All accesses are in one order. So either the writer has found the number, or
//! the follower finds `asked` above it, and takes a newer number. A number that was visible when a
//! merge asked, or a newer one, needs no cell for that merge.
//!
//! A writer that opens the store leaves `asked` as it is until it has replayed the log: what merges
//! of the one before have dropped is gone. Then it is at most the last number of the log, because
//! no merge that is in the manifest had newer ones.
//!
//! Invariant: the moment of a cell is at most that of every reader of its numbers.
//! Invariant: numbers are added before others are removed, and the moment is set before a first
//! number is and raised after.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::sync::{Mutex, RwLock};
use esker_device::shared::Shared;
use esker_device::{Device, Result};
use esker_format::ids::{Moment, Seq};

use crate::planted::{self, Bug};

/// The name of the file.
pub const FOLLOWERS_FILE: &str = "followers";

/// The layout: changes with every change of it.
const LAYOUT: u64 = 0x4573_6b46_0000_0001;
const LAYOUT_WORD: usize = 0;
const ASKED_WORD: usize = 1;
const PASSED_WORD: usize = 2;
const JOINED_WORD: usize = 3;

/// Words of a cell, and of the part before the first one.
const CELL_WORDS: usize = 64;
/// Most followers that take part.
const CELLS: usize = 63;
/// All words.
const WORDS: usize = CELL_WORDS * (CELLS + 1);
/// How often the file may be replaced while a merge asks.
const REPLACED_MAX: u32 = 8;
/// Most numbers that a follower keeps at once.
pub const NUMBERS_MAX: usize = 62;
/// The place of the moment in a cell, and of the number of words in use.
const MOMENT: usize = 0;
const USED: usize = 63;

const fn cell_at(cell: usize) -> usize {
    CELL_WORDS * (cell + 1)
}

const fn lock_of(cell: usize) -> u64 {
    cell as u64 + 1
}

/// What all followers read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Their numbers.
    pub numbers: BTreeSet<Seq>,
    /// They read as of this moment or later; `None` without followers.
    pub earliest: Option<Moment>,
}

/// The writer's side.
#[derive(Debug)]
pub struct Followers {
    device: Arc<dyn Device>,
    /// The file that followers find now.
    newest: RwLock<Arc<dyn Shared>>,
    /// All files in which followers may be, the newest last: those of a file that was removed or
    /// replaced leave it when they next catch up. Held while cells are read, and `asked` is raised.
    files: Mutex<Vec<Arc<dyn Shared>>>,
}

impl Followers {
    /// Opens the words of a device, or makes them, for the writer, which has the device's lock.
    /// Until [`Followers::replayed`] no older number becomes certain that was not before. `None`
    /// where the device has none.
    ///
    /// # Errors
    /// Those of [`Device::shared_words`].
    pub fn open(device: &Arc<dyn Device>) -> Result<Option<Self>> {
        let Some(shared) = device.shared_words(FOLLOWERS_FILE, WORDS, true)? else {
            return Ok(None);
        };
        if planted::is(Bug::AskedForgotten) {
            shared.store(ASKED_WORD, 0);
        } else if shared.load(LAYOUT_WORD) != LAYOUT {
            shared.store(ASKED_WORD, u64::MAX);
            shared.store(PASSED_WORD, u64::MAX);
        }
        shared.store(LAYOUT_WORD, LAYOUT);
        // `passed` is what the writer before had passed on at least.
        let (newest, files) = (RwLock::new(Arc::clone(&shared)), Mutex::new(vec![shared]));
        Ok(Some(Self { device: Arc::clone(device), newest, files }))
    }

    /// As [`Followers::open`] where that failed, or another file is in the way: with a new file.
    /// Followers that have the older one find that it is gone.
    ///
    /// # Errors
    /// Those of the device.
    pub fn make_anew(device: &Arc<dyn Device>) -> Result<Option<Self>> {
        device.remove(FOLLOWERS_FILE)?;
        Self::open(device)
    }

    /// The log has been replayed, and ends with `last`.
    pub fn replayed(&self, last: Seq) {
        for shared in self.files.lock().iter() {
            let asked = shared.load(ASKED_WORD);
            shared.store(ASKED_WORD, asked.min(last.0));
        }
        self.passed_on(last);
    }

    /// Tells followers that the log has been passed on up to `seq`. One store.
    pub fn passed_on(&self, seq: Seq) {
        self.newest.read().store(PASSED_WORD, seq.0);
    }

    /// What followers read, for a merge of a store whose visible number is `visible`.
    ///
    /// Cost: a call of the system, two loads and a store without followers; else some loads for
    /// each cell, and a call of the system for each that is in use.
    #[must_use]
    pub fn kept(&self, visible: Seq) -> Kept {
        let mut files = self.files.lock();
        let mut kept = Kept::default();
        files.iter().for_each(|shared| ask(&**shared, visible, &mut kept));
        // After the cells: who joined another file meanwhile is found there.
        for _ in 0..REPLACED_MAX {
            let Some(next) = self.next_file(&files) else { break };
            ask(&*next, visible, &mut kept);
            files.push(next);
        }
        kept
    }

    /// The file that is in the place of the newest one, if that was removed or replaced.
    fn next_file(&self, files: &[Arc<dyn Shared>]) -> Option<Arc<dyn Shared>> {
        if files.last().is_none_or(|newest| newest.is_in_place()) {
            return None;
        }
        let next = self.device.shared_words(FOLLOWERS_FILE, WORDS, true).ok()??;
        next.store(LAYOUT_WORD, LAYOUT);
        let mut newest = self.newest.write();
        next.store(PASSED_WORD, newest.load(PASSED_WORD));
        *newest = Arc::clone(&next);
        Some(next)
    }
}

/// Says that a merge asks what is read while `visible` is visible, and adds what the cells of a
/// file have.
fn ask(shared: &dyn Shared, visible: Seq, kept: &mut Kept) {
    if shared.load(ASKED_WORD) < visible.0 {
        shared.store(ASKED_WORD, visible.0);
    }
    if shared.load(JOINED_WORD) == 0 || planted::is(Bug::FollowerPinIgnored) {
        return;
    }
    (0..CELLS).for_each(|cell| read(shared, cell, kept));
}

fn read(shared: &dyn Shared, cell: usize, kept: &mut Kept) {
    let at = cell_at(cell);
    let used = (shared.load(at + USED) as usize).min(NUMBERS_MAX);
    let words = (at + 1..=at + used).map(|at| shared.load(at));
    let numbers: Vec<_> = words.filter_map(|word| word.checked_sub(1).map(Seq)).collect();
    if numbers.is_empty() {
        return;
    }
    // Whose lock can be had is dead; what has no locks is taken for alive.
    if shared.try_lock(lock_of(cell)).unwrap_or(false) {
        clear(shared, cell);
        let _unlocked = shared.unlock(lock_of(cell));
        return;
    }
    let moment = Moment(shared.load(at + MOMENT));
    kept.earliest = Some(kept.earliest.map_or(moment, |earliest| earliest.min(moment)));
    kept.numbers.extend(numbers);
}

fn clear(shared: &dyn Shared, cell: usize) {
    (0..CELL_WORDS).rev().for_each(|word| shared.store(cell_at(cell) + word, 0));
}

/// A follower's side: its cell.
#[derive(Debug)]
pub struct Cell {
    shared: Arc<dyn Shared>,
    cell: usize,
    /// The numbers in the cell, each at its place.
    numbers: Mutex<[Option<Seq>; NUMBERS_MAX]>,
}

impl Cell {
    /// Takes a cell of a device; `None` where there are no words, no cell is free, or the file may
    /// not be written.
    #[must_use]
    pub fn join(device: &dyn Device) -> Option<Self> {
        let shared = device.shared_words(FOLLOWERS_FILE, WORDS, false).ok()??;
        if shared.load(LAYOUT_WORD) != LAYOUT {
            return None;
        }
        let cell = (0..CELLS).find(|cell| shared.try_lock(lock_of(*cell)).unwrap_or(false))?;
        clear(&*shared, cell);
        shared.store(cell_at(cell) + USED, NUMBERS_MAX as u64);
        shared.store(JOINED_WORD, 1);
        Some(Self { shared, cell, numbers: Mutex::new([None; NUMBERS_MAX]) })
    }

    /// From now on merges keep the versions of `wanted`, as of `earliest`, and of nothing else. The
    /// numbers that found no place.
    ///
    /// Cost: a store for each number that comes or goes.
    pub fn keep(&self, wanted: &BTreeSet<Seq>, earliest: Moment) -> BTreeSet<Seq> {
        let mut numbers = self.numbers.lock();
        let at = cell_at(self.cell);
        if numbers.iter().all(Option::is_none) {
            self.shared.store(at + MOMENT, earliest.0);
        }
        let known: BTreeSet<Seq> = numbers.iter().flatten().copied().collect();
        let mut left: BTreeSet<Seq> = wanted.difference(&known).copied().collect();
        for (place, word) in numbers.iter_mut().zip(at + 1..) {
            if place.is_some() {
                continue;
            }
            let Some(next) = left.pop_first() else { break };
            self.shared.store(word, next.0.saturating_add(1));
            *place = Some(next);
        }
        for (place, word) in numbers.iter_mut().zip(at + 1..) {
            if place.is_some_and(|number| !wanted.contains(&number)) {
                self.shared.store(word, 0);
                *place = None;
            }
        }
        self.shared.store(at + MOMENT, earliest.0);
        left
    }

    /// The newest number that was visible when a merge last asked.
    #[must_use]
    pub fn asked(&self) -> Seq {
        Seq(self.shared.load(ASKED_WORD))
    }

    /// Whether a writer that opens the store now finds this cell. One call of the system.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.shared.is_in_place() || planted::is(Bug::CellNotFound)
    }

    /// The last number that the writer has passed on; the greatest of all until it knows. One load.
    #[must_use]
    pub fn passed(&self) -> Seq {
        Seq(self.shared.load(PASSED_WORD))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        clear(&*self.shared, self.cell);
        let _unlocked = self.shared.unlock(lock_of(self.cell));
    }
}

#[cfg(test)]
mod tests;
