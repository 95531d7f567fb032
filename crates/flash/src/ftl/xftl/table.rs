//! X-L2P: the mappings of open transactions, and committed ones that the map on flash lacks.
//! No I/O.
//!
//! | bytes | entry on flash |
//! |---|---|
//! | 0..4 | logical page |
//! | 4..8 | physical page; `ffff_ffff` for none |
//! | 8..16 | sequence number of the commit; 0 for an open transaction |
//!
//! The published table has a transaction number and a status in place of the sequence number. What
//! a restart needs of them is whether the entry is committed, and whether it is newer than the page
//! of the map that has the logical page, which the number says.
//!
//! Invariant: `owners` has the physical pages of open transactions. There are at most `limit`
//! entries, and while a block is collected, those of its pages besides; also after a restart from a
//! table that was written then, until the next collection or flush.

use std::collections::BTreeMap;

use crate::ftl::transactional::NONE;
use crate::ftl::transactional::hash::PageMap;
use crate::nand::{Lpn, Ppn};

pub(crate) const MAGIC: [u8; 4] = *b"XL2P";

/// Bytes of an entry, in memory of the paper's device and on flash.
pub(crate) const ENTRY_BYTES: usize = 16;

/// The number of an open transaction. It is used again after 2^32 others.
pub(crate) type Writer = u32;

/// An entry as it is on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lpn: Lpn,
    pub(crate) ppn: Ppn,
    /// None for an open transaction.
    pub(crate) committed: Option<u64>,
}

impl Entry {
    /// Its bytes.
    pub(crate) fn pack(&self) -> [u8; ENTRY_BYTES] {
        let both = u64::from(self.ppn.0) << 32 | u64::from(self.lpn.0);
        let all = u128::from(self.committed.unwrap_or(0)) << 64 | u128::from(both);
        all.to_le_bytes()
    }

    /// The entry of these bytes.
    pub(crate) fn unpack(bytes: [u8; ENTRY_BYTES]) -> Self {
        let all = u128::from_le_bytes(bytes);
        let sequence = (all >> 64) as u64;
        Self {
            lpn: Lpn(all as u32),
            ppn: Ppn((all >> 32) as u32),
            committed: (sequence != 0).then_some(sequence),
        }
    }
}

/// X-L2P.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    open: BTreeMap<Writer, BTreeMap<Lpn, Ppn>>,
    owners: PageMap<Ppn, Writer>,
    /// The newest committed mapping of each page, with its sequence number.
    committed: BTreeMap<Lpn, (Ppn, u64)>,
    entries: usize,
    entries_max: usize,
    limit: usize,
    next_writer: Writer,
}

impl Table {
    /// An empty table of so many entries.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            open: BTreeMap::new(),
            owners: PageMap::default(),
            committed: BTreeMap::new(),
            entries: 0,
            entries_max: 0,
            limit,
            next_writer: 1,
        }
    }

    pub(crate) fn begin(&mut self) -> Writer {
        while self.open.contains_key(&self.next_writer) {
            self.next_writer = self.next_writer.wrapping_add(1);
        }
        let writer = self.next_writer;
        self.next_writer = writer.wrapping_add(1);
        self.open.insert(writer, BTreeMap::new());
        writer
    }

    pub(crate) fn is_open(&self, writer: Writer) -> bool {
        self.open.contains_key(&writer)
    }

    pub(crate) fn written(&self, writer: Writer) -> usize {
        self.open.get(&writer).map_or(0, BTreeMap::len)
    }

    /// The entries, of open transactions and committed ones.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    pub(crate) fn entries_max(&self) -> usize {
        self.entries_max
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether a write of the transaction finds room.
    pub(crate) fn admits(&self, writer: Writer, lpn: Lpn) -> bool {
        self.own(writer, lpn).is_some() || self.entries < self.limit
    }

    /// The transaction's own mapping.
    pub(crate) fn own(&self, writer: Writer, lpn: Lpn) -> Option<Ppn> {
        self.open.get(&writer)?.get(&lpn).copied()
    }

    fn count(&mut self, is_new: bool) {
        self.entries += usize::from(is_new);
        self.entries_max = self.entries_max.max(self.entries);
    }

    /// Puts a page of a transaction into the table; what it replaces is not valid any more.
    pub(crate) fn write(&mut self, writer: Writer, lpn: Lpn, ppn: Ppn) -> Option<Ppn> {
        let old = self.open.get_mut(&writer)?.insert(lpn, ppn);
        self.owners.insert(ppn, writer);
        if let Some(old) = old {
            self.owners.remove(&old);
        }
        self.count(old.is_none());
        old
    }

    /// Marks the entries of a transaction as committed; its mappings.
    pub(crate) fn commit(&mut self, writer: Writer, sequence: u64) -> Vec<(Lpn, Ppn)> {
        let entries = self.open.remove(&writer).unwrap_or_default();
        for (lpn, ppn) in &entries {
            self.owners.remove(ppn);
            if self.committed.insert(*lpn, (*ppn, sequence)).is_some() {
                self.entries = self.entries.saturating_sub(1);
            }
        }
        entries.into_iter().collect()
    }

    /// Drops a transaction; its pages, which are not valid any more.
    pub(crate) fn abort(&mut self, writer: Writer) -> Vec<Ppn> {
        let entries = self.open.remove(&writer).unwrap_or_default();
        self.entries = self.entries.saturating_sub(entries.len());
        let pages: Vec<_> = entries.into_values().collect();
        for page in &pages {
            self.owners.remove(page);
        }
        pages
    }

    /// Notes a mapping that the main map has and the map on flash has not; false if there is no
    /// room.
    pub(crate) fn note(&mut self, lpn: Lpn, ppn: Ppn, sequence: u64) -> bool {
        if let Some(known) = self.committed.get_mut(&lpn) {
            *known = (ppn, sequence);
            return true;
        }
        if self.entries >= self.limit {
            return false;
        }
        self.committed.insert(lpn, (ppn, sequence));
        self.count(true);
        true
    }

    /// Notes a mapping that must not be lost, of a page that was moved or that a restart found:
    /// beyond the limit if need be.
    pub(crate) fn note_moved(&mut self, lpn: Lpn, ppn: Ppn, sequence: u64) {
        let is_new = self.committed.insert(lpn, (ppn, sequence)).is_none();
        self.count(is_new);
    }

    /// The map on flash has all committed mappings.
    pub(crate) fn forget_committed(&mut self) {
        self.entries = self.entries.saturating_sub(self.committed.len());
        self.committed.clear();
    }

    /// Whether an open transaction has this page.
    pub(crate) fn has(&self, ppn: Ppn) -> bool {
        self.owners.contains_key(&ppn)
    }

    /// Changes the place of a page that was moved; false if no open transaction has it.
    pub(crate) fn relocate(&mut self, from: Ppn, to: Ppn, lpn: Lpn) -> bool {
        let Some(writer) = self.owners.remove(&from) else { return false };
        self.owners.insert(to, writer);
        if let Some(place) = self.open.get_mut(&writer).and_then(|open| open.get_mut(&lpn)) {
            *place = to;
        }
        true
    }

    /// All entries as they are written to flash.
    pub(crate) fn image(&self) -> impl Iterator<Item = Entry> {
        let committed = self.committed.iter().map(|(lpn, (ppn, sequence))| Entry {
            lpn: *lpn,
            ppn: *ppn,
            committed: Some(*sequence),
        });
        let open = self.open.values().flatten();
        committed.chain(open.map(|(lpn, ppn)| Entry { lpn: *lpn, ppn: *ppn, committed: None }))
    }

    /// The pages of open transactions.
    pub(crate) fn open_pages(&self) -> impl Iterator<Item = (Lpn, Ppn)> {
        self.open.values().flatten().map(|(lpn, ppn)| (*lpn, *ppn))
    }

    /// Walks the invariants; what is wrong, if anything is. `main` is the main map.
    pub(crate) fn check(&self, main: &[Ppn]) -> Result<(), String> {
        let found = self.image().count();
        if found != self.entries {
            return Err(format!("{found} entries of X-L2P, counted {}", self.entries));
        }
        for (writer, entries) in &self.open {
            for ppn in entries.values() {
                if self.owners.get(ppn) != Some(writer) || *ppn == NONE {
                    return Err(format!("{ppn} of transaction {writer} has another owner"));
                }
            }
        }
        if self.owners.len() != self.open.values().map(BTreeMap::len).sum::<usize>() {
            return Err("X-L2P has owners of pages that no transaction has".to_owned());
        }
        let differs = |(lpn, (ppn, _)): &(&Lpn, &(Ppn, u64))| main.get(lpn.0 as usize) != Some(ppn);
        match self.committed.iter().find(differs) {
            Some((lpn, (ppn, _))) => Err(format!("{lpn} is committed at {ppn}, the map differs")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_packing() {
        for committed in [None, Some(1), Some(u64::MAX)] {
            let entry = Entry { lpn: Lpn(0x0102_0304), ppn: Ppn(0x0506_0708), committed };
            assert_eq!(Entry::unpack(entry.pack()), entry);
        }
        let entry = Entry { lpn: Lpn(1), ppn: Ppn(2), committed: Some(3) };
        assert_eq!(entry.pack(), [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_full_table_refuses_new_pages_and_takes_known_ones() {
        let mut table = Table::new(3);
        let (one, two) = (table.begin(), table.begin());
        assert_eq!(table.write(one, Lpn(0), Ppn(10)), None);
        assert_eq!(table.write(two, Lpn(0), Ppn(11)), None);
        assert!(table.note(Lpn(5), Ppn(12), 1));
        assert!(!table.admits(one, Lpn(1)) && table.admits(one, Lpn(0)));
        assert!(!table.note(Lpn(6), Ppn(13), 2) && table.note(Lpn(5), Ppn(13), 2));
        assert_eq!(table.write(one, Lpn(0), Ppn(14)), Some(Ppn(10)));
        table.forget_committed();
        assert!(table.admits(one, Lpn(1)));
        assert_eq!((table.entries(), table.entries_max()), (2, 3));
    }

    #[test]
    fn the_later_commit_decides_and_an_abort_leaves_nothing() {
        let mut table = Table::new(8);
        let (one, two, three) = (table.begin(), table.begin(), table.begin());
        for (writer, ppn) in [(one, 10), (two, 20), (three, 30)] {
            table.write(writer, Lpn(7), Ppn(ppn));
        }
        assert_eq!(table.commit(two, 1), [(Lpn(7), Ppn(20))]);
        assert_eq!(table.commit(one, 2), [(Lpn(7), Ppn(10))]);
        assert_eq!(table.abort(three), [Ppn(30)]);
        let left: Vec<_> = table.image().collect();
        assert_eq!(left, [Entry { lpn: Lpn(7), ppn: Ppn(10), committed: Some(2) }]);
        let mut main = vec![NONE; 8];
        main[7] = Ppn(10);
        table.check(&main).unwrap();
    }

    #[test]
    fn a_page_that_was_moved_is_found_at_its_new_place() {
        let mut table = Table::new(8);
        let writer = table.begin();
        table.write(writer, Lpn(3), Ppn(10));
        assert!(table.has(Ppn(10)) && table.relocate(Ppn(10), Ppn(11), Lpn(3)));
        assert!(!table.has(Ppn(10)) && !table.relocate(Ppn(10), Ppn(12), Lpn(3)));
        assert_eq!(table.own(writer, Lpn(3)), Some(Ppn(11)));
    }
}
