//! The blocks of a device: which are free, open and full, and how many of their pages are valid.
//!
//! **Terms.** A *domain* of garbage collection is a die: pages never move to another one. A
//! *stream* is a sequence of writes with a block of its own in each domain; one more stream is that
//! of garbage collection. *Meta* blocks belong to the layer and are not in the pool.
//!
//! **Invariants.** B1: every block is free, open in one stream of its domain, full, a victim, or
//! meta. B2: a stream has at most one open block in a domain, and leaves it when it is full. B3:
//! only the stream of garbage collection opens one of the last `reserve_blocks` free blocks. B4:
//! the valid pages of a block are those that were taken and not invalidated since.

use std::collections::BTreeSet;

use super::buckets::Buckets;
use super::collecting::Collecting;
use super::options::Options;
use super::policy::{Candidate, Policy, choose};
use crate::error::{Error, Result, broken};
use crate::nand::{BlockId, Cause, Geometry, Nand, Ppn};
use crate::planted::{self, Bug};
use crate::random::Random;

/// A sequence of writes with open blocks of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream(pub u32);

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Erased.
    Free,
    /// Being filled.
    Open,
    /// Filled, and known to garbage collection.
    Full,
    /// Being emptied by garbage collection; at most one of a domain.
    Victim,
    /// Not in the pool.
    Meta,
}

/// What a recovery found in a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Pages that are not erased: programmed or torn. They are the first ones.
    pub written: u32,
    /// Torn pages among them.
    pub torn: u32,
    /// Valid pages among them, as the layer decides.
    pub valid: u32,
    /// The greatest sequence number among them.
    pub newest: u64,
}

/// The blocks of a device. Memory: 32 bytes for each block, and the lists of full ones.
#[derive(Clone, Debug)]
pub struct Pool {
    geometry: Geometry,
    policy: Policy,
    reserve: usize,
    wear_spread: u32,
    streams: u32,
    blocks: Vec<Block>,
    full: Buckets,
    /// Of all streams of the first domain, that of garbage collection last; then of the next one.
    frontiers: Vec<Frontier>,
    domains: Vec<Domain>,
    /// Pages programmed so far: the time of ages.
    now: u64,
    random: Random,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    valid: u32,
    place: Place,
    /// When it became full.
    full_since: u64,
    /// When a page was last written or became invalid.
    changed: u64,
}

/// The open block of a stream: its next page and its end. Both are equal where there is none.
#[derive(Clone, Copy, Debug, Default)]
struct Frontier {
    next: u32,
    end: u32,
}

#[derive(Clone, Debug, Default)]
struct Domain {
    /// Free blocks by (erases, block).
    free: BTreeSet<(u32, u32)>,
    /// No block of the domain was erased less often than this.
    least_erases: u32,
    /// The block that is being emptied.
    collecting: Option<Collecting>,
}

impl Pool {
    /// A pool of erased blocks with `streams` streams, besides that of garbage collection, and
    /// without the blocks in `meta`.
    #[must_use]
    pub fn new<N: Nand>(nand: &N, options: &Options, streams: u32, meta: &[BlockId]) -> Self {
        let geometry = *nand.geometry();
        let block = Block { valid: 0, place: Place::Free, full_since: 0, changed: 0 };
        let frontiers = geometry.dies() as usize * (streams as usize + 1);
        let mut pool = Self {
            geometry,
            policy: options.policy,
            reserve: options.reserve_blocks as usize,
            wear_spread: options.wear_spread,
            streams,
            blocks: vec![block; geometry.blocks() as usize],
            full: Buckets::new(geometry.dies(), geometry.blocks(), geometry.pages_per_block()),
            frontiers: vec![Frontier::default(); frontiers],
            domains: vec![Domain::default(); geometry.dies() as usize],
            now: 0,
            random: Random::new(options.seed),
        };
        for block in meta {
            if let Some(block) = pool.blocks.get_mut(block.0 as usize) {
                block.place = Place::Meta;
            }
        }
        for block in (0..geometry.blocks()).map(BlockId) {
            if pool.place(block) == Place::Free {
                let erases = nand.erase_count(block);
                pool.domain_mut(block).free.insert((erases, block.0));
            }
        }
        pool
    }

    /// A pool as a recovery found it. Blocks that are partly written go on where they were, the
    /// emptiest of a domain in the stream of garbage collection, which needs the room most.
    #[must_use]
    pub fn recovered<N: Nand>(
        nand: &N,
        options: &Options,
        streams: u32,
        meta: &[BlockId],
        found: &[Found],
    ) -> Self {
        let mut pool = Self::new(nand, options, streams, meta);
        pool.now = found.iter().map(|found| found.newest).max().unwrap_or(0);
        let mut emptiest_first: Vec<_> = (0..).map(BlockId).zip(found).collect();
        emptiest_first.sort_by_key(|(_, found)| found.written);
        for (id, found) in emptiest_first {
            if found.written == 0 || pool.place(id) == Place::Meta {
                continue;
            }
            let erases = nand.erase_count(id);
            pool.domain_mut(id).free.remove(&(erases, id.0));
            let domain = pool.geometry.die_of(id);
            let state = &mut pool.blocks[id.0 as usize];
            state.valid = found.valid;
            state.full_since = found.newest;
            state.changed = found.newest;
            let unused = (0..=streams).rev().map(Stream).find(|s| !pool.has_open_page(domain, *s));
            match unused.filter(|_| found.written < pool.geometry.pages_per_block()) {
                Some(stream) => pool.resume(domain, stream, id, found.written),
                None => pool.fill(domain, id),
            }
        }
        pool
    }

    /// The stream of garbage collection.
    #[must_use]
    pub const fn gc_stream(&self) -> Stream {
        Stream(self.streams)
    }

    /// The number of domains: dies.
    #[must_use]
    pub fn domains(&self) -> u32 {
        self.geometry.dies()
    }

    /// Whether the stream has an open block.
    #[must_use]
    #[inline]
    pub fn has_open_page(&self, domain: u32, stream: Stream) -> bool {
        let frontier = self.frontiers[self.frontier(domain, stream)];
        frontier.next < frontier.end
    }

    /// Whether a stream, other than that of garbage collection, may open a block.
    #[must_use]
    pub fn may_open(&self, domain: u32) -> bool {
        self.domains[domain as usize].free.len() > self.kept()
    }

    /// Whether garbage should be collected: the next block that a stream opens may be the last one
    /// before the reserve.
    #[must_use]
    #[inline]
    pub fn is_short(&self, domain: u32) -> bool {
        self.domains[domain as usize].free.len() <= self.kept() + 1
    }

    /// Free blocks of each domain that only garbage collection may open.
    fn kept(&self) -> usize {
        if planted::is(Bug::ReserveUsed) { 0 } else { self.reserve }
    }

    /// The block of a domain that is being emptied.
    #[inline]
    pub(super) fn collecting(&mut self, domain: u32) -> &mut Option<Collecting> {
        &mut self.domains[domain as usize].collecting
    }

    /// Free blocks of a domain, the reserve included.
    #[must_use]
    pub fn free_blocks(&self, domain: u32) -> u32 {
        self.domains[domain as usize].free.len() as u32
    }

    /// Pages that garbage collection could program in a domain without an erase.
    #[must_use]
    pub fn room(&self, domain: u32) -> u64 {
        let frontier = self.frontiers[self.frontier(domain, self.gc_stream())];
        let free = u64::from(self.free_blocks(domain)) * u64::from(self.geometry.pages_per_block());
        free + u64::from(frontier.end - frontier.next)
    }

    /// Takes the next page of a stream, to be programmed at once; it counts as valid. A stream
    /// without an open block opens one: that of garbage collection the most erased free one, since
    /// what it moves is cold, others the least erased one.
    ///
    /// # Errors
    /// [`Error::Full`] where the stream may not open a block: [`may_open`](Self::may_open).
    #[inline]
    pub fn take(&mut self, domain: u32, stream: Stream) -> Result<Ppn> {
        let at = self.frontier(domain, stream);
        if self.frontiers[at].next == self.frontiers[at].end {
            self.open(domain, stream)?;
        }
        let frontier = &mut self.frontiers[at];
        let page = Ppn(frontier.next);
        frontier.next += 1;
        let is_last = frontier.next == frontier.end;
        self.now += 1;
        let id = self.geometry.block_of(page);
        let block = &mut self.blocks[id.0 as usize];
        block.valid += 1;
        block.changed = self.now;
        if is_last {
            self.fill(domain, id);
        }
        Ok(page)
    }

    /// A page that was valid is not any more.
    #[inline]
    pub fn invalidate(&mut self, page: Ppn) {
        let id = self.geometry.block_of(page);
        let block = &mut self.blocks[id.0 as usize];
        debug_assert!(block.valid > 0, "{page} of {id} was not valid");
        let valid = block.valid;
        block.valid = valid.saturating_sub(1);
        block.changed = self.now;
        if block.place == Place::Full {
            let domain = self.geometry.die_of(id);
            self.full.remove(domain, valid, id.0);
            self.full.add(domain, valid - 1, id.0);
        }
    }

    /// The block that is reclaimed next in a domain; none if none is full. If the valid pages of
    /// the policy's choice have no room, as after power cuts, it is the one with the fewest.
    pub fn victim<N: Nand>(&mut self, nand: &N, domain: u32) -> Option<BlockId> {
        let room = self.room(domain);
        let chosen = self.choice(nand, domain)?;
        if u64::from(self.valid(chosen)) <= room {
            return Some(chosen);
        }
        self.full.least(domain).map(|(block, _)| BlockId(block))
    }

    /// The choice of the policy.
    fn choice<N: Nand>(&mut self, nand: &N, domain: u32) -> Option<BlockId> {
        match self.policy {
            Policy::Greedy => self.full.least(domain).map(|(block, _)| BlockId(block)),
            Policy::DChoices(draws) => {
                let drawn = self.draw(domain, draws);
                let at = choose(self.policy, drawn.iter().map(|id| self.candidate(nand, *id)))?;
                drawn.get(at).copied()
            }
            policy => {
                let full = |id: &BlockId| self.place(*id) == Place::Full;
                let candidates = self.blocks_of(domain).filter(full);
                let at = choose(policy, candidates.clone().map(|id| self.candidate(nand, id)))?;
                self.blocks_of(domain).filter(full).nth(at)
            }
        }
    }

    /// What a policy knows of a block.
    #[must_use]
    pub fn candidate<N: Nand>(&self, nand: &N, id: BlockId) -> Candidate {
        let block = &self.blocks[id.0 as usize];
        Candidate {
            valid: block.valid,
            pages: self.geometry.pages_per_block(),
            age: self.now - block.full_since,
            idle: self.now - block.changed,
            erases: nand.erase_count(id),
        }
    }

    /// Takes a full block out of the candidates, to empty it.
    pub fn begin_collection(&mut self, id: BlockId, cause: Cause) {
        let (valid, domain) = (self.valid(id), self.geometry.die_of(id));
        self.full.remove(domain, valid, id.0);
        self.blocks[id.0 as usize].place = Place::Victim;
        let pages = self.geometry.pages_per_block();
        *self.collecting(domain) = Some(Collecting::new(id, cause, valid, pages));
    }

    /// The emptied block was erased: it is free. `erases` is its new count.
    ///
    /// # Errors
    /// [`Error::Invariant`] if it still has valid pages.
    pub fn release(&mut self, id: BlockId, erases: u32) -> Result<()> {
        let block = &mut self.blocks[id.0 as usize];
        if block.valid != 0 || block.place != Place::Victim {
            return broken(format!("{id} is erased with {} valid pages", block.valid));
        }
        block.place = Place::Free;
        self.domain_mut(id).free.insert((erases, id.0));
        Ok(())
    }

    /// The number of valid pages of a block.
    #[must_use]
    pub fn valid(&self, id: BlockId) -> u32 {
        self.blocks[id.0 as usize].valid
    }

    /// What a block is used for.
    #[must_use]
    pub fn place(&self, id: BlockId) -> Place {
        self.blocks[id.0 as usize].place
    }

    /// The blocks of a domain, meta blocks included.
    pub fn blocks_of(&self, domain: u32) -> impl Iterator<Item = BlockId> + Clone + use<> {
        let first = self.geometry.first_block(domain).0;
        (first..first + self.geometry.blocks_per_die()).map(BlockId)
    }

    /// The difference of erases at which static wear levelling acts.
    pub(super) const fn wear_spread(&self) -> u32 {
        self.wear_spread
    }

    /// A number of erases that no block of the domain is below.
    pub(super) fn least_erases(&mut self, domain: u32) -> &mut u32 {
        &mut self.domains[domain as usize].least_erases
    }

    /// Memory in bytes.
    #[must_use]
    pub fn ram_bytes(&self) -> u64 {
        let free: usize = self.domains.iter().map(|domain| domain.free.len()).sum();
        (self.blocks.capacity() * size_of::<Block>()) as u64
            + self.full.ram_bytes()
            + (self.frontiers.capacity() * size_of::<Frontier>()) as u64
            + (self.domains.capacity() * size_of::<Domain>()) as u64
            // Nodes of a B-tree are half full or more.
            + 16 * free as u64
    }

    fn open(&mut self, domain: u32, stream: Stream) -> Result<()> {
        let is_gc = stream == self.gc_stream();
        if !is_gc && !self.may_open(domain) {
            return Err(Error::Full(format!("die {domain} has no free block but its reserve")));
        }
        let free = &mut self.domains[domain as usize].free;
        let block = if is_gc { free.pop_last() } else { free.pop_first() };
        let Some((_, block)) = block else {
            return Err(Error::Full(format!("die {domain} has no free block")));
        };
        self.resume(domain, stream, BlockId(block), 0);
        Ok(())
    }

    fn resume(&mut self, domain: u32, stream: Stream, id: BlockId, written: u32) {
        self.blocks[id.0 as usize].place = Place::Open;
        let first = self.geometry.first_page(id).0;
        let end = first + self.geometry.pages_per_block();
        let at = self.frontier(domain, stream);
        self.frontiers[at] = Frontier { next: first + written, end };
    }

    fn fill(&mut self, domain: u32, id: BlockId) {
        let block = &mut self.blocks[id.0 as usize];
        block.place = Place::Full;
        block.full_since = self.now;
        let valid = block.valid;
        self.full.add(domain, valid, id.0);
    }

    /// Draws full blocks of a domain at random, the same one perhaps twice.
    fn draw(&mut self, domain: u32, draws: u32) -> Vec<BlockId> {
        let (first, blocks) = (self.geometry.first_block(domain), self.geometry.blocks_per_die());
        let mut drawn = Vec::with_capacity(draws as usize);
        // Nearly all blocks are full when garbage is collected; if not, some draws are lost.
        for _ in 0..draws.saturating_mul(4) {
            let offset = (self.random.bits() % u64::from(blocks)) as u32;
            let id = BlockId(first.0 + offset);
            if self.place(id) == Place::Full {
                drawn.push(id);
            }
            if drawn.len() == draws as usize {
                break;
            }
        }
        if drawn.is_empty() {
            drawn.extend(self.full.least(domain).map(|(block, _)| BlockId(block)));
        }
        drawn
    }

    #[inline]
    fn frontier(&self, domain: u32, stream: Stream) -> usize {
        domain as usize * (self.streams as usize + 1) + stream.0 as usize
    }

    fn domain_mut(&mut self, id: BlockId) -> &mut Domain {
        &mut self.domains[self.geometry.die_of(id) as usize]
    }
}

impl Pool {
    /// Checks the pool against the flash and a recount of valid pages, `valid_of(block)`.
    ///
    /// # Errors
    /// [`Error::Invariant`].
    pub fn check<N: Nand>(&self, nand: &N, valid_of: impl Fn(BlockId) -> u32) -> Result<()> {
        let (per_block, mut counts) = (self.geometry.pages_per_block(), [0_u32; 5]);
        let mut listed = self.full.clone();
        for id in (0..self.geometry.blocks()).map(BlockId) {
            let (place, written) = (self.place(id), nand.next_page(id));
            let slot = match place {
                Place::Free => 0,
                Place::Open => 1,
                Place::Full => 2,
                Place::Meta => 3,
                Place::Victim => 4,
            };
            counts[slot] += 1;
            let domain = self.geometry.die_of(id);
            let collected = self.domains[domain as usize].collecting.map(|of| of.block);
            if (collected == Some(id)) != (place == Place::Victim) {
                return broken(format!("{id} is {place:?}, and {collected:?} is emptied"));
            }
            let is_free =
                self.domains[domain as usize].free.contains(&(nand.erase_count(id), id.0));
            if is_free != (place == Place::Free) || (is_free && written != 0) {
                return broken(format!("{id} is {place:?}, and its list says {is_free}"));
            }
            if self.opened(id).len() != usize::from(place == Place::Open) {
                return broken(format!("{id} is {place:?}, and open in {:?}", self.opened(id)));
            }
            if self.opened(id).first().is_some_and(|(_, next)| *next != written) {
                return broken(format!("{id} goes on at {:?}, not {written}", self.opened(id)));
            }
            if place != Place::Meta
                && (valid_of(id) != self.valid(id) || self.valid(id) > per_block)
            {
                let (counted, found) = (self.valid(id), valid_of(id));
                return broken(format!("{id} has {found} valid pages, counted {counted}"));
            }
            if place == Place::Full {
                listed.remove(domain, self.valid(id), id.0);
            }
        }
        if counts.iter().sum::<u32>() != self.geometry.blocks() {
            return broken(format!("free, open, full, meta blocks and victims are {counts:?}"));
        }
        let mut left = (0..self.domains()).filter_map(|domain| listed.least(domain));
        match left.next() {
            Some((block, _)) => broken(format!("block {block} is listed as full and is not")),
            None => Ok(()),
        }
    }

    /// The streams that have a block open, each with the index of the next page.
    fn opened(&self, id: BlockId) -> Vec<(u32, u32)> {
        let domain = self.geometry.die_of(id);
        let first = self.geometry.first_page(id).0;
        let end = first + self.geometry.pages_per_block();
        let streams = 0..=self.streams;
        let of = |stream: u32| self.frontiers[self.frontier(domain, Stream(stream))];
        let is_here = |stream: &u32| of(*stream).next < of(*stream).end && of(*stream).end == end;
        streams.filter(is_here).map(|stream| (stream, of(stream).next - first)).collect()
    }
}
