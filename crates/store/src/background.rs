//! The threads that run flushes and merges, and how writers wait for them.
//!
//! One thread flushes, one prepares the log's next switch, and as many threads as there are cores
//! merge. A keyspace has at most one flush and one merge under way, so that each is run by one
//! thread. The threads are not handles: the store closes when its last handle is dropped,
//! regardless of what they are doing, and ends them.
//!
//! For simulations there is another mode, in which the thread that writes does a bounded number of
//! steps after each write: then a history repeats from its seed, with merges cut at every step.

use std::sync::Arc;

use esker_index::BackgroundJob;
use esker_substrate::sync;

use crate::maintenance;
use crate::shared::Core;
use crate::work_queue::Mode;

/// Most threads that merge.
const MERGERS_MAX: usize = 8;

/// Starts the threads of a store that is open.
///
/// # Errors
/// When the system has no threads to give.
pub(crate) fn start(shared: &Arc<Core>) -> std::io::Result<()> {
    if shared.background.mode != Mode::Threads {
        return Ok(());
    }
    let cores = sync::cores().min(MERGERS_MAX);
    let mergers = std::iter::repeat_n((BackgroundJob::Merge, "esker-merge"), cores);
    for (which, name) in mergers.chain([(BackgroundJob::Flush, "esker-flush")]) {
        let store = Arc::clone(shared);
        // It ends by itself when the store is closed.
        let _runs_on = sync::spawn(name, move || run(&store, which))?;
    }
    let store = Arc::clone(shared);
    let _runs_on = sync::spawn("esker-log", move || {
        while store.background.log_is_due() {
            // A close waits for what is under way: the folder is not the store's after it.
            let Ok(_open) = store.enter() else { return };
            maintenance::prepare_log(&store);
        }
    })?;
    Ok(())
}

fn run(store: &Core, which: BackgroundJob) {
    while let Some(slot) = store.background.next(which) {
        maintenance::run_in_background(store, &slot, which);
    }
}
