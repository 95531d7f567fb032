//! Readers where several processes have a store open.
//!
//! A transaction that begins hears how far the log goes, applies what is new, and pins the newest
//! version in the cell of its process. If the process that frees may have looked before, the reader
//! tries again, with what is newest then ([`crate::meeting::cells`]). So a reader that begins after
//! a commit has returned, in whichever process, sees it.
//!
//! The version is pinned, and it is read at which version was asked last, while `versions` is
//! locked: no record "held" is applied here in between, and one that is applied later has the
//! version, or is older than it.

use crate::engine::{Core, Engine};
use crate::error::{Error, Result};
use crate::log::shared::LogEnd;
use crate::meeting::member::Member;
use crate::meeting::state::{Ending, State, heard, say};
use crate::version::view::View;

/// How often a reader begins again before it gives up: each time, the writer has taken a
/// checkpoint meanwhile.
const TRIES: u32 = 1000;
/// After how many of these it looks whether the process that writes has died.
const LOOKS: u32 = 50;

impl Engine {
    /// Applies what is new, in a process that does not write. Returns `false` to try again.
    fn listen(&self, member: &Member) -> Result<bool> {
        if member.leads() || self.is_unsaid(member) {
            return Ok(true);
        }
        let state = heard(member.shared(), member.store()).ok_or_else(|| self.unheard())?;
        self.catch_up(state.end)
    }

    pub(super) fn unheard(&self) -> Error {
        let how = "open in processes that do not know how far its log goes, because the file that \
                   they share is damaged: close it in all of them";
        Error::Locked { file: self.media.name().to_owned(), how }
    }

    /// Says how far the log goes now, if other processes listen.
    pub(crate) fn announce(&self, core: &Core) {
        if let Some(member) = self.member.as_ref().filter(|member| member.leads()) {
            self.say(core, member, Ending::None);
        }
    }

    /// Says how far the log goes, and how this process has ended its writing.
    pub(super) fn say(&self, core: &Core, member: &Member, ending: Ending) {
        let end = LogEnd { epoch: core.log.epoch, number: core.log.number };
        let newest = self.versions.lock().newest().0;
        say(member.shared(), member.store(), State { end, newest, ending });
    }

    /// Adds a reader to the newest version of all processes.
    ///
    /// # Errors
    /// Those of [`Engine::catch_up`]; [`Error::Locked`] when it is not known how far the log goes;
    /// [`Error::Busy`] when the writer takes one checkpoint after the other.
    pub(crate) fn pin_newest(&self) -> Result<(u64, View)> {
        let Some(member) = &self.member else { return Ok(self.versions.lock().pin()) };
        for at in 1..=TRIES {
            if !self.listen(member)? {
                if at.is_multiple_of(LOOKS) {
                    self.follow_dead_writer()?;
                }
                std::thread::yield_now();
                continue;
            }
            let mut versions = self.versions.lock();
            let (version, view) = versions.pin();
            if member.pin(version) {
                return Ok((version, view));
            }
            versions.unpin(version);
            member.unpin(version);
            drop(versions);
            std::thread::yield_now();
        }
        Err(Error::Busy)
    }

    /// Adds a reader to a version that is kept, if it can be read here.
    pub(crate) fn pin_version(&self, version: u64) -> Option<View> {
        let mut versions = self.versions.lock();
        let view = versions.pin_at(version)?;
        let Some(member) = &self.member else { return Some(view) };
        if member.pin(version) {
            return Some(view);
        }
        versions.unpin(version);
        member.unpin(version);
        None
    }

    /// Adds a reader to a version with a name, if there is one. Where another process may take the
    /// name away, it was there after the reader was in the cell: then it is seen by who frees.
    ///
    /// # Errors
    /// As [`Engine::pin_newest`].
    pub(crate) fn pin_name(&self, name: &str) -> Result<Option<(u64, View)>> {
        let look = || self.core.lock().named.get(name).copied();
        let Some(member) = &self.member else {
            return Ok(look().and_then(|at| Some((at, self.versions.lock().pin_at(at)?))));
        };
        for _ in 0..TRIES {
            if !self.listen(member)? {
                continue;
            }
            let Some(version) = look() else { return Ok(None) };
            let _seen = member.pin(version);
            let is_there = self.listen(member).map(|is_new| is_new && look() == Some(version));
            let view = self.versions.lock().pin_at(version);
            match (is_there, view) {
                (Ok(true), Some(view)) => return Ok(Some((version, view))),
                (outcome, view) => {
                    view.into_iter().for_each(|_| self.versions.lock().unpin(version));
                    member.unpin(version);
                    outcome?;
                }
            }
        }
        Err(Error::Busy)
    }

    /// Adds one more reader to a version that a reader of this process has.
    pub(crate) fn pin_again(&self, version: u64) {
        if let Some(member) = &self.member {
            let _seen = member.pin(version);
        }
        self.versions.lock().pin_at(version);
    }

    /// Takes a reader away.
    pub(crate) fn unpin(&self, version: u64) {
        self.versions.lock().unpin(version);
        if let Some(member) = &self.member {
            member.unpin(version);
        }
    }
}
