//! Data blocks: which pages are valid, where the next page goes, which block is collected. No I/O.
//!
//! The scheme is that of the firmware that both transactional layers extended (OpenSSD Jasmine,
//! greedy FTL): one erased block is kept in reserve. When no other is left, the valid pages of a
//! victim go to the reserve, the host's writes continue in the rest of that block, and the victim
//! becomes the reserve. A power cut at any time leaves either the victim or the reserve without
//! valid pages, so that there is always a block to erase.
//!
//! Differences: the blocks of all dies are one domain of collection, and there are several open
//! blocks (lanes), written in turn.
//!
//! Invariants, which [`Space::check`] walks:
//! - each block is free, open, closed, meta (it holds no data) or the victim of a collection.
//! - `valid` of a block is the number of its pages with a logical page in `lpn_of`.
//! - a closed block is in the bucket of its valid pages, at the place that `slot` says.

use std::collections::BTreeSet;

use super::Collection;
use crate::ftl::policy::{self, Candidate, Policy};
use crate::nand::{BlockId, Geometry, Lpn, Ppn};
use crate::planted::{self, Bug};
use crate::random::Random;

/// Erased blocks that host writes may not take.
const RESERVE: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Open,
    Closed,
    Victim,
    Meta,
}

/// An open block and the index of its next page.
#[derive(Clone, Copy, Debug)]
struct Lane {
    block: BlockId,
    next: u32,
}

/// The data pages of a device.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    geometry: Geometry,
    lpn_of: Vec<Lpn>,
    valid: Vec<u32>,
    uses: Vec<Use>,
    /// Closed blocks by the number of their valid pages.
    buckets: Vec<Vec<BlockId>>,
    /// Where in its bucket a closed block is.
    slot: Vec<u32>,
    /// Erased blocks, the least worn first.
    free: BTreeSet<(u32, BlockId)>,
    lanes: Vec<Option<Lane>>,
    turn: usize,
    collection: Collection,
    /// A block whose content must be moved, because it is behind in erases.
    cold: Option<BlockId>,
    /// Data pages that were placed: the time of ages.
    now: u64,
    /// When a block was closed, and when a page of it last became invalid.
    times: Vec<(u64, u64)>,
    random: Random,
    /// Successive victims without an invalid page.
    fruitless: u32,
}

/// Successive victims without an invalid page, for each block, after which the emptiest is taken.
const FRUITLESS_MAX: u32 = 4;

impl Space {
    /// All blocks are meta blocks at first; [`add_free`](Self::add_free) and
    /// [`add_closed`](Self::add_closed) make data blocks of them.
    pub(crate) fn new(geometry: Geometry, collection: Collection) -> Self {
        let blocks = geometry.blocks() as usize;
        let lanes = Self::lanes_of(&geometry) as usize;
        Self {
            geometry,
            lpn_of: vec![Lpn::NONE; geometry.pages() as usize],
            valid: vec![0; blocks],
            uses: vec![Use::Meta; blocks],
            buckets: vec![Vec::new(); geometry.pages_per_block() as usize + 1],
            slot: vec![0; blocks],
            free: BTreeSet::new(),
            lanes: vec![None; lanes],
            turn: 0,
            collection,
            cold: None,
            now: 0,
            times: vec![(0, 0); blocks],
            random: Random::new(collection.seed),
            fruitless: 0,
        }
    }

    /// Open blocks: one for each die, but at most a 64th of all blocks.
    pub(crate) fn lanes_of(geometry: &Geometry) -> u32 {
        geometry.dies().min(geometry.blocks() / 64).max(1)
    }

    /// Blocks that hold no valid pages while a collection looks for a victim: the open ones and the
    /// reserve.
    pub(crate) fn withheld(geometry: &Geometry) -> u32 {
        Self::lanes_of(geometry) + RESERVE as u32
    }

    /// The place of the next data page; None if a block must be collected before.
    pub(crate) fn place(&mut self) -> Option<Ppn> {
        let lane = self.lanes.get(self.turn).copied()?;
        let lane = match lane {
            Some(lane) => lane,
            None if self.free.len() > Self::reserve() => self.open()?,
            None => return None,
        };
        let page = self.geometry.first_page(lane.block).0 + lane.next;
        self.set_lane(Lane { next: lane.next + 1, ..lane });
        self.turn = (self.turn + 1) % self.lanes.len();
        Some(Ppn(page))
    }

    /// Whether a block must be collected before the next data page.
    pub(crate) fn is_short(&self) -> bool {
        self.lanes.get(self.turn).is_none_or(Option::is_none) && self.free.len() <= Self::reserve()
    }

    fn reserve() -> usize {
        if planted::is(Bug::ReserveUsed) { 0 } else { RESERVE }
    }

    /// Takes the least worn erased block of the die that the lane whose turn it is has for itself,
    /// so that successive pages are programmed at the same time; of all blocks where it has none.
    fn open(&mut self) -> Option<Lane> {
        let is_own = |block: BlockId| self.geometry.die_of(block) as usize == self.turn;
        let own = self.free.iter().find(|(_, block)| is_own(*block));
        let (erases, block) = own.or(self.free.first()).copied()?;
        self.free.remove(&(erases, block));
        self.set_use(block, Use::Open);
        Some(Lane { block, next: 0 })
    }

    /// Puts the lane whose turn it is to this place; a full block is closed.
    fn set_lane(&mut self, lane: Lane) {
        self.now += 1;
        let is_full = lane.next >= self.geometry.pages_per_block();
        if is_full {
            self.add_closed(lane.block);
        }
        if let Some(place) = self.lanes.get_mut(self.turn) {
            *place = (!is_full).then_some(lane);
        }
    }

    fn close(&mut self, block: BlockId) {
        self.set_use(block, Use::Closed);
        let valid = self.valid_in(block);
        if let Some(bucket) = self.buckets.get_mut(valid as usize) {
            if let Some(slot) = self.slot.get_mut(block.0 as usize) {
                *slot = bucket.len() as u32;
            }
            bucket.push(block);
        }
    }

    /// Takes a closed block out of the bucket of `valid` pages.
    fn unbucket(&mut self, block: BlockId, valid: u32) {
        let at = self.slot.get(block.0 as usize).copied().unwrap_or(0);
        let Some(bucket) = self.buckets.get_mut(valid as usize) else { return };
        if bucket.get(at as usize) != Some(&block) {
            return;
        }
        bucket.swap_remove(at as usize);
        if let Some(moved) = bucket.get(at as usize)
            && let Some(slot) = self.slot.get_mut(moved.0 as usize)
        {
            *slot = at;
        }
    }

    fn set_use(&mut self, block: BlockId, what: Use) {
        if let Some(place) = self.uses.get_mut(block.0 as usize) {
            *place = what;
        }
    }

    fn use_of(&self, block: BlockId) -> Use {
        self.uses.get(block.0 as usize).copied().unwrap_or(Use::Meta)
    }

    pub(crate) fn valid_in(&self, block: BlockId) -> u32 {
        self.valid.get(block.0 as usize).copied().unwrap_or(0)
    }

    /// The logical page of a valid physical page.
    pub(crate) fn lpn(&self, page: Ppn) -> Option<Lpn> {
        self.lpn_of.get(page.0 as usize).copied().filter(|lpn| *lpn != Lpn::NONE)
    }

    /// A page was programmed, and something refers to it.
    pub(crate) fn validate(&mut self, page: Ppn, lpn: Lpn) {
        self.change(page, lpn, 1);
    }

    /// Nothing refers to a page any more.
    pub(crate) fn invalidate(&mut self, page: Ppn) {
        self.change(page, Lpn::NONE, -1);
    }

    fn change(&mut self, page: Ppn, lpn: Lpn, by: i32) {
        let Some(place) = self.lpn_of.get_mut(page.0 as usize) else { return };
        if (*place == Lpn::NONE) == (lpn == Lpn::NONE) {
            debug_assert!(false, "{page} is valid already, or not valid");
            return;
        }
        *place = lpn;
        let block = self.geometry.block_of(page);
        let before = self.valid_in(block);
        if let Some(valid) = self.valid.get_mut(block.0 as usize) {
            *valid = before.saturating_add_signed(by);
        }
        if self.use_of(block) == Use::Closed {
            if let Some((_, changed)) = self.times.get_mut(block.0 as usize) {
                *changed = self.now;
            }
            self.unbucket(block, before);
            self.close(block);
        }
    }

    /// An erased block; `erases` is how often it was erased.
    pub(crate) fn add_free(&mut self, block: BlockId, erases: u32) {
        self.set_use(block, Use::Free);
        self.free.insert((erases, block));
    }

    /// A block with data, which is written no further.
    pub(crate) fn add_closed(&mut self, block: BlockId) {
        if let Some(times) = self.times.get_mut(block.0 as usize) {
            *times = (self.now, self.now);
        }
        self.close(block);
    }

    /// Takes an erased block out of the data blocks.
    pub(crate) fn take_free(&mut self) -> Option<BlockId> {
        let (_, block) = self.free.pop_first()?;
        self.set_use(block, Use::Meta);
        Some(block)
    }

    /// Gives the data blocks an erased meta block, and takes the least worn erased one for it.
    pub(crate) fn exchange(&mut self, block: BlockId, erases: u32) -> BlockId {
        self.add_free(block, erases);
        self.take_free().unwrap_or(block)
    }

    /// The difference in erases that wear levelling allows.
    pub(crate) const fn wear_spread(&self) -> u32 {
        self.collection.wear_spread
    }

    /// Whether a block waits to be written, or is being written: it is used soon.
    pub(crate) fn is_used_soon(&self, block: BlockId) -> bool {
        matches!(self.use_of(block), Use::Free | Use::Open)
    }

    /// The next collection takes this block, whatever is valid in it.
    pub(crate) const fn collect_next(&mut self, block: BlockId) {
        self.cold = Some(block);
    }

    /// Gives the data blocks an erased meta block, and takes the most worn erased one for it. None
    /// if that was not erased more often.
    pub(crate) fn exchange_for_worn(&mut self, block: BlockId, erases: u32) -> Option<BlockId> {
        let (_, worn) = self.free.last().copied().filter(|(count, _)| *count > erases)?;
        self.free.pop_last();
        self.set_use(worn, Use::Meta);
        self.add_free(block, erases);
        Some(worn)
    }

    /// Chooses the block to collect: by the policy, or one that is behind in erases (`true`). None
    /// if no block has an invalid page.
    pub(crate) fn choose(&mut self, erases: impl Fn(BlockId) -> u32) -> Option<(BlockId, bool)> {
        let cold = self.cold.take().filter(|block| self.use_of(*block) == Use::Closed);
        if let Some(block) = cold {
            return Some((self.take(block), true));
        }
        let emptiest = self.emptiest()?;
        let most = FRUITLESS_MAX.saturating_mul(self.geometry.blocks());
        let block = match self.collection.policy {
            Policy::Greedy => emptiest,
            _ if self.fruitless > most => emptiest,
            policy => self.by_policy(policy, &erases)?,
        };
        let is_fruitless = self.valid_in(block) == self.geometry.pages_per_block();
        self.fruitless = if is_fruitless { self.fruitless + 1 } else { 0 };
        Some((self.take(block), false))
    }

    /// The closed block with the fewest valid pages, if it has an invalid one.
    fn emptiest(&self) -> Option<BlockId> {
        let full = self.geometry.pages_per_block() as usize;
        self.buckets.iter().take(full).find_map(|bucket| bucket.last().copied())
    }

    /// The choice among all closed blocks, or among some of them.
    fn by_policy(&mut self, policy: Policy, erases: &impl Fn(BlockId) -> u32) -> Option<BlockId> {
        let pages = self.geometry.pages_per_block();
        let mut blocks: Vec<BlockId> = self.buckets.iter().flatten().copied().collect();
        blocks.sort_unstable();
        if let Policy::DChoices(count) = policy {
            let drawn = (0..count).filter_map(|_| {
                blocks.get(self.random.below(blocks.len() as u64) as usize).copied()
            });
            blocks = drawn.collect();
        }
        let candidates = blocks.iter().map(|block| {
            let (closed, changed) = self.times.get(block.0 as usize).copied().unwrap_or((0, 0));
            Candidate {
                valid: self.valid_in(*block),
                pages,
                age: self.now.saturating_sub(closed),
                idle: self.now.saturating_sub(changed),
                erases: erases(*block),
            }
        });
        blocks.get(policy::choose(policy, candidates)?).copied()
    }

    fn take(&mut self, block: BlockId) -> BlockId {
        self.unbucket(block, self.valid_in(block));
        self.set_use(block, Use::Victim);
        block
    }

    /// The place of the next page of a collection: in the open block whose turn it is, or else in
    /// the reserve, which is opened. After the pages of the victim the host's writes go there.
    pub(crate) fn place_moved(&mut self) -> Option<Ppn> {
        let lane = match self.lanes.get(self.turn).copied()? {
            Some(lane) => lane,
            None => self.open()?,
        };
        self.set_lane(Lane { next: lane.next + 1, ..lane });
        Some(Ppn(self.geometry.first_page(lane.block).0 + lane.next))
    }

    /// Valid pages.
    pub(crate) fn valid_pages(&self) -> u64 {
        self.valid.iter().map(|valid| u64::from(*valid)).sum()
    }

    /// Blocks that are no data blocks.
    pub(crate) fn meta_blocks(&self) -> usize {
        self.uses.iter().filter(|what| **what == Use::Meta).count()
    }

    /// Whether a block is no data block.
    pub(crate) fn is_meta(&self, block: BlockId) -> bool {
        self.use_of(block) == Use::Meta
    }

    /// Bytes of memory.
    pub(crate) fn ram_bytes(&self) -> u64 {
        let blocks = self.valid.len() * (4 + 1 + 4 + 4 + 16) + self.free.len() * 16;
        (self.lpn_of.len() * 4 + blocks) as u64
    }

    /// Walks the invariants; what is wrong, if anything is. Cost: all pages.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut counted = vec![0_u32; self.valid.len()];
        for (page, _) in (0u32..).zip(&self.lpn_of).filter(|(_, lpn)| **lpn != Lpn::NONE) {
            if let Some(count) = counted.get_mut(self.geometry.block_of(Ppn(page)).0 as usize) {
                *count += 1;
            }
        }
        let mut by_use = [0_usize; 5];
        for (block, (what, (valid, counted))) in
            (0u32..).map(BlockId).zip(self.uses.iter().zip(self.valid.iter().zip(&counted)))
        {
            if valid != counted {
                return Err(format!("{block} counts {valid} valid pages, it has {counted}"));
            }
            let is_empty = matches!(what, Use::Free | Use::Meta);
            if is_empty && *valid != 0 {
                return Err(format!("{block} is {what:?} and has {valid} valid pages"));
            }
            let at = self.slot.get(block.0 as usize).map_or(0, |slot| *slot as usize);
            let bucket = self.buckets.get(*valid as usize);
            if *what == Use::Closed && bucket.and_then(|bucket| bucket.get(at)) != Some(&block) {
                return Err(format!("{block} is closed and not in the bucket of {valid}"));
            }
            by_use[*what as usize] += 1;
        }
        let open = self.lanes.iter().flatten().count();
        let closed = self.buckets.iter().map(Vec::len).sum();
        let held = [self.free.len(), open, closed];
        if held != by_use[..3] {
            return Err(format!("free, open, closed blocks are {held:?}, marked {by_use:?}"));
        }
        if by_use[Use::Victim as usize] != 0 {
            return Err("a block was collected and not erased".to_owned());
        }
        Ok(())
    }
}
