//! A keyspace's record in the manifest: its trees, level by level, and the merge under way.

mod history;
mod kind;
mod learnt;
mod lsm;
mod progress;
mod removed;

use std::sync::Arc;

use crate::action::KeyRangeBuf;
use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::ids::Seq;
use crate::ptr::{BlockPtr, Extent, decode_extents, encode_extents};

pub use history::{IndexHistory, PastIndex};
pub use kind::KindMeta;
pub use learnt::{LearntMeta, Real};
pub use lsm::{LsmLevel, LsmMeta};
pub use progress::{InputProgress, MergeProgress, MergeScope, TailFence};
pub use removed::RemovedRange;

/// The exact counts of a level. Byte counts are of encoded entries, slots included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelCounts {
    /// Blocks of the level.
    pub blocks: u64,
    /// Sum of the blocks' lengths, in sectors.
    pub sectors: u64,
    /// Puts (versions of one key count each).
    pub puts: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Bytes of puts.
    pub put_bytes: u64,
    /// Bytes of tombstones.
    pub tombstone_bytes: u64,
    /// Fences to the level below, duplicates for I2 included.
    pub fences: u64,
    /// Puts and tombstones that newer versions supersede: kept because a snapshot may see them, or
    /// as history.
    pub kept_for_snapshots: u64,
}

/// One materialised level of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelMeta {
    /// The level's number: which maximum size of the shape it obeys. Strictly increasing
    /// downwards among levels with data; fence-only levels may share a number.
    pub rank: u8,
    /// Exact counts.
    pub counts: LevelCounts,
    /// The range of sequence numbers of its data (equal to (0, 0) without data).
    pub seqs: (Seq, Seq),
    /// The extents that hold its blocks, in the order of writing.
    pub extents: Vec<Extent>,
}

/// A tree: top fences, then levels from the top down. A sorted run is a tree whose only level
/// with data is the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeMeta {
    /// The blocks that hold the top fences, in key order. Empty exactly when `levels` is.
    pub top: Vec<BlockPtr>,
    /// The extents of those blocks.
    pub top_extents: Vec<Extent>,
    /// Materialised levels, top down.
    pub levels: Vec<LevelMeta>,
}

/// The level sizes chosen at the last full merge: `k` upper levels of capacity (b-1) b^(i-1) (t+1)
/// κ0 above the bottom, and `t` sorted runs that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Growth per level, in quarters (8 means b = 2).
    pub b_quarters: u16,
    /// Upper levels with data.
    pub k: u8,
    /// Sorted runs that are kept.
    pub t: u8,
    /// Payload bytes of a full memtable.
    pub kappa0_bytes: u64,
}

/// Everything durable about one keyspace's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexMeta {
    /// Every operation up to this number is in `main` or `sorted_runs`, none after it; the frozen
    /// ones of `merge` aside.
    pub flushed_seq: Seq,
    /// Level sizes in force.
    pub shape: Shape,
    /// The main tree.
    pub main: TreeMeta,
    /// Sorted runs, newest first.
    pub sorted_runs: Vec<TreeMeta>,
    /// Count of finished merges.
    pub merges: u64,
    /// The merge under way, if there is one. The levels and runs that it replaces are still in
    /// `main` and `sorted_runs`.
    pub merge: Option<Box<MergeProgress>>,
    /// The range tombstones with numbers up to [`IndexMeta::log_unneeded_seq`], except those that
    /// hide nothing any more: the log contains the rest.
    pub removed: Arc<[RemovedRange]>,
    /// The kind, and what it records beyond the rest.
    pub kind: KindMeta,
    /// What it knows of the history that its keyspace keeps.
    pub history: IndexHistory,
}

impl Default for Shape {
    fn default() -> Self {
        Self { b_quarters: 8, k: 0, t: 0, kappa0_bytes: 0 }
    }
}

impl Default for IndexMeta {
    fn default() -> Self {
        Self {
            flushed_seq: Seq(0),
            shape: Shape::default(),
            main: TreeMeta::default(),
            sorted_runs: Vec::new(),
            merges: 0,
            merge: None,
            removed: Arc::default(),
            kind: KindMeta::default(),
            history: IndexHistory::default(),
        }
    }
}

/// No tree has more levels than this.
pub const LEVELS_MAX: usize = 32;
/// The maximum number of sorted runs of a keyspace.
pub const SORTED_RUNS_MAX: usize = 64;

/// Every count is below this: far above what a device holds, and low enough that the counts of
/// all levels together never overflow.
const COUNT_MAX: u64 = 1 << 50;

/// Parts that follow an index: what it knows of its history, then the merge under way.
const PART_MERGE: u8 = 1;
const PART_HISTORY: u8 = 2;

fn count(reader: &mut Reader<'_>) -> Result<u64> {
    let at = reader.clone();
    let count = reader.varint()?;
    if count < COUNT_MAX { Ok(count) } else { Err(at.error("count is out of range")) }
}

/// A small number: the number of a level, of upper levels or of sorted runs.
fn small(reader: &mut Reader<'_>) -> Result<u8> {
    let at = reader.clone();
    let number = reader.u8()?;
    let fits = usize::from(number) <= SORTED_RUNS_MAX;
    if fits { Ok(number) } else { Err(at.error("number of levels or runs is out of range")) }
}

fn encode_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

fn flag(reader: &mut Reader<'_>) -> Result<bool> {
    let at = reader.clone();
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(at.error("flag is neither 0 nor 1")),
    }
}

impl LevelCounts {
    fn fields(&self) -> [u64; 8] {
        [
            self.blocks,
            self.sectors,
            self.puts,
            self.tombstones,
            self.put_bytes,
            self.tombstone_bytes,
            self.fences,
            self.kept_for_snapshots,
        ]
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for field in self.fields() {
            put_varint(out, field);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            blocks: count(reader)?,
            sectors: count(reader)?,
            puts: count(reader)?,
            tombstones: count(reader)?,
            put_bytes: count(reader)?,
            tombstone_bytes: count(reader)?,
            fences: count(reader)?,
            kept_for_snapshots: count(reader)?,
        })
    }

    /// Bytes of puts and tombstones.
    #[must_use]
    pub const fn data_bytes(&self) -> u64 {
        self.put_bytes.saturating_add(self.tombstone_bytes)
    }

    /// Puts and tombstones.
    #[must_use]
    pub const fn data_entries(&self) -> u64 {
        self.puts.saturating_add(self.tombstones)
    }
}

impl LevelMeta {
    /// An estimate of what is left in a run whose merged part has been freed: its counts in the
    /// ratio of its extents' units to the blocks that it had, each of at least a unit.
    fn left(&self) -> LevelCounts {
        let units: u64 = self.extents.iter().map(|extent| extent.units).sum();
        let blocks = self.counts.blocks;
        if units >= blocks {
            return self.counts;
        }
        let left = |count: u64| (u128::from(count) * u128::from(units) / u128::from(blocks)) as u64;
        let LevelCounts { puts, tombstones, put_bytes, .. } = self.counts;
        LevelCounts {
            blocks: units,
            sectors: left(self.counts.sectors),
            puts: left(puts),
            tombstones: left(tombstones),
            put_bytes: left(put_bytes),
            tombstone_bytes: left(self.counts.tombstone_bytes),
            fences: left(self.counts.fences),
            kept_for_snapshots: left(self.counts.kept_for_snapshots),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.rank);
        self.counts.encode(out);
        put_varint(out, self.seqs.0.0);
        put_varint(out, self.seqs.1.0);
        encode_extents(out, &self.extents);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            rank: small(reader)?,
            counts: LevelCounts::decode(reader)?,
            seqs: (Seq(reader.varint()?), Seq(reader.varint()?)),
            extents: decode_extents(reader)?,
        })
    }
}

impl TreeMeta {
    /// All extents the tree occupies.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.top_extents.iter().chain(self.levels.iter().flat_map(|level| &level.extents))
    }

    /// Appends the tree.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.top.len() as u64);
        for ptr in &self.top {
            ptr.encode(out);
        }
        encode_extents(out, &self.top_extents);
        put_varint(out, self.levels.len() as u64);
        for level in &self.levels {
            level.encode(out);
        }
    }

    /// Reads a tree.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let tree = Self::decode_unfinished(reader)?;
        if tree.levels.is_empty() != tree.top.is_empty() {
            return Err(reader.error("top fences and levels disagree about being empty"));
        }
        Ok(tree)
    }

    /// Reads a tree whose top fences may still be missing.
    fn decode_unfinished(reader: &mut Reader<'_>) -> Result<Self> {
        let mut tree = Self::default();
        for _ in 0..reader.length(usize::MAX)? {
            tree.top.push(BlockPtr::decode(reader)?);
        }
        tree.top_extents = decode_extents(reader)?;
        for _ in 0..reader.length(LEVELS_MAX)? {
            tree.levels.push(LevelMeta::decode(reader)?);
        }
        if tree.levels.is_empty() && !tree.top.is_empty() {
            return Err(reader.error("top fences lead to no level"));
        }
        Ok(tree)
    }
}

impl Shape {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.b_quarters));
        out.push(self.k);
        out.push(self.t);
        put_varint(out, self.kappa0_bytes);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let b_quarters = reader.length(usize::from(u16::MAX))? as u16;
        let (k, t) = (small(reader)?, small(reader)?);
        Ok(Self { b_quarters, k, t, kappa0_bytes: count(reader)? })
    }
}

impl IndexMeta {
    /// The log must be durable up to here before the index is recorded: no batch may be on the
    /// device only in part.
    #[must_use]
    pub fn log_needed_seq(&self) -> Seq {
        let frozen = self.merge.as_ref().map_or(Seq(0), |merge| merge.frozen.1);
        self.flushed_seq.max(frozen)
    }

    /// Every operation up to here is on the device, and the log is not needed for it.
    #[must_use]
    pub fn log_unneeded_seq(&self) -> Seq {
        match &self.merge {
            Some(merge) if merge.frozen.0 < merge.frozen.1 => self.flushed_seq.min(merge.frozen.0),
            _ => self.flushed_seq,
        }
    }

    /// The oldest `count` sorted runs, newest first; all of them where there are fewer.
    #[must_use]
    pub fn oldest_runs(&self, count: usize) -> &[TreeMeta] {
        let first = self.sorted_runs.len().saturating_sub(count);
        self.sorted_runs.get(first..).unwrap_or_default()
    }

    /// The record of an LSM index; `None` for another kind.
    #[must_use]
    pub fn lsm(&self) -> Option<&LsmMeta> {
        match &self.kind {
            KindMeta::Lsm(lsm) => Some(lsm),
            KindMeta::FdTree => None,
        }
    }

    /// The same, to be changed.
    pub fn lsm_mut(&mut self) -> Option<&mut LsmMeta> {
        match &mut self.kind {
            KindMeta::Lsm(lsm) => Some(lsm),
            KindMeta::FdTree => None,
        }
    }

    /// The levels with scattered blocks, from the first down; none where `main` contains them all.
    pub fn scattered_levels(&self) -> impl Iterator<Item = &LsmLevel> {
        self.lsm().into_iter().flat_map(|lsm| &lsm.levels)
    }

    /// The consumed key ranges of run number `run`, where merges consume runs partially.
    #[must_use]
    pub fn gone(&self, run: usize) -> Option<&[KeyRangeBuf]> {
        self.lsm()?.gone.get(run).map(Vec::as_slice)
    }

    /// Notes a new run, the newest, without the keys of `gone`, where merges consume runs
    /// partially.
    pub fn add_run(&mut self, run: TreeMeta, gone: Vec<KeyRangeBuf>) {
        self.sorted_runs.insert(0, run);
        if let Some(lsm) = self.lsm_mut() {
            lsm.gone.insert(0, gone);
        }
    }

    /// All levels of runs, tree and LSM index; not of what a merge has written.
    pub fn levels(&self) -> impl Iterator<Item = &LevelMeta> {
        let lsm = self.scattered_levels().map(|level| &level.tree);
        let trees = std::iter::once(&self.main).chain(&self.sorted_runs).chain(lsm);
        trees.flat_map(|tree| &tree.levels)
    }

    /// The counts of the levels; estimates for runs that have lost keys.
    pub fn counts(&self) -> impl Iterator<Item = LevelCounts> {
        let runs = if self.lsm().is_some() { self.sorted_runs.len() } else { 0 };
        let (lost, whole) = self.sorted_runs.split_at_checked(runs).unwrap_or_default();
        let lsm = self.scattered_levels().map(|level| &level.tree);
        let trees = std::iter::once(&self.main).chain(whole).chain(lsm);
        let whole = trees.flat_map(|tree| &tree.levels).map(|level| level.counts);
        whole.chain(lost.iter().flat_map(|tree| &tree.levels).map(LevelMeta::left))
    }

    /// All extents the keyspace occupies, those of a merge under way included. Those of the levels
    /// of an LSM index are counted with the space of its values.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        let new = self.merge.iter().flat_map(|merge| merge.new.extents());
        self.main.extents().chain(self.sorted_runs.iter().flat_map(TreeMeta::extents)).chain(new)
    }

    /// Appends the index.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.flushed_seq.0);
        self.shape.encode(out);
        put_varint(out, self.merges);
        self.main.encode(out);
        put_varint(out, self.sorted_runs.len() as u64);
        for flush in &self.sorted_runs {
            flush.encode(out);
        }
        self.kind.encode(out);
        removed::encode(&self.removed, out);
        let has_history = self.history != IndexHistory::default();
        let merge = if self.merge.is_some() { PART_MERGE } else { 0 };
        out.push(merge | if has_history { PART_HISTORY } else { 0 });
        if has_history {
            self.history.encode(out);
        }
        if let Some(merge) = &self.merge {
            merge.encode(out);
        }
    }

    /// Reads an index.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let flushed_seq = Seq(reader.varint()?);
        let shape = Shape::decode(reader)?;
        let merges = count(reader)?;
        let main = TreeMeta::decode(reader)?;
        let mut sorted_runs = Vec::new();
        for _ in 0..reader.length(SORTED_RUNS_MAX)? {
            sorted_runs.push(TreeMeta::decode(reader)?);
        }
        let at = reader.clone();
        let kind = KindMeta::decode(reader, sorted_runs.len())?;
        let removed = removed::decode(reader)?;
        let parts_at = reader.clone();
        let parts = reader.u8()?;
        if parts & !(PART_MERGE | PART_HISTORY) != 0 {
            return Err(parts_at.error("an index has parts that are unknown to this version"));
        }
        let has_merge = parts & PART_MERGE != 0;
        let has_history = parts & PART_HISTORY != 0;
        let history = if has_history { IndexHistory::decode(reader)? } else { Default::default() };
        let merge = None;
        let mut index =
            Self { flushed_seq, shape, main, sorted_runs, merges, merge, removed, kind, history };
        if index.lsm().is_some() && (has_merge || !index.main.levels.is_empty()) {
            return Err(at.error("an LSM index has parts of an FD+tree"));
        }
        if has_merge {
            let at = reader.clone();
            let merge = MergeProgress::decode(reader, &index)?;
            if merge.scope.splits_at().is_some_and(|split| split <= index.history.from) {
                return Err(at.error("a split as of a version of a past index"));
            }
            index.merge = Some(Box::new(merge));
        }
        Ok(index)
    }
}
