//! A process that follows the log which another process writes.
//!
//! The writer says how far its log goes ([`LogEnd`]), after every commit. [`Engine::catch_up`]
//! reads the records up to there and applies them, as recovery does; its readers keep their
//! versions. When the writer has taken a checkpoint, the follower applies the rest of the older
//! log, takes over the places of the nodes, frees what the writer has freed, and goes on in the new
//! log, behind the records that it begins with and that the older log had.
//!
//! A follower that is late may find that the older log, or nodes of the checkpoint, are gone; and
//! another process may have opened the store since. Then it loads the newest checkpoint again.
//! Versions that it reads stay readable: the writer keeps their pages for as long as they are held.
//!
//! Cost: without news nothing; the bytes of the new records; for a checkpoint also its inner nodes
//! that changed; loading again 8 bytes a page.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::alloc::allocation::Allocation;
use crate::engine::{Core, Engine};
use crate::error::{Error, Result, corrupt};
use crate::log::adopt::Adoption;
use crate::log::apply::{apply, claim};
use crate::log::checkpoint::EPOCHS_TRIED_MAX;
use crate::log::creation::{find_in, of_epoch};
use crate::log::frames::Log;
use crate::log::hold::{free_before, places_of};
use crate::log::record::{Kept, Record, Unlisted};
use crate::log::recovery::{Recovered, recover_checkpoint, segments_in};
use crate::log::scan::{Position, scan_on};
use crate::log::shared::{LogEnd, SharedCore};
use crate::log::superblock::{Found, Superblock};
use crate::media::Media;
use crate::place::Sector;
use crate::planted::{self, Bug};
use crate::version::tree::Releases;
use crate::version::versions::Versions;

/// A log that is read and applied.
#[derive(Clone, Copy)]
struct Following<'a> {
    media: &'a dyn Media,
    allocation: &'a dyn Allocation,
    versions: &'a Mutex<Versions>,
    /// Whether the log is that of a checkpoint which has just been loaded.
    is_loading: bool,
}

impl Following<'_> {
    /// Applies the records up to the frame before `end`, except the first `skipped`. Returns
    /// `false`, and has done nothing, when they are not in the log.
    fn read_on(&self, core: &mut Core, end: u64, skipped: usize) -> Result<bool> {
        let Some(shared) = &mut core.shared else { return Ok(false) };
        let block = shared.block;
        let mut at = shared.at.clone();
        let Some(scan) = scan_on(self.media, &block, &mut at, end)? else { return Ok(false) };
        let bad = |at, what| corrupt(self.media.name(), at, what);
        self.see_growth(core)?;
        // From here on only damage fails. What failed before is read again.
        if let Some(shared) = &mut core.shared {
            shared.at = at;
        }
        for segment in scan.segments.iter().skip(core.log.segments.len()) {
            if !core.space.claim_log(*segment) {
                let at = core.space.segment_offset(*segment);
                return Err(bad(at, "the log is where something else is"));
            }
        }
        core.log.segments = scan.segments;
        core.log.bytes += scan.frames.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let mut skipped = skipped;
        for (_, record) in scan.records {
            match record {
                // Who was there knows it.
                Record::Kept(kept) if self.is_loading => self.restore(core, kept)?,
                Record::Kept(kept) => {
                    let known = core.shared.as_mut().filter(|shared| shared.is_complete);
                    known.into_iter().for_each(|shared| shared.unlisted = kept.unlisted);
                }
                _ if skipped > 0 => skipped -= 1,
                record => apply(core, self.versions, self.allocation, record)
                    .map_err(|misfit| bad(misfit.at, misfit.what))?,
            }
        }
        core.log.number = end;
        Ok(true)
    }

    /// Takes the segments by which another process has made the file longer for free.
    fn see_growth(&self, core: &mut Core) -> Result<()> {
        let segment_bytes = core.space.segment_bytes() as u32;
        let there = segments_in(self.media.bytes()?, segment_bytes).unwrap_or_default();
        core.space.add_segments(there.saturating_sub(core.space.segment_count()));
        Ok(())
    }

    /// After a checkpoint was loaded: takes what is in use beside it. Then all slots in use are
    /// known.
    fn restore(&self, core: &mut Core, kept: Kept) -> Result<()> {
        let bad = |at, what| corrupt(self.media.name(), at, what);
        for segment in &kept.log_before {
            if !core.space.claim_log(*segment) {
                let at = core.space.segment_offset(*segment);
                return Err(bad(at, "the log before is where something else is"));
            }
        }
        let befores = kept.versions.iter();
        for (before, version) in befores.zip(kept.versions.iter().skip(1)) {
            for (page, slot) in version.replaced.iter().filter(|(_, slot)| *slot != Sector::NONE) {
                // The checkpoint may have it, for a version with a name.
                let _claimed =
                    claim(&mut core.space, self.allocation, *page, *slot, before.page_size);
            }
        }
        self.versions.lock().restore(kept.versions);
        if let Some(shared) = &mut core.shared {
            shared.log_before = kept.log_before;
            shared.unlisted = kept.unlisted;
            shared.is_complete = kept.unlisted == Unlisted::default();
            if !shared.is_complete {
                // Versions from this on are known, and so is when those before are gone.
                shared.loaded = kept.unlisted.before;
            }
        }
        Ok(())
    }

    /// Begins in the log of a checkpoint that is in memory in full.
    fn begin_log(&self, core: &mut Core, block: &Superblock) -> Result<()> {
        core.log = Log::new(block);
        for segment in block.log {
            // The second one may be behind the end, until a frame is there.
            let is_there = segment < core.space.segment_count();
            if is_there && !core.space.claim_log(segment) {
                let at = core.space.segment_offset(segment);
                return Err(corrupt(self.media.name(), at, "the log is where something else is"));
            }
        }
        Ok(())
    }
}

/// Loads a checkpoint and its log up to `end`; `None` when they are not there any more.
///
/// # Errors
/// The device failed; or what is not there belongs to the newest checkpoint: then it is damaged.
pub(crate) fn load_to(
    media: &dyn Media,
    allocation: &dyn Allocation,
    end: LogEnd,
    releases: &Releases,
) -> Result<Option<Recovered>> {
    let Some(block) = of_epoch(media, end.epoch)? else {
        return check_late(media, end, Ok(None));
    };
    check_late(media, end, load_block(media, allocation, &block, end.number, releases))
}

/// What was loaded; `None` where it was not there because a later checkpoint is the newest.
fn check_late(
    media: &dyn Media,
    end: LogEnd,
    loaded: Result<Option<Recovered>>,
) -> Result<Option<Recovered>> {
    if !matches!(loaded, Ok(None) | Err(Error::Corrupt { .. })) {
        return loaded;
    }
    match (find_in(media)?, loaded) {
        (Found::Superblock(newest), _) if newest.epoch > end.epoch => Ok(None),
        (_, Ok(_)) => {
            let what = "a commit is gone that another process has made";
            Err(corrupt(media.name(), 0, what))
        }
        (_, damaged) => damaged,
    }
}

fn load_block(
    media: &dyn Media,
    allocation: &dyn Allocation,
    block: &Superblock,
    end: u64,
    releases: &Releases,
) -> Result<Option<Recovered>> {
    let mut loaded = recover_checkpoint(media, block, allocation, Arc::clone(releases))?;
    loaded.versions.get_mut().share();
    let newest = loaded.versions.get_mut().newest().0;
    loaded.core.shared = Some(SharedCore::new(*block, newest, places_of(&loaded.core.roots)));
    let following = Following { media, allocation, versions: &loaded.versions, is_loading: true };
    following.begin_log(&mut loaded.core, block)?;
    let is_there = following.read_on(&mut loaded.core, end, 0)?;
    Ok(is_there.then_some(loaded))
}

impl Engine {
    /// Applies what the writing process has committed up to `end`. Returns `false` when the file
    /// has no such log any more: `end` is not what the writer says now.
    ///
    /// # Errors
    /// The device failed, and it can be tried again; or the log does not fit to what was read
    /// before: then every read fails from now on.
    pub(crate) fn catch_up(&self, end: LogEnd) -> Result<bool> {
        self.check_process()?;
        let mut core = self.core.lock();
        let is_poisoned = self.poison.get().is_some();
        if is_poisoned && self.gated.as_ref().is_none_or(|gated| gated.gate.is_lost()) {
            // A log did not fit to what was read before.
            return Err(Error::Poisoned);
        }
        // Another thread may have been faster.
        if core.log.epoch > end.epoch
            || (core.log.epoch == end.epoch && core.log.number >= end.number)
        {
            return Ok(true);
        }
        // After a write that failed, what is in use here is not what the log says.
        let followed =
            if is_poisoned { self.reload(&mut core, end) } else { self.follow_to(&mut core, end) };
        followed.map_err(|error| match error {
            Error::Corrupt { .. } => {
                let _message = self.lose();
                self.poisoned(error)
            }
            error => error,
        })
    }

    /// Takes the segments by which another process has made the file longer for free.
    pub(super) fn see_growth(&self, core: &mut Core) -> Result<()> {
        self.following().see_growth(core)
    }

    fn following(&self) -> Following<'_> {
        let (media, versions) = (&*self.media, &self.versions);
        Following { media, allocation: self.allocation, versions, is_loading: false }
    }

    fn follow_to(&self, core: &mut Core, end: LogEnd) -> Result<bool> {
        let mut skipped = 0;
        // An opening skips some epochs: what another writer has recovered is freed in another way.
        let is_of_other = end.epoch - core.log.epoch > EPOCHS_TRIED_MAX;
        if is_of_other && !planted::is(Bug::LaggardNotReloaded) {
            return self.reload(core, end);
        }
        if core.log.epoch != end.epoch {
            let Some(block) = of_epoch(&*self.media, end.epoch)? else { return Ok(false) };
            let Some(carried) = self.follow_checkpoint(core, &block)? else {
                return self.reload(core, end);
            };
            skipped = if planted::is(Bug::CarriedAppliedTwice) { 0 } else { carried };
        }
        if self.following().read_on(core, end.number, skipped)? {
            return Ok(true);
        }
        self.reload(core, end)
    }

    /// Goes over to the log of the next checkpoint, and returns how many records that begins with
    /// which the older log had. `None` when the older log, or the checkpoint, is not there any
    /// more; then the state is not that of any log.
    fn follow_checkpoint(&self, core: &mut Core, block: &Superblock) -> Result<Option<usize>> {
        if !self.following().read_on(core, block.number, 0)? {
            return Ok(None);
        }
        let Some(mark) = core.shared.as_mut().and_then(|shared| shared.mark.take()) else {
            return Ok(None);
        };
        let (media, releases) = (&*self.media, &self.releases);
        let mut adoption = Adoption { media, space: &mut core.space, releases };
        let Some(roots) = adoption.adopt(block, &mark.roots)? else { return Ok(None) };
        let before = std::mem::take(&mut core.log.segments);
        self.following().begin_log(core, block)?;
        let newer = planted::is(Bug::FollowerFreesNewerDead);
        let dead = if newer { core.dead.len() } else { mark.dead };
        let carried = mark.carried;
        if let Some(shared) = &mut core.shared {
            shared.block = *block;
            shared.at = Position::first(block);
            shared.mark = Some(mark);
        }
        free_before(core, roots, block.roots, before, dead);
        self.releases.lock().clear();
        Ok(Some(carried))
    }

    /// Loads the checkpoint and its log, in place of what is in memory. Versions that are read here
    /// stay readable.
    fn reload(&self, core: &mut Core, end: LogEnd) -> Result<bool> {
        let Some(loaded) = load_to(&*self.media, self.allocation, end, &self.releases)? else {
            return Ok(false);
        };
        let Recovered { versions, core: new, .. } = loaded;
        let before = std::mem::take(&mut core.named);
        let has_thread = core.has_thread;
        *core = Core { has_thread, is_closed: core.is_closed, ..new };
        let names = |version| before.values().filter(|at| **at == version).count() as u64;
        let mut list = self.versions.lock();
        let old = std::mem::replace(&mut *list, versions.into_inner());
        list.keep_readers(old, names);
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
