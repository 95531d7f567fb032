//! Restoring a store from a backup into a new folder, and reading all of a backup.
//!
//! Everything is written and synced before the superblock, which makes it a store. Before that a
//! file marks a restore under way, so that the leftovers of a crash are recognised and the next
//! restore can begin again.
//!
//! All copied data is checked: each block by its own checksum and by its address and generation in
//! the catalog, each piece of a blob likewise except for the address, the log by the catalog's
//! checksums.

use std::sync::Arc;

use esker_device::{AlignedBuf, Caching, Device, DeviceFile, Open, Purpose};
use esker_format::DecodeError;
use esker_format::backup::{Catalog, LogChunk, Piece, checksum};
use esker_format::block::BlockLayout;
use esker_format::ids::{Generation, StoreId};
use esker_format::ptr::{BLOCK_BYTES_MAX, SECTOR_BYTES, UNIT_BYTES};
use esker_format::value_piece::{self, PieceHeader, PieceIdentity};
use esker_substrate::fault::FaultPoints;
use esker_substrate::manifest::files::{LOCK, SUPERBLOCK};
use esker_substrate::manifest::{Beginning, Manifest, ManifestOptions, ManifestState};
use esker_substrate::planted::{self, Bug};
use esker_substrate::poison::Poison;

use super::folder::{BLOCKS, Folder, damaged};
use super::image::{FileMap, chunks_of, files};
use crate::error::{Error, Result};

/// Says that a restoring is under way.
const RESTORING: &str = "restoring";
/// The bytes that are read and written together; more only for a longer block.
const COPY_BYTES: u64 = 1 << 20;

/// The receiver of data that was read and verified: its offset in the file, and its bytes.
pub(super) type Sink<'a> = dyn FnMut(u64, &[u8]) -> Result<()> + 'a;

/// The state in the restored store's manifest.
pub(super) fn state_of(catalog: &Catalog) -> Result<ManifestState> {
    ManifestState::of_record(&catalog.record, catalog.seq)
        .map_err(|misfit| damaged("backup", 0, &format!("the catalog {misfit}")))
}

/// Reads a piece and passes its blocks on, some at a time, all checked.
pub(super) fn read_piece(folder: &Folder, piece: &Piece, sink: &mut Sink<'_>) -> Result<()> {
    let store = folder.backup()?.store;
    let (mut at, end) = (piece.sector, piece.end());
    let mut last = None;
    while at < end {
        let place = (piece.place + (at - piece.sector)) * SECTOR_BYTES;
        let left = (end - at) * SECTOR_BYTES;
        let mut bytes =
            AlignedBuf::zeroed(left.min(COPY_BYTES.max(BLOCK_BYTES_MAX as u64)) as usize);
        folder.blocks.read_at(place, &mut bytes, Purpose::Backup)?;
        let mut whole = 0;
        while let Some(rest) = bytes.get(whole..).filter(|rest| !rest.is_empty()) {
            let sector = at + whole as u64 / SECTOR_BYTES;
            let bad = |offset: usize, what: &str| {
                damaged(BLOCKS, place + whole as u64 + offset as u64, what)
            };
            if value_piece::is_piece(rest) {
                let of = (store, piece.generation);
                let piece_bytes = value_bytes(rest, of, left - whole as u64, &mut last);
                match piece_bytes.map_err(|error| bad(error.offset, error.what))? {
                    Some(length) => whole += length,
                    None => break,
                }
                continue;
            }
            let length = block_bytes(rest);
            let Some(block) = rest.get(..length) else {
                // Cut off by the end of what was read, unless that is the end of the piece.
                let may_go_on = whole > 0 && (whole as u64) < left && rest.len() < BLOCK_BYTES_MAX;
                if may_go_on && left > bytes.len() as u64 {
                    break;
                }
                return Err(bad(20, "the block's length is out of bounds"));
            };
            let layout =
                BlockLayout::parse(block).map_err(|error| bad(error.offset, error.what))?;
            let found = layout.identity;
            if (found.store, found.sector, found.generation) != (store, sector, piece.generation) {
                return Err(bad(8, "the block is not the one that the catalog names"));
            }
            whole += length;
        }
        sink(at * SECTOR_BYTES, bytes.get(..whole).unwrap_or_default())?;
        at += whole as u64 / SECTOR_BYTES;
    }
    Ok(())
}

/// The length of the piece of a value that `bytes` begin with, which is checked; `None` when it is
/// cut off by the end of what was read, of which `left` bytes are there. `last` is the one before.
fn value_bytes(
    bytes: &[u8],
    (store, generation): (StoreId, Generation),
    left: u64,
    last: &mut Option<PieceHeader>,
) -> esker_format::Result<Option<usize>> {
    let header = value_piece::parse(bytes)?;
    let length = (header.units() * UNIT_BYTES) as usize;
    match bytes.get(..length) {
        Some(piece) => {
            let number = header.identity.number;
            value_piece::open(piece, PieceIdentity { store, generation, number })?;
            let before = last
                .replace(header)
                .filter(|last| last.identity.number.checked_add(1) == Some(number));
            if before.is_some_and(|before| before.sum != header.before) {
                let what = "the piece of a value does not follow the one before it";
                return Err(DecodeError::new(32, what));
            }
            Ok(Some(length))
        }
        None if (length as u64) <= left => Ok(None),
        None => Err(DecodeError::new(28, "the piece of a value is longer than the catalog has it")),
    }
}

/// The length that a block says it has; more than there is if it says nonsense.
fn block_bytes(bytes: &[u8]) -> usize {
    let field = bytes.get(20..).and_then(<[u8]>::first_chunk::<4>);
    let length = field.map_or(0, |field| u32::from_le_bytes(*field) as usize);
    if length == 0 { usize::MAX } else { length }
}

/// Reads a part of the log and passes it on.
pub(super) fn read_chunk(folder: &Folder, chunk: &LogChunk, sink: &mut Sink<'_>) -> Result<()> {
    let place = chunk.place * UNIT_BYTES;
    let mut bytes = AlignedBuf::zeroed(chunk.bytes as usize);
    folder.blocks.read_at(place, &mut bytes, Purpose::Backup)?;
    if checksum(&bytes) != chunk.crc {
        return Err(damaged(BLOCKS, place, "a part of the log does not match its checksum"));
    }
    sink(chunk.offset, &bytes)
}

/// Makes a store of the backup on `device`, which is empty, or where a restoring has not ended.
pub(super) fn restore(
    folder: &Folder,
    device: &Arc<dyn Device>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let left_over = refuse_occupied(device.as_ref())?;
    let lock = device.try_lock()?;
    let _lock = lock.ok_or_else(|| Error::Locked { location: device.location() })?;
    for name in left_over {
        device.remove(&name)?;
    }
    device.open(RESTORING, Open::CreateNew, Caching::Buffered)?;
    device.sync_dir()?;
    let catalog = folder.backup()?;
    let state = state_of(catalog)?;
    for map in files(catalog, &state) {
        let file = create(device.as_ref(), &map)?;
        fill(folder, catalog, &map, file.as_ref(), progress)?;
        if !planted::is(Bug::RestoredBeforeData) {
            file.sync(Purpose::Backup)?;
        }
    }
    device.sync_dir()?;
    let options = ManifestOptions::default();
    let (poison, faults) = (Arc::<Poison>::default(), Arc::<FaultPoints>::default());
    let beginning = Beginning { state, features: catalog.features };
    Manifest::create_with(device, catalog.store, options, beginning, &poison, &faults)?;
    device.remove(RESTORING)?;
    Ok(device.sync_dir()?)
}

/// The files that an unfinished restoring has left, to be removed.
fn refuse_occupied(device: &dyn Device) -> Result<Vec<String>> {
    let mut names = device.list()?;
    names.retain(|name| name != LOCK);
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if !names.is_empty() && (has(SUPERBLOCK) || !has(RESTORING)) {
        return Err(Error::invalid(format!(
            "{} is not empty: a store is restored into a folder that is empty or new",
            device.location()
        )));
    }
    // The mark goes last: until then it is known what the rest is.
    names.sort_by_key(|name| name == RESTORING);
    Ok(names)
}

fn create(device: &dyn Device, map: &FileMap) -> Result<Arc<dyn DeviceFile>> {
    let file = device.open(&map.name, Open::CreateNew, Caching::Selective)?;
    file.preallocate(map.len, Purpose::Backup)?;
    Ok(file)
}

fn fill(
    folder: &Folder,
    catalog: &Catalog,
    map: &FileMap,
    file: &dyn DeviceFile,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut sink = |offset: u64, bytes: &[u8]| {
        progress(bytes.len() as u64)?;
        Ok(file.write_at(offset, bytes, Purpose::Backup)?)
    };
    match map.segment {
        Some(segment) => {
            let chunks = chunks_of(&catalog.chunks, segment).iter();
            chunks.into_iter().try_for_each(|chunk| read_chunk(folder, chunk, &mut sink))
        }
        None => catalog.pieces.iter().try_for_each(|piece| read_piece(folder, piece, &mut sink)),
    }
}
