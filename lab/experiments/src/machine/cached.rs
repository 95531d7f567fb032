//! Files in the page cache, with the locks of SQLite: what the unmodified SQLite uses.

use std::sync::{Arc, Mutex};

use esker_sqlite::code::{Code, Result};
use esker_sqlite::hosted::{File, Level, Region, ShmRange};

use super::filesystem::FileId;
use super::locks::Holder;
use super::state::{State, call, code, lock};

/// An open file.
#[derive(Debug)]
pub struct Cached {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) id: FileId,
    pub(super) holder: Holder,
}

impl File for Cached {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result {
        call(&self.state, |state, now| {
            let len = state.fs.read_cached(self.id, offset, buf).map_err(|_| Code::IOERR_READ)?;
            let rest = buf.get_mut(len..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(((), now));
            }
            rest.fill(0);
            Err(Code::SHORT_READ)
        })
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result {
        call(&self.state, |state, now| {
            state.fs.write_cached(self.id, offset, bytes).map_err(|error| code(&error))?;
            Ok(((), now))
        })
    }

    fn truncate(&mut self, len: u64) -> Result {
        call(&self.state, |state, now| {
            state.fs.truncate(self.id, len).map_err(|error| code(&error))?;
            Ok(((), now))
        })
    }

    fn sync(&mut self) -> Result {
        call(&self.state, |state, now| {
            let end = state.fs.sync(self.id, now, false).map_err(|error| code(&error))?;
            Ok(((), end))
        })
    }

    fn size(&self) -> Result<u64> {
        lock(&self.state).fs.len(self.id).map_err(|_| Code::IOERR_READ)
    }

    fn lock(&mut self, level: Level) -> Result {
        call(&self.state, |state, now| {
            let is_granted = state.locks.entry(self.id).or_default().raise(self.holder, level);
            if is_granted { Ok(((), now)) } else { Err(Code::BUSY) }
        })
    }

    fn unlock(&mut self, level: Level) -> Result {
        call(&self.state, |state, now| {
            state.locks.entry(self.id).or_default().lower(self.holder, level);
            Ok(((), now))
        })
    }

    fn has_writer(&self) -> Result<bool> {
        Ok(lock(&self.state).locks.get(&self.id).is_some_and(super::locks::Locks::has_writer))
    }

    fn shm_map(&mut self, number: usize, bytes: usize, make: bool) -> Result<Option<Arc<Region>>> {
        let state = &mut *lock(&self.state);
        let shm = state.shm.entry(self.id).or_default();
        if number > shm.regions.len() {
            return Err(Code::IOERR_LOCK);
        }
        if number == shm.regions.len() && make {
            shm.regions.push(Arc::new(Region::new(bytes)));
        }
        Ok(shm.regions.get(number).cloned())
    }

    fn shm_lock(&mut self, range: ShmRange) -> Result {
        call(&self.state, |state, now| {
            let is_granted = state.shm.entry(self.id).or_default().locks.take(self.holder, range);
            if is_granted { Ok(((), now)) } else { Err(Code::BUSY) }
        })
    }

    fn shm_unlock(&mut self, range: ShmRange) -> Result {
        call(&self.state, |state, now| {
            state.shm.entry(self.id).or_default().locks.give_up(self.holder, range);
            Ok(((), now))
        })
    }

    fn shm_unmap(&mut self, is_removed: bool) -> Result {
        let state = &mut *lock(&self.state);
        if let Some(shm) = state.shm.get_mut(&self.id) {
            shm.locks.leave(self.holder);
        }
        if is_removed {
            state.shm.remove(&self.id);
        }
        Ok(())
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        let state = &mut *lock(&self.state);
        if let Some(locks) = state.locks.get_mut(&self.id) {
            locks.lower(self.holder, Level::None);
        }
        if let Some(shm) = state.shm.get_mut(&self.id) {
            shm.locks.leave(self.holder);
        }
    }
}
