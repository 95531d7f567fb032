//! The state of the store as its writing process says it, behind a sequence lock.
//!
//! The writer makes the sequence odd, stores the fields, and makes it even. A reader that sees the
//! same even sequence before and after has all fields of one state, without waiting for the writer
//! and without a lock. A check over the sequence and the fields also finds what no writer wrote,
//! and what a writer that died left half written.
//!
//! Cost: six loads; no call of the system.

use esker_device::shared::Shared;
use esker_format::ids::StoreId;

use crate::log::shared::LogEnd;
use crate::meeting::layout::{STATE, check_of};
use crate::planted::{self, Bug};

/// The fields of the state.
const FIELDS: usize = 3;
/// How often a reader looks again before it takes the state to be torn for good.
const LOOKS: u32 = 1000;

/// What the writing process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) end: LogEnd,
    /// The newest version.
    pub(crate) newest: u64,
}

impl State {
    fn fields(self) -> [u64; FIELDS] {
        [self.end.epoch, self.end.number, self.newest]
    }
}

/// Says a new state. Only the process that writes the store, from one thread at a time.
pub(crate) fn say(shared: &dyn Shared, store: StoreId, state: State) {
    // One that died while it wrote may have left an odd one.
    let odd = shared.load(STATE).wrapping_add(1) | 1;
    let fields = state.fields();
    let even = odd.wrapping_add(1);
    shared.store(STATE, odd);
    for (at, field) in (STATE + 1..).zip(fields) {
        shared.store(at, field);
    }
    let words = [even, fields[0], fields[1], fields[2]];
    shared.store(STATE + 1 + FIELDS, check_of(store, &words));
    shared.store(STATE, even);
}

/// The state that was said last; `None` when none was, or when it is torn and stays so: then the
/// file must be made anew from the log.
pub(crate) fn heard(shared: &dyn Shared, store: StoreId) -> Option<State> {
    (0..LOOKS).find_map(|_| {
        let sequence = shared.load(STATE);
        let fields = [1, 2, 3].map(|at| shared.load(STATE + at));
        let check = shared.load(STATE + 1 + FIELDS);
        let is_same = shared.load(STATE) == sequence && sequence.is_multiple_of(2);
        let [epoch, number, newest] = fields;
        let words = [sequence, epoch, number, newest];
        let is_whole = is_same && check == check_of(store, &words);
        let state = State { end: LogEnd { epoch, number }, newest };
        if !is_whole && !planted::is(Bug::TornStateBelieved) {
            std::hint::spin_loop();
            return None;
        }
        Some(state)
    })
}
