//! The mapping of a page: its place, and its changes since it was written there.

use std::ops::Deref;
use std::sync::Arc;

use crate::place::Sector;

/// The place of a page's contents. The default is a hole: a page of zeros that is nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) slot: Sector,
    /// CRC-32C of the slot's contents; 0 for a hole.
    pub(crate) crc: u32,
}

/// The changes of a page since its slot was written.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    bytes: Arc<[u8]>,
    /// Bytes of all deltas since then, as far as this opening knows.
    spent: usize,
}

impl Delta {
    pub(crate) fn new(bytes: Arc<[u8]>) -> Self {
        Self { spent: bytes.len(), bytes }
    }

    /// One that takes the place of another.
    pub(crate) fn after(old: Option<&Self>, bytes: Arc<[u8]>) -> Self {
        Self { spent: old.map_or(0, |old| old.spent) + bytes.len(), bytes }
    }

    pub(crate) fn spent(&self) -> usize {
        self.spent
    }
}

impl Deref for Delta {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Delta {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Delta {}

/// The place and the delta of a page in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) entry: Entry,
    pub(crate) delta: Option<Delta>,
}

impl Mapping {
    pub(crate) fn is_hole(&self) -> bool {
        self.entry.slot == Sector::NONE && self.delta.is_none()
    }
}
