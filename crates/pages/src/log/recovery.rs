//! Recovery: the newest checkpoint, then the log's records in order up to the first gap.
//!
//! A record is a commit when its frames are whole and, unless it is known to be durable, its pages
//! match their checksums: a commit is written in no order within itself.
//!
//! No number in the file is trusted: every slot that a record names must be in the file, aligned,
//! and named only once.

use std::convert::Infallible;
use std::sync::Arc;

use esker_device::Purpose;
use parking_lot::Mutex;

use crate::alloc::allocation::Allocation;
use crate::alloc::space::Space;
use crate::engine::Core;
use crate::error::{Error, Result, corrupt, invalid};
use crate::log::apply::{Misfit, apply, claim};
use crate::log::checkpoint::EPOCHS_TRIED_MAX;
use crate::log::frames::Log;
use crate::log::loader::Loader;
use crate::log::record::Record;
use crate::log::scan::{Scan, scan};
use crate::log::superblock::Superblock;
use crate::media::Media;
use crate::place::{SECTOR_BYTES, Sector};
use crate::planted::{self, Bug};
use crate::version::map::{Map, Root};
use crate::version::mapping::Mapping;
use crate::version::node::RootRef;
use crate::version::tree::Releases;
use crate::version::versions::{Replaced, Versions};

/// The state of a store as its checkpoint and its log have it.
pub(crate) struct Recovered {
    pub(super) versions: Mutex<Versions>,
    pub(super) releases: Releases,
    pub(super) core: Core,
}

/// Loads a checkpoint and applies the log. Says whether there was anything in it.
pub(super) fn recover(
    media: &dyn Media,
    block: &Superblock,
    allocation: &dyn Allocation,
    is_read_only: bool,
) -> Result<(Recovered, bool)> {
    let releases = Releases::default();
    let (mut replay, roots) = Replay::load(media, block, allocation, &releases)?;
    let mut scan = scan(media, block)?;
    if is_read_only && planted::is(Bug::LogNotRead) {
        scan.records.clear();
    }
    replay.log_segments(&scan)?;
    let log_bytes = scan.frames.iter().map(|(_, bytes)| bytes).sum();
    let found = replay.records(scan)?;
    let Replay { versions, mut core, .. } = replay;
    core.log.bytes = if found { log_bytes } else { 0 };
    core.roots = roots;
    Ok((Recovered { versions, releases, core }, found))
}

/// Loads the checkpoint alone, for a store that several processes have open.
pub(super) fn recover_checkpoint(
    media: &dyn Media,
    block: &Superblock,
    allocation: &dyn Allocation,
    releases: Releases,
) -> Result<Recovered> {
    let (replay, roots) = Replay::load(media, block, allocation, &releases)?;
    let Replay { versions, mut core, .. } = replay;
    core.roots = roots;
    Ok(Recovered { versions, releases, core })
}

/// The segments in a file of this length; `None` where addresses do not reach all of them.
pub(super) fn segments_in(bytes: u64, segment_bytes: u32) -> Option<u32> {
    let segments = u32::try_from(bytes / u64::from(segment_bytes)).ok()?;
    (segments <= u32::MAX / (segment_bytes / SECTOR_BYTES as u32)).then_some(segments)
}

/// Builds up the state of a store.
struct Replay<'a> {
    media: &'a dyn Media,
    allocation: &'a dyn Allocation,
    versions: Mutex<Versions>,
    core: Core,
}

impl<'a> Replay<'a> {
    /// Loads a checkpoint; also gives its versions, the oldest first.
    fn load(
        media: &'a dyn Media,
        block: &Superblock,
        allocation: &'a dyn Allocation,
        releases: &Releases,
    ) -> Result<(Self, Vec<Arc<Root>>)> {
        // Before anything is allocated for them.
        let Some(segments) = segments_in(media.bytes()?, block.segment_bytes) else {
            return invalid("the file is longer than 2 TiB: it cannot be opened");
        };
        let space = Space::loading(block.segment_bytes, segments);
        let mut loader = Loader::new(media, space, Arc::clone(releases));
        let roots = loader.roots(block)?;
        // The last process that had it open may have tried to begin some.
        let tried = if planted::is(Bug::EpochUsedTwice) { 0 } else { EPOCHS_TRIED_MAX };
        let core = Core::new(loader.into_space(), Log::new(block), block.epoch + tried + 1);
        let core = Core { is_for_many: block.is_shared, ..core };
        let mut replay = Self { media, allocation, versions: loaded_versions(&roots), core };
        replay.roots(&roots)?;
        replay.core.space.loaded();
        replay.core.roots_at = block.roots;
        Ok((replay, roots.into_iter().map(|(_, root)| root).collect()))
    }

    fn misfit(&self, misfit: Misfit) -> Error {
        corrupt(self.media.name(), misfit.at, misfit.what)
    }

    /// Claims the slots of all versions of the checkpoint, the newest first: of an older one those
    /// that the next one has not.
    fn roots(&mut self, roots: &[(RootRef, Arc<Root>)]) -> Result<()> {
        let mut newer: Option<&Arc<Root>> = None;
        for (at, root) in roots.iter().rev() {
            let none = Map::default();
            let same_size = newer.filter(|newer| newer.page_size == root.page_size);
            let next = same_size.map_or(&none, |newer| &newer.map);
            let mut lost = Replaced::new();
            let mut count = 0;
            root.map.for_each_lost(next, &mut |page, slot| {
                if page >= root.pages {
                    let what = "a page is outside its database";
                    return Err(corrupt(self.media.name(), slot.offset(), what));
                }
                count += 1;
                if newer.is_some() {
                    lost.insert(page, slot);
                }
                claim(&mut self.core.space, self.allocation, page, slot, root.page_size)
                    .map_err(|misfit| corrupt(self.media.name(), misfit.at, misfit.what))
            })?;
            if let Some(newer) = newer {
                let mut gained = |page, _| -> std::result::Result<(), Infallible> {
                    lost.entry(page).or_insert(Sector::NONE);
                    Ok(())
                };
                match newer.map.for_each_lost(&root.map, &mut gained) {
                    Ok(()) => self.versions.get_mut().prepend(at.version, Arc::clone(root), lost),
                }
            } else {
                self.core.live_slots = count;
            }
            for name in &at.names {
                self.versions.get_mut().pin_at(at.version);
                self.core.named.insert(Arc::clone(name), at.version);
            }
            newer = Some(root);
        }
        self.core.delta_bytes = delta_bytes(self.versions.get_mut().newest().1);
        Ok(())
    }

    fn log_segments(&mut self, scan: &Scan) -> Result<()> {
        // The last one may not be there: the file had grown and lost its new length in a crash.
        for segment in &scan.segments {
            self.core.space.claim_log(*segment);
        }
        self.core.log.segments.clone_from(&scan.segments);
        let (space, unit) = (&mut self.core.space, self.core.log.unit);
        for (offset, bytes) in &scan.frames {
            if !self.allocation.claim_frame(space, *offset, *bytes, unit) {
                let what = "a commit record is where something else is";
                return Err(corrupt(self.media.name(), *offset, what));
            }
        }
        Ok(())
    }

    /// Applies records up to the first whose pages are missing. Returns whether there was any.
    fn records(&mut self, scan: Scan) -> Result<bool> {
        let mut found = false;
        for (number, record) in scan.records {
            let is_sure = number <= scan.durable;
            let is_checked = !is_sure && !planted::is(Bug::PagesNotVerified);
            if is_checked && !self.has_pages(&record)? {
                break;
            }
            // It is a part of the checkpoint.
            found |= !matches!(record, Record::Kept(_));
            apply(&mut self.core, &self.versions, self.allocation, record)
                .map_err(|misfit| self.misfit(misfit))?;
            self.core.log.number = number + 1;
        }
        self.core.durable = scan.durable;
        Ok(found)
    }

    /// Whether the pages of a record match their checksums.
    fn has_pages(&self, record: &Record) -> Result<bool> {
        let (Record::Commit(changes) | Record::Prepare(_, changes)) = record else {
            return Ok(true);
        };
        if changes.are_pages_durable {
            return Ok(true);
        }
        let len = self.media.bytes()?;
        let mut page = vec![0; changes.page_size as usize];
        for entry in changes.slots() {
            if entry.slot.offset() + u64::from(changes.page_size) > len {
                return Ok(false);
            }
            self.media.read(entry.slot.offset(), &mut page, Purpose::Recovery)?;
            if crc32c::crc32c(&page) != entry.crc {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn loaded_versions(roots: &[(RootRef, Arc<Root>)]) -> Mutex<Versions> {
    Mutex::new(match roots.last() {
        Some((newest, root)) => Versions::new(newest.version, Arc::clone(root)),
        None => Versions::new(0, Arc::new(Root::empty(512))),
    })
}

fn delta_bytes(root: &Root) -> i64 {
    let mut total = 0;
    let mut visit = |_, mapping: &Mapping| -> std::result::Result<(), Infallible> {
        total += mapping.delta.as_ref().map_or(0, |delta| delta.len() as i64);
        Ok(())
    };
    match root.map.for_each(&mut visit) {
        Ok(()) => total,
    }
}

#[cfg(test)]
mod tests;
