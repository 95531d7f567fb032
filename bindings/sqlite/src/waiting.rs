//! The replacement of SQLite's sleep before it asks again for a lock that it was refused.
//!
//! SQLite's busy handler sleeps through the VFS, on the thread that was refused, and directly after
//! the refusal. A connection that sleeps then wants to write, so it waits for its turn
//! ([`crate::queue`]) instead; the sleep returns when its turn has come, and its next snapshot is
//! new. A connection that stops asking, or that only reads from then on, does not sleep, and does
//! not wait.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use esker_pages::Process;

use crate::queue::{Id, Queue, Refused};

struct Sleeper {
    queue: Arc<Queue>,
    id: Id,
    refused: Refused,
    process: Process,
}

thread_local! {
    /// The connection that was refused last on this thread, and has not slept since.
    static SLEEPER: RefCell<Option<Sleeper>> = const { RefCell::new(None) };
}

/// Called when a connection was refused a transaction.
pub fn refused(queue: &Arc<Queue>, id: Id, refused: Refused) {
    let (queue, process) = (Arc::clone(queue), Process::current());
    SLEEPER.set(Some(Sleeper { queue, id, refused, process }));
}

/// Called when a connection of this thread has got its transaction.
pub fn served() {
    SLEEPER.set(None);
}

/// Waits for the turn of the connection that was refused last on this thread, for `asked` or
/// somewhat longer. Returns false where only the time would have to pass.
#[must_use]
pub fn wait_instead(asked: Duration) -> bool {
    let sleeper = SLEEPER.take().filter(|sleeper| sleeper.process.is_current());
    sleeper.is_some_and(|sleeper| sleeper.queue.wait(sleeper.id, sleeper.refused, asked))
}
