//! Every block that a durable state refers to, for copies of it.
//!
//! A block's fence carries its address, generation and checksum, and is itself in a block with a
//! fence. So a copy that has a block with the same address and generation has everything below it
//! too, and the walk leaves it out: it reads only what is new. Parents come before their children;
//! children that are adjacent in the file are read together.
//!
//! Blobs are shown with the block whose entries refer to them.
//!
//! Of a merge under way both sides are walked. In a tree that a merge consumes, fences may lead to
//! blocks that have been freed: blocks outside the extents of their level are skipped. So are blobs
//! of entries that the merge has passed.

use std::sync::Arc;

use esker_format::block::BlockView;
use esker_format::entry::Payload;
use esker_format::ids::KeyspaceId;
use esker_format::meta::{IndexMeta, MergeProgress, PastIndex, TailFence, TreeMeta};
use esker_format::ptr::{BlockPtr, Extent};
use esker_format::value_ref::ValueRef;
use esker_substrate::blocks::{BlockStore, DATA_FILE};
use esker_substrate::error::{Error, Result};

use crate::run::consumed::Consumed;

/// Adjacent blocks are read together up to this many bytes.
const READ_BYTES: usize = 256 * 1024;

/// The visitor of a walk.
pub trait Visitor {
    /// Whether the block, and with it everything that it leads to, is known already.
    ///
    /// # Errors
    /// Those of the visitor; the walk ends with them.
    fn knows(&mut self, ptr: &BlockPtr) -> Result<bool>;

    /// Fills `buf` from the data file.
    ///
    /// # Errors
    /// As for [`Visitor::knows`].
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Takes a block, which has been checked against its fence. From now on it is known.
    ///
    /// # Errors
    /// As for [`Visitor::knows`].
    fn take(&mut self, ptr: &BlockPtr, bytes: &[u8]) -> Result<()>;

    /// Whether there may be blobs.
    fn wants_values(&self) -> bool;

    /// Takes a blob that an entry of a block refers to.
    ///
    /// # Errors
    /// As for [`Visitor::knows`].
    fn take_value(&mut self, value: &ValueRef) -> Result<()>;
}

/// Shows `visitor` every block of `keyspace` that its index and past indexes refer to and that it
/// does not know. The blocks must not be reused meanwhile ([`Paused::pin`](crate::Paused::pin)).
///
/// Cost: reads each of them once.
///
/// # Errors
/// `Corrupt` when a block differs from its fence; errors of the visitor.
pub fn walk(
    blocks: &BlockStore,
    keyspace: KeyspaceId,
    (meta, past): (&IndexMeta, &[Arc<PastIndex>]),
    visitor: &mut dyn Visitor,
) -> Result<()> {
    let mut walk = Walk { blocks, keyspace, visitor };
    for tree in past.iter().flat_map(|past| past.trees()) {
        walk.tree(&Levels::of(tree), &tree.top)?;
    }
    let merge = meta.merge.as_deref();
    // A split consumes nothing.
    let merge = merge.filter(|merge| merge.scope.splits_at().is_none());
    let consumed = merge.map_or(0, |merge| usize::from(merge.sorted_runs));
    let standing = meta.sorted_runs.len().saturating_sub(consumed);
    for (number, flush) in meta.sorted_runs.iter().enumerate() {
        let merge = merge.filter(|_| number >= standing);
        let levels = Levels { gone: meta.gone(number).map(Consumed::new), ..Levels::of(flush) };
        walk.tree(&levels.behind(merge, flush.levels.len()), &flush.top)?;
    }
    for level in meta.scattered_levels() {
        let levels = Levels { anywhere: true, ..Levels::of(&level.tree) };
        walk.tree(&levels, &level.tree.top)?;
    }
    let merged = merge.map_or(0, |merge| usize::from(merge.levels));
    walk.tree(&Levels::of(&meta.main).behind(merge, merged), &meta.main.top)?;
    match &meta.merge {
        Some(merge) => walk.merge(&meta.main, merge),
        None => Ok(()),
    }
}

/// The extents of a tree's blocks.
struct Levels<'a> {
    /// Those of the top fences, then level by level, each sorted.
    extents: Vec<Vec<Extent>>,
    /// The levels that a merge consumes, from the top: they own only what is behind this key.
    consumed: Option<(usize, &'a [u8])>,
    /// Keys that are not theirs any more.
    gone: Option<Consumed>,
    /// Its blocks may be anywhere.
    anywhere: bool,
}

impl<'a> Levels<'a> {
    fn of(tree: &TreeMeta) -> Self {
        let levels = tree.levels.iter().map(|level| &level.extents);
        let extents = [&tree.top_extents].into_iter().chain(levels);
        let extents = extents.map(|extents| sorted(extents)).collect();
        Self { extents, consumed: None, gone: None, anywhere: false }
    }

    /// The same of a tree of which `merge` consumes the upper `levels` levels.
    fn behind(self, merge: Option<&'a MergeProgress>, levels: usize) -> Self {
        let consumed = merge.map(|merge| (levels, merge.wavefront.as_slice()));
        Self { consumed, ..self }
    }

    /// Whether the entries of a level at `key` are its own still.
    fn has(&self, level: usize, key: &[u8]) -> bool {
        let consumed = self.consumed.filter(|(levels, _)| level <= *levels);
        consumed.is_none_or(|(_, wavefront)| key > wavefront)
            && self.gone.as_ref().is_none_or(|gone| gone.at(key).is_none())
    }

    fn holds(&self, level: usize, ptr: &BlockPtr) -> bool {
        if self.anywhere {
            return level < self.extents.len();
        }
        let extents = self.extents.get(level).map_or(&[][..], Vec::as_slice);
        let next = extents.partition_point(|extent| extent.offset() <= ptr.offset());
        let extent = next.checked_sub(1).and_then(|at| extents.get(at));
        let end = ptr.offset().saturating_add(ptr.bytes() as u64);
        extent.is_some_and(|extent| end <= extent.offset().saturating_add(extent.bytes()))
    }

    /// Whether blocks of this level lead to others.
    fn leads_on(&self, level: usize) -> bool {
        level + 1 < self.extents.len()
    }
}

/// In the order of the file, neighbours joined.
fn sorted(extents: &[Extent]) -> Vec<Extent> {
    let mut extents = extents.to_vec();
    extents.sort_unstable();
    extents.dedup_by(|next, last| {
        let joins = last.end() == next.start;
        if joins {
            last.units += next.units;
        }
        joins
    });
    extents
}

struct Walk<'a> {
    blocks: &'a BlockStore,
    keyspace: KeyspaceId,
    visitor: &'a mut dyn Visitor,
}

impl Walk<'_> {
    /// A tree under its top fences.
    fn tree(&mut self, levels: &Levels<'_>, top: &[BlockPtr]) -> Result<()> {
        self.level(levels, 0, top)
    }

    /// The new side of a merge: its levels, on top of those below the merge.
    fn merge(&mut self, main: &TreeMeta, merge: &MergeProgress) -> Result<()> {
        let mut new = merge.new.clone();
        let below = main.levels.get(usize::from(merge.levels)..).unwrap_or_default();
        new.levels.extend_from_slice(below);
        let levels = Levels::of(&new);
        self.tree(&levels, &new.top)?;
        // Fences that are in no block yet.
        let ptrs = |tail: &[TailFence]| tail.iter().map(|fence| fence.ptr).collect::<Vec<_>>();
        for (level, tail) in merge.tails.iter().enumerate() {
            self.level(&levels, level + 1, &ptrs(tail))?;
        }
        let below = merge.new.levels.len() + 1;
        self.level(&levels, below, &ptrs(merge.plast.as_slice()))
    }

    /// Blocks of one level, named one after the other, with all that they lead to.
    fn level(&mut self, levels: &Levels<'_>, level: usize, ptrs: &[BlockPtr]) -> Result<()> {
        let mut wanted: Vec<BlockPtr> = Vec::new();
        for ptr in ptrs {
            // A block may be named twice in succession (I2).
            let again = wanted.last() == Some(ptr);
            if again || !levels.holds(level, ptr) || self.visitor.knows(ptr)? {
                continue;
            }
            if !wanted.last().is_none_or(|last| follows(&wanted, last, ptr)) {
                self.run(levels, level, &std::mem::take(&mut wanted))?;
            }
            wanted.push(*ptr);
        }
        self.run(levels, level, &wanted)
    }

    /// Adjacent blocks, in one read.
    fn run(&mut self, levels: &Levels<'_>, level: usize, ptrs: &[BlockPtr]) -> Result<()> {
        let Some(first) = ptrs.first() else { return Ok(()) };
        let mut bytes = vec![0; ptrs.iter().map(BlockPtr::bytes).sum()];
        self.visitor.read(first.offset(), &mut bytes)?;
        let (mut children, mut values) = (Vec::new(), Vec::new());
        let wants_values = self.visitor.wants_values();
        let mut rest = bytes.as_slice();
        for ptr in ptrs {
            let (block, behind) = rest.split_at_checked(ptr.bytes()).unwrap_or_default();
            rest = behind;
            let layout = self.blocks.verify(self.keyspace, ptr, block)?;
            self.visitor.take(ptr, block)?;
            if levels.leads_on(level) || wants_values {
                let mut unpacked = Vec::new();
                if layout.is_packed() {
                    self.blocks.unpack(ptr, block, &layout, &mut unpacked)?;
                }
                let plain = if layout.is_packed() { unpacked.as_slice() } else { block };
                let found = Found { children: &mut children, values: &mut values };
                let has = |key: &[u8]| levels.has(level, key);
                found.collect(ptr, BlockView::new(plain, layout), &has)?;
            }
        }
        drop(bytes);
        values.iter().try_for_each(|value| self.visitor.take_value(value))?;
        self.level(levels, level + 1, &children)
    }
}

/// Whether `ptr` may be read together with `wanted`, the last of which is `last`.
fn follows(wanted: &[BlockPtr], last: &BlockPtr, ptr: &BlockPtr) -> bool {
    let bytes: usize = wanted.iter().map(BlockPtr::bytes).sum();
    let is_next = last.offset() + last.bytes() as u64 == ptr.offset();
    is_next && bytes + ptr.bytes() <= READ_BYTES
}

/// The references found in blocks.
struct Found<'a> {
    children: &'a mut Vec<BlockPtr>,
    values: &'a mut Vec<ValueRef>,
}

impl Found<'_> {
    /// Adds what the entries of a block lead to; only those that `has` has refer to values.
    fn collect(
        self,
        ptr: &BlockPtr,
        view: BlockView<'_>,
        has: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let damage = |error| Error::corrupt(DATA_FILE, ptr.offset(), &error);
        for index in 0..view.len() {
            let entry = view.entry(index).map_err(damage)?;
            match entry.payload {
                Payload::Fence(fence) => self.children.push(fence.ptr),
                Payload::Reference(content) => {
                    let mut key = Vec::new();
                    view.append_key(entry.suffix, &mut key);
                    if has(&key) {
                        self.values.push(ValueRef::decode(content).map_err(damage)?);
                    }
                }
                Payload::Delete | Payload::Put(_) | Payload::PutUntil(..) | Payload::Operand(_) => {
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_format::ids::Generation;
    use esker_format::ptr::SECTOR_BYTES;

    #[test]
    fn blocks_outside_their_level_are_not_there() {
        let extent = |start, units| Extent { start, units };
        let ptr = |offset: u64, sectors| BlockPtr {
            sector: offset / SECTOR_BYTES,
            sectors,
            crc: 0,
            generation: Generation(1),
        };
        let extents = vec![sorted(&[extent(4, 2), extent(6, 1), extent(1, 1)])];
        let levels = Levels { extents, consumed: None, gone: None, anywhere: false };
        let held = |unit: u64, sectors| levels.holds(0, &ptr(unit * 4096, sectors));
        assert!(held(1, 8) && held(4, 24) && held(6, 1));
        assert!(!held(0, 1) && !held(1, 9) && !held(2, 1) && !held(5, 24) && !held(7, 1));
        assert!(!levels.holds(1, &ptr(4096, 1)));
    }
}
