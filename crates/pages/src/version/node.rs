//! The bytes of a map's nodes, and of the list of roots that lead to them.
//!
//! ```text
//! leaf:   repeated: u32 slot, u32 CRC-32C of its contents    as many as the parent says
//!         repeated: varint index, byte string delta          to the end, indices ascending
//! inner:  repeated: u32 sector, u32 bytes, u32 CRC-32C, u32 count    the same of each child
//! ```
//!
//! A sector of 0 is a hole, or a missing child. The checksum of a node is in its parent, so that a
//! node which is stale, misplaced or from another file is refused.

use std::sync::Arc;

use esker_format::DecodeError;
use esker_format::bytes::{Reader, put_byte_string, put_varint};

use crate::options::{PAGE_BYTES_MAX, check_page_size};
use crate::place::{Class, Sector};
use crate::version::delta;
use crate::version::mapping::{Delta, Entry, Mapping};
use crate::version::tree::{INNER, LEAF, Leaf, NodeRef};

/// The longest name of a version, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// The largest number of versions that can have names at the same time.
pub(crate) const NAMES_MAX: usize = 32;
/// Trees are never higher: four levels map more pages than there are numbers.
const HEIGHT_MAX: u8 = 4;

/// No store lives long enough to count as far: there is always a next number.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;

/// Nodes take slots of at least this many bytes, which they share with pages of that size.
pub(crate) const NODE_BYTES_MIN: usize = 4096;
/// And of at most this many.
pub(crate) const NODE_BYTES_MAX: usize = 64 * 1024;

/// The size of slot for a node of `bytes`.
pub(crate) fn node_class(bytes: usize) -> Option<Class> {
    Class::holding(bytes.max(NODE_BYTES_MIN))
}

/// The bytes of a leaf, and its count of mappings.
pub(crate) fn encode_leaf(leaf: &Leaf) -> (Vec<u8>, u32) {
    let entries = leaf.entries();
    let mut out = Vec::with_capacity(entries.len() * 8 + leaf.delta_bytes() * 2);
    for entry in &entries {
        out.extend_from_slice(&entry.slot.0.to_le_bytes());
        out.extend_from_slice(&entry.crc.to_le_bytes());
    }
    for (index, delta) in leaf.deltas() {
        put_varint(&mut out, index as u64);
        put_byte_string(&mut out, delta);
    }
    (out, entries.len() as u32)
}

/// Reads a leaf of a database with pages of `page_size`.
pub(crate) fn decode_leaf(bytes: &[u8], count: u32, page_size: u32) -> Result<Leaf, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut leaf = Leaf::default();
    if count as usize > LEAF || bytes.is_empty() {
        return Err(reader.error("a leaf has a wrong count"));
    }
    for index in 0..count as usize {
        let entry = Entry { slot: Sector(reader.u32()?), crc: reader.u32()? };
        if entry.slot != Sector::NONE {
            leaf.set(index, Mapping { entry, delta: None });
        }
    }
    let mut last = None;
    while !reader.is_empty() {
        let index = reader.length(LEAF - 1)?;
        if last.is_some_and(|last| last >= index) {
            return Err(reader.error("differences are out of order"));
        }
        let bytes = reader.byte_string(PAGE_BYTES_MAX as usize)?;
        if bytes.is_empty() {
            return Err(reader.error("a difference is empty"));
        }
        delta::check(bytes, page_size as usize)?;
        let entry = leaf.get(index).entry;
        leaf.set(index, Mapping { entry, delta: Some(Delta::new(bytes.into())) });
        last = Some(index);
    }
    Ok(leaf)
}

/// The bytes of an inner node, and its count of children.
pub(crate) fn encode_inner(children: &[Option<NodeRef>]) -> (Vec<u8>, u32) {
    let count = children.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
    let mut out = Vec::with_capacity(count * 16);
    for child in children.iter().take(count) {
        put_ref(&mut out, child.unwrap_or_default());
    }
    (out, count as u32)
}

/// Reads an inner node.
pub(crate) fn decode_inner(bytes: &[u8], count: u32) -> Result<Vec<Option<NodeRef>>, DecodeError> {
    let mut reader = Reader::new(bytes);
    if count as usize > INNER || count == 0 {
        return Err(reader.error("an inner node has a wrong count"));
    }
    let mut children = Vec::with_capacity(INNER);
    for _ in 0..count {
        let child = read_ref(&mut reader)?;
        children.push((child.sector != Sector::NONE).then_some(child));
    }
    reader.finish()?;
    if children.iter().all(Option::is_none) {
        return Err(reader.error("an inner node has no child"));
    }
    Ok(children)
}

fn put_ref(out: &mut Vec<u8>, node: NodeRef) {
    for field in [node.sector.0, node.bytes, node.crc, node.count] {
        out.extend_from_slice(&field.to_le_bytes());
    }
}

fn read_ref(reader: &mut Reader<'_>) -> Result<NodeRef, DecodeError> {
    Ok(NodeRef {
        sector: Sector(reader.u32()?),
        bytes: reader.u32()?,
        crc: reader.u32()?,
        count: reader.u32()?,
    })
}

/// One version that a checkpoint keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootRef {
    /// Its names; the newest version, the last of a list, need not have one.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) version: u64,
    pub(crate) page_size: u32,
    pub(crate) pages: u32,
    pub(crate) height: u32,
    pub(crate) top: Option<NodeRef>,
}

impl RootRef {
    /// The version in a new store: a database of no pages.
    pub(crate) fn first(page_size: u32) -> Self {
        Self { names: Vec::new(), version: 0, page_size, pages: 0, height: 0, top: None }
    }
}

/// The bytes of a list of roots.
///
/// ```text
/// u32 count, then of each version, the oldest first:
///   u64 version, u32 page size, u32 pages, u8 height, u8 names, byte strings
///   u32 sector, u32 bytes, u32 CRC-32C, u32 count    of the top node, 0 where all is zeros
/// ```
pub(crate) fn encode_roots(roots: &[RootRef]) -> Vec<u8> {
    let mut out = (roots.len() as u32).to_le_bytes().to_vec();
    for root in roots {
        out.extend_from_slice(&root.version.to_le_bytes());
        out.extend_from_slice(&root.page_size.to_le_bytes());
        out.extend_from_slice(&root.pages.to_le_bytes());
        out.push(root.height as u8);
        out.push(root.names.len() as u8);
        for name in &root.names {
            put_byte_string(&mut out, name.as_bytes());
        }
        put_ref(&mut out, root.top.unwrap_or_default());
    }
    out
}

/// Reads a list of roots; there is at least one, and versions ascend.
pub(crate) fn decode_roots(bytes: &[u8]) -> Result<Vec<RootRef>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.u32()?;
    if count == 0 || count as usize > NAMES_MAX + 1 {
        return Err(reader.error("a list of versions has a wrong count"));
    }
    let mut roots: Vec<RootRef> = Vec::new();
    for _ in 0..count {
        let root = decode_root(&mut reader)?;
        if roots.last().is_some_and(|last| last.version >= root.version) {
            return Err(reader.error("versions are out of order"));
        }
        roots.push(root);
    }
    reader.finish()?;
    Ok(roots)
}

fn decode_root(reader: &mut Reader<'_>) -> Result<RootRef, DecodeError> {
    let version = reader.u64()?;
    let page_size = reader.u32()?;
    let pages = reader.u32()?;
    let height = reader.u8()?;
    if check_page_size(page_size).is_err() || height > HEIGHT_MAX || version >= NUMBER_MAX {
        return Err(reader.error("a version has a wrong page size or height"));
    }
    let mut names = Vec::new();
    for _ in 0..reader.u8()? {
        names.push(read_name(reader)?);
    }
    let top = read_ref(reader)?;
    let top = (top.sector != Sector::NONE).then_some(top);
    Ok(RootRef { names, version, page_size, pages, height: height.into(), top })
}

/// Reads the name of a version.
pub(crate) fn read_name(reader: &mut Reader<'_>) -> Result<Arc<str>, DecodeError> {
    let bytes = reader.byte_string(NAME_BYTES_MAX)?;
    let name = std::str::from_utf8(bytes).map_err(|_| reader.error("a name is not UTF-8"))?;
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn leaves_round_trip(
            mappings in
                prop::collection::btree_map(0..LEAF, (1..100u32, any::<u32>(), 0..9u8), 1..60),
        ) {
            let mut leaf = Leaf::default();
            for (index, (slot, crc, len)) in mappings {
                let delta = (len > 0).then(|| delta_of(len));
                leaf.set(index, Mapping { entry: Entry { slot: Sector(slot), crc }, delta });
            }
            let (bytes, count) = encode_leaf(&leaf);
            let read = decode_leaf(&bytes, count, 512).unwrap();
            for index in 0..LEAF {
                prop_assert_eq!(read.get(index), leaf.get(index));
            }
        }

        #[test]
        fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..600u32) {
            let _ = decode_leaf(&bytes, count, 512);
            let _ = decode_inner(&bytes, count);
            let _ = decode_roots(&bytes);
        }
    }

    fn delta_of(len: u8) -> Delta {
        let mut delta = vec![0, len];
        delta.resize(usize::from(len) + 2, 7);
        Delta::new(delta.into())
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut leaf = Leaf::default();
        let entry = Entry { slot: Sector(0x0102), crc: 0x0a0b_0c0d };
        leaf.set(1, Mapping { entry, delta: None });
        leaf.set(300, Mapping { entry: Entry::default(), delta: Some(delta_of(1)) });
        let expected = [0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 13, 12, 11, 10, 0xac, 2, 3, 0, 1, 7];
        assert_eq!(encode_leaf(&leaf), (expected.to_vec(), 2));
        let child = NodeRef { sector: Sector(5), bytes: 6, crc: 7, count: 8 };
        let expected = [5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0];
        let (bytes, count) = encode_inner(&[None, Some(child), None]);
        assert_eq!((&bytes[..16], &bytes[16..], count), (&[0; 16][..], &expected[..], 2));
    }

    #[test]
    fn roots_round_trip() {
        let root = RootRef {
            names: vec!["a".into(), "b".into()],
            version: 3,
            page_size: 512,
            pages: 9,
            height: 1,
            top: Some(NodeRef { sector: Sector(5), bytes: 6, crc: 7, count: 8 }),
        };
        let newest = RootRef { names: Vec::new(), version: 4, top: None, ..root.clone() };
        let roots = vec![root, newest];
        assert_eq!(decode_roots(&encode_roots(&roots)).unwrap(), roots);
    }
}
