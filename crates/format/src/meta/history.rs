//! The parts of an index that keep a keyspace's history: what the index of now knows of it, and the
//! past indexes.

use std::sync::Arc;

use super::{LevelMeta, RemovedRange, SORTED_RUNS_MAX, TreeMeta, removed};
use crate::bytes::{Reader, put_varint};
use crate::error::Result;
use crate::history::MILLIONTHS;
use crate::ids::Seq;
use crate::ptr::Extent;

/// What an index knows of the history that its keyspace keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexHistory {
    /// The first version that the index answers: earlier ones are in past indexes. 0 while there
    /// are none.
    pub from: Seq,
    /// The share of new entries that superseded others, as the last full merge found it, in
    /// millionths.
    pub replaced_millionths: u32,
    /// The next merge splits: everything above the bottom is one level.
    pub splits_next: bool,
}

impl IndexHistory {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.from.0);
        put_varint(out, self.replaced_millionths.into());
        super::encode_flag(out, self.splits_next);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let from = Seq(reader.varint()?);
        let at = reader.clone();
        let replaced_millionths = reader.varint_u32()?;
        if replaced_millionths > MILLIONTHS {
            return Err(at.error("share of replaced entries is out of range"));
        }
        Ok(Self { from, replaced_millionths, splits_next: super::flag(reader)? })
    }
}

/// An index as it was before a split. It answers the versions from `from` up to and without
/// `until`, and never changes.
///
/// Invariant: `from` is less than `until`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastIndex {
    /// The first version that it answers.
    pub from: Seq,
    /// The first version that it does not answer: the one as of which the split copied.
    pub until: Seq,
    /// The main tree.
    pub main: TreeMeta,
    /// Sorted runs, newest first.
    pub sorted_runs: Vec<TreeMeta>,
    /// The range tombstones with numbers up to `until` that hide something in it.
    pub removed: Arc<[RemovedRange]>,
}

impl PastIndex {
    /// The trees, newest first.
    pub fn trees(&self) -> impl Iterator<Item = &TreeMeta> {
        self.sorted_runs.iter().chain([&self.main])
    }

    /// All levels of the trees.
    pub fn levels(&self) -> impl Iterator<Item = &LevelMeta> {
        self.trees().flat_map(|tree| &tree.levels)
    }

    /// All extents that it occupies.
    pub fn extents(&self) -> impl Iterator<Item = &Extent> {
        self.trees().flat_map(TreeMeta::extents)
    }

    /// Appends the bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.from.0);
        put_varint(out, self.until.0);
        self.main.encode(out);
        put_varint(out, self.sorted_runs.len() as u64);
        self.sorted_runs.iter().for_each(|run| run.encode(out));
        removed::encode(&self.removed, out);
    }

    /// Reads what [`PastIndex::encode`] writes.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        let (from, until) = (Seq(reader.varint()?), Seq(reader.varint()?));
        if from >= until {
            return Err(at.error("a past index ends before it begins"));
        }
        let main = TreeMeta::decode(reader)?;
        let mut sorted_runs = Vec::new();
        for _ in 0..reader.length(SORTED_RUNS_MAX)? {
            sorted_runs.push(TreeMeta::decode(reader)?);
        }
        Ok(Self { from, until, main, sorted_runs, removed: removed::decode(reader)? })
    }
}
