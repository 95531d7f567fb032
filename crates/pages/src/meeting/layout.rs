//! The words of the meeting file, and how a version is written in one.
//!
//! ```text
//! word     0  "ESKRMEET"
//! word     1  version of the layout: 1
//! word     2  store id
//! word     3  check of words 0 to 2
//! word     4  device and inode of the store's file, or 0
//! word    16  sequence: the number of the newest state
//! word    17  an even state: epoch, number of the next frame, newest version, 1 if the
//!               writer has left in order, 2 if a write of it has failed and not all of this
//!               is known to be durable, check of the sequence and these
//! word    22  an odd state
//! word    32  the newest version when a process last asked which versions are read
//! word    33  another number each time that a process has stopped to write
//! word    64  120 cells of 64 words:
//!               0  tag of the process, or 0
//!               1  first and last of a range of versions, or 0
//!               3  since when the process waits to write, in microseconds, or 0
//!               8  56 versions, or 0
//! word  7744  zeros up to word 8192
//!
//! lock     0  who writes the store
//! lock     1  who opens or closes it
//! lock    64  one of each cell, held for as long as the process has it
//! ```
//!
//! A word that holds a version has the version plus 1 in its upper 48 bits, and 16 bits that are a
//! check of these and of the store's id.

use esker_device::shared::Shared;
use esker_format::ids::StoreId;

/// Bytes of the file.
pub const MEETING_BYTES: usize = 64 * 1024;
/// The first word.
const MAGIC: u64 = u64::from_le_bytes(*b"ESKRMEET");
const LAYOUT: u64 = 1;
/// Versions are below this.
const VERSIONS: u64 = (1 << 48) - 1;

/// The first word of the identity of the store's file.
const FILE: usize = 4;
/// Its place in bytes.
pub(crate) const FILE_BYTES: u64 = FILE as u64 * 8;
/// The first word of the state.
pub(super) const STATE: usize = 16;
/// The word of the newest version when a process last asked which versions are read.
pub(super) const ASKED: usize = 32;
/// The word for which processes sleep that wait to write.
pub(super) const STOPPED: usize = 33;
const CELLS_AT: usize = 64;
/// The number of processes that can have a store open.
pub(crate) const CELLS: usize = 120;
const CELL_WORDS: usize = 64;
/// The number of versions that a cell can name.
pub(crate) const PINS: usize = 56;
/// The lock of who writes the store.
pub(crate) const WRITE_LOCK: u64 = 0;
/// The lock of who is opening the store at its path, or closing it.
pub(crate) const OPEN_LOCK: u64 = 1;
const CELL_LOCKS: u64 = 64;

/// The place of a cell's tag.
pub(super) const fn tag(cell: usize) -> usize {
    CELLS_AT + cell * CELL_WORDS
}

/// The places of the first and the last version of a cell's range.
pub(super) const fn range(cell: usize) -> [usize; 2] {
    [tag(cell) + 1, tag(cell) + 2]
}

/// The place of the time since which a cell's process waits to write.
pub(super) const fn wait(cell: usize) -> usize {
    tag(cell) + 3
}

/// The place of one of the versions of a cell.
pub(super) const fn pin(cell: usize, at: usize) -> usize {
    tag(cell) + 8 + at
}

/// The lock of a cell.
pub(super) const fn cell_lock(cell: usize) -> u64 {
    CELL_LOCKS + cell as u64
}

/// Bits that depend on all bits of two words.
const fn mixed(value: u64, with: u64) -> u64 {
    let z = (value ^ with.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 29) ^ with).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 32)
}

/// The greatest version that a word can hold.
pub(super) const VERSION_MAX: u64 = VERSIONS - 1;

/// A check of some words and of the store's id.
pub(super) fn check_of(store: StoreId, words: &[u64]) -> u64 {
    words.iter().fold(store.0, |check, word| mixed(*word, check))
}

/// The word of a version; `None` for a version that is too large for one.
pub(super) fn encode(store: StoreId, version: u64) -> Option<u64> {
    let plus = version.checked_add(1).filter(|plus| *plus <= VERSIONS)?;
    Some((plus << 16) | (mixed(plus, store.0) >> 48))
}

/// What a word says of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Nothing,
    Version(u64),
    /// No process wrote this.
    Noise,
}

pub(super) fn decode(store: StoreId, word: u64) -> Word {
    if word == 0 {
        return Word::Nothing;
    }
    let version = (word >> 16).checked_sub(1);
    match version.filter(|version| encode(store, *version) == Some(word)) {
        Some(version) => Word::Version(version),
        None => Word::Noise,
    }
}

/// Whether the file is a meeting of this store.
pub(crate) fn is_of(shared: &dyn Shared, store: StoreId) -> bool {
    let head = [0, 1, 2, 3].map(|at| shared.load(at));
    let [magic, layout, id, check] = head;
    let is_it = magic == MAGIC && layout == LAYOUT && id == store.0;
    is_it && check == check_of(store, &[magic, layout, id])
}

/// Says which file the store is in. Only who opens the store, as the first.
pub(crate) fn say_file(shared: &dyn Shared, id: [u64; 2]) {
    (FILE..).zip(id).for_each(|(at, word)| shared.store(at, word));
}

/// Whether the processes that meet here have another file open. Its name may lead to a new file,
/// while they have the one that it led to before.
pub(crate) fn is_of_other_file(shared: &dyn Shared, id: [u64; 2]) -> bool {
    is_other([FILE, FILE + 1].map(|at| shared.load(at)), id)
}

fn is_other(said: [u64; 2], id: [u64; 2]) -> bool {
    said != id && said != [0, 0]
}

/// As [`is_of_other_file`], for the bytes from [`FILE_BYTES`] on.
pub(crate) fn is_other_file(said: [u8; 16], id: [u64; 2]) -> bool {
    let said = u128::from_le_bytes(said);
    is_other([said as u64, (said >> 64) as u64], id)
}

/// The locks of all cells.
pub(crate) fn cell_locks() -> impl Iterator<Item = u64> {
    (0..CELLS).map(cell_lock)
}

/// Makes the file one of this store, with no process in it. Only who has [`WRITE_LOCK`], while no
/// other process has a cell.
pub(crate) fn make(shared: &dyn Shared, store: StoreId) {
    (0..shared.words()).for_each(|at| shared.store(at, 0));
    let head = [MAGIC, LAYOUT, store.0];
    shared.store(3, check_of(store, &head));
    // The first word last.
    shared.store(2, store.0);
    shared.store(1, LAYOUT);
    shared.store(0, MAGIC);
}
