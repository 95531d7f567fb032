//! The data file, block by block: reading through the cache, allocating, writing; `ahead` reads
//! what is wanted soon, `room` has the reservations of free space, `values` the interface for
//! blobs.
//!
//! Thread safety: everything may be called from any thread. Only one merge of a keyspace
//! allocates and retires at a time, but merges of several keyspaces may.

mod ahead;
mod allocate;
mod room;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::Mutex;
use esker_device::{Caching, Device, DeviceFile, Open, Purpose, ReadRequest};
use esker_format::block::{BlockIdentity, BlockLayout, Unpacker};
use esker_format::ids::{Generation, KeyspaceId, StoreId};
use esker_format::ptr::{BlockPtr, Extent, UNIT_BYTES};

use crate::cache::{BlockCache, CachedBlock, buffers};
use crate::error::{Error, Result};
use crate::generations::Generations;
use crate::manifest::Manifest;
use crate::planted::{self, Bug};
use crate::space::{Overlap, Space};

pub use allocate::PIECES;
use room::Room;
pub use room::{Claim, Claimed, Pot, Reserve};

/// Name of the data file.
pub const DATA_FILE: &str = "data";

/// The file grows by a share of itself within these bounds, in units: rarely, and never by much
/// more than it will use.
const GROWTH_UNITS: (u64, u64) = (16, 1024);
/// The share of itself that the file grows by.
const GROWTH_SHARE: u64 = 32;

/// Free space at the end of the file is released when it is more than this share of it.
const SPARE_SHARE: u64 = 64;

/// Most [`Unpacker`]s that wait for the next block.
const UNPACKERS_MAX: usize = 8;

/// Free space that only merges may take, until this is dropped.
#[derive(Debug)]
#[must_use = "the space is kept only while the reservation lives"]
pub struct Reservation {
    blocks: Arc<BlockStore>,
    units: u64,
}

impl Reservation {
    /// The units that are reserved.
    #[must_use]
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// Gives up what is more than `units`.
    pub fn reduce_to(&mut self, units: u64) {
        let less = self.units.saturating_sub(units);
        if less > 0 {
            self.blocks.held().unreserve(less);
            self.units = units;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.blocks.held().unreserve(self.units);
    }
}

/// The data file of a store.
#[derive(Debug)]
pub struct BlockStore {
    file: Arc<dyn DeviceFile>,
    store: StoreId,
    space: Mutex<Space>,
    room: Room,
    cache: BlockCache,
    generations: Generations,
    /// Decompressors that are kept for the next block.
    unpackers: Mutex<Vec<Unpacker>>,
    /// Bytes of blobs that have been written, and how many of them are known to be durable.
    value_bytes_written: AtomicU64,
    value_bytes_durable: AtomicU64,
    /// The error of the first failed sync. Held during a sync, so that only one runs at a time: the
    /// system reports a lost write to one sync only, and no other may take its silence for success.
    sync_failed: Mutex<Option<Error>>,
}

impl BlockStore {
    /// Creates the empty data file. Its name is durable after a sync of the folder.
    ///
    /// # Errors
    /// When the file exists or the device refuses.
    pub fn create(device: &Arc<dyn Device>, store: StoreId, cache_bytes: u64) -> Result<Self> {
        let file = device.open(DATA_FILE, Open::CreateNew, Caching::Selective)?;
        Ok(Self::with(file, store, cache_bytes, Space::default(), Generation(1)))
    }

    /// Opens the data file, of which `allocated` is in use.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when extents overlap or reach past the file.
    pub fn open(
        device: &Arc<dyn Device>,
        store: StoreId,
        cache_bytes: u64,
        allocated: impl IntoIterator<Item = Extent>,
        generation_floor: Generation,
    ) -> Result<Self> {
        let file = device.open(DATA_FILE, Open::Existing, Caching::Selective)?;
        let units = file.len()? / UNIT_BYTES;
        let space = Space::of(units, allocated);
        let mut space = space.map_err(|Overlap(extent)| Error::Corrupt {
            file: DATA_FILE.into(),
            offset: extent.offset(),
            what: format!(
                "the manifest's extent of {} bytes overlaps another or passes the end of the file",
                extent.bytes()
            ),
        })?;
        // An earlier run may have given some of it back to the device.
        space.dig_all();
        Ok(Self::with(file, store, cache_bytes, space, generation_floor))
    }

    fn with(
        file: Arc<dyn DeviceFile>,
        store: StoreId,
        cache_bytes: u64,
        space: Space,
        generation: Generation,
    ) -> Self {
        Self {
            file,
            store,
            space: Mutex::new(space),
            room: Room::default(),
            cache: BlockCache::new(cache_bytes),
            generations: Generations::new(generation),
            unpackers: Mutex::default(),
            value_bytes_written: AtomicU64::new(0),
            value_bytes_durable: AtomicU64::new(0),
            sync_failed: Mutex::new(None),
        }
    }

    /// The store the file belongs to.
    pub const fn store(&self) -> StoreId {
        self.store
    }

    /// The present length of the file in bytes; 0 where it cannot be had.
    pub fn file_bytes(&self) -> u64 {
        self.file.len().unwrap_or_default()
    }

    /// The cache.
    pub const fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// From now on a generation is taken only when `manifest` has it reserved. Without this they
    /// are used once in the life of this object.
    pub fn reserve_generations_in(&self, manifest: &Arc<Manifest>) {
        self.generations.reserve_in(manifest);
    }

    /// A generation never used before, in any life of the store.
    ///
    /// Cost: none, except a record of the manifest after an opening and once in 1,024 calls.
    ///
    /// # Errors
    /// [`Error::Full`] when the manifest has no space; every other failure poisons the store.
    pub fn take_generation(&self) -> Result<Generation> {
        match self.generations.take() {
            Err(Error::Full { .. }) => {
                // The unused space of the data file may be the space that is missing.
                self.discard_free()?;
                self.generations.take()
            }
            taken => taken,
        }
    }

    /// A generation above all that were taken, and all that are known to be in use.
    pub fn next_generation(&self) -> Generation {
        self.generations.next()
    }

    /// The generation to write into a record of the manifest: the floor of the next opening.
    pub fn generation_to_record(&self) -> Generation {
        self.generations.to_record()
    }

    /// A record with that generation is durable.
    pub fn generation_recorded(&self, recorded: Generation) {
        self.generations.recorded(recorded);
    }

    /// Something of this generation was found that may not be known to the manifest.
    pub fn generation_found(&self, found: Generation) {
        self.generations.found(found);
    }

    /// Reads a block through the cache: no I/O if it is there, else one read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the bytes are not the block that `ptr` names.
    pub fn read(
        &self,
        keyspace: KeyspaceId,
        ptr: &BlockPtr,
        purpose: Purpose,
    ) -> Result<Arc<CachedBlock>> {
        if let Some(block) = self.cache.get(ptr) {
            return Ok(block);
        }
        let block = Arc::new(self.read_uncached(keyspace, ptr, purpose)?);
        self.cache.insert(ptr, &block);
        Ok(block)
    }

    /// Reads a block from the device, in one read, leaving the cache as it is. A block that a user
    /// wants and that is damaged is read once more, past the page cache.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the bytes are not the block that `ptr` names.
    pub fn read_uncached(
        &self,
        keyspace: KeyspaceId,
        ptr: &BlockPtr,
        purpose: Purpose,
    ) -> Result<CachedBlock> {
        let mut bytes = buffers::take(ptr.bytes());
        self.file.read_at(ptr.offset(), &mut bytes, purpose)?;
        let mut verified = self.verify(keyspace, ptr, &bytes);
        if verified.is_err() && purpose == Purpose::User {
            // Perhaps only its part in the page cache is damaged: the device is read to decide.
            self.file.read_at(ptr.offset(), &mut bytes, Purpose::Check)?;
            verified = self.verify(keyspace, ptr, &bytes);
        }
        self.in_memory(ptr, bytes, verified?)
    }

    /// The block that `bytes` are, verified, as the cache holds it.
    fn verified(
        &self,
        keyspace: KeyspaceId,
        ptr: &BlockPtr,
        bytes: Box<[u8]>,
    ) -> Result<Arc<CachedBlock>> {
        let layout = self.verify(keyspace, ptr, &bytes)?;
        self.in_memory(ptr, bytes, layout).map(Arc::new)
    }

    /// A verified block as the cache holds it.
    fn in_memory(
        &self,
        ptr: &BlockPtr,
        bytes: Box<[u8]>,
        layout: BlockLayout,
    ) -> Result<CachedBlock> {
        if !layout.is_packed() {
            return Ok(CachedBlock::new(bytes, layout));
        }
        let mut plain = Vec::with_capacity(layout.plain_bytes());
        self.unpack(ptr, &bytes, &layout, &mut plain)?;
        Ok(CachedBlock::new(plain.into_boxed_slice(), layout))
    }

    /// Makes of the verified block `bytes`, which is packed, one that a view can read.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it does not give the bytes that its header promises.
    pub fn unpack(
        &self,
        ptr: &BlockPtr,
        bytes: &[u8],
        layout: &BlockLayout,
        plain: &mut Vec<u8>,
    ) -> Result<()> {
        let mut unpacker = self.unpackers.lock().pop().unwrap_or_default();
        let unpacked = layout.unpack(bytes, &mut unpacker, plain);
        let mut unpackers = self.unpackers.lock();
        if unpackers.len() < UNPACKERS_MAX {
            unpackers.push(unpacker);
        }
        unpacked.map_err(|error| Error::corrupt(self.file.name(), ptr.offset(), &error))
    }

    /// Brings blocks into the cache, with several reads in flight. Blocks that cannot be read are
    /// left out; reading them again returns the error.
    pub fn prefetch(&self, keyspace: KeyspaceId, ptrs: &[BlockPtr], purpose: Purpose) {
        let wanted: Vec<&BlockPtr> = ptrs.iter().filter(|ptr| !self.cache.contains(ptr)).collect();
        let mut buffers: Vec<Box<[u8]>> =
            wanted.iter().map(|ptr| buffers::take(ptr.bytes())).collect();
        let mut requests: Vec<ReadRequest<'_>> = wanted
            .iter()
            .zip(&mut buffers)
            .map(|(ptr, buf)| ReadRequest { offset: ptr.offset(), buf })
            .collect();
        let results = self.file.read_many(&mut requests, purpose);
        for ((ptr, bytes), result) in wanted.into_iter().zip(buffers).zip(results) {
            if result.is_ok()
                && let Ok(block) = self.verified(keyspace, ptr, bytes)
            {
                self.cache.insert(ptr, &block);
            }
        }
    }

    /// Adds blocks that were just written to the cache, as long as there is room within `most`
    /// bytes that nothing else takes. Costs a checksum and a copy of each, and no I/O.
    pub fn admit<'b>(
        &self,
        keyspace: KeyspaceId,
        written: impl IntoIterator<Item = (BlockPtr, &'b [u8])>,
        most: u64,
    ) {
        let mut room = self.cache.room(most);
        for (ptr, bytes) in written {
            let Some(left) = room.checked_sub(CachedBlock::weight_of(bytes.len())) else { break };
            room = left;
            if let Ok(block) = self.verified(keyspace, &ptr, buffers::copy_of(bytes)) {
                self.cache.insert(&ptr, &block);
            }
        }
    }

    /// Whether a block is in the cache.
    #[must_use]
    pub fn is_cached(&self, ptr: &BlockPtr) -> bool {
        self.cache.contains(ptr)
    }

    /// Checks that `bytes` are the block that `ptr` names.
    ///
    /// # Errors
    /// [`Error::Corrupt`] with file and offset when they are not.
    pub fn verify(
        &self,
        keyspace: KeyspaceId,
        ptr: &BlockPtr,
        bytes: &[u8],
    ) -> Result<BlockLayout> {
        let expected = BlockIdentity {
            store: self.store,
            keyspace,
            sector: ptr.sector,
            generation: ptr.generation,
        };
        let verified = if planted::is(Bug::BlockWithoutChecksum) {
            BlockLayout::parse_unchecked(bytes)
        } else {
            BlockLayout::verify(bytes, expected, ptr.crc)
        };
        verified.map_err(|error| Error::corrupt(self.file.name(), ptr.offset(), &error))
    }

    /// Reads raw bytes of the data file.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn read_raw(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        Ok(self.file.read_at(offset, buf, purpose)?)
    }

    /// Writes raw bytes of the data file. Not durable before [`BlockStore::sync`].
    ///
    /// # Errors
    /// Errors of the device.
    pub fn write_raw(&self, offset: u64, buf: &[u8], purpose: Purpose) -> Result<()> {
        Ok(self.file.write_at(offset, buf, purpose)?)
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// Errors of the device; the store must then be poisoned.
    pub fn sync(&self, purpose: Purpose) -> Result<()> {
        self.sync_unless(purpose, || false)
    }

    /// Syncs, unless that is of no use any more when it is this thread's turn.
    fn sync_unless(&self, purpose: Purpose, is_done: impl FnOnce() -> bool) -> Result<()> {
        let mut failed = self.sync_failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        if is_done() {
            return Ok(());
        }
        let values = self.value_bytes_written.load(Ordering::Acquire);
        self.file.sync(purpose).map_err(|error| failed.insert(error.into()).clone())?;
        self.value_bytes_durable.fetch_max(values, Ordering::AcqRel);
        Ok(())
    }

    /// Makes sure that `units` are free in addition to what is owed and what is reserved already,
    /// and reserves them for merges until the reservation is dropped.
    ///
    /// # Errors
    /// [`Error::Full`] when the device is full; nothing has changed in this case.
    pub fn reserve(self: &Arc<Self>, units: u64) -> Result<Reservation> {
        let mut space = self.held();
        let kept = |room: &Room, space: &Space| {
            space.reserved_units().saturating_add(room.kept_from_merges())
        };
        self.back(&mut space, kept, units, Purpose::Merge)?;
        space.reserve(units);
        drop(space);
        Ok(Reservation { blocks: Arc::clone(self), units })
    }

    /// Returns an extent that no durable manifest names.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it was free already.
    pub fn give_back(&self, extent: Extent) -> Result<()> {
        self.held().give_back(extent).map_err(freed_twice)
    }

    /// Puts extents into quarantine until [`BlockStore::free`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] when one is there already.
    pub fn retire(&self, extents: &[Extent]) -> Result<()> {
        let mut space = self.held();
        extents.iter().try_for_each(|extent| space.retire(*extent)).map_err(freed_twice)
    }

    /// Frees extents in quarantine: a manifest that does not name them is durable, and they have no
    /// readers.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when an extent was already free.
    pub fn free(&self, extents: &[Extent]) -> Result<()> {
        let mut space = self.held();
        extents.iter().try_for_each(|extent| space.release(*extent)).map_err(freed_twice)
    }

    /// Free units at the end of the file that are not likely to be used soon, which a file that
    /// once grew beyond its needs can return to the file system. 0 when there are too few of them.
    #[must_use]
    pub fn spare_units(&self) -> u64 {
        let space = self.space.lock();
        spare_units(&space, self.room.kept(&space))
    }

    /// Cuts the spare units off the end of the file.
    ///
    /// # Errors
    /// Errors of the device; nothing has changed in this case.
    pub fn truncate_spare(&self) -> Result<()> {
        let mut space = self.held();
        let spare = spare_units(&space, self.room.kept(&space));
        self.trim(&mut space, spare)
    }

    fn trim(&self, space: &mut Space, units: u64) -> Result<()> {
        if units > 0 {
            self.file.truncate((space.end() - units) * UNIT_BYTES)?;
            space.trim_end(units);
        }
        Ok(())
    }

    /// The end of the file, in units.
    pub(crate) fn end(&self) -> u64 {
        self.space.lock().end()
    }

    /// A copy of the free map, for checks and statistics.
    pub fn space(&self) -> Space {
        self.space.lock().clone()
    }
}

fn spare_units(space: &Space, kept: u64) -> u64 {
    let (least, most) = GROWTH_UNITS;
    let slack = (space.end() / GROWTH_SHARE).clamp(least, most);
    let spare = space.free_units().saturating_sub(kept.saturating_add(slack));
    let (tail, backed) = space.tail();
    let spare_backed = space.backed_units().saturating_sub(kept);
    let most = if spare_backed >= backed { tail } else { spare_backed };
    let cut = tail.saturating_sub(slack).min(spare).min(most);
    if cut > space.end() / SPARE_SHARE { cut } else { 0 }
}

fn full(units: u64) -> Error {
    Error::Full { what: format!("{} bytes of the data file", units * UNIT_BYTES) }
}

fn freed_twice(Overlap(extent): Overlap) -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: extent.offset(),
        what: format!("an extent of {} bytes was given back twice", extent.bytes()),
    }
}

#[cfg(test)]
mod tests;
