//! The index of a table: which block has the records of which keys.
//!
//! A fence is a key and a block. The records of a table between a fence and the next one are those
//! that its block has there; what else is in the block is dead. So a table need not be sorted: a
//! patch puts the fences of its records between those that were there, and around them those of
//! the old block again (Lee et al., *MV-FTL*, section 5, footnote 8).
//!
//! Invariants: keys ascend; neighbouring fences have different blocks; the first one has a block.

use esker_format::Result as Decoded;
use esker_format::bytes::{Reader, put_varint};
use esker_format::key::common_prefix_len;

use super::block::{Record, weight_of};
use crate::Result;

/// Of a fence behind which there is no record.
pub const NOWHERE: u32 = u32::MAX;
/// In place of a shared length: the key is the one before with a zero byte behind it, and the
/// block is the one before that.
const AGAIN: u8 = 255;

/// The fences of a table, in one piece of memory: 8 bytes each, and the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fences {
    keys: Vec<u8>,
    ends: Vec<u32>,
    blocks: Vec<u32>,
}

/// What changes for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirty<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new block that has its record; [`NOWHERE`]: it is removed.
    pub block: u32,
}

/// Fences after a patch, and what died by it: numbers of old blocks, and weights of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patched {
    /// The fences.
    pub fences: Fences,
    /// What died, in the order of keys.
    pub died: Vec<(u32, u64)>,
}

impl Fences {
    /// The number of fences.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the table has no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The key of a fence; empty past the last.
    #[must_use]
    pub fn key(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let end = self.ends.get(at).copied().unwrap_or(0);
        self.keys.get(start.unwrap_or(0) as usize..end as usize).unwrap_or_default()
    }

    /// The key at which the block of a fence ends: `None` for the last.
    #[must_use]
    pub fn end(&self, at: usize) -> Option<&[u8]> {
        (at + 1 < self.len()).then(|| self.key(at + 1))
    }

    /// The block of a fence.
    #[must_use]
    pub fn block(&self, at: usize) -> u32 {
        self.blocks.get(at).copied().unwrap_or(NOWHERE)
    }

    /// All blocks, a number for each fence.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// Replaces the numbers of blocks.
    pub fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        for block in self.blocks.iter_mut().filter(|block| **block != NOWHERE) {
            *block = number(*block);
        }
    }

    /// Appends a fence, unless it continues with the block of the last one.
    pub fn push(&mut self, key: &[u8], block: u32) {
        if self.blocks.last().copied().unwrap_or(NOWHERE) != block {
            self.keys.extend_from_slice(key);
            self.ends.push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
            self.blocks.push(block);
        }
    }

    /// The fence that a key is behind; `None` before the first. Cost: a binary search.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) <= key { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    /// Appends the fences as bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        put_varint(bytes, self.len() as u64);
        for at in 0..self.len() {
            let (key, block) = (self.key(at), self.block(at));
            let before = if at == 0 { &[] } else { self.key(at - 1) };
            if at > 1 && self.block(at - 2) == block && is_next(before, key) {
                bytes.push(AGAIN);
                continue;
            }
            let shared = common_prefix_len(before, key).min(usize::from(AGAIN) - 1);
            bytes.extend_from_slice(&[shared as u8, (key.len() - shared) as u8]);
            bytes.extend_from_slice(key.get(shared..).unwrap_or_default());
            put_varint(bytes, u64::from(block.wrapping_add(1)));
        }
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// The bytes are no fences, or keys do not ascend.
    pub fn decode(input: &mut Reader<'_>) -> Decoded<Self> {
        let mut fences = Self::default();
        let mut key = Vec::new();
        for at in 0..input.varint()? {
            let shared = input.u8()?;
            let before = key.clone();
            let block = if shared == AGAIN {
                key.push(0);
                fences.block((at as usize).wrapping_sub(2))
            } else {
                let rest = input.u8()?;
                key.truncate(shared.into());
                key.extend_from_slice(input.take(rest.into())?);
                input.varint_u32()?.wrapping_sub(1)
            };
            fences.push(&key, block);
            if fences.len() as u64 != at + 1 || (at > 0 && before >= key) {
                return Err(input.error("fences do not ascend"));
            }
        }
        Ok(fences)
    }

    /// The fences with records changed. `dirty` ascends by key; blocks from `fresh` on have dirty
    /// records alone. `read` answers with the records of an old block. A removed key that the table
    /// has not changes nothing.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn patched<R>(&self, dirty: &[Dirty<'_>], fresh: u32, mut read: R) -> Result<Patched>
    where
        R: FnMut(u32) -> Result<std::sync::Arc<Vec<Record>>>,
    {
        let mut patch = Patching { new: Patched::default(), fresh };
        let mut at = dirty.partition_point(|dirty| self.is_empty() || dirty.key < self.key(0));
        for dirty in dirty.iter().take(at).filter(|dirty| dirty.block != NOWHERE) {
            patch.new.fences.push(dirty.key, dirty.block);
        }
        for fence in 0..self.len() {
            let (start, end, block) = (self.key(fence), self.end(fence), self.block(fence));
            let rest = dirty.get(at..).unwrap_or_default();
            let count = rest.partition_point(|dirty| end.is_none_or(|end| dirty.key < end));
            at += count;
            let within = rest.get(..count).unwrap_or_default();
            if within.is_empty() {
                patch.new.fences.push(start, block);
            } else if block == NOWHERE {
                patch.segment(start, block, within, &[]);
            } else {
                let records = read(block)?;
                patch.segment(start, block, within, between(&records, start, end));
            }
        }
        Ok(patch.new)
    }
}

/// The records of a block between two keys.
#[must_use]
pub fn between<'a>(records: &'a [Record], start: &[u8], end: Option<&[u8]>) -> &'a [Record] {
    let from = records.partition_point(|record| record.0.as_slice() < start);
    let to = end
        .map_or(records.len(), |end| records.partition_point(|record| record.0.as_slice() < end));
    records.get(from..to.max(from)).unwrap_or_default()
}

/// A patch as far as it has come.
struct Patching {
    new: Patched,
    fresh: u32,
}

impl Patching {
    /// The fences of what was behind one fence, and of the keys that change there.
    ///
    /// A fresh block has no other record than those of its fences, so that its fence may begin
    /// earlier: at the first key that has no fence yet. A removal needs a fence only where an old
    /// block would otherwise show the record.
    fn segment(&mut self, start: &[u8], block: u32, dirty: &[Dirty<'_>], live: &[Record]) {
        let mut live = live.iter().peekable();
        // The first key that has no fence yet.
        let mut from = start.to_vec();
        for dirty in dirty {
            let mut is_resumed = false;
            while live.next_if(|record| record.0.as_slice() < dirty.key).is_some() {
                is_resumed = true;
            }
            if is_resumed {
                self.new.fences.push(&from, block);
                from = dirty.key.to_vec();
            }
            let old = live.next_if(|record| record.0 == dirty.key);
            if dirty.block != NOWHERE {
                self.new.fences.push(&from, dirty.block);
            } else if old.is_some() {
                self.hide(&from);
            } else {
                continue;
            }
            self.new.died.extend(old.map(|old| (block, weight_of(old))));
            from = [dirty.key, &[0]].concat();
        }
        if live.next().is_some() {
            self.new.fences.push(&from, block);
        } else if from == start {
            self.hide(start);
        }
    }

    /// Ends an old block before a key: what it has there is dead.
    fn hide(&mut self, key: &[u8]) {
        let last = self.new.fences.blocks.last().copied().unwrap_or(NOWHERE);
        if last < self.fresh {
            self.new.fences.push(key, NOWHERE);
        }
    }
}

/// Whether a key is the least one behind another.
fn is_next(before: &[u8], key: &[u8]) -> bool {
    key.split_last().is_some_and(|(last, rest)| *last == 0 && rest == before)
}

#[cfg(test)]
mod tests;
