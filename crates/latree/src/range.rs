//! Ranges, in both directions: one leaf after the other, with the operations of the buffers above.

use alloc::vec::Vec;

use crate::buffer::SubtreeId;
use crate::chip::Chip;
use crate::error::Result;
use crate::gather::{Batch, Direction, Window};
use crate::part::{Part, Place};
use crate::tree::{LaTree, PAGE};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// The entries of a range. It holds the tree, so that nothing changes meanwhile.
#[derive(Debug)]
pub struct Range<'a, C> {
    tree: &'a mut LaTree<C>,
    /// What was not gathered yet.
    rest: Option<Window>,
    direction: Direction,
    batch: Part,
    /// Entries of the batch that are still to be answered.
    left: core::ops::Range<Place>,
}

impl<C: Chip> LaTree<C> {
    /// The entries with keys from `from` to before `to` (none: to the end), in a direction. Cost: a
    /// lookup for each leaf of the range, which ADAPT counts as such.
    pub fn range(&mut self, from: &[u8], to: Option<&[u8]>, direction: Direction) -> Range<'_, C> {
        let is_empty = to.is_some_and(|to| to <= from);
        let window = Window { low: from.to_vec(), high: to.map(<[u8]>::to_vec) };
        let rest = (!is_empty).then_some(window);
        Range {
            tree: self,
            rest,
            direction,
            batch: Part::default(),
            left: Part::begin()..Part::begin(),
        }
    }

    /// Gathers a batch at one end of a window: of one leaf at most.
    fn range_batch(
        &mut self,
        window: Window,
        direction: Direction,
    ) -> Result<(Part, Option<Window>)> {
        let way = match (direction, &window.high) {
            (Direction::Forward, _) => self.descend(&window.low, 1)?,
            (Direction::Backward, Some(high)) => self.descend_before(high)?,
            (Direction::Backward, None) => self.descend_last()?,
        };
        let mut inner = window.clone();
        match direction {
            Direction::Forward => {
                if let Some(high) = &way.high
                    && inner.high.as_ref().is_none_or(|end| high < end)
                {
                    inner.high = Some(high.clone());
                }
            }
            Direction::Backward if way.low > inner.low => inner.low.clone_from(&way.low),
            Direction::Backward => {}
        }
        let mut ids: Vec<SubtreeId> = way.spots.iter().map(|spot| spot.id).collect();
        ids.dedup();
        let mut sources = 1;
        for id in &ids {
            sources += self.table.buffer(*id)?.map_or(0, |buffer| buffer.fragments.len() + 1);
        }
        let share = (self.plan.batch / sources).max(1);
        let mut batch = Batch::new(inner.clone(), direction, share);
        batch.add_leaf(&mut self.flash, way.last()?.at)?;
        let mut scanned = Vec::new();
        for id in ids.iter().rev() {
            self.add_buffer(&mut batch, *id)?;
            let pages = self.table.buffer(*id)?.map_or(0, |buffer| buffer.fragments.len());
            if pages > 0 {
                scanned.push((*id, pages as u64 * PAGE));
            }
        }
        let (ops, rest) = batch.finish();
        let rest = match (rest, direction) {
            (Some(Window { low, .. }), Direction::Forward) => {
                Some(Window { low, high: window.high })
            }
            (Some(Window { high, .. }), Direction::Backward) => {
                Some(Window { low: window.low, high })
            }
            (None, Direction::Forward) if inner.high != window.high => {
                inner.high.map(|low| Window { low, high: window.high })
            }
            (None, Direction::Backward) if inner.low != window.low => {
                Some(Window { low: window.low, high: Some(inner.low) })
            }
            (None, _) => None,
        };
        self.stats.lookups += 1;
        self.mix.0 += 1;
        self.after_lookup(&way.low, &scanned)?;
        Ok((ops, rest))
    }
}

impl<C: Chip> Range<'_, C> {
    /// The next entry, none at the end.
    ///
    /// # Errors
    /// Errors of the chip.
    pub fn next_entry(&mut self) -> Result<Option<Pair>> {
        loop {
            while self.left.start < self.left.end {
                let found = match self.direction {
                    Direction::Forward => self.batch.next(self.left.start),
                    Direction::Backward => self.batch.before(self.left.end),
                };
                let Some(((key, value), place)) = found else { break };
                match self.direction {
                    Direction::Forward => self.left.start = place,
                    Direction::Backward => self.left.end = place,
                }
                if let Some(value) = value {
                    return Ok(Some((key.to_vec(), value.to_vec())));
                }
            }
            let Some(window) = self.rest.take() else { return Ok(None) };
            let direction = self.direction;
            let (batch, rest) = self.tree.guarded(|tree| tree.range_batch(window, direction))?;
            (self.left, self.batch, self.rest) = (Part::begin()..batch.end(), batch, rest);
        }
    }
}

impl<C: Chip> Iterator for Range<'_, C> {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Result<Pair>> {
        self.next_entry().transpose()
    }
}
