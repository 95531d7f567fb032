//! The contents of a disk: names and files, as tables of sector numbers.
//!
//! A [`Unit`] is the smallest change that a crash can keep or lose. A unit can be undone, so that
//! thousands of crash states are made from one image without copying it.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::holes::Holes;
use super::sectors::{GARBAGE, SectorId, SectorStore, ZEROS};

/// A file, regardless of its name. Numbers are never reused.
pub(super) type InodeId = usize;

/// Names and the files they lead to.
pub(super) type Names = BTreeMap<Arc<str>, InodeId>;

/// One file.
///
/// Invariants, except between the units of one crash state: `sectors` covers exactly `len` bytes,
/// and the last sector is zero past `len`. Always: `digest` is the exclusive or over all sectors
/// of what [`digest_of`] says, so that equal contents have equal digests.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) len: u64,
    pub(super) sectors: Vec<SectorId>,
    digest: u64,
}

/// Names and files. Clones share until one of them changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) names: Arc<Names>,
    pub(super) inodes: Vec<Arc<Inode>>,
}

/// The smallest change that a crash keeps or loses.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unit {
    /// One sector gets new contents.
    Sector { inode: InodeId, sector: usize, id: SectorId },
    /// The file becomes at least `len` long.
    Extend { inode: InodeId, len: u64 },
    /// The file becomes at most `len` long; `tail` is its last sector with zeros past `len`.
    Cut { inode: InodeId, len: u64, tail: Option<SectorId> },
    /// A name refers to a new file.
    Link { name: Arc<str>, inode: InodeId },
    /// A name is removed.
    Unlink { name: Arc<str>, inode: InodeId },
    /// A file has another name and no older one.
    Move { to: Arc<str>, inode: InodeId },
}

/// The contents of new sectors that were never written.
#[derive(Clone, Debug)]
pub(super) enum Fill {
    Zeros,
    Garbage,
    /// The contents of another file at the same offset.
    Stale(Arc<Inode>),
}

impl Fill {
    fn at(&self, sector: usize) -> SectorId {
        match self {
            Self::Zeros => ZEROS,
            Self::Garbage => GARBAGE,
            Self::Stale(inode) => inode.sectors.get(sector).copied().unwrap_or(GARBAGE),
        }
    }
}

/// The information to undo one change of an [`Image`].
#[derive(Debug)]
pub(super) enum Undo {
    Sector { inode: InodeId, sector: usize, old: SectorId },
    Shape { inode: InodeId, len: u64, sector_count: usize },
    Inode { inode: InodeId, old: Arc<Inode> },
    Name { name: Arc<str>, old: Option<InodeId> },
}

/// The summand of one sector in a file's digest. Zeros add nothing, so that growth costs nothing.
fn digest_of(sector: usize, id: SectorId, store: &SectorStore) -> u64 {
    if id == ZEROS {
        return 0;
    }
    let seed = (sector as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let content = store.hash(id) ^ store.hash(ZEROS);
    // Contents of zeros under another number also add nothing: the factor is zero.
    content.wrapping_mul(seed | 1).rotate_left(29).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The number of sectors that `len` bytes take.
pub(super) fn sector_count(len: u64, store: &SectorStore) -> usize {
    usize::try_from(len.div_ceil(store.sector_bytes() as u64)).unwrap_or(usize::MAX)
}

/// Makes a name lead to `inode`, or nowhere. Returns where it led.
fn lead(names: &mut Names, name: &Arc<str>, inode: Option<InodeId>) -> Option<InodeId> {
    match inode {
        Some(inode) => names.insert(Arc::clone(name), inode),
        None => names.remove(name),
    }
}

impl Inode {
    fn set(&mut self, sector: usize, id: SectorId, store: &SectorStore) -> Option<SectorId> {
        let slot = self.sectors.get_mut(sector)?;
        let old = std::mem::replace(slot, id);
        self.digest ^= digest_of(sector, old, store) ^ digest_of(sector, id, store);
        Some(old)
    }

    fn reshape(&mut self, count: usize, fill: &Fill, store: &SectorStore) {
        for sector in count..self.sectors.len() {
            self.digest ^= digest_of(sector, self.sectors[sector], store);
        }
        self.sectors.truncate(count);
        self.sectors.reserve(count - self.sectors.len());
        for sector in self.sectors.len()..count {
            let id = fill.at(sector);
            self.digest ^= digest_of(sector, id, store);
            self.sectors.push(id);
        }
    }

    /// Copies `buf.len()` bytes from `offset`; the range must be within the sectors.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8], store: &SectorStore) {
        let sector_bytes = store.sector_bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let (mut sector, mut skip) = (start / sector_bytes, start % sector_bytes);
        let mut rest = buf;
        while !rest.is_empty() {
            let take = rest.len().min(sector_bytes - skip);
            let (now, later) = rest.split_at_mut(take);
            let id = self.sectors.get(sector).copied().unwrap_or(ZEROS);
            now.copy_from_slice(&store.get(id)[skip..skip + take]);
            (rest, sector, skip) = (later, sector + 1, 0);
        }
    }

    /// The whole contents.
    pub(super) fn contents(&self, store: &SectorStore) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).unwrap_or(0)];
        self.read(0, &mut bytes, store);
        bytes
    }
}

impl Image {
    /// The file `inode`, empty if it was never changed.
    pub(super) fn inode(&self, inode: InodeId) -> Arc<Inode> {
        self.inodes.get(inode).cloned().unwrap_or_default()
    }

    pub(super) fn inode_mut(&mut self, inode: InodeId) -> &mut Inode {
        if self.inodes.len() <= inode {
            self.inodes.resize_with(inode + 1, Arc::default);
        }
        Arc::make_mut(&mut self.inodes[inode])
    }

    /// Bytes taken by the files that have a name, in whole sectors.
    pub(super) fn used_bytes(&self, store: &SectorStore) -> u64 {
        let sectors = |inode: &InodeId| self.inodes.get(*inode).map_or(0, |i| i.sectors.len());
        self.names.values().map(|inode| (sectors(inode) * store.sector_bytes()) as u64).sum()
    }

    /// Makes one change; `undo` gets the entry that reverts it.
    pub(super) fn apply(
        &mut self,
        unit: &Unit,
        fill: &Fill,
        store: &SectorStore,
        undo: Option<&mut Vec<Undo>>,
    ) {
        match unit {
            Unit::Sector { inode, sector, id } => {
                self.apply_sector(*inode, *sector, *id, fill, store, undo);
            }
            Unit::Extend { inode, len } => {
                let file = self.inode_mut(*inode);
                if let Some(undo) = undo {
                    let (len, sector_count) = (file.len, file.sectors.len());
                    undo.push(Undo::Shape { inode: *inode, len, sector_count });
                }
                file.len = file.len.max(*len);
                let count = file.sectors.len().max(sector_count(file.len, store));
                file.reshape(count, fill, store);
            }
            Unit::Cut { inode, len, tail } => {
                if let Some(undo) = undo {
                    undo.push(Undo::Inode { inode: *inode, old: self.inode(*inode) });
                }
                let file = self.inode_mut(*inode);
                file.len = file.len.min(*len);
                let count = file.sectors.len().min(sector_count(*len, store));
                file.reshape(count, fill, store);
                if let (Some(tail), Some(last)) = (tail, sector_count(*len, store).checked_sub(1)) {
                    file.set(last, *tail, store);
                }
            }
            Unit::Link { .. } | Unit::Unlink { .. } | Unit::Move { .. } => {
                self.apply_name(unit, undo);
            }
        }
    }

    fn apply_sector(
        &mut self,
        inode: InodeId,
        sector: usize,
        id: SectorId,
        fill: &Fill,
        store: &SectorStore,
        mut undo: Option<&mut Vec<Undo>>,
    ) {
        let file = self.inode_mut(inode);
        if sector >= file.sectors.len() {
            if let Some(undo) = &mut undo {
                let (len, sector_count) = (file.len, file.sectors.len());
                undo.push(Undo::Shape { inode, len, sector_count });
            }
            file.reshape(sector + 1, fill, store);
        }
        if let (Some(old), Some(undo)) = (file.set(sector, id, store), undo) {
            undo.push(Undo::Sector { inode, sector, old });
        }
    }

    fn apply_name(&mut self, unit: &Unit, undo: Option<&mut Vec<Undo>>) {
        let names = Arc::make_mut(&mut self.names);
        let mut undone = Vec::new();
        let mut change = |names: &mut Names, name: &Arc<str>, new: Option<InodeId>| {
            let old = lead(names, name, new);
            undone.push(Undo::Name { name: Arc::clone(name), old });
        };
        match unit {
            Unit::Link { name, inode } => change(names, name, Some(*inode)),
            Unit::Unlink { name, inode } => {
                if names.get(name) == Some(inode) {
                    change(names, name, None);
                }
            }
            Unit::Move { to, inode } => {
                // A file never has two names: an earlier move that the crash lost must not leave
                // the name that it would have taken away.
                let leads_here = |(name, other): (&Arc<str>, &InodeId)| {
                    (other == inode).then(|| Arc::clone(name))
                };
                let older: Vec<Arc<str>> = names.iter().filter_map(leads_here).collect();
                for name in &older {
                    change(names, name, None);
                }
                change(names, to, Some(*inode));
            }
            Unit::Sector { .. } | Unit::Extend { .. } | Unit::Cut { .. } => {}
        }
        if let Some(undo) = undo {
            undo.append(&mut undone);
        }
    }

    /// Restores the invariants of a file after some of its changes were lost.
    pub(super) fn apply_crash(
        &mut self,
        inode: InodeId,
        fill: &Fill,
        store: &mut SectorStore,
        undo: &mut Vec<Undo>,
    ) {
        let file = self.inode(inode);
        let count = sector_count(file.len, store);
        let sector_bytes = store.sector_bytes();
        // The remainder is below the length of a sector.
        let tail_bytes = usize::try_from(file.len % sector_bytes as u64).unwrap_or(0);
        let mut tail = None;
        if tail_bytes > 0
            && let Some(id) = file.sectors.get(count - 1)
            && store.get(*id)[tail_bytes..].iter().any(|byte| *byte != 0)
        {
            let mut sector = store.get(*id).to_vec();
            sector[tail_bytes..].fill(0);
            tail = Some(store.push(&sector));
        }
        if file.sectors.len() == count && tail.is_none() {
            return;
        }
        undo.push(Undo::Inode { inode, old: file });
        let file = self.inode_mut(inode);
        file.reshape(count, fill, store);
        if let Some(tail) = tail {
            file.set(count - 1, tail, store);
        }
    }

    /// Reverts changes, the last first.
    pub(super) fn undo(&mut self, undo: &mut Vec<Undo>, store: &SectorStore) {
        while let Some(step) = undo.pop() {
            match step {
                Undo::Sector { inode, sector, old } => {
                    self.inode_mut(inode).set(sector, old, store);
                }
                Undo::Shape { inode, len, sector_count } => {
                    let file = self.inode_mut(inode);
                    file.len = len;
                    file.reshape(sector_count, &Fill::Zeros, store);
                }
                Undo::Inode { inode, old } => self.inodes[inode] = old,
                Undo::Name { name, old } => {
                    lead(Arc::make_mut(&mut self.names), &name, old);
                }
            }
        }
    }

    /// A number that is equal for images with equal names and contents, and nearly surely
    /// different for others.
    pub(super) fn digest(&self) -> u64 {
        let file = |(name, inode): (&Arc<str>, &InodeId)| {
            let inode = self.inode(*inode);
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&inode.digest.to_le_bytes());
            bytes[8..].copy_from_slice(&inode.len.to_le_bytes());
            xxh3_64_with_seed(&bytes, xxh3_64(name.as_bytes()))
        };
        self.names.iter().map(file).fold(0, |all, one| all ^ one)
    }
}

/// The whole contents of a simulated disk. Clones share memory.
#[derive(Clone, Debug)]
pub struct SimImage {
    pub(super) image: Image,
    pub(super) store: SectorStore,
    /// The discarded ranges of a running disk; a crash forgets them, and then everything takes
    /// room.
    pub(super) holes: Holes,
}

impl SimImage {
    /// A disk of 512-byte sectors with these files.
    #[must_use]
    pub fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Self {
        Self::from_files_with(files, 512)
    }

    /// A disk with these files and sectors of `sector_bytes`.
    #[must_use]
    pub fn from_files_with(files: &BTreeMap<String, Vec<u8>>, sector_bytes: usize) -> Self {
        let mut store = SectorStore::new(sector_bytes.max(1));
        let mut image = Image::default();
        let mut sector_buf = vec![0; store.sector_bytes()];
        for (inode, (name, bytes)) in files.iter().enumerate() {
            let link = Unit::Link { name: name.as_str().into(), inode };
            let extend = Unit::Extend { inode, len: bytes.len() as u64 };
            image.apply(&link, &Fill::Zeros, &store, None);
            image.apply(&extend, &Fill::Zeros, &store, None);
            for (sector, chunk) in bytes.chunks(store.sector_bytes()).enumerate() {
                sector_buf.fill(0);
                sector_buf[..chunk.len()].copy_from_slice(chunk);
                let id = store.push(&sector_buf);
                image.apply(&Unit::Sector { inode, sector, id }, &Fill::Zeros, &store, None);
            }
        }
        store.freeze();
        Self { image, store, holes: Holes::default() }
    }

    /// All files with their contents.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let contents = |inode: &InodeId| self.image.inode(*inode).contents(&self.store);
        self.image.names.iter().map(|(name, inode)| (name.to_string(), contents(inode))).collect()
    }

    /// Equal for images with equal names and contents.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.image.digest()
    }

    /// Damages the medium: changes the bits of `mask` in one byte. Nothing happens past the end.
    pub fn flip(&mut self, file: &str, offset: u64, mask: u8) {
        if let Some(inode) = self.image.names.get(file).copied()
            && let Some(unit) = flipped(&self.image, inode, offset, mask, &mut self.store)
        {
            self.image.apply(&unit, &Fill::Zeros, &self.store, None);
        }
    }
}

/// The change that flips bits of one byte of a file as it is in `image`; `None` past its end.
pub(super) fn flipped(
    image: &Image,
    inode: InodeId,
    offset: u64,
    mask: u8,
    store: &mut SectorStore,
) -> Option<Unit> {
    let file = image.inode(inode);
    if offset >= file.len {
        return None;
    }
    let offset = usize::try_from(offset).ok()?;
    let (sector, at) = (offset / store.sector_bytes(), offset % store.sector_bytes());
    let mut bytes = store.get(*file.sectors.get(sector)?).to_vec();
    bytes[at] ^= mask;
    Some(Unit::Sector { inode, sector, id: store.push(&bytes) })
}
