//! The VFS of a machine: files by name, and the time that a call takes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_flash::Error as FlashError;
use esker_sqlite::code::{Code, Result};
use esker_sqlite::hosted::{File, Files, Kind, Region};

use super::cached::Cached;
use super::direct::{Direct, Memory};
use super::locks::ShmLocks;
use super::mode::Mode;
use super::turns::{self, wait_until};
use super::{CALL_NS, State, lock};

/// When machines are switched on: 2017-01-01, in milliseconds since 1970.
const BEGINNING_MILLIS: i64 = 1_483_228_800_000;

/// The shared memory of a write-ahead log.
#[derive(Debug, Default)]
pub struct Shm {
    /// Its regions.
    pub regions: Vec<Arc<Region>>,
    /// Its locks.
    pub locks: ShmLocks,
}

/// The files of a machine.
#[derive(Debug)]
pub struct Host {
    mode: Mode,
    state: Arc<Mutex<State>>,
}

impl Host {
    pub(super) const fn new(mode: Mode, state: Arc<Mutex<State>>) -> Self {
        Self { mode, state }
    }
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

impl Files for Host {
    fn open(&self, name: &str, kind: Kind, may_create: bool) -> Result<Box<dyn File>> {
        if self.mode.is_transactional() && kind != Kind::Database {
            return match kind {
                Kind::Journal => Ok(Box::new(Memory::default())),
                _ => Err(Code::CANTOPEN),
            };
        }
        let is_cached = !self.mode.is_transactional();
        let (id, holder) = call(&self.state, |state, now| {
            let id = match state.fs.named(name) {
                Some(id) => id,
                None if may_create => state.fs.create(name, is_cached),
                None => return Err(Code::CANTOPEN),
            };
            state.next_holder += 1;
            Ok(((id, state.next_holder), now))
        })?;
        let state = Arc::clone(&self.state);
        Ok(if is_cached {
            Box::new(Cached { state, id, holder })
        } else {
            Box::new(Direct::new(self.mode, state, id, holder))
        })
    }

    fn delete(&self, name: &str) -> Result {
        let is_missing = call(&self.state, |state, now| Ok((!state.fs.delete(name), now)))?;
        if is_missing && !self.mode.is_transactional() {
            return Err(Code::DELETE_NOENT);
        }
        Ok(())
    }

    fn exists(&self, name: &str) -> bool {
        lock(&self.state).fs.named(name).is_some()
    }

    fn sleep(&self, time: Duration) {
        turns::wait(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn unix_millis(&self) -> i64 {
        BEGINNING_MILLIS + i64::try_from(turns::now() / 1_000_000).unwrap_or(i64::MAX / 2)
    }

    fn random(&self, bytes: &mut [u8]) {
        lock(&self.state).random.fill(bytes);
    }
}
