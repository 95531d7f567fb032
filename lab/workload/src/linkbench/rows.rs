//! The rows of LinkBench's graph in a key-value store: keys, and values of random bytes.

use crate::random::{Random, mixed};
use crate::row::{Row, key};

use super::draw::length;

/// Kinds of links.
pub const LINK_TYPES: u64 = 2;
/// Median and most bytes of a link's payload.
pub const LINK_PAYLOAD: (f64, usize) = (8.0, 255);
/// Median and most bytes of a node's payload.
pub const NODE_PAYLOAD: (f64, usize) = (128.0, 1 << 20);

/// The numbers of the tables and of the index.
const LINK: u32 = 1;
const SECONDARY: u32 = 2;
const COUNT: u32 = 3;
const NODE: u32 = 4;

/// Whether a link is shown: deleted links are hidden and stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It was deleted.
    Hidden = 0,
    /// It is there.
    Shown = 1,
}

/// A link as it is at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// From where.
    pub id1: u64,
    /// To where.
    pub id2: u64,
    /// Whether it is shown.
    pub visibility: Visibility,
    /// When it was written last; 0: when the graph was loaded.
    pub time: u64,
}

impl Link {
    /// Its type, which follows from the ids.
    #[must_use]
    pub const fn kind(&self) -> u64 {
        self.id2.wrapping_sub(self.id1) % LINK_TYPES
    }

    /// The key of its row: type, id1, id2.
    #[must_use]
    pub fn key(&self) -> Vec<u8> {
        link_key(self.kind(), self.id1, self.id2)
    }

    /// The key of its entry in the secondary index: id1, type, visibility, time, id2.
    #[must_use]
    pub fn secondary_key(&self) -> Vec<u8> {
        let mut bytes = key(SECONDARY, &[self.id1, self.kind()]);
        bytes.push(self.visibility as u8);
        bytes.extend_from_slice(&self.time.to_be_bytes());
        bytes.extend_from_slice(&self.id2.to_be_bytes());
        bytes
    }

    fn payload(&self, seed: u64) -> (Random, usize) {
        let start = seed ^ mixed(self.id1) ^ mixed(!self.id2) ^ mixed(self.time).rotate_left(9);
        let mut random = Random::new(start);
        let bytes = length(&mut random, LINK_PAYLOAD.0, LINK_PAYLOAD.1);
        (random, bytes)
    }

    /// Its row: visibility, time, version and payload.
    #[must_use]
    pub fn row(&self, seed: u64) -> Row {
        let (mut random, bytes) = self.payload(seed);
        let mut value = vec![self.visibility as u8];
        value.extend_from_slice(&self.time.to_be_bytes());
        value.extend_from_slice(&(self.time as u32).to_be_bytes());
        Row::Put { key: self.key(), value: filled(value, bytes, &mut random) }
    }

    /// Its entry in the secondary index, which has version and payload too.
    #[must_use]
    pub fn secondary_row(&self, seed: u64) -> Row {
        let (mut random, bytes) = self.payload(seed);
        let value = (self.time as u32).to_be_bytes().to_vec();
        Row::Put { key: self.secondary_key(), value: filled(value, bytes, &mut random) }
    }
}

/// The key of a link's row.
#[must_use]
pub fn link_key(kind: u64, id1: u64, id2: u64) -> Vec<u8> {
    key(LINK, &[kind, id1, id2])
}

/// The shown links of an id, of a type, from a time on: a scan of the secondary index.
#[must_use]
pub fn list(id1: u64, kind: u64, since: u64, most: u32) -> Row {
    let bound = |visibility: u8, time: u64| {
        let mut bytes = key(SECONDARY, &[id1, kind]);
        bytes.push(visibility);
        bytes.extend_from_slice(&time.to_be_bytes());
        bytes
    };
    let shown = Visibility::Shown as u8;
    Row::Scan { from: bound(shown, since), to: bound(shown + 1, 0), most }
}

/// The key of the number of links of an id, of a type.
#[must_use]
pub fn count_key(id1: u64, kind: u64) -> Vec<u8> {
    key(COUNT, &[id1, kind])
}

/// The row of that number: count, time and version.
#[must_use]
pub fn count_row(id1: u64, kind: u64, count: u64, time: u64) -> Row {
    let value = [count, time, time].map(u64::to_be_bytes).concat();
    Row::Put { key: count_key(id1, kind), value }
}

/// The key of a node.
#[must_use]
pub fn node_key(id: u64) -> Vec<u8> {
    key(NODE, &[id])
}

/// The row of a node at a time: type, version, time and payload.
#[must_use]
pub fn node_row(seed: u64, id: u64, time: u64) -> Row {
    let mut random = Random::new(seed ^ mixed(id) ^ mixed(!time).rotate_left(23));
    let bytes = length(&mut random, NODE_PAYLOAD.0, NODE_PAYLOAD.1);
    let mut value = vec![0, 0, 0, 1];
    value.extend_from_slice(&time.to_be_bytes());
    value.extend_from_slice(&(time as u32).to_be_bytes());
    Row::Put { key: node_key(id), value: filled(value, bytes, &mut random) }
}

/// A value with that many random bytes behind what it has.
fn filled(mut value: Vec<u8>, bytes: usize, random: &mut Random) -> Vec<u8> {
    let head = value.len();
    value.resize(head + bytes, 0);
    random.fill(value.get_mut(head..).unwrap_or_default());
    value
}
