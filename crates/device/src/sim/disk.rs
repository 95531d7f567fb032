//! The live image, the durable image, and the changes between them.

use std::sync::Arc;

use super::fault::{OpKind, SyncLoss};
use super::image::{Fill, Image, InodeId, Unit, flipped, sector_count};
use super::sectors::{SectorStore, ZEROS};

/// The file or folder whose sync makes a change durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    File(InodeId),
    Folder,
}

/// The units of one operation. A crash keeps or loses each of them separately.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) kind: OpKind,
    pub(super) subject: Subject,
    pub(super) units: Vec<Unit>,
}

/// A running disk.
///
/// Invariants: `live` is `durable` with all of `pending` applied in order, except for changes that
/// a failed sync marked clean (in `live` only) and damage (in both). Neither of these is pending.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) store: SectorStore,
    pub(super) live: Image,
    pub(super) durable: Image,
    pub(super) pending: Vec<Arc<Change>>,
    /// Each file as it was durable before its last sync, if it was asked for.
    pub(super) previous: Option<Image>,
}

impl Disk {
    /// A disk after a restart: all its contents are durable.
    pub(super) fn at_rest(image: Image, store: SectorStore) -> Self {
        Self { store, live: image.clone(), durable: image, pending: Vec::new(), previous: None }
    }

    /// Makes the change in the live image and leaves it pending.
    pub(super) fn change(
        &mut self,
        kind: OpKind,
        subject: Subject,
        units: Vec<Unit>,
    ) -> Arc<Change> {
        for unit in &units {
            self.live.apply(unit, &Fill::Zeros, &self.store, None);
        }
        let change = Arc::new(Change { kind, subject, units });
        if !change.units.is_empty() {
            self.pending.push(Arc::clone(&change));
        }
        change
    }

    /// The units of writing `buf` at `offset`. The end must fit 64 bits.
    pub(super) fn write_units(&mut self, inode: InodeId, offset: u64, buf: &[u8]) -> Vec<Unit> {
        let file = self.live.inode(inode);
        let end = offset + buf.len() as u64;
        let sector_bytes = self.store.sector_bytes();
        let mut units = Vec::with_capacity(buf.len() / sector_bytes + 3);
        if end > file.len {
            units.push(Unit::Extend { inode, len: end });
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let (mut sector, mut skip) = (start / sector_bytes, start % sector_bytes);
        let mut rest = buf;
        let mut whole = Vec::new();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(sector_bytes - skip));
            let id = if now.len() == sector_bytes {
                self.store.push(now)
            } else {
                let old = file.sectors.get(sector).copied().unwrap_or(ZEROS);
                whole.clear();
                whole.extend_from_slice(self.store.get(old));
                whole[skip..skip + now.len()].copy_from_slice(now);
                self.store.push(&whole)
            };
            units.push(Unit::Sector { inode, sector, id });
            (rest, sector, skip) = (later, sector + 1, 0);
        }
        units
    }

    /// The units of truncating a file to `len`; none when it is not longer.
    pub(super) fn cut_units(&mut self, inode: InodeId, len: u64) -> Vec<Unit> {
        let file = self.live.inode(inode);
        if file.len <= len {
            return Vec::new();
        }
        // The remainder is below the length of a sector.
        let tail_bytes = usize::try_from(len % self.store.sector_bytes() as u64).unwrap_or(0);
        let last = sector_count(len, &self.store).checked_sub(1);
        let mut tail = None;
        if tail_bytes > 0
            && let Some(id) = last.and_then(|last| file.sectors.get(last))
        {
            let mut sector = self.store.get(*id).to_vec();
            sector[tail_bytes..].fill(0);
            tail = Some(self.store.push(&sector));
        }
        vec![Unit::Cut { inode, len, tail }]
    }

    /// The units of discarding the whole sectors of a range.
    pub(super) fn discard_units(&self, inode: InodeId, offset: u64, len: u64) -> Vec<Unit> {
        let file = self.live.inode(inode);
        let sector_bytes = self.store.sector_bytes() as u64;
        let end = offset.saturating_add(len);
        let past = if end >= file.len { u64::MAX } else { end / sector_bytes };
        let first = offset.div_ceil(sector_bytes);
        let sectors =
            (first..past.min(file.sectors.len() as u64)).filter_map(|s| s.try_into().ok());
        let held = sectors.filter(|sector: &usize| file.sectors.get(*sector) != Some(&ZEROS));
        held.map(|sector| Unit::Sector { inode, sector, id: ZEROS }).collect()
    }

    /// Makes all pending changes of the subject durable.
    pub(super) fn sync(&mut self, subject: Subject) {
        if let (Some(previous), Subject::File(inode)) = (&mut self.previous, subject) {
            *previous.inode_mut(inode) = self.durable.inode(inode).as_ref().clone();
        }
        let is_due = |change: &mut Arc<Change>| change.subject == subject;
        for change in self.pending.extract_if(.., is_due) {
            for unit in &change.units {
                self.durable.apply(unit, &Fill::Zeros, &self.store, None);
            }
        }
    }

    /// Applies the effect of a failed sync.
    pub(super) fn fail_sync(&mut self, subject: Subject, loss: SyncLoss) {
        match loss {
            SyncLoss::Landed => self.sync(subject),
            SyncLoss::Cached => self.pending.retain(|change| change.subject != subject),
            SyncLoss::Dropped => {
                self.pending.retain(|change| change.subject != subject);
                match subject {
                    Subject::File(inode) => {
                        *self.live.inode_mut(inode) = self.durable.inode(inode).as_ref().clone();
                    }
                    Subject::Folder => self.live.names = Arc::clone(&self.durable.names),
                }
            }
        }
    }

    /// Flips bits of the medium: in the durable contents, and so in reads of them.
    pub(super) fn flip(&mut self, inode: InodeId, offset: u64, mask: u8) {
        for image in [&mut self.live, &mut self.durable] {
            if let Some(unit) = flipped(image, inode, offset, mask, &mut self.store) {
                image.apply(&unit, &Fill::Zeros, &self.store, None);
            }
        }
    }

    /// Reads the contents that were durable before the last sync, zeros where there were none.
    pub(super) fn read_stale(&self, inode: InodeId, offset: u64, buf: &mut [u8]) {
        let is_dirty = self.pending.iter().any(|change| change.subject == Subject::File(inode));
        let image = match &self.previous {
            Some(previous) if !is_dirty => previous,
            _ => &self.durable,
        };
        image.inode(inode).read(offset, buf, &self.store);
    }
}
