//! Point lookup of a key in a tree.
//!
//! Levels are searched from the top down; the sequence ranges of levels are disjoint and
//! descending, so the first visible version found is the newest. With express fences a level costs
//! no read for a miss and one for a hit; without them, one block per level (fractional cascading).

use std::sync::Arc;

use esker_format::data::{Data, DataBuf};
use esker_format::filter;
use esker_format::ids::Seq;
use esker_format::ptr::BlockPtr;
use esker_substrate::blocks::DATA_FILE;
use esker_substrate::cache::CachedBlock;
use esker_substrate::error::{Error, Result};
use esker_substrate::planted::{self, Race};

use crate::run::fence_index::{FenceIndex, Place};
use crate::run::tree::{BlockReader, Tree};

/// The key and sequence number of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// The user key.
    pub key: &'a [u8],
    /// Its hash, computed once for all filters.
    pub hash: u64,
    /// The newest number that may be seen.
    pub seq: Seq,
    /// The key was removed by the range at this number: older versions are not there.
    removed: Seq,
}

impl<'a> Probe<'a> {
    /// A probe for `key` as of `seq`.
    #[must_use]
    pub fn new(key: &'a [u8], seq: Seq) -> Self {
        Self { key, hash: filter::hash(key), seq, removed: Seq(0) }
    }

    /// The same for a key with a range tombstone of number `removed`; 0 if it has none.
    pub(crate) const fn behind(&self, removed: Seq) -> Self {
        Self { removed, ..*self }
    }

    /// The same for the versions before the one with number `seq`; `None` when there can be none.
    pub(crate) fn before(&self, seq: Seq) -> Option<Self> {
        let seq = seq.0.checked_sub(1).map(Seq).filter(|seq| *seq > Seq(0))?;
        Some(Self { seq, ..*self })
    }

    /// The data of a version with number `seq` and data `data`, as this probe sees it.
    pub(crate) fn as_seen<'d>(&self, seq: Seq, data: Data<'d>) -> Data<'d> {
        if seq < self.removed { Data::Delete } else { data }
    }

    /// The newest version that may be seen.
    pub(crate) fn found(&self, seq: Seq, data: Data<'_>) -> Found {
        Found { seq, data: self.as_seen(seq, data).into() }
    }
}

/// A version found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its number.
    pub seq: Seq,
    /// The data of the version.
    pub data: DataBuf,
}

/// The block of a level that a search leads to.
enum Way<'a> {
    /// A block above has said so.
    Known(BlockPtr),
    /// A fence in memory says so. Few searches need more of it than its filter.
    Fence(&'a FenceIndex, Place),
}

impl Way<'_> {
    fn ptr(&self) -> Result<BlockPtr> {
        match self {
            Self::Known(ptr) => Ok(*ptr),
            Self::Fence(fences, place) => fences.ptr(*place).ok_or_else(|| no_fence(None)),
        }
    }
}

/// The progress of the descent: the block of the level above, read if it had to be.
struct Above<'a> {
    way: Way<'a>,
    block: Option<Arc<CachedBlock>>,
}

impl Tree {
    /// The newest version that `probe` may see; `None` when the tree has none.
    pub(crate) fn get(&self, reader: &BlockReader, probe: &Probe<'_>) -> Result<Option<Found>> {
        self.enter(reader)?;
        let mut above: Option<Above<'_>> = None;
        for level in 0..self.height() {
            let Some((way, maybe)) = self.locate(level, reader, above.take(), probe)? else {
                continue;
            };
            let mut block = None;
            if maybe {
                let ptr = way.ptr()?;
                let read = block.insert(reader.read(&ptr)?);
                let found = read.view().find(probe.key, probe.seq);
                let found = found.map_err(|error| reader.damage(&ptr, &error))?;
                let version = found.and_then(|entry| Some((entry.seq, entry.payload.data()?)));
                if let Some((seq, data)) = version {
                    return Ok(Some(probe.found(seq, data)));
                }
            }
            above = Some(Above { way, block });
        }
        Ok(None)
    }

    /// The block of `level` that `probe` leads to, and whether it may hold the key. `None` when
    /// the level has no blocks: then no level above has, and all of a level's first fences are
    /// in its tail.
    fn locate<'a>(
        &'a self,
        level: usize,
        reader: &BlockReader,
        above: Option<Above<'a>>,
        probe: &Probe<'_>,
    ) -> Result<Option<(Way<'a>, bool)>> {
        if self.is_empty(level) {
            return Ok(None);
        }
        let tail = self.tail(level).filter(|_| !planted::is(Race::TailIgnored));
        if planted::is(Race::TailIgnored) && self.fences(level).is_none() && above.is_none() {
            return Ok(None);
        }
        let in_memory = [self.known_fences(level), tail].into_iter().flatten();
        for fences in in_memory {
            if let Some(place) = fences.find(probe.key, probe.seq) {
                let maybe = fences.may_contain(place, probe.hash);
                return Ok(Some((Way::Fence(fences, place), maybe)));
            }
        }
        self.note_detour(level, reader);
        let (ptr, maybe) = through_block(reader, above, probe)?;
        Ok(Some((Way::Known(ptr), maybe)))
    }

    /// The blocks that a lookup of `probe` would read as far as fences in memory tell.
    pub(crate) fn candidates(&self, probe: &Probe<'_>, out: &mut Vec<BlockPtr>) {
        for level in 0..self.height() {
            let Some(fences) = self.known_fences(level) else { continue };
            if let Some(place) = fences.find(probe.key, probe.seq)
                && fences.may_contain(place, probe.hash)
            {
                out.extend(fences.ptr(place));
            }
        }
    }
}

/// The fence for `probe` in the block above, which is read if it has not been.
fn through_block(
    reader: &BlockReader,
    above: Option<Above<'_>>,
    probe: &Probe<'_>,
) -> Result<(BlockPtr, bool)> {
    let Some(above) = above else { return Err(no_fence(None)) };
    let ptr = above.way.ptr()?;
    let block = match above.block {
        Some(block) => block,
        None => reader.read(&ptr)?,
    };
    let view = block.view();
    let damage = |error| reader.damage(&ptr, &error);
    let index = view.fence_index(probe.key, probe.seq).map_err(damage)?;
    let index = index.ok_or_else(|| no_fence(Some(&ptr)))?;
    let fence = view.fence(index).map_err(damage)?;
    Ok((fence.ptr, filter::may_contain(fence.filter, probe.hash)))
}

fn no_fence(above: Option<&BlockPtr>) -> Error {
    Error::Corrupt {
        file: DATA_FILE.into(),
        offset: above.map_or(0, BlockPtr::offset),
        what: "no fence leads to the level below (I1, I2)".into(),
    }
}
