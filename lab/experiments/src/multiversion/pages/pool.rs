//! The pages in memory: the least recently used one leaves first, and is written if it was changed.
//!
//! Invariants: `place` has every frame in use, once, by its page; the frames in use are one list,
//! newest first, linked both ways by their indexes.

use std::collections::{HashMap, HashSet};

use super::file::PageFile;
use super::{Counters, PageId};
use crate::{Error, Result};

/// How pages are written as bytes.
pub trait Codec {
    /// A page in memory.
    type Page;

    /// Writes it.
    ///
    /// # Errors
    /// When it does not fit.
    fn encode(&self, page: &Self::Page, bytes: &mut [u8]) -> Result<()>;

    /// Reads it back.
    ///
    /// # Errors
    /// When the bytes are no such page.
    fn decode(&self, bytes: &[u8]) -> Result<Self::Page>;
}

/// No frame.
const NONE: usize = usize::MAX;

#[derive(Clone, Debug)]
struct Frame<P> {
    id: PageId,
    page: P,
    is_dirty: bool,
    newer: usize,
    older: usize,
}

/// A number of pages in memory, over a file.
#[derive(Clone, Debug)]
pub struct Pool<C: Codec> {
    codec: C,
    file: PageFile,
    capacity: usize,
    frames: Vec<Frame<C::Page>>,
    place: HashMap<PageId, usize>,
    newest: usize,
    oldest: usize,
    /// Frames that are not in use.
    free_slots: Vec<usize>,
    /// Pages changed since the last commit.
    changed: HashSet<PageId>,
    forced: u64,
    buffer: Vec<u8>,
}

impl<C: Codec> Pool<C> {
    /// An empty pool of at least one page.
    #[must_use]
    pub fn new(codec: C, page_bytes: usize, capacity: usize) -> Self {
        Self {
            codec,
            file: PageFile::new(page_bytes),
            capacity: capacity.max(1),
            frames: Vec::new(),
            place: HashMap::new(),
            newest: NONE,
            oldest: NONE,
            free_slots: Vec::new(),
            changed: HashSet::new(),
            forced: 0,
            buffer: vec![0; page_bytes],
        }
    }

    /// A page, to be read.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(&mut self, id: PageId) -> Result<&C::Page> {
        let at = self.fetch(id)?;
        self.frames.get(at).map(|frame| &frame.page).ok_or_else(lost)
    }

    /// A page, to be changed.
    ///
    /// # Errors
    /// When there is none.
    pub fn change(&mut self, id: PageId) -> Result<&mut C::Page> {
        let at = self.fetch(id)?;
        self.changed.insert(id);
        let frame = self.frames.get_mut(at).ok_or_else(lost)?;
        frame.is_dirty = true;
        Ok(&mut frame.page)
    }

    /// Adds a page, which is not read from the file.
    ///
    /// # Errors
    /// When another page has to leave and cannot be written.
    pub fn create(&mut self, id: PageId, page: C::Page) -> Result<()> {
        self.changed.insert(id);
        self.put(id, page, true).map(drop)
    }

    /// Gives a page up, in memory and in the file.
    pub fn free(&mut self, id: PageId) {
        self.forget(id);
        self.changed.remove(&id);
        self.file.free(id);
    }

    /// Drops a page from memory without a write: the file has something newer, or nothing.
    pub fn forget(&mut self, id: PageId) {
        if let Some(at) = self.place.remove(&id) {
            self.unlink(at);
            self.free_slots.push(at);
        }
    }

    /// Counts the pages that were changed since the last commit, as a commit would that writes
    /// them.
    pub fn commit(&mut self) {
        self.forced += self.changed.len() as u64;
        self.changed.clear();
    }

    /// The sum of that over all commits.
    #[must_use]
    pub const fn forced(&self) -> u64 {
        self.forced
    }

    /// Writes everything that was changed, in the order of the pages.
    ///
    /// # Errors
    /// When a page does not fit.
    pub fn flush(&mut self) -> Result<()> {
        let mut dirty: Vec<(PageId, usize)> =
            self.place.iter().map(|(id, at)| (*id, *at)).collect();
        dirty.sort_unstable();
        dirty.into_iter().try_for_each(|(_, at)| self.write_back(at))
    }

    /// The file below.
    pub const fn file(&mut self) -> &mut PageFile {
        &mut self.file
    }

    /// The file and the codec, for surveys.
    #[must_use]
    pub const fn parts(&self) -> (&PageFile, &C) {
        (&self.file, &self.codec)
    }

    /// What was read and written.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.file.counters()
    }

    fn fetch(&mut self, id: PageId) -> Result<usize> {
        if let Some(at) = self.place.get(&id).copied() {
            if at != self.newest {
                self.unlink(at);
                self.link(at);
            }
            return Ok(at);
        }
        let page = self.codec.decode(self.file.read(id)?)?;
        self.put(id, page, false)
    }

    fn put(&mut self, id: PageId, page: C::Page, is_dirty: bool) -> Result<usize> {
        self.forget(id);
        while self.place.len() >= self.capacity {
            self.evict()?;
        }
        let frame = Frame { id, page, is_dirty, newer: NONE, older: NONE };
        let at = match self.free_slots.pop() {
            Some(at) => {
                *self.frames.get_mut(at).ok_or_else(lost)? = frame;
                at
            }
            None => {
                self.frames.push(frame);
                self.frames.len() - 1
            }
        };
        self.place.insert(id, at);
        self.link(at);
        Ok(at)
    }

    fn evict(&mut self) -> Result<()> {
        let oldest = self.oldest;
        self.write_back(oldest)?;
        let id = self.frames.get(oldest).ok_or_else(lost)?.id;
        self.forget(id);
        Ok(())
    }

    fn write_back(&mut self, at: usize) -> Result<()> {
        let frame = self.frames.get_mut(at).ok_or_else(lost)?;
        if frame.is_dirty {
            self.codec.encode(&frame.page, &mut self.buffer)?;
            self.file.write(frame.id, &self.buffer)?;
            frame.is_dirty = false;
        }
        Ok(())
    }

    fn unlink(&mut self, at: usize) {
        let Some((newer, older)) = self.frames.get(at).map(|of| (of.newer, of.older)) else {
            return;
        };
        match self.frames.get_mut(newer) {
            Some(frame) => frame.older = older,
            None => self.newest = older,
        }
        match self.frames.get_mut(older) {
            Some(frame) => frame.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, at: usize) {
        let newest = self.newest;
        if let Some(frame) = self.frames.get_mut(at) {
            (frame.newer, frame.older) = (NONE, newest);
        }
        match self.frames.get_mut(newest) {
            Some(frame) => frame.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }
}

fn lost() -> Error {
    Error::Invalid("a frame of the pool is lost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Bytes;

    impl Codec for Bytes {
        type Page = [u8; 2];

        fn encode(&self, page: &Self::Page, bytes: &mut [u8]) -> Result<()> {
            bytes.copy_from_slice(page);
            Ok(())
        }

        fn decode(&self, bytes: &[u8]) -> Result<Self::Page> {
            Ok([bytes[0], bytes[1]])
        }
    }

    #[test]
    fn the_least_recently_used_page_leaves_first() {
        let mut pool = Pool::new(Bytes, 2, 2);
        pool.create(1, [1, 1]).unwrap();
        pool.create(2, [2, 2]).unwrap();
        assert_eq!(pool.read(1).unwrap(), &[1, 1]);
        pool.create(3, [3, 3]).unwrap();
        assert_eq!(pool.counters(), Counters { writes: 1, ..Counters::default() });
        assert_eq!(pool.read(1).unwrap(), &[1, 1]);
        assert_eq!(pool.read(2).unwrap(), &[2, 2]);
        assert_eq!(pool.counters(), Counters { reads: 1, writes: 2, sequential: 1 });
        pool.change(2).unwrap()[0] = 9;
        pool.commit();
        pool.flush().unwrap();
        assert_eq!((pool.forced(), pool.counters().writes), (3, 4));
        pool.free(2);
        assert!(pool.read(2).is_err());
    }

    proptest! {
        #[test]
        fn a_pool_is_a_map(
            capacity in 1usize..6,
            steps in prop::collection::vec((0u64..9, 0u8..4, any::<u8>()), 0..120),
        ) {
            let mut pool = Pool::new(Bytes, 2, capacity);
            let mut model: HashMap<PageId, [u8; 2]> = HashMap::new();
            for (id, what, byte) in steps {
                match what {
                    0 => {
                        pool.create(id, [byte; 2]).unwrap();
                        model.insert(id, [byte; 2]);
                    }
                    1 => {
                        pool.free(id);
                        model.remove(&id);
                    }
                    2 if model.contains_key(&id) => {
                        pool.change(id).unwrap()[1] = byte;
                        model.get_mut(&id).unwrap()[1] = byte;
                    }
                    _ => prop_assert_eq!(pool.read(id).ok(), model.get(&id)),
                }
                prop_assert!(pool.place.len() <= capacity);
            }
            pool.flush().unwrap();
            for (id, page) in model {
                prop_assert_eq!(pool.file().read(id).unwrap(), page);
            }
        }
    }
}
