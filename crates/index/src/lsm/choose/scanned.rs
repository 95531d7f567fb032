//! Slices for scans: the runs of a range of keys are merged when that would have paid for itself by
//! now ([`Heat`](crate::read::heat::Heat)).
//!
//! They are merged into a level above those that overflows fill, which holds what scans have had
//! merged and counts as one of the runs: what they hold together is what overflows. So a merge for
//! scans costs what the runs hold, and not the level below; merges of overflows find as much as
//! without it. Under the thesis's policies it is the first level.
//!
//! The ranges are about what slices take of the last level. They are made anew, and what was noted
//! is forgotten, when that level has grown or shrunk by a quarter.

use esker_format::action::KeyRangeBuf;
use esker_format::ids::Seq;
use esker_format::meta::{IndexMeta, LsmMeta};
use esker_format::ptr::UNIT_BYTES;
use esker_substrate::error::Result;

use super::pull;
use super::slice::{Cause, Slice, earlier, end_of, level_bytes};
use crate::lsm::LsmIndex;
use crate::lsm::layout::Layout;
use crate::lsm::policy::Policy;
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
    /// Makes the ranges anew where they do not fit the last level any more, if scans may cause
    /// merges.
    pub(in crate::lsm) fn keep_ranges(&self, durable: &IndexMeta) {
        let read_worth = self.lsm.compaction.read_worth_bytes;
        let Some(lsm) = durable.lsm().filter(|_| read_worth > 0) else { return };
        let last = lsm.levels.last().map_or(0, level_bytes);
        if !still_fits(self.heat().bytes(), last) {
            let (layout, depth) = self.level_for_scans(durable, lsm);
            let staying = layout.levels.saturating_sub(depth + 1);
            let begins = self.begins(last).unwrap_or_default();
            self.heat().divide(Ranges::new(begins, last, read_worth, staying));
        }
    }

    /// The begins of ranges of the last level, of so many bytes. An error in its fences is found
    /// again by the next reader or merge of them.
    fn begins(&self, last: u64) -> Result<Vec<Vec<u8>>> {
        let view = self.view();
        match view.parts.last().and_then(Run::of).filter(|of| of.tree.height() > 0) {
            Some(of) => begins(&of.tree, self.reader(), self.slice_blocks(), last / UNIT_BYTES),
            None => Ok(Vec::new()),
        }
    }

    /// The levels that there are after a merge for scans, and the one that it merges into.
    fn level_for_scans(&self, durable: &IndexMeta, lsm: &LsmMeta) -> (Layout, usize) {
        let levels = lsm.levels.len();
        if self.lsm.compaction.policy != Policy::Pull {
            return (Layout::above_all(levels, levels), 0);
        }
        let below = usize::from(pull::sizes(durable, lsm, &self.arrivals()).levels) + 1;
        let layout = Layout::above_all(levels, below + 1);
        (layout, layout.levels - below - 1)
    }

    /// The slice that scans have paid for. Its range counts scans anew.
    pub(in crate::lsm) fn slice_for_scans(&self, state: &State) -> Result<Option<Slice>> {
        let Some(due) = self.heat().due() else { return Ok(None) };
        self.heat().merged(&due);
        if state.levels.is_empty() {
            return Ok(None);
        }
        let (layout, depth) = self.level_for_scans(&state.durable, state.lsm());
        let merged = (depth + 1).saturating_sub(layout.missing());
        let keys = self.keys_for_scans(state, merged, due)?;
        Ok(Some(Slice {
            cause: Cause::Scanned,
            runs: true,
            from: 0,
            depth,
            done: keys.clone(),
            keys,
            layout,
            sizes: None,
            is_first: true,
            is_last: true,
        }))
    }

    /// The keys of a range that is due, or, where it is larger than a slice of the runs and the
    /// first `levels`, those from the scan on that has made it due.
    fn keys_for_scans(&self, state: &State, levels: usize, due: Due) -> Result<KeyRangeBuf> {
        let end_from = |begin: &[u8]| {
            let levels = state.levels.iter().take(levels);
            let trees = state.runs.iter().map(|run| &run.tree).chain(levels);
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
