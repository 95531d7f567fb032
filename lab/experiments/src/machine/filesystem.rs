//! Files on the device: names, lengths, and where their blocks are.
//!
//! **Two ways.** A *cached* file is in the page cache, as all files of the unmodified SQLite:
//! reads take no device time, writes wait for a sync, which gives new blocks their places (delayed
//! allocation) and writes runs of neighbouring blocks. A *direct* file is read from the device and
//! written to it at once, in transactions, as the databases of X-FTL and MV-FTL.
//!
//! **Metadata of a transaction.** The blocks of metadata that it changes are written at their
//! places and belong to the transaction, as in the file system that X-FTL's authors extended; the
//! journal has no part in it. (The paper does not say.)
//!
//! Space is given out in pages of the flash, the lowest first. Deleting trims nothing: ext4 does
//! not without an option.

use std::collections::{BTreeMap, BTreeSet};

use esker_flash::ftl::TxId;
use esker_flash::{Error, Result};

use super::disk::{BLOCK_BYTES, Disk, PAGE_BLOCKS, PAGE_BYTES, Purpose};
use super::journal::{DATA_AT, Journal, Meta};

/// A file, by its number, which is not used again.
pub type FileId = u64;

/// Blocks of the largest command.
const RUN_BLOCKS: u32 = 64;

/// A file.
#[derive(Debug, Default)]
struct Inode {
    len: u64,
    /// The first block of each flash page of the file, where it has one.
    places: Vec<Option<u32>>,
    /// The content of a cached file: `len` bytes.
    cached: Option<Vec<u8>>,
    /// Blocks of a cached file that are not on the device, by their number in the file.
    dirty: BTreeSet<u32>,
    /// Flash pages of the file that have a place ahead of their first write.
    unwritten: BTreeSet<usize>,
}

/// The file system.
#[derive(Debug)]
pub struct FileSystem {
    /// The device.
    pub disk: Disk,
    journal: Journal,
    names: BTreeMap<String, FileId>,
    inodes: BTreeMap<FileId, Inode>,
    next_id: FileId,
    /// Places that were given back.
    free: BTreeSet<u32>,
    /// The first place that was never given out.
    fresh: u32,
    /// Metadata that open transactions have changed.
    of_transactions: BTreeMap<TxId, BTreeSet<Meta>>,
}

fn missing(id: FileId) -> Error {
    Error::InvalidArgument(format!("file {id} is deleted: open it again"))
}

fn block_of(offset: u64) -> u32 {
    u32::try_from(offset / BLOCK_BYTES as u64).unwrap_or(u32::MAX)
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl FileSystem {
    /// An empty one.
    #[must_use]
    pub fn new(disk: Disk) -> Self {
        Self {
            disk,
            journal: Journal::default(),
            names: BTreeMap::new(),
            inodes: BTreeMap::new(),
            next_id: 1,
            free: BTreeSet::new(),
            fresh: DATA_AT,
            of_transactions: BTreeMap::new(),
        }
    }

    /// The file of a name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// Makes an empty file.
    pub fn create(&mut self, name: &str, is_cached: bool) -> FileId {
        let id = self.next_id;
        self.next_id += 1;
        let inode = Inode { cached: is_cached.then(Vec::new), ..Inode::default() };
        self.names.insert(name.to_owned(), id);
        self.inodes.insert(id, inode);
        let changed = [Meta::DIRECTORY, Meta::INODES, Meta::INODE_BITMAP, Meta::GROUPS];
        self.journal.change(&changed);
        id
    }

    /// Deletes a file; whether there was one.
    pub fn delete(&mut self, name: &str) -> bool {
        let Some(id) = self.names.remove(name) else { return false };
        let inode = self.inodes.remove(&id).unwrap_or_default();
        self.journal.change(&[Meta::DIRECTORY, Meta::INODES, Meta::INODE_BITMAP, Meta::GROUPS]);
        self.journal.change(&[Meta::SUPER]);
        self.give_back(inode.places);
        true
    }

    fn give_back(&mut self, places: Vec<Option<u32>>) {
        for place in places.into_iter().flatten() {
            self.journal.change(&[Meta::bitmap_of(place), Meta::GROUPS, Meta::INODES]);
            self.free.insert(place);
        }
    }

    fn inode(&self, id: FileId) -> Result<&Inode> {
        self.inodes.get(&id).ok_or_else(|| missing(id))
    }

    fn inode_mut(&mut self, id: FileId) -> Result<&mut Inode> {
        self.inodes.get_mut(&id).ok_or_else(|| missing(id))
    }

    /// The length in bytes; of a direct file that of everything that was written.
    ///
    /// # Errors
    /// A file that was deleted.
    pub fn len(&self, id: FileId) -> Result<u64> {
        Ok(self.inode(id)?.len)
    }

    /// The place of a flash page of a file, which gets one where it has none; and whether it did.
    fn place(&mut self, id: FileId, page: usize) -> Result<(u32, bool)> {
        let inode = self.inodes.get_mut(&id).ok_or_else(|| missing(id))?;
        if inode.places.len() <= page {
            inode.places.resize(page + 1, None);
        }
        let Some(place) = inode.places.get_mut(page) else { return Err(missing(id)) };
        if let Some(place) = *place {
            return Ok((place, false));
        }
        let given = match self.free.pop_first() {
            Some(given) => given,
            None if self.fresh + PAGE_BLOCKS <= self.disk.blocks() => {
                self.fresh += PAGE_BLOCKS;
                self.fresh - PAGE_BLOCKS
            }
            None => return Err(Error::Full("the file system has no block left".to_owned())),
        };
        *place = Some(given);
        Ok((given, true))
    }

    /// Writes into the page cache.
    ///
    /// # Errors
    /// A file that was deleted, or is not cached.
    pub fn write_cached(&mut self, id: FileId, offset: u64, bytes: &[u8]) -> Result<()> {
        let inode = self.inode_mut(id)?;
        let end = offset + bytes.len() as u64;
        let Some(content) = inode.cached.as_mut() else { return Err(missing(id)) };
        if content.len() < index(end) {
            content.resize(index(end), 0);
        }
        if let Some(to) = content.get_mut(index(offset)..index(end)) {
            to.copy_from_slice(bytes);
        }
        inode.dirty.extend(block_of(offset)..=block_of(end.max(1) - 1));
        let grows = end > inode.len;
        inode.len = inode.len.max(end);
        if grows {
            self.journal.change(&[Meta::INODES]);
        }
        self.journal.touch();
        Ok(())
    }

    /// Reads from the page cache: the bytes that there are, up to the end of the file.
    ///
    /// # Errors
    /// A file that was deleted, or is not cached.
    pub fn read_cached(&self, id: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = self.inode(id)?.cached.as_deref().ok_or_else(|| missing(id))?;
        let rest = content.get(index(offset)..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }

    /// Makes a cached file `len` bytes long.
    ///
    /// # Errors
    /// A file that was deleted.
    pub fn truncate(&mut self, id: FileId, len: u64) -> Result<()> {
        let inode = self.inode_mut(id)?;
        if inode.len == len {
            return Ok(());
        }
        inode.len = len;
        if let Some(content) = inode.cached.as_mut() {
            content.resize(index(len), 0);
        }
        let pages = index(len.div_ceil(PAGE_BYTES as u64));
        let places = inode.places.split_off(pages.min(inode.places.len()));
        let blocks = block_of(len + BLOCK_BYTES as u64 - 1);
        let _cut = inode.dirty.split_off(&blocks);
        self.give_back(places);
        self.journal.change(&[Meta::INODES]);
        Ok(())
    }

    /// Gives a cached file places, and zeros, up to a length.
    ///
    /// # Errors
    /// A file that was deleted, a device that is full.
    pub fn preallocate(&mut self, id: FileId, len: u64) -> Result<()> {
        let from = self.len(id)?;
        if len <= from {
            return Ok(());
        }
        for page in index(from / PAGE_BYTES as u64)..index(len.div_ceil(PAGE_BYTES as u64)) {
            let (place, is_new) = self.place(id, page)?;
            if is_new {
                self.journal.change(&[Meta::bitmap_of(place), Meta::GROUPS]);
                self.inode_mut(id)?.unwritten.insert(page);
            }
        }
        let inode = self.inode_mut(id)?;
        inode.len = len;
        if let Some(content) = inode.cached.as_mut() {
            content.resize(index(len), 0);
        }
        self.journal.change(&[Meta::INODES]);
        Ok(())
    }

    /// Makes a cached file durable, with all changed metadata; when it is.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync(&mut self, id: FileId, now: u64, is_data_only: bool) -> Result<u64> {
        let dirty = std::mem::take(&mut self.inode_mut(id)?.dirty);
        let mut at = now;
        let mut run: Option<Run> = None;
        for number in dirty {
            let page = (number / PAGE_BLOCKS) as usize;
            let (place, is_new) = self.place(id, page)?;
            if is_new {
                self.journal.change(&[Meta::bitmap_of(place), Meta::GROUPS, Meta::INODES]);
            } else if self.inode_mut(id)?.unwritten.remove(&page) {
                self.journal.change(&[Meta::INODES]);
            }
            let block = place + number % PAGE_BLOCKS;
            match run.as_mut().filter(|run| run.is_before(number, block)) {
                Some(run) => run.count += 1,
                None => {
                    let next = Run { number, block, count: 1 };
                    if let Some(done) = run.replace(next) {
                        at = self.write_run(id, at, &done)?;
                    }
                }
            }
        }
        if let Some(done) = run {
            at = self.write_run(id, at, &done)?;
        }
        self.journal.commit(&mut self.disk, at, is_data_only)
    }

    fn write_run(&mut self, id: FileId, now: u64, run: &Run) -> Result<u64> {
        let inode = self.inodes.get(&id).ok_or_else(|| missing(id))?;
        let from = run.number as usize * BLOCK_BYTES;
        let len = run.count as usize * BLOCK_BYTES;
        let content = inode.cached.as_deref().unwrap_or_default();
        let mut bytes = content.get(from..content.len().min(from + len)).unwrap_or(&[]).to_vec();
        bytes.resize(len, 0);
        self.disk.write(now, (Purpose::Data, run.block), &bytes, None)
    }

    /// Whether metadata has changed, times aside, that is not in the journal.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.journal.has_changes()
    }

    /// Makes changed metadata durable; when it is.
    ///
    /// # Errors
    /// Those of the device.
    pub fn sync_metadata(&mut self, now: u64) -> Result<u64> {
        self.journal.commit(&mut self.disk, now, true)
    }

    /// Writes into a direct file, in a transaction; when the device has it.
    ///
    /// # Errors
    /// Those of the device; a range that is not whole blocks.
    pub fn write_direct(
        &mut self,
        id: FileId,
        now: u64,
        (offset, bytes): (u64, &[u8]),
        tx: TxId,
    ) -> Result<u64> {
        let size = BLOCK_BYTES as u64;
        if !offset.is_multiple_of(size) || !bytes.len().is_multiple_of(BLOCK_BYTES) {
            return Err(Error::InvalidArgument("direct writes are of whole blocks".to_owned()));
        }
        let mut at = now;
        let mut changed = BTreeSet::from([Meta::INODES]);
        let first = PAGE_BYTES - index(offset % PAGE_BYTES as u64);
        let mut rest = bytes;
        let mut page = index(offset / PAGE_BYTES as u64);
        let mut within = (offset % PAGE_BYTES as u64 / size) as u32;
        let mut len = first;
        while !rest.is_empty() {
            let (part, others) = rest.split_at(len.min(rest.len()));
            let (place, is_new) = self.place(id, page)?;
            if is_new {
                changed.extend([Meta::bitmap_of(place), Meta::GROUPS]);
            }
            at = self.disk.write(at, (Purpose::Data, place + within), part, Some(tx))?;
            (rest, page, within, len) = (others, page + 1, 0, PAGE_BYTES);
        }
        self.of_transactions.entry(tx).or_default().append(&mut changed);
        let inode = self.inode_mut(id)?;
        inode.len = inode.len.max(offset + bytes.len() as u64);
        Ok(at)
    }

    /// Reads from a direct file, as a transaction sees it; when it is there. Zeros where nothing
    /// was written.
    ///
    /// # Errors
    /// Those of the device.
    pub fn read_direct(
        &mut self,
        id: FileId,
        now: u64,
        (offset, buf): (u64, &mut [u8]),
        tx: Option<TxId>,
    ) -> Result<u64> {
        let mut at = now;
        let mut offset = offset;
        let mut rest = buf;
        let mut page = vec![0; PAGE_BYTES];
        while !rest.is_empty() {
            let within = index(offset % PAGE_BYTES as u64);
            let (part, others) = rest.split_at_mut((PAGE_BYTES - within).min(rest.len()));
            let places = &self.inode(id)?.places;
            match places.get(index(offset / PAGE_BYTES as u64)).copied().flatten() {
                Some(place) => {
                    at = self.disk.read(at, place, &mut page, tx)?;
                    part.copy_from_slice(page.get(within..within + part.len()).unwrap_or_default());
                }
                None => part.fill(0),
            }
            offset += part.len() as u64;
            rest = others;
        }
        Ok(at)
    }

    /// Commits a transaction with the metadata that it has changed; when it is durable.
    ///
    /// # Errors
    /// Those of the device.
    pub fn commit(&mut self, now: u64, tx: TxId) -> Result<u64> {
        let mut at = now;
        for meta in self.of_transactions.remove(&tx).unwrap_or_default() {
            let place = (Purpose::Metadata, meta.block());
            at = self.disk.write(at, place, &[0; BLOCK_BYTES], Some(tx))?;
        }
        self.disk.commit(at, tx)
    }

    /// Drops a transaction. The places that it was given stay the file's.
    ///
    /// # Errors
    /// Those of the device.
    pub fn abort(&mut self, now: u64, tx: TxId) -> Result<u64> {
        self.of_transactions.remove(&tx);
        self.disk.abort(now, tx)
    }

    /// Puts a file there, with its content on the device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn install(&mut self, name: &str, bytes: &[u8], is_cached: bool) -> Result<u64> {
        let id = self.create(name, is_cached);
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
        let mut at = 0;
        for (page, content) in whole.chunks(PAGE_BYTES).enumerate() {
            let (place, _) = self.place(id, page)?;
            self.journal.change(&[Meta::bitmap_of(place), Meta::GROUPS]);
            at = self.disk.write(at, (Purpose::Data, place), content, None)?;
        }
        let inode = self.inode_mut(id)?;
        inode.len = bytes.len() as u64;
        if let Some(content) = inode.cached.as_mut() {
            content.extend_from_slice(bytes);
        }
        self.journal.commit(&mut self.disk, at, false)
    }
}

/// Neighbouring blocks: in the file, and on the device.
struct Run {
    number: u32,
    block: u32,
    count: u32,
}

impl Run {
    /// Whether a block continues it.
    const fn is_before(&self, number: u32, block: u32) -> bool {
        let is_next = self.number + self.count == number && self.block + self.count == block;
        is_next && self.count < RUN_BLOCKS
    }
}

#[cfg(test)]
mod tests;
