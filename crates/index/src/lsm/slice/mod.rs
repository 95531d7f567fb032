//! Block-preserving merge of one slice (the thesis, Algorithm 11).
//!
//! All sources are walked in key order (`walk`). Blocks into which no other source has keys go to
//! the level below as they are, unless too much of that level would be empty then.
//!
//! Order of the writes: new blocks and nodes written → data synced → log synced → record synced →
//! view replaced → old space reusable after its last reader.

mod record;

use std::sync::Arc;

use esker_format::ids::Seq;
use esker_format::meta::{LevelMeta, LsmLevel, TailFence};
use esker_format::ptr::{Extent, SECTOR_BYTES, UNIT_BYTES};
use esker_substrate::error::{Error, Result};
use esker_substrate::generations::OneGeneration;

use crate::Commit;
use crate::build::level_writer::{extent_of, units_of};
use crate::build::writer::ExtentWriter;
use crate::lsm::LsmIndex;
use crate::lsm::choose::slice::Slice;
use crate::lsm::counters::LevelCounters;
use crate::lsm::fill_factor::{Fill, Room};
use crate::lsm::input::{Clip, Input, Span, joined};
use crate::lsm::nodes::{self, Edited, Replaced};
use crate::lsm::output::{Output, Written};
use crate::lsm::state::State;
use crate::lsm::walk::{Rules, Walk};
use crate::read::source::Run;
use crate::run::consumed::Consumed;
use crate::run::cursor::{FenceCursor, OwnedFence, Target};
use crate::run::fence_index::FenceIndex;
use crate::run::tree::{BlockReader, Tree};
use crate::upkeep::values::Moved;
use record::{Merging, Retiring};

/// A level that a slice takes keys from or merges them into.
#[derive(Clone)]
pub(super) struct Level {
    pub number: usize,
    pub tree: Arc<Tree>,
    pub level: LsmLevel,
}

/// The changes of a slice to one level.
struct Changed {
    number: usize,
    level: LsmLevel,
    top: Option<Arc<FenceIndex>>,
    /// Space of blocks and nodes that are not part of it any more.
    freed: Vec<Extent>,
    /// The blocks and entries written for it.
    work: LevelCounters,
    /// The greatest number that may have come into the slice's keys.
    newest: Seq,
}

/// The changes of a slice to one run.
pub(super) struct Spent {
    pub run: Run,
    /// Space of blocks of which nothing is left.
    pub freed: Vec<Extent>,
    /// Space of blocks that are the lower level's now.
    pub moved: Vec<Extent>,
}

/// The output of a slice.
struct Made {
    outputs: Vec<Output>,
    nodes: ExtentWriter,
    values: Moved,
    changed: Vec<Changed>,
}

/// The result of a slice, before it is recorded.
pub(super) struct Outcome {
    /// The oldest runs, newest first.
    pub runs: Vec<Spent>,
    made: Made,
    /// Entries that the runs had.
    entered: u64,
    /// Entries that were read and are not there any more.
    dropped: u64,
}

/// The result of recording a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merged {
    /// It is durable.
    Recorded,
    /// It would take the reserve: nothing has changed.
    Refused,
}

impl Outcome {
    /// Space of the new blocks and nodes.
    pub fn taken(&self) -> impl Iterator<Item = Extent> {
        let blocks = self.made.outputs.iter().flat_map(Output::taken);
        blocks.chain(self.made.nodes.taken())
    }

    /// Space of blobs to which nothing refers any more.
    pub fn dropped_blobs(&self) -> Vec<Extent> {
        self.made.values.recorded().freed
    }

    /// Space of blocks and nodes that are not part of levels any more.
    pub fn freed(&self) -> impl Iterator<Item = &Extent> {
        self.made.changed.iter().flat_map(|level| &level.freed)
    }
}

impl State {
    /// The levels that a slice takes keys from, and the one that it merges them into. Those that do
    /// not exist yet are empty.
    fn taken(&self, slice: &Slice) -> (Vec<Level>, Level) {
        let level = |number: usize| {
            let old = slice.layout.standing(number);
            let tree = old.and_then(|old| self.levels.get(old)).cloned().unwrap_or_default();
            let level = old.and_then(|old| self.level(old)).cloned().unwrap_or_default();
            Level { number, tree, level }
        };
        ((slice.from..slice.depth).map(level).collect(), level(slice.depth))
    }

    /// The runs that a slice takes keys from.
    fn runs_of(&self, slice: &Slice) -> &[Run] {
        if slice.runs { &self.runs } else { &[] }
    }

    /// Whether the levels behind the one that a slice merges into have nothing.
    fn is_empty_behind(&self, slice: &Slice) -> bool {
        let mut behind = (slice.depth + 1..slice.layout.levels)
            .filter_map(|number| self.levels.get(slice.layout.standing(number)?));
        behind.all(|level| level.height() == 0)
    }
}

impl LsmIndex<'_> {
    /// Merges a slice and makes it durable. After an error nothing has changed, unless a write has
    /// failed.
    ///
    /// Cost: reads the blocks of the slice that do not stay as they are and writes the same number,
    /// with the nodes that lead to them; two syncs and the record.
    ///
    /// # Errors
    /// `Full` without space, `Corrupt` when a block cannot be read, and errors of `commit` or the
    /// device.
    pub(super) fn merge_slice(
        &self,
        state: &State,
        slice: &Slice,
        commit: &mut Commit<'_>,
    ) -> Result<Merged> {
        let merged = self.merge_keys(state, slice);
        let outcome = merged.map_err(|error| self.poison_if_write_failed(error))?;
        if self.is_refused(state, slice, &outcome) {
            return Ok(Merged::Refused);
        }
        self.record_slice(state, slice, outcome, commit)?;
        Ok(Merged::Recorded)
    }

    /// The rules by which a slice is merged.
    fn rules_of(&self, state: &State, slice: &Slice) -> Rules {
        let is_last = slice.depth + 1 >= slice.layout.levels;
        Rules {
            removed: self.view().removed.up_to(state.durable.flushed_seq),
            to_last: is_last || state.is_empty_behind(slice),
            opens_all: slice.opens_all() || !self.lsm.compaction.preserves,
        }
    }

    /// The part of the level that a slice is merged into that may be empty for a block to stay.
    fn room_of(&self, state: &State, slice: &Slice) -> Room {
        let into = slice.layout.standing(slice.depth);
        let unpackable =
            |number| self.lsm.packing.lock().unpackable_millionths(number, state.lsm());
        Room {
            omega_millionths: self.lsm.compaction.params.omega_millionths(),
            unpackable_millionths: into.map_or(0, unpackable),
        }
    }

    fn merge_keys(&self, state: &State, slice: &Slice) -> Result<Outcome> {
        let reader = self.reader();
        let (upper, lower) = state.taken(slice);
        let runs = state.runs_of(slice);
        let mut inputs = upper_inputs(reader, runs, slice, &upper)?;
        let span = Span::of(&lower.tree, reader, slice.keys.as_range())?;
        let rules = self.rules_of(state, slice);
        let mut fill = Fill::of(&lower.level);
        span.fences.iter().for_each(|fence| fill.sub(&fence.ptr));
        inputs.push(Input::new(reader, span, None));
        let generation = OneGeneration::default();
        let room = self.room_of(state, slice);
        let blocks = (self.codec(), self.own_units());
        let output = |fill| Output::new(reader, &generation, blocks, (fill, room));
        let mut made = Made {
            outputs: vec![output(fill)],
            nodes: nodes::writer(reader, &generation),
            values: Moved::default(),
            changed: Vec::new(),
        };
        let mut dropped = 0;
        if !is_idle(slice, &inputs) {
            let written = match made.outputs.first_mut() {
                Some(output) => {
                    Walk::new(**self, &mut inputs, output, &rules).run(&mut made.values)?;
                    output.finish()?
                }
                None => return Err(lost()),
            };
            let read: u64 = inputs.iter().map(Input::entries).sum();
            dropped = read.saturating_sub(written.counts.data_entries());
            let (input, uppers) = inputs.split_last().ok_or_else(lost)?;
            made.changed.push(merged_into(
                reader,
                &lower,
                input,
                written,
                uppers,
                &mut made.nodes,
            )?);
            for (level, input) in upper.iter().zip(uppers.iter().skip(runs.len())) {
                let mut rest = output(Fill::default());
                let taken = taken_from(reader, level, input, &mut rest, &mut made.nodes)?;
                made.changed.extend(taken);
                made.outputs.push(rest);
            }
        }
        made.nodes.close()?;
        let entered = inputs.iter().take(runs.len()).map(Input::entries).sum();
        let runs = spent(runs, slice, &inputs);
        Ok(Outcome { runs, made, entered, dropped })
    }

    /// Makes a slice durable, and what readers see.
    fn record_slice(
        &self,
        state: &State,
        slice: &Slice,
        outcome: Outcome,
        commit: &mut Commit<'_>,
    ) -> Result<()> {
        self.record(&mut Merging::new(*self, state, slice, outcome), commit)
    }

    /// Drops the range tombstones up to `retired`: nothing is left that they hide.
    pub(super) fn retire_removals(&self, retired: Seq, commit: &mut Commit<'_>) -> Result<()> {
        self.record(&mut Retiring::up_to(retired), commit)?;
        self.set_retiring(false);
        Ok(())
    }
}

/// Whether a slice has nothing to do: nothing to merge into its level, or nothing in that to pack.
fn is_idle(slice: &Slice, inputs: &[Input<'_>]) -> bool {
    let uppers = inputs.split_last().map_or(inputs, |(_, uppers)| uppers);
    let moving = if slice.packs() { inputs } else { uppers };
    !slice.is_full() && moving.iter().all(|input| input.position().is_none())
}

/// The sources above the level that is merged into, newest first.
fn upper_inputs<'a>(
    reader: &'a BlockReader,
    runs: &[Run],
    slice: &'a Slice,
    levels: &[Level],
) -> Result<Vec<Input<'a>>> {
    let runs = runs.iter().map(|run| (&run.tree, run.consumed.clone()));
    let levels = levels.iter().map(|level| (&level.tree, Consumed::default()));
    let input = |(tree, gone): (&Arc<Tree>, Consumed)| {
        let keys = slice.keys.as_range();
        let span = Span::of(tree, reader, keys)?;
        let mut input = Input::new(reader, span, Some(Clip { keys, gone }));
        input.seqs = tree.meta.levels.last().map_or((Seq(0), Seq(0)), |level| level.seqs);
        Ok(input)
    };
    runs.chain(levels).map(input).collect()
}

/// The consumed ranges of runs after a slice; the space that they free, and the space that becomes
/// the level's.
fn spent(runs: &[Run], slice: &Slice, inputs: &[Input<'_>]) -> Vec<Spent> {
    let mut all = Vec::new();
    for (run, input) in runs.iter().zip(inputs) {
        let consumed = run.consumed.with(slice.done.as_range());
        let (mut freed, mut moved) = (Vec::new(), Vec::new());
        for (at, fence) in input.span.fences.iter().enumerate() {
            let extent = extent_of(&fence.ptr);
            let upper = input.span.upper(at).map(|upper| (upper.key.as_slice(), upper.seq));
            let has_all = |gone: &Consumed| gone.has_block(&fence.key, upper);
            if input.stayed.get(at).copied().unwrap_or(false) {
                moved.push(extent);
            } else if has_all(&consumed) && !has_all(&run.consumed) {
                freed.push(extent);
            }
        }
        let run = Run { tree: Arc::clone(&run.tree), consumed };
        all.push(Spent { run, freed: joined(freed.into_iter()), moved: joined(moved.into_iter()) });
    }
    all
}

/// The level that is merged into.
fn merged_into(
    reader: &BlockReader,
    lower: &Level,
    input: &Input<'_>,
    written: Written,
    uppers: &[Input<'_>],
    nodes: &mut ExtentWriter,
) -> Result<Changed> {
    let counts = written.counts;
    let mut seqs = written.seqs;
    for upper in uppers.iter().filter(|upper| upper.has_moved()) {
        seqs = span_of(seqs, upper.seqs);
    }
    let mut changed = replaced(reader, lower, input, written, &input.stayed, nodes)?;
    if let Some(data) = changed.level.tree.levels.last_mut() {
        data.counts.put_bytes += counts.put_bytes + uppers.iter().map(moved_bytes).sum::<u64>();
        data.counts.tombstone_bytes += counts.tombstone_bytes;
        data.seqs = span_of(data.seqs, seqs);
    }
    changed.newest = seqs.1;
    Ok(changed)
}

/// A level that keys are taken from; `None` where it has none of them. The other entries of its
/// blocks at the borders are rewritten.
fn taken_from(
    reader: &BlockReader,
    level: &Level,
    input: &Input<'_>,
    rest: &mut Output,
    nodes: &mut ExtentWriter,
) -> Result<Option<Changed>> {
    if input.span.fences.is_empty() {
        return Ok(None);
    }
    let left = input.leave_rest(rest)?;
    let stays: Vec<_> =
        left.iter().zip(&input.stayed).map(|(left, moved)| *left || *moved).collect();
    let written = rest.finish()?;
    let mut changed = replaced(reader, level, input, written, &stays, nodes)?;
    if let Some(data) = changed.level.tree.levels.last_mut() {
        data.counts.put_bytes = data.counts.put_bytes.saturating_sub(moved_bytes(input));
    }
    // These blocks stay in their place.
    changed.work.blocks_kept = 0;
    Ok(Some(changed))
}

/// A level with other blocks in the place of a span's: those for which `stays` is set are not
/// freed.
fn replaced(
    reader: &BlockReader,
    level: &Level,
    input: &Input<'_>,
    written: Written,
    stays: &[bool],
    nodes: &mut ExtentWriter,
) -> Result<Changed> {
    let Written { mut fences, counts, units, blocks: blocks_written, .. } = written;
    let blocks_kept = (fences.len() as u64).saturating_sub(blocks_written);
    let old = level.tree.meta.levels.last().cloned().unwrap_or_default();
    let replaced = replaced_by(&level.tree, reader, &input.span, &mut fences)?;
    let Edited { mut meta, top, mut freed, written_units } =
        nodes::replace(reader, &level.tree, replaced, fences, nodes)?;
    if let Some(data) = meta.levels.last_mut() {
        *data = without(&old, input);
        data.counts.blocks += counts.blocks;
        data.counts.sectors += counts.sectors;
        data.counts.puts += counts.puts;
        data.counts.tombstones += counts.tombstones;
    }
    let gone: u64 = freed.iter().map(|extent| extent.units).sum();
    let node_units = (level.level.node_units + written_units).saturating_sub(gone);
    let blocks = input.span.fences.iter().zip(stays);
    freed.extend(blocks.filter(|(_, stays)| !**stays).map(|(fence, _)| extent_of(&fence.ptr)));
    let old_units: u64 = input.span.fences.iter().map(|fence| units_of(&fence.ptr)).sum();
    let units = (level.level.units + units).saturating_sub(old_units);
    let cursor = level.level.cursor.clone();
    let now = LsmLevel { tree: meta, units, node_units, cursor };
    let node_bytes_written = written_units * UNIT_BYTES;
    let work = LevelCounters { blocks_written, blocks_packed: 0, blocks_kept, node_bytes_written };
    let newest = Seq(0);
    Ok(Changed { number: level.number, level: now, top, freed, work, newest })
}

/// The fences that `fences` replace: those of a span. They begin where the span did; where nothing
/// is left of a level's first blocks, the next one becomes the first.
fn replaced_by(
    tree: &Tree,
    reader: &BlockReader,
    span: &Span,
    fences: &mut Vec<TailFence>,
) -> Result<Replaced> {
    let from = span.fences.first().map_or((Vec::new(), Seq::MAX), |at| (at.key.clone(), at.seq));
    let place = |fence: &OwnedFence| (fence.key.clone(), fence.seq);
    let mut until = span.behind.as_ref().map(place);
    if let Some(first) = fences.first_mut() {
        (first.key, first.seq) = from.clone();
    } else if let (true, Some(behind)) = (from.0.is_empty(), &span.behind) {
        let level = tree.height().saturating_sub(1);
        let target = Target::At(&behind.key, behind.seq);
        let at = FenceCursor::find(tree, reader, level, target)?.ok_or_else(lost)?;
        let next = at.next()?.as_ref().map(FenceCursor::owned).transpose()?;
        until = next.as_ref().map(place);
        fences.push(TailFence { key: Vec::new(), ..nodes::tail(behind.clone()) });
    }
    Ok(Replaced { from, until })
}

/// A level's counts without a span's blocks, except the bytes of blocks that stay: these have not
/// been read.
fn without(level: &LevelMeta, input: &Input<'_>) -> LevelMeta {
    let mut level = LevelMeta { rank: 1, ..level.clone() };
    let counts = &mut level.counts;
    for fence in &input.span.fences {
        counts.blocks = counts.blocks.saturating_sub(1);
        counts.sectors = counts.sectors.saturating_sub(u64::from(fence.ptr.sectors));
        counts.puts = counts.puts.saturating_sub(u64::from(fence.puts));
        counts.tombstones = counts.tombstones.saturating_sub(u64::from(fence.tombstones));
    }
    counts.put_bytes = counts.put_bytes.saturating_sub(input.read.put_bytes);
    counts.tombstone_bytes = counts.tombstone_bytes.saturating_sub(input.read.tombstone_bytes);
    level
}

/// The numbers of both; (0, 0) are those of nothing.
fn span_of(a: (Seq, Seq), b: (Seq, Seq)) -> (Seq, Seq) {
    match (a, b) {
        ((_, Seq(0)), all) | (all, (_, Seq(0))) => all,
        (a, b) => (a.0.min(b.0), a.1.max(b.1)),
    }
}

/// Bytes of data, about, in blocks that went to the level below unread: what their sectors hold.
fn moved_bytes(input: &Input<'_>) -> u64 {
    let stayed = input.span.fences.iter().zip(&input.stayed).filter(|(_, stayed)| **stayed);
    stayed.map(|(fence, _)| u64::from(fence.ptr.sectors) * SECTOR_BYTES).sum()
}

fn lost() -> Error {
    Error::Invalid { what: "a slice lost its place".into() }
}
