//! Pages on the chip: programming with retirement of worn blocks, reading through a cache.
//!
//! F1: a page is programmed with the number that follows that of the page programmed before. F2:
//! the cache has only pages that are live or held, as they are on the chip. F3: pages that were
//! used once since they came into the cache are evicted before others while they are more than a
//! quarter of it: leaves of lookups with uniform keys do not displace the nodes above them.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::chip::{BlockNo, Chip, Fault, PageNo, Read};
use crate::error::{Error, Result};
use crate::page::{self, HEADER_BYTES, Header, Kind};
use crate::planted::{self, Bug};
use crate::space::{Space, State, Stream};

/// Memory of a cached page besides its bytes, about: its place in the map and its counts.
pub(crate) const CACHED_BYTES: usize = 72;

/// Operations on the chip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages of nodes and buffers read.
    pub reads: u64,
    /// Pages of nodes programmed.
    pub node_programs: u64,
    /// Pages of buffers programmed.
    pub fragment_programs: u64,
    /// Pages of checkpoints and logs programmed.
    pub meta_programs: u64,
    /// Blocks erased.
    pub erases: u64,
}

/// A page in the cache.
#[derive(Clone, Debug)]
struct Cached {
    /// When it was used last.
    tick: u64,
    /// Whether it was used again since it came into the cache.
    is_reused: bool,
    bytes: Arc<[u8]>,
}

/// The chip, its space, and a cache of its pages.
#[derive(Clone, Debug)]
pub(crate) struct Flash<C> {
    pub chip: C,
    pub space: Space,
    pub next_seq: u64,
    pub counts: Counts,
    pub page_bytes: usize,
    cache: BTreeMap<u32, Cached>,
    cache_pages: usize,
    tick: u64,
}

impl<C: Chip> Flash<C> {
    pub(crate) fn new(chip: C) -> Self {
        let space = Space::new(chip.blocks(), chip.pages_per_block());
        Self {
            page_bytes: chip.page_bytes(),
            space,
            next_seq: 1,
            counts: Counts::default(),
            cache: BTreeMap::new(),
            cache_pages: 4,
            tick: 0,
            chip,
        }
    }

    /// Bytes of entries that fit in a page.
    pub(crate) fn capacity(&self) -> usize {
        self.page_bytes - HEADER_BYTES
    }

    /// Sets the size of the cache, in pages.
    pub(crate) fn set_cache(&mut self, pages: usize) {
        self.cache_pages = pages;
        while self.cache.len() > pages {
            self.evict();
        }
    }

    pub(crate) fn cache_pages(&self) -> usize {
        self.cache_pages
    }

    fn evict(&mut self) {
        let used_once = self.cache.values().filter(|page| !page.is_reused).count();
        let all = used_once * 4 < self.cache.len();
        let candidates = self.cache.iter().filter(|(_, page)| all || !page.is_reused);
        let oldest = candidates.min_by_key(|(_, page)| page.tick).map(|(number, _)| *number);
        if let Some(page) = oldest {
            self.cache.remove(&page);
        }
    }

    fn keep(&mut self, page: PageNo, bytes: &Arc<[u8]>) {
        if self.cache.len() >= self.cache_pages {
            self.evict();
        }
        self.tick += 1;
        let cached = Cached { tick: self.tick, is_reused: false, bytes: Arc::clone(bytes) };
        self.cache.insert(page.0, cached);
    }

    /// Reads a page that must be of this kind. Nodes are cached, fragments are not.
    pub(crate) fn read(&mut self, at: PageNo, kind: Kind) -> Result<Arc<[u8]>> {
        self.tick += 1;
        if let Some(cached) = self.cache.get_mut(&at.0) {
            (cached.tick, cached.is_reused) = (self.tick, true);
            return Ok(Arc::clone(&cached.bytes));
        }
        let bytes = self.read_raw(at)?.1;
        self.counts.reads += 1;
        page::require(&bytes, at, kind)?;
        let bytes: Arc<[u8]> = bytes.into();
        if kind == Kind::Node {
            self.keep(at, &bytes);
        }
        Ok(bytes)
    }

    /// Reads a page of which nothing is known.
    pub(crate) fn read_raw(&mut self, at: PageNo) -> Result<(Read, Vec<u8>)> {
        let mut bytes = alloc::vec![0; self.page_bytes];
        match self.chip.read(at, &mut bytes) {
            Ok(read) => Ok((read, bytes)),
            Err(Fault::Other(what)) => Err(Error::Chip(what)),
            Err(Fault::Worn) => Ok((Read::Unreadable, bytes)),
        }
    }

    /// Programs a page with this payload. It is live. Blocks that fail are retired.
    ///
    /// # Errors
    /// [`Error::Exhausted`] without a free block, which callers prevent by making room before.
    pub(crate) fn write(
        &mut self,
        kind: Kind,
        level: u8,
        owner: u32,
        payload: &[u8],
    ) -> Result<PageNo> {
        let stream = match kind {
            Kind::Node => Stream::Nodes,
            Kind::Fragment => Stream::Fragments,
            Kind::Checkpoint | Kind::Log => Stream::Meta,
        };
        let mut bytes = alloc::vec![0xFF; self.page_bytes];
        bytes
            .get_mut(HEADER_BYTES..HEADER_BYTES + payload.len())
            .ok_or(Error::Invariant("a payload fits its page"))?
            .copy_from_slice(payload);
        loop {
            let at = self.allocate(stream)?;
            let erases = self.space.erases(self.space.block_of(at));
            let header = Header { kind, level, seq: self.next_seq, owner, erases };
            page::seal(&mut bytes, payload.len(), &header);
            self.next_seq = self.next_seq.saturating_add(1);
            match self.chip.program(at, &bytes) {
                Ok(()) => {
                    self.count(stream);
                    self.space.add_live(at);
                    if kind == Kind::Node {
                        self.keep(at, &bytes.into());
                    }
                    return Ok(at);
                }
                Err(Fault::Worn) => self.space.retire(self.space.block_of(at)),
                Err(Fault::Other(what)) => return Err(Error::Chip(what)),
            }
        }
    }

    /// Makes what was programmed durable, where the chip has a cache.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if planted::is(Bug::SyncForgotten) {
            return Ok(());
        }
        self.chip.sync().map_err(|fault| match fault {
            Fault::Other(what) => Error::Chip(what),
            Fault::Worn => Error::Chip("it cannot make durable what was programmed".to_string()),
        })
    }

    fn count(&mut self, stream: Stream) {
        match stream {
            Stream::Nodes => self.counts.node_programs += 1,
            Stream::Fragments => self.counts.fragment_programs += 1,
            Stream::Meta => self.counts.meta_programs += 1,
        }
    }

    fn allocate(&mut self, stream: Stream) -> Result<PageNo> {
        loop {
            if let Some(page) = self.space.next(stream) {
                return Ok(page);
            }
            let block = self.space.least_worn_free().ok_or(Error::Exhausted)?;
            if self.erase(block)? {
                self.space.open(stream, block);
            }
        }
    }

    /// Erases a free block; answers whether it can be used.
    fn erase(&mut self, block: BlockNo) -> Result<bool> {
        match self.chip.erase(block) {
            Ok(()) => {
                self.counts.erases += 1;
                self.space.erased(block);
                Ok(true)
            }
            Err(Fault::Worn) => {
                self.space.set_state(block, State::Retired);
                Ok(false)
            }
            Err(Fault::Other(what)) => Err(Error::Chip(what)),
        }
    }

    /// A live page is not needed any more.
    pub(crate) fn release(&mut self, page: PageNo) {
        self.cache.remove(&page.0);
        self.space.release(page);
    }
}
