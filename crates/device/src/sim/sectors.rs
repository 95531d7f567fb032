//! Sector contents by number.
//!
//! Contents are never changed once they have a number, so that images are tables of numbers:
//! copying an image copies four bytes a sector, and a crash state is a choice of numbers.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// The number of a sector's contents in a [`SectorStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SectorId(u32);

/// A sector of zeros.
pub(super) const ZEROS: SectorId = SectorId(0);
/// A sector of bytes that were never written.
pub(super) const GARBAGE: SectorId = SectorId(1);

/// The bytes of one chunk: large enough to make chunks few, small enough to start one lightly.
const CHUNK_BYTES: usize = 32 << 10;

/// Sectors with their hashes, filled from the front and never changed.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    hashes: Vec<u64>,
}

/// Append-only contents of sectors. Clones share the existing contents and append separately.
///
/// Invariants: number `n` is slot `n % chunk_sectors` of chunk `n / chunk_sectors`, counted over
/// `frozen` then `fresh`; only the last chunk, and only while it is not shared, gets sectors.
#[derive(Clone, Debug)]
pub(super) struct SectorStore {
    sector_bytes: usize,
    chunk_sectors: usize,
    frozen: Arc<Vec<Arc<Chunk>>>,
    fresh: Vec<Arc<Chunk>>,
}

impl SectorStore {
    /// A store of the two sectors that every store has.
    pub(super) fn new(sector_bytes: usize) -> Self {
        let chunk_sectors = (CHUNK_BYTES / sector_bytes).max(2);
        let mut store =
            Self { sector_bytes, chunk_sectors, frozen: Arc::default(), fresh: Vec::new() };
        let garbage: Vec<u8> =
            (0..sector_bytes).map(|at| (at as u8).wrapping_mul(89) | 1).collect();
        store.push(&vec![0; sector_bytes]);
        store.push(&garbage);
        store
    }

    pub(super) fn sector_bytes(&self) -> usize {
        self.sector_bytes
    }

    /// The sectors that a range of bytes touches.
    pub(super) fn sectors(&self, from: u64, until: u64) -> Range<usize> {
        let sector = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let sector_bytes = self.sector_bytes as u64;
        sector(from / sector_bytes)..sector(until.div_ceil(sector_bytes))
    }

    /// The number of sector numbers that are assigned, some of them to nothing.
    pub(super) fn len(&self) -> usize {
        (self.frozen.len() + self.fresh.len()) * self.chunk_sectors
    }

    /// Numbers the contents of one sector.
    pub(super) fn push(&mut self, sector: &[u8]) -> SectorId {
        debug_assert_eq!(sector.len(), self.sector_bytes);
        let has_room = |chunk: &mut Arc<Chunk>| {
            chunk.hashes.len() < self.chunk_sectors && Arc::get_mut(chunk).is_some()
        };
        if !self.fresh.last_mut().is_some_and(has_room) {
            self.fresh.push(Arc::new(Chunk {
                bytes: Vec::with_capacity(self.chunk_sectors * self.sector_bytes),
                hashes: Vec::with_capacity(self.chunk_sectors),
            }));
        }
        let chunk_index = self.frozen.len() + self.fresh.len() - 1;
        let mut slot = 0;
        if let Some(chunk) = self.fresh.last_mut().and_then(Arc::get_mut) {
            slot = chunk.hashes.len();
            chunk.bytes.extend_from_slice(sector);
            chunk.hashes.push(xxh3_64(sector));
        }
        // Numbers run out after 2 TiB in memory, which no test reaches.
        SectorId(u32::try_from(chunk_index * self.chunk_sectors + slot).unwrap_or(u32::MAX))
    }

    /// The contents of a sector.
    pub(super) fn get(&self, id: SectorId) -> &[u8] {
        let (chunk, slot) = self.locate(id);
        let start = slot * self.sector_bytes;
        chunk.and_then(|chunk| chunk.bytes.get(start..start + self.sector_bytes)).unwrap_or(&[])
    }

    /// A hash of the contents of a sector: equal contents have equal hashes.
    pub(super) fn hash(&self, id: SectorId) -> u64 {
        let (chunk, slot) = self.locate(id);
        chunk.and_then(|chunk| chunk.hashes.get(slot).copied()).unwrap_or(0)
    }

    fn locate(&self, id: SectorId) -> (Option<&Arc<Chunk>>, usize) {
        let id = id.0 as usize;
        let (chunk, slot) = (id / self.chunk_sectors, id % self.chunk_sectors);
        let chunk = match chunk.checked_sub(self.frozen.len()) {
            None => self.frozen.get(chunk),
            Some(chunk) => self.fresh.get(chunk),
        };
        (chunk, slot)
    }

    /// Makes clones cheap: one count instead of one a chunk.
    pub(super) fn freeze(&mut self) {
        if !self.fresh.is_empty() {
            let all = self.frozen.iter().chain(&self.fresh).cloned().collect();
            self.frozen = Arc::new(all);
            self.fresh.clear();
        }
    }

    /// Forgets all sectors since [`SectorStore::freeze`]; their numbers must not be in use.
    pub(super) fn forget_fresh(&mut self) {
        self.fresh.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_append_independently() {
        let mut first = SectorStore::new(512);
        let shared = first.push(&[1; 512]);
        let mut second = first.clone();
        let (a, b) = (first.push(&[2; 512]), second.push(&[3; 512]));
        for store in [&first, &second] {
            assert_eq!(store.get(shared), [1; 512]);
            assert_eq!(store.get(ZEROS), [0; 512]);
            assert_ne!(store.get(GARBAGE), [0; 512]);
        }
        assert_eq!((first.get(a)[0], second.get(b)[0]), (2, 3));
    }

    #[test]
    fn numbers_outlive_freezing() {
        let mut store = SectorStore::new(4096);
        let ids: Vec<_> = (0..100_u8)
            .map(|byte| {
                if byte % 7 == 0 {
                    store.freeze();
                }
                (byte, store.push(&[byte; 4096]))
            })
            .collect();
        for (byte, id) in &ids {
            assert_eq!(store.get(*id), [*byte; 4096]);
            assert_eq!(store.hash(*id), xxh3_64(&[*byte; 4096]));
        }
        assert_eq!(store.hash(ids[0].1), store.hash(ZEROS));
        store.freeze();
        let lost = store.push(&[7; 4096]);
        store.forget_fresh();
        assert!(store.get(lost).is_empty());
        assert_eq!(store.get(ids[99].1), [99; 4096]);
    }
}
