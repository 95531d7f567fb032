//! The bytes of a page: a header, and entries in ascending order of their keys.
//!
//! ```text
//!  0 magic u16 | 2 version u8 | 3 kind u8 | 4 level u8 | 5 zero u8 | 6 used u16
//!  8 seq u64   | 16 owner u32 | 20 erases u32 | 24 crc u32 | 28 payload of `used` bytes
//! ```
//! `seq` numbers all pages that were ever programmed; `owner` is a buffer, or the number of a
//! checkpoint; `erases` is the erase count of the page's block. The checksum (CRC-32) covers the
//! header before it and the payload. All numbers are little-endian.
//!
//! An entry is `key length u16 | value length u16 | key | value`; a value length of 0xFFFF is a
//! removal. In an inner node the value is the address of a child or the id of a subtree (u32).

use crate::chip::PageNo;
use crate::error::{Error, Result};

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 28;
/// Bytes of an entry besides key and value.
pub(crate) const ENTRY_BYTES: usize = 4;
/// The version of the format.
pub(crate) const VERSION: u8 = 1;
/// The value length of a removal.
const REMOVED: u16 = u16::MAX;
const MAGIC: u16 = 0x544C;

/// What a page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Node = 1,
    Fragment = 2,
    Checkpoint = 3,
    Log = 4,
}

/// The header without what is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub kind: Kind,
    pub level: u8,
    pub seq: u64,
    pub owner: u32,
    pub erases: u32,
}

/// An operation on a key as pages and buffers have it: `None` is a removal.
pub(crate) type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// What the bytes of a page were found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    Ours(Header),
    /// Of a later version, whose number this is.
    Newer(u8),
    /// Of the tree, and its checksum is wrong.
    Torn,
    Foreign,
}

/// Writes header and checksum around the payload that `page` already has after its header.
pub(crate) fn seal(page: &mut [u8], used: usize, header: &Header) {
    let used = u16::try_from(used).unwrap_or(u16::MAX);
    put(page, 0, &MAGIC.to_le_bytes());
    put(page, 2, &[VERSION, header.kind as u8, header.level, 0]);
    put(page, 6, &used.to_le_bytes());
    put(page, 8, &header.seq.to_le_bytes());
    put(page, 16, &header.owner.to_le_bytes());
    put(page, 20, &header.erases.to_le_bytes());
    let crc = checksum(page, usize::from(used));
    put(page, 24, &crc.to_le_bytes());
}

/// Reads a header and checks the page.
pub(crate) fn decode(page: &[u8]) -> Decoded {
    if u16_at(page, 0) != Some(MAGIC) {
        return Decoded::Foreign;
    }
    let (Some(version), Some(kind), Some(level)) = (page.get(2), page.get(3), page.get(4)) else {
        return Decoded::Torn;
    };
    if *version > VERSION {
        return Decoded::Newer(*version);
    }
    let used = usize::from(u16_at(page, 6).unwrap_or(u16::MAX));
    if HEADER_BYTES + used > page.len() || u32_at(page, 24) != Some(checksum(page, used)) {
        return Decoded::Torn;
    }
    let kind = match kind {
        1 => Kind::Node,
        2 => Kind::Fragment,
        3 => Kind::Checkpoint,
        4 => Kind::Log,
        _ => return Decoded::Torn,
    };
    let seq = page.get(8..16).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    let (owner, erases) = (u32_at(page, 16).unwrap_or(0), u32_at(page, 20).unwrap_or(0));
    Decoded::Ours(Header { kind, level: *level, seq, owner, erases })
}

/// The payload of a page that was checked.
pub(crate) fn payload(page: &[u8]) -> &[u8] {
    let used = usize::from(u16_at(page, 6).unwrap_or(0));
    page.get(HEADER_BYTES..HEADER_BYTES + used).unwrap_or(&[])
}

/// The payload of a page that must be of this kind.
pub(crate) fn require(page: &[u8], at: PageNo, kind: Kind) -> Result<Header> {
    match decode(page) {
        Decoded::Ours(header) if header.kind == kind => Ok(header),
        Decoded::Ours(_) => Err(Error::Damaged { page: at, what: "it holds something else" }),
        _ => Err(Error::Damaged { page: at, what: "its checksum is wrong" }),
    }
}

fn checksum(page: &[u8], used: usize) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(page.get(..24).unwrap_or(&[]));
    hasher.update(page.get(HEADER_BYTES..HEADER_BYTES + used).unwrap_or(&[]));
    hasher.finalize()
}

fn put(page: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = page.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The size of an entry.
pub(crate) fn entry_bytes((key, value): Entry<'_>) -> usize {
    ENTRY_BYTES + key.len() + value.map_or(0, <[u8]>::len)
}

/// Appends an entry.
pub(crate) fn append(to: &mut alloc::vec::Vec<u8>, (key, value): Entry<'_>) {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(REMOVED - 1);
    to.extend_from_slice(&length(key).to_le_bytes());
    to.extend_from_slice(&value.map_or(REMOVED, length).to_le_bytes());
    to.extend_from_slice(key);
    to.extend_from_slice(value.unwrap_or(&[]));
}

/// Puts an entry in the place of the bytes of `old`.
pub(crate) fn splice(
    bytes: &mut alloc::vec::Vec<u8>,
    old: core::ops::Range<usize>,
    (key, value): Entry<'_>,
) {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap_or(REMOVED - 1);
    let head = length(key).to_le_bytes().into_iter();
    let head = head.chain(value.map_or(REMOVED, length).to_le_bytes());
    let body = key.iter().chain(value.unwrap_or(&[])).copied();
    bytes.splice(old, head.chain(body));
}

/// The entry at the beginning of `bytes`, and what follows; none at the end or where it is cut.
pub(crate) fn first(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (key_length, value_length) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)?);
    let rest = bytes.get(ENTRY_BYTES..)?;
    let (key, rest) = rest.split_at_checked(key_length)?;
    if value_length == REMOVED {
        return Some(((key, None), rest));
    }
    let (value, rest) = rest.split_at_checked(usize::from(value_length))?;
    Some(((key, Some(value)), rest))
}

/// The entries of a payload, in ascending order.
pub(crate) fn entries(mut bytes: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    core::iter::from_fn(move || {
        let (entry, rest) = first(bytes)?;
        bytes = rest;
        Some(entry)
    })
}

/// The number in an entry of an inner node; 0xFFFF_FFFF for one that is damaged.
pub(crate) fn child(value: Option<&[u8]>) -> u32 {
    value.and_then(|bytes| u32_at(bytes, 0)).unwrap_or(u32::MAX)
}

/// The bytes that follow the lengths of an entry.
pub(crate) fn body_bytes(lengths: &[u8]) -> usize {
    let value = u16_at(lengths, 2).filter(|length| *length != REMOVED).unwrap_or(0);
    usize::from(u16_at(lengths, 0).unwrap_or(0)) + usize::from(value)
}
