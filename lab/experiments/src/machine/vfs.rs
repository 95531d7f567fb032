//! The VFS of a machine: files by name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker_sqlite::code::{Code, Result};
use esker_sqlite::hosted::{File, Files, Kind};

use super::cached::Cached;
use super::direct::{Direct, Memory};
use super::mode::Mode;
use super::state::{State, call, lock};
use super::turns;

/// When machines are switched on: 2017-01-01, in milliseconds since 1970.
const BEGINNING_MILLIS: i64 = 1_483_228_800_000;

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
