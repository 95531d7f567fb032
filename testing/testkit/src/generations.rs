//! Generations are used once: what a store says that it may hand out next is above everything that
//! is on its device, also where nothing refers to it any more, or never did.
//!
//! Blocks and pieces of values say themselves of which generation they are. All of the data file is
//! looked through for them, free space included: a value may have come there whose record did not.

use std::sync::Arc;

use esker_device::{Caching, Device, Open, Purpose};
use esker_format::block;
use esker_format::ids::{Generation, StoreId};
use esker_format::ptr::SECTOR_BYTES;
use esker_format::value_piece;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::manifest::files::SUPERBLOCK;
use esker_substrate::manifest::{Manifest, ManifestOptions};

use crate::violation::{Oracle, Verdict, Violation, ensure};

/// Compares what the manifest on `device` says with what is in the data file. A store that is not
/// there, or does not open, is for others to judge.
///
/// # Errors
/// A generation that would be handed out again.
pub fn are_used_once(device: &Arc<dyn Device>) -> Verdict {
    let harness = |error: &dyn ToString| Violation::new(Oracle::Harness, error.to_string());
    let names = device.list().map_err(|error| harness(&error))?;
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    if !has(SUPERBLOCK) || !has(DATA_FILE) {
        return Ok(());
    }
    let options = ManifestOptions::default();
    let opened = Manifest::open(device, options, &Arc::default(), &Arc::default());
    let Ok((manifest, _)) = opened else { return Ok(()) };
    let file = device.open(DATA_FILE, Open::Existing, Caching::Buffered);
    let file = file.map_err(|error| harness(&error))?;
    let mut bytes = vec![0; file.len().map_err(|error| harness(&error))? as usize];
    file.read_at(0, &mut bytes, Purpose::Check).map_err(|error| harness(&error))?;
    let next = manifest.state().next_generation;
    let sectors = bytes.chunks(SECTOR_BYTES as usize);
    let found = sectors.filter_map(|sector| generation_of(sector, manifest.store())).max();
    ensure(found.is_none_or(|found| found < next), Oracle::NumbersAreUsedOnce, || {
        let found = found.unwrap_or_default();
        format!("generation {found} is on the device, and {next} is the next one to be handed out")
    })
}

/// The generation of the block, or the piece of a value, that begins here.
fn generation_of(sector: &[u8], store: StoreId) -> Option<Generation> {
    let (of_store, of_generation) = match sector.first_chunk::<4>()? {
        magic if *magic == block::MAGIC => (8, 32),
        _ if value_piece::is_piece(sector) => (8, 16),
        _ => return None,
    };
    let field = |at: usize| {
        let bytes = sector.get(at..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    };
    (field(of_store)? == store.0).then_some(Generation(field(of_generation)?))
}
