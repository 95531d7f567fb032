//! What a file is before it is opened: a store, or nothing yet; and the first bytes of a new store.

use esker_device::Purpose;

use crate::error::{Error, Result, corrupt};
use crate::log::superblock::{
    FORMAT, Found, SUPERBLOCKS_BYTES, Superblock, find, find_epoch, first_bytes,
};
use crate::media::Media;
use crate::options::Options;
use crate::planted::{self, Bug};
use crate::version::node::{NODE_BYTES_MIN, RootRef, encode_roots};

/// Segments of a new store; its first checkpoint needs no more.
pub(super) const NEW_SEGMENTS: u32 = 5;

/// The kind of a file: a store, or, by its first bytes, one that is yet to be made; [`check_new`]
/// looks at the others.
pub(crate) fn find_in(media: &dyn Media) -> Result<Found> {
    let len = media.bytes()?;
    let mut head = vec![0; (len as usize).min(SUPERBLOCKS_BYTES)];
    media.read(0, &mut head, Purpose::Recovery)?;
    let name = || media.name().to_owned();
    match find(&head) {
        found @ (Found::Superblock(_) | Found::Nothing) => Ok(found),
        Found::Foreign(what) => Err(Error::Foreign { file: name(), what }),
        Found::Newer(found) => Err(Error::TooNew { file: name(), found, supported: FORMAT }),
        Found::Damaged => {
            Err(corrupt(media.name(), 0, "the newest copies of the superblock are lost"))
        }
    }
}

/// The superblock of an epoch, if it is the newest or the one before it.
pub(crate) fn of_epoch(media: &dyn Media, epoch: u64) -> Result<Option<Superblock>> {
    let len = media.bytes()?;
    let mut head = vec![0; (len as usize).min(SUPERBLOCKS_BYTES)];
    media.read(0, &mut head, Purpose::Recovery)?;
    Ok(find_epoch(&head, epoch))
}

/// Fails unless `media`, whose first bytes are zeros, is what an interrupted creation with these
/// options leaves before its first superblock is whole: empty, or zeros to its end, no longer than
/// [`new_bytes`], except for the list of roots and one copy. Anything else is another file, or a
/// store that has lost its first bytes.
pub(crate) fn check_new(media: &dyn Media, options: &Options) -> Result<()> {
    let foreign = |what| Err(Error::Foreign { file: media.name().to_owned(), what });
    let len = media.bytes()?;
    if planted::is(Bug::HeadIsEnough) {
        return Ok(());
    }
    if len > new_bytes(options.segment_bytes) {
        return foreign(
            "longer than a new store and begins with zeros: it is no page store, or one whose \
             first bytes are lost; restore it from a copy, or choose another file",
        );
    }
    let roots = encode_roots(&[RootRef::first(options.page_size)]);
    let mut block = vec![0; NODE_BYTES_MIN];
    for at in (0..len).step_by(NODE_BYTES_MIN) {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(NODE_BYTES_MIN);
        let block = block.get_mut(..part).unwrap_or_default();
        media.read(at, block, Purpose::Recovery)?;
        let superblock = if at < SUPERBLOCKS_BYTES as u64 { first_bytes(block) } else { 0 };
        let rest = block.strip_prefix(roots.as_slice()).unwrap_or(block);
        let rest = rest.get(superblock..).unwrap_or_default();
        if rest.iter().any(|byte| *byte != 0) {
            return foreign(
                "not empty and begins with zeros: it is no page store, or one whose first bytes \
                 are lost; restore it from a copy, or choose another file",
            );
        }
    }
    Ok(())
}

/// Bytes of zeros that a new store begins as: the superblocks, the first list of roots, and the
/// log, with what its first checkpoint keeps free.
fn new_bytes(segment_bytes: u32) -> u64 {
    u64::from(NEW_SEGMENTS) * u64::from(segment_bytes)
}

/// Makes the first segments of a new store.
pub(crate) fn put_zeros(media: &dyn Media, segment_bytes: u32) -> Result<()> {
    let zeros = vec![0; segment_bytes as usize];
    for segment in 0..u64::from(NEW_SEGMENTS) {
        media.write(segment * u64::from(segment_bytes), &zeros, Purpose::Gc)?;
    }
    // What is not yet a store must be zeros, or it looks like another's file.
    Ok(media.flush(Purpose::Manifest)?)
}
