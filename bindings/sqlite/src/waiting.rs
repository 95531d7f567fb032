//! What SQLite's sleep becomes before it asks again for a lock that it was refused.
//!
//! Its busy handler sleeps through the VFS, on the thread that was refused, and right after it. So
//! whoever sleeps then wants to write, and waits for its turn ([`crate::queue`]) instead; it comes
//! back when that is there, with a fresh snapshot. A connection that gives up, or that only reads
//! from then on, does not sleep, and waits for nobody.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use esker_flash::Process;

use crate::queue::{Id, Queue, Refused};

struct Sleeper {
    queue: Arc<Queue>,
    id: Id,
    refused: Refused,
    process: Process,
}

thread_local! {
    /// Who was refused last on this thread, and has not slept since.
    static SLEEPER: RefCell<Option<Sleeper>> = const { RefCell::new(None) };
}

/// A connection was refused a transaction.
pub fn refused(queue: &Arc<Queue>, id: Id, refused: Refused) {
    let (queue, process) = (Arc::clone(queue), Process::current());
    SLEEPER.set(Some(Sleeper { queue, id, refused, process }));
}

/// A connection of this thread has what it wanted.
pub fn served() {
    SLEEPER.set(None);
}

/// Waits for the turn of who was refused last on this thread, so long or some longer; false where
/// there is nothing to wait for but time.
#[must_use]
pub fn wait_instead(asked: Duration) -> bool {
    let sleeper = SLEEPER.take().filter(|sleeper| sleeper.process.is_current());
    sleeper.is_some_and(|sleeper| sleeper.queue.wait(sleeper.id, sleeper.refused, asked))
}
