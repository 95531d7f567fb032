//! Slices for scans: a range of keys is merged down to the last level when that would have paid for
//! itself by now ([`Heat`](crate::read::heat::Heat)).
//!
//! The ranges are about what slices take of the last level. They are made anew, and what was noted
//! is forgotten, when that level has grown or shrunk by a quarter.

use esker_format::action::KeyRangeBuf;
use esker_format::ids::Seq;
use esker_format::meta::IndexMeta;
use esker_format::ptr::UNIT_BYTES;
use esker_substrate::error::Result;

use super::slice::{Cause, Slice, earlier, end_of, level_bytes, runs_bytes};
use crate::lsm::LsmIndex;
use crate::lsm::layout::Layout;
use crate::lsm::state::State;
use crate::read::heat::{Due, Ranges};
use crate::read::source::Run;
use crate::run::cursor::{FenceCursor, Target};
use crate::run::tree::{BlockReader, Tree};

/// Whether ranges of a level of `then` bytes do for one of `now`.
const fn still_fits(then: u64, now: u64) -> bool {
    then.abs_diff(now) <= then / 4
}

/// The least keys of the parts of a level that the blocks at its top lead to, as far as each has at
/// least `blocks` of `all` blocks, taken evenly.
fn begins(tree: &Tree, reader: &BlockReader, blocks: u64, all: u64) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let mut next = FenceCursor::find(tree, reader, 0, Target::At(&[], Seq::MAX))?;
    while let Some(at) = next {
        let fence = at.owned()?;
        if fence.seq == Seq::MAX {
            keys.push(fence.key);
        }
        next = at.next()?;
    }
    let parts = keys.len() as u64;
    let together = (blocks.saturating_mul(parts) / all.max(1)).max(1);
    Ok(keys.into_iter().step_by(usize::try_from(together).unwrap_or(usize::MAX)).collect())
}

impl LsmIndex<'_> {
    /// Whether scans have paid for a merge. Where they may, it keeps the ranges.
    pub(in crate::lsm) fn are_scans_due(&self, durable: &IndexMeta) -> bool {
        let read_worth = self.lsm.compaction.read_worth_bytes;
        let Some(lsm) = durable.lsm().filter(|_| read_worth > 0) else { return false };
        let last = lsm.levels.last().map_or(0, level_bytes);
        if !still_fits(self.heat().bytes(), last) {
            self.heat().divide(self.ranges(durable, last, read_worth).unwrap_or_default());
        }
        self.heat().is_due()
    }

    /// The ranges of the last level, of so many bytes. An error in its fences is found again by the
    /// next reader or merge of them.
    fn ranges(&self, durable: &IndexMeta, last: u64, read_worth: u64) -> Result<Ranges> {
        let view = self.view();
        let Some(level) = view.parts.last().and_then(Run::of).filter(|of| of.tree.height() > 0)
        else {
            return Ok(Ranges::default());
        };
        let begins = begins(&level.tree, self.reader(), self.slice_blocks(), last / UNIT_BYTES)?;
        let inner: u64 = durable.lsm().map_or(0, |lsm| lsm.levels.iter().map(level_bytes).sum());
        let each = (inner + runs_bytes(durable)) / (begins.len() as u64).max(1);
        Ok(Ranges::new(begins.into_iter().map(|begin| (begin, each)), last, read_worth))
    }

    /// The slice that scans have paid for. Its range counts scans anew.
    pub(in crate::lsm) fn slice_for_scans(&self, state: &State) -> Result<Option<Slice>> {
        let Some(due) = self.heat().due() else { return Ok(None) };
        self.heat().merged(&due);
        let levels = state.levels.len();
        let Some(depth) = levels.checked_sub(1) else { return Ok(None) };
        let keys = self.keys_for_scans(state, due)?;
        Ok(Some(Slice {
            cause: Cause::Scanned,
            runs: true,
            from: 0,
            depth,
            done: keys.clone(),
            keys,
            layout: Layout::above_all(levels, levels),
            sizes: None,
            is_first: true,
            is_last: true,
        }))
    }

    /// The keys of a range that is due, or, where it is larger than a slice, those from the scan on
    /// that has made it due.
    fn keys_for_scans(&self, state: &State, due: Due) -> Result<KeyRangeBuf> {
        let end_from = |begin: &[u8]| {
            let trees = state.runs.iter().map(|run| &run.tree).chain(&state.levels);
            end_of(trees, self.reader(), begin, 2 * self.slice_blocks())
        };
        let end = end_from(&due.begin)?;
        let is_within = |end: &Vec<u8>| due.end.as_ref().is_some_and(|behind| behind <= end);
        if end.as_ref().is_none_or(is_within) {
            return Ok(KeyRangeBuf { begin: due.begin, end: due.end });
        }
        let end = earlier(end_from(&due.at)?, due.end);
        Ok(KeyRangeBuf { begin: due.at, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_made_anew_when_a_level_has_changed_by_a_quarter() {
        assert!(!still_fits(0, 1));
        assert!(still_fits(0, 0) && still_fits(100, 125) && still_fits(100, 75));
        assert!(!still_fits(100, 126) && !still_fits(100, 74));
    }
}
