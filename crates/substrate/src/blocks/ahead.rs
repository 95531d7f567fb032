//! Blocks that are wanted soon: the device begins with them, and neighbours are one read.
//!
//! Invariant: a piece has neighbours only, in the order of the file.

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::ids::KeyspaceId;
use esker_format::ptr::BlockPtr;
use smallvec::{SmallVec, smallvec};

use super::BlockStore;
use crate::cache::{CachedBlock, buffers};

/// Most bytes of one read.
const READ_BYTES_MAX: usize = 64 << 10;

/// Blocks that follow each other in the file.
struct Piece {
    ptrs: SmallVec<[BlockPtr; 1]>,
    bytes: usize,
}

impl Piece {
    fn new(ptr: BlockPtr) -> Self {
        Self { ptrs: smallvec![ptr], bytes: ptr.bytes() }
    }

    fn offset(&self) -> u64 {
        self.ptrs.first().map_or(0, BlockPtr::offset)
    }

    /// Adds a block at either end; false if it is no neighbour.
    fn add(&mut self, ptr: BlockPtr) -> bool {
        if self.bytes + ptr.bytes() > READ_BYTES_MAX {
            return false;
        }
        if self.offset() + self.bytes as u64 == ptr.offset() {
            self.ptrs.push(ptr);
        } else if ptr.offset() + ptr.bytes() as u64 == self.offset() {
            self.ptrs.insert(0, ptr);
        } else {
            return false;
        }
        self.bytes += ptr.bytes();
        true
    }
}

impl BlockStore {
    /// Has the device begin to read the blocks that are not in the cache, if it can: several that
    /// are wanted soon come sooner together than one by one. Neighbours are to be neighbours in
    /// `ptrs` too.
    pub fn announce(&self, ptrs: &[BlockPtr], purpose: Purpose) {
        self.announce_pieces(&self.missing(ptrs), purpose);
    }

    /// Reads neighbours among the blocks that are not in the cache, 64 KiB in a read at most, and
    /// hands them to `keep`; has the device begin with the others. Blocks that cannot be read have
    /// no content there; reading them again returns the error. If a read fails, that is so for
    /// all of its blocks.
    pub fn read_ahead(
        &self,
        keyspace: KeyspaceId,
        ptrs: &[BlockPtr],
        purpose: Purpose,
        mut keep: impl FnMut(&BlockPtr, Option<Arc<CachedBlock>>),
    ) {
        let pieces = self.missing(ptrs);
        if pieces.len() > 1 {
            self.announce_pieces(&pieces, purpose);
        }
        let mut buffer = Vec::new();
        for piece in pieces.iter().filter(|piece| piece.ptrs.len() > 1) {
            buffer.resize(piece.bytes, 0);
            let is_read = self.file.read_at(piece.offset(), &mut buffer, purpose).is_ok();
            let mut rest = if is_read { buffer.as_slice() } else { &[] };
            for ptr in &piece.ptrs {
                let (bytes, behind) = rest.split_at_checked(ptr.bytes()).unwrap_or_default();
                rest = behind;
                let block = Some(bytes).filter(|bytes| !bytes.is_empty());
                let block = block.map(buffers::copy_of);
                let block = block.and_then(|bytes| self.verified(keyspace, ptr, bytes).ok());
                if let Some(block) = &block {
                    self.cache().insert(ptr, block);
                }
                keep(ptr, block);
            }
        }
    }

    fn missing(&self, ptrs: &[BlockPtr]) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for ptr in ptrs.iter().filter(|ptr| !self.cache().contains(ptr)) {
            if !pieces.last_mut().is_some_and(|last| last.add(*ptr)) {
                pieces.push(Piece::new(*ptr));
            }
        }
        pieces
    }

    fn announce_pieces(&self, pieces: &[Piece], purpose: Purpose) {
        for piece in pieces {
            self.file.announce(piece.offset(), piece.bytes as u64, purpose);
        }
    }
}

#[cfg(test)]
mod tests {
    use esker_device::Device;
    use esker_device::sim::SimDevice;
    use esker_format::block::{BlockBuilder, BlockIdentity};
    use esker_format::data::Data;
    use esker_format::entry::Payload;
    use esker_format::ids::{Generation, Seq, StoreId};

    use super::*;

    const KEYSPACE: KeyspaceId = KeyspaceId(1);

    /// Writes a block to a place of the file.
    fn write(blocks: &BlockStore, sector: u64) -> BlockPtr {
        let generation = Generation(1);
        let mut builder = BlockBuilder::new(4096);
        builder.push(b"key", Seq(1), &Payload::of(Data::Put(b"value")));
        let mut bytes = vec![0; 4096];
        let identity =
            BlockIdentity { store: blocks.store(), keyspace: KEYSPACE, sector, generation };
        let crc = builder.finish(identity, &mut bytes).crc;
        let ptr = BlockPtr { sector, sectors: 8, generation, crc };
        blocks.write_raw(ptr.offset(), &bytes, Purpose::Merge).unwrap();
        ptr
    }

    #[test]
    fn all_blocks_of_a_failed_read_are_named_and_of_a_damaged_one_that_one() {
        let device = SimDevice::new();
        let on: Arc<dyn Device> = Arc::new(device.clone());
        let blocks = BlockStore::create(&on, StoreId(1), 1 << 20).unwrap();
        let ptrs: Vec<_> = [0, 8, 16, 800].map(|sector| write(&blocks, sector)).into();
        let read = || {
            let mut all = Vec::new();
            let keep = |ptr: &BlockPtr, block: Option<_>| all.push((ptr.sector, block.is_some()));
            blocks.read_ahead(KEYSPACE, &ptrs, Purpose::User, keep);
            all
        };
        // The file ends within the third one: the three, which are read at once, are not read.
        blocks.file.truncate(2 * 4096 + 2048).unwrap();
        assert_eq!(read(), [(0, false), (8, false), (16, false)]);
        assert_eq!(write(&blocks, 16).crc, ptrs[2].crc);
        device.flip("data", 4096 + 200, 0x40);
        assert_eq!(read(), [(0, true), (8, false), (16, true)]);
        assert_eq!(read(), []);
    }

    #[test]
    fn only_neighbours_are_one_piece_and_at_most_64_kib() {
        let ptr = |unit: u64| BlockPtr {
            sector: unit * 8,
            sectors: 8,
            generation: Generation(1),
            crc: 0,
        };
        let mut up = Piece::new(ptr(100));
        assert!(!up.add(ptr(102)) && !up.add(ptr(98)) && !up.add(ptr(100)));
        assert!((101..116).all(|unit| up.add(ptr(unit))));
        assert!(!up.add(ptr(116)) && !up.add(ptr(99)));
        assert_eq!((up.offset(), up.bytes), (100 * 4096, READ_BYTES_MAX));
        let mut down = Piece::new(ptr(100));
        assert!((90..100).rev().all(|unit| down.add(ptr(unit))));
        assert!(down.ptrs.is_sorted_by_key(|ptr| ptr.sector));
        assert_eq!((down.offset(), down.bytes), (90 * 4096, 11 * 4096));
    }
}
