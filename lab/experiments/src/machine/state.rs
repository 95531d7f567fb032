//! What the connections of a machine share, and how a call takes its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker_flash::Error as FlashError;
use esker_sqlite::code::{Code, Result};
use esker_sqlite::hosted::Region;
use esker_workload::Random;

use super::filesystem::{FileId, FileSystem};
use super::locks::{Holder, Locks, ShmLocks};
use super::turns::{self, wait_until};

/// The time of a call of the VFS: a system call, and the copy of a page.
pub const CALL_NS: u64 = 2_000;

/// The name of the database.
pub const DATABASE: &str = "app.db";

/// The state of a machine.
#[derive(Debug)]
pub struct State {
    pub fs: FileSystem,
    pub locks: BTreeMap<FileId, Locks>,
    pub shm: BTreeMap<FileId, Shm>,
    pub next_holder: Holder,
    /// Of the database of a layer with transactions.
    pub versions: Versions,
    pub random: Random,
}

/// The shared memory of a write-ahead log.
#[derive(Debug, Default)]
pub struct Shm {
    /// Its regions.
    pub regions: Vec<Arc<Region>>,
    /// Its locks.
    pub locks: ShmLocks,
}

/// The committed version of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Its length in bytes.
    pub len: u64,
    /// Its number.
    pub commits: u64,
}

impl Versions {
    /// The first version, of so many bytes.
    pub const fn installed(&mut self, len: u64) {
        self.len = len;
        self.commits = 1;
    }
}

/// The state, for a moment: never while an actor waits.
pub fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The code for an error of flash. A transaction that is too large for the layer's memory is told
/// apart by the layer's count of refusals.
pub fn code(error: &FlashError) -> Code {
    match error {
        FlashError::Full(_) | FlashError::Refused(_) => Code::FULL,
        _ => Code::IOERR_WRITE,
    }
}

/// Does a call: `body` gets the time at which it is served, and answers when it ends. The actor
/// waits until then.
pub fn call<T>(
    state: &Mutex<State>,
    body: impl FnOnce(&mut State, u64) -> Result<(T, u64)>,
) -> Result<T> {
    let now = turns::now() + CALL_NS;
    let done = body(&mut lock(state), now);
    match done {
        Ok((answer, end)) => {
            wait_until(end.max(now));
            Ok(answer)
        }
        Err(code) => {
            wait_until(now);
            Err(code)
        }
    }
}
