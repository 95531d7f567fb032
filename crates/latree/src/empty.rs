//! Emptying buffers: to the leaves, or to the buffers below.
//!
//! A buffer is emptied in steps, each over a batch of its operations and one node above leaves or
//! above subtrees. It keeps its operations until the last step, and they hide what is below them.
//!
//! E1: the tree is whole between steps: what was moved is there twice, with the same values. So an
//! emptying may end early, space may be made and a checkpoint taken between steps. E2: while a
//! buffer is emptied no other is, so that nothing newer comes into it. E3: a node that is split
//! divides its buffer, whatever is in it; no buffer is emptied because of a split. The order O1 of
//! operations holds therefore without further rules.

use alloc::vec::Vec;

use crate::buffer::{Buffer, SubtreeId};
use crate::chip::{Chip, PageNo};
use crate::error::{Error, Result};
use crate::gather::Window;
use crate::nodes::{Builder, Children};
use crate::page::{self, Entry, Kind};
use crate::part::{Part, Place};
use crate::planted::{self, Bug};
use crate::tree::{Descent, LaTree, bottom, has_subtrees};

impl<C: Chip> LaTree<C> {
    /// Empties the buffer of a subtree that has `key` in its range. Answers whether it was.
    ///
    /// # Errors
    /// [`Error::Full`] when room for a step cannot be made; the buffer is kept.
    pub(crate) fn empty(&mut self, id: SubtreeId, key: &[u8]) -> Result<bool> {
        let is_there = self.table.has(id);
        if self.is_emptying || !is_there || self.table.buffer(id)?.is_none() {
            return Ok(false);
        }
        let level = self.table.get(id)?.level;
        let way = self.descend(key, level)?;
        if way.last()?.id != id {
            return Ok(false);
        }
        self.is_emptying = true;
        let done = self.empty_steps(level, Window { low: way.low, high: way.high });
        self.is_emptying = false;
        if done? {
            self.unlink_vanished()?;
            self.lower()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Empties the buffers of the subtrees of `level` in a range of keys.
    fn empty_steps(&mut self, level: u8, range: Window) -> Result<bool> {
        let mut low = range.low.clone();
        loop {
            let way = self.descend(&low, level)?;
            let id = way.last()?.id;
            let high = nearer(way.high, range.high.as_deref());
            let (ops, rest) = self.gather(id, Window { low: low.clone(), high: high.clone() })?;
            if let Some(reached) = self.apply(level, &ops)? {
                let is_first = ops.get(Part::begin()).is_some_and(|first| first.0 == reached);
                if !is_first || low != range.low {
                    self.discard(level, &Window { low: range.low, high: Some(reached) })?;
                }
                return Ok(false);
            }
            match (rest, high) {
                (Some(rest), _) => low = rest.low,
                (None, Some(high)) if range.high.as_ref().is_none_or(|end| high < *end) => {
                    low = high;
                }
                _ => break,
            }
        }
        self.discard(level, &range)?;
        Ok(true)
    }

    /// Forgets the operations of the subtrees of `level` in a range of keys. All of them: an older
    /// one that stayed would hide what was moved.
    fn discard(&mut self, level: u8, range: &Window) -> Result<()> {
        let mut low = range.low.clone();
        loop {
            let id = self.descend(&low, level)?.last()?.id;
            // A root that has grown meanwhile has one buffer for several nodes of `level`.
            let way = self.descend(&low, self.table.get(id)?.level)?;
            let mut buffer = self.table.take(id)?;
            let end = range.high.as_deref();
            match (way.high, end) {
                (None, Some(end)) => {
                    self.discard_before(&mut buffer, end)?;
                    return self.table.put_back(id, buffer);
                }
                (Some(high), Some(end)) if high.as_slice() > end => {
                    self.discard_before(&mut buffer, end)?;
                    return self.table.put_back(id, buffer);
                }
                (high, _) => {
                    for page in buffer.all_pages() {
                        self.flash.release(page.at);
                    }
                    match high {
                        Some(high) if end.is_none_or(|end| high.as_slice() < end) => low = high,
                        _ => return Ok(()),
                    }
                }
            }
        }
    }

    /// Forgets the operations of a buffer before `end`.
    fn discard_before(&mut self, buffer: &mut Buffer, end: &[u8]) -> Result<()> {
        buffer.part.remove_before(buffer.part.position(end));
        for fragment in core::mem::take(&mut buffer.fragments) {
            let (before, rest) = self.divide_fragment(&fragment, end, false)?;
            before.iter().for_each(|page| self.flash.release(page.at));
            buffer.keep_pages(rest, &fragment);
        }
        Ok(())
    }

    /// Moves operations of a buffer of `level` down, one node above leaves or subtrees at a time.
    /// Answers the first key that was not moved, when room on the chip or in memory ended.
    fn apply(&mut self, level: u8, ops: &Part) -> Result<Option<Vec<u8>>> {
        let floor = bottom(level, self.k());
        let mut at = Part::begin();
        while let Some((key, _)) = ops.get(at) {
            let is_crowded =
                floor > 1 && self.table.descriptor_bytes() > self.plan.descriptors_max() / 8 * 9;
            // The first step is done in any case: the buffers below it can be emptied then.
            let may_end = at > Part::begin();
            if (is_crowded && may_end) || !self.has_room_for_step()? {
                return Ok(Some(key.to_vec()));
            }
            let target = if floor > 1 { floor - 1 } else { level.min(2) };
            let way = self.descend(key, target)?;
            let end = way.high.as_deref().map_or(ops.end(), |high| ops.position(high));
            if floor > 1 {
                self.hand_down(way.last()?.id, ops, at, end)?;
            } else {
                self.apply_to_leaves(&way, ops, at, end)?;
            }
            if end <= at {
                return Err(Error::Invariant("a step moves an operation"));
            }
            at = end;
        }
        Ok(None)
    }

    /// Adds operations to the buffer of a subtree below.
    fn hand_down(&mut self, id: SubtreeId, ops: &Part, from: Place, to: Place) -> Result<()> {
        let group = || ops.range(from, to);
        let is_group_large = group().map(page::entry_bytes).sum::<usize>() >= self.flash.capacity();
        if is_group_large && planted::is(Bug::FragmentOlderThanPool) {
            let mut buffer = self.table.take(id)?;
            let old = core::mem::take(&mut buffer.part);
            group().for_each(|entry| buffer.part.insert(entry));
            self.write_part(&mut buffer, false)?;
            buffer.part = old;
            return self.table.put_back(id, buffer);
        }
        let mut buffer = self.table.take(id)?;
        group().for_each(|entry| buffer.part.insert(entry));
        self.table.put_back(id, buffer)?;
        // A group of a page or more is written at once: in the pool it would displace others. It
        // is written together with older operations in memory, which keeps O2.
        if is_group_large {
            self.flush_part(id, true)?;
        }
        self.flush_excess()
    }

    /// Moves the operations that a buffer above other buffers has in memory to these. Nothing is
    /// written. The buffer has no fragments.
    pub(crate) fn hand_down_part(&mut self, id: SubtreeId) -> Result<()> {
        let target = bottom(self.table.get(id)?.level, self.k()) - 1;
        let mut buffer = self.table.take(id)?;
        let mut part = core::mem::take(&mut buffer.part);
        self.table.put_back(id, buffer)?;
        while let Some(chunk) = part.take_chunk() {
            let mut at = Part::begin();
            while let Some((key, _)) = chunk.get(at) {
                let way = self.descend(key, target)?;
                let end = way.high.as_deref().map_or(chunk.end(), |high| chunk.position(high));
                let below = way.last()?.id;
                let mut buffer = self.table.take(below)?;
                chunk.range(at, end).for_each(|entry| buffer.part.insert(entry));
                self.table.put_back(below, buffer)?;
                at = end;
            }
            self.fit_memory();
        }
        Ok(())
    }

    /// Applies operations to the leaves below a node, or to the leaf that is a whole subtree.
    fn apply_to_leaves(&mut self, way: &Descent, ops: &Part, from: Place, to: Place) -> Result<()> {
        let spot = way.last()?;
        let mut builder = Builder::new(1, self.flash.capacity());
        if spot.level == 1 {
            builder.begin(&way.low);
            self.merge_leaf(&mut builder, spot.at, ops, from..to)?;
            builder.finish(&mut self.flash)?;
            self.count_leaves(1, &builder);
            return self.replace_node(&way.spots, &builder.out);
        }
        let node = self.flash.read(spot.at, Kind::Node)?;
        let mut children = page::entries(page::payload(&node)).peekable();
        let (mut at, mut replaced, mut kept) = (from, 0, 0);
        while let Some((key, value)) = children.next() {
            let leaf = page::child(value);
            let end = match children.peek() {
                Some((next, _)) => ops.position(next).clamp(at, to),
                None => to,
            };
            if !builder.is_small() {
                builder.finish(&mut self.flash)?;
            }
            // N2
            let low = if builder.out.len() == 0 { spot.low.as_slice() } else { key };
            if end == at && !builder.is_small() {
                builder.out.push(low, leaf);
                kept += 1;
                continue;
            }
            builder.begin(low);
            self.merge_leaf(&mut builder, PageNo(leaf), ops, at..end)?;
            self.flash.release(PageNo(leaf));
            replaced += 1;
            at = end;
        }
        builder.finish(&mut self.flash)?;
        self.count_leaves(replaced + kept, &builder);
        let nodes = self.pack(2, &builder.out)?;
        drop(builder);
        self.replace_node(&way.spots, &nodes)
    }

    fn count_leaves(&mut self, before: u64, builder: &Builder) {
        self.stats.leaves = (self.stats.leaves + builder.out.len() as u64).saturating_sub(before);
    }

    /// Adds the entries of a leaf and operations to a builder.
    fn merge_leaf(
        &mut self,
        builder: &mut Builder,
        leaf: PageNo,
        ops: &Part,
        range: core::ops::Range<Place>,
    ) -> Result<()> {
        let node = self.flash.read(leaf, Kind::Node)?;
        let (mut at, end) = (range.start, range.end);
        for (key, value) in page::entries(page::payload(&node)) {
            while let Some((op, after)) = ops.next(at).filter(|(op, _)| at < end && op.0 < key) {
                if op.1.is_some() {
                    builder.push(&mut self.flash, op)?;
                }
                at = after;
            }
            let is_replaced = at < end && ops.get(at).is_some_and(|op| op.0 == key);
            if value.is_some() && !is_replaced {
                builder.push(&mut self.flash, (key, value))?;
            }
        }
        for op in ops.range(at, end).filter(|op| op.1.is_some()) {
            builder.push(&mut self.flash, op)?;
        }
        Ok(())
    }

    /// Empties all buffers on the way to a key.
    pub(crate) fn empty_way(&mut self, key: &[u8]) -> Result<()> {
        loop {
            let way = self.descend(key, 1)?;
            let mut full = None;
            for spot in &way.spots {
                if self.table.buffer(spot.id)?.is_some() {
                    full.get_or_insert(spot.id);
                }
            }
            let Some(id) = full else { return Ok(()) };
            match self.empty(id, key) {
                Ok(true) => {}
                Ok(false) | Err(Error::Full) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes subtrees without keys from their parents, as far as there is room.
    fn unlink_vanished(&mut self) -> Result<()> {
        for (id, key) in core::mem::take(&mut self.vanished) {
            // Making room moves nodes and empties buffers: what is looked at is looked at after it.
            match self.has_room_for_step() {
                Ok(true) => self.unlink(id, &key)?,
                Ok(false) | Err(Error::Full) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes a subtree if it has one leaf without keys and a node above it in its parent's
    /// subtree has other children. (Otherwise it stays until one of its keys is written.) Room was
    /// made.
    fn unlink(&mut self, id: SubtreeId, key: &[u8]) -> Result<()> {
        if !self.table.has(id) || id == self.root || self.table.buffer(id)?.is_some() {
            return Ok(());
        }
        let level = self.table.get(id)?.level;
        let way = self.descend(key, 1)?;
        let first = way.spots.iter().position(|spot| spot.id == id);
        let Some((above, own)) = first.and_then(|at| way.spots.split_at_checked(at)) else {
            return Ok(());
        };
        let mut is_only = own.first().is_some_and(|spot| spot.level == level);
        for spot in own {
            let node = self.flash.read(spot.at, Kind::Node)?;
            let mut entries = page::entries(page::payload(&node));
            let is_dead = |entry: Entry<'_>| spot.level > 1 || entry.1.is_none();
            is_only &= entries.next().is_some_and(is_dead) && entries.next().is_none();
        }
        let Some(parent) = above.last() else { return Ok(()) };
        let mut has_siblings = false;
        for spot in above.iter().filter(|spot| spot.id == parent.id) {
            let node = self.flash.read(spot.at, Kind::Node)?;
            has_siblings |= page::entries(page::payload(&node)).nth(1).is_some();
        }
        if !is_only || !has_siblings {
            return Ok(());
        }
        own.iter().for_each(|spot| self.flash.release(spot.at));
        self.stats.leaves = self.stats.leaves.saturating_sub(1);
        self.table.remove(id);
        self.replace_child(above, &Children::default())
    }

    /// Removes roots of the tree that have one child.
    fn lower(&mut self) -> Result<()> {
        loop {
            let (id, subtree) = (self.root, self.table.get(self.root)?);
            let (at, level) = (subtree.root, subtree.level);
            if level == 1 {
                return Ok(());
            }
            let node = self.flash.read(at, Kind::Node)?;
            let mut children = page::entries(page::payload(&node)).map(|entry| entry.1);
            let (Some(child), None) = (children.next(), children.next()) else { return Ok(()) };
            let child = page::child(child);
            if !has_subtrees(level, self.k()) {
                self.table.set_root(id, PageNo(child), level - 1)?;
            } else if self.table.buffer(id)?.is_none() {
                self.root = SubtreeId(child);
                self.table.remove(id);
            } else {
                return Ok(());
            }
            self.flash.release(at);
        }
    }
}

/// The lesser of two bounds; none is the greatest.
fn nearer(a: Option<Vec<u8>>, b: Option<&[u8]>) -> Option<Vec<u8>> {
    match (a, b) {
        (Some(a), Some(b)) if a.as_slice() <= b => Some(a),
        (Some(_) | None, Some(b)) => Some(b.to_vec()),
        (a, None) => a,
    }
}
