//! A process that has a shared store for itself, while pages move.
//!
//! No record describes a move: another process would not know of it. So a process that moves pages
//! keeps the writing and the lock of who opens the store, and no other process has it open. It lets
//! others in when a checkpoint has the new places, and none of its readers uses an old one. Until
//! then others that open the store wait, as they do for a process that does not share it.

use std::time::{Duration, Instant};

use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::meeting::cells::has_other;
use crate::meeting::layout::OPEN_LOCK;
use crate::meeting::member::Member;
use crate::planted::{self, Bug};

/// The time between two looks for other processes.
const PAUSE: Duration = Duration::from_millis(5);

impl Engine {
    /// Where processes take turns: keeps all others out from now on, until
    /// [`Engine::is_alone_no_more`]. Waits at most `patience` for those that have the store open.
    ///
    /// # Errors
    /// [`Error::Locked`] while another process has the store open; those of [`Engine::to_write`].
    pub(crate) fn begin_alone(&self, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        let left = || until.saturating_duration_since(Instant::now());
        let Some(member) = self.member.as_ref().filter(|_| self.turns.is_some()) else {
            return self.check_process();
        };
        loop {
            // While others have it open they write: the writing is not kept from them.
            if !has_other(member.shared())? {
                let is_alone = self.try_alone(member, left())?;
                if is_alone {
                    return Ok(());
                }
                self.pass_on_without_thread();
            }
            if left().is_zero() {
                let how = "open in other processes, and moving pages needs it for one: close it \
                           there and try again";
                return Err(Error::Locked { file: self.media.name().to_owned(), how });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes the writing and the lock of who opens the store, unless another process has come.
    fn try_alone(&self, member: &Member, patience: Duration) -> Result<bool> {
        let _turn = self.to_write(patience)?;
        let mut core = self.core.lock();
        if let Some(shared) = core.shared.as_mut().filter(|shared| shared.is_alone) {
            shared.needs_alone = true;
            return Ok(true);
        }
        if !member.shared().try_lock(OPEN_LOCK)? {
            return Ok(false);
        }
        if has_other(member.shared())? {
            member.shared().unlock(OPEN_LOCK)?;
            return Ok(false);
        }
        if let Some(shared) = &mut core.shared {
            (shared.is_alone, shared.needs_alone) = (true, true);
        }
        Ok(true)
    }

    /// Pages have been moved: lets other processes open the store again, now or when nothing of
    /// this process uses the old places.
    ///
    /// # Errors
    /// As [`crate::PageStore::checkpoint`].
    pub(crate) fn end_alone(&self) -> Result<()> {
        let Some(member) = &self.member else { return Ok(()) };
        {
            let mut core = self.core.lock();
            if let Some(shared) = &mut core.shared {
                shared.needs_alone = false;
            }
            self.is_alone_no_more(&mut core, member)?;
        }
        self.pass_on_without_thread();
        Ok(())
    }

    /// Lets other processes open the store again, where nothing is in use any more that they do not
    /// know. Says whether they may. May take a checkpoint.
    ///
    /// # Errors
    /// As [`crate::PageStore::checkpoint`].
    pub(crate) fn is_alone_no_more(&self, core: &mut Core, member: &Member) -> Result<bool> {
        if !core.is_alone() {
            return Ok(true);
        }
        let is_needed = core.shared.as_ref().is_some_and(|shared| shared.needs_alone);
        if is_needed || core.mover.is_any() || core.is_saving {
            return Ok(false);
        }
        if !planted::is(Bug::AloneTooShort) {
            if core.retired.iter().any(|retired| retired.is_held()) {
                return Ok(false);
            }
            if !core.retired.is_empty() {
                self.checkpoint_core(core)?;
            }
            if !core.retired.is_empty() {
                return Ok(false);
            }
        }
        if let Some(shared) = &mut core.shared {
            shared.is_alone = false;
        }
        member.shared().unlock(OPEN_LOCK)?;
        Ok(true)
    }
}

impl Core {
    /// Whether this process keeps all others from opening a store that they share.
    pub(crate) fn is_alone(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_alone)
    }
}
