//! A slice: the keys and levels that are merged next, and what helps to choose them.

use std::sync::Arc;

use esker_format::action::KeyRangeBuf;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LsmLevel, TreeMeta};
use esker_format::ptr::{Extent, UNIT_BYTES};
use esker_substrate::error::Result;

use crate::lsm::layout::Layout;
use crate::lsm::policy::sizes::Sizes;
use crate::read::source::Run;
use crate::run::consumed::Consumed;
use crate::run::cursor::{FenceCursor, Target};
use crate::run::tree::{BlockReader, Tree};

/// The number of runs that may exist, however small, beyond three times those that the sizes have;
/// as merges go round the keys, twice that number are partially merged.
pub(in crate::lsm) const RUNS_SMALL: usize = 8;
/// The overflow, which determines where a slice begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lsm) enum Overflow {
    /// The runs.
    Runs,
    /// This level, by its number among those that the slice leaves.
    Level(usize),
}

/// The cause of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lsm) enum Cause {
    /// Something overflows.
    Overflow(Overflow),
    /// Everything is merged.
    Everything,
    /// Scans have paid for it.
    Scanned,
    /// Too much of a level is empty: this many units of it are packed.
    Waste { level: usize, units: u64 },
}

/// A slice of the keys: of all runs and the first levels, merged into the next level (Pull: keys in
/// newer levels are included).
#[derive(Clone, Debug)]
pub(in crate::lsm) struct Slice {
    pub cause: Cause,
    /// Whether keys are taken out of the runs.
    pub runs: bool,
    /// The first of the levels that are merged into the one at `depth`, and all behind it are.
    pub from: usize,
    pub depth: usize,
    /// The keys that are merged.
    pub keys: KeyRangeBuf,
    /// The keys that are done afterwards: `keys`, and keys before them that no run has.
    pub done: KeyRangeBuf,
    /// The levels that there are then.
    pub layout: Layout,
    /// The sizes in force from then on; `None` when they stay as they are.
    pub sizes: Option<Sizes>,
    /// Whether it is the first slice of what was chosen together, and whether it is the last.
    pub is_first: bool,
    pub is_last: bool,
}

impl Slice {
    /// Nothing stays as it is, because everything is to be looked at.
    pub fn is_full(&self) -> bool {
        self.cause == Cause::Everything
    }

    /// Whether a level is packed, and nothing merged into it.
    pub fn packs(&self) -> bool {
        matches!(self.cause, Cause::Waste { .. })
    }

    /// Whether no block stays as it is.
    pub fn opens_all(&self) -> bool {
        self.packs() || (self.is_full() && self.depth + 1 >= self.layout.levels)
    }
}

/// Bytes of blocks of a run that are left.
fn run_bytes(run: &TreeMeta) -> u64 {
    run.levels.iter().flat_map(|level| &level.extents).map(Extent::bytes).sum()
}

/// Bytes of all runs' blocks.
pub(in crate::lsm) fn runs_bytes(meta: &IndexMeta) -> u64 {
    meta.sorted_runs.iter().map(run_bytes).sum()
}

/// Bytes of a level's blocks.
pub(in crate::lsm) const fn level_bytes(level: &LsmLevel) -> u64 {
    level.units.saturating_mul(UNIT_BYTES)
}

/// The latest end of a slice: where one of its sources has passed a given number of blocks.
pub(in crate::lsm) fn end_of<'a>(
    trees: impl Iterator<Item = &'a Arc<Tree>>,
    reader: &BlockReader,
    begin: &[u8],
    blocks: u64,
) -> Result<Option<Vec<u8>>> {
    let mut end: Option<Vec<u8>> = None;
    for tree in trees {
        end = earlier(end, bound(tree, reader, begin, blocks, |_| Ok(()))?);
    }
    Ok(end)
}

/// The lesser of two keys, where `None` is behind all.
pub(in crate::lsm) fn earlier(a: Option<Vec<u8>>, b: Option<Vec<u8>>) -> Option<Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The least key at or behind `from` that a run, or one of the first levels, may have.
pub(in crate::lsm) fn first_left<'a>(
    runs: &[Run],
    levels: impl Iterator<Item = &'a Arc<Tree>>,
    reader: &BlockReader,
    from: &[u8],
) -> Result<Option<Vec<u8>>> {
    let whole = |tree: &Arc<Tree>| Run { tree: Arc::clone(tree), consumed: Consumed::default() };
    let levels: Vec<_> = levels.map(whole).collect();
    let mut first: Option<Vec<u8>> = None;
    for run in runs.iter().chain(&levels) {
        let Some(level) = run.tree.height().checked_sub(1) else { continue };
        let mut next = FenceCursor::find(&run.tree, reader, level, Target::At(from, Seq::MAX))?;
        while let Some(at) = next {
            let fence = at.owned()?;
            next = at.next()?;
            let behind = next.as_ref().map(FenceCursor::owned).transpose()?;
            let upper = behind.as_ref().map(|behind| behind.key.as_slice());
            let begin = fence.key.as_slice().max(from);
            if first.as_ref().is_some_and(|first| first.as_slice() <= begin) {
                break;
            }
            let is_empty = upper.is_some_and(|upper| upper < begin)
                || behind.as_ref().is_some_and(|b| b.key == begin && b.seq == Seq::MAX);
            let upper = behind.as_ref().map(|behind| (behind.key.as_slice(), behind.seq));
            if !is_empty && !run.consumed.has_block(begin, upper) {
                // The consumed part of the block ends within it.
                let behind = run.consumed.at(begin).and_then(|gone| gone.end);
                let begin = behind.unwrap_or(begin);
                if first.as_ref().is_none_or(|first| begin < first.as_slice()) {
                    first = Some(begin.to_vec());
                }
                break;
            }
        }
    }
    Ok(first)
}

/// The key at which a given number of blocks of a run or level have been passed, if there are as
/// many; `pass` is called for each of them.
pub(in crate::lsm) fn bound(
    tree: &Tree,
    reader: &BlockReader,
    begin: &[u8],
    blocks: u64,
    mut pass: impl FnMut(&FenceCursor<'_>) -> Result<()>,
) -> Result<Option<Vec<u8>>> {
    let Some(level) = tree.height().checked_sub(1) else { return Ok(None) };
    let mut next = FenceCursor::find(tree, reader, level, Target::At(begin, Seq::MAX))?;
    let mut passed = 0;
    while let Some(at) = next {
        if passed >= blocks {
            let fence = at.owned()?;
            if fence.seq == Seq::MAX && fence.key.as_slice() > begin {
                return Ok(Some(fence.key));
            }
        }
        pass(&at)?;
        passed += 1;
        next = at.next()?;
    }
    Ok(None)
}
