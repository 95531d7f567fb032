//! The current epoch: reading and writing the superblock file.
//!
//! A new epoch overwrites the superblock before the last one, never the last one, and both of its
//! copies are durable before anything else happens. So the valid slot with the highest epoch is
//! the current one; that it may also be the last one *left* after both copies of a newer epoch
//! rotted is for the caller to exclude, by looking at the newer epoch's manifest.

use esker_device::{DeviceFile, Purpose};
use esker_format::FORMAT_VERSION;
use esker_format::superblock::{
    COPIES, SLOT_BYTES, SLOT_DISTANCE_BYTES, SLOTS, SlotError, Superblock, slot_offset,
};

use super::Problem;
use super::files::SUPERBLOCK;
use crate::error::{Error, Result};
use crate::planted::{self, Bug};

/// The newest superblock of a file.
#[derive(Debug)]
pub(super) struct Newest {
    pub superblock: Superblock,
    /// Copies of it that are bad. After a crash in the middle of writing it there may be one.
    pub bad_copies: Vec<Problem>,
}

/// Reads all slots and chooses the newest valid one.
pub(super) fn read(file: &dyn DeviceFile, location: &str, purpose: Purpose) -> Result<Newest> {
    let mut slots = Vec::new();
    for index in 0..SLOTS {
        slots.push(read_slot(file, index * SLOT_DISTANCE_BYTES, purpose)?);
    }
    let valid = slots.iter().filter_map(|slot| slot.as_ref().ok());
    let Some(newest) = valid.max_by_key(|superblock| superblock.epoch).copied() else {
        return Err(no_superblock(&slots, location));
    };
    // A valid slot of a newer version next to an older one is a newer esker's store.
    if let Some(error) = slots.iter().find_map(refusal) {
        return Err(error);
    }
    let bad_copies = (0..COPIES)
        .map(|copy| slot_offset(newest.epoch, copy))
        .filter(|offset| {
            let index = (offset / SLOT_DISTANCE_BYTES) as usize;
            !matches!(slots.get(index), Some(Ok(superblock)) if *superblock == newest)
        })
        .map(|offset| Problem {
            file: SUPERBLOCK.to_string(),
            offset,
            what: "one of two copies is damaged".to_string(),
        })
        .collect();
    Ok(Newest { superblock: newest, bad_copies })
}

/// Writes both copies of a superblock and syncs neither.
pub(super) fn write(file: &dyn DeviceFile, superblock: &Superblock) -> Result<()> {
    let slot = superblock.encode();
    for copy in 0..COPIES {
        file.write_at(slot_offset(superblock.epoch, copy), &slot, Purpose::Manifest)?;
    }
    Ok(())
}

fn read_slot(
    file: &dyn DeviceFile,
    offset: u64,
    purpose: Purpose,
) -> Result<std::result::Result<Superblock, SlotError>> {
    let mut slot = vec![0; SLOT_BYTES];
    // A file cut short has lost its last slots; the others still count.
    let left = file.len()?.saturating_sub(offset).min(SLOT_BYTES as u64);
    if let Some(part) = slot.get_mut(..left as usize).filter(|part| !part.is_empty()) {
        file.read_at(offset, part, purpose)?;
    }
    if planted::is(Bug::SuperblockWithoutChecksum) {
        return Ok(Superblock::decode_unchecked(&slot));
    }
    Ok(Superblock::decode(&slot))
}

fn refusal(slot: &std::result::Result<Superblock, SlotError>) -> Option<Error> {
    match slot {
        Err(SlotError::TooNew(found)) => Some(Error::TooNew {
            file: SUPERBLOCK.to_string(),
            found: *found,
            supported: FORMAT_VERSION,
        }),
        Err(SlotError::TooOld(found)) => Some(Error::Invalid {
            what: format!(
                "{SUPERBLOCK} has format version {found}, of a development build; this build reads \
                 version {FORMAT_VERSION}: dump the store with the build that wrote it"
            ),
        }),
        Err(SlotError::UnknownFeatures(features)) => Some(Error::Invalid {
            what: format!(
                "{SUPERBLOCK} needs features or a cipher that this build does not know \
                 ({features:#x}): use a newer esker"
            ),
        }),
        Ok(_) | Err(SlotError::NotOurs | SlotError::Damaged(_)) => None,
    }
}

fn no_superblock(slots: &[std::result::Result<Superblock, SlotError>], location: &str) -> Error {
    if let Some(error) = slots.iter().find_map(refusal) {
        return error;
    }
    let damaged = slots.iter().zip(0..).find_map(|(slot, index)| match slot {
        Err(SlotError::Damaged(error)) => Some((index * SLOT_DISTANCE_BYTES, error.what)),
        _ => None,
    });
    match damaged {
        Some((offset, what)) => Error::Corrupt {
            file: SUPERBLOCK.to_string(),
            offset,
            what: format!("no valid superblock is left: {what}"),
        },
        None => Error::NotAStore {
            location: location.to_string(),
            what: "its file \"superblock\" holds no superblock".to_string(),
        },
    }
}
