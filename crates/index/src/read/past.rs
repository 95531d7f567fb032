//! Past indexes, as readers find them: see [`history`](crate::history).
//!
//! A past index is opened by the first reader that needs it, and its top fences are read when a
//! search comes to them; its other fences are in blocks, as entries are. The top fences of past
//! indexes may take a quarter of the memory for fences: those that were not used for longest are
//! closed first.
//!
//! Thread safety: any number of threads; a lookup takes one lock for a moment.

use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::meta::{PastIndex, TreeMeta};
use esker_substrate::budget::Part as MemoryPart;
use esker_substrate::error::{Error, Result};
use esker_substrate::sync::Mutex;

use crate::read::range_tombstones::RangeTombstones;
use crate::read::source::{Part, Run, find};
use crate::run::lookup::{Found, Probe};
use crate::run::tree::{BlockReader, Tree};

/// The share of the memory for fences that past indexes may take.
const FENCES_SHARE: u64 = 4;
/// Most past indexes that are open.
const OPEN_MAX: usize = 256;

/// The past indexes of a keyspace, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PastIndexes {
    all: Vec<Arc<PastIndex>>,
    /// The first version that is left, where older ones have been given up; else 0.
    dropped_until: Seq,
    /// The first version that the index of now answers.
    now_from: Seq,
    opened: Arc<Mutex<Opened>>,
}

/// The open ones, the most recently used last.
type Opened = Vec<Arc<OpenPast>>;

/// A past index that is open.
#[derive(Debug)]
pub(crate) struct OpenPast {
    pub meta: Arc<PastIndex>,
    /// Newest first.
    pub parts: Vec<Part>,
    pub removed: RangeTombstones,
}

impl OpenPast {
    /// Opens it. No I/O.
    pub fn new(meta: &Arc<PastIndex>) -> Self {
        let run = |tree: &TreeMeta| Run::whole(Arc::new(Tree::past(tree.clone())));
        Self {
            parts: meta.trees().map(run).collect(),
            removed: RangeTombstones::new(&meta.removed),
            meta: Arc::clone(meta),
        }
    }

    /// The newest version that `probe` may see.
    pub fn get(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Option<Found>> {
        self.get_any(reader, &probe.behind(self.removed.newest(probe.key, probe.seq)))
    }

    /// The newest version that `probe`, which knows the range tombstones, may see.
    pub fn get_any(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Option<Found>> {
        find(&self.parts, reader, probe)
    }

    fn fence_memory_bytes(&self) -> u64 {
        let trees = self.parts.iter().flat_map(|part| part.trees());
        trees.map(|(tree, _)| tree.fence_memory_bytes()).sum()
    }
}

impl PastIndexes {
    /// Those of an index that answers the versions from `now_from` on, of a keyspace whose history
    /// began with `began`.
    pub fn new(all: Vec<Arc<PastIndex>>, now_from: Seq, began: Seq) -> Self {
        let first = all.first().map_or(now_from, |first| first.from);
        let dropped_until = if first > began { first } else { Seq(0) };
        Self { all, dropped_until, now_from, opened: Arc::default() }
    }

    /// The same and one more, the newest.
    pub fn with(&self, past: Arc<PastIndex>) -> Self {
        let now_from = past.until;
        let all = self.all.iter().cloned().chain([past]).collect();
        let opened = Arc::clone(&self.opened);
        Self { all, dropped_until: self.dropped_until, now_from, opened }
    }

    /// The same without those that end at `until` or before.
    pub fn without(&self, until: Seq) -> Self {
        let left = self.all.iter().filter(|past| past.until > until);
        self.opened.lock().retain(|past| past.meta.until > until);
        Self {
            all: left.cloned().collect(),
            dropped_until: self.dropped_until.max(until),
            now_from: self.now_from,
            opened: Arc::clone(&self.opened),
        }
    }

    /// The same with `new` in the place of the one with the same versions.
    pub fn replaced(&self, new: &Arc<PastIndex>) -> Self {
        let is_old = |past: &&Arc<PastIndex>| past.until == new.until;
        let all = self.all.iter().map(|past| if is_old(&past) { new } else { past });
        self.opened.lock().retain(|past| past.meta.until != new.until);
        Self {
            all: all.cloned().collect(),
            dropped_until: self.dropped_until,
            now_from: self.now_from,
            opened: Arc::clone(&self.opened),
        }
    }

    pub fn all(&self) -> &[Arc<PastIndex>] {
        &self.all
    }

    /// The first version that is left, where older ones have been given up; else 0.
    pub const fn dropped_until(&self) -> Seq {
        self.dropped_until
    }

    /// Whether a reader as of `seq` searches the index of now.
    pub fn is_now(&self, seq: Seq) -> bool {
        seq >= self.now_from
    }

    /// The past index that a reader as of `seq` searches; `None` for the index of now.
    ///
    /// # Errors
    /// `Invalid` for a version that has been given up.
    pub fn at(&self, reader: &BlockReader, seq: Seq) -> Result<Option<Arc<OpenPast>>> {
        if self.is_now(seq) {
            return Ok(None);
        }
        if seq < self.dropped_until {
            return Err(Error::Invalid {
                what: format!("version {seq} is not kept any more: {} is", self.dropped_until),
            });
        }
        let place = self.all.partition_point(|past| past.until <= seq);
        Ok(self.all.get(place).map(|meta| self.open(reader, meta)))
    }

    /// The one before the index that begins with version `from`.
    pub fn before(&self, reader: &BlockReader, from: Seq) -> Option<Arc<OpenPast>> {
        let place = self.all.partition_point(|past| past.until <= from);
        self.all.get(place.checked_sub(1)?).map(|meta| self.open(reader, meta))
    }

    /// Those with the changes that were made after version `since` and up to `up_to`. What the
    /// version at which one ends removed is in it.
    pub fn between(&self, reader: &BlockReader, since: Seq, up_to: Seq) -> Vec<Arc<OpenPast>> {
        let touched = |past: &&Arc<PastIndex>| past.until > since && past.from <= up_to;
        self.all.iter().filter(touched).map(|meta| self.open(reader, meta)).collect()
    }

    /// The newest.
    pub fn last(&self, reader: &BlockReader) -> Option<Arc<OpenPast>> {
        self.all.last().map(|meta| self.open(reader, meta))
    }

    fn open(&self, reader: &BlockReader, meta: &Arc<PastIndex>) -> Arc<OpenPast> {
        let mut opened = self.opened.lock();
        // Readers of an older view may have opened one that has been replaced.
        if let Some(place) = opened.iter().rposition(|past| Arc::ptr_eq(&past.meta, meta)) {
            let past = opened.remove(place);
            opened.push(Arc::clone(&past));
            return past;
        }
        let most = reader.budget.share_bytes(MemoryPart::Fences) / FENCES_SHARE;
        let mut bytes: u64 = opened.iter().map(|past| past.fence_memory_bytes()).sum();
        while (bytes > most || opened.len() >= OPEN_MAX) && !opened.is_empty() {
            bytes = bytes.saturating_sub(opened.remove(0).fence_memory_bytes());
        }
        let past = Arc::new(OpenPast::new(meta));
        opened.push(Arc::clone(&past));
        past
    }

    /// Memory that the fences of open ones take, in bytes.
    pub fn fence_memory_bytes(&self) -> u64 {
        self.opened.lock().iter().map(|past| past.fence_memory_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(from: u64, until: u64) -> Arc<PastIndex> {
        Arc::new(PastIndex { from: Seq(from), until: Seq(until), ..PastIndex::default() })
    }

    /// By hand: two past indexes, for the versions 3 to 9 and 10 to 19.
    #[test]
    fn each_version_has_one_index() {
        let none = PastIndexes::default();
        assert_eq!((none.now_from, none.dropped_until), (Seq(0), Seq(0)));
        let two = none.with(past(3, 10)).with(past(10, 20));
        let place = |seq| two.all.partition_point(|past| past.until <= Seq(seq));
        assert_eq!([3, 9, 10, 19].map(place), [0, 0, 1, 1]);
        assert_eq!((two.now_from, two.dropped_until), (Seq(20), Seq(0)));
        let one = two.without(Seq(10));
        assert_eq!((one.all.len(), one.now_from, one.dropped_until), (1, Seq(20), Seq(10)));
        let gone = one.without(Seq(20));
        assert_eq!((gone.all.len(), gone.now_from, gone.dropped_until), (0, Seq(20), Seq(20)));
    }

    #[test]
    fn what_was_dropped_is_known_when_opened_again() {
        let dropped = |all, began| PastIndexes::new(all, Seq(20), Seq(began)).dropped_until;
        assert_eq!(dropped(vec![past(3, 10), past(10, 20)], 3), Seq(0));
        assert_eq!(dropped(vec![past(10, 20)], 3), Seq(10));
        assert_eq!(dropped(vec![], 3), Seq(20));
        assert_eq!(PastIndexes::new(vec![], Seq(0), Seq(3)).dropped_until, Seq(0));
    }
}
