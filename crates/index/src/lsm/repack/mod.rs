//! Packing of levels of which too much is empty.
//!
//! At most ω of a level may be empty (the thesis, 5.1.2). A block that stays as it is may add to
//! that: the one before it is closed, full or not. It saves one write, and what it leaves empty
//! takes several writes to reclaim: that is weighed before a block may stay (`output`). But each
//! merge also ends with a block that is not full, and where merges are of few blocks these are
//! many. While more than ω of a level is empty, windows of it are read and written again, with all
//! their blocks opened: going round the keys, the emptiest of those that come next. Full blocks are
//! passed over.
//!
//! Entries that do not fill units leave the same part of them empty however they are packed. When
//! windows have cost more than they freed, the level is not packed again until a tenth more of it
//! is empty, or its entries have another length. None of this state is durable: a reopened index
//! tries once more, but only levels that merges have changed since. A store that is only read is
//! not written.
//!
//! Packing saves space, and never blocks merges: it alternates with merges of overflowing levels,
//! waits while writers wait, and passes over blocks that it cannot read or has no space for.

pub(in crate::lsm) mod packing;

use esker_format::action::KeyRangeBuf;
use esker_substrate::error::{Error, Result};

use crate::lsm::choose::slice::{Cause, Slice, bound};
use crate::lsm::fill_factor::Fill;
use crate::lsm::kind::LsmIndex;
use crate::lsm::layout::Layout;
use crate::lsm::state::State;
use crate::run::tree::{BlockReader, Tree};

/// Blocks that are packed together: enough that the last one, which is not full, matters little,
/// and few enough that packing is limited to where most is empty.
const WINDOW_BLOCKS: u64 = 16;
/// Windows that are looked at before one is packed.
const WINDOWS_SEEN: u32 = 16;
/// Neighbours of a level that are packed together.
#[derive(Clone, Debug, PartialEq)]
struct Window {
    keys: KeyRangeBuf,
    fill: Fill,
}

impl LsmIndex<'_> {
    /// The next slice of a level that is packed; `None` when none is to be.
    ///
    /// Cost: reads the nodes that lead to the blocks that are passed over.
    pub(in crate::lsm) fn slice_to_pack(&self, state: &State) -> Option<Slice> {
        // Writers ask under this lock: nothing is read under it.
        let (level, at) = {
            let packing = self.lsm.packing.lock();
            let omega = self.lsm.compaction.params.omega_millionths();
            let level = packing.due(state.lsm(), omega)?;
            (level, packing.at(level))
        };
        let (tree, fill) = (state.levels.get(level)?, Fill::of(state.level(level)?));
        let found = find(&at, &fill, |begin| window(tree, self.reader(), begin));
        let window = match found {
            Ok(window) => window,
            Err(error) => {
                // The key to continue from is not known either.
                self.pass_unpacked(state, (level, 0), None, &error);
                return None;
            }
        };
        Some(Slice {
            cause: Cause::Waste { level, units: window.fill.units },
            runs: false,
            from: level,
            depth: level,
            done: window.keys.clone(),
            keys: window.keys,
            layout: Layout::above_last(state.levels.len(), state.levels.len()),
            sizes: None,
            is_first: true,
            is_last: true,
        })
    }

    /// A slice has failed. If it was to pack a level, and the store can still be written, merges go
    /// on without.
    ///
    /// # Errors
    /// Otherwise, with its error.
    pub(in crate::lsm) fn go_on_unpacked(
        &self,
        state: &State,
        slice: &Slice,
        error: Error,
    ) -> Result<()> {
        let Cause::Waste { level, units } = slice.cause else { return Err(error) };
        if self.poison().reason().is_some() {
            return Err(error);
        }
        self.pass_unpacked(state, (level, units), slice.keys.end.as_deref(), &error);
        Ok(())
    }

    /// A window of a level, of `units` units, is passed over.
    fn pass_unpacked(
        &self,
        state: &State,
        (level, units): (usize, u64),
        end: Option<&[u8]>,
        error: &Error,
    ) {
        tracing::warn!(level, %error, "a part of a level is not packed");
        self.lsm.packing.lock().pass(level, end, units, 0, state.lsm());
        self.lsm.asked.lock().forget();
    }
}

/// The emptiest of the next windows behind `at`, going round: of [`WINDOWS_SEEN`], and of further
/// ones until a window is found whose empty share is as large as that of the level. One in which
/// less than a unit is empty, such as the last of a level with one block, counts as full. `window`
/// returns the one that begins at a key.
fn find(
    at: &[u8],
    level: &Fill,
    mut window: impl FnMut(&[u8]) -> Result<Window>,
) -> Result<Window> {
    let mut is_behind_end = at.is_empty();
    let mut best = window(at)?;
    let mut end = best.keys.end.clone();
    let mut seen = 1;
    loop {
        let is_round = |end: &[u8]| !at.is_empty() && end >= at;
        let is_over = is_behind_end && end.as_deref().is_none_or(is_round);
        if is_over || (seen >= WINDOWS_SEEN && best.fill.reclaimable().is_as_empty_as(level)) {
            return Ok(best);
        }
        is_behind_end |= end.is_none();
        let next = window(&end.unwrap_or_default())?;
        end = next.keys.end.clone();
        seen += 1;
        if !best.fill.reclaimable().is_as_empty_as(&next.fill.reclaimable()) {
            best = next;
        }
    }
}

/// Blocks of a level from a key on, up to the next border between user keys.
fn window(tree: &Tree, reader: &BlockReader, begin: &[u8]) -> Result<Window> {
    let mut fill = Fill::default();
    let end = bound(tree, reader, begin, WINDOW_BLOCKS, |block| {
        fill.add(&block.ptr()?);
        Ok(())
    })?;
    Ok(Window { keys: KeyRangeBuf { begin: begin.to_vec(), end }, fill })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of ten units, one for each letter in `waste`: one begins at each.
    fn found(at: &str, waste: &[(char, u64)], level_waste: u64) -> String {
        let window = |begin: &[u8]| {
            let is_at = |(_, (name, _)): &(usize, &(char, u64))| begin <= &[*name as u8][..];
            let (number, (_, wasted_sectors)) = waste.iter().enumerate().find(is_at).unwrap();
            let end = waste.get(number + 1).map(|(name, _)| vec![*name as u8]);
            let fill = Fill { wasted_sectors: *wasted_sectors, units: 10 };
            Ok(Window { keys: KeyRangeBuf { begin: begin.to_vec(), end }, fill })
        };
        let level = Fill { wasted_sectors: level_waste, units: 10 };
        let window = find(at.as_bytes(), &level, window).unwrap();
        String::from_utf8(window.keys.begin).unwrap()
    }

    /// A block of one sector at the end of a level leaves the largest share empty, and to pack it
    /// alone frees nothing.
    #[test]
    fn a_window_in_which_less_than_a_unit_is_empty_counts_as_full() {
        let window = |begin: &[u8]| {
            let is_last = begin >= &b"k"[..];
            let fill = Fill {
                wasted_sectors: if is_last { 7 } else { 30 },
                units: if is_last { 1 } else { 16 },
            };
            let end = (!is_last).then(|| b"k".to_vec());
            Ok(Window { keys: KeyRangeBuf { begin: begin.to_vec(), end }, fill })
        };
        let level = Fill { wasted_sectors: 37, units: 17 };
        for at in [&b""[..], b"k"] {
            let found = find(at, &level, window).unwrap();
            assert_eq!(found.fill.units, 16, "from {at:?}");
        }
    }

    /// Wherever it continues, full windows are passed over, once around.
    #[test]
    fn full_windows_are_passed_over() {
        let waste = [('a', 0), ('b', 40), ('c', 0), ('d', 20)];
        for at in ["", "b", "c", "d"] {
            assert_eq!(found(at, &waste, 15), "b", "from {at}");
        }
        assert_eq!(found("c", &waste, 41), "b", "no block is as empty as the level's counters say");
        assert_eq!(found("", &[('a', 3)], 4), "", "the only one");
        // Of many, not all are looked at; unless it takes them to find one.
        let many: Vec<_> = ('a'..='z').zip((0..).map(|at| at % 20)).collect();
        assert_eq!(found("", &many, 0), "p", "the 16th");
        assert_eq!(found("", &many, 19), "t");
        assert_eq!(found("u", &many, 15), "p", "behind the end comes the beginning");
    }
}
