//! The level index: a copy-on-write B+tree over a level's blocks (the thesis, section 5.4.3).
//!
//! Its nodes are blocks that hold only fences, so that a level is a [`Tree`], read like any other.
//! Replacing some of a level's blocks writes new copies of the nodes that lead to them, up to the
//! top, whose fences are in memory; readers of the old tree are not disturbed.
//!
//! Invariant: a node's fence has the key of its first child's: nodes tile the keys as their
//! children do, and the first of each level begins with the empty key.
//! Invariant: of the nodes that are written together, all but the last hold four fences or more,
//! and all are about equally full: so a tree's height is logarithmic in its blocks.

use std::sync::Arc;

use esker_device::Purpose;
use esker_format::block::BlockBuilder;
use esker_format::entry::Payload;
use esker_format::ids::Seq;
use esker_format::key;
use esker_format::meta::{LevelCounts, LevelMeta, TailFence, TreeMeta};
use esker_format::ptr::{BlockPtr, Extent, UNIT_BYTES};
use esker_substrate::error::Result;
use esker_substrate::generations::OneGeneration;

use crate::build::level_writer::extent_of;
use crate::build::writer::ExtentWriter;
use crate::run::cursor::{FenceCursor, OwnedFence, Target};
use crate::run::fence_index::{Account, FenceIndex, fence_of, keyed, owned};
use crate::run::tree::{BlockReader, Tree};

/// A node's length, in bytes; longer only where few fences take more.
const NODE_BYTES: usize = UNIT_BYTES as usize;
/// Fewest fences of a node.
const FENCES_MIN: usize = 4;

/// The fences of a level that are replaced: from this one on, up to that one.
#[derive(Clone, Debug, Default)]
pub(super) struct Replaced {
    pub from: (Vec<u8>, Seq),
    pub until: Option<(Vec<u8>, Seq)>,
}

/// A tree with other fences.
pub(super) struct Edited {
    /// Properties of its data level that are not known here are left unchanged.
    pub meta: TreeMeta,
    pub top: Option<Arc<FenceIndex>>,
    /// Space of the nodes that are not part of it any more.
    pub freed: Vec<Extent>,
    /// Units of the nodes that were written.
    pub written_units: u64,
}

impl Replaced {
    fn is_before(&self, key: &[u8], seq: Seq) -> bool {
        key::compare((key, seq), (&self.from.0, self.from.1)).is_lt()
    }

    fn is_behind(&self, key: &[u8], seq: Seq) -> bool {
        let until = self.until.as_ref();
        until.is_some_and(|(end, at)| key::compare((key, seq), (end, *at)).is_ge())
    }
}

/// The writer of nodes.
pub(super) fn writer(reader: &BlockReader, generation: &OneGeneration) -> ExtentWriter {
    let out = ExtentWriter::new(reader, Purpose::Merge, generation, 1 << 20, Vec::new());
    out.with_own_units().entering_cache()
}

/// A record names what was written.
pub(super) fn keep(out: &mut ExtentWriter) {
    out.forget();
}

/// The tree in which `new` takes the place of what is `replaced` among the fences to data.
///
/// Cost: reads the nodes that lead to what is replaced; writes the same number, and those on the
/// way up.
///
/// # Errors
/// When a node cannot be read, or without space. In that case nothing refers to what was written.
pub(super) fn replace(
    reader: &BlockReader,
    tree: &Tree,
    replaced: Replaced,
    new: Vec<TailFence>,
    out: &mut ExtentWriter,
) -> Result<Edited> {
    let mut meta = TreeMeta::clone(&tree.meta);
    if meta.levels.is_empty() {
        meta.levels.push(LevelMeta { rank: 1, ..LevelMeta::default() });
    }
    let before_units = units(out);
    let mut freed: Vec<Extent> = tree.meta.top.iter().map(extent_of).collect();
    let (mut replaced, mut fences) = (replaced, new);
    for level in (0..meta.levels.len().saturating_sub(1)).rev() {
        let old = Nodes::of(tree, reader, level, &replaced)?;
        let counts = meta.levels.get_mut(level).map(|level| &mut level.counts);
        let all = [old.before, fences, old.behind].concat();
        fences = pack(&all, out, counts, &old.nodes)?;
        freed.extend(old.nodes.iter().map(|node| extent_of(&node.0)));
        replaced = old.replaced;
    }
    let (before, behind) = around(tree, &replaced);
    fences = [before, fences, behind].concat();
    fences = raise(&mut meta, fences, out)?;
    fences = lower(&mut meta, fences, reader, out, &mut freed)?;
    if fences.is_empty() {
        let written_units = units(out).saturating_sub(before_units);
        return Ok(Edited { meta: TreeMeta::default(), top: None, freed, written_units });
    }
    let mut counts = LevelCounts::default();
    meta.top = pack(&fences, out, Some(&mut counts), &[])?.iter().map(|node| node.ptr).collect();
    let mut top = FenceIndex::counted(Account::required(&reader.budget));
    for fence in &fences {
        let _counted_in_any_case = top.push(&keyed(fence));
    }
    top.finish();
    let written_units = units(out).saturating_sub(before_units);
    Ok(Edited { meta, top: Some(Arc::new(top)), freed, written_units })
}

/// Units that are written to.
fn units(out: &ExtentWriter) -> u64 {
    out.written().iter().map(|extent| extent.units).sum()
}

/// The nodes of one level that lead to what is replaced.
struct Nodes {
    /// Each with the number of its fences.
    nodes: Vec<(BlockPtr, u64)>,
    /// Their fences before and behind what is replaced.
    before: Vec<TailFence>,
    behind: Vec<TailFence>,
    /// The nodes among the fences of the level above.
    replaced: Replaced,
}

impl Nodes {
    fn of(tree: &Tree, reader: &BlockReader, level: usize, replaced: &Replaced) -> Result<Self> {
        let mut nodes = Self {
            nodes: Vec::new(),
            before: Vec::new(),
            behind: Vec::new(),
            replaced: Replaced::default(),
        };
        let target = Target::At(&replaced.from.0, replaced.from.1);
        let mut next = FenceCursor::find(tree, reader, level, target)?;
        while let Some(at) = next {
            let node = at.owned()?;
            if nodes.nodes.is_empty() {
                nodes.replaced.from = (node.key, node.seq);
            } else if replaced.is_behind(&node.key, node.seq) {
                nodes.replaced.until = Some((node.key, node.seq));
                break;
            }
            let fences = read(reader, &node.ptr)?;
            nodes.nodes.push((node.ptr, fences.len() as u64));
            for fence in fences {
                if replaced.is_before(&fence.key, fence.seq) {
                    nodes.before.push(fence);
                } else if replaced.is_behind(&fence.key, fence.seq) {
                    nodes.behind.push(fence);
                }
            }
            next = at.next()?;
        }
        Ok(nodes)
    }
}

/// The top fences before and behind what is replaced.
fn around(tree: &Tree, replaced: &Replaced) -> (Vec<TailFence>, Vec<TailFence>) {
    let top = || tree.fences(0).into_iter().flat_map(FenceIndex::iter);
    let before = top().filter(|fence| replaced.is_before(fence.key, fence.seq));
    let behind = top().filter(|fence| replaced.is_behind(fence.key, fence.seq));
    (before.map(|fence| owned(&fence)).collect(), behind.map(|fence| owned(&fence)).collect())
}

/// The fences of a node.
fn read(reader: &BlockReader, ptr: &BlockPtr) -> Result<Vec<TailFence>> {
    let block = reader.read(ptr)?;
    let mut index = FenceIndex::default();
    crate::run::tree::push_fences(&mut index, block.view())
        .map_err(|error| reader.damage(ptr, &error))?;
    Ok(index.iter().map(|fence| owned(&fence)).collect())
}

/// Packs fences into nodes, all about equally full; returns the fences to the nodes. `counts` gain
/// the written nodes and lose the replaced ones.
fn pack(
    fences: &[TailFence],
    out: &mut ExtentWriter,
    counts: Option<&mut LevelCounts>,
    replaced: &[(BlockPtr, u64)],
) -> Result<Vec<TailFence>> {
    let mut nodes = Vec::new();
    let total: usize = fences.iter().map(bytes_of).sum();
    let share = total.div_ceil(total.div_ceil(NODE_BYTES).max(1));
    let mut builder = BlockBuilder::new(NODE_BYTES);
    let (mut bytes, mut first) = (0, 0);
    for (at, fence) in fences.iter().enumerate() {
        let payload = Payload::Fence(fence_of(fence));
        let is_full = bytes >= share || !builder.try_push(&fence.key, fence.seq, &payload);
        if !is_full {
            bytes += bytes_of(fence);
        } else if at - first < FENCES_MIN {
            builder.push(&fence.key, fence.seq, &payload);
            bytes += bytes_of(fence);
        } else {
            nodes.extend(close(&mut builder, fences.get(first), out)?);
            (first, bytes) = (at, bytes_of(fence));
            builder.push(&fence.key, fence.seq, &payload);
        }
    }
    nodes.extend(close(&mut builder, fences.get(first), out)?);
    out.flush()?;
    if let Some(counts) = counts {
        let sectors = |ptr: &BlockPtr| u64::from(ptr.sectors);
        counts.blocks += nodes.len() as u64;
        counts.sectors += nodes.iter().map(|node| sectors(&node.ptr)).sum::<u64>();
        counts.fences += fences.len() as u64;
        counts.blocks = counts.blocks.saturating_sub(replaced.len() as u64);
        let gone: u64 = replaced.iter().map(|(ptr, _)| sectors(ptr)).sum();
        counts.sectors = counts.sectors.saturating_sub(gone);
        let gone = replaced.iter().map(|(_, fences)| fences).sum();
        counts.fences = counts.fences.saturating_sub(gone);
    }
    Ok(nodes)
}

/// Writes a node, whose first child's fence is `first`.
fn close(
    builder: &mut BlockBuilder,
    first: Option<&TailFence>,
    out: &mut ExtentWriter,
) -> Result<Option<TailFence>> {
    let Some(first) = first.filter(|_| !builder.is_empty()) else { return Ok(None) };
    let (ptr, _) = out.append(builder)?;
    let (puts, tombstones, filter) = (0, 0, Vec::new());
    Ok(Some(TailFence { key: first.key.clone(), seq: first.seq, ptr, puts, tombstones, filter }))
}

/// Bytes of a fence in a node, about.
fn bytes_of(fence: &TailFence) -> usize {
    fence.key.len() + fence_of(fence).encoded_len() + 8
}

/// Puts nodes between the top and the uppermost level while the top is longer than a node.
fn raise(
    meta: &mut TreeMeta,
    mut fences: Vec<TailFence>,
    out: &mut ExtentWriter,
) -> Result<Vec<TailFence>> {
    let is_long = |fences: &[TailFence]| {
        fences.len() > 2 * FENCES_MIN && fences.iter().map(bytes_of).sum::<usize>() > NODE_BYTES
    };
    while is_long(&fences) {
        let mut level = LevelMeta { rank: 1, ..LevelMeta::default() };
        fences = pack(&fences, out, Some(&mut level.counts), &[])?;
        meta.levels.insert(0, level);
    }
    Ok(fences)
}

/// Takes nodes out that are alone in their level.
fn lower(
    meta: &mut TreeMeta,
    mut fences: Vec<TailFence>,
    reader: &BlockReader,
    out: &mut ExtentWriter,
    freed: &mut Vec<Extent>,
) -> Result<Vec<TailFence>> {
    while let [only] = fences.as_slice()
        && meta.levels.len() > 1
    {
        out.flush()?;
        let ptr = only.ptr;
        fences = read(reader, &ptr)?;
        meta.levels.remove(0);
        freed.push(extent_of(&ptr));
    }
    Ok(fences)
}

/// A fence as nodes have it.
pub(super) fn tail(fence: OwnedFence) -> TailFence {
    let OwnedFence { key, seq, ptr, puts, tombstones, filter } = fence;
    TailFence { key, seq, ptr, puts, tombstones, filter }
}
