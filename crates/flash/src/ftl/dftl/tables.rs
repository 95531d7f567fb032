//! The map, what of it is cached, and which translation pages are behind.
//!
//! **Invariants.** T1: an entry is *behind* if its translation page on flash says something else
//! than the map; only such entries are in `behind`. T2: an entry that is behind is cached or counts
//! in `uncached`, which `write_overdue` bounds. T3: a trimmed slot that keeps its page is behind,
//! and its translation page is in `trims`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::cache::Cache;
use crate::error::{Result, broken};
use crate::ftl::gc::Owners;
use crate::ftl::map::Map;
use crate::nand::{Geometry, Nand, Ppn, Spare};

/// Bytes of an entry in a translation page: the flash page, little endian, or all ones.
const ENTRY_BYTES: u32 = 4;
/// An entry that is not mapped.
const UNMAPPED: u32 = u32::MAX;

/// Numbers in the queue, beyond two for each translation page that is behind, from which it is
/// tidied.
const QUEUE_SPARE: usize = 1_024;

/// The entries of a translation page.
pub(super) const fn entries_of_page(geometry: &Geometry) -> u32 {
    geometry.page_size() / ENTRY_BYTES
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    pub map: Map,
    cache: Cache,
    dies: u32,
    entries: u32,
    /// Entries that are behind, by translation page.
    behind: BTreeMap<u32, BTreeSet<u32>>,
    /// How many of them are not cached, and how many may be.
    uncached: u32,
    buffered: u32,
    /// The translation pages of uncached ones, in the order in which they came; some are written
    /// already.
    queue: VecDeque<u32>,
    /// Translation pages with trims that are not durable.
    trims: BTreeSet<u32>,
}

impl Tables {
    pub fn new(map: Map, geometry: &Geometry, cached: u32, buffered: u32) -> Self {
        Self {
            map,
            cache: Cache::new(cached),
            dies: geometry.dies(),
            entries: entries_of_page(geometry),
            behind: BTreeMap::new(),
            uncached: 0,
            buffered,
            queue: VecDeque::new(),
            trims: BTreeSet::new(),
        }
    }

    /// The translation page of a logical page, which is on the same die.
    pub const fn translation_page(&self, lpn: u32) -> u32 {
        (lpn / self.dies / self.entries) * self.dies + lpn % self.dies
    }

    /// The logical pages of a translation page, in the order of its entries.
    pub fn covered(&self, index: u32) -> impl Iterator<Item = u32> + use<> {
        let (dies, logical) = (self.dies, self.map.logical());
        let (die, first) = (index % dies, index / dies * self.entries);
        (first..first + self.entries)
            .map(move |at| at * dies + die)
            .take_while(move |l| *l < logical)
    }

    /// Whether the entry is in memory: then it is cached from now on, and was used.
    pub fn touch(&mut self, lpn: u32) -> bool {
        self.cache.touch(lpn)
    }

    /// Caches an entry that was not; answers the one that it replaces.
    pub fn insert(&mut self, lpn: u32) -> Option<u32> {
        if self.is_behind(lpn) {
            self.uncached -= 1;
        }
        let evicted = self.cache.insert(lpn);
        if let Some(evicted) = evicted.filter(|evicted| self.is_behind(*evicted)) {
            self.wait(self.translation_page(evicted));
        }
        evicted
    }

    /// Whether the translation page of a logical page says something else than the map.
    pub fn is_behind(&self, lpn: u32) -> bool {
        self.behind.get(&self.translation_page(lpn)).is_some_and(|of_page| of_page.contains(&lpn))
    }

    /// The place of a logical page changed.
    pub fn changed(&mut self, lpn: u32) {
        let index = self.translation_page(lpn);
        let is_new = self.behind.entry(index).or_default().insert(lpn);
        if is_new && !self.cache.contains(lpn) {
            self.wait(index);
        }
    }

    /// A logical page is not mapped any more.
    pub fn trimmed(&mut self, lpn: u32) {
        self.changed(lpn);
        self.trims.insert(self.translation_page(lpn));
    }

    /// A translation page that must be written before more entries can wait.
    pub fn overdue(&mut self) -> Option<u32> {
        while self.uncached > self.buffered {
            let index = self.queue.pop_front()?;
            if self.behind.contains_key(&index) {
                return Some(index);
            }
        }
        if self.uncached == 0 {
            self.queue.clear();
        }
        None
    }

    /// A translation page that is behind.
    pub fn first_behind(&self) -> Option<u32> {
        self.behind.first_key_value().map(|(index, _)| *index)
    }

    /// A translation page with trims that are not durable.
    pub fn first_with_trims(&self) -> Option<u32> {
        self.trims.first().copied()
    }

    /// A translation page was written: answers its entries that were behind.
    pub fn written(&mut self, index: u32) -> BTreeSet<u32> {
        self.trims.remove(&index);
        let of_page = self.behind.remove(&index).unwrap_or_default();
        let uncached = of_page.iter().filter(|lpn| !self.cache.contains(**lpn)).count();
        self.uncached -= uncached as u32;
        of_page
    }

    /// The content of a translation page; empty if it is not kept.
    pub fn content(&self, index: u32, is_kept: bool) -> Vec<u8> {
        if !is_kept {
            return Vec::new();
        }
        let mut page = vec![0xff; (self.entries * ENTRY_BYTES) as usize];
        page.resize(page.len().next_multiple_of(8), 0xff);
        for (entry, lpn) in page.chunks_exact_mut(ENTRY_BYTES as usize).zip(self.covered(index)) {
            let place = self.map.find(lpn).map_or(UNMAPPED, |page| page.0);
            entry.copy_from_slice(&place.to_le_bytes());
        }
        page
    }

    /// The entries of a translation page as it was read, with their logical pages.
    pub fn entries(&self, index: u32, page: &[u8]) -> impl Iterator<Item = (u32, Option<Ppn>)> {
        let (entries, _) = page.as_chunks::<{ ENTRY_BYTES as usize }>();
        self.covered(index).zip(entries).map(|(lpn, entry)| {
            let place = u32::from_le_bytes(*entry);
            (lpn, (place != UNMAPPED).then_some(Ppn(place)))
        })
    }

    /// Compares a translation page as it was read with the map (T1).
    pub fn compare(&self, index: u32, page: &[u8]) -> Result<()> {
        for (lpn, place) in self.entries(index, page) {
            if place != self.map.find(lpn) && !self.is_behind(lpn) {
                let is = self.map.find(lpn);
                return broken(format!(
                    "logical page {lpn} is at {is:?}, its entry says {place:?}"
                ));
            }
        }
        Ok(())
    }

    /// Checks T2 and T3.
    pub fn check(&self) -> Result<()> {
        let all = self.behind.values().flatten();
        let uncached = all.filter(|lpn| !self.cache.contains(**lpn)).count() as u32;
        if uncached != self.uncached || uncached > self.buffered {
            let (counted, most) = (self.uncached, self.buffered);
            return broken(format!("{uncached} entries wait, counted {counted}, allowed {most}"));
        }
        for lpn in (0..self.map.logical()).filter(|lpn| self.map.is_trimmed(*lpn)) {
            if !self.is_behind(lpn) || !self.trims.contains(&self.translation_page(lpn)) {
                return broken(format!("logical page {lpn} is trimmed and never given up"));
            }
        }
        Ok(())
    }

    pub fn ram_bytes(&self) -> u64 {
        let behind: usize = self.behind.values().map(BTreeSet::len).sum();
        let sets = 12 * behind + 48 * self.behind.len() + 16 * self.trims.len();
        self.map.ram_bytes() + self.cache.ram_bytes() + (sets + 4 * self.queue.capacity()) as u64
    }

    pub fn device_ram_bytes(&self) -> u64 {
        let directory = self.map.slots() - self.map.logical();
        8 * u64::from(self.cache.len() + self.buffered) + 4 * u64::from(directory)
    }

    fn wait(&mut self, index: u32) {
        self.uncached += 1;
        self.queue.push_back(index);
        if self.queue.len() > 2 * self.behind.len() + QUEUE_SPARE {
            let (behind, mut seen) = (&self.behind, BTreeSet::new());
            self.queue.retain(|index| behind.contains_key(index) && seen.insert(*index));
        }
    }
}

impl<N: Nand> Owners<N> for Tables {
    fn is_valid(&self, page: Ppn) -> bool {
        Owners::<N>::is_valid(&self.map, page)
    }

    fn moved(&mut self, from: Ppn, to: Ppn, spare: &Spare) -> Result<()> {
        let slot = self.map.owner(from);
        Owners::<N>::moved(&mut self.map, from, to, spare)?;
        if let Some(lpn) = slot.filter(|slot| *slot < self.map.logical()) {
            self.changed(lpn);
        }
        Ok(())
    }
}
