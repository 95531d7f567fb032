//! What a process knows that follows the writer of a store.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use esker_substrate::manifest::ManifestState;
use esker_substrate::sync::Mutex;
use esker_substrate::sync::atomic::{AtomicU64, Ordering};

use crate::slot::Steady;

/// What a process that follows a writer knows: see [`follow`](crate::follow).
#[derive(Debug, Default)]
pub(crate) struct Follower {
    pub progress: Mutex<Progress>,
    pub steady: Arc<Steady>,
    /// The number of states of the manifest that were taken in.
    pub states: AtomicU64,
    /// When it has last caught up, by the runtime's clock, in microseconds.
    pub refreshed_micros: AtomicU64,
    /// Ends the thread when it is dropped.
    pub stop: Mutex<Option<Sender<()>>>,
}

/// How far a follower has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The state of the manifest that the indexes have.
    pub state: Option<Arc<ManifestState>>,
    /// The memtables have a batch in part: they are made anew.
    pub is_broken: bool,
}

/// How far a follower is behind its writer: see [`Db::lag`](crate::Db::lag).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lag {
    /// The number of operations that the writer has passed on to the operating system and that
    /// are not visible here. `None` where that is not known: the writer does not tell, or there is
    /// none.
    pub operations: Option<u64>,
    /// The time since the follower has last caught up.
    pub since_refresh: Duration,
}

impl Follower {
    pub fn stop(&self) {
        *self.stop.lock() = None;
    }

    pub fn states(&self) -> u64 {
        self.states.load(Ordering::Acquire)
    }
}
