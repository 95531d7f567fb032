//! Application of records: what a record of the log changes in memory.
//!
//! [`apply`] takes the slots that a record names, publishes the version that it makes, and keeps
//! what is prepared and which versions have names. It reads and writes nothing on the device.
//! Recovery applies the records that it finds; an open engine can apply records that it did not
//! write itself, in their order, and its readers keep their versions.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::alloc::allocation::Allocation;
use crate::alloc::space::Space;
use crate::engine::{Core, Engine, Prepared};
use crate::log::hold::hold;
use crate::log::record::{Changes, Record};
use crate::place::{Class, Sector};
use crate::planted::{self, Bug};
use crate::version::map::Root;
use crate::version::versions::Versions;

/// The reason why a record cannot be applied; the state is then not that of any log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// The place in the file that it is about, in bytes, or 0.
    pub(crate) at: u64,
    pub(crate) what: &'static str,
}

impl Misfit {
    const fn new(what: &'static str) -> Self {
        Self { at: 0, what }
    }
}

/// Applies the record that follows the last one applied to `core` and `versions`. Holds `versions`
/// only for single steps.
///
/// # Errors
/// The record does not follow from those before it.
pub(crate) fn apply(
    core: &mut Core,
    versions: &Mutex<Versions>,
    allocation: &dyn Allocation,
    record: Record,
) -> Result<(), Misfit> {
    if let Some(mark) = core.shared.as_mut().and_then(|shared| shared.mark.as_mut()) {
        mark.carried += 1;
    }
    match (record, core.prepared.take()) {
        (Record::Commit(changes), None) => {
            claim_changes(core, versions, allocation, &changes)?;
            publish_newest(core, versions, &changes);
        }
        (Record::Prepare(name, changes), None) => {
            claim_changes(core, versions, allocation, &changes)?;
            core.prepared = Some(Prepared { name, changes });
        }
        (Record::Decide(true), Some(prepared)) => {
            publish_newest(core, versions, &prepared.changes);
        }
        (Record::Decide(false), Some(prepared)) => drop_changes(core, &prepared.changes),
        (Record::Pin(version, name), prepared) => {
            core.prepared = prepared;
            let mut versions = versions.lock();
            if versions.newest().0 != version || core.named.contains_key(&name) {
                return Err(Misfit::new("a record names a version that is not there"));
            }
            versions.pin_at(version);
            core.named.insert(name, version);
        }
        (Record::Unpin(name), prepared) => {
            core.prepared = prepared;
            match core.named.remove(&name) {
                Some(version) => versions.lock().unpin(version),
                None => return Err(Misfit::new("a record releases a name that is not there")),
            }
        }
        (Record::Held(held), prepared) => {
            core.prepared = prepared;
            if let Some(_lost) = hold(core, versions, &held) {
                let what = "a version that is read here was released by another process";
                return Err(Misfit::new(what));
            }
        }
        // What it says is for who loads the checkpoint.
        (Record::Kept(_), prepared) => core.prepared = prepared,
        _ => return Err(Misfit::new("a record does not follow from those before it")),
    }
    Ok(())
}

/// Checks changes and takes their slots.
fn claim_changes(
    core: &mut Core,
    versions: &Mutex<Versions>,
    allocation: &dyn Allocation,
    changes: &Changes,
) -> Result<(), Misfit> {
    {
        let versions = versions.lock();
        let (newest, root) = versions.newest();
        let same_size = changes.page_size == root.page_size || changes.is_new_map;
        let fits = u64::from(changes.page_size) <= core.space.segment_bytes();
        if changes.version != newest + 1 || !same_size || !fits {
            return Err(Misfit::new("a commit does not follow from the one before it"));
        }
    }
    let mut places = changes.places();
    let space = &mut core.space;
    places.try_for_each(|(page, at)| claim(space, allocation, page, at.slot, changes.page_size))
}

/// Takes the very slot that a page of this many bytes is in.
pub(crate) fn claim(
    space: &mut Space,
    allocation: &dyn Allocation,
    page: u32,
    slot: Sector,
    page_size: u32,
) -> Result<(), Misfit> {
    let class = Class::holding(page_size as usize);
    let claimed = class.is_some_and(|class| allocation.claim(space, slot, class, page));
    if claimed {
        return Ok(());
    }
    let what = "page at an unallocated offset, or at the offset of another page";
    Err(Misfit { at: slot.offset(), what })
}

/// Makes changes of the newest version the newest version.
fn publish_newest(core: &mut Core, versions: &Mutex<Versions>, changes: &Changes) {
    let base = Arc::clone(versions.lock().newest().1);
    publish(core, versions, changes, &base);
}

/// Makes the version that changes make of `base`, the newest, the newest one.
fn publish(core: &mut Core, versions: &Mutex<Versions>, changes: &Changes, base: &Root) {
    let applied = changes.apply(base);
    core.delta_bytes += applied.delta_bytes;
    core.live_slots += applied.slots;
    let root = Arc::new(applied.root);
    versions.lock().publish(changes.version, root, applied.replaced);
}

/// Drops a prepared transaction: its slots are dead.
pub(crate) fn drop_changes(core: &mut Core, changes: &Changes) {
    core.dead.extend(changes.slots().map(|entry| entry.slot));
}

impl Engine {
    /// Makes changes visible after their record has been written.
    pub(crate) fn publish(&self, core: &mut Core, changes: &Changes, base: &Root) {
        publish(core, &self.versions, changes, base);
        if planted::is(Bug::ReusedBeforeCheckpoint) {
            let dead = self.versions.lock().take_dead();
            dead.into_iter().for_each(|sector| core.space.free(sector));
        }
        self.counters.commits.add(1);
        self.announce(core);
    }
}

#[cfg(test)]
mod tests {
    use esker_device::memory::MemoryDevice;
    use esker_device::{Caching, Device, DeviceFile, Open};

    use super::*;
    use crate::log::creation::find_in;
    use crate::log::scan::scan;
    use crate::log::superblock::Found;
    use crate::media::FileMedia;
    use crate::{Allocation as Kind, Durability, Options, PageStore};

    const SEGMENT: u32 = 256 * 1024;

    /// Applies the records that the log in `file` has and `store` has not yet.
    fn follow(store: &PageStore, file: &Arc<dyn DeviceFile>) -> usize {
        let media = FileMedia::new(Arc::clone(file), SEGMENT);
        let Found::Superblock(block) = find_in(&media).unwrap() else { panic!("no store") };
        let engine = store.engine();
        let mut core = engine.core.lock();
        let records = scan(&media, &block).unwrap().records.into_iter();
        let new: Vec<_> = records.filter(|(number, _)| *number >= core.log.number).collect();
        for (number, record) in &new {
            apply(&mut core, &engine.versions, engine.allocation, record.clone()).unwrap();
            core.log.number = number + 1;
        }
        new.len()
    }

    fn commit(store: &PageStore, pages: std::ops::Range<u32>, byte: u8) {
        let mut writer = store.begin(&store.pin()).unwrap();
        for page in pages {
            let len = if page % 3 == 0 { 9 } else { 4096 };
            writer.write(page, 0, &vec![byte; len]).unwrap();
        }
        writer.commit(Durability::Full).unwrap();
    }

    fn contents(snapshot: &crate::Snapshot) -> Vec<Vec<u8>> {
        let page = |page| {
            let mut bytes = vec![0; 4096];
            snapshot.read(page, 0, &mut bytes).unwrap();
            bytes
        };
        (0..snapshot.pages()).map(page).collect()
    }

    /// An engine that applies the records of another has the same versions, names and space, and
    /// its readers keep theirs.
    #[test]
    fn an_open_engine_follows_the_log_of_another() {
        for allocation in [Kind::Slot, Kind::Segment] {
            let file =
                MemoryDevice::new().open("pages", Open::CreateNew, Caching::Buffered).unwrap();
            let options = Options { relaxed_interval: None, ..Options::default() };
            let options = options.segment_bytes(SEGMENT).allocation(allocation);
            let leader = PageStore::open(Arc::clone(&file), options.clone()).unwrap();
            let follower = PageStore::open_read_only(Arc::clone(&file), options).unwrap();
            assert_eq!(follow(&follower, &file), 0);
            commit(&leader, 0..10, 1);
            leader.pin_named("first").unwrap();
            assert_eq!(follow(&follower, &file), 2);
            let held = follower.pin();
            let before = contents(&held);
            commit(&leader, 3..8, 2);
            let mut writer = leader.begin(&leader.pin()).unwrap();
            writer.write(2, 0, &[3; 4096]).unwrap();
            writer.prepare(b"decision").unwrap();
            assert_eq!(follow(&follower, &file), 2);
            assert_eq!(follower.prepared().unwrap(), b"decision");
            writer.commit(Durability::Full).unwrap();
            commit(&leader, 0..12, 4);
            leader.unpin_named("first").unwrap();
            assert_eq!(follow(&follower, &file), 3);
            assert_eq!(follower.pin().version(), leader.pin().version());
            assert_eq!(contents(&follower.pin()), contents(&leader.pin()));
            assert_eq!(contents(&held), before);
            assert!(follower.at_named("first").is_err());
            let used = |store: &PageStore| store.engine().core.lock().space.used_bytes();
            assert_eq!(used(&follower), used(&leader));
            assert!(follower.check().unwrap().accounted);
        }
    }

    #[test]
    fn a_record_that_does_not_follow_is_refused() {
        let file = MemoryDevice::new().open("pages", Open::CreateNew, Caching::Buffered).unwrap();
        let store = PageStore::open(file, Options::default()).unwrap();
        let engine = store.engine();
        let mut core = engine.core.lock();
        for record in [Record::Decide(true), Record::Pin(7, "n".into()), Record::Unpin("n".into())]
        {
            let applied = apply(&mut core, &engine.versions, engine.allocation, record);
            assert_eq!(applied.unwrap_err().at, 0);
        }
    }
}
