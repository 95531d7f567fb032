//! Processes that take turns at writing one store.
//!
//! A process that begins to change the store, and does not write it, waits for its turn
//! ([`crate::meeting::queue`]), takes the lock of the writing and goes on where the other has
//! stopped ([`crate::log::handover`]). It goes on to write until another one waits, or until it has
//! done nothing for a moment: then its thread lets go, because no process can be asked while none
//! of its threads runs here. Where it has no thread, it lets go after each transaction.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use crate::engine::{Engine, Turns};
use crate::error::{Error, Result};
use crate::meeting::member::Member;

/// For how long a process writes one transaction after the other while others wait: handing over
/// costs about as much as some commits.
const TURN: Duration = Duration::from_millis(10);
/// For how long a process that does nothing keeps the writing.
const IDLE: Duration = Duration::from_millis(3);
/// The same before its first transaction: when it has the writing, the snapshot that it wanted to
/// begin from may not be the newest any more, and it needs another one.
const UNUSED: Duration = Duration::from_millis(50);
/// The longest time between two attempts to have the writing, where the process that writes says
/// nothing: it has died.
const UNHEARD: Duration = Duration::from_millis(5);

/// What the store's thread knows of the turn of its process.
#[derive(Debug)]
pub(crate) struct Idle {
    uses: u64,
    since: Instant,
}

impl Default for Idle {
    fn default() -> Self {
        Self { uses: 0, since: Instant::now() }
    }
}

impl Engine {
    /// The part of this process in the meeting, where processes take turns.
    fn taking_turns(&self) -> Option<&Member> {
        self.turns.as_ref().and(self.member.as_deref())
    }

    /// Whether this process may change the store, now or in its turn.
    pub(crate) fn may_write(&self) -> bool {
        match &self.turns {
            Some(turns) => turns.may_write(),
            None => !self.is_read_only(),
        }
    }

    /// An operation of the store's thread has failed: lets another process write, if this one does
    /// not any more.
    pub(crate) fn pass_on_after_failure(&self) {
        if self.taking_turns().is_some() && self.poison.get().is_some() {
            let _poisoned = self.step_down();
        }
    }

    /// Whether no later operation of this process can change the store.
    pub(crate) fn is_over(&self) -> bool {
        let has_stopped = self.turns.is_none() && self.is_read_only();
        has_stopped || self.poison.get().is_some() || !self.process.is_current()
    }

    /// Keeps this process the one that writes for as long as the answer lives. Waits for its turn
    /// where several take turns, for as long as `patience`; otherwise does nothing.
    ///
    /// # Errors
    /// [`Error::Busy`] after that time; those of [`Engine::try_lead`].
    pub(crate) fn to_write(&self, patience: Duration) -> Result<Option<MutexGuard<'_, ()>>> {
        self.check_process()?;
        let Some(member) = self.taking_turns() else { return Ok(None) };
        if self.poison.get().is_some() {
            return Err(Error::Poisoned);
        }
        if let Some(turn) = self.try_turn(member)? {
            return Ok(Some(turn));
        }
        let until = Instant::now() + patience;
        let _waits = member.wait_to_write();
        loop {
            let stops = member.stops();
            if let Some(turn) = self.try_turn(member)? {
                return Ok(Some(turn));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Busy);
            }
            member.sleep_until_stopped(stops, UNHEARD.min(left));
            member.wait_on();
        }
    }

    /// The state may name a log that is not there any more, because processes have died one after
    /// the other, each with a checkpoint that it did not say. Where no process writes, takes a
    /// checkpoint of the newest one, which all others load; a process that may only read follows
    /// it. Does nothing while another process writes.
    ///
    /// # Errors
    /// Those of [`Engine::try_lead`].
    pub(crate) fn follow_dead_writer(&self) -> Result<()> {
        let Some(member) = self.taking_turns() else { return Ok(()) };
        if !self.may_write() {
            let _turn = member.turn();
            if member.lock_lead()? {
                let followed = self.follow_unsaid();
                member.end_lead();
                followed?;
            }
            return Ok(());
        }
        match self.to_write(Duration::ZERO) {
            Err(Error::Busy) => Ok(()),
            turn => {
                drop(turn?);
                self.step_down().map(drop)
            }
        }
    }

    /// Begins to write if it is this process's turn.
    fn try_turn<'a>(&self, member: &'a Member) -> Result<Option<MutexGuard<'a, ()>>> {
        let file = self.turns.as_ref().and_then(Turns::file);
        let Some(file) = file else {
            return Err(Error::ReadOnly { file: self.media.name().to_owned() });
        };
        let turn = member.turn();
        member.count_use();
        if member.leads() {
            return Ok(Some(turn));
        }
        if !member.is_first()? || !member.lock_lead()? {
            return Ok(None);
        }
        if self.begin_turn(member, file.clone())? {
            return Ok(Some(turn));
        }
        // What is read elsewhere keeps it from writing, and others perhaps not.
        member.wait_anew();
        Ok(None)
    }

    /// A transaction has ended: lets another process write that waits.
    pub(crate) fn pass_on(&self) {
        let Some(member) = self.taking_turns().filter(|member| member.leads()) else { return };
        member.use_turn();
        if self.poison.get().is_some() || member.has_led_for() >= TURN && member.is_waited_for() {
            // Where it fails the store is poisoned, which the next transaction says.
            let _left = self.step_down();
        } else {
            self.pass_on_without_thread();
        }
    }

    /// A change has ended, or a transaction was refused: where there is no thread that would let
    /// another process write, does so.
    pub(crate) fn pass_on_without_thread(&self) {
        let Some(member) = self.taking_turns() else { return };
        let has_failed = self.poison.get().is_some();
        if member.leads() && (has_failed || !self.core.lock().has_thread) {
            let _left = self.step_down();
        }
    }

    /// Until when the store's thread need not look whether this process is to stop writing; `None`
    /// where it does not write.
    pub(crate) fn keeps_turn_until(&self, idle: &mut Idle) -> Option<Instant> {
        let member = self.taking_turns().filter(|member| member.leads())?;
        let has_writer = self.has_writer.load(std::sync::atomic::Ordering::Acquire);
        if idle.uses != member.uses() || has_writer {
            *idle = Idle { uses: member.uses(), since: Instant::now() };
        }
        Some(idle.since + if member.has_used_turn() { IDLE } else { UNUSED })
    }

    /// Whether this process has nothing to write, although it could: `is_synced` says whether all
    /// is durable. Otherwise the thread looks again later.
    pub(crate) fn is_turn_over(&self, idle: &mut Idle, is_synced: bool) -> bool {
        let is_over = is_synced || self.member.as_ref().is_some_and(|at| at.is_waited_for());
        idle.since = Instant::now();
        is_over
    }
}
