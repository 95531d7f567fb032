//! What is freed where several processes have a store open, and when: a function of the log.
//!
//! The process that begins a checkpoint asks which versions processes read, and writes the record
//! "held" with them. A process that applies it purges all other versions, except the newest and
//! those with names, and so has the same dead slots as all others. When the checkpoint is the
//! newest, each frees the slots that were dead at the record, the nodes that only the checkpoint
//! before had, and the log before last.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::{Core, Engine};
use crate::error::{Result, corrupt, invalid};
use crate::log::creation::of_epoch;
use crate::log::record::{HELD_MAX, Held, Kept, Record, Unlisted};
use crate::log::shared::{HeldMark, KeptRoot, SharedCore};
use crate::meeting::cells;
use crate::options::Allocation as Kind;
use crate::place::Sector;
use crate::version::map::Root;
use crate::version::tree::{Node, NodeRef};
use crate::version::versions::Versions;

/// Whether a version is in one of the ranges, which ascend and do not overlap.
fn is_in(ranges: &[Held], version: u64) -> bool {
    let after = ranges.partition_point(|held| held.first <= version);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|held| version <= held.last)
}

/// Whether a range has one version, and that has a name: then it is in every checkpoint.
fn is_named(named: &BTreeSet<u64>, held: &Held) -> bool {
    held.first == held.last && named.contains(&held.first)
}

/// Ranges that have all versions of these and perhaps others, as a record has them: ascending,
/// apart, and not too many.
fn joined(mut ranges: Vec<Held>) -> Vec<Held> {
    ranges.sort_unstable();
    let mut out: Vec<Held> = Vec::new();
    for held in ranges {
        let is_full = out.len() == HELD_MAX;
        match out.last_mut().filter(|last| is_full || held.first <= last.last + 1) {
            Some(last) => last.last = last.last.max(held.last),
            None => out.push(held),
        }
    }
    out
}

/// Purges all versions but the newest, those with names and those that are `held`. Returns one that
/// is purged although it has readers here. Does nothing to a store that one process has: there the
/// readers themselves decide.
pub(crate) fn hold(core: &mut Core, versions: &Mutex<Versions>, held: &[Held]) -> Option<u64> {
    let loaded = core.shared.as_ref()?.loaded;
    let named: BTreeSet<u64> = core.named.values().copied().collect();
    let mut list = versions.lock();
    let lost = list.purge_except(|at| is_in(held, at) || named.contains(&at));
    core.dead.append(&mut list.take_dead());
    let roots = roots_to_keep(core, &list);
    let (dead, carried) = (core.dead.len(), usize::from(core.prepared.is_some()));
    let mut unnamed = held.iter().filter(|held| !is_named(&named, held));
    let is_complete = unnamed.next().is_none_or(|oldest| oldest.first >= loaded);
    if let Some(shared) = &mut core.shared {
        shared.mark = Some(HeldMark { roots, dead, carried, is_complete });
    }
    lost
}

/// The named versions and the newest, the oldest first.
pub(crate) fn roots_to_keep(core: &Core, versions: &Versions) -> Vec<KeptRoot> {
    let (newest, root) = versions.newest();
    let mut kept = vec![(Vec::new(), newest, Arc::clone(root))];
    for (name, version) in &core.named {
        let known = kept.iter_mut().find(|(_, at, _)| at == version);
        match (known, versions.root(*version)) {
            (Some((names, ..)), _) => names.push(Arc::clone(name)),
            (None, Some(root)) => {
                kept.push((vec![Arc::clone(name)], *version, Arc::clone(root)));
            }
            (None, None) => {}
        }
    }
    kept.sort_by_key(|(_, version, _)| *version);
    kept
}

/// The places of all nodes below some roots.
pub(crate) fn places_of(roots: &[Arc<Root>]) -> BTreeSet<Sector> {
    fn add(node: &Node, places: &mut BTreeSet<Sector>) {
        let is_known = node.home().get().is_some_and(|at| !places.insert(at.sector));
        if let Node::Inner(inner) = node
            && !is_known
        {
            inner.children.iter().flatten().for_each(|child| add(child, places));
        }
    }
    let mut places = BTreeSet::new();
    roots.iter().filter_map(|root| root.map.top.as_ref()).for_each(|top| add(top, &mut places));
    places
}

/// A checkpoint with these roots is the newest: frees what only the one before needed, of the dead
/// slots the first `dead`. `log_segments` are those of the log before.
pub(crate) fn free_before(
    core: &mut Core,
    roots: Vec<Arc<Root>>,
    roots_at: NodeRef,
    log_segments: Vec<u32>,
    dead: usize,
) {
    let nodes = places_of(&roots);
    let Some(shared) = &mut core.shared else { return };
    shared.is_complete |= shared.mark.take().is_some_and(|mark| mark.is_complete);
    if shared.is_complete {
        core.space.open_first();
    }
    let segments = std::mem::replace(&mut shared.log_before, log_segments);
    let before = std::mem::replace(&mut shared.nodes, nodes);
    let gone: Vec<Sector> = before.difference(&shared.nodes).copied().collect();
    for segment in segments {
        core.space.free_log(segment);
    }
    let at = std::mem::replace(&mut core.roots_at, roots_at);
    let dead = core.dead.drain(..dead.min(core.dead.len()));
    for sector in dead.chain(gone).chain((at.sector != Sector::NONE).then_some(at.sector)) {
        core.space.free(sector);
    }
    core.roots = roots;
}

/// Fails for a store that only one process may have open.
pub(super) fn check_sharing(kind: Kind) -> Result<()> {
    match kind {
        Kind::Slot => Ok(()),
        Kind::Segment => {
            invalid("with segment allocation one process has a store open: pages move")
        }
    }
}

impl Engine {
    /// From now on other processes may follow the log. Takes a checkpoint.
    pub(crate) fn share(&self) -> Result<()> {
        check_sharing(self.allocation.kind())?;
        let mut core = self.core.lock();
        core.is_for_many = true;
        self.checkpoint_core(&mut core)?;
        let Some(block) = of_epoch(&*self.media, core.log.epoch)? else {
            return Err(corrupt(self.media.name(), 0, "the newest superblock is not there"));
        };
        let released = std::mem::take(&mut *self.releases.lock());
        released.into_iter().for_each(|sector| core.space.free(sector));
        let nodes = places_of(&core.roots);
        let shared = SharedCore::new(block, 0, nodes);
        core.shared = Some(SharedCore { is_complete: true, ..shared });
        self.versions.lock().share();
        Ok(())
    }

    /// Where several processes have the store open: asks which versions they read, writes that, and
    /// purges the others. The record is durable with the checkpoint that follows.
    pub(crate) fn write_held(&self, core: &mut Core) -> Result<()> {
        let Some(held) = self.held(core)? else { return Ok(()) };
        let record = Record::Held(held.clone()).encode();
        self.ensure_segments(core, core.log.segments_for(record.len() as u64))?;
        self.append(core, &record)?;
        self.purge(core, &held)
    }

    /// Purges what no process reads without a record, for a checkpoint that all others load.
    pub(crate) fn purge_unheld(&self, core: &mut Core) -> Result<()> {
        match self.held(core)? {
            Some(held) => self.purge(core, &held),
            None => Ok(()),
        }
    }

    /// The record with which the log of the next checkpoint begins, so that who loads that knows
    /// all slots in use, or in which segments they may be; `None` where one process has the store
    /// open.
    pub(super) fn kept(&self, core: &mut Core) -> Option<Vec<u8>> {
        let segments = core.space.segment_count();
        let Some(shared) = &mut core.shared else {
            // No process has it open yet that reads an older version.
            return core.is_for_many.then(|| Record::Kept(Kept::default()).encode());
        };
        let mark = shared.mark.as_ref()?;
        let saved: Vec<u64> = mark.roots.iter().map(|(_, version, _)| *version).collect();
        let newest = saved.last().copied().unwrap_or_default();
        let (all, now) = (Unlisted::default(), Unlisted { before: newest, segments });
        // If the versions before are gone, or this process knows them, all can be listed.
        let is_known = shared.is_complete || mark.is_complete;
        let before = Some(shared.unlisted).filter(|unlisted| *unlisted != all);
        let tried = [is_known.then_some(all), before, Some(now)];
        for unlisted in tried.into_iter().flatten() {
            let mut versions = self.versions.lock().kept_between(unlisted.before, newest);
            let saved = saved.iter().filter(|version| **version >= unlisted.before);
            if versions.len() <= saved.count() {
                versions.clear();
            }
            let kept = Kept { log_before: core.log.named().0.to_vec(), versions, unlisted };
            let Some(record) = kept.fits().then(|| Record::Kept(kept).encode()) else { continue };
            // It counts as a part of the log, after so many bytes of which a checkpoint is due.
            if record.len() as u64 <= self.options.checkpoint_bytes / 4 || unlisted == now {
                shared.unlisted = unlisted;
                return Some(record);
            }
        }
        None
    }

    /// Whether a process reads a version that is older than the checkpoint which was loaded here.
    /// From now on readers that have begun before try again. Only who has the lock of the writing.
    pub(super) fn is_older_read(&self, core: &Core) -> Result<bool> {
        let loaded = core.shared.as_ref().map_or(0, |shared| shared.loaded);
        let named: BTreeSet<u64> = core.named.values().copied().collect();
        let held = self.held(core)?.unwrap_or_default();
        Ok(held.iter().any(|held| held.first < loaded && !is_named(&named, held)))
    }

    fn purge(&self, core: &mut Core, held: &[Held]) -> Result<()> {
        match hold(core, &self.versions, held) {
            None => Ok(()),
            Some(_lost) => {
                let what = "a version that is read here is not in the meeting file";
                let _message = self.lose();
                Err(self.poisoned(corrupt(self.media.name(), 0, what)))
            }
        }
    }

    /// Whether a version is read by a process, where several have the store open; where one has it,
    /// all that are in the list are. For people to look at.
    pub(crate) fn is_read(&self) -> impl Fn(u64) -> bool + use<> {
        let newest = self.versions.lock().newest().0;
        let read = self.member.as_ref().map(|member| {
            let (shared, store) = (member.shared(), member.store());
            let read = cells::read_now(shared, store, member.cell(), newest);
            joined(read.unwrap_or_else(|_| vec![Held { first: 0, last: newest }]))
        });
        move |version| {
            read.as_ref().is_none_or(|ranges| version >= newest || is_in(ranges, version))
        }
    }

    /// The versions that processes read, where several have the store open.
    fn held(&self, core: &Core) -> Result<Option<Vec<Held>>> {
        let Some(member) = self.member.as_ref().filter(|_| core.shared.is_some()) else {
            return Ok(None);
        };
        let newest = self.versions.lock().newest().0;
        let mut held = cells::held(member.shared(), member.store(), member.cell(), newest)?;
        held.retain(|held| held.first < newest);
        Ok(Some(joined(held)))
    }
}
