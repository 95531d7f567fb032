//! Blocks of records, and levels of blocks, of which only the keys are there.

use esker_index::lsm::policy::Blocks;

/// A key, and whether it is a tombstone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record(u64);

impl Record {
    /// A record.
    #[must_use]
    pub const fn new(key: u32, is_tombstone: bool) -> Self {
        Self((key as u64) << 1 | is_tombstone as u64)
    }

    /// Its key.
    #[must_use]
    pub const fn key(self) -> u32 {
        (self.0 >> 1) as u32
    }

    /// Whether it says that the key is gone.
    #[must_use]
    pub const fn is_tombstone(self) -> bool {
        self.0 & 1 == 1
    }
}

/// A block.
///
/// Invariant: the keys ascend, there is one at least, and `fence` is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    fence: [u8; 4],
    records: Vec<Record>,
}

impl Block {
    /// The block of these records; `None` of none.
    #[must_use]
    pub fn new(records: Vec<Record>) -> Option<Self> {
        let fence = records.first()?.key().to_be_bytes();
        Some(Self { fence, records })
    }

    /// Its records.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Its first key.
    #[must_use]
    pub const fn first(&self) -> u32 {
        u32::from_be_bytes(self.fence)
    }

    /// Its last key.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.records.last().map_or(0, |record| record.key())
    }

    /// Whether one of its records is a tombstone.
    #[must_use]
    pub fn has_tombstones(&self) -> bool {
        self.records.iter().any(|record| record.is_tombstone())
    }
}

/// Blocks in the order of their keys, as policies see them: each counts for one.
#[derive(Clone, Debug, Default)]
pub struct Level(pub Vec<Block>);

impl Level {
    /// The number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.0.iter().map(|block| block.records.len() as u64).sum()
    }
}

impl Blocks for Level {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn key(&self, block: usize) -> &[u8] {
        self.0.get(block).map_or(&[], |block| &block.fence)
    }

    fn bytes(&self, _: usize) -> u64 {
        1
    }
}
