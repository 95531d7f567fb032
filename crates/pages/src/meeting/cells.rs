//! The versions that all processes read, as the one sees them that frees.
//!
//! Who is about to free stores the newest version as the one at which it asks, and then reads the
//! cells. A reader stores its version in its cell first, and then reads at which version it was
//! asked last. All accesses are in one order: so either the reader's version is seen, or the reader
//! sees that it was asked at a newer version, and tries again with that.
//!
//! A process has the lock of its cell's byte for as long as it lives: a cell whose byte can be
//! locked is that of a process that died, and is emptied.

use esker_device::Result;
use esker_device::shared::Shared;
use esker_format::ids::StoreId;

use crate::log::record::Held;
use crate::meeting::layout::{
    ASKED, CELLS, PINS, VERSION_MAX, Word, cell_lock, decode, encode, pin, range, tag, wait,
};
use crate::planted::{self, Bug};

/// Asks at `newest`, and returns the versions below that are read, as ranges in any order. What
/// cannot be made out holds all of them. `own` is the cell of this process, if it has one.
///
/// Cost: a call of the system for each process; 59 loads for each.
///
/// # Errors
/// The locks failed: then nothing may be freed.
pub(crate) fn held(
    shared: &dyn Shared,
    store: StoreId,
    own: usize,
    newest: u64,
) -> Result<Vec<Held>> {
    let Some(asked) = encode(store, newest) else { return Ok(vec![all(newest)]) };
    if planted::is(Bug::AskedStoredLate) {
        let held = read(shared, store, own, newest);
        shared.store(ASKED, asked);
        return held;
    }
    shared.store(ASKED, asked);
    read(shared, store, own, newest)
}

/// Lets readers of `newest` begin, and of what is newer. Only the process that writes, whose newest
/// version this is.
pub(crate) fn let_in(shared: &dyn Shared, store: StoreId, newest: u64) {
    if let Some(asked) = encode(store, newest) {
        shared.store(ASKED, asked);
    }
}

/// Whether a reader of `version` that is in its cell is seen, or need not be.
pub(crate) fn is_seen(shared: &dyn Shared, store: StoreId, version: u64) -> bool {
    match decode(store, shared.load(ASKED)) {
        Word::Nothing => true,
        Word::Version(asked) => asked <= version || planted::is(Bug::AskedNotReread),
        Word::Noise => false,
    }
}

/// A time in which no reader begins, while a process opens the store for writing.
#[derive(Debug)]
pub(crate) struct Quiet<'a> {
    shared: &'a dyn Shared,
    /// The word of the version asked at, which is put back.
    before: Option<u64>,
}

impl<'a> Quiet<'a> {
    /// Begins it, for the meeting of `store`, or for one that is not made yet. `None`, and readers
    /// may begin, when some process reads a version. Asked at a version above all others, every
    /// reader tries again until this has ended.
    ///
    /// # Errors
    /// The locks failed.
    pub(crate) fn begin(shared: &'a dyn Shared, store: Option<StoreId>) -> Result<Option<Self>> {
        let before = store.map(|_| shared.load(ASKED));
        let quiet = Self { shared, before };
        let is_read = match store {
            Some(store) => !held(shared, store, CELLS, VERSION_MAX)?.is_empty(),
            // Who has a cell in a file that makes no sense is not known.
            None => has_other(shared)?,
        };
        Ok((!is_read).then_some(quiet))
    }

    /// Ends it: `newest` can be read, and what is newer.
    pub(crate) fn end(mut self, store: StoreId, newest: u64) {
        self.before = encode(store, newest);
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            self.shared.store(ASKED, before);
        }
    }
}

/// Whether another process has a cell.
///
/// # Errors
/// The locks failed.
pub(crate) fn has_other(shared: &dyn Shared) -> Result<bool> {
    for cell in 0..CELLS {
        if shared.is_locked(cell_lock(cell))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All versions below the newest.
fn all(newest: u64) -> Held {
    Held { first: 0, last: newest }
}

/// The versions below `newest` that are read now, for people to look at: nothing may be freed
/// because of it.
///
/// # Errors
/// The locks failed.
pub(crate) fn read_now(
    shared: &dyn Shared,
    store: StoreId,
    own: usize,
    newest: u64,
) -> Result<Vec<Held>> {
    read(shared, store, own, newest)
}

fn read(shared: &dyn Shared, store: StoreId, own: usize, newest: u64) -> Result<Vec<Held>> {
    let mut held = Vec::new();
    for cell in 0..CELLS {
        let is_left_out = planted::is(Bug::HeldForgotten) && own != cell;
        if shared.load(tag(cell)) == 0 || is_left_out {
            continue;
        }
        if own != cell && shared.try_lock(cell_lock(cell))? {
            empty(shared, cell);
            shared.unlock(cell_lock(cell))?;
            continue;
        }
        read_cell(shared, store, cell, newest, &mut held);
    }
    Ok(held)
}

fn read_cell(shared: &dyn Shared, store: StoreId, cell: usize, newest: u64, held: &mut Vec<Held>) {
    let word = |at| decode(store, shared.load(at));
    for at in 0..PINS {
        match word(pin(cell, at)) {
            Word::Nothing => {}
            Word::Version(version) => held.push(Held { first: version, last: version }),
            Word::Noise => held.push(all(newest)),
        }
    }
    // Of a range that is being stored one end may be missing.
    match range(cell).map(word) {
        [Word::Nothing, Word::Nothing] => {}
        [Word::Version(first), Word::Version(last)] if first <= last => {
            held.push(Held { first, last });
        }
        _ => held.push(all(newest)),
    }
}

/// Empties a cell. Only who has its lock.
pub(super) fn empty(shared: &dyn Shared, cell: usize) {
    shared.store(tag(cell), 0);
    shared.store(wait(cell), 0);
    range(cell).into_iter().for_each(|at| shared.store(at, 0));
    (0..PINS).for_each(|at| shared.store(pin(cell, at), 0));
}
