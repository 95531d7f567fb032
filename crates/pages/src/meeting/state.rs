//! The state of the store as its writing process says it, in two copies.
//!
//! The sequence is the number of the newest state, which is in the copy of its parity, behind a
//! check of the number and the fields. The writer stores the next state in the other copy, and then
//! its number. So the newest state is always whole: a reader waits for no writer, and one that dies
//! at any store leaves the state before. A reader that is so slow that its copy is written again
//! finds that the check does not fit, and looks again.
//!
//! Cost: six loads; no call of the system.

use esker_device::shared::Shared;
use esker_format::ids::StoreId;

use crate::log::shared::LogEnd;
use crate::meeting::layout::{STATE, check_of, is_of};
use crate::planted::{self, Bug};

/// Words of a copy: the fields and their check.
const COPY: usize = 5;
/// How often a reader looks again before it takes the file to be damaged.
const LOOKS: u32 = 1000;

/// What the writing process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) end: LogEnd,
    /// The newest version.
    pub(crate) newest: u64,
    /// How the process has ended its writing.
    pub(crate) ending: Ending,
}

/// How a process has ended its writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It writes, or has died, or a write has failed: its log is never written on.
    None,
    /// In order: another process may write the log on.
    Left,
    /// A write has failed, and it is not known whether all that it has said is durable. No process
    /// writes until all have closed the store.
    Doubtful,
}

impl Ending {
    const fn word(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Left => 1,
            Self::Doubtful => 2,
        }
    }

    const fn of(word: u64) -> Self {
        match word {
            1 => Self::Left,
            2 => Self::Doubtful,
            _ => Self::None,
        }
    }
}

/// The first word of the copy of a state.
fn copy_of(sequence: u64) -> usize {
    if sequence.is_multiple_of(2) { STATE + 1 } else { STATE + 1 + COPY }
}

/// Says a new state. Only the process that writes the store, from one thread at a time.
pub(crate) fn say(shared: &dyn Shared, store: StoreId, state: State) {
    let next = shared.load(STATE).wrapping_add(1);
    let copy = copy_of(next);
    let State { end: LogEnd { epoch, number }, newest, ending } = state;
    let left = ending.word();
    for (at, field) in (copy..).zip([epoch, number, newest, left]) {
        shared.store(at, field);
    }
    shared.store(copy + 4, check_of(store, &[next, epoch, number, newest, left]));
    shared.store(STATE, next);
}

/// Whether this is a meeting of the store in which no state was said yet.
pub(crate) fn is_silent(shared: &dyn Shared, store: StoreId) -> bool {
    is_of(shared, store) && has_no_state(shared)
}

/// Whether no state was said, whichever store the meeting is of.
pub(crate) fn has_no_state(shared: &dyn Shared) -> bool {
    (STATE..=STATE + 2 * COPY).all(|at| shared.load(at) == 0)
}

/// The state that was said last; `None` when none was, or when the file is damaged.
pub(crate) fn heard(shared: &dyn Shared, store: StoreId) -> Option<State> {
    (0..LOOKS).find_map(|_| {
        let sequence = shared.load(STATE);
        let copy = copy_of(sequence);
        let words = [0, 1, 2, 3, 4].map(|at| shared.load(copy + at));
        let [epoch, number, newest, left, check] = words;
        let is_whole = check == check_of(store, &[sequence, epoch, number, newest, left]);
        if !is_whole && !planted::is(Bug::TornStateBelieved) {
            std::hint::spin_loop();
            return None;
        }
        Some(State { end: LogEnd { epoch, number }, newest, ending: Ending::of(left) })
    })
}
