//! Reads of a follower that meet space which the writer has used again.
//!
//! Each block is checked against checksum and generation, so that the read fails as it does for
//! damage. The record that freed the space was durable before it was used again: it is in the
//! manifest, and the follower catches up and reads again. If there was no such record, it is
//! damage.

use esker_format::ids::Seq;

use super::{overtaken, refresh};
use crate::error::{Error, Result};
use crate::shared::Core;

/// Repeats of a read, each after the manifest has changed.
const REREADS_MAX: u32 = 32;

/// Does a read, in a store that has been entered; in a follower again after it has caught up, where
/// space may have been used again.
///
/// # Errors
/// Those of `read`, and in a follower those of catching up, and [`Error::Overtaken`].
pub(crate) fn reading<T>(shared: &Core, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    let Some(follower) = &shared.follower else { return read() };
    for _ in 0..REREADS_MAX {
        let states = follower.states();
        match read() {
            Err(error) if error.may_be_reuse() => {
                refresh(shared)?;
                if follower.states() == states {
                    return Err(error);
                }
            }
            done => return done,
        }
    }
    Err(overtaken(shared))
}

/// The error of a reader as of `seq` that has met `error`: in a follower whose writer does not keep
/// the number, what it reads may be gone.
pub(crate) fn too_old(shared: &Core, seq: Seq, error: Error) -> Error {
    let snapshots = shared.snapshots();
    if shared.follower.is_none() || snapshots.is_certain(seq) || !error.may_be_reuse() {
        return error;
    }
    Error::TooOld { seq: seq.0, from: snapshots.visible().0 }
}
