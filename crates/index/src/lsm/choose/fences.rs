//! The blocks of a level, or of the runs, as policies see them, in bounded memory.

use esker_format::ids::Seq;
use esker_substrate::error::Result;

use crate::build::level_writer::extent_of;
use crate::lsm::policy::Blocks;
use crate::read::source::Run;
use crate::run::consumed::Consumed;
use crate::run::cursor::{FenceCursor, Target};
use crate::run::tree::{BlockReader, Tree};

/// Most blocks that are distinguished.
const FENCES_MAX: usize = 1 << 15;

/// Blocks as policies see them: of a level, or what is left of runs, by key. In a level of more
/// than [`FENCES_MAX`], neighbours count as one block, so that a choice takes a few megabytes of
/// memory.
#[derive(Debug)]
pub(in crate::lsm) struct Fences {
    blocks: Vec<(Vec<u8>, u64)>,
    /// The number of a level's blocks that count as one, and the number that the last one has.
    together: u64,
    in_last: u64,
}

impl Default for Fences {
    fn default() -> Self {
        Self { blocks: Vec::new(), together: 1, in_last: 0 }
    }
}

impl Blocks for Fences {
    fn len(&self) -> usize {
        self.blocks.len()
    }

    fn key(&self, block: usize) -> &[u8] {
        self.blocks.get(block).map_or(&[], |(key, _)| key)
    }

    fn bytes(&self, block: usize) -> u64 {
        self.blocks.get(block).map_or(0, |(_, bytes)| *bytes)
    }
}

impl Fences {
    /// The blocks of all runs: two may hold keys of one range. What is left of a block that a merge
    /// has taken the first keys of begins behind these.
    pub fn of_runs(reader: &BlockReader, runs: &[Run]) -> Result<Self> {
        let mut all = Self::default();
        for run in runs {
            all.add(reader, &run.tree, &run.consumed)?;
        }
        all.blocks.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    pub fn of_level(reader: &BlockReader, tree: &Tree) -> Result<Self> {
        let mut all = Self::default();
        all.add(reader, tree, &Consumed::default())?;
        Ok(all)
    }

    /// Blocks that begin within a key's versions count as the one before: a part cannot end there.
    ///
    /// Cost: reads all nodes of the tree.
    fn add(&mut self, reader: &BlockReader, tree: &Tree, gone: &Consumed) -> Result<()> {
        let Some(level) = tree.height().checked_sub(1) else { return Ok(()) };
        // Blocks of two runs are not neighbours.
        self.in_last = self.together;
        let mut next = FenceCursor::find(tree, reader, level, Target::At(b"", Seq::MAX))?;
        let mut is_there = false;
        while let Some(at) = next {
            let (key, seq, bytes) = at.with_current(|fence| {
                (fence.key.to_vec(), fence.seq, extent_of(&fence.fence.ptr).bytes())
            })?;
            next = at.next()?;
            let upper = next.as_ref().map(|next| next.with_current(|f| (f.key.to_vec(), f.seq)));
            let upper = upper.transpose()?;
            if gone.has_block(&key, upper.as_ref().map(|(key, seq)| (key.as_slice(), *seq))) {
                is_there = false;
                continue;
            }
            let goes_on = is_there && seq != Seq::MAX;
            is_there = true;
            if goes_on {
                self.grow_last(bytes);
                continue;
            }
            let left = gone.at(&key).and_then(|gone| gone.end).map(<[u8]>::to_vec);
            self.push(left.unwrap_or(key), bytes);
        }
        Ok(())
    }

    /// The last block is longer by that many bytes.
    fn grow_last(&mut self, bytes: u64) {
        if let Some((_, all)) = self.blocks.last_mut() {
            *all += bytes;
        }
    }

    /// A block behind all others.
    fn push(&mut self, key: Vec<u8>, bytes: u64) {
        if self.in_last < self.together && !self.blocks.is_empty() {
            self.in_last += 1;
            return self.grow_last(bytes);
        }
        self.in_last = 1;
        self.blocks.push((key, bytes));
        if self.blocks.len() > FENCES_MAX {
            self.pair();
        }
    }

    /// Twice the number of blocks count as one; the last one, one too many, stays alone for now.
    fn pair(&mut self) {
        self.together *= 2;
        let mut pairs = Vec::with_capacity(FENCES_MAX);
        let mut blocks = std::mem::take(&mut self.blocks).into_iter();
        while let Some((key, bytes)) = blocks.next() {
            let next = blocks.next().map_or(0, |(_, bytes)| bytes);
            pairs.push((key, bytes + next));
        }
        self.blocks = pairs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many blocks there are, few are distinguished; each counts once, with its neighbours.
    #[test]
    fn neighbours_are_one_block_where_there_are_many() {
        let most = FENCES_MAX as u64;
        for (count, together) in
            [(1, 1), (most, 1), (most + 1, 2), (2 * most, 2), (2 * most + 1, 4), (5 * most - 3, 8)]
        {
            let mut fences = Fences::default();
            for at in 0..count {
                fences.push(at.to_be_bytes().to_vec(), 1);
            }
            assert_eq!(fences.len() as u64, count.div_ceil(together));
            for block in 0..fences.len() {
                let first = block as u64 * together;
                assert_eq!(fences.key(block), first.to_be_bytes());
                assert_eq!(fences.bytes(block), together.min(count - first));
            }
        }
    }
}
