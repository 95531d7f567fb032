//! A node as a page: sorted entries, and the changes that can be made to it.
//!
//! ```text
//! magic u8 | level u8 | entries u16 | node u32 | entry …
//! leaf (level 0): key u64 | value u64 | unused      inner node: least key u64 | child u32
//! ```
//!
//! An inner entry leads to the keys from its own to that of the next entry; the first one of a
//! node leads to all smaller keys of the node, too.

use crate::error::{Error, Result, broken};

const MAGIC: u8 = 0x4e;
const HEADER: usize = 8;
const INNER_BYTES: usize = 12;
/// Bytes of a leaf's entry without anything unused.
pub const LEAF_BYTES: usize = 16;

/// The sizes of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a page, at least 64.
    pub page_bytes: usize,
    /// Bytes of a leaf's entry: [`LEAF_BYTES`], or more to compare trees whose entries are larger.
    pub leaf_bytes: usize,
    /// The most entries of a node, where that is less than fit.
    pub entries_max: usize,
}

impl Layout {
    /// Entries of [`LEAF_BYTES`], as many as fit.
    #[must_use]
    pub const fn of_page(page_bytes: usize) -> Self {
        Self { page_bytes, leaf_bytes: LEAF_BYTES, entries_max: usize::MAX }
    }

    /// The most entries of a node of this level.
    #[must_use]
    pub fn capacity(&self, level: u8) -> usize {
        (self.page_bytes.saturating_sub(HEADER) / self.entry_bytes(level)).min(self.entries_max)
    }

    const fn entry_bytes(&self, level: u8) -> usize {
        if level == 0 { self.leaf_bytes } else { INNER_BYTES }
    }

    /// Refuses pages in which a tree cannot branch.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn require(&self) -> Result<()> {
        if self.capacity(0) >= 3 && self.capacity(1) >= 3 && self.leaf_bytes >= LEAF_BYTES {
            return Ok(());
        }
        let Self { page_bytes, leaf_bytes, .. } = self;
        Err(Error::Refused(format!(
            "nodes of {page_bytes} bytes with entries of {leaf_bytes}: use entries of 16 bytes or \
             more, and room for 3 of them"
        )))
    }
}

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Sets a key's value, or an inner node's child.
    Put {
        /// The key.
        key: u64,
        /// The value, or the number of the child.
        value: u64,
    },
    /// Removes a key.
    Remove {
        /// The key.
        key: u64,
    },
    /// Removes all keys from this one on: the rest of a split.
    Cut {
        /// The first key that is removed.
        key: u64,
    },
}

/// The image of a node.
#[derive(Clone, Debug)]
pub struct Page {
    bytes: Box<[u8]>,
    layout: Layout,
}

impl Page {
    /// An empty node.
    #[must_use]
    pub fn new(layout: Layout, node: u32, level: u8) -> Self {
        let mut page = Self { bytes: vec![0; layout.page_bytes].into(), layout };
        page.reset(node, level);
        page
    }

    /// Makes it an empty node.
    pub fn reset(&mut self, node: u32, level: u8) {
        self.bytes.fill(0);
        self.set(0, &[MAGIC, level]);
        self.set(4, &node.to_le_bytes());
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its bytes, to be read into; [`Page::require`] judges them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Refuses a page that is not this node.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn require(&self, node: u32, level: u8) -> Result<()> {
        let found = u32::from_le_bytes(self.array(4));
        let fits = self.len() * self.layout.entry_bytes(level) + HEADER <= self.bytes.len();
        if self.array::<2>(0) == [MAGIC, level] && found == node && fits {
            return Ok(());
        }
        let what = format!(
            "expected magic {MAGIC}, level {level}, found {:?}, node {found}, {} entries",
            self.array::<2>(0),
            self.len()
        );
        Err(Error::Damaged { node, what })
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(u16::from_le_bytes(self.array(2)))
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The level: 0 for leaves.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.array::<1>(1)[0]
    }

    /// Whether no entry can be added.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.layout.capacity(self.level())
    }

    /// The key at an index below [`Page::len`].
    #[must_use]
    pub fn key(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(self.offset(at)))
    }

    /// The value at an index below [`Page::len`].
    #[must_use]
    pub fn value(&self, at: usize) -> u64 {
        let offset = self.offset(at) + 8;
        if self.level() == 0 {
            u64::from_le_bytes(self.array(offset))
        } else {
            u32::from_le_bytes(self.array(offset)).into()
        }
    }

    /// The entry at an index below [`Page::len`].
    #[must_use]
    pub fn entry(&self, at: usize) -> (u64, u64) {
        (self.key(at), self.value(at))
    }

    /// All entries.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        (0..self.len()).map(|at| self.entry(at))
    }

    /// The index of a key, or where it would be.
    pub fn search(&self, key: u64) -> std::result::Result<usize, usize> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = usize::midpoint(from, to);
            match self.key(middle).cmp(&key) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        Err(from)
    }

    /// The index of the child that has a key, in an inner node with entries.
    #[must_use]
    pub fn child_of(&self, key: u64) -> usize {
        self.search(key).unwrap_or_else(|at| at.saturating_sub(1))
    }

    /// Makes a change.
    ///
    /// # Errors
    /// A node that is full.
    pub fn apply(&mut self, change: &Change) -> Result<()> {
        match *change {
            Change::Put { key, value } => match self.search(key) {
                Ok(at) => self.write(at, key, value),
                Err(at) => return self.insert(at, key, value),
            },
            Change::Remove { key } => {
                if let Ok(at) = self.search(key) {
                    let (from, to) = (self.offset(at + 1), self.offset(self.len()));
                    self.bytes.copy_within(from..to, self.offset(at));
                    self.set_len(self.len() - 1);
                }
            }
            Change::Cut { key } => {
                let at = self.search(key).unwrap_or_else(|at| at);
                self.set_len(at);
            }
        }
        Ok(())
    }

    fn insert(&mut self, at: usize, key: u64, value: u64) -> Result<()> {
        let len = self.len();
        if self.offset(len + 1) > self.bytes.len() {
            return broken(format!("an entry is added to a node with {len}, which is full"));
        }
        self.bytes.copy_within(self.offset(at)..self.offset(len), self.offset(at + 1));
        self.set_len(len + 1);
        self.write(at, key, value);
        Ok(())
    }

    fn write(&mut self, at: usize, key: u64, value: u64) {
        let offset = self.offset(at);
        self.set(offset, &key.to_le_bytes());
        if self.level() == 0 {
            self.set(offset + 8, &value.to_le_bytes());
        } else {
            self.set(offset + 8, &(value as u32).to_le_bytes());
        }
    }

    fn offset(&self, at: usize) -> usize {
        HEADER + at * self.layout.entry_bytes(self.level())
    }

    fn set_len(&mut self, len: usize) {
        self.set(2, &(len as u16).to_le_bytes());
    }

    fn set(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        let found = self.bytes.get(offset..offset + N).and_then(|bytes| bytes.try_into().ok());
        found.unwrap_or([0; N])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_keep_the_order_and_come_back_from_bytes() {
        let mut page = Page::new(Layout::of_page(512), 7, 0);
        for key in [5, 1, 9, 3, 5] {
            page.apply(&Change::Put { key, value: 10 * key }).unwrap();
        }
        page.apply(&Change::Remove { key: 3 }).unwrap();
        page.apply(&Change::Remove { key: 4 }).unwrap();
        assert_eq!(page.entries().collect::<Vec<_>>(), [(1, 10), (5, 50), (9, 90)]);
        let mut read = Page::new(Layout::of_page(512), 0, 0);
        read.bytes_mut().copy_from_slice(page.bytes());
        read.require(7, 0).unwrap();
        assert!(read.require(8, 0).is_err() && read.require(7, 1).is_err());
        read.apply(&Change::Cut { key: 5 }).unwrap();
        assert_eq!(read.entries().collect::<Vec<_>>(), [(1, 10)]);
    }

    #[test]
    fn capacities_are_what_fits() {
        let layout = Layout::of_page(512);
        assert_eq!((layout.capacity(0), layout.capacity(1)), (31, 42));
        assert_eq!(Layout { leaf_bytes: 24, ..layout }.capacity(0), 21);
        assert!(Layout::of_page(32).require().is_err());
        let mut page = Page::new(layout, 0, 1);
        for key in 0..42 {
            page.apply(&Change::Put { key, value: key }).unwrap();
        }
        assert!(page.is_full() && page.apply(&Change::Put { key: 99, value: 0 }).is_err());
        assert_eq!((page.child_of(0), page.child_of(7), page.child_of(1_000)), (0, 7, 41));
    }
}
