//! A new backup is read back before it takes the place of the last one: otherwise a wrong catalog
//! would be found too late.
//!
//! The store's trees are walked once more, this time in the backup's file and through the new
//! catalog. What this run has copied is read and compared with its fence; what was there before
//! must still be named, and what is left of a run of blocks begin and end with one. Nothing is read
//! of the store.

use esker_device::Purpose;
use esker_format::backup::Catalog;
use esker_format::ids::StoreId;
use esker_format::ptr::{BlockPtr, Extent, SECTOR_BYTES};
use esker_format::value_piece::{self, PieceIdentity};
use esker_format::value_ref::ValueRef;
use esker_index::run::walk::{self, Visitor};
use esker_substrate::Error as Inner;
use esker_substrate::blocks::BlockStore;
use esker_substrate::runs::RunSet;
use esker_substrate::values::Sequel;

use super::capture::Captured;
use super::edges::Copied;
use super::folder::{BLOCKS, Folder, damaged};
use super::pieces::{Pieces, UNIT_SECTORS};
use super::restore;
use crate::error::{Error, Result};

type Walked<T> = esker_substrate::error::Result<T>;

/// A backup that is not in place yet.
pub(super) struct Proof<'a> {
    folder: &'a Folder,
    store: StoreId,
    /// All of it, and what of it this run has written.
    all: Pieces,
    fresh: &'a Pieces,
    /// Sectors of the store that were read back.
    seen: RunSet,
    has_large_values: bool,
    /// Called repeatedly; an error ends the walk.
    go_on: &'a mut dyn FnMut() -> Result<()>,
    /// The error that stopped the walk, if it is one that the walk cannot return.
    failure: Option<Error>,
}

/// Fails unless `catalog` makes the store of `captured`, as far as it differs from the last one.
/// `fresh` is what was written.
pub(super) fn prove(
    (folder, catalog): (&Folder, &Catalog),
    fresh: &Pieces,
    (captured, blocks): (&Captured<'_>, &BlockStore),
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut proof = Proof {
        folder,
        store: catalog.store,
        all: Pieces::new(&catalog.pieces),
        fresh,
        seen: RunSet::default(),
        has_large_values: captured.has_large_values(),
        go_on,
        failure: None,
    };
    let state = restore::state_of(catalog)?;
    for (id, keyspace) in &state.keyspaces {
        let walked =
            walk::walk(blocks, *id, (&keyspace.index, &keyspace.past_indexes()), &mut proof);
        walked.map_err(|error| proof.failure.take().unwrap_or_else(|| otherwise(&error)))?;
    }
    let old = folder.catalog.as_ref();
    let before = Pieces::new(old.map_or(&[][..], |catalog| &catalog.pieces));
    for piece in catalog.pieces.iter().filter(|piece| !before.has(piece) && !fresh.has(piece)) {
        let copied = Copied { blocks: folder.blocks.as_ref(), store: catalog.store, piece };
        if !copied.is_whole()? {
            let what = "the new backup would have a part of a block: the last one stays";
            return Err(damaged(BLOCKS, piece.place.saturating_mul(SECTOR_BYTES), what));
        }
    }
    captured.logged.iter().try_for_each(|value| proof.read_value(value))?;
    let old = old.map_or(&[][..], |catalog| &catalog.chunks);
    let mut nowhere = |_offset: u64, _bytes: &[u8]| Ok(());
    for chunk in catalog.chunks.iter().filter(|chunk| !old.contains(chunk)) {
        (proof.go_on)()?;
        restore::read_chunk(folder, chunk, &mut nowhere)?;
    }
    Ok(())
}

/// The error for damage that the walk found: the walk names the store's file, but has read the
/// backup's.
fn otherwise(error: &Inner) -> Error {
    damaged(BLOCKS, 0, &format!("what was copied does not read back as it was: {error}"))
}

fn missing(ptr: &BlockPtr) -> Error {
    let what = format!(
        "the new backup would not have what is at byte {} of the store's data file: the last one \
         stays; start with an empty folder",
        ptr.offset()
    );
    damaged(BLOCKS, 0, &what)
}

impl Proof<'_> {
    /// Whether the previous backup had it, or it was already read back.
    fn is_proved(&self, ptr: &BlockPtr) -> Result<bool> {
        self.all.find(ptr).ok_or_else(|| missing(ptr))?;
        let sectors = Extent { start: ptr.sector, units: ptr.sectors.into() };
        Ok(self.fresh.find(ptr).is_none() || self.seen.contains(&sectors))
    }

    fn read_back(&mut self, sector: u64, buf: &mut [u8]) -> Result<()> {
        (self.go_on)()?;
        let blocks = &self.folder.blocks;
        let all = self.all.fill(sector, buf, &mut |place, buf| {
            Ok(blocks.read_at(place, buf, Purpose::Backup)?)
        })?;
        let end = damaged(BLOCKS, 0, "the new backup would not have all that is read together");
        if all { Ok(()) } else { Err(end) }
    }

    fn note(&mut self, ptr: &BlockPtr) {
        let _seen_before =
            self.seen.insert(Extent { start: ptr.sector, units: ptr.sectors.into() });
    }

    fn read_value(&mut self, value: &ValueRef) -> Result<()> {
        let (mut buffer, mut sequel) = (Vec::new(), Sequel::default());
        for number in 0..value.pieces() {
            let Some(place) = value.piece(number) else { break };
            let ptr = piece_at(value, &place);
            if self.is_proved(&ptr)? {
                continue;
            }
            buffer.resize(place.bytes() as usize, 0);
            self.read_back(ptr.sector, &mut buffer)?;
            let identity = PieceIdentity {
                store: self.store,
                generation: value.generation,
                number: number as u32,
            };
            let opened = value_piece::open(&buffer, identity);
            let follows = opened.is_ok_and(|(_, header)| sequel.takes(value, number, &header));
            if !follows {
                let what = "a piece of a value does not read back as it was copied";
                return Err(damaged(BLOCKS, self.all.find(&ptr).unwrap_or_default(), what));
            }
            self.note(&ptr);
        }
        Ok(())
    }

    /// Ends the walk with an error that is kept aside.
    fn stop<T>(&mut self, result: Result<T>) -> Walked<T> {
        result.map_err(|error| {
            let what = error.to_string();
            self.failure = Some(error);
            Inner::Invalid { what }
        })
    }
}

/// A piece of a value as if it were a block.
pub(super) fn piece_at(value: &ValueRef, place: &Extent) -> BlockPtr {
    BlockPtr {
        sector: place.start * UNIT_SECTORS,
        sectors: (place.units * UNIT_SECTORS) as u16,
        crc: 0,
        generation: value.generation,
    }
}

impl Visitor for Proof<'_> {
    fn knows(&mut self, ptr: &BlockPtr) -> Walked<bool> {
        let is_proved = self.is_proved(ptr);
        self.stop(is_proved)
    }

    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Walked<()> {
        let read = self.read_back(offset / SECTOR_BYTES, buf);
        self.stop(read)
    }

    fn take(&mut self, ptr: &BlockPtr, _bytes: &[u8]) -> Walked<()> {
        self.note(ptr);
        Ok(())
    }

    fn wants_values(&self) -> bool {
        self.has_large_values
    }

    fn take_value(&mut self, value: &ValueRef) -> Walked<()> {
        let read = self.read_value(value);
        self.stop(read)
    }
}
