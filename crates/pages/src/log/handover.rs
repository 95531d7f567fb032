//! The writing of a shared store, handed from one process to another.
//!
//! A process that stops to write has synced all that it has written, has no transaction open and no
//! checkpoint in progress, and says so together with the end of its log. What it has taken without
//! a record is nothing then, except for the segment that its next frame would have named, which it
//! gives back. So its free slots are those of the others, and another process that has caught up
//! may write the log on where it ends.
//!
//! A process that died has said no such thing. What is behind the end that it has said last may be
//! a part of a commit of which no process was told, and is never written on (decision 0034): a
//! process that has all versions in memory takes a checkpoint of them instead, in an epoch that the
//! dead one cannot have begun. All others load that checkpoint, and keep what they read.
//!
//! In both cases the superblock of another checkpoint may be there: of a process that died while it
//! opened the store for writing, or at the end of a checkpoint. What is written on then would be
//! lost, so it is refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_device::DeviceFile;

use crate::engine::{Core, Engine};
use crate::error::{Error, Result, invalid};
use crate::log::checkpoint::EPOCHS_TRIED_MAX;
use crate::log::follow::is_newest;
use crate::log::frames::Log;
use crate::log::scan::Position;
use crate::meeting::cells;
use crate::meeting::member::Member;
use crate::meeting::state::heard;
use crate::planted::{self, Bug};

impl Engine {
    /// Becomes the process that writes, through `file`, which is the same file opened for writing.
    /// `false` while another process is, or while it is not known here which slots are free: that
    /// is known after a checkpoint at which no version is read that is older than the opening.
    ///
    /// Cost: catching up. After a process that died a checkpoint.
    ///
    /// # Errors
    /// The device failed; or [`Error::Locked`] when the process that died was about to end a
    /// checkpoint: the store must be opened anew then, when nothing of it is read.
    pub(crate) fn try_lead(&self, file: Arc<dyn DeviceFile>) -> Result<bool> {
        self.check_process()?;
        let Some(member) = &self.member else {
            return invalid("the store was not opened to be shared by processes");
        };
        let _turn = member.turn();
        if member.leads() {
            return Ok(true);
        }
        if !member.lock_lead()? {
            return Ok(false);
        }
        let led = self.take_over(member, file);
        if !matches!(led, Ok(true)) {
            if let Some(gated) = &self.gated {
                gated.gate.shut();
            }
            member.end_lead();
        }
        led
    }

    fn take_over(&self, member: &Member, file: Arc<dyn DeviceFile>) -> Result<bool> {
        // It stays as it is: no other process has the lock.
        let state = heard(member.shared(), member.store()).ok_or_else(|| self.unheard())?;
        if !self.catch_up(state.end)? {
            return Err(self.unheard());
        }
        let mut core = self.core.lock();
        self.see_growth(&mut core)?;
        if !core.shared.as_ref().is_some_and(|shared| shared.is_complete) {
            return Ok(false);
        }
        // A process that opened the store for writing may have died since another has left.
        let is_written_on = planted::is(Bug::DeadWritersLogWrittenOn);
        if !is_newest(&*self.media, core.log.epoch)? && !is_written_on {
            let how = "left by a process that died at the end of a checkpoint: close it in all \
                       processes and open it for writing";
            return Err(Error::Locked { file: self.media.name().to_owned(), how });
        }
        if let Some(gated) = &self.gated {
            gated.gate.open(file);
        }
        if state.is_left || is_written_on {
            self.resume_log(&mut core)?;
        } else {
            self.recover_in_memory(&mut core)?;
        }
        // Where a process died while it kept readers out, they may begin again.
        cells::let_in(member.shared(), member.store(), self.versions.lock().newest().0);
        member.begin_lead();
        self.announce(&core);
        Ok(true)
    }

    /// Goes on to write the log where another process has ended.
    fn resume_log(&self, core: &mut Core) -> Result<()> {
        self.ensure_segments(core, 1)?;
        let Some(shared) = &core.shared else { return Ok(()) };
        let mut segments = shared.at.segments.clone();
        if !shared.at.has_following() {
            segments.extend(core.space.take_log());
        }
        core.log = Log::resumed(&shared.block, segments, shared.at.offset(), &core.log);
        core.is_log_ours = true;
        core.next_epoch = core.log.epoch + 1;
        core.durable = core.log.number - 1;
        core.unsynced_bytes = 0;
        Ok(())
    }

    /// Takes a checkpoint of what is in memory, after a process that died.
    fn recover_in_memory(&self, core: &mut Core) -> Result<()> {
        // What the other has written may not be durable, and only what was before it be free.
        self.sync_file()?;
        // A process that died while it opened the store may have begun those in between.
        core.next_epoch = core.log.epoch + 2 * EPOCHS_TRIED_MAX + 1;
        self.purge_unheld(core)?;
        self.checkpoint_newest(core)
    }

    /// Stops to write. `false` while a transaction is open or prepared, or a checkpoint in
    /// progress.
    ///
    /// # Errors
    /// A sync or a checkpoint failed: this process goes on to write, or has to be closed.
    pub(crate) fn step_down(&self) -> Result<bool> {
        let Some(member) = &self.member else { return Ok(true) };
        let _turn = member.turn();
        if !member.leads() {
            return Ok(true);
        }
        self.check_poison()?;
        if self.has_writer.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let left = self.leave(member);
        self.release_writer();
        left
    }

    fn leave(&self, member: &Member) -> Result<bool> {
        let mut core = self.core.lock();
        if core.prepared.is_some() || core.is_saving || core.mover.is_any() {
            return Ok(false);
        }
        if core.next_epoch != core.log.epoch + 1 {
            // Checkpoints have failed whose epochs must not be begun again.
            self.checkpoint_core(&mut core)?;
        }
        if core.durable + 1 < core.log.number {
            self.sync_core(&mut core)?;
        }
        let at = Position::end_of(&core.log);
        let unnamed = core.log.segments.split_off(at.segments.len());
        unnamed.into_iter().for_each(|segment| core.space.free_log(segment));
        if let Some(shared) = &mut core.shared {
            shared.at = at;
        }
        core.is_log_ours = false;
        core.checkpoint_notes = None;
        self.say(&core, member, true);
        if let Some(gated) = &self.gated {
            gated.gate.shut();
        }
        member.end_lead();
        Ok(true)
    }
}
