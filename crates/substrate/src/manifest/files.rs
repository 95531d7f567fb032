//! The names of a store's files, and what a folder holds before it is opened.
//!
//! The commit point of a store's creation is the renaming of [`SUPERBLOCK_NEW`] to
//! [`SUPERBLOCK`]. Before it there is no store, regardless of what else has been written; after it
//! the store exists and is empty.

use esker_device::{Caching, Device, Open, Purpose};
use esker_format::frame::{FRAME_HEADER_BYTES, FrameHeader};
use esker_format::ids::Epoch;
use esker_format::manifest_edit::MANIFEST_GRAIN_BYTES;

use crate::error::{Error, Result};
use crate::followers::FOLLOWERS_FILE;
use crate::log::segment_number;
use crate::planted::{self, Bug};

/// The superblocks.
pub const SUPERBLOCK: &str = "superblock";
/// The superblocks of a store that is being created.
pub const SUPERBLOCK_NEW: &str = "superblock.new";
/// The file of blocks.
pub const DATA: &str = "data";
/// The file that holds the one-process lock.
pub const LOCK: &str = "lock";

/// The file name of an epoch's manifest.
#[must_use]
pub fn manifest_name(epoch: Epoch) -> String {
    format!("manifest-{:08x}", epoch.0)
}

/// The epoch of the manifest with this file name.
pub(super) fn manifest_epoch(name: &str) -> Option<Epoch> {
    let digits = name.strip_prefix("manifest-")?;
    let epoch = Epoch(u64::from_str_radix(digits, 16).ok()?);
    (manifest_name(epoch) == name).then_some(epoch)
}

/// The contents of a device before anything is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A store.
    Store,
    /// Nothing.
    Empty,
    /// Left behind by a creation that did not reach its commit point: remove these files, then
    /// create.
    Unfinished(Vec<String>),
}

/// Looks at a device and changes nothing.
///
/// Fails with `NotAStore` when there are foreign files, and with `Corrupt` when there is a store
/// whose superblock file is missing: that must never be mistaken for an unfinished creation.
pub fn probe(device: &dyn Device) -> Result<Presence> {
    let names = device.list()?;
    if names.iter().any(|name| name == SUPERBLOCK) {
        return Ok(Presence::Store);
    }
    let ours = |name: &str| {
        [SUPERBLOCK_NEW, DATA, LOCK, FOLLOWERS_FILE].contains(&name)
            || manifest_epoch(name).is_some()
            || segment_number(name).is_some()
    };
    if let Some(foreign) = names.iter().find(|name| !ours(name)) {
        return Err(Error::NotAStore {
            location: device.location(),
            what: format!("it holds {foreign:?} and no superblock"),
        });
    }
    // Neither a segment nor a second epoch comes before the superblock is durable under its name.
    let used = |name: &&String| {
        segment_number(name).is_some() || manifest_epoch(name).is_some_and(|epoch| epoch.0 != 1)
    };
    if let Some(used) = names.iter().find(used) {
        return Err(missing_superblock(used));
    }
    for name in &names {
        let is_used = match name.as_str() {
            _ if planted::is(Bug::RemainsAreNew) => false,
            DATA => device.open(name, Open::Existing, Caching::Buffered)?.len()? > 0,
            _ if manifest_epoch(name).is_some() => has_later_records(device, name)?,
            _ => false,
        };
        if is_used {
            return Err(missing_superblock(&format!("what {name} holds")));
        }
    }
    let is_kept = |name: &String| name == LOCK || name == FOLLOWERS_FILE;
    let leftovers: Vec<_> = names.into_iter().filter(|name| !is_kept(name)).collect();
    Ok(if leftovers.is_empty() { Presence::Empty } else { Presence::Unfinished(leftovers) })
}

/// Whether a manifest holds a record behind the first one, which is all that a creation writes. The
/// store of the folder is not known, but a record's body has a checksum of its own: remains of a
/// power cut in space that was never written do not pass for one.
fn has_later_records(device: &dyn Device, name: &str) -> Result<bool> {
    let file = device.open(name, Open::Existing, Caching::Buffered)?;
    let len = file.len()?;
    let mut header = [0; FRAME_HEADER_BYTES];
    // Headers whose bodies do not match and add up to more are not what a power cut leaves.
    let mut bytes_left = len.saturating_mul(4);
    for at in (0..len).step_by(MANIFEST_GRAIN_BYTES as usize) {
        if len - at < MANIFEST_GRAIN_BYTES {
            break;
        }
        file.read_at(at, &mut header, Purpose::Recovery)?;
        let later = FrameHeader::decode_unchecked(&header).ok().filter(|found| found.number > 1);
        let Some(found) = later else { continue };
        let frame_bytes = found.frame_bytes(MANIFEST_GRAIN_BYTES);
        if frame_bytes > len - at {
            continue;
        }
        let Some(left) = bytes_left.checked_sub(frame_bytes) else { return Ok(true) };
        bytes_left = left;
        let mut body = vec![0; frame_bytes as usize - FRAME_HEADER_BYTES];
        file.read_at(at + FRAME_HEADER_BYTES as u64, &mut body, Purpose::Recovery)?;
        if found.check_body(&body).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn missing_superblock(evidence: &str) -> Error {
    Error::Corrupt {
        file: SUPERBLOCK.to_string(),
        offset: 0,
        what: format!("the file is missing although {evidence} shows that the store was in use"),
    }
}

#[cfg(test)]
mod tests {
    use esker_device::memory::MemoryDevice;
    use esker_format::ids::{Generation, KeyspaceId, Seq, StoreId};
    use esker_format::manifest_edit::Edit;

    use super::super::records;
    use super::*;

    fn holding(names: &[&str]) -> Result<Presence> {
        let device = MemoryDevice::new();
        for name in names {
            device.open(name, Open::CreateNew, Caching::Buffered)?;
        }
        probe(&device)
    }

    #[test]
    fn manifest_names_are_read_back_exactly() {
        for epoch in [1, 0xffff_ffff, 0x1_0000_0000] {
            assert_eq!(manifest_epoch(&manifest_name(Epoch(epoch))), Some(Epoch(epoch)));
        }
        for name in ["manifest-", "manifest-1", "manifest-+0000001", "manifest-0000000G"] {
            assert_eq!(manifest_epoch(name), None, "{name}");
        }
    }

    #[test]
    fn a_folder_is_a_store_or_empty_or_unfinished_or_refused() {
        assert_eq!(holding(&[]).unwrap(), Presence::Empty);
        assert_eq!(holding(&["superblock", "anything"]).unwrap(), Presence::Store);
        let leftovers = ["data", "manifest-00000001", "superblock.new"];
        let Presence::Unfinished(mut found) = holding(&leftovers).unwrap() else { panic!() };
        found.sort();
        assert_eq!(found, leftovers);
        assert!(matches!(holding(&["data", "letter.txt"]), Err(Error::NotAStore { .. })));
        assert!(matches!(holding(&["data", "log-00000001"]), Err(Error::Corrupt { .. })));
        assert!(matches!(holding(&["manifest-00000002"]), Err(Error::Corrupt { .. })));
        // Nor does a creation write blocks, or a second record.
        let device = MemoryDevice::new();
        let put = |name: &str, at: u64| {
            let file = device.open(name, Open::CreateNew, Caching::Buffered).unwrap();
            file.write_at(at, &[1; 3 * 4096], Purpose::User).unwrap();
        };
        put("data", 0);
        assert!(matches!(probe(&device), Err(Error::Corrupt { .. })));
        device.remove("data").unwrap();
        assert_eq!(probe(&device).unwrap(), Presence::Empty);
        // Remains of a power cut in space that was never written are not a record.
        put("manifest-00000001", 512);
        assert!(matches!(probe(&device), Ok(Presence::Unfinished(_))));
        let seal = records::seal(StoreId(7), Epoch(1));
        let edit = Edit::NextKeyspace { id: KeyspaceId(3) };
        let second = records::encode(seal, 2, Seq(0), Generation(0), &[edit]).unwrap();
        let name = "manifest-00000001";
        let file = device.open(name, Open::Existing, Caching::Buffered).unwrap();
        file.write_at(1024, &second, Purpose::User).unwrap();
        assert!(matches!(probe(&device), Err(Error::Corrupt { .. })));
    }
}
