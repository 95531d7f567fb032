//! The file system's metadata, and the journal that it goes through: ext4 in ordered mode.
//!
//! **Rules.** J1: what changes metadata notes the block that it is in; a block counts once for each
//! transaction of the journal. J2: a sync of a file writes its data first, then the transaction:
//! one block that describes it and the changed blocks, a flush, the commit block, a flush. A
//! transaction without changes is none. J3: where the only change is a time of modification, a sync
//! of data alone (`fdatasync`) leaves it for later. J4: when the journal is full, each block that
//! was in it since the last time is written at its place.
//!
//! **Blocks.** With few files each kind of metadata is one block, and the bitmap of blocks one for
//! each 128 MiB. Making a file changes the directory, its inode, the bitmap of inodes and the
//! group descriptors; giving it blocks changes its inode, the bitmap of blocks and the group
//! descriptors; deleting it changes all of these, and the list of orphans in the superblock.

use std::collections::BTreeSet;

use esker_flash::Result;

use super::disk::{BLOCK_BYTES, Disk, PAGE_BLOCKS, Purpose};

/// Blocks of the journal: the fewest that ext4 has.
pub const JOURNAL_BLOCKS: u32 = 1024;
/// Blocks of metadata that there is room for.
const METADATA: u32 = 64;
/// The first block of the journal. Each block of metadata has a flash page of its own.
const JOURNAL_AT: u32 = METADATA * PAGE_BLOCKS;
/// The first block that files may have.
pub const DATA_AT: u32 = JOURNAL_AT + JOURNAL_BLOCKS;
/// Blocks of a group, which share a block of the bitmap.
const GROUP_BLOCKS: u32 = 32_768;

/// A block of metadata, by its number among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Meta(u32);

impl Meta {
    /// The superblock, with the list of orphans.
    pub const SUPER: Self = Self(0);
    /// The descriptors of the groups.
    pub const GROUPS: Self = Self(1);
    /// The bitmap of inodes.
    pub const INODE_BITMAP: Self = Self(2);
    /// The inodes, with sizes, times and extents.
    pub const INODES: Self = Self(3);
    /// The directory.
    pub const DIRECTORY: Self = Self(4);

    /// The part of the bitmap of blocks that has a block.
    #[must_use]
    pub fn bitmap_of(block: u32) -> Self {
        Self((5 + block / GROUP_BLOCKS).min(METADATA - 1))
    }

    /// Its place.
    #[must_use]
    pub const fn block(self) -> u32 {
        self.0 * PAGE_BLOCKS
    }
}

/// The journal, and the changes that are not in it yet.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Changes other than times.
    changed: BTreeSet<Meta>,
    /// Blocks in which a time of modification changed.
    times: BTreeSet<Meta>,
    /// Blocks that were in the journal since it was emptied.
    logged: BTreeSet<Meta>,
    /// The next block of the journal, from its first one.
    head: u32,
}

impl Journal {
    /// Notes changes.
    pub fn change(&mut self, metas: &[Meta]) {
        self.changed.extend(metas);
    }

    /// Notes a time of modification.
    pub fn touch(&mut self) {
        self.times.insert(Meta::INODES);
    }

    /// Whether something has changed, times aside.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Takes the changes; none where only times changed and only data is to be synced.
    fn take(&mut self, is_data_only: bool) -> BTreeSet<Meta> {
        if self.changed.is_empty() && is_data_only {
            return BTreeSet::new();
        }
        let mut taken = std::mem::take(&mut self.changed);
        taken.append(&mut self.times);
        taken
    }

    /// Ends the transaction, and makes everything durable that was written; when it is.
    ///
    /// # Errors
    /// Those of the device.
    pub fn commit(&mut self, disk: &mut Disk, now: u64, is_data_only: bool) -> Result<u64> {
        let changed = self.take(is_data_only);
        if changed.is_empty() {
            return disk.flush(now);
        }
        let count = changed.len() as u32;
        let mut at = now;
        if self.head + count + 2 > JOURNAL_BLOCKS {
            at = self.checkpoint(disk, at)?;
        }
        let blocks = vec![0; (count as usize + 1) * BLOCK_BYTES];
        let begin = JOURNAL_AT + self.head;
        at = disk.write(at, (Purpose::Journal, begin), &blocks, None)?;
        at = disk.flush(at)?;
        let end = begin + count + 1;
        at = disk.write(at, (Purpose::Journal, end), &[0; BLOCK_BYTES], None)?;
        self.head += count + 2;
        self.logged.extend(changed);
        disk.flush(at)
    }

    /// Writes metadata at its place, so that the journal is empty.
    fn checkpoint(&mut self, disk: &mut Disk, now: u64) -> Result<u64> {
        let mut at = now;
        for meta in std::mem::take(&mut self.logged) {
            at = disk.write(at, (Purpose::Metadata, meta.block()), &[0; BLOCK_BYTES], None)?;
        }
        self.head = 0;
        disk.flush(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::board::Board;
    use crate::machine::disk::LayerKind;

    fn disk() -> Disk {
        Disk::new(LayerKind::PageMapped, Board::Plain, 16).unwrap()
    }

    #[test]
    fn a_transaction_has_two_blocks_more_than_changed() {
        let (mut disk, mut journal) = (disk(), Journal::default());
        journal.change(&[Meta::INODES, Meta::GROUPS, Meta::INODES]);
        journal.touch();
        journal.commit(&mut disk, 0, false).unwrap();
        assert_eq!((disk.writes().blocks, disk.writes().barriers), ([0, 4, 0], 2));
        journal.commit(&mut disk, 0, false).unwrap();
        assert_eq!((disk.writes().total(), disk.writes().barriers), (4, 3));
    }

    #[test]
    fn times_wait_where_only_data_is_synced() {
        let (mut disk, mut journal) = (disk(), Journal::default());
        journal.touch();
        journal.commit(&mut disk, 0, true).unwrap();
        assert_eq!(disk.writes().total(), 0);
        journal.change(&[Meta::GROUPS]);
        journal.commit(&mut disk, 0, true).unwrap();
        assert_eq!(disk.writes().total(), 4, "with the time");
    }

    #[test]
    fn a_full_journal_is_emptied() {
        let (mut disk, mut journal) = (disk(), Journal::default());
        for _ in 0..JOURNAL_BLOCKS / 3 + 1 {
            journal.touch();
            journal.commit(&mut disk, 0, false).unwrap();
        }
        assert_eq!(disk.writes().of(Purpose::Metadata), 1);
        assert_eq!(disk.writes().of(Purpose::Journal), u64::from(JOURNAL_BLOCKS / 3 + 1) * 3);
    }

    #[test]
    fn places_do_not_overlap() {
        assert_eq!(Meta::SUPER.block(), 0);
        assert!(Meta::bitmap_of(u32::MAX).block() + PAGE_BLOCKS <= JOURNAL_AT);
        assert_ne!(Meta::bitmap_of(0), Meta::bitmap_of(GROUP_BLOCKS));
    }
}
