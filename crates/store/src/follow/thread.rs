//! The thread of a follower that catches up from time to time.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use esker_substrate::sync;

use super::refresh;
use crate::shared::Core;

/// Starts the thread, where the store is followed and an interval is given. It ends when the store
/// is closed.
///
/// # Errors
/// When the system has no thread to give.
pub(crate) fn start(shared: &Arc<Core>, interval: Option<Duration>) -> std::io::Result<()> {
    let (Some(follower), Some(interval)) = (&shared.follower, interval) else { return Ok(()) };
    let (stop, stopped) = channel();
    *follower.stop.lock() = Some(stop);
    let store = Arc::clone(shared);
    let _runs_on = sync::spawn("esker-follow", move || {
        let mut wait = interval;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            let Ok(_open) = store.enter() else { return };
            let begun = store.waits.now();
            if let Err(error) = refresh(&store) {
                tracing::warn!(%error, "the follower cannot catch up");
            }
            wait = interval.saturating_sub(store.waits.now().saturating_sub(begun));
        }
    })?;
    Ok(())
}
