//! The positions at which the bottom of a full merge waits between two blocks, and blocks are kept
//! as they are.

use esker_format::meta::LevelMeta;
use esker_format::ptr::BlockPtr;
use esker_substrate::error::Result;

use super::{Children, Disk, LevelSource, Source, Stage};
use crate::build::preserve::{self, Keeper, Kept};

/// The position of a level with a [`Keeper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Border {
    /// In a block.
    Within,
    /// Behind a block: the next one may stay.
    At,
    /// Behind a block: the next one is to be read.
    Pass,
}

impl LevelSource {
    /// Whether the next block stays, when the other sources continue with `upper`. Otherwise it is
    /// to be read, unless the others come first.
    ///
    /// Cost: reads the last block of a run.
    pub(super) fn decide(&mut self, upper: Option<&[u8]>, from: Disk<'_>) -> Result<bool> {
        if self.border == Border::At && self.next.is_some() {
            // It was to be read, and could not be.
            self.border = Border::Pass;
        }
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.border == Border::At) else {
            return Ok(false);
        };
        let Children::Held { fences, at: Some(place) } = &self.children else { return Ok(false) };
        if keeper.keeps(*place) {
            return Ok(true);
        }
        let Some(fence) = fences.get(*place) else { return Ok(false) };
        if upper.is_some_and(|upper| upper < fence.key) {
            return Ok(false);
        }
        // The one that a resumed merge begins within is to be read.
        let is_free = self.after.as_deref().is_none_or(|after| after < fence.key);
        for to_end in [true, false].into_iter().filter(|_| is_free) {
            let Some(found) = keeper.find(fences, *place, upper, to_end) else { break };
            let Some(last) = fences.get(found.end.behind(1)) else { break };
            let bound = fences.get(found.end).map(|bound| bound.key).or(upper);
            let last_block = first_and_last_key(from, &last.fence.ptr)?;
            if bound.is_none_or(|bound| last_block.1.as_slice() < bound) {
                keeper.keep(found, last_block);
                return Ok(true);
            }
        }
        keeper.refuse(fences, *place, upper);
        self.border = Border::Pass;
        Ok(false)
    }

    /// The block that stays.
    fn kept_block(&self) -> Option<Kept<'_>> {
        let Children::Held { fences, at: Some(place) } = &self.children else { return None };
        let (keeper, fence) = (self.keeper.as_ref()?, fences.get(*place)?);
        let run = keeper.run.as_ref().filter(|run| *place < run.end)?;
        let run_end = (place.ahead(1) == run.end).then_some(run.last_block.1.as_slice());
        Some(Kept { fence, data_bytes: keeper.data_bytes(&fence.fence.ptr), run_end })
    }

    /// Leaves the block that stays.
    fn leave_kept(&mut self) {
        let Some(kept) = self.kept_block() else { return };
        let (puts, offset) = (u64::from(kept.fence.fence.puts), kept.fence.fence.ptr.offset());
        if kept.run_end.is_some()
            && let Some(run) = self.keeper.as_mut().and_then(|keeper| keeper.run.take())
        {
            // Keys between this block's last and the next one's first lead here still.
            self.needed.note(offset, [&run.last_block.0, &[]]);
        }
        self.data_merged += puts;
        self.blocks_read += 1;
        if let Children::Held { fences, at } = &mut self.children
            && let Some(place) = *at
        {
            *at = fences.next(place);
            fences.drop_before(place);
        }
    }
}

impl Stage {
    /// Lets blocks of the level added last, the bottom of all, stay as they are.
    pub(crate) fn keep_blocks(&mut self, level: &LevelMeta) {
        if let Some(Source::Level(bottom)) = self.sources.last_mut()
            && matches!(bottom.children, Children::Held { .. })
            && preserve::is_reset(level)
        {
            bottom.keeper = Some(Box::new(Keeper::new(level)));
            self.bottom = self.sources.len().checked_sub(1);
        }
    }

    /// Whether blocks may stay as they are.
    pub(crate) const fn may_keep_blocks(&self) -> bool {
        self.bottom.is_some()
    }

    /// The block that stays, after [`Next::Block`].
    pub(crate) fn kept(&self) -> Option<Kept<'_>> {
        match self.sources.get(self.bottom?) {
            Some(Source::Level(level)) => level.kept_block(),
            _ => None,
        }
    }

    /// Leaves the block that stays.
    pub(crate) fn leave_kept(&mut self) {
        let bottom = self.bottom.and_then(|bottom| self.sources.get_mut(bottom));
        if let Some(Source::Level(level)) = bottom {
            level.leave_kept();
        }
    }
}

/// First and last user key of a block.
fn first_and_last_key(from: Disk<'_>, ptr: &BlockPtr) -> Result<(Vec<u8>, Vec<u8>)> {
    let block = from.reader.blocks.read_uncached(from.reader.keyspace, ptr, from.purpose)?;
    let view = block.view();
    let key = |index: usize| -> Result<Vec<u8>> {
        let entry = view.entry_key(index);
        let (_, suffix, _) = entry.map_err(|error| from.reader.damage(ptr, &error))?;
        Ok([view.prefix(), suffix].concat())
    };
    Ok((key(0)?, key(view.len().saturating_sub(1))?))
}
