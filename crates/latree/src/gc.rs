//! Room on the chip: blocks are collected, checkpoints free what they no longer need.
//!
//! G1: blocks in reserve suffice for a checkpoint, for the log that a recovery applies, and for
//! the moves of a collection. G2: room is made only between steps, when the tree is whole.
//!
//! A buffer with a page in the block is emptied, which frees all its pages; where there is too
//! little room for that, or an emptying is under way, the page is moved.

use alloc::vec::Vec;

use crate::buffer::SubtreeId;
use crate::chip::{BlockNo, Chip, PageNo, Read};
use crate::error::{Error, Result};
use crate::nodes::Children;
use crate::page::{self, Decoded, Kind};
use crate::planted::{self, Bug};
use crate::space::State;
use crate::tree::{LaTree, bottom};

/// How much more worn than the least worn block the most worn may be.
const WEAR_SPREAD_MAX: u32 = 32;

impl<C: Chip> LaTree<C> {
    /// Blocks that a checkpoint, a recovery and a collection need.
    fn low_blocks(&self) -> usize {
        let checkpoint = self.checkpoint_pages(self.table.pool_bytes().max(self.pool_max));
        let pages = checkpoint + self.plan.log_pages_max as usize;
        pages.div_ceil(self.flash.space.pages_per_block() as usize) + 4
    }

    /// The most pages of a checkpoint with so many bytes in the pool.
    fn checkpoint_pages(&self, pool_bytes: usize) -> usize {
        // Its stream: subtrees, and pages of fragments.
        let table = 16 * self.table.len() + 20 * self.table.pages();
        (table + pool_bytes) / self.flash.capacity() + 4
    }

    fn batch_blocks(&self) -> usize {
        (self.flash.chip.blocks() / 64).max(1) as usize
    }

    /// Blocks that are free after room was made for nothing.
    pub(crate) fn reserve_blocks(&self) -> usize {
        self.low_blocks() + self.batch_blocks() + 1
    }

    /// Makes room for a step of an emptying; answers whether there is, in a collection.
    pub(crate) fn has_room_for_step(&mut self) -> Result<bool> {
        if self.is_collecting {
            return Ok(self.flash.space.free_blocks() > self.low_blocks());
        }
        self.make_room(self.step_pages())?;
        Ok(true)
    }

    /// The most pages that a step of an emptying programs, about.
    fn step_pages(&self) -> usize {
        let batch = 2 * self.plan.batch / self.flash.capacity();
        // Of the least entries of an inner node.
        let children = self.flash.capacity() / 9;
        let in_block = self.flash.space.pages_per_block() as usize;
        batch + children.min(in_block) + 24
    }

    /// Pages that may be in use while a step has room: without the reserve, the step's pages and
    /// the blocks that are open.
    pub(crate) fn capacity_pages(&self) -> u64 {
        let in_block = self.flash.space.pages_per_block() as usize;
        let blocks = self.reserve_blocks() + self.step_pages().div_ceil(in_block) + 3;
        self.flash.space.usable_pages().saturating_sub((blocks * in_block) as u64)
    }

    /// Makes room for `pages` pages of nodes or fragments.
    ///
    /// # Errors
    /// [`Error::Full`] when there is none: the tree is as it was.
    pub(crate) fn make_room(&mut self, pages: usize) -> Result<()> {
        let more = pages.div_ceil(self.flash.space.pages_per_block() as usize);
        let needed = self.reserve_blocks() + more;
        if self.is_collecting || self.flash.space.free_blocks() >= needed {
            return Ok(());
        }
        self.is_collecting = true;
        let done = self.collect_until(needed);
        self.is_collecting = false;
        done
    }

    fn collect_until(&mut self, needed: usize) -> Result<()> {
        let (mut collected, mut free_before) = (0, 0);
        self.flash.space.begin_collecting();
        while self.flash.space.free_blocks() < needed {
            let releasable = self.flash.space.releasable();
            let must_release = self.flash.space.free_blocks() <= self.low_blocks()
                || releasable >= self.batch_blocks();
            if releasable > 0 && must_release {
                self.checkpoint()?;
                // Moving a leaf writes the nodes above it, too, which may take more than it gives.
                let free = self.flash.space.free_blocks();
                let is_more = free > core::mem::replace(&mut free_before, free);
                if !is_more && 4 * free < 3 * self.low_blocks() {
                    return Err(Error::Full);
                }
                continue;
            }
            let victims = self.victims(collected == 0);
            if victims.is_empty() || collected >= self.flash.chip.blocks() as usize {
                // A checkpoint also frees the log.
                if releasable > 0 || self.log.programmed > 3 {
                    self.checkpoint()?;
                    continue;
                }
                return Err(Error::Full);
            }
            for victim in &victims {
                self.collect(*victim, &victims)?;
            }
            collected += victims.len();
            if self.flash.space.free_blocks() <= 4 {
                self.checkpoint()?;
            }
        }
        Ok(())
    }

    /// The blocks to collect: those with the fewest live pages; the least worn one now and then,
    /// when the chip is worn unevenly. None that would gain nothing, and as many as there is room
    /// to move: what is above their nodes is written once. A block that this collection has filled
    /// is left, or the one with the nodes above would be chosen again and again.
    fn victims(&self, is_first: bool) -> Vec<BlockNo> {
        let space = &self.flash.space;
        let closed = || {
            let used = space.numbered().filter(|(_, block)| block.live > 0);
            used.filter(|(_, block)| block.state == State::Closed && !block.is_opened)
        };
        let (least, greatest) = space.wear();
        if greatest - least > WEAR_SPREAD_MAX && is_first {
            let coldest = closed().map(|(number, _)| (space.erases(number), number)).min();
            let worn = coldest.filter(|(erases, _)| greatest - erases > WEAR_SPREAD_MAX);
            if let Some((_, number)) = worn {
                return Vec::from([number]);
            }
        }
        let most = (self.flash.chip.blocks() as usize / 16).clamp(1, 16);
        let (mut victims, mut moved) = (Vec::new(), 0);
        let mut last = None;
        while victims.len() < most {
            let others = closed().map(|(number, block)| (block.live, number));
            last = others.filter(|other| last.is_none_or(|last| *other > last)).min();
            let Some((live, number)) = last else { break };
            moved += usize::from(live);
            let is_gain = u32::from(live) * 16 < space.pages_per_block() * 15;
            if !is_gain || !self.can_move(moved) {
                break;
            }
            victims.push(number);
        }
        victims
    }

    /// Whether there is room to move so many nodes, each with those above it in its subtree, and
    /// for a checkpoint after that.
    fn can_move(&self, nodes: usize) -> bool {
        let pages = nodes * usize::from(self.k()) + self.checkpoint_pages(self.table.pool_bytes());
        // Of two streams a block may be full.
        let blocks = pages.div_ceil(self.flash.space.pages_per_block() as usize) + 2;
        self.flash.space.free_blocks() >= blocks
    }

    /// Moves what is live in a block elsewhere, and the nodes of the same subtrees in others.
    fn collect(&mut self, victim: BlockNo, all: &[BlockNo]) -> Result<()> {
        self.stats.collected_blocks += 1;
        let first = self.flash.space.first_page(victim);
        for index in 0..self.flash.space.pages_per_block() {
            if self.flash.space.block(victim).is_none_or(|block| block.live == 0) {
                return Ok(());
            }
            let at = PageNo(first.0 + index);
            let (read, bytes) = self.flash.read_raw(at)?;
            let Decoded::Ours(header) = page::decode(&bytes) else { continue };
            let Some(((key, _), _)) = page::first(page::payload(&bytes)) else { continue };
            match header.kind {
                _ if read != Read::Data => {}
                Kind::Node => self.move_node(all, at, header.level, key)?,
                Kind::Fragment => self.move_fragment(at, key, &bytes)?,
                Kind::Checkpoint | Kind::Log => {}
            }
        }
        if self.flash.space.block(victim).is_some_and(|block| block.live > 0) {
            let what = "pages of its block are needed and cannot be found";
            return Err(Error::Damaged { page: first, what });
        }
        Ok(())
    }

    /// Moves a node if it is part of the tree, with all nodes of its subtree that are in blocks to
    /// collect: what is above them is written once.
    fn move_node(&mut self, all: &[BlockNo], at: PageNo, level: u8, key: &[u8]) -> Result<()> {
        if level > self.table.get(self.root)?.level {
            return Ok(());
        }
        let way = self.descend(key, level)?;
        let spot = way.last()?;
        if spot.at != at {
            return Ok(());
        }
        let id = spot.id;
        let (root, level) = (self.table.get(id)?.root, self.table.get(id)?.level);
        match self.move_below(all, root, level)? {
            Some(root) => self.table.set_root(id, root, level),
            None => Ok(()),
        }
    }

    /// Moves a node and those below it in its subtree, as far as they are in these blocks. Answers
    /// the address that the node has now, if it is another.
    fn move_below(&mut self, all: &[BlockNo], at: PageNo, level: u8) -> Result<Option<PageNo>> {
        let is_moved = all.contains(&self.flash.space.block_of(at));
        let has_nodes = level > bottom(level, self.k());
        if !is_moved && !has_nodes {
            return Ok(None);
        }
        let node = self.flash.read(at, Kind::Node)?;
        let mut children = Children::default();
        let mut is_changed = is_moved;
        if has_nodes {
            for (key, value) in page::entries(page::payload(&node)) {
                let child = PageNo(page::child(value));
                let moved = self.move_below(all, child, level - 1)?;
                is_changed |= moved.is_some();
                children.push(key, moved.unwrap_or(child).0);
            }
        }
        if !is_changed {
            return Ok(None);
        }
        self.stats.moved_nodes += u64::from(is_moved);
        let payload = if has_nodes { children.bytes() } else { page::payload(&node) };
        let new = self.flash.write(Kind::Node, level, 0, payload)?;
        self.flash.release(at);
        Ok(Some(new))
    }

    /// Empties the buffer that has the page, or moves the page.
    fn move_fragment(&mut self, at: PageNo, key: &[u8], bytes: &[u8]) -> Result<()> {
        let Some((id, pages)) = self.owner(at, key)? else {
            if planted::is(Bug::DeadFragmentCopied) {
                let mut buffer = self.table.take(self.root)?;
                page::entries(page::payload(bytes)).for_each(|entry| buffer.part.insert(entry));
                self.table.put_back(self.root, buffer)?;
            }
            return Ok(());
        };
        let in_block = self.flash.space.pages_per_block() as usize;
        let spare = self.flash.space.free_blocks().saturating_sub(self.low_blocks());
        if !self.is_emptying && spare * in_block > 3 * pages + in_block && self.empty(id, key)? {
            self.stats.collected_empties += 1;
            return Ok(());
        }
        // An emptying that ended early may have divided the buffer.
        let Some((id, _)) = self.owner(at, key)? else { return Ok(()) };
        self.stats.moved_fragments += 1;
        let new = self.flash.write(Kind::Fragment, 0, 0, page::payload(bytes))?;
        let mut buffer = self.table.take(id)?;
        let pages = buffer.fragments.iter_mut().flat_map(|fragment| &mut fragment.pages);
        pages.filter(|page| page.at == at).for_each(|page| page.at = new);
        self.flash.release(at);
        self.table.put_back(id, buffer)
    }

    /// The buffer that has a page whose first key is `key`, and the number of its pages.
    fn owner(&mut self, at: PageNo, key: &[u8]) -> Result<Option<(SubtreeId, usize)>> {
        for spot in self.descend(key, 1)?.spots {
            let Some(buffer) = self.table.buffer(spot.id)? else { continue };
            if buffer.all_pages().any(|page| page.at == at) {
                return Ok(Some((spot.id, buffer.pages())));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use esker_flash::nand::{Bytes, Sizes};
    use esker_flash::{Geometry, NandSim};

    use crate::options::{Buffering, Options};
    use crate::simulated::Simulated;
    use crate::space::State;
    use crate::tree::LaTree;

    /// A tree without an emptying, on a chip of blocks of 8 pages of 512 bytes.
    fn tree(subtree_levels: u8) -> LaTree<Simulated<NandSim<Bytes>>> {
        let geometry = Geometry::new(Sizes {
            channels: 1,
            dies_per_channel: 1,
            planes_per_die: 1,
            blocks_per_plane: 300,
            pages_per_block: 8,
            page_size: 512,
        });
        let buffering = Buffering::Fixed(usize::MAX);
        let options = Options { subtree_levels, buffering, ..Options::default() };
        LaTree::create(Simulated(NandSim::new(geometry.unwrap())), options).unwrap()
    }

    #[test]
    fn an_emptying_that_ends_early_keeps_what_is_left_when_its_root_has_grown() {
        for subtree_levels in 2..=3 {
            let mut tree = tree(subtree_levels);
            let keys: Vec<_> =
                (0..900_u32).map(|key| key.wrapping_mul(0x9E37_79B9).to_be_bytes()).collect();
            for key in &keys {
                tree.put(key, &[key[0]; 12]).unwrap();
            }
            assert_eq!(tree.table.get(tree.root).unwrap().level, 1, "nothing was emptied");
            // Room for the first steps alone.
            while tree.flash.space.free_blocks() > tree.low_blocks() + 1 {
                let block = tree.flash.space.least_worn_free().unwrap();
                tree.flash.space.set_state(block, State::Retired);
            }
            tree.is_collecting = true;
            assert!(!tree.empty(tree.root, &[]).unwrap(), "it ended early");
            tree.is_collecting = false;
            assert!(tree.table.get(tree.root).unwrap().level > 1, "the root has grown");
            for key in &keys {
                let found = tree.get(key).unwrap();
                assert_eq!(found.as_deref(), Some(&[key[0]; 12][..]), "{key:?}");
            }
        }
    }
}
