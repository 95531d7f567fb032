//! A merge under way, as of its last durable step.
//!
//! A record is complete in itself: with the levels that are replaced, which stay in the index
//! until the merge is done, it is all that resuming needs. What is always true of it: one of the
//! `tails` for each new level; `frozen` does not fall; no more levels and runs are replaced than
//! there are; no more inputs than those have levels. The reader refuses anything else.

use super::{IndexMeta, LEVELS_MAX, Shape, TreeMeta, count, encode_flag, flag, small};
use crate::KEY_BYTES_MAX;
use crate::bytes::{Reader, put_byte_string, put_varint};
use crate::error::Result;
use crate::fence::Fence;
use crate::ids::Seq;
use crate::ptr::BlockPtr;

/// What a merge does with the levels that it replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeScope {
    /// It merges the upper ones; there are others below.
    #[default]
    Upper,
    /// It merges everything: tombstones go.
    Full,
    /// It copies what is live as of this number, and leaves what it copies from as it is: a past
    /// index.
    Split(Seq),
    /// It merges everything above the bottom, and the next merge splits.
    Gather,
}

const SCOPE_UPPER: u8 = 0;
const SCOPE_FULL: u8 = 1;
const SCOPE_SPLIT: u8 = 2;
const SCOPE_GATHER: u8 = 3;

impl MergeScope {
    /// Whether it merges everything.
    #[must_use]
    pub const fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::Split(_))
    }

    /// Whether it is one of those that only keyspaces with history have: a gather or a split.
    #[must_use]
    pub const fn is_of_history(self) -> bool {
        matches!(self, Self::Split(_) | Self::Gather)
    }

    /// The number as of which it splits.
    #[must_use]
    pub const fn splits_at(self) -> Option<Seq> {
        match self {
            Self::Split(at) => Some(at),
            Self::Upper | Self::Full | Self::Gather => None,
        }
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Upper => SCOPE_UPPER,
            Self::Full => SCOPE_FULL,
            Self::Split(_) => SCOPE_SPLIT,
            Self::Gather => SCOPE_GATHER,
        });
        if let Self::Split(at) = self {
            put_varint(out, at.0);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let at = reader.clone();
        Ok(match reader.u8()? {
            SCOPE_UPPER => Self::Upper,
            SCOPE_FULL => Self::Full,
            SCOPE_SPLIT => Self::Split(Seq(reader.varint()?)),
            SCOPE_GATHER => Self::Gather,
            _ => return Err(at.error("a merge is of a kind that is unknown to this version")),
        })
    }
}

/// A merge under way, as of its last durable step. A crash resumes it from here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeProgress {
    /// Operations of the keyspace with a number in (frozen.0, frozen.1] and a key behind the
    /// wavefront are in the log alone. Equal where there are none.
    pub frozen: (Seq, Seq),
    /// Every group (user key) at or before it has been merged; nothing behind it has. At most
    /// [`KEY_BYTES_MAX`] bytes.
    pub wavefront: Vec<u8>,
    /// What becomes of what is merged.
    pub scope: MergeScope,
    /// Levels of the main tree, from the top, that are replaced.
    pub levels: u8,
    /// Sorted runs that are consumed: the oldest ones (the last of [`IndexMeta::sorted_runs`]).
    pub sorted_runs: u8,
    /// Level sizes in force when it is done.
    pub shape: Shape,
    /// The new levels so far, fence-only levels first, the one with the data last. Its `top`
    /// names the blocks of top fences that are complete; it may be empty although there are
    /// levels.
    pub new: TreeMeta,
    /// For each new level the fences to its blocks that no block above has yet; for level 0
    /// those that are in no block of top fences. One for each of `new.levels`.
    pub tails: Vec<Vec<TailFence>>,
    /// The key of the last entry of the data level, at most [`KEY_BYTES_MAX`] bytes.
    pub last_key: Vec<u8>,
    /// The number of the last entry of the data level, if it was data.
    pub last_data: Option<Seq>,
    /// The last fence written to the level below the merge, where there is one.
    pub plast: Option<TailFence>,
    /// The progress in each merged level: those of the consumed sorted runs, newest run first, then
    /// those of the main tree.
    pub inputs: Vec<InputProgress>,
}

/// A fence with its key, outside any block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailFence {
    /// User key of the fence, at most [`KEY_BYTES_MAX`] bytes.
    pub key: Vec<u8>,
    /// Sequence number of the fence.
    pub seq: Seq,
    /// The block.
    pub ptr: BlockPtr,
    /// Puts in the block.
    pub puts: u32,
    /// Tombstones in the block.
    pub tombstones: u32,
    /// Filter over the user keys of the block's data entries; empty when it has none.
    pub filter: Vec<u8>,
}

/// The progress of a merge in one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputProgress {
    /// Data entries at or before the wavefront.
    pub entries: u64,
    /// Blocks before the one that contains the wavefront.
    pub blocks: u64,
}

impl MergeProgress {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        debug_assert!(self.frozen.0 <= self.frozen.1);
        debug_assert_eq!(self.tails.len(), self.new.levels.len());
        put_varint(out, self.frozen.0.0);
        put_varint(out, self.frozen.1.0);
        put_byte_string(out, &self.wavefront);
        self.scope.encode(out);
        out.push(self.levels);
        out.push(self.sorted_runs);
        self.shape.encode(out);
        self.new.encode(out);
        put_varint(out, self.tails.len() as u64);
        for tail in &self.tails {
            put_varint(out, tail.len() as u64);
            for fence in tail {
                fence.encode(out);
            }
        }
        put_byte_string(out, &self.last_key);
        encode_flag(out, self.last_data.is_some());
        if let Some(seq) = self.last_data {
            put_varint(out, seq.0);
        }
        encode_flag(out, self.plast.is_some());
        if let Some(fence) = &self.plast {
            fence.encode(out);
        }
        put_varint(out, self.inputs.len() as u64);
        for input in &self.inputs {
            put_varint(out, input.entries);
            put_varint(out, input.blocks);
        }
    }

    /// Reads the merge under way in `index`, whose trees have been read.
    pub(super) fn decode(reader: &mut Reader<'_>, index: &IndexMeta) -> Result<Self> {
        let frozen = decode_frozen(reader)?;
        let wavefront = reader.byte_string(KEY_BYTES_MAX)?.to_vec();
        let scope = MergeScope::decode(reader)?;
        let at = reader.clone();
        let (levels, sorted_runs) = (small(reader)?, small(reader)?);
        let Some(inputs_max) = inputs_max(index, levels, sorted_runs) else {
            return Err(at.error("more levels or runs are merged than there are"));
        };
        let shape = Shape::decode(reader)?;
        let new = TreeMeta::decode_unfinished(reader)?;
        Ok(Self {
            frozen,
            wavefront,
            scope,
            levels,
            sorted_runs,
            shape,
            tails: decode_tails(reader, new.levels.len())?,
            new,
            last_key: reader.byte_string(KEY_BYTES_MAX)?.to_vec(),
            last_data: if flag(reader)? { Some(Seq(reader.varint()?)) } else { None },
            plast: if flag(reader)? { Some(TailFence::decode(reader)?) } else { None },
            inputs: decode_inputs(reader, inputs_max)?,
        })
    }
}

fn decode_frozen(reader: &mut Reader<'_>) -> Result<(Seq, Seq)> {
    let at = reader.clone();
    let frozen = (Seq(reader.varint()?), Seq(reader.varint()?));
    if frozen.0 <= frozen.1 { Ok(frozen) } else { Err(at.error("frozen numbers fall")) }
}

/// The number of levels in the first `levels` of the main tree and the last `sorted_runs` runs;
/// `None` where the index has fewer.
fn inputs_max(index: &IndexMeta, levels: u8, sorted_runs: u8) -> Option<usize> {
    let levels = index.main.levels.get(..usize::from(levels))?.len();
    let first = index.sorted_runs.len().checked_sub(usize::from(sorted_runs))?;
    let consumed = index.sorted_runs.get(first..)?;
    Some(consumed.iter().fold(levels, |sum, run| sum.saturating_add(run.levels.len())))
}

fn decode_tails(reader: &mut Reader<'_>, levels: usize) -> Result<Vec<Vec<TailFence>>> {
    let at = reader.clone();
    if reader.length(LEVELS_MAX)? != levels {
        return Err(at.error("tails and new levels differ in number"));
    }
    let mut tails = Vec::new();
    for _ in 0..levels {
        let mut tail = Vec::new();
        for _ in 0..reader.length(usize::MAX)? {
            tail.push(TailFence::decode(reader)?);
        }
        tails.push(tail);
    }
    Ok(tails)
}

fn decode_inputs(reader: &mut Reader<'_>, max: usize) -> Result<Vec<InputProgress>> {
    let mut inputs = Vec::new();
    for _ in 0..reader.length(max)? {
        inputs.push(InputProgress { entries: count(reader)?, blocks: count(reader)? });
    }
    Ok(inputs)
}

impl TailFence {
    /// The fence of the block.
    #[must_use]
    pub fn fence(&self) -> Fence<'_> {
        Fence { ptr: self.ptr, puts: self.puts, tombstones: self.tombstones, filter: &self.filter }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_byte_string(out, &self.key);
        // As in an entry, so that ∞ is one byte.
        put_varint(out, self.seq.0.wrapping_add(1));
        self.fence().encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let key = reader.byte_string(KEY_BYTES_MAX)?.to_vec();
        let seq = Seq(reader.varint()?.wrapping_sub(1));
        let Fence { ptr, puts, tombstones, filter } = Fence::decode(reader)?;
        Ok(Self { key, seq, ptr, puts, tombstones, filter: filter.to_vec() })
    }
}

#[cfg(test)]
mod tests;
