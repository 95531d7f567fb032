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
//! opened the store for writing, or at the end of a checkpoint. That one is followed first, as if
//! the process had said so.
//!
//! A process whose write has failed stops in the same way, with one difference: if relaxed commits
//! that others have seen may not be durable, it says so, and no process writes until all have
//! closed the store. A sync that fails may be the only word of what the system then forgets.
//!
//! The first process that writes goes on in this way too ([`crate::log::unsaid`]).
//!
//! A process may not know which slots are free in the first segments of the file, because it has
//! loaded a checkpoint that does not list the slots of all versions in use. It takes its slots from
//! the other segments, until a checkpoint finds that those versions are gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use esker_device::DeviceFile;

use crate::engine::{Core, Engine};
use crate::error::{Error, Result, invalid};
use crate::log::checkpoint::EPOCHS_TRIED_MAX;
use crate::log::creation::find_in;
use crate::log::frames::Log;
use crate::log::record::{Record, Unlisted};
use crate::log::scan::{Position, scan};
use crate::log::shared::LogEnd;
use crate::log::superblock::{Found, Superblock};
use crate::media::Media;
use crate::meeting::cells;
use crate::meeting::member::Member;
use crate::meeting::state::{Ending, State, heard, say};
use crate::planted::{self, Bug};

/// The end of the log of the newest checkpoint, which no process has said, and whether a
/// transaction is prepared in it.
pub(super) fn end_on_device(media: &dyn Media, newest: &Superblock) -> Result<(LogEnd, bool)> {
    let records = scan(media, newest)?.records;
    let prepares = records.iter().any(|(_, record)| matches!(record, Record::Prepare(..)));
    let number = records.last().map_or(newest.number, |(number, _)| number + 1);
    Ok((LogEnd { epoch: newest.epoch, number }, prepares))
}

impl Engine {
    /// Becomes the process that writes, through `file`, which is the same file opened for writing.
    /// `false` while another process is, or while it is not known here which slots are free and a
    /// version is read that is older than the checkpoint that was loaded here.
    ///
    /// Cost: catching up. After a process that died, or where it is not known which slots are free,
    /// a checkpoint.
    ///
    /// # Errors
    /// The device failed; or [`Error::Locked`] when a process died while it opened the store, and
    /// found a prepared transaction of which no other knows: the store must be opened anew then.
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
        self.begin_turn(member, file)
    }

    /// As [`Engine::try_lead`], for who has the lock of the writing.
    pub(super) fn begin_turn(&self, member: &Member, file: Arc<dyn DeviceFile>) -> Result<bool> {
        let led = self.take_over(member, file);
        if !matches!(led, Ok(true)) {
            self.core.lock().space.open_first();
            if let Some(gated) = &self.gated {
                gated.gate.shut();
            }
            member.end_lead();
        }
        led
    }

    fn take_over(&self, member: &Member, file: Arc<dyn DeviceFile>) -> Result<bool> {
        // The state stays as it is: no other process has the lock.
        let (mut is_left, mut is_there, mut is_said) = (false, true, true);
        if !self.is_unsaid(member) {
            let state = heard(member.shared(), member.store()).ok_or_else(|| self.unheard())?;
            is_there = self.catch_up(state.end)?;
            if state.ending == Ending::Doubtful {
                return Err(Error::Poisoned);
            }
            // What was loaded here may be a checkpoint that was not said.
            is_said = self.core.lock().log.epoch == state.end.epoch;
            is_left = state.ending == Ending::Left && is_said;
        }
        let is_written_on = planted::is(Bug::DeadWritersLogWrittenOn);
        let has_followed = !is_written_on && self.follow_unsaid()?;
        if !is_there && !has_followed {
            return Err(self.unheard());
        }
        let mut core = self.core.lock();
        if (has_followed || !is_said) && !planted::is(Bug::UnsaidNotSaid) {
            // Before the superblock that was said last is written over: where this process dies as
            // well, the next one finds this.
            self.say(&core, member, Ending::None);
        }
        self.see_growth(&mut core)?;
        let (is_complete, unlisted) = core
            .shared
            .as_ref()
            .map_or((false, Unlisted::default()), |shared| (shared.is_complete, shared.unlisted));
        let is_known = is_complete || unlisted != Unlisted::default();
        if !is_known && self.is_older_read(&core)? {
            return Ok(false);
        }
        if !is_complete && !planted::is(Bug::UnlistedReused) {
            core.space.close_first(unlisted.segments);
        }
        if let Some(gated) = &self.gated {
            gated.gate.open(file);
        }
        if is_known && !has_followed && (is_left || is_written_on) {
            self.resume_log(&mut core)?;
        } else {
            self.recover_in_memory(&mut core)?;
        }
        // Where a process died while it kept readers out, they may begin again.
        cells::let_in(member.shared(), member.store(), self.versions.lock().newest().0);
        member.begin_lead();
        self.announce(&core);
        self.wake.notify_all();
        Ok(true)
    }

    /// A process may have died after it had written the superblock of a checkpoint and before it
    /// said so: follows that, and returns whether there was one. What this process writes before
    /// its own checkpoint is durable must not be where that one is.
    pub(super) fn follow_unsaid(&self) -> Result<bool> {
        let left = || {
            let how = "left by a process that died while it opened it: close it in all processes \
                       and open it for writing";
            Error::Locked { file: self.media.name().to_owned(), how }
        };
        let Found::Superblock(newest) = find_in(&*self.media)? else { return Err(left()) };
        let (epoch, has_prepared) = {
            let core = self.core.lock();
            (core.log.epoch, core.prepared.is_some())
        };
        if newest.epoch == epoch {
            return Ok(false);
        }
        // Perhaps of a transaction that was prepared by who died, and that no other process knows.
        let (end, prepares) = end_on_device(&*self.media, &newest)?;
        if newest.epoch < epoch || prepares && !has_prepared || !self.catch_up(end)? {
            return Err(left());
        }
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

    /// Takes a checkpoint of what is in memory, after a process that died, or where it was not
    /// known which slots are free: all others load it.
    fn recover_in_memory(&self, core: &mut Core) -> Result<()> {
        // What the other has written may not be durable, and only what was before it be free.
        self.sync_file()?;
        // A process that died while it opened the store may have begun those in between.
        core.next_epoch = core.log.epoch + 2 * EPOCHS_TRIED_MAX + 1;
        self.purge_unheld(core)?;
        self.checkpoint_newest(core)
    }

    /// Stops to write. `false` while a transaction is open, or a checkpoint in progress. A
    /// transaction that is prepared is open for as long as the process that prepared it lives; one
    /// that another process left is in the log, and the next process that writes decides it.
    ///
    /// # Errors
    /// A sync or a checkpoint failed. Where that has poisoned the store here, this process does not
    /// write any more; otherwise it goes on to.
    pub(crate) fn step_down(&self) -> Result<bool> {
        let Some(member) = &self.member else { return Ok(true) };
        let _turn = member.turn();
        if !member.leads() {
            return Ok(true);
        }
        let left = self.leave_in_order(member);
        if self.poison.get().is_some() {
            self.abandon(member);
        }
        left
    }

    fn leave_in_order(&self, member: &Member) -> Result<bool> {
        self.check_poison()?;
        if self.has_writer.swap(true, Ordering::AcqRel) {
            return Ok(false);
        }
        let left = self.leave(member);
        self.release_writer();
        left
    }

    /// A write of this process has failed: stops to write as if it had died, once none of its
    /// threads writes any more. It reads on, and follows who writes next.
    fn abandon(&self, member: &Member) {
        if self.has_writer.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut core = self.core.lock();
        if !core.is_saving && !core.mover.is_any() {
            core.is_log_ours = false;
            let said = heard(member.shared(), member.store());
            // What is not known to be durable may be lost, although others have seen it.
            let doubtful = said.filter(|said| core.durable + 1 < said.end.number);
            let is_ignored = planted::is(Bug::DoubtIgnored);
            if let Some(state) = doubtful.filter(|_| !is_ignored) {
                let ending = Ending::Doubtful;
                say(member.shared(), member.store(), State { ending, ..state });
            }
            core.space.open_first();
            if let Some(gated) = &self.gated {
                gated.gate.shut();
            }
            member.end_lead();
        }
        self.release_writer();
    }

    fn leave(&self, member: &Member) -> Result<bool> {
        let mut core = self.core.lock();
        if core.is_saving || core.mover.is_any() {
            return Ok(false);
        }
        if !self.is_alone_no_more(&mut core, member)? {
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
        core.space.open_first();
        core.is_log_ours = false;
        core.checkpoint_notes = None;
        core.unsynced_bytes = 0;
        (core.is_flush_wanted, core.is_growth_wanted) = (false, false);
        core.is_checkpoint_wanted = false;
        self.say(&core, member, Ending::Left);
        if let Some(gated) = &self.gated {
            gated.gate.shut();
        }
        member.end_lead();
        Ok(true)
    }
}
