//! The main map, the diffs of transactions, and the list of committed diffs. No I/O.
//!
//! After D. Lee, M. Shin, W. Choi, H. Roh, S. Park, "MV-FTL: An FTL That Provides Page-Level
//! Multi-Version Management" (IEEE TKDE 2017), sections 3.2 to 3.5. A transaction writes mappings
//! to a diff of its own (`diffL2P`; Algorithm 1, WritePage). A commit appends the diff to the list
//! of committed diffs (CDL). A reader holds a diff of the list and reads backwards from there, then
//! the main map (Algorithm 2, ReadPage). A diff that has no reader is removed (Algorithm 3,
//! PurgeDiffL2P):
//!
//! | the diff is | its mappings |
//! |---|---|
//! | the tail (newest) | stay |
//! | the head (oldest) | go to the main map; what the main map had is invalid |
//! | in between | go to the next newer diff; if that has one for the page, this one is invalid |
//!
//! What the paper leaves open or gets wrong, and what is done here and in the files beside this
//! one:
//!
//! 1. A page of the log that a crash left without its end would be joined to the next transaction:
//!    the header has a sequence number ([`record`](crate::ftl::transactional::record)).
//! 2. All data pages are programmed before the first page of the log ([`layer`](super::layer)).
//! 3. The tail is skipped by Algorithm 3, so it is examined again when a commit displaces it.
//!    Otherwise diffs without readers accumulate ([`Versions::publish`]).
//! 4. A transaction pins the tail when it begins, and releases it at commit, abort or end.
//! 5. A physical page is valid if the main map or any diff has it. Garbage collection finds this
//!    owner by the physical page and changes it there ([`Versions::relocate`]).
//! 6. A diff is a hash table; the paper searches a list.
//! 7. The memory of diffs is bounded, and a write that needs more is refused ([`Refused`]).
//! 8. Conflicts between writers are the host's to avoid (SQLite has one writer). Of two open
//!    transactions that write a page, the later commit decides.
//!
//! One step is added. If a write would be refused and the list is one diff, its mappings go to the
//! main map and the diff stays, empty ([`Versions::relieve`]). No reader sees a difference. Without
//! this, two large transactions in a row would be refused.
//!
//! Invariants, which [`Versions::check`] walks:
//! - the list is never empty. It begins as one diff without mappings, D0.
//! - every diff of the list except the tail has a reader.
//! - each physical page is in the main map or in one diff, once. Those of diffs are in `owners`.
//! - a page that nothing refers to any more is in `dead` once.

use std::collections::BTreeMap;

use crate::ftl::transactional::NONE;
use crate::ftl::transactional::hash::PageMap;
use crate::nand::{Lpn, Ppn};
use crate::planted::{self, Bug};

/// Bytes of memory for an entry of a diff (section 4.1.1).
pub(crate) const ENTRY_BYTES: usize = 16;

/// Bytes of memory for a diff without entries: its place in the list, its count of readers, its
/// table. With the paper's 16 KiB and some tens of diffs, about 900 entries are left, as it says.
pub(crate) const DIFF_BYTES: usize = 64;

/// The number of a committed diff: ascending in the order of commits.
pub(crate) type Version = u64;

/// The number of an open transaction. It is used again after 2^32 others.
pub(crate) type Writer = u32;

/// A diff would need more memory than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Bytes in use.
    pub(crate) used: usize,
    /// The limit, in bytes.
    pub(crate) limit: usize,
}

#[derive(Clone, Debug, Default)]
struct Committed {
    entries: PageMap<Lpn, Ppn>,
    readers: u32,
}

#[derive(Clone, Debug)]
struct Open {
    /// The diff that was the tail when the transaction began, where it is pinned.
    base: Option<Version>,
    entries: PageMap<Lpn, Ppn>,
}

/// What refers to a physical page, where it is not the main map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Committed(Version),
    Open(Writer),
}

/// Whether a mapping that garbage collection moved is the one that a restart must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It is the newest committed one of its page.
    Newest,
    /// A newer one has been committed, or it is not committed: a restart does not need it.
    Volatile,
}

/// Every version of every page.
#[derive(Clone, Debug)]
pub(crate) struct Versions {
    /// The main L2P table.
    map: Vec<Ppn>,
    list: BTreeMap<Version, Committed>,
    open: BTreeMap<Writer, Open>,
    owners: PageMap<Ppn, Owner>,
    dead: Vec<Ppn>,
    entries: usize,
    entries_max: usize,
    limit_bytes: usize,
    next_version: Version,
    next_writer: Writer,
}

impl Versions {
    /// The versions of a device with this main map, and so many bytes for diffs. D0 is the list.
    pub(crate) fn new(map: Vec<Ppn>, limit_bytes: usize) -> Self {
        Self {
            map,
            list: BTreeMap::from([(0, Committed::default())]),
            open: BTreeMap::new(),
            owners: PageMap::default(),
            dead: Vec::new(),
            entries: 0,
            entries_max: 0,
            limit_bytes,
            next_version: 1,
            next_writer: 1,
        }
    }

    /// The newest committed diff.
    pub(crate) fn tail(&self) -> Version {
        self.list.last_key_value().map_or(0, |(version, _)| *version)
    }

    /// Begins a transaction; with `pin` its reads stay at today's tail, without they follow it.
    pub(crate) fn begin(&mut self, pin: bool) -> Writer {
        let base = pin.then(|| self.tail());
        if let Some(diff) = base.and_then(|base| self.list.get_mut(&base)) {
            diff.readers = diff.readers.saturating_add(1);
        }
        while self.open.contains_key(&self.next_writer) {
            self.next_writer = self.next_writer.wrapping_add(1);
        }
        let writer = self.next_writer;
        self.next_writer = writer.wrapping_add(1);
        self.open.insert(writer, Open { base, entries: PageMap::default() });
        writer
    }

    pub(crate) fn is_open(&self, writer: Writer) -> bool {
        self.open.contains_key(&writer)
    }

    /// The mappings that a transaction has made.
    pub(crate) fn written(&self, writer: Writer) -> usize {
        self.open.get(&writer).map_or(0, |open| open.entries.len())
    }

    /// The mappings that a transaction has made, by logical page.
    pub(crate) fn mappings(&self, writer: Writer) -> Vec<(Lpn, Ppn)> {
        let entries = self.open.get(&writer).map(|open| &open.entries);
        let mut all: Vec<_> = entries.into_iter().flatten().map(|(l, p)| (*l, *p)).collect();
        all.sort_unstable();
        all
    }

    /// Makes sure that [`write`](Self::write) of `lpn` will have memory, before its page is
    /// programmed.
    pub(crate) fn admit(&mut self, writer: Writer, lpn: Lpn) -> Result<(), Refused> {
        let open = self.open.get(&writer);
        if open.is_some_and(|open| open.entries.contains_key(&lpn)) || self.fits() {
            return Ok(());
        }
        self.relieve();
        if self.fits() {
            return Ok(());
        }
        Err(Refused { used: self.used_bytes(), limit: self.limit_bytes })
    }

    fn fits(&self) -> bool {
        self.used_bytes().saturating_add(ENTRY_BYTES) <= self.limit_bytes
    }

    /// The bytes that diffs use: those of the paper's controller, not of this program.
    pub(crate) fn used_bytes(&self) -> usize {
        let diffs = self.list.len().saturating_add(self.open.len());
        self.entries * ENTRY_BYTES + diffs * DIFF_BYTES
    }

    /// The most entries that diffs have had at one time.
    pub(crate) fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// The entries of all diffs.
    pub(crate) fn entries(&self) -> usize {
        self.entries
    }

    /// The diffs of the list.
    pub(crate) fn committed(&self) -> usize {
        self.list.len()
    }

    /// Algorithm 1, after the page has been programmed. [`NONE`] makes the page unmapped.
    pub(crate) fn write(&mut self, writer: Writer, lpn: Lpn, ppn: Ppn) {
        let Some(open) = self.open.get_mut(&writer) else { return };
        match open.entries.insert(lpn, ppn) {
            Some(old) => kill(&mut self.owners, &mut self.dead, old),
            None => self.entries += 1,
        }
        self.entries_max = self.entries_max.max(self.entries);
        if ppn != NONE {
            self.owners.insert(ppn, Owner::Open(writer));
        }
    }

    /// Algorithm 2: the transaction's own mapping, or what the diff it began on sees.
    pub(crate) fn read(&self, writer: Writer, lpn: Lpn) -> Option<Ppn> {
        let open = self.open.get(&writer)?;
        match open.entries.get(&lpn) {
            Some(ppn) => Some(*ppn).filter(|ppn| *ppn != NONE),
            None => self.read_at(open.base.unwrap_or_else(|| self.tail()), lpn),
        }
    }

    /// Algorithm 2 from a committed diff.
    pub(crate) fn read_at(&self, version: Version, lpn: Lpn) -> Option<Ppn> {
        let mut diffs = self.list.range(..=version).rev();
        let found = diffs.find_map(|(_, diff)| diff.entries.get(&lpn).copied());
        let ppn = found.or_else(|| self.map.get(lpn.0 as usize).copied());
        ppn.filter(|ppn| *ppn != NONE)
    }

    /// The newest committed mapping: what a restart must find.
    pub(crate) fn newest(&self, lpn: Lpn) -> Ppn {
        self.read_at(Version::MAX, lpn).unwrap_or(NONE)
    }

    /// Appends a transaction's diff to the list, once its mappings are in the log. The tail that it
    /// displaces is examined, and the pin is released.
    pub(crate) fn publish(&mut self, writer: Writer) {
        let Some(open) = self.open.remove(&writer) else { return };
        if !open.entries.is_empty() {
            let displaced = self.tail();
            let version = self.next_version;
            self.next_version += 1;
            for ppn in open.entries.values().filter(|ppn| **ppn != NONE) {
                self.owners.insert(*ppn, Owner::Committed(version));
            }
            self.list.insert(version, Committed { entries: open.entries, readers: 0 });
            if self.list.get(&displaced).is_some_and(|diff| diff.readers == 0) {
                self.purge(displaced);
            }
        }
        self.unpin(open.base);
    }

    /// Drops a transaction and what it wrote; also the end of one that only read.
    pub(crate) fn abort(&mut self, writer: Writer) {
        let Some(open) = self.open.remove(&writer) else { return };
        self.entries = self.entries.saturating_sub(open.entries.len());
        for ppn in open.entries.into_values() {
            kill(&mut self.owners, &mut self.dead, ppn);
        }
        self.unpin(open.base);
    }

    fn unpin(&mut self, base: Option<Version>) {
        let Some(base) = base else { return };
        let Some(diff) = self.list.get_mut(&base) else { return };
        diff.readers = diff.readers.saturating_sub(1);
        if diff.readers == 0 {
            self.purge(base);
        }
    }

    /// Algorithm 3.
    fn purge(&mut self, victim: Version) {
        let next = self.list.range(victim + 1..).next().map(|(version, _)| *version);
        let Some(next) = next else { return };
        let is_head = self.list.first_key_value().is_some_and(|(first, _)| *first == victim);
        let Some(diff) = self.list.remove(&victim) else { return };
        if is_head {
            self.fold(diff.entries);
            return;
        }
        let Some(newer) = self.list.get_mut(&next) else { return };
        for (lpn, ppn) in diff.entries {
            if newer.entries.contains_key(&lpn) {
                self.entries = self.entries.saturating_sub(1);
                kill(&mut self.owners, &mut self.dead, ppn);
                continue;
            }
            newer.entries.insert(lpn, ppn);
            if ppn != NONE {
                self.owners.insert(ppn, Owner::Committed(next));
            }
        }
    }

    /// Puts the oldest mappings of all into the main map.
    fn fold(&mut self, entries: PageMap<Lpn, Ppn>) {
        self.entries = self.entries.saturating_sub(entries.len());
        for (lpn, ppn) in entries {
            self.owners.remove(&ppn);
            let Some(place) = self.map.get_mut(lpn.0 as usize) else { continue };
            let old = std::mem::replace(place, ppn);
            kill(&mut self.owners, &mut self.dead, old);
        }
    }

    /// Empties the tail into the main map, where it is the whole list. Its readers find the same:
    /// there is no older version.
    fn relieve(&mut self) {
        if self.list.len() != 1 {
            return;
        }
        let Some(mut tail) = self.list.last_entry() else { return };
        let entries = std::mem::take(&mut tail.get_mut().entries);
        self.fold(entries);
    }

    /// Whether garbage collection must move a page. The layer knows that it is valid; only a bug
    /// answers no.
    pub(crate) fn is_needed(&self, ppn: Ppn, lpn: Lpn) -> bool {
        if !planted::is(Bug::GcForgetsVersion) {
            return true;
        }
        matches!(self.owners.get(&ppn), Some(Owner::Open(_))) || self.newest(lpn) == ppn
    }

    /// Changes the owner of a page that was moved.
    pub(crate) fn relocate(&mut self, from: Ppn, to: Ppn, lpn: Lpn) -> Moved {
        let owner = self.owners.remove(&from);
        if let Some(owner) = owner {
            self.owners.insert(to, owner);
        }
        let place = match owner {
            None => self.map.get_mut(lpn.0 as usize),
            Some(Owner::Open(writer)) => {
                self.open.get_mut(&writer).and_then(|open| open.entries.get_mut(&lpn))
            }
            Some(Owner::Committed(version)) => {
                self.list.get_mut(&version).and_then(|diff| diff.entries.get_mut(&lpn))
            }
        };
        if let Some(place) = place.filter(|place| **place == from) {
            *place = to;
        }
        if self.newest(lpn) == to { Moved::Newest } else { Moved::Volatile }
    }

    /// The pages that nothing refers to any more, once each, ascending: the order in which they
    /// become invalid decides between victims, and must not be that of a hash table.
    pub(crate) fn take_dead(&mut self) -> Vec<Ppn> {
        self.dead.sort_unstable();
        std::mem::take(&mut self.dead)
    }

    /// Every physical page that something refers to, with its logical page.
    pub(crate) fn valid(&self) -> impl Iterator<Item = (Lpn, Ppn)> {
        let main = (0u32..).map(Lpn).zip(self.map.iter().copied());
        let list = self.list.values().flat_map(|diff| &diff.entries);
        let open = self.open.values().flat_map(|open| &open.entries);
        let diffs = list.chain(open).map(|(lpn, ppn)| (*lpn, *ppn));
        main.chain(diffs).filter(|(_, ppn)| *ppn != NONE)
    }

    /// Walks the invariants of this module; what is wrong, if anything is. Cost: the main map.
    pub(crate) fn check(&self) -> Result<(), String> {
        let tail = self.tail();
        for (version, diff) in &self.list {
            if diff.readers == 0 && *version != tail {
                return Err(format!("committed diff {version} has no reader and is not the tail"));
            }
            let pins = self.open.values().filter(|open| open.base == Some(*version)).count();
            if pins != diff.readers as usize {
                return Err(format!("diff {version} counts {} readers of {pins}", diff.readers));
            }
            self.check_owners(&diff.entries, Owner::Committed(*version))?;
        }
        for (writer, open) in &self.open {
            self.check_owners(&open.entries, Owner::Open(*writer))?;
        }
        let lists = self.list.values().map(|diff| &diff.entries);
        let diffs = lists.chain(self.open.values().map(|open| &open.entries));
        let (mut entries, mut mapped) = (0, 0);
        for diff in diffs {
            entries += diff.len();
            mapped += diff.values().filter(|ppn| **ppn != NONE).count();
        }
        if entries != self.entries {
            return Err(format!(
                "{} entries of diffs are counted, there are {entries}",
                self.entries
            ));
        }
        if mapped != self.owners.len() {
            return Err(format!("{} pages have a diff for owner, not {mapped}", self.owners.len()));
        }
        if self.list.is_empty() {
            return Err("the list of committed diffs is empty".to_owned());
        }
        Ok(())
    }

    fn check_owners(&self, entries: &PageMap<Lpn, Ppn>, owner: Owner) -> Result<(), String> {
        for (lpn, ppn) in entries.iter().filter(|(_, ppn)| **ppn != NONE) {
            let found = self.owners.get(ppn);
            if found != Some(&owner) {
                return Err(format!(
                    "physical page {} of {} is owned by {owner:?}, recorded is {found:?}",
                    ppn.0, lpn.0
                ));
            }
        }
        Ok(())
    }
}

/// A mapping that nothing has any more.
fn kill(owners: &mut PageMap<Ppn, Owner>, dead: &mut Vec<Ppn>, ppn: Ppn) {
    if ppn != NONE {
        owners.remove(&ppn);
        dead.push(ppn);
    }
}

#[cfg(test)]
mod tests;
