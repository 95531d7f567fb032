//! Dropping contents that nothing refers to, so that a long run does not grow without end.
//!
//! Only while nothing is recorded: a trace refers to everything.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::disk::{Change, Disk, Subject};
use super::image::{Image, Inode, InodeId, Unit};
use super::sectors::{GARBAGE, SectorId, SectorStore, ZEROS};

/// Below this many sectors there is nothing to gain.
pub(super) const LEAST_SECTORS: usize = 64 << 10;

/// Contents that are needed, numbered anew. Files that images share stay shared.
struct Mover<'a> {
    from: &'a SectorStore,
    to: SectorStore,
    ids: HashMap<SectorId, SectorId>,
    inodes: HashMap<usize, Arc<Inode>>,
}

impl Mover<'_> {
    fn id(&mut self, id: SectorId) -> SectorId {
        if id == ZEROS || id == GARBAGE {
            return id;
        }
        *self.ids.entry(id).or_insert_with(|| self.to.push(self.from.get(id)))
    }

    fn inode(&mut self, inode: &Arc<Inode>) -> Arc<Inode> {
        // The old files live until all are moved, so that an address means one file.
        let address = Arc::as_ptr(inode).addr();
        if let Some(moved) = self.inodes.get(&address) {
            return Arc::clone(moved);
        }
        let mut moved = inode.as_ref().clone();
        for id in &mut moved.sectors {
            *id = self.id(*id);
        }
        let moved = Arc::new(moved);
        self.inodes.insert(address, Arc::clone(&moved));
        moved
    }

    fn image(&mut self, image: &Image, is_needed: impl Fn(InodeId) -> bool) -> Image {
        let keep = |(inode, file): (InodeId, &Arc<Inode>)| {
            if is_needed(inode) { self.inode(file) } else { Arc::default() }
        };
        let inodes = image.inodes.iter().enumerate().map(keep).collect();
        Image { names: Arc::clone(&image.names), inodes }
    }

    fn change(&mut self, change: &Change) -> Arc<Change> {
        let mut units = change.units.clone();
        for unit in &mut units {
            match unit {
                Unit::Sector { id, .. } | Unit::Cut { tail: Some(id), .. } => *id = self.id(*id),
                _ => {}
            }
        }
        Arc::new(Change { kind: change.kind, subject: change.subject, units })
    }
}

impl Disk {
    /// Drops contents that no image and no pending change has, and files that have no name, are
    /// not in `open`, and can get no name by a crash. Returns how many sectors are left.
    pub(super) fn compact(&mut self, open: &BTreeSet<InodeId>) -> usize {
        let mut needed = open.clone();
        for image in [Some(&self.live), Some(&self.durable), self.previous.as_ref()] {
            needed.extend(image.into_iter().flat_map(|image| image.names.values()));
        }
        for unit in self.pending.iter().flat_map(|change| &change.units) {
            if let Unit::Link { inode, .. }
            | Unit::Unlink { inode, .. }
            | Unit::Move { inode, .. } = unit
            {
                needed.insert(*inode);
            }
        }
        let is_needed = |inode: InodeId| needed.contains(&inode);
        self.pending.retain(|change| match change.subject {
            Subject::File(inode) => is_needed(inode),
            Subject::Folder => true,
        });
        let mut mover = Mover {
            from: &self.store,
            to: SectorStore::new(self.store.sector_bytes()),
            ids: HashMap::new(),
            inodes: HashMap::new(),
        };
        let live = mover.image(&self.live, is_needed);
        let durable = mover.image(&self.durable, is_needed);
        let previous = self.previous.as_ref().map(|image| mover.image(image, is_needed));
        let pending = self.pending.iter().map(|change| mover.change(change)).collect();
        let store = mover.to;
        *self = Self { store, live, durable, pending, previous };
        self.store.len()
    }
}
